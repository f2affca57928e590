"""Random idle cycles for the ports of simulation models."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Stalls(wiring.Component):
    """`stop` has one bit per port, set in a cycle with probability `probability` / 256 (0: never).

    A 32-bit xorshift generator (Marsaglia 2003), started from `seed` in the first cycle after reset.
    """

    def __init__(self, ports: int):
        self._ports = ports
        super().__init__({"probability": In(8), "seed": In(32), "stop": Out(ports)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(32)
        started = Signal()
        first = Signal(32)
        second = Signal(32)
        third = Signal(32)
        with m.If(~started):
            m.d.sync += [started.eq(1), state.eq(self.seed ^ 0x9E3779B9)]
        with m.Elif(self.probability != 0):
            m.d.comb += [
                first.eq(state ^ (state << 13)[:32]),
                second.eq(first ^ (first >> 17)),
                third.eq(second ^ (second << 5)[:32]),
            ]
            m.d.sync += state.eq(third)
            for port in range(self._ports):
                m.d.sync += self.stop[port].eq(state.word_select(port % 4, 8) < self.probability)
        with m.Else():
            m.d.sync += self.stop.eq(0)
        return m
