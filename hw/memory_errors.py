"""What happened in the protected memories of a node: counted, located, and the end of an epoch that was hurt."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .counters import total
from .message_parameters import ChannelParameters
from .messages import Access, Fault, Messages
from .protection import ADDRESS_BITS, MemoryReport, ProtectedMemory

SCRUB_BITS = 16
COUNT_BITS = 5
MemoryEvents = data.StructLayout({"corrected": unsigned(COUNT_BITS), "lost": unsigned(COUNT_BITS)})
"""How many words were corrected, and are lost, in this cycle."""
MEMORY_COUNTERS = (
    total(
        "memory_corrected", "words of protected memories with one wrong bit, corrected", lambda event: event.corrected
    ),
    total("memory_uncorrected", "words of protected memories that are lost", lambda event: event.lost),
)
"""Of :data:`MemoryEvents`."""
Location = data.StructLayout(
    {
        "memory": ProtectedMemory,
        "lost": unsigned(1),
        "corrected": unsigned(1),
        "address": unsigned(ADDRESS_BITS),
    }
)
"""Where the last error was: a word that is `lost`, or was `corrected`, or neither since `forget`."""


class MemoryErrors(wiring.Component):
    """Collects the reports of `memories`.

    Ports: `reports`, one per memory of the list; `events`, a cycle later; `location`: of the last report, but one of a
    lost word stays until another is lost or until `forget` (pulse); `met` (pulse): something was corrected or lost;
    `lost` (pulse): something was lost, in the cycle of `events`; `faults`: a record MEMORY for it, with the memory's
    number as wg and the address as VA, dropped when it meets an untaken one. `interval`: cycles from one `scrub` pulse
    to the next; 0: none.
    """

    def __init__(self, config: ChannelParameters, memories: list[ProtectedMemory]):
        self._memories = memories
        super().__init__(
            {
                "reports": In(MemoryReport).array(len(memories)),
                "forget": In(1),
                "interval": In(SCRUB_BITS),
                "scrub": Out(1),
                "events": Out(MemoryEvents),
                "location": Out(Location),
                "met": Out(1),
                "lost": Out(1),
                "faults": Out(stream.Signature(Messages(config).fault_record)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waited = Signal(SCRUB_BITS)
        m.d.comb += self.scrub.eq((waited >= self.interval) & (self.interval != 0))
        m.d.sync += waited.eq(Mux(self.scrub, 1, waited + 1))

        corrected = Signal(len(self._memories))
        lost = Signal(len(self._memories))
        m.d.comb += [
            corrected.eq(Cat(report.corrected for report in self.reports)),
            lost.eq(Cat(report.lost for report in self.reports)),
        ]
        m.d.sync += [
            self.events.corrected.eq(sum(corrected)),
            self.events.lost.eq(sum(lost)),
            # Not of the counts, which may be too narrow for all memories at once.
            self.lost.eq(lost.any()),
            self.met.eq(corrected.any() | lost.any()),
        ]

        latest = Signal(Location)
        for memory, report in zip(self._memories, self.reports, strict=True):
            with m.If(report.lost | (report.corrected & ~lost.any())):
                m.d.comb += [
                    latest.memory.eq(memory),
                    latest.address.eq(report.address),
                    latest.lost.eq(report.lost),
                    latest.corrected.eq(report.corrected),
                ]
        fault = self.faults.payload
        with m.If(self.forget):
            m.d.sync += self.location.eq(0)
        with m.If(lost.any() | (corrected.any() & (~self.location.lost | self.forget))):
            m.d.sync += self.location.eq(latest)
        with m.If(~self.faults.valid | self.faults.ready):
            m.d.sync += [
                self.faults.valid.eq(lost.any()),
                fault.fault.eq(Fault.MEMORY),
                fault.access.eq(Access.UPDATE),
                fault.va.eq(latest.address),
                fault.wg.eq(latest.memory.as_value()),
            ]
        return m
