"""Bound of the wait for acknowledgements after an epoch has ended."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .link.port_sender import TIMER_BITS


class DrainBound(wiring.Component):
    """Makes ports give up what is still not acknowledged when an ended epoch has waited for so long.

    Ports: `waits`: no epoch is armed, and a packet of an older one is in a slot; `limit`: cycles, at least 1;
    `give_up`: pulse, in the cycle in which `waits` was high for `limit` cycles, and again after as many.
    """

    def __init__(self) -> None:
        super().__init__({"waits": In(1), "limit": In(TIMER_BITS), "give_up": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waited = Signal(TIMER_BITS)
        m.d.comb += self.give_up.eq(self.waits & (waited >= self.limit))
        with m.If(self.waits & ~self.give_up):
            m.d.sync += waited.eq(waited + 1)
        with m.Else():
            m.d.sync += waited.eq(0)
        return m
