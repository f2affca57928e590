"""The Tracker against a dictionary of counters: every tile triggers exactly once, whatever the order and the stalls."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import cycle
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import ReadOnly, RisingEdge
from hypothesis import strategies

from hw.config import Configuration, preset
from hw.tracker.count_stage import CountStage
from hw.tracker.direct_select import DirectSelect
from hw.tracker.events import TrackerEvents
from hw.tracker.storage import CounterStorage
from hw.tracker.tracker import Tracker
from tb.drivers.clear import cleared
from tb.drivers.payload import field
from tb.drivers.property import holds_for_all
from tb.drivers.tracker_bench import TrackerBench, next_epoch
from tb.drivers.tracker_stimulus import interleave, many_tiles, random_ranges
from tb.golden.tracker import GoldenTracker, TiledRange
from tb.runner import caught, simulate

tracker = cache(Tracker)

LATENCY = 7
STAGES = 6
"""With one MSHR a bank takes a message in as many cycles."""
FETCH = 32
"""More cycles than a counter needs to the backing store and back when the memory answers within 5."""


def case() -> dict:
    """What :func:`run` was given for this simulation."""
    return json.loads(os.environ["T3_CASE"])


async def begin(dut, memory_latency: int = 40) -> TrackerBench:
    """A bench of the case's configuration without stalls, in epoch 1, the storage cleared."""
    bench = TrackerBench(dut, preset(**case()["config"]), 0, memory_latency)
    await bench.start(epoch=1)
    await cleared(dut)
    return bench


@cocotb.test()
async def every_block_triggers_once(dut):
    parameters = case()
    config = preset(**parameters["config"])
    bench = TrackerBench(dut, config, parameters["stalls"])
    epochs = random.sample(range(1, 1 << config.epoch_bits), 3)
    await bench.start(epochs[0])
    await cleared(dut)
    for number in range(parameters.get("epochs", 2)):
        epoch = epochs[number]
        await bench.fill_ranges()
        action = parameters.get("actions", ["both", "both"])[number]
        areas = random_ranges(config, parameters["tiles"], action) if parameters["tiles"] else many_tiles(config)
        await bench.program(areas)
        golden = GoldenTracker({area.index: area for area in areas}, epoch)
        items = interleave(areas, parameters["spread"], config.va_sector_bits)
        for part in (items[:-1], items[-1:]):
            for index, wg, wf, va, size in part:
                golden.access(index, wg, wf, epoch, va, size)
                bench.commit(random.randrange(config.channels + 1), index, wg, wf, epoch, va, size)
            await bench.settle()
            done = sum(1 << area.index for area in areas if golden.done(area.index))
            assert not int(dut.done.value) & ~done, "a range is done early"
        assert sorted(bench.received_blocks()) == sorted(golden.blocks)
        assert sorted(bench.received_launches()) == sorted(golden.launches)
        assert bench.received_faults() == golden.faults == []
        assert int(dut.done.value) == done
        assert golden.blocks or golden.launches
        tiles = sum(len(area.tiles()) for area in areas)
        assert bench.counts["triggers"] == tiles
        assert (bench.counts["evictions"], bench.counts["fetches"]) == (bench.written, bench.fetched)
        assert tiles <= bench.counts["accesses"] <= len(items)
        assert field(TrackerEvents, int(dut.events.value), "live") == 0
        dut._log.info(f"{tiles} tiles, peak {bench.peak}, {dict(bench.counts)}")
        if parameters.get("overflow"):
            assert bench.counts["evictions"] > 0 and bench.counts["fetches"] > 0
        if not config.tracker_tags:
            assert bench.counts["evictions"] == bench.counts["fetches"] == bench.spills.taken == 0
        if not parameters["spread"]:
            assert bench.peak == config.tracker_sets * config.tracker_ways
            assert tiles > 3 * bench.peak and bench.counts["evictions"] > tiles - bench.peak - 1000
        bench.forget()
        await bench.clear(epochs[number + 1])
        assert int(dut.done.value) == 0
        assert not bench.faults.received


