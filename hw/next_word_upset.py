"""Self test of memories that are not addressed by it: turns bits of what is stored next."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .protection import MemoryUpset, ProtectedMemory, turned_bits


class NextWordUpset(wiring.Component):
    """Turns bits of the next word that is stored in `memory`.

    Ports: `upset`: what is asked for; `stored`: a word (or several) is stored in this cycle, with `flips` of its
    `width` bits turned, which are none unless it was asked. Latency: a cycle after `upset.valid` it waits for a word.
    """

    def __init__(self, memory: ProtectedMemory, width: int):
        self._memory = memory
        super().__init__({"upset": In(MemoryUpset), "stored": In(1), "flips": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turning = Signal()
        with m.If(self.upset.valid):
            m.d.sync += turning.eq(self.upset.memory == self._memory)
        with m.Elif(self.stored):
            m.d.sync += turning.eq(0)
        m.d.comb += self.flips.eq(Mux(turning, turned_bits(self.upset), 0))
        return m
