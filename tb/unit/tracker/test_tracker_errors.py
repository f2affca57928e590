"""Errors in the memories of the Tracker while it counts: one wrong bit changes nothing, two are told and trigger
nothing."""

import json
import os
import random
from functools import cache
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Cat
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.messages import Messages
from hw.primitives.secded import check_bits
from hw.protection import TRACKER_MEMORIES, WAY_BITS, MemoryReport, MemoryUpset, ProtectedMemory
from hw.tracker.count_stage import GENERATION_BITS
from hw.tracker.storage import CounterStorage, entry_layout, stored_width
from hw.tracker.tile_geometry import MAX_WFS
from hw.tracker.tracker import Tracker
from tb.drivers.clear import cleared
from tb.drivers.payload import pack, unpack
from tb.drivers.tracker_bench import TrackerBench
from tb.drivers.tracker_stimulus import interleave, random_ranges
from tb.golden.tracker import GoldenTracker
from tb.runner import caught, simulate

tracker = cache(Tracker)

Place = tuple[ProtectedMemory, int]
SMALL = {
    "name": "paper",
    "channels": 2,
    "tracker_sets": 16,
    "tracker_ways": 2,
    "tracker_banks": 2,
    "trigger_blocks": 256,
    "protection": "all",
}
ONE_BANK = SMALL | {"tracker_banks": 1, "channels": 1}


def bits_of(config: Configuration, place: Place) -> int:
    """Bits of a word with its check bits."""
    memory, address = place
    if memory is ProtectedMemory.TRIGGERS:
        return stored_width(MAX_WFS) + stored_width(config.va_sector_bits)
    if memory is not ProtectedMemory.COUNTERS:
        messages = Messages(config)
        record = messages.spill_record
        widths = {
            ProtectedMemory.READY_BLOCKS: messages.ready_block.size,
            ProtectedMemory.READY_LAUNCHES: messages.launch_event.size,
            ProtectedMemory.SPILLED: record.size - record["reserved"].width + GENERATION_BITS,
        }
        return stored_width(widths[memory])
    way = address % (1 << WAY_BITS)
    return stored_width(entry_layout(config).size if way < config.tracker_ways else config.tag_bits + 1)


def two_of_a_code(config: Configuration, place: Place) -> list[int]:
    """Two bits of a word. An entry of the trigger table has two codes, of which each could correct one."""
    first, end = 0, bits_of(config, place)
    if place[0] is ProtectedMemory.TRIGGERS:
        first, end = random.choice([(0, stored_width(MAX_WFS)), (stored_width(MAX_WFS), end)])
    return random.sample(range(first, end), 2)


