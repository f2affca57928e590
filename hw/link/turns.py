"""Turns among many that ask, fairly."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Turns(wiring.Component):
    """Gives a turn to one of `count` that ask, in circles: whoever had the last one is the last to have the next.

    Ports: `asks`; `has`: one bit, of one that asks, 0 when none does; `taken`: the turn is used. Latency 0 cycles. One
    that keeps asking waits for at most `count` - 1 turns of others.
    """

    def __init__(self, count: int):
        self._count = count
        super().__init__({"asks": In(count), "has": Out(count), "taken": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._count
        behind = Signal(count)
        """Those after the last one."""
        later = Signal(count)
        m.d.comb += later.eq(self.asks & behind)
        found = Signal(count)
        found_later = Signal(count)
        for number in range(count):
            m.d.comb += [
                found[number].eq(self.asks[number] & ~self.asks[:number].any()),
                found_later[number].eq(later[number] & ~later[:number].any()),
            ]
        with m.If(later.any()):
            m.d.comb += self.has.eq(found_later)
        with m.Else():
            m.d.comb += self.has.eq(found)
        with m.If(self.taken & self.asks.any()):
            for number in range(count):
                m.d.sync += behind[number].eq(self.has[:number].any())
        return m
