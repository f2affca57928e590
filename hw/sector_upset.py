"""Self test of the parity of sectors: turns bits of one as it is stored."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .protection import MemoryUpset, ProtectedMemory, turned_bits


class SectorUpset(wiring.Component):
    """Turns bits of the next sector that is stored in `memory`.

    Ports: `upset`: what is asked for; `stored`: sectors are stored in this cycle, with `flips` of their `width` bits
    turned. Latency: a cycle after `upset.valid` it waits for a sector.
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
