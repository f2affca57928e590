"""What the DMA engine tells the counters, and what is counted of it."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..counters import total

DmaEvents = data.StructLayout(
    {"busy": unsigned(1), "reads": unsigned(6), "packets": unsigned(1), "blocks": unsigned(5), "waiting": unsigned(1)}
)
"""What the DMA engine did this cycle: a block is in work; sectors whose read was issued; packets and blocks of which it
was the last, and in a lane blocks that have none there; `waiting`: no packet slot was to be had."""

DMA_COUNTERS = (
    total("dma_busy", "cycles the DMA engine had a block in work", lambda event: event.busy),
    total("dma_reads", "sectors read by the DMA engine", lambda event: event.reads),
    total("dma_packets", "packets read for the link", lambda event: event.packets),
    total("dma_blocks", "blocks read for the link", lambda event: event.blocks),
    total("dma_waiting", "cycles without a packet slot", lambda event: event.waiting),
)
"""Of :data:`DmaEvents`."""
