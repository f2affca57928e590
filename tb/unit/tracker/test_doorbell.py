"""A doorbell commits every WF tile of its workgroups once, with the tile's threshold at its lowest address."""

import os
import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.messages import Access, DataType, Fault, Messages
from hw.range_table import WORDS, RangeWrite, Word
from hw.tracker.doorbell import Doorbell
from sim.host.range_entries import range_words
from sim.host.tiling import Tiling
from tb.drivers.asleep import Asleep
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, never, stalls
from tb.drivers.wrong_blocks import RingsTwice, RingsWhateverIsAsked
from tb.functional_coverage.collection import observe
from tb.functional_coverage.doorbell import watch_doorbell
from tb.golden.tiles import count_tiles
from tb.runner import caught, simulate


@cache
def doorbell(config: Configuration) -> Asleep:
    """As the node holds it."""
    return Asleep(Doorbell(config))


CONFIG = preset("paper")
LAST = (1 << CONFIG.va_sector_bits) - 1
RANGES = 12
"""Ranges that a simulation rings."""


@dataclass
class Area:
    """A range of tiles, and what it says of them."""

    index: int
    base: int
    tiling: Tiling
    wg_base: int
    updates: int
    words: dict[Word, int]


def random_area() -> Area:
    """A range with up to three tile rows and five tile columns, ragged or not."""
    element = random.choice((2, 4))
    wfs = random.choice((1, random.randint(2, 7), 8))
    wf_rows = random.randint(1, 3)
    tile_rows = wfs * wf_rows
    tile_columns = 32 // element * random.choice((1, 2, random.randint(1, 60)))
    cut_off = random.choice((random.randrange(wf_rows), random.randrange(tile_rows)))
    rows = random.randint(1, 3) * tile_rows - cut_off
    columns = random.choice((tile_columns * random.randint(1, 5), random.randint(1, 5 * tile_columns)))
    pitch = -(-columns * element // 32) + random.choice((0, 0, 1, 7, random.randrange(1 << 14)))
    tiling = Tiling(rows, columns, tile_rows, tile_columns, wfs, element, pitch)
    area = Area(
        index=random.randrange(CONFIG.ranges),
        base=random.choice((random.randrange(1000), (1 << 32) - 20, random.randrange(LAST - tiling.sectors))),
        tiling=tiling,
        wg_base=random.choice((0, 8 * random.randrange(500), 65536 - tiling.workgroups)),
        updates=random.choice((1, 2, random.randint(3, 20))),
        words={},
    )
    area.words = range_words(
        CONFIG,
        base=area.base,
        tiling=tiling,
        dtype=DataType.FP16 if element == 2 else DataType.FP32,
        tracked=True,
        updates=area.updates,
        wg_base=area.wg_base,
    )
    # What the doorbell does not look at.
    for word, fields in ((Word.CONTROL, ("first_send", "sends", "reserved")), (Word.BLOCKS, ("base", "reserved"))):
        for name in fields:
            field = WORDS[word][name]
            area.words[word] ^= random.getrandbits(field.width) << field.offset
    return area


def expected(area: Area, first: int, count: int, epoch: int) -> list[dict[str, int]]:
    """The commits of workgroups `first` (from 0) to `first + count`, in order."""
    at = area.tiling
    tiles = count_tiles(at.rows, at.columns, at.tile_rows, at.tile_columns, at.wfs, at.dtype_bytes, at.pitch_sectors)
    return [
        {
            "range": area.index,
            "wg": area.wg_base + wg,
            "wf": wf,
            "epoch": epoch,
            "va": area.base + min(tile.sectors),
            "bytes": tile.bytes * area.updates,
        }
        for (wg, wf), tile in sorted(tiles.items())
        if first <= wg < first + count
    ]


class Bench:
    """The doorbell, and the register file that reads a range's words out to it."""

    def __init__(self, dut, stall: float = 0):
        self.dut = dut
        self.messages = Messages(CONFIG)
        Clock(dut.clk, 1, unit="ns").start()
        for name in ("entry", "first", "count", "armed", "epoch"):
            getattr(dut, name).value = 0
        self.commits = StreamSink(dut, "commits", dut.clk, stalls(stall) if stall else never)
        self.faults = StreamSink(dut, "faults", dut.clk, never)
        self.tiles = 0
        self.gaps = random.choice((0, 0.1))

    async def start(self):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0
        cocotb.start_soon(self._count())
        observe(watch_doorbell, self.dut, CONFIG)
        self.arm(random.randrange(1, 256))
        return self

    async def _count(self):
        while True:
            await ReadOnly()
            self.tiles += int(self.dut.tile.value)
            await RisingEdge(self.dut.clk)

    def arm(self, epoch: int):
        self.epoch = epoch
        self.dut.epoch.value, self.dut.armed.value = epoch, 1

    async def ring(self, index: int, words: dict[Word, int], first: int, count: int):
        """Everything that comes with a ring. The registers may be written anew a cycle after the last word."""
        self.dut.first.value, self.dut.count.value = first, count
        for word in Word:
            while random.random() < self.gaps:
                nothing = random.choice((word, Word.WF_TOTAL, Word.WORKGROUPS)).value
                garbage = {"index": random.randrange(CONFIG.ranges), "data": random.getrandbits(32)}
                self.dut.entry.value = pack(RangeWrite, valid=0, word=nothing, **garbage)
                await RisingEdge(self.dut.clk)
            self.dut.entry.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=words[word])
            await RisingEdge(self.dut.clk)
        self.dut.entry.value = random.getrandbits(32) << 12
        await RisingEdge(self.dut.clk)
        self.dut.first.value, self.dut.count.value = random.getrandbits(16), random.getrandbits(16)

    async def settle(self, limit: int = 20000):
        """Wait for the end of the walk, and a little longer: nothing may come after it."""
        for _ in range(limit):
            await ReadOnly()
            if not int(self.dut.busy.value):
                break
            await RisingEdge(self.dut.clk)
        else:
            raise AssertionError("the walk does not end")
        await ClockCycles(self.dut.clk, 20)
        await ReadOnly()
        assert not int(self.dut.wake.value) or self.dut.faults__valid.value, "awake with nothing to do"
        await RisingEdge(self.dut.clk)

    def taken(self) -> list[dict[str, int]]:
        """The commits since the last time."""
        commits = [unpack(self.messages.commit, payload) for payload in self.commits.received]
        self.commits.received.clear()
        return commits

    def refused(self) -> list[tuple[int, int]]:
        """The faults since the last time, and their workgroups."""
        records = [unpack(self.messages.fault_record, payload) for payload in self.faults.received]
        self.faults.received.clear()
        rest = {"access": Access.UPDATE.value, "link": 0, "va": 0, "wf": 0}
        assert all(record == record | rest for record in records), records
        return [(record["fault"], record["wg"]) for record in records]


