"""Workgroups that share a compute unit, which multiplies for one of them at a time."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from sim.models.plan_layout import MAX_SLOTS


class UnitSharing(wiring.Component):
    """Ports: `slot`, of a kernel on `units` compute units, slot s on unit s modulo `units` (0: a unit for each slot);
    `earliest`: when its workgroup could begin a step, `begin`: when its unit is free for that; `take`: it has it
    until `end`. Times are cycles modulo 2**32."""

    def __init__(self) -> None:
        super().__init__(
            {
                "slot": In(range(MAX_SLOTS)),
                "units": In(10),
                "earliest": In(32),
                "begin": Out(32),
                "take": In(1),
                "end": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.taken = taken = Memory(shape=unsigned(32), depth=MAX_SLOTS, init=[])
        read, write = taken.read_port(domain="comb"), taken.write_port()
        unit = Signal(range(MAX_SLOTS))
        beyond = [self.slot - self.units * turn for turn in range(3)]
        m.d.comb += unit.eq(
            Mux(self.slot >= 2 * self.units, beyond[2], Mux(self.slot >= self.units, beyond[1], self.slot))
        )
        wait = Signal(32)
        m.d.comb += [
            read.addr.eq(unit),
            write.addr.eq(unit),
            write.data.eq(self.end),
            write.en.eq(self.take),
            wait.eq(read.data - self.earliest),
            self.begin.eq(Mux((self.units != 0) & ~wait[31], read.data, self.earliest)),
        ]
        return m
