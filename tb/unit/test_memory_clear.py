"""The clear of memory writes every sector that may hold something from before, each once, and none besides."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.geometry import CHANNEL_SECTOR_BITS
from hw.memory_clear import MemoryClear
from hw.memory_window import WindowCheck
from hw.messages import Access, Mapping, Messages
from hw.range_table import Control, RangeWrite, Word, Workgroups
from tb.drivers.asleep import Asleep
from tb.drivers.payload import no_write, pack, unpack
from tb.drivers.stream import StreamSink, stalls
from tb.runner import caught, simulate

SIZES = {
    "paper": preset("paper", ranges=8),
    "channels": preset("quad", ranges=4),
    "direct": preset("paper", ranges=4, tracker_tags=False, tracker_sets=256, tracker_ways=8, tracker_banks=1),
}
RECORD_SECTORS_PER_WG = 4
"""Sectors of the records of a workgroup's counters."""


class ClearBench:
    """The clear, the memory it writes to, and what was cleared since the reset."""

    def __init__(self, dut, config: Configuration):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        Clock(dut.clk, 1, unit="ns").start()
        self.sinks = [StreamSink(dut, f"memory__{c}", dut.clk, stalls(30)) for c in range(config.channels)]
        names = ("valid", "first_touch", "tracked", "mapping", "base", "limit", "wg", "count", "unused")
        self.entries = [dict.fromkeys(names, 0) for _ in range(config.ranges)]
        self.backing = 0
        self.length = 1 << config.wg_bits + 2
        """Of the backing store, in sectors."""
        self.window: int | None = None
        """Upper address bits of this node's memory, if they are compared."""
        self.tags: set[tuple[int, int, int]] = set()
        self.records: set[tuple[int, tuple[int, int], int, int]] = set()
        """What was cleared since: (entry, base, limit) and (entry, backing store, wg, count)."""

    async def reset(self) -> None:
        for name in ("ranges", "backing_base", "arm", "initialised", "start"):
            getattr(self.dut, name).value = 0
        self.tell()
        self.dut.settled.value = 1
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 3)
        self.dut.rst.value = 0
        self.tags.clear()
        self.records.clear()
        for index in range(self.config.ranges):
            for word in Word:
                await self.write(index, word, 0)

    def tell(self) -> None:
        """Where memory and backing store lie."""
        self.dut.backing_base.value, self.dut.backing_sectors.value = self.backing, self.length
        bits = self.config.window_bits
        high = random.getrandbits(bits) if self.window is None else self.window
        checked = self.window is not None
        beyond = random.getrandbits(31 - bits)
        self.dut.window.value = pack(WindowCheck, high=beyond << bits | high, checked=checked)

    def holds(self, first: int, end: int) -> bool:
        """Whether all sectors from `first` to before `end` are in this node's memory, none the last there is."""
        channel = 1 << CHANNEL_SECTOR_BITS + self.config.channel_bits
        if end >= 1 << self.config.va_sector_bits:
            return False
        return self.window is None or first // channel == (end - 1) // channel == self.window

    async def write(self, index: int, word: Word, value: int) -> None:
        self.dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=value)
        await RisingEdge(self.dut.clk)
        self.dut.ranges.value = no_write(RangeWrite)

    def change(self, index: int) -> None:
        """A random entry, or a random change of it."""
        entry = self.entries[index]
        if random.random() < 0.5:
            base = random.randrange(1 << self.config.va_sector_bits - 1)
            entry |= {"base": base, "limit": base + random.choice([0, 1, 7, 8, 9, random.randrange(200)])}
            wg = random.randrange(random.choice([200, 1 << self.config.wg_bits]))
            entry |= {"wg": wg, "count": random.randrange(12)}
            entry["unused"] = random.getrandbits(64 - self.config.va_sector_bits)
        else:
            name = random.choice([name for name in entry if name != "unused"])
            entry[name] ^= 1 << random.randrange({"base": 9, "limit": 9, "wg": 9, "count": 6}.get(name, 1))
            if random.random() < 0.2:
                turned = 1 << random.randrange(self.config.va_sector_bits - 1)
                entry |= {"base": entry["base"] ^ turned, "limit": entry["limit"] ^ turned}
            entry["limit"] = min(entry["limit"], entry["base"] + 300)
        entry |= {name: int(random.random() < 0.75) for name in ("first_touch", "tracked")}
        # Most entries are to be cleared: what is remembered of one is seen beside what is of the others.
        mapping = random.choice(list(Mapping)) if random.random() < 0.4 else Mapping.LOCAL
        entry |= {"valid": int(random.random() < 0.9), "mapping": mapping.value}

    async def program(self, index: int) -> None:
        entry = self.entries[index]
        fields = {name: entry[name] for name in ("valid", "mapping", "first_touch", "tracked")}
        # Bits beyond an address: they say nothing, and stay as long as the bounds.
        unused = entry["unused"] << self.config.va_sector_bits
        bounds = {Word.BASE_LOW: entry["base"] | unused, Word.LIMIT_LOW: entry["limit"] | unused}
        await self.write(index, Word.CONTROL, 0)
        for word, value in bounds.items():
            await self.write(index, word, value & 0xFFFFFFFF)
            await self.write(index, Word(word + 1), value >> 32)
        groups = pack(Workgroups, base=entry["wg"], count=entry["count"])
        await self.write(index, Word.WORKGROUPS, groups)
        await self.write(index, Word.CONTROL, pack(Control, **fields))
        self.tags = {known for known in self.tags if known[0] != index or known[1:] == (entry["base"], entry["limit"])}
        self.records = {
            known for known in self.records if known[0] != index or known[2:] == (entry["wg"], entry["count"])
        }

    def due(self) -> Counter:
        """Sectors that the next clear must write; afterwards they count as cleared."""
        sectors: Counter[int] = Counter()
        for index, entry in enumerate(self.entries):
            if not entry["valid"]:
                continue
            bounds = index, entry["base"], entry["limit"]
            wanted = entry["first_touch"] and entry["mapping"] != Mapping.REMOTE.value and bounds not in self.tags
            if wanted and (bounds[1] >= bounds[2] or self.holds(*bounds[1:])):
                sectors.update(range(*bounds[1:]))
                self.tags.add(bounds)
            groups = index, (self.backing, self.length), entry["wg"], entry["count"]
            if entry["tracked"] and self.backing and self.config.tracker_tags and groups not in self.records:
                first = self.backing + RECORD_SECTORS_PER_WG * entry["wg"]
                end = min(first + RECORD_SECTORS_PER_WG * entry["count"], self.backing + self.length)
                if first >= end or self.holds(first, end):
                    sectors.update(range(first, end))
                    self.records.add(groups)
        return sectors

    async def clear(self, initialised: int = 0) -> None:
        """One clear to its end."""
        dut = self.dut
        dut.arm.value, dut.initialised.value = 1, initialised
        await RisingEdge(dut.clk)
        dut.arm.value, dut.initialised.value = 0, random.getrandbits(1)
        await ClockCycles(dut.clk, random.randrange(1, 4))
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        await self.finished()

    async def finished(self) -> None:
        """Return at the end; while writes are on their way to their banks it may not come."""
        for _ in range(60000):
            self.dut.settled.value = int(random.random() < 0.5)
            await ReadOnly()
            finished = int(self.dut.finished.value)
            called = unpack(RangeWrite, int(self.dut.ranges.value))["valid"] or any(
                int(getattr(self.dut, name).value) for name in ("arm", "start")
            )
            assert called or finished != int(self.dut.wake.value), "awake with nothing to do, or asleep over its work"
            await RisingEdge(self.dut.clk)
            if finished:
                return
        raise AssertionError("the clear does not end")

    def written(self) -> Counter:
        """The sectors written since, each request checked."""
        sectors: Counter[int] = Counter()
        for channel, sink in enumerate(self.sinks):
            while sink.received:
                request = unpack(self.messages.memory_request, sink.received.popleft())
                assert request["va"] >> 3 & self.config.channels - 1 == channel
                assert (request["access"], request["mask"], request["data"]) == (Access.STORE.value, 0xFFFFFFFF, 0)
                assert not request["epoch"] and not request["tracked"] and not request["first_touch"]
                sectors[request["va"]] += 1
        return sectors