class Upsetter:
    """Turns bits of the Tracker's memories, and keeps what it reports."""

    def __init__(self, dut, config: Configuration):
        self.dut, self.config = dut, config
        self.turned: list[Place] = []
        self.corrected: list[Place] = []
        self.lost: list[Place] = []
        dut.scrub.value = 0
        dut.upset.value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await ReadOnly()
            for number in range(len(TRACKER_MEMORIES) * self.config.tracker_banks):
                value = int(getattr(self.dut, f"memory_reports__{number}").value)
                report = unpack(MemoryReport, value)
                place = (TRACKER_MEMORIES[number % len(TRACKER_MEMORIES)], report["address"])
                if report["corrected"]:
                    self.corrected.append(place)
                if report["lost"]:
                    self.lost.append(place)
            await RisingEdge(self.dut.clk)

    def place(self) -> Place:
        """Any word, of memories in use."""
        config = self.config
        memory = random.choice(TRACKER_MEMORIES)
        if memory is ProtectedMemory.TRIGGERS:
            return memory, random.randrange(config.trigger_blocks)
        if memory is not ProtectedMemory.COUNTERS:
            return memory, random.randrange(config.tracker_banks)
        way = random.randrange(config.tracker_ways + config.tracker_tags)
        return ProtectedMemory.COUNTERS, random.randrange(config.tracker_sets) << WAY_BITS | way

    def lasting_place(self) -> Place:
        """A word that stays where it is while nothing is counted."""
        config = self.config
        if random.random() < 0.5:
            return ProtectedMemory.TRIGGERS, random.randrange(config.trigger_blocks)
        way = random.randrange(config.tracker_ways)
        return ProtectedMemory.COUNTERS, random.randrange(config.tracker_sets) << WAY_BITS | way

    async def turn(self, place: Place, *bits: int) -> None:
        """One or two bits of a word."""
        self.turned.append(place)
        memory, address = place
        first, second = (*bits, 0)[:2]
        upset = {"memory": memory.value, "address": address, "first": first, "second": second}
        self.dut.upset.value = pack(MemoryUpset, valid=1, two=len(bits) - 1, **upset)
        await RisingEdge(self.dut.clk)
        self.dut.upset.value = pack(MemoryUpset, valid=0, two=len(bits) - 1, **upset)

    async def forget(self) -> None:
        """Whatever was not turned yet stays as it is: a word is turned that there is not."""
        self.dut.scrub.value = 0
        self.dut.upset.value = pack(MemoryUpset, valid=1, address=(1 << WAY_BITS) - 1)
        await RisingEdge(self.dut.clk)
        self.dut.upset.value = 0
        for _ in range(20):
            await RisingEdge(self.dut.clk)

    async def single_errors(self) -> None:
        """One after the other, for ever."""
        while True:
            place = self.place()
            await self.turn(place, random.randrange(bits_of(self.config, place)))
            for _ in range(random.randrange(10, 60)):
                self.dut.scrub.value = random.random() < 0.05
                await RisingEdge(self.dut.clk)
            self.dut.scrub.value = 0

    async def scrub_all(self) -> None:
        """Every word of every memory, twice."""
        words = max(self.config.tracker_sets, self.config.trigger_blocks) // self.config.tracker_banks
        for _ in range(2 * words):
            self.dut.scrub.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.scrub.value = 0
            for _ in range(8):
                await RisingEdge(self.dut.clk)


def case() -> dict:
    """What :func:`run` was given for this simulation."""
    return json.loads(os.environ["T3_CASE"])


@cocotb.test()
async def single_errors_change_nothing(dut):
    """Two epochs of random tiles, an error every few tens of cycles."""
    config = preset(**case()["config"])
    bench = TrackerBench(dut, config, case()["stalls"])
    upsetter = Upsetter(dut, config)
    epochs = random.sample(range(1, 1 << config.epoch_bits), 3)
    await bench.start(epochs[0])
    await cleared(dut)
    for number in range(2):
        areas = random_ranges(config, 60, "both")
        await bench.fill_ranges()
        await bench.program(areas)
        golden = GoldenTracker({area.index: area for area in areas}, epochs[number])
        errors = cocotb.start_soon(upsetter.single_errors())
        for index, wg, wf, va, size in interleave(areas, 40, config.va_sector_bits):
            golden.access(index, wg, wf, epochs[number], va, size)
            bench.commit(random.randrange(config.channels), index, wg, wf, epochs[number], va, size)
        await bench.settle()
        errors.cancel()
        await upsetter.forget()
        await upsetter.scrub_all()
        assert sorted(bench.received_blocks()) == sorted(golden.blocks)
        assert sorted(bench.received_launches()) == sorted(golden.launches)
        assert bench.received_faults() == golden.faults == []
        assert bench.counts["triggers"] == sum(len(area.tiles()) for area in areas)
        assert upsetter.lost == []
        assert set(upsetter.corrected) <= set(upsetter.turned)
        dut._log.info(f"{len(upsetter.turned)} turned, {len(upsetter.corrected)} corrected, {dict(bench.counts)}")
        upsetter.corrected.clear()
        standing = {upsetter.lasting_place() for _ in range(8)}
        for place in standing:
            await upsetter.turn(place, random.randrange(bits_of(config, place)))
            for _ in range(20):
                await RisingEdge(dut.clk)
        await upsetter.scrub_all()
        assert sorted(upsetter.corrected, key=str) == sorted(standing, key=str), "found once, and mended"
        bench.forget()
        upsetter.turned.clear()
        upsetter.corrected.clear()
        await bench.clear(epochs[number + 1])


