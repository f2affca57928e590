"""Everything around one Tracker in a test: range programming, drivers, a memory for spilled counters, event totals."""

import random
from collections import Counter, defaultdict
from typing import Any

import cocotb
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration
from hw.messages import Access, Fault, Mapping, Messages
from hw.primitives.secded import columns
from hw.range_table import WORDS, Blocks, Control, Grouping, Ragged, Word, Workgroups, range_write
from hw.tracker.count_stage import GENERATION_BITS
from hw.tracker.events import TrackerEvents
from hw.tracker.tracker import TOTAL_BITS
from tb.drivers.clear import cleared
from tb.drivers.payload import field, pack, unpack
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.drivers.table_writes import table_write
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_tracker
from tb.golden.secded import encode
from tb.golden.tracker import TiledRange

_THRESHOLDS = (Word.THRESHOLD_BODY, Word.THRESHOLD_RIGHT, Word.THRESHOLD_BOTTOM, Word.THRESHOLD_CORNER)


def next_epoch(epoch: int) -> int:
    """An epoch of 8 bits, neither 0 nor `epoch`."""
    return epoch * 37 % 255 + 1


def words(area: TiledRange) -> dict[Word, int]:
    """The range entry of `area`."""
    odd, shift = area.tiles_across, 0
    while odd % 2 == 0:
        odd, shift = odd // 2, shift + 1
    height = area.tile_rows // area.wfs
    last = area.first_wg + area.workgroups - 1
    bottom_rows = area.rows - (area.tiles_down - 1) * area.tile_rows
    bottom_wfs = -(-bottom_rows // height)
    bottom_full = bottom_rows // height
    middle = area.first_wg

    def threshold(wg: int, wf: int) -> int:
        return area.threshold(wg, wf)

    whole = height * area.updates * 2
    width = min(area.tile_columns, area.columns)
    right = area.columns - (area.tiles_across - 1) * area.tile_columns
    partial = (bottom_rows % height) * area.updates * 2
    assert threshold(middle, 0) in (whole * width, whole * right, partial * width, partial * right)
    return {
        Word.CONTROL: pack(
            Control, valid=1, tracked=1, mapping=Mapping.DMA if area.dma else Mapping.LOCAL, launch=area.launch
        ),
        Word.WORKGROUPS: pack(Workgroups, base=area.first_wg, count=area.workgroups),
        Word.RAGGED: pack(Ragged, bottom=last - area.tiles_across + 1 - area.first_wg, inverse=pow(odd, -1, 1 << 16)),
        Word.GROUPING: pack(
            Grouping,
            limit=0xFFFF // area.tiles_across,
            shift=shift,
            wfs=area.wfs,
            block_wfs=area.block_wfs,
            block_shift=area.block_shift,
        ),
        Word.BLOCKS: pack(Blocks, base=area.block_base, bottom_wfs=bottom_wfs, bottom_full=bottom_full),
        Word.THRESHOLD_BODY: whole * width,
        Word.THRESHOLD_RIGHT: whole * right,
        Word.THRESHOLD_BOTTOM: partial * width,
        Word.THRESHOLD_CORNER: partial * right,
        Word.WF_TOTAL: len(area.tiles()),
    }


class TrackerBench:
    """Drivers around one Tracker."""

    def __init__(self, dut: Any, config: Configuration, percent: int, memory_latency: int = 40):
        self.dut, self.config, self.percent = dut, config, percent
        self.layouts = Messages(config)
        self.memory: dict[int, int] = {}
        self.memory_latency = memory_latency
        self.counts: Counter[str] = Counter()
        self.peak = 0
        self.written = self.fetched = 0
        """Counters that went to the backing store, and that were asked for."""
        self.committed: defaultdict[int, set[int]] = defaultdict(set)
        """By index in the backing store, the addresses of all commits to that tile."""
        self.generation: int | None = None
        """Number of the clear, once a record with it was seen."""
        self.answers: list[tuple[int, int, int]] = []
        self.cycle = 0
        Clock(dut.clk, 1, unit="ns").start()
        stall = stalls(percent)
        inputs = [*(f"commits__{channel}" for channel in range(config.channels)), "doorbell"]
        self.sources = [StreamSource(dut, name, dut.clk, stall) for name in inputs]
        self.blocks = StreamSink(dut, "blocks", dut.clk, stall)
        self.launches = StreamSink(dut, "launches", dut.clk, stall)
        self.faults = StreamSink(dut, "faults", dut.clk)
        self.spills = StreamSink(dut, "spill_requests", dut.clk, stall)

    async def start(self, epoch: int) -> None:
        """Reset and start the memory and the totals."""
        dut = self.dut
        dut.rst.value = 1
        dut.clear.value = 0
        dut.ranges.value = 0
        dut.spill_response.value = 0
        dut.epoch.value = epoch
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self.backing())
        cocotb.start_soon(self.watch())
        observe(watch_tracker, dut, self.config)

    async def program(self, areas: list[TiledRange]) -> None:
        """Write the range table: these ranges and no other. Reserved bits, and those above a number, are anything."""
        numbers = {**dict.fromkeys(_THRESHOLDS, self.config.count_bits), Word.WF_TOTAL: TOTAL_BITS}
        for index in set(range(self.config.ranges)) - {area.index for area in areas}:
            self.dut.ranges.value = table_write(range_write(self.config), index, Word.CONTROL, 0)
            await RisingEdge(self.dut.clk)
        for area in areas:
            for word, value in words(area).items():
                layout = data.Layout.cast(WORDS[word]) if word in WORDS else {}
                if "reserved" in dict(layout):
                    value |= random.getrandbits(layout["reserved"].width) << layout["reserved"].offset
                if word in numbers:
                    value |= random.getrandbits(32 - numbers[word]) << numbers[word]
                self.dut.ranges.value = table_write(range_write(self.config), area.index, word, value)
                await RisingEdge(self.dut.clk)
        self.dut.ranges.value = 0

    async def fill_ranges(self) -> None:
        """Leave rubbish in every entry of the range table but its CONTROL, each bit written both ways: entries that are
        not programmed afterwards must not matter. Their WF totals are out of reach: a range that is done shows."""
        for index in range(self.config.ranges):
            for word in Word:
                value = random.getrandbits(32) | 1 << 19
                last = 0 if word is Word.CONTROL else value
                for item in (value, value ^ 0xFFFFFFFF, last):
                    self.dut.ranges.value = table_write(range_write(self.config), index, word, item)
                    await RisingEdge(self.dut.clk)
        self.dut.ranges.value = 0

    async def clear(self, epoch: int) -> None:
        """Begin an epoch; returns when all is cleared."""
        self.generation = None
        self.dut.clear.value = 1
        self.dut.epoch.value = epoch
        await RisingEdge(self.dut.clk)
        self.dut.clear.value = 0
        await RisingEdge(self.dut.clk)
        await cleared(self.dut)

    async def backing(self) -> None:
        """The memory behind the spill requests: served in order, answered in any order, rubbish where never written."""
        layout, response = self.layouts.spill_request, self.layouts.spill_response
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            while self.spills.received:
                request = self.spills.received.popleft()
                index, record = field(layout, request, "index"), field(layout, request, "record")
                assert index in self.committed, f"no commit to the tile at {index} in the backing store"
                if field(layout, request, "write"):
                    self.memory[index] = record
                    va = field(self.layouts.spill_record, record, "va")
                    # With protection tests turn bits of records that are written.
                    assert self.config.protects_memories or va in self.committed[index], "the address of another tile"
                    self.generation = field(self.layouts.spill_record, record, "reserved")
                    if self.config.protects_memories:
                        self.generation %= 1 << GENERATION_BITS
                    assert self.generation < 1 << GENERATION_BITS
                    self.written += 1
                else:
                    self.fetched += 1
                    found = self.memory.get(index)
                    if found is None:
                        found = self.rubbish()
                    delay = random.randint(1, self.memory_latency)
                    self.answers.append((self.cycle + delay, field(layout, request, "tag"), found))
            due = next((item for item in self.answers if item[0] <= self.cycle), None)
            if due is None:
                self.dut.spill_response.value = 0
                continue
            self.answers.remove(due)
            tag, record = due[1:]
            self.dut.spill_response.value = pack(
                response, valid=1, tag=tag, record=unpack(self.layouts.spill_record, record)
            )

    def rubbish(self) -> int:
        """A record that was never written: anything, or with all it takes to be valid but one bit, or but its clear
        number."""
        if random.random() < 0.3:
            return random.getrandbits(self.layouts.spill_record.size)
        values = {"present": 1, "epoch": int(self.dut.epoch.value)}
        values |= {"count": random.getrandbits(self.config.count_bits), "va": random.getrandbits(16)}
        if self.generation is None:
            return self.checked(pack(self.layouts.spill_record, **values, reserved=random.getrandbits(32)))
        record = pack(self.layouts.spill_record, **values, reserved=self.generation)
        parts = {"present": 1, "epoch": self.config.epoch_bits, "reserved": GENERATION_BITS}
        name = random.choice(list(parts))
        return self.checked(record ^ 1 << self.layouts.spill_record[name].offset + random.randrange(parts[name]))

    def checked(self, record: int) -> int:
        """A record with its check bits, if it is to have any."""
        bits = self.layouts.spill_record["reserved"].offset + GENERATION_BITS
        return record | encode(record, columns(bits)) << bits if self.config.protects_memories else record

    async def watch(self) -> None:
        """Adds up the events."""
        names = [name for name in TrackerEvents.members if name != "live"]
        while True:
            await ReadOnly()
            value = int(self.dut.events.value)
            if value:
                for name in names:
                    happened = field(TrackerEvents, value, name)
                    assert happened <= self.config.tracker_banks, f"{name}: more than one of a bank in a cycle"
                    self.counts[name] += happened
                self.peak = max(self.peak, field(TrackerEvents, value, "live"))
            await RisingEdge(self.dut.clk)

    def commit(self, channel: int, index: int, wg: int, wf: int, epoch: int, va: int, size: int) -> None:
        """Queue one commit on a channel; on the one behind the last, from the doorbell."""
        self.committed[wg << self.config.wf_bits | wf].add(va)
        self.sources[channel].queue.append(
            pack(self.layouts.commit, range=index, wg=wg, wf=wf, epoch=epoch, va=va, bytes=size)
        )

    async def settle(self, limit: int = 200_000) -> None:
        """Until nothing has moved for a while."""
        quiet = 0
        last = None
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            state = (
                [len(source.queue) for source in self.sources],
                self.blocks.taken,
                self.launches.taken,
                self.spills.taken,
                len(self.answers),
            )
            quiet = quiet + 1 if state == last and not any(state[0]) and not self.answers else 0
            last = state
            if quiet > 60 + self.memory_latency:
                return
        raise AssertionError("the Tracker does not come to rest")

    def received_blocks(self) -> list[tuple[int, ...]]:
        """Ready blocks so far: range, wg, wf, va, bottom, right."""
        layout = self.layouts.ready_block
        names = ("range", "wg", "wf", "va", "bottom", "right")
        return [tuple(field(layout, item, name) for name in names) for item in self.blocks.received]

    def received_launches(self) -> list[tuple[int, ...]]:
        """Launch events so far: range, wg, wf."""
        layout = self.layouts.launch_event
        return [tuple(field(layout, item, name) for name in ("range", "wg", "wf")) for item in self.launches.received]

    def received_faults(self) -> list[tuple[str, int, int, int]]:
        """Faults so far: name, wg, wf, va."""
        faults = [unpack(self.layouts.fault_record, item) for item in self.faults.received]
        assert all((fault["link"], fault["access"]) == (0, Access.UPDATE.value) for fault in faults)
        return [(Fault(fault["fault"]).name, fault["wg"], fault["wf"], fault["va"]) for fault in faults]

    def forget(self) -> None:
        """Begin anew with what was received and counted."""
        for sink in (self.blocks, self.launches, self.faults):
            sink.received.clear()
        self.counts.clear()
        self.written = self.fetched = 0