@cocotb.test()
async def what_was_not_cleared_is_cleared(dut):
    """Random tables, changed between clears or programmed as they were, a backing store that moves, resets; now and
    then the host answers for the memory."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    for _ in range(5):
        await bench.reset()
        for _ in range(8):
            for index in range(bench.config.ranges):
                if random.random() < 0.6:
                    bench.change(index)
                await bench.program(index)
            bench.backing = random.choice([bench.backing, 0, random.randrange(1 << bench.config.va_sector_bits - 2)])
            bench.length = random.choice([bench.length, 1 << bench.config.wg_bits + 2, random.randrange(900)])
            bench.tell()
            initialised = random.random() < 0.2
            # What was cleared in another backing store, or in one of another length, says nothing of this one.
            bench.records = {known for known in bench.records if known[1] == (bench.backing, bench.length)}
            if initialised:
                await bench.clear(initialised=1)
                assert not bench.written()
                for index, entry in enumerate(bench.entries):
                    bench.tags.add((index, entry["base"], entry["limit"]))
                    bench.records.add((index, (bench.backing, bench.length), entry["wg"], entry["count"]))
                continue
            await bench.clear()
            assert bench.written() == bench.due()
            await bench.clear()
            assert not bench.written(), "cleared twice"


@cocotb.test()
async def a_clear_called_for_again_misses_nothing(dut):
    """While a clear is under way entries change and another one is called for: in the end all is cleared."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    for _ in range(12):
        await bench.reset()
        bench.backing = random.randrange(1, 1 << 30)
        bench.tell()
        for index in range(bench.config.ranges):
            bench.change(index)
            await bench.program(index)
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        await ClockCycles(dut.clk, random.randrange(300))
        for index in random.sample(range(bench.config.ranges), 2):
            bench.change(index)
            await bench.program(index)
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        await bench.finished()
        assert set(bench.due()) <= set(bench.written())


