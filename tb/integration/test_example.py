"""The example outside of the package: every tile raises one event, soon after it is complete, and no sooner."""

import importlib.util
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from sim.errors import SimulationError
from tb.drivers.payload import pack
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.runner import simulate

# By its path: it belongs to no package.
_spec = importlib.util.spec_from_file_location(
    "tile_events", Path(__file__).resolve().parents[2] / "examples" / "tile_events.py"
)
assert _spec is not None and _spec.loader is not None
tile_events = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tile_events)
TILES, WORDS, Store = tile_events.TILES, tile_events.WORDS, tile_events.Store

TIMEOUT = 100
"""Cycles within which an event follows the last store of its tile."""


@cocotb.test()
async def every_tile_raises_one_event(dut: Any) -> None:
    """Every word of every tile in two stores of complementary masks, all of them shuffled."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.address.value = 0
    dut.rst.value = 1
    source = StreamSource(dut, "stores", dut.clk, stalls(20))
    sink = StreamSink(dut, "complete", dut.clk, stalls(20))
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    memory = {address: random.getrandbits(256) for address in range(TILES * WORDS)}
    stores = []
    for address in memory:
        mask = random.getrandbits(32)
        stores += [(address, mask), (address, mask ^ 0xFFFFFFFF)]
    random.shuffle(stores)
    left = dict.fromkeys(range(TILES), 2 * WORDS)
    complete: list[int] = []
    for address, mask in stores:
        tile = address // WORDS
        await source.send(pack(Store, address=address, mask=mask, data=memory[address]))
        left[tile] -= 1
        if not left[tile]:
            complete.append(tile)
            for _ in range(TIMEOUT):
                await RisingEdge(dut.clk)
                if len(sink.received) == len(complete):
                    break
        assert list(sink.received) == complete
    for _ in range(TIMEOUT):
        await RisingEdge(dut.clk)
    assert list(sink.received) == complete
    assert sorted(complete) == list(range(TILES))
    for address, value in memory.items():
        dut.address.value = address
        await ReadOnly()
        assert int(dut.value.value) == value
        await RisingEdge(dut.clk)


def test_every_tile_raises_one_event() -> None:
    simulate(tile_events.TileEvents(), "tile_events", __name__)


def test_a_tile_said_to_be_larger_is_noticed() -> None:
    """A range entry whose tiles never come to their end."""
    table = tile_events.TABLE
    wrong = {word: value + 32 if word.name.startswith("THRESHOLD") else value for word, value in table.items()}
    with patch.object(tile_events, "TABLE", wrong), pytest.raises(SimulationError):
        simulate(tile_events.TileEvents(), "tile_events", __name__)
