"""Where remote stores leave by several ports: the lines in which workgroups wait for room for what they store."""

from amaranth import Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.queue import Queue
from sim.models.plan_layout import MAX_SLOTS

Place = data.StructLayout({"slot": range(MAX_SLOTS), "side": unsigned(1)})
"""A slot and the kernel that has it."""


class StoreLines(wiring.Component):
    """A line for local stores and one for those to each of `ports` link ports: who is over first stores first, as the
    tiles that follow it on the way round are expected, and those that wait for one port hold up no other. While no
    remote store has any of the room nobody joins a line, and whoever is looked at first stores first.

    Ports: `at`, the slot that is looked at; `waits`: its workgroup stands in its line. A bit a line, the local one
    first: `over`, the workgroup is, and stores as that line does; `room`, for what it stores. `shared`: remote stores
    have some of the room. `goes`: it stores now; `joins`: it stands in its line from now on; `following`, if `calls`:
    the slot to be looked at next, as the one in front of it in line went in the cycle before.
    """

    def __init__(self, ports: int):
        self._ports = ports
        super().__init__(
            {
                "at": In(Place),
                "waits": In(1),
                "over": In(ports + 1),
                "room": In(ports + 1),
                "shared": In(1),
                "goes": Out(1),
                "joins": Out(1),
                "calls": Out(1),
                "following": Out(Place),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number, (over, room) in enumerate(zip(self.over, self.room, strict=True)):
            m.submodules[f"line_{number}"] = line = Queue(Place, MAX_SLOTS)
            went = Signal(name=f"went_{number}")
            goes = room & (~line.o.valid | self.waits & (line.o.payload.slot == self.at.slot))
            with m.If(over):
                m.d.comb += [
                    self.goes.eq(goes),
                    self.joins.eq(self.shared & ~self.waits & ~goes),
                    line.i.valid.eq(self.joins),
                    line.o.ready.eq(goes & self.waits),
                ]
            m.d.comb += line.i.payload.eq(self.at)
            m.d.sync += went.eq(line.o.ready)
            with m.If(went & line.o.valid):
                m.d.comb += [self.calls.eq(1), self.following.eq(line.o.payload)]
        return m