@cocotb.test()
async def a_change_of_any_bit_is_seen(dut):
    """One bit of one word of one entry is all that changes between two clears."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    bench.backing, bench.length = 64, 1 << bench.config.wg_bits + 2
    await bench.reset()
    index = random.randrange(bench.config.ranges)
    entry = bench.entries[index]
    entry |= {"valid": 1, "first_touch": 1, "tracked": 1, "mapping": Mapping.LOCAL.value, "unused": 0}
    entry |= {"base": 0, "limit": 1, "wg": 0, "count": 1}
    widths = {"base": bench.config.va_sector_bits - 1, "limit": 6, "wg": bench.config.wg_bits, "count": 6}
    for name, bit in ((name, bit) for name, width in widths.items() for bit in range(width)):
        for _ in range(2):
            entry[name] ^= 1 << bit
            if name == "base":
                entry["limit"] = entry["base"] + 1
            await bench.program(index)
            await bench.clear()
            assert bench.written() == bench.due(), f"bit {bit} of {name}"


@cocotb.test()
async def nothing_is_cleared_outside_the_memory(dut):
    """Ranges and backing stores that begin or end around the ends of this node's memory, and of the address space:
    those that are not wholly in it are left out, and cleared later when they are."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    channel = 1 << CHANNEL_SECTOR_BITS + bench.config.channel_bits
    left_out = 0
    for window, backing_at in itertools.product([0, 1, 5, (1 << bench.config.window_bits) - 1], [0, channel, channel]):
        bench.window = window
        await bench.reset()
        start = bench.window * channel
        for index, entry in enumerate(bench.entries):
            edge = start + random.choice([0, channel])
            highest = (1 << bench.config.va_sector_bits) - 1
            base = min(max(edge - random.randrange(30), 0), highest)
            limit = min(base + random.randrange(60), highest)
            entry |= {"base": base, "limit": limit, "wg": random.randrange(9), "count": random.randrange(9)}
            entry |= {"valid": 1, "first_touch": 1, "tracked": 1, "mapping": Mapping.LOCAL.value, "unused": 0}
            await bench.program(index)
        bench.backing = max(start + backing_at - random.randrange(40), 1)
        bench.backing = min(bench.backing, (1 << bench.config.va_sector_bits) - 1)
        bench.tell()
        await bench.clear()
        assert bench.written() == bench.due()
        left_out += len(bench.entries) - len(bench.tags)
        bench.window = None
        bench.tell()
        await bench.clear()
        assert bench.written() == bench.due()
    assert left_out > 5