@cocotb.test()
async def every_tile_is_committed_once(dut):
    """Whole ranges and parts of them, at any rate."""
    bench = await Bench(dut, float(os.environ.get("T3_STALLS", "0"))).start()
    seen = 0
    for _ in range(RANGES):
        area = random_area()
        total = area.tiling.workgroups
        first = random.choice((0, random.randrange(total)))
        for start, count in ((0, total), (first, random.randint(0, total - first)), (total - 1, 1)):
            await bench.ring(area.index, area.words, area.wg_base + start, count)
            await bench.settle()
            wanted = expected(area, start, count, bench.epoch)
            assert bench.taken() == wanted, (area, start, count)
            seen += len(wanted)
            assert bench.tiles == seen and not bench.refused()


PARTS = ("none", "all", "first", "inner", "last", "before the range", "past the range")
"""Of the workgroups of a range."""


def draw(part: str) -> tuple[Area, int, int]:
    """A range, and first and number of workgroups that are this part of it."""
    while True:
        area = random_area()
        total = area.tiling.workgroups
        first = random.randrange(total) if part != "all" else 0
        count = {"none": 0, "all": total, "last": total - first}.get(part, random.randint(1, total))
        if part == "before the range":
            first = -random.randint(1, 3)
        elif part == "past the range":
            count = total - first + random.randint(1, 300)
        elif part == "first":
            first = 0
        start = area.wg_base + first
        inside = {"inner": 0 < first < first + count < total, "first": count < total, "last": first > 0}
        if 0 <= start < 1 << 16 and inside.get(part, True):
            return area, start, count


