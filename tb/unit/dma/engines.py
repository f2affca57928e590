"""DMA engines under test: sizes, and one that is wrong."""

from amaranth import Module
from amaranth.lib.wiring import Component

from hw.config import preset
from hw.dma.engine import DmaEngine
from tb.drivers.slot_double import EngineWithSlots
from tb.drivers.stream_checker import checked

SIZES = {
    "paper": preset("paper", dma_packets=8),
    "tiny": preset("tiny"),
    "four_channels": preset("quad", dma_packets=8),
    "tiny_four_channels": preset("tiny", channels=4),
    "two_lanes": preset("quad", lanes=2, dma_packets=8),
    "four_lanes": preset("tiny", channels=4, lanes=4, links=3),
    "many_packets": preset("paper", dma_packets=64),
    "five_ports": preset("paper", links=5),
}


def design(size: str, kind: type[DmaEngine] = DmaEngine) -> Component:
    """The engine with slots, every stream of it watched."""
    return checked(EngineWithSlots(kind(SIZES[size]), SIZES[size]))


class ForgetsRaggedRows(DmaEngine):
    """A wrong engine that takes every WF tile of a bottom WG for a whole one, but for the first of a block."""

    def _describe(self, m: Module, transfer, block, *rest) -> None:
        super()._describe(m, transfer, block, *rest)
        geometry = transfer.geometry
        m.d.comb += geometry.ragged.eq(block.bottom & (geometry.ragged_tile == transfer.tile))