def plain(first_wg: int = 0, wgs: int = 8, wfs: int = 2, block_wfs: int = 1, bytes_each: int = 256) -> TiledRange:
    """WF tiles of `bytes_each` bytes in one row of WGs."""
    return TiledRange(
        index=0,
        first_wg=first_wg,
        rows=wfs,
        columns=wgs * (bytes_each // 2),
        tile_rows=wfs,
        tile_columns=bytes_each // 2,
        wfs=wfs,
        block_wfs=block_wfs,
        updates=1,
        dma=True,
        launch=False,
        block_shift=3,
    )


def descending(low: int, highest: int) -> list[int]:
    """Addresses of eight accesses to a tile. The lowest, `low`, is the last but one, and differs in every bit from the
    lowest before it: it lasts only if the counter goes on as the access before left it."""
    rest = [random.randint(highest - low, highest) for _ in range(6)]
    return [highest - low, *rest[1:], low, rest[0]]


@cocotb.test()
async def one_access_a_cycle_and_fixed_latency(dut):
    config = preset(**case()["config"])
    bench = TrackerBench(dut, config, 0)
    await bench.start(epoch=1)
    await bench.program([plain()])
    await cleared(dut)
    accepted: list[int] = []
    offered: list[int] = []

    async def meter() -> None:
        cycle = 0
        while True:
            await ReadOnly()
            if int(dut.commits__0__valid.value) and int(dut.commits__0__ready.value):
                accepted.append(cycle)
            if int(dut.blocks__valid.value):
                offered.append(cycle)
            await RisingEdge(dut.clk)
            cycle += 1

    cocotb.start_soon(meter())
    tiles_of = {"two tiles of a set": [(1, 0), (1, 1)], "two sets": [(2, 0), (3, 0)]}
    tiles_of |= {f"tile {wg}, {wf}": [(wg, wf)] for wg in (0, 4, 5, 6, 7) for wf in (0, 1)}
    half = (1 << config.va_sector_bits - 1) - 1
    low = random.randint(0, half)
    lows = cycle((low, half - low))  # each bit falls in one of the two
    for order, tiles in tiles_of.items():
        total = 8 * len(tiles)
        accepted.clear()
        offered.clear()
        columns = [descending(next(lows), 2 * half + 1) for _ in tiles]
        vas = [va for row in zip(*columns, strict=True) for va in row]
        for number, va in enumerate(vas):
            bench.commit(0, 0, *tiles[number % len(tiles)], 1, va, 32)
        await bench.settle()
        lowest = {(*tile, min(vas[first :: len(tiles)])) for first, tile in enumerate(tiles)}
        assert {block[1:4] for block in bench.received_blocks()[-len(tiles) :]} == lowest
        dut._log.info(f"{order}: {total} accesses in {accepted[-1] - accepted[0] + 1} cycles")
        assert accepted[-1] - accepted[0] + 1 == total == len(accepted)
        assert len(offered) == len(tiles)
        dut._log.info(f"last access in cycle c, block offered in cycle c + {offered[-1] - accepted[-1]}")
        assert offered[-1] - accepted[-1] == LATENCY
    total = sum(map(len, tiles_of.values()))
    counted = {"accesses": 8 * total, "hits": 7 * total, "allocations": total, "triggers": total, "stalls": 0}
    assert {name: bench.counts[name] for name in counted} == counted


@cocotb.test()
async def refused_accesses(dut):
    config = preset(**case()["config"])
    bench = TrackerBench(dut, config, 0)
    epoch = random.randrange(1, 1 << config.epoch_bits)
    await bench.start(epoch)
    area = TiledRange(
        index=2,
        first_wg=8,
        rows=11,
        columns=40,
        tile_rows=8,
        tile_columns=16,
        wfs=4,
        block_wfs=2,
        updates=1,
        dma=case()["dma"],
        launch=case()["launch"],
        block_base=8,
        block_shift=1,
    )
    await bench.program([area])
    await cleared(dut)
    golden = GoldenTracker({2: area}, epoch)
    whole = area.threshold(8, 0)
    steps = [(8, 0, 0, 5, whole), (8, 0, 0, 6, 2), (8, 0, 0, 6, 2)]
    steps += [(8, 1, 1 << bit, 5, 32) for bit in range(config.epoch_bits)]
    steps += [(7, 0, 0, 5, 32), (14, 0, 0, 5, 32), (9, 4, 0, 5, 2), (9, 7, 0, 5, 2)]
    steps += [(11, 2, 0, 5, 2), (11, 1, 0, 5, area.threshold(11, 1)), (11, 1, 0, 5, 2)]
    steps += [(13, 1, 0, 7, area.threshold(13, 1) + 2), (13, 1, 0, 7, area.threshold(13, 1) - 2), (13, 1, 0, 7, 4)]
    steps += [(13, 1, 0, 6, 2), (13, 1, 0, 6, 2), (13, 0, 0, 9, area.threshold(13, 0)), (13, 0, 0, 9, 32)]
    high = random.randrange(1 << 40)
    for wg, wf, off, low, size in steps:
        va = high + low
        golden.access(2, wg, wf, epoch ^ off, va, size)
        bench.commit(0, 2, wg, wf, epoch ^ off, va, size)
        # Apart, so that the coalescer does not merge what the golden counts one by one.
        if random.random() < 0.5:
            await bench.sources[0].drain()
            for _ in range(random.randrange(4)):
                await RisingEdge(dut.clk)
    await bench.settle()
    assert bench.received_faults() == golden.faults
    assert {name for name, *_ in golden.faults} == {"PAST_THRESHOLD", "TILE", "EPOCH"}
    assert sorted(bench.received_blocks()) == sorted(golden.blocks)
    assert sorted(bench.received_launches()) == sorted(golden.launches)
    assert not int(dut.done.value)
    bench.faults.received.clear()
    bench.commit(0, 2, 9, 0, epoch, 5, 2)
    await bench.settle()
    await bench.clear(epoch ^ 1)
    await bench.settle()
    assert bench.received_faults() == [("LEFT_OVER", 0, 0, 0)]
    await bench.clear(epoch)
    await bench.settle()
    assert len(bench.faults.received) == 1


@cocotb.test()
async def workgroups_beyond_the_table(dut):
    """Their tiles have no place; those that share the low bits of their wg are counted all the same."""
    bench = await begin(dut)
    places = bench.config.tracker_sets
    await bench.program([plain(wgs=places + 4, wfs=1, bytes_each=64)])
    for wg in (places + 1, 1, places - 1, places, 1, places + 1, places - 1):
        bench.commit(0, 0, wg, 0, 1, wg, 32)
    await bench.settle()
    assert sorted(block[1] for block in bench.received_blocks()) == [1, places - 1]
    assert {(name, wg) for name, wg, *_ in bench.received_faults()} <= {("TILE", places), ("TILE", places + 1)}
    assert bench.received_faults()


@cocotb.test()
async def tiles_of_one_set_push_each_other_out(dut):
    """Messages as close as they come, for few more tiles of a set than it has ways: whatever is replaced, filled or
    complete has the next message right behind it."""
    config = preset(**case()["config"])
    bench = await begin(dut, memory_latency=5)
    area = plain(wgs=config.tracker_sets + 1, wfs=2, bytes_each=1024)
    await bench.program([area])
    epoch = 1
    for _ in range(8):
        golden = GoldenTracker({0: area}, epoch)
        messages = [(wg, wf) for wg in (0, config.tracker_sets) for wf in range(2) for _ in range(32)]
        random.shuffle(messages)
        for number, (wg, wf) in enumerate(messages):
            golden.access(0, wg, wf, epoch, number, 32)
            bench.commit(0, 0, wg, wf, epoch, number, 32)
        await bench.settle()
        assert sorted(bench.received_blocks()) == sorted(golden.blocks)
        assert not bench.faults.received
        bench.forget()
        epoch = next_epoch(epoch)
        await bench.clear(epoch)


@cocotb.test()
async def any_order_of_accesses(dut):
    """Whatever accesses arrive, in whatever order, in part, too often or for no tile: the golden agrees."""
    bench = await begin(dut, memory_latency=5)
    area = plain(wgs=6, wfs=2, bytes_each=64)
    await bench.program([area])
    epoch = 1

    async def agrees(accesses_made) -> None:
        nonlocal epoch
        golden = GoldenTracker({0: area}, epoch)
        totals: Counter[tuple[int, int]] = Counter()
        for wg, wf, size in accesses_made:
            totals[wg, wf] += size
        for wg, wf, size in accesses_made:
            golden.access(0, wg, wf, epoch, 100 * wg + wf, size)
            bench.commit(0, 0, wg, wf, epoch, 100 * wg + wf, size)
            # Apart, so that the coalescer does not merge what the golden counts one by one. A MSHR merges too,
            # and refuses what it gathered as a whole when it goes past the threshold.
            await bench.sources[0].drain()
            for _ in range(FETCH if totals[wg, wf] > area.threshold(wg, wf) else STAGES):
                await RisingEdge(dut.clk)
        await bench.settle()
        blocks, faults = bench.received_blocks(), bench.received_faults()
        # Also after a failure, or every example that is tried next fails too.
        epoch = next_epoch(epoch)
        await bench.clear(epoch)
        for stream in (bench.blocks, bench.faults):
            stream.received.clear()
        assert sorted(blocks) == sorted(golden.blocks)
        assert sorted(faults) == sorted(golden.faults)

    one = strategies.tuples(strategies.integers(0, 6), strategies.integers(0, 2), strategies.sampled_from((2, 30, 32)))
    await holds_for_all(strategies.lists(one, min_size=1, max_size=40), agrees, examples=40)


SMALL = {"name": "paper", "ranges": 8, "tracker_sets": 8, "tracker_ways": 2, "trigger_blocks": 1024}
TINY = {"name": "tiny", "ranges": 4, "tracker_sets": 4, "tracker_ways": 1, "trigger_blocks": 256}
QUAD = {"name": "quad", "ranges": 8, "tracker_sets": 16, "tracker_ways": 2, "tracker_banks": 4, "trigger_blocks": 1024}
PAPER = {"name": "paper"}
UNTAGGED = {"name": "paper", "ranges": 8, "tracker_sets": 512, "tracker_tags": False, "trigger_blocks": 1024}
OVERFLOWING = {"overflow": True}
MOST_FETCHES = {"tracker_banks": 8, "tracker_mshrs": 16}
CASES = {
    "small": {"config": SMALL, "stalls": 20, "tiles": 300, "spread": 150, "actions": ["dma", "both"]},
    "small_no_stalls": {"config": SMALL, "stalls": 0, "tiles": 300, "spread": 60, "actions": ["both", "launch"]},
    "tiny": {"config": TINY, "stalls": 30, "tiles": 80, "spread": 40, "actions": ["launch", "dma"]},
    "four_banks": {"config": QUAD, "stalls": 20, "tiles": 400, "spread": 200},
    "most_fetches": {"config": QUAD | MOST_FETCHES, "stalls": 20, "tiles": 400, "spread": 200},
    "merging": {"config": QUAD | {"commit_merge_depth": 2}, "stalls": 20, "tiles": 400, "spread": 200},
}
WIDE = dict.fromkeys(("four_banks", "most_fetches", "merging", "small_no_stalls"), pytest.mark.wide)


def run(
    test: str, parameters: dict, design: Callable[[Configuration], Tracker] = tracker, module: str = __name__
) -> None:
    """Simulate `test` of `module` on the `config` of `parameters`."""
    environment = {"T3_CASE": json.dumps(parameters)}
    simulate(design(preset(**parameters["config"])), "tracker", module, test, environment=environment)


@pytest.mark.parametrize("name", [pytest.param(name, marks=WIDE.get(name, ())) for name in CASES])
def test_every_block_triggers_once(name):
    run("every_block_triggers_once", CASES[name] | OVERFLOWING)


@pytest.mark.wide
@pytest.mark.parametrize("config", [PAPER, SMALL], ids=["paper", "small"])
def test_more_tiles_than_the_papers_tracker_holds(config):
    parameters = {"config": config, "stalls": 0, "tiles": 0, "spread": 0, "overflow": True, "epochs": 1}
    run("every_block_triggers_once", parameters)


@pytest.mark.parametrize(
    "config",
    [PAPER, pytest.param(SMALL, marks=pytest.mark.wide), SMALL | {"protection": "all"}],
    ids=["paper", "small", "protected"],
)
def test_rate_and_latency(config):
    run("one_access_a_cycle_and_fixed_latency", {"config": config})


@pytest.mark.parametrize("config", [SMALL, TINY], ids=["small", "tiny"])
def test_tiles_of_one_set_push_each_other_out(config):
    run("tiles_of_one_set_push_each_other_out", {"config": config})


def test_any_order_of_accesses():
    run("any_order_of_accesses", {"config": TINY})


@pytest.mark.parametrize("name", ["small", "small_no_stalls"])
def test_without_tags_every_block_triggers_once_and_nothing_is_evicted(name):
    run("every_block_triggers_once", CASES[name] | {"config": UNTAGGED})


def test_without_tags_rate_and_latency_are_the_same():
    run("one_access_a_cycle_and_fixed_latency", {"config": UNTAGGED})


def test_without_tags_any_order_of_accesses():
    run("any_order_of_accesses", {"config": UNTAGGED})


def test_without_tags_a_workgroup_beyond_the_table_is_refused():
    run("workgroups_beyond_the_table", {"config": UNTAGGED | {"tracker_sets": 64}})


@pytest.mark.parametrize("config", [SMALL, UNTAGGED], ids=["tags", "no_tags"])
@pytest.mark.parametrize("dma", [True, False])
@pytest.mark.parametrize("launch", [True, False])
def test_refused_accesses(dma, launch, config):
    run("refused_accesses", {"config": config, "dma": dma, "launch": launch})


class ForgetfulCount(CountStage):
    """Never asks the backing store."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += [self.fetch.eq(0), self.write_spilled.eq(0)]
        return m


def test_lost_counters_are_caught():
    with (
        patch("hw.tracker.pipeline.CountStage", ForgetfulCount),
        caught("received_blocks"),
    ):
        run("every_block_triggers_once", CASES["small"], Tracker)


class StaleStorage(CounterStorage):
    """Gives what the memory holds, without the writes under way."""

    @staticmethod
    def _merge(write, words, same, entries, spilled):
        return entries, spilled


class LateSelect(DirectSelect):
    """Does not see what stage 5 does."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.before.as_value()[:].eq(0)
        return m


@pytest.mark.wide
def test_a_table_that_forgets_is_caught():
    with patch("hw.tracker.pipeline.DirectSelect", LateSelect), caught("received_"):
        run("every_block_triggers_once", CASES["small"] | {"config": UNTAGGED}, Tracker)


class LoudTracker(Tracker):
    """Counts more stalls in a cycle than it has banks."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.events.stalls.eq(self.events.accesses + 1)
        return m


@pytest.mark.wide
def test_more_events_than_banks_are_caught():
    with caught("stalls: more than one of a bank in a cycle"):
        run("one_access_a_cycle_and_fixed_latency", {"config": SMALL}, LoudTracker)


@pytest.mark.wide
def test_missing_forwarding_is_caught():
    # The seed decides which of the three a lost write meets first: a wrong count, a wrong address, or a wait in vain.
    symptoms = r"received_|the address of another tile|no commit to the tile"
    with patch("hw.tracker.pipeline.CounterStorage", StaleStorage), caught(symptoms):
        run("every_block_triggers_once", CASES["small_no_stalls"], Tracker)
