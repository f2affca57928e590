"""Counters stand beside the logic that counts: each takes what its block's events have, and each is in the map."""

import pytest
from amaranth import Signal
from amaranth.hdl import Value

from hw.address_map import ADDRESS_MAP_COUNTERS
from hw.config import preset
from hw.counters import Counter, Counting, total
from hw.dma.events import DMA_COUNTERS, DmaEvents
from hw.link.events import LINK_COUNTERS, LinkEvents, link_counters, recovery_counters
from hw.link.parameters import MAX_LINKS
from hw.memory_controller.events import CONTROLLER_COUNTERS, ControllerEvents
from hw.memory_errors import MEMORY_COUNTERS, MemoryEvents
from hw.node_monitor import LATENCY_COUNTERS
from hw.registers.counter_addresses import COUNTER_BASE, counters
from hw.registers.map import find_register
from hw.tracker.doorbell import DOORBELL_COUNTERS
from hw.tracker.events import TRACKER_COUNTERS, TrackerEvents

DECLARED = (
    (MEMORY_COUNTERS, MemoryEvents),
    (ADDRESS_MAP_COUNTERS, 1),
    (CONTROLLER_COUNTERS, ControllerEvents),
    (TRACKER_COUNTERS, TrackerEvents),
    (DMA_COUNTERS, DmaEvents),
    *((of(port), LinkEvents) for port in range(MAX_LINKS) for of in (link_counters, recovery_counters)),
    (LATENCY_COUNTERS, 16),
    (LINK_COUNTERS, 8),
    (DOORBELL_COUNTERS, 1),
)


def _check(counter: Counter, shape: object) -> None:
    value = Value.cast(counter.value(Signal(shape)))
    assert 1 <= len(value) <= counter.width, counter.name


@pytest.mark.parametrize(("declared", "shape"), DECLARED)
def test_a_counter_takes_what_its_block_tells(declared, shape):
    for counter in declared:
        _check(counter, shape)


def test_a_counter_of_what_no_block_tells_is_found():
    with pytest.raises(AttributeError, match="no_such_event"):
        _check(total("x", "", lambda event: event.no_such_event), DmaEvents)
    with pytest.raises(AssertionError, match="narrow"):
        _check(Counter("narrow", 8, Counting.SUM, "", lambda event: event.live), TrackerEvents)


def test_every_counter_is_in_the_map_once():
    names = [counter.name for counter in counters()]
    assert len(set(names)) == len(names)
    assert set(names) == {"cycles", *(counter.name for declared, _ in DECLARED for counter in declared)}
    config = preset("paper", links=MAX_LINKS, protection="all")
    for number, name in enumerate(names):
        assert find_register(config, f"{name}_low").address == COUNTER_BASE + 8 * number
