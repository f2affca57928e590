"""An epoch that ends while the Tracker is at work, and faults that nobody takes: nothing is lost without a word."""

import random
from dataclasses import replace
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import RisingEdge

from hw.tracker.ready_queue import ReadyQueue
from hw.tracker.tracker import Tracker
from tb.drivers.tracker_bench import next_epoch
from tb.runner import caught
from tb.unit.tracker.test_tracker import QUAD, SMALL, TINY, UNTAGGED, begin, case, plain, run

WORKGROUPS = 12
FLIGHT = 40
"""Cycles after which an access, with a fetch of its counter, has surely left the Tracker."""


@cocotb.test()
async def clear_at_any_moment(dut):
    """The second halves of tiles come in when an epoch ends: a tile is a ready block, or told as LEFT_OVER."""
    bench = await begin(dut, memory_latency=8)
    config, epoch = bench.config, 1
    area = plain(wgs=WORKGROUPS, wfs=2, bytes_each=64)
    await bench.program([area])
    ends = {"all": 0, "some": 0, "none": 0}
    for gap in [*range(FLIGHT), *(random.randrange(FLIGHT) for _ in range(case()["ends"]))]:
        tiles = random.sample(area.tiles(), random.choice([1, 2, WORKGROUPS]))
        for half in range(2):
            for number, (wg, wf) in enumerate(tiles):
                bench.commit(number % config.channels, 0, wg, wf, epoch, 7 * wg + wf, 32)
            if half == 0:
                await bench.settle()
        for _ in range(gap):
            await RisingEdge(dut.clk)
        epoch = next_epoch(epoch)
        await bench.clear(epoch)
        await bench.settle()
        blocks = [(wg, wf) for _, wg, wf, *_ in bench.received_blocks()]
        faults = bench.received_faults()
        assert len(set(blocks)) == len(blocks) and set(blocks) <= set(tiles)
        refused = [(wg, wf) for name, wg, wf, _ in faults if name == "EPOCH"]
        assert not set(refused) & set(blocks)
        assert len(faults) - len(refused) == [name for name, *_ in faults].count("LEFT_OVER")
        assert len(faults) - len(refused) == (len(blocks) < len(tiles)), (gap, tiles, blocks, faults)
        ends["all" if len(blocks) == len(tiles) else "some" if blocks else "none"] += 1
        bench.forget()
    assert all(ends.values()), ends


@cocotb.test()
async def nothing_is_left_after_a_clear(dut):
    """Under the same number again, an epoch knows nothing of the tiles of the one before, of which some were in each
    set and others in the backing store, and asks that for none."""
    bench = await begin(dut, memory_latency=8)
    config = bench.config
    sets = config.tracker_sets
    area = replace(plain(wgs=3 * sets * config.tracker_ways, wfs=1, bytes_each=64), block_shift=0)
    await bench.program([area])
    for _ in range(6):
        for wg, wf in area.tiles():
            bench.commit(wg % config.channels, 0, wg, wf, 1, wg, 32)
        await bench.settle()
        assert not bench.received_blocks() and bench.counts["evictions"] >= sets
        await bench.clear(1)
        bench.forget()
        chosen = [random.randrange(first, area.workgroups, sets) for first in range(sets)]
        for half in range(2):
            for wg in chosen:
                bench.commit(wg % config.channels, 0, wg, 0, 1, wg, 32)
            await bench.settle()
            assert len(bench.received_blocks()) == half * len(chosen)
        assert bench.counts["evictions"] == bench.counts["fetches"] == 0
        await bench.clear(1)
        bench.forget()


@cocotb.test()
async def ranges_are_done_after_their_last_tile(dut):
    """One range after the other, each bit of its number of tiles being 0 in one epoch and 1 in another; then each with
    as many blocks as there are places, of four tiles."""
    bench = await begin(dut)
    config, epoch = bench.config, 1
    most = config.trigger_blocks // config.tracker_banks - 1
    totals = [random.randint(1, most - 1) for _ in range(config.ranges)]
    others = [most ^ blocks for blocks in totals]
    epochs = [(index, blocks, 1) for row in (totals, others) for index, blocks in enumerate(row)]
    epochs += [(index, most, 4) for index in range(config.ranges)]
    for index, blocks, wfs in epochs:
        area = plain(wgs=blocks, wfs=wfs, block_wfs=wfs, bytes_each=32)
        await bench.program([replace(area, index=index, block_shift=0)])
        tiles = area.tiles()
        for number, (wg, wf) in enumerate(tiles):
            assert int(dut.done.value) == 0
            bench.commit(number % config.channels, index, wg, wf, epoch, number, 32)
            if number == len(tiles) - 2:
                await bench.settle()
        assert int(dut.done.value) == 0
        await bench.settle()
        assert int(dut.done.value) == 1 << index
        assert len(bench.received_blocks()) == blocks and not bench.faults.received
        epoch = next_epoch(epoch)
        await bench.clear(epoch)
        assert int(dut.done.value) == 0
        bench.forget()


@cocotb.test()
async def faults_wait_to_be_taken(dut):
    """Each bank keeps its first fault until it is taken, and reports again after that."""
    bench = await begin(dut)
    config = bench.config
    await bench.program([plain()])
    for _ in range(3):
        bench.faults.stall = lambda: True
        unknown = random.sample(range(100, 1000), 64)
        for number, wg in enumerate(unknown):
            bench.commit(number % config.channels, 0, wg, 0, 1, wg, 32)
        await bench.settle()
        assert not bench.faults.received
        bench.faults.stall = lambda: False
        await bench.settle()
        told = bench.received_faults()
        assert len(set(told)) == len(told) == config.tracker_banks
        assert {(name, va - wg) for name, wg, _, va in told} == {("TILE", 0)}
        assert {wg for _, wg, *_ in told} <= set(unknown)
        if config.tracker_banks == 1:
            assert told[0][1] == unknown[0]
        bench.forget()


class SilentQueue(ReadyQueue):
    """Tells of no block that waits."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.waiting.eq(0)
        return m


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        pytest.param(TINY, marks=pytest.mark.wide),
        pytest.param(QUAD, marks=pytest.mark.wide),
        pytest.param(UNTAGGED, marks=pytest.mark.wide),
    ],
    ids=["small", "tiny", "four_banks", "no_tags"],
)
def test_an_epoch_ends_at_any_moment(config):
    run("clear_at_any_moment", {"config": config, "ends": 30}, module=__name__)


@pytest.mark.parametrize("config", [SMALL, TINY, QUAD], ids=["small", "tiny", "four_banks"])
def test_nothing_is_left_after_a_clear(config):
    run("nothing_is_left_after_a_clear", {"config": config}, module=__name__)


@pytest.mark.parametrize("config", [SMALL, QUAD], ids=["one_bank", "four_banks"])
def test_ranges_are_done_after_their_last_tile(config):
    run("ranges_are_done_after_their_last_tile", {"config": config}, module=__name__)


@pytest.mark.parametrize("config", [SMALL, QUAD], ids=["one_bank", "four_banks"])
def test_faults_wait_to_be_taken(config):
    run("faults_wait_to_be_taken", {"config": config}, module=__name__)


@pytest.mark.wide
def test_a_block_dropped_without_a_word_is_caught():
    with patch("hw.tracker.trigger_table.ReadyQueue", SilentQueue), caught():
        run("clear_at_any_moment", {"config": SMALL, "ends": 300}, Tracker, __name__)
