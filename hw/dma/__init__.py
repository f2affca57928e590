"""The DMA engine: from a block that is complete to reads of its sectors and packets for a peer (T3 section 4.2.2)."""

from .engine import DmaEngine, DmaParameters
from .transfer import transfer_layout
from .walker import Walker

__all__ = ["DmaEngine", "DmaParameters", "Walker", "transfer_layout"]