@cocotb.test()
async def a_call_counts_in_any_cycle(dut):
    """An entry that a clear has passed is changed, and one more is called for, at every distance from the end."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    under_way = set()
    for wait in range(60):
        await bench.reset()
        # A walk that is over when the entry changes, or not.
        entry = {"valid": 1, "first_touch": 1, "mapping": Mapping.LOCAL.value, "base": 64, "limit": 72 + wait % 2 * 200}
        bench.entries = [dict.fromkeys(bench.entries[0], 0) for _ in bench.entries]
        bench.entries[0] |= entry
        await bench.program(0)
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        while not any(sink.received for sink in bench.sinks):
            await RisingEdge(dut.clk)
        bench.entries[0] |= {"base": 640, "limit": 642}
        await bench.program(0)
        await ClockCycles(dut.clk, wait)
        dut.start.value = 1
        await ReadOnly()
        under_way.add(int(dut.finished.value))
        await RisingEdge(dut.clk)
        dut.start.value = 0
        await bench.finished()
        assert {640, 641} <= set(bench.written()), f"called for {wait} cycles after the change"
    assert under_way == {0, 1}


@cocotb.test()
async def a_long_range_is_not_cut_short(dut):
    """Ranges of any length, to the longest, sector by sector: of up to 1,025 turns to their end, of more the first."""
    bench = ClearBench(dut, SIZES[os.environ["SIZE"]])
    of_turn = 8 * bench.config.channels
    turn_bits = bench.config.va_sector_bits - (of_turn - 1).bit_length()
    for turns in (1 << bit | extra for bit in range(2, turn_bits) for extra in (0, 1)):
        await bench.reset()
        bench.entries = [dict.fromkeys(bench.entries[0], 0) for _ in bench.entries]
        bench.entries[0] |= {"valid": 1, "first_touch": 1, "mapping": Mapping.LOCAL.value, "limit": turns * of_turn + 1}
        await bench.program(0)
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        while len(bench.sinks[0].received) < 3 * 8 + 1:
            await ReadOnly()
            assert not int(dut.finished.value), f"over after less than {turns} turns"
            await RisingEdge(dut.clk)
        if turns <= 1025:
            await bench.finished()
            assert bench.written() == bench.due()
        else:
            assert set(range(3 * of_turn)) <= set(bench.written())


CASES = (
    "a_change_of_any_bit_is_seen",
    "a_long_range_is_not_cut_short",
    "nothing_is_cleared_outside_the_memory",
    "what_was_not_cleared_is_cleared",
    "a_clear_called_for_again_misses_nothing",
    "a_call_counts_in_any_cycle",
)


def cases() -> Iterator[Any]:
    """Size and case; the longest case is quick on one size alone."""
    for size, case in itertools.product(SIZES, CASES):
        marks: Any = pytest.mark.wide if case == "a_long_range_is_not_cut_short" and size != "paper" else ()
        yield pytest.param(size, case, marks=marks)


@pytest.mark.parametrize(("size", "case"), list(cases()))
def test_memory_clear(size, case):
    simulate(Asleep(MemoryClear(SIZES[size])), "memory_clear", __name__, case, environment={"SIZE": size})


class Early(MemoryClear):
    """A wrong clear, which says that it has ended when it has not."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.finished.eq(1)
        return m


class WakesLate(MemoryClear):
    """A wrong clear, which sleeps on when it is called for."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.wake.eq(self.ranges.valid | self.arm | ~self.finished)
        return m


def test_a_clear_that_wakes_late_is_noticed():
    with caught():
        simulate(
            Asleep(WakesLate(SIZES["paper"])),
            "late_clear",
            __name__,
            "what_was_not_cleared_is_cleared",
            environment={"SIZE": "paper"},
        )


def test_a_clear_that_ends_early_is_noticed():
    with caught():
        simulate(
            Early(SIZES["paper"]),
            "early_clear",
            __name__,
            "what_was_not_cleared_is_cleared",
            environment={"SIZE": "paper"},
        )