async def parts_are_walked(bench: Bench, tiling: Tiling) -> None:
    """All of a range of FP16, its middle and its end, and parts of any size."""
    wg_base = random.randrange((1 << CONFIG.wg_bits) - tiling.workgroups + 1)
    base = random.randrange(LAST - tiling.sectors)
    words = range_words(CONFIG, base=base, tiling=tiling, tracked=True, wg_base=wg_base)
    area, total = Area(5, base, tiling, wg_base, 1, words), tiling.workgroups
    parts = [(0, total), (total // 2, total - total // 2), (total - 1, 1)]
    parts += [(first, random.randint(1, total - first)) for first in random.sample(range(total), min(3, total))]
    for first, count in parts:
        await bench.ring(area.index, area.words, wg_base + first, count)
        await bench.settle()
        assert bench.taken() == expected(area, first, count, bench.epoch) and not bench.refused()


@cocotb.test()
async def many_workgroups_are_walked(dut):
    """More than fit into the low bits of their number, in rows of tiles of any length, the last ones ragged or not."""
    bench = await Bench(dut).start()
    for across, down in ((257, 1), (700, 1), *((random.randint(1, 80), random.randint(1, 7)) for _ in range(12))):
        columns = 16 * across - random.choice((0, random.randrange(16)))
        await parts_are_walked(bench, Tiling(3 * down - random.randrange(3), columns, 3, 16, 1))


async def tiles_are_walked_past(bench: Bench, across: int, down: int) -> None:
    """Two workgroups of `down` rows of `across`, the last two of all or around the end of the last row but one; the
    last row and column are ragged or not, and rows do not follow one another without a gap."""
    total = across * down
    wg_base = 8 * random.randint(0, (65536 - total) // 8)
    bottom_wfs, cut_off, pitch = random.randint(1, 2), random.randrange(16), across + random.randrange(1000)
    rows = 2 * (down - 1) + bottom_wfs
    base = random.randrange(LAST - rows * pitch)
    tiling = Tiling(rows, 16 * across - cut_off, 2, 16, 2, 2, pitch)
    # The table of this configuration has fewer blocks; the doorbell is the same for a larger one.
    larger = replace(CONFIG, trigger_blocks=1 << 16)
    words = range_words(larger, base=base, tiling=tiling, tracked=True, wg_base=wg_base, block_wfs=2)
    first = max(random.choice((total - 2, total - across - 1)), 0)
    count = min(total - first, 2)
    await bench.ring(5, words, wg_base + first, count)
    await bench.settle(70000)
    wanted = []
    for wg in range(first, first + count):
        row, column = divmod(wg, across)
        size = 32 - (2 * cut_off if column == across - 1 else 0)
        for wf in range(bottom_wfs if row == down - 1 else 2):
            commit = {"range": 5, "wg": wg_base + wg, "wf": wf, "epoch": bench.epoch, "bytes": size}
            wanted.append({**commit, "va": base + (2 * row + wf) * pitch + column})
    assert bench.taken() == wanted and not bench.refused(), (across, down)


@cocotb.test()
async def any_number_of_tiles_is_walked_past(dut):
    """Rows of tiles of any length, any number of them: where the walk comes to last depends on where each row ended."""
    bench = await Bench(dut).start()
    for bits in (16, 16, *(random.randint(1, 16) for _ in range(8))):
        across = random.randint(1, min(1 << random.randint(0, bits), 65535))
        down = min(random.randint(1 << bits - 1, (1 << bits) - 1) // across + 1, 65535 // across)
        await tiles_are_walked_past(bench, across, down)


@cocotb.test()
async def how_many_are_too_many_is_told_by_every_bit(dut):
    """Ends that differ from the range's in one bit of the sum: refused when higher, walked when lower."""
    bench = await Bench(dut).start()
    for bit in range(16):
        total = random.randint(1, 60) if bit > 6 else random.randint(1, 200)
        tiling = Tiling(1, 16 * total, 1, 16, 1)
        wg_base = 8 * random.randrange(500)
        base = random.randrange(LAST - total)
        words = range_words(CONFIG, base=base, tiling=tiling, tracked=True, wg_base=wg_base)
        area = Area(5, base, tiling, wg_base, 1, words)
        first = random.randrange(total)
        count = (total ^ 1 << bit) - first
        if not 0 <= count < 1 << 16:
            first, count = 0, total ^ 1 << bit
        await bench.ring(5, words, wg_base + first, count)
        await bench.settle()
        refused = first + count > total
        assert bench.refused() == ([(Fault.TILE.value, wg_base + first)] if refused else []), (total, first, count)
        assert bench.taken() == ([] if refused else expected(area, first, count, bench.epoch))


@cocotb.test()
async def any_words_let_a_walk_end(dut):
    """Whatever software writes into a range: so many tiles that their number does not fit into a wavefront's, ragged
    columns where none is. What is committed is of the workgroups that were rung, of each one no tile twice."""
    bench = await Bench(dut).start()
    walked = 0
    for _ in range(40):
        words = {word: random.getrandbits(32) for word in Word}
        words[Word.CONTROL] |= 1 | 1 << 10
        first, total, count = random.randrange(1 << 10), 64, random.randint(1, 20)
        words[Word.WORKGROUPS] = first | total << 16
        await bench.ring(5, words, first, count)
        await bench.settle(1000)
        places = [(commit["wg"], commit["wf"]) for commit in bench.taken()]
        assert places == sorted(set(places)) and not bench.refused()
        assert {wg for wg, _ in places} == set(range(first, first + count))
        walked += max(wf for _, wf in places) == 7
    assert walked


@cocotb.test()
async def rows_lie_far_apart(dut):
    """Tiles of many rows, of any distance."""
    bench = await Bench(dut).start()
    for _ in range(6):
        wfs = random.randint(1, 8)
        wf_rows = random.randint(1, 256)
        tile_rows, pitch = wfs * wf_rows, random.randrange(1, (1 << random.randint(16, 32)) // wf_rows)
        rows = 3 * tile_rows - random.randrange(tile_rows)
        await parts_are_walked(bench, Tiling(rows, 16, tile_rows, 16, wfs, 2, pitch))


@cocotb.test()
async def every_ring_has_its_answer(dut):
    """Whatever it asks for, of any range, of a doorbell that is ready, not armed, or walking: the walk or the record
    that the contract names, and nothing of the other."""
    bench = await Bench(dut).start()
    cases = list(product(("ready", "not armed", "walking"), (0, 1 << 10, 1), PARTS))
    random.shuffle(cases)
    for state, cleared, part in cases:
        bench.arm(random.randrange(1, 256))
        wanted = []
        if state == "walking":
            area, first, count = draw("all")
            bench.commits.stall = lambda: True
            await bench.ring(area.index, area.words, first, count)
            await ClockCycles(dut.clk, 12)
            wanted = expected(area, 0, count, bench.epoch)
        dut.armed.value = int(state != "not armed")
        area, first, count = draw(part)
        words = {**area.words, Word.CONTROL: area.words[Word.CONTROL] & ~cleared}
        await bench.ring(area.index, words, first, count)
        bench.commits.stall = never
        await bench.settle()
        refused = part in ("before the range", "past the range") or cleared
        fault = {"walking": Fault.BUSY, "not armed": Fault.NOT_ARMED}.get(state, Fault.TILE if refused else None)
        if fault is None:
            wanted = expected(area, first - area.wg_base, count, bench.epoch)
        case = (state, cleared, part, area, first, count)
        assert bench.refused() == ([(fault.value, first)] if fault else []), case
        assert bench.taken() == wanted, case


@cocotb.test()
async def what_cannot_be_rung_is_refused(dut):
    """Not armed, not tracked, not valid, workgroups that the range does not have: a fault, and no commit."""
    bench = await Bench(dut).start()
    for _ in range(20):
        area = random_area()
        total, first = area.tiling.workgroups, area.wg_base
        control = area.words[Word.CONTROL]
        for words, start, count, fault in (
            (area.words, first, total + 1, Fault.TILE),
            (area.words, first + total, 1, Fault.TILE),
            (area.words, first - 1, 1, Fault.TILE),
            (area.words, first, 0xFFFF, Fault.TILE),
            # The smallest distance from the end of the numbers that is one before the range as well.
            (area.words, first + total & 0xFFFF, 0, Fault.TILE if first + total == 1 << 16 else None),
            ({**area.words, Word.CONTROL: control & ~1}, first, 1, Fault.TILE),
            ({**area.words, Word.CONTROL: control & ~(1 << 10)}, first, 1, Fault.TILE),
            (area.words, first, total, Fault.NOT_ARMED),
        ):
            if not 0 <= start < 1 << 16 or fault is None:
                continue
            dut.armed.value = int(fault is not Fault.NOT_ARMED)
            await bench.ring(area.index, words, start, count)
            await bench.settle()
            assert bench.refused() == [(fault.value, start)] and not bench.taken()
        dut.armed.value = 1
        await bench.ring(area.index, area.words, first, total)
        await bench.settle()
        assert bench.taken() == expected(area, 0, total, bench.epoch) and not bench.refused()


@cocotb.test()
async def a_record_that_waits_is_kept(dut):
    """Of refusals while nobody takes the first one's record, that one is left; the next after it is recorded again."""
    bench = await Bench(dut).start()
    dut.armed.value = 0
    bench.faults.stall = lambda: True
    firsts = random.sample(range(1 << 16), 4)
    for first in firsts[:3]:
        area = random_area()
        await bench.ring(area.index, area.words, first, 1)
        await bench.settle()
    bench.faults.stall = never
    await ClockCycles(dut.clk, 5)
    assert bench.refused() == [(Fault.NOT_ARMED.value, firsts[0])]
    await bench.ring(area.index, area.words, firsts[3], 1)
    await bench.settle()
    assert bench.refused() == [(Fault.NOT_ARMED.value, firsts[3])] and not bench.taken()


@cocotb.test()
async def a_second_ring_does_not_disturb_the_first(dut):
    """Rung again while it walks: BUSY, and the walk goes on as if it had not been."""
    bench = await Bench(dut, 70).start()
    for _ in range(20):
        area, other = random_area(), random_area()
        total = area.tiling.workgroups
        await bench.ring(area.index, area.words, area.wg_base, total)
        await ClockCycles(dut.clk, random.randrange(6))
        await ReadOnly()
        busy = int(dut.busy.value)
        await RisingEdge(dut.clk)
        wanted = expected(area, 0, total, bench.epoch)
        await bench.ring(other.index, other.words, other.wg_base, 1)
        await bench.settle()
        if not busy:
            wanted += expected(other, 0, 1, bench.epoch)
        refused = bench.refused()
        assert refused in ([(Fault.BUSY.value, other.wg_base)], []) and (busy or not refused)
        if busy and not refused:
            wanted += expected(other, 0, 1, bench.epoch)
        assert bench.taken() == wanted


@cocotb.test()
async def a_walk_ends_with_its_epoch(dut):
    """Disarmed at any cycle: nothing but the commit on offer, all of them of the epoch in which it was rung, whatever
    the epoch register says by then."""
    bench = await Bench(dut, 50).start()
    cut = 0
    for _ in range(60):
        area = random_area()
        # Of one workgroup as often as of all.
        first, count = random.choice(((random.randrange(area.tiling.workgroups), 1), (0, area.tiling.workgroups)))
        await bench.ring(area.index, area.words, area.wg_base + first, count)
        wanted = expected(area, first, count, bench.epoch)
        await ClockCycles(dut.clk, random.randrange(4 * len(wanted)))
        dut.armed.value = 0
        await ReadOnly()
        had = len(bench.commits.received)
        offered = int(dut.commits__valid.value)
        await RisingEdge(dut.clk)
        dut.epoch.value = random.getrandbits(8)
        await bench.settle(50)
        got = bench.taken()
        assert got == wanted[: len(got)] and len(got) <= had + offered
        cut += len(got) < len(wanted)
        assert not bench.refused()
        bench.arm(random.randrange(1, 256))
    assert cut > 10


@cocotb.test()
async def a_tile_a_cycle_and_one_more_for_a_workgroup(dut):
    """As fast as it says, from the last word on."""
    bench = await Bench(dut).start()
    tiling = Tiling(32, 64, 16, 16, 4)
    words = range_words(CONFIG, base=64, tiling=tiling, tracked=True)
    for first, count in ((0, 8), (5, 2)):
        await bench.ring(3, words, first, count)
        cycles = 1
        while True:
            await ReadOnly()
            if not int(dut.busy.value):
                break
            await RisingEdge(dut.clk)
            cycles += 1
        assert len(bench.taken()) == count * 4
        assert cycles == 1 + tiling.wfs + first + count * (tiling.wfs + 1)
        await RisingEdge(dut.clk)


CASES = (
    "every_tile_is_committed_once",
    "every_ring_has_its_answer",
    "many_workgroups_are_walked",
    "any_number_of_tiles_is_walked_past",
    "how_many_are_too_many_is_told_by_every_bit",
    "any_words_let_a_walk_end",
    "rows_lie_far_apart",
    "what_cannot_be_rung_is_refused",
    "a_record_that_waits_is_kept",
    "a_second_ring_does_not_disturb_the_first",
    "a_walk_ends_with_its_epoch",
    "a_tile_a_cycle_and_one_more_for_a_workgroup",
)


@pytest.mark.parametrize("case", CASES)
def test_doorbell(case):
    simulate(doorbell(CONFIG), "doorbell", __name__, case, environment={"T3_STALLS": "0"})


def test_stalled():
    simulate(doorbell(CONFIG), "doorbell", __name__, CASES[0], environment={"T3_STALLS": "60"})


def test_a_doorbell_that_does_not_look_at_the_range_is_caught():
    with caught("AssertionError"):
        simulate(RingsWhateverIsAsked(CONFIG), "doorbell_unlooked", __name__, CASES[1], environment={"T3_STALLS": "0"})


def test_a_doorbell_that_rings_twice_is_caught():
    with caught("AssertionError"):
        simulate(RingsTwice(CONFIG), "doorbell_twice", __name__, CASES[0], environment={"T3_STALLS": "0"})