@cocotb.test()
async def two_errors_are_told_and_trigger_nothing(dut):
    """In a word while accesses go on: what is triggered all the same is right, and what is lost is told."""
    config = preset(**case()["config"])
    bench = TrackerBench(dut, config, case()["stalls"])
    upsetter = Upsetter(dut, config)
    epoch = 1
    await bench.start(epoch)
    await cleared(dut)
    for _ in range(8):
        areas = random_ranges(config, 60, "both")
        await bench.fill_ranges()
        await bench.program(areas)
        golden = GoldenTracker({area.index: area for area in areas}, epoch)
        for index, wg, wf, va, size in interleave(areas, 40, config.va_sector_bits):
            golden.access(index, wg, wf, epoch, va, size)
            bench.commit(random.randrange(config.channels), index, wg, wf, epoch, va, size)
        for _ in range(random.randrange(20, 200)):
            await RisingEdge(dut.clk)
        for _ in range(4):
            place = upsetter.place()
            await upsetter.turn(place, *two_of_a_code(config, place))
            for _ in range(60):
                await RisingEdge(dut.clk)
        await bench.settle()
        await upsetter.forget()
        await upsetter.scrub_all()
        assert upsetter.corrected == []
        assert set(upsetter.lost) <= set(upsetter.turned)
        blocks: dict[tuple[int, ...], tuple[int, ...]] = {item[:3]: item for item in golden.blocks}
        for item in bench.received_blocks():
            assert item[:3] in blocks, "triggered without being complete"
            right = item == blocks[item[:3]]
            assert right or upsetter.lost, "a wrong address that nobody tells of"
        if not upsetter.lost:
            assert sorted(bench.received_blocks()) == sorted(golden.blocks)
        upsetter.turned.clear()
        upsetter.lost.clear()
        bench.forget()
        epoch += 1
        await bench.clear(epoch)
        await upsetter.scrub_all()
        assert upsetter.lost == [], "a new epoch begins without what was lost"


def run(test: str, config: dict, stalls: int = 0, design=tracker) -> None:
    """Simulate `test` with the case's parameters."""
    environment = {"T3_CASE": json.dumps({"config": config, "stalls": stalls})}
    simulate(design(preset(**config)), "tracker", __name__, test, environment=environment)


@pytest.mark.parametrize("stalls", [0, 30])
def test_single_errors_change_nothing(stalls):
    run("single_errors_change_nothing", ONE_BANK, stalls)


def test_two_errors_are_told_and_trigger_nothing():
    run("two_errors_are_told_and_trigger_nothing", SMALL, 30)


def without_lowest(word):
    """Check bits of a word that leave out its lowest bit."""
    return check_bits(word & ~1)


@pytest.mark.wide
def test_check_bits_that_miss_a_bit_are_noticed():
    with patch("hw.tracker.storage.check_bits", without_lowest), caught():
        run("single_errors_change_nothing", ONE_BANK, design=Tracker)


class StaleChecks(CounterStorage):
    """A wrong one: an update that is passed on past the memory keeps the check bits that were there."""

    @staticmethod
    def _merge(write, words, same, entries, spilled):
        width = len(write.entry.as_value())
        merged, spilled = CounterStorage._merge(write, words, same, entries, spilled)
        return [Cat(new[:width], old[width:]) for new, old in zip(merged, entries, strict=True)], spilled


@pytest.mark.wide
def test_check_bits_that_are_not_passed_on_are_noticed():
    with patch("hw.tracker.pipeline.CounterStorage", StaleChecks), caught():
        run("single_errors_change_nothing", ONE_BANK, design=Tracker)
