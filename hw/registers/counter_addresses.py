"""The counters of all blocks of a node, in the order of their addresses."""

from collections.abc import Iterator
from functools import cache

from ..address_map import ADDRESS_MAP_COUNTERS
from ..counters import Counter, Counting
from ..dma.events import DMA_COUNTERS
from ..link.events import LINK_COUNTERS, link_counters, recovery_counters
from ..link.parameters import MAX_LINKS
from ..memory_controller.events import CONTROLLER_COUNTERS
from ..memory_errors import MEMORY_COUNTERS
from ..node_monitor import LATENCY_COUNTERS
from ..tracker.doorbell import DOORBELL_COUNTERS
from ..tracker.events import TRACKER_COUNTERS
from .fields import Field, Kind, Register

COUNTER_BASE = 0x1000
COUNTER_BITS = 48
FIRST_LINKS = 2
"""Ports whose counters stand before the others'."""


@cache
def counters(links: int = MAX_LINKS, memories: bool = True) -> tuple[Counter, ...]:
    """The counters of the blocks of a node with `links` link ports, and with protection of `memories`, in address
    order. Addresses are those of a node that has it all."""
    return tuple(
        counter
        for counter, port in (
            (Counter("cycles", 0, Counting.SUM, "cycles since the counters were cleared"), 0),
            *_of_node(CONTROLLER_COUNTERS, TRACKER_COUNTERS, DMA_COUNTERS),
            *((counter, port) for port in range(FIRST_LINKS) for counter in link_counters(port)),
            *_of_node(ADDRESS_MAP_COUNTERS, LATENCY_COUNTERS, LINK_COUNTERS, DOORBELL_COUNTERS),
            *((counter, port) for port in range(FIRST_LINKS, MAX_LINKS) for counter in link_counters(port)),
            *((counter, port) for port in range(MAX_LINKS) for counter in recovery_counters(port)),
            *((counter, 0 if memories else MAX_LINKS) for counter in MEMORY_COUNTERS),
        )
        if port < links
    )


def _of_node(*blocks: tuple[Counter, ...]) -> Iterator[tuple[Counter, int]]:
    """Counters that there are whatever the ports."""
    return ((counter, 0) for block in blocks for counter in block)


def counter_registers(links: int, memories: bool) -> Iterator[Register]:
    """Two registers of each of :func:`counters`, with places left for those of larger nodes."""
    present = {counter.name for counter in counters(links, memories)}
    for number, counter in enumerate(counters()):
        if counter.name not in present:
            continue
        address = COUNTER_BASE + 8 * number
        for half, low, width in (("low", 0, 32), ("high", 32, COUNTER_BITS - 32)):
            name = f"{counter.name}_{half}"
            text = f"{counter.description}, bits {low + width - 1}:{low}"
            note = "" if half == "low" else "; latched when a low half is read"
            field = Field(name, 0, width, Kind.COUNTER, text + note)
            yield Register(name, address + low // 8, (field,), text + note, counter.counting)
