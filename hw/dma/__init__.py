"""The DMA engine: from a block that is complete to reads of its sectors and packets for a peer (T3 section 4.2.2)."""

from .engine import DmaEngine, DmaParameters

__all__ = ["DmaEngine", "DmaParameters"]
