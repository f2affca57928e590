"""Counters that went to the backing store: known to be there, until they are back, and complete when they are."""

import itertools
import random
from dataclasses import replace
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import RisingEdge

from hw.tracker.count_stage import CountStage
from hw.tracker.tracker import Tracker
from tb.drivers.payload import field
from tb.drivers.stream import never
from tb.drivers.tracker_bench import TrackerBench
from tb.runner import caught
from tb.unit.tracker.test_tracker import SMALL, TINY, begin, plain, run

LARGE = 4096
OTHERS = 40
"""WF tiles that together push any other's counter out of these Trackers."""


async def push_out(bench: TrackerBench, first: int, index: int = 0) -> None:
    """All counters but those of :data:`OTHERS` workgroups of range `index` from `first` on go to the backing store."""
    for other in range(OTHERS):
        bench.commit(0, index, first + other, 0, 1, 0, 32)
    await bench.settle()


@cocotb.test()
async def records_are_counted(dut):
    """After a counter, or more than a hundred per set, came back, a new tile asks memory for nothing."""
    bench = await begin(dut, memory_latency=1)
    workgroups = min(600, bench.config.trigger_blocks)
    await bench.program([replace(plain(wgs=workgroups, wfs=2, block_wfs=2, bytes_each=64), block_shift=0)])
    places = bench.config.tracker_sets * bench.config.tracker_ways
    first = before = 0
    for count in (places // 2 + 1, places, workgroups - 5 - 2 * places):
        tiles = [(wg, wf) for wg in range(first, first + count) for wf in range(2)]
        for _ in range(2):
            for wg, wf in tiles:
                bench.commit(0, 0, wg, wf, 1, 2 * wg + wf, 32)
            await bench.settle()
        assert bench.written > before
        before, fetched = bench.written, bench.fetched
        first += count
        for wf in range(2):
            bench.commit(0, 0, first, wf, 1, 0, 64)
        await bench.settle()
        assert bench.fetched == fetched, "asked for a counter though all are back"
        first += 1
    assert sorted(block[1] for block in bench.received_blocks()) == list(range(first))


@cocotb.test()
async def a_message_meets_its_counter(dut):
    """While a counter comes back, its tile's next message arrives in every possible cycle."""
    last = 45
    bench = await begin(dut, memory_latency=1)
    await bench.program([replace(plain(wgs=OTHERS + last, wfs=1, bytes_each=LARGE), block_shift=0)])
    for wg in range(last):
        bench.commit(0, 0, wg, 0, 1, wg, LARGE - 64)
        await push_out(bench, last)
        bench.commit(0, 0, wg, 0, 1, wg, 32)
        for _ in range(wg):
            await RisingEdge(dut.clk)
        bench.commit(0, 0, wg, 0, 1, wg, 32)
        await bench.settle()
        assert [block[1] for block in bench.received_blocks()] == list(range(wg + 1))
    assert not bench.faults.received


@cocotb.test()
async def buffers_gather_side_by_side(dut):
    """While as many counters as there are buffers come back, slowly, in any order, messages to all of them arrive."""
    bench = await begin(dut, memory_latency=100)
    together = bench.config.tracker_mshrs
    last = 3 * together
    quarter = 1 << bench.config.wg_bits - 2
    bases = [index * quarter + random.randrange(quarter - last - OTHERS) for index in range(4)]
    areas = [plain(first_wg=base, wgs=OTHERS + last, wfs=1, bytes_each=LARGE) for base in bases]
    await bench.program(
        [
            replace(area, index=index, block_base=index * (OTHERS + last), block_shift=0)
            for index, area in enumerate(areas)
        ]
    )
    for index, part in random.sample([(index, part) for index in range(4) for part in range(3)], 12):
        first = bases[index] + part * together
        tiles = list(range(first, first + together))
        cuts = {wg: sorted(random.sample(range(2, LARGE, 2), 3)) for wg in tiles}
        ends = {wg: [0, *cuts[wg], LARGE] for wg in tiles}
        places = {wg: [random.getrandbits(bench.config.va_sector_bits) for _ in range(4)] for wg in tiles}
        for turn in range(4):
            for wg in random.sample(tiles, together):
                bench.commit(0, index, wg, 0, 1, places[wg][turn], ends[wg][turn + 1] - ends[wg][turn])
                for _ in range(random.choice([0, 0, 3])):
                    await RisingEdge(dut.clk)
            if turn == 0:
                await push_out(bench, bases[index] + last, index)
        await bench.settle()
        expected = sorted((wg, min(places[wg])) for wg in tiles)
        assert sorted((wg, va) for _, wg, _, va, *_ in bench.received_blocks()) == expected
        bench.forget()


@cocotb.test()
async def memory_takes_nothing_for_long(dut):
    """Far more counters than have a place, while no request gets out: commits wait, and none is lost."""
    bench = await begin(dut, memory_latency=5)
    workgroups = 60
    await bench.program([replace(plain(wgs=workgroups, wfs=1, bytes_each=64), block_shift=0)])
    for _ in range(2):
        bench.spills.stall = lambda: True
        for wg in random.sample(range(workgroups), workgroups):
            bench.commit(0, 0, wg, 0, 1, wg, 32)
        for _ in range(300):
            await RisingEdge(dut.clk)
        assert bench.sources[0].queue, "all taken, and nothing could leave"
        bench.spills.stall = never
        await bench.settle()
    assert sorted(block[1] for block in bench.received_blocks()) == list(range(workgroups))
    assert not bench.faults.received


@cocotb.test()
async def a_tile_follows_one_that_is_complete(dut):
    """Into a set whose last place becomes free, right behind or some cycles later: no other counter gives way."""
    bench = await begin(dut)
    config = bench.config
    sets, ways, last = config.tracker_sets // config.tracker_banks, config.tracker_ways, 8
    area = replace(plain(wgs=sets * (ways + 1) * last, wfs=1, bytes_each=64), block_shift=0)
    await bench.program([area])
    for leaving in range(ways):
        for distance in range(last):
            for number in range(sets):
                tiles = [number + sets * (distance * (ways + 1) + way) for way in range(ways + 1)]
                *first, following = tiles
                for wg in first:
                    bench.commit(0, 0, wg, 0, 1 + leaving, 0, 32)
                await bench.sources[0].drain()
                bench.commit(0, 0, first[leaving], 0, 1 + leaving, 0, 32)
                await bench.sources[0].drain()
                for _ in range(distance):
                    await RisingEdge(dut.clk)
                for wg in (following, following, *first[:leaving], *first[leaving + 1 :]):
                    bench.commit(0, 0, wg, 0, 1 + leaving, 0, 32)
                await bench.sources[0].drain()
        await bench.settle()
        assert len(bench.received_blocks()) == area.workgroups
        assert not bench.written and not bench.faults.received
        await bench.clear(2 + leaving)
        bench.forget()


@cocotb.test()
async def tiles_of_a_set_take_turns(dut):
    """Messages to all counters that a set holds, one right behind the other: their sums reach every bit of a count."""
    bench = await begin(dut)
    config = bench.config
    sets, ways = config.tracker_sets // config.tracker_banks, config.tracker_ways
    size = (1 << config.count_bits) - 2
    area = replace(plain(wgs=sets * ways * 6, wfs=1, bytes_each=size), block_shift=0)
    await bench.program([area])
    for first in range(0, area.workgroups, sets * ways):
        for number in range(sets):
            tiles = [first + number + sets * way for way in range(ways)]
            ends = {wg: [0, *sorted(random.sample(range(2, size, 2), 5)), size] for wg in tiles}
            places = {wg: [random.getrandbits(config.va_sector_bits) for _ in range(6)] for wg in tiles}
            for part in range(6):
                for wg in random.sample(tiles, ways):
                    bench.commit(0, 0, wg, 0, 1, places[wg][part], ends[wg][part + 1] - ends[wg][part])
            await bench.settle()
            expected = sorted((wg, min(places[wg])) for wg in tiles)
            assert sorted((wg, va) for _, wg, _, va, *_ in bench.received_blocks()) == expected
            bench.forget()
    assert not bench.spills.taken and not bench.faults.received


@cocotb.test()
async def counters_come_back_while_nothing_leaves(dut):
    """They push out others, and so do messages, until there is no room for what is to leave: none of it is lost."""
    bench = await begin(dut, memory_latency=100)
    config = bench.config
    sets, ways = config.tracker_sets // config.tracker_banks, config.tracker_ways
    area = replace(plain(wgs=sets * ways * 6, wfs=1, bytes_each=64), block_shift=0)
    await bench.program([area])
    for epoch in range(1, 17):
        # Sets with an odd number are full, and have no counter in memory, until the messages come.
        begun = [wg for wg in range(area.workgroups) if wg < sets * ways or wg % 2 == 0]
        others = [wg for wg in range(area.workgroups) if wg not in begun]
        for wg in begun:
            bench.commit(0, 0, wg, 0, epoch, wg, 32)
        await bench.settle()
        asked = random.sample(begun, random.randint(1, config.tracker_mshrs))
        behind = [wg for wg in begun if wg not in asked]
        for wg in asked:
            bench.commit(0, 0, wg, 0, epoch, wg, 32)
        await bench.sources[0].drain()
        for _ in range(15):
            await RisingEdge(dut.clk)
        bench.spills.stall = lambda: True
        for wg in random.sample(others, len(others)) + random.sample(behind, len(behind)):
            bench.commit(0, 0, wg, 0, epoch, wg, 32)
        for _ in range(200):
            await RisingEdge(dut.clk)
        assert bench.sources[0].queue, "all taken, and nothing could leave"
        bench.spills.stall = never
        for wg in others:
            bench.commit(0, 0, wg, 0, epoch, wg, 32)
        await bench.settle()
        assert sorted(block[1] for block in bench.received_blocks()) == list(range(area.workgroups))
        assert not bench.faults.received
        await bench.clear(epoch + 1)
        bench.memory.clear()
        bench.forget()


@cocotb.test()
async def a_message_follows_the_one_that_asks(dut):
    """Right behind it, from another source, to the same tile, for each of the buffers but the last: when that is taken
    no message is."""
    bench = await begin(dut, memory_latency=100)
    rounds, together = 8, bench.config.tracker_mshrs
    last = rounds * together
    await bench.program([replace(plain(wgs=OTHERS + last, wfs=1, bytes_each=LARGE), block_shift=0)])
    for first in range(0, last, together):
        tiles = list(range(first, first + together))
        for wg in tiles:
            bench.commit(0, 0, wg, 0, 1, wg, LARGE - 64)
        await push_out(bench, last)
        for wg in tiles:
            for source in (0, bench.config.channels):
                bench.commit(source, 0, wg, 0, 1, wg, 32)
        await bench.settle()
        assert sorted(block[1] for block in bench.received_blocks()) == tiles
        bench.forget()
    assert not bench.faults.received


def linear_complexity(bits: list[int]) -> int:
    """Stages of the shortest linear shift register that makes a sequence (Massey, "Shift-Register Synthesis and BCH
    Decoding", IEEE Trans. IT 1969)."""
    taps, older = 1, 1
    length, since = 0, 1
    for place in range(len(bits)):
        if sum(bits[place - back] for back in range(length + 1) if taps >> back & 1) % 2:
            longer = taps ^ older << since
            if 2 * length <= place:
                length, older, since = place + 1 - length, taps, 0
            taps = longer
        since += 1
    return length


@cocotb.test()
async def victims_come_as_from_a_shift_register(dut):
    """One counter after the other that does not fit into its full set: the ways of those that give way for it are a
    sequence of linear complexity 16, so no counter is spared for long and none chosen by what is in the set."""
    bench = await begin(dut, memory_latency=1)
    config = bench.config
    tiles = [config.tracker_sets * number for number in range(40)]
    await bench.program([replace(plain(wgs=tiles[-1] + 1, wfs=1, bytes_each=LARGE), block_shift=0)])
    held: list[int] = []
    chosen: list[int] = []
    while len(chosen) < 120:
        wg = next(wg for wg in itertools.islice(itertools.cycle(tiles), len(chosen), None) if wg not in held)
        bench.memory.clear()
        bench.commit(0, 0, wg, 0, 1, wg, 32)
        for _ in range(40):
            await RisingEdge(dut.clk)
        if len(held) < config.tracker_ways:
            held.append(wg)
            continue
        (record,) = bench.memory.values()
        way = held.index(field(bench.layouts.spill_record, record, "va"))
        chosen.append(way)
        held[way] = wg
    complexity = linear_complexity(chosen)
    assert complexity == 16, f"the ways of victims are a sequence of linear complexity {complexity}"


class HoardingCount(CountStage):
    """Takes a set for one with a counter in memory for ever."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.spilled_value.eq(1)
        return m


class MisplacingCount(CountStage):
    """Keeps every spilled counter at the same place."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.spill_request.index.eq(~0)
        return m


class MixingCount(CountStage):
    """Spills a counter with the wrong address."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.spill_request.record.va.eq(0)
        return m


@pytest.mark.parametrize("config", [SMALL, pytest.param(TINY, marks=pytest.mark.wide)], ids=["small", "tiny"])
@pytest.mark.parametrize(
    "test",
    [
        "records_are_counted",
        "a_message_meets_its_counter",
        "buffers_gather_side_by_side",
        "memory_takes_nothing_for_long",
        "a_tile_follows_one_that_is_complete",
        "tiles_of_a_set_take_turns",
        "counters_come_back_while_nothing_leaves",
        "a_message_follows_the_one_that_asks",
    ],
)
def test_backing_store(test, config):
    run(test, {"config": config}, module=__name__)


@pytest.mark.wide
def test_every_buffer_of_sixteen_gathers():
    run("buffers_gather_side_by_side", {"config": SMALL | {"tracker_mshrs": 16}}, module=__name__)


def test_victims():
    run("victims_come_as_from_a_shift_register", {"config": SMALL}, module=__name__)


@pytest.mark.wide
def test_a_needless_question_is_caught():
    with patch("hw.tracker.pipeline.CountStage", HoardingCount), caught("all are back"):
        run("records_are_counted", {"config": SMALL}, Tracker, __name__)


@pytest.mark.wide
def test_a_shorter_register_is_caught():
    eight_bits = patch("hw.tracker.way_select.LFSR_TAPS", 0xB8)
    with eight_bits, caught("linear complexity 8"):
        run("victims_come_as_from_a_shift_register", {"config": SMALL}, Tracker, __name__)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("wrong", "message"), [(MisplacingCount, "no commit to the tile"), (MixingCount, "the address of another tile")]
)
def test_a_counter_that_is_spilled_wrongly_is_caught(wrong, message):
    with patch("hw.tracker.pipeline.CountStage", wrong), caught(message):
        run("records_are_counted", {"config": SMALL}, Tracker, __name__)
