"""Copies of the words of tables: a bit that was wrong on the bus is told when the word is used, and of no other one."""

import random
from collections.abc import Collection
from dataclasses import replace
from enum import IntEnum
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const
from amaranth.lib import data
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import preset
from hw.dma.engine import DmaEngine
from hw.link.send_table import SendTable
from hw.memory_clear import MemoryClear
from hw.messages import Mapping
from hw.node_monitor import CollectiveState
from hw.range_table import Control, Grouping, RangeMatch, RangeTable, Word, range_write
from hw.send_table import SendWord, send_write
from hw.tracker.tracker import TileTotals
from hw.word_table import mask_of
from tb.drivers.clock import start
from tb.drivers.payload import pack, unpack
from tb.drivers.table_writes import table_write
from tb.runner import caught, simulate

CONFIG = preset("paper", protection="all")
RANGES = range_write(CONFIG)
SENDS = send_write(CONFIG)
CHOSEN = {Word.CONTROL: (1 << 32) - 1, Word.GROUPING: mask_of(Grouping, "wfs"), Word.PITCH: (1 << 32) - 1}
"""Words of a table under test, and the bits of each that it is read for."""
MATCHED = (Word.CONTROL, Word.BASE_LOW, Word.BASE_HIGH, Word.LIMIT_LOW, Word.LIMIT_HIGH)


class Copies:
    """Writes on a bus, of which some have a wrong bit, and where words with one are. With `wraps` an index beyond the
    last is taken for what is left of it."""

    def __init__(self, dut, bus, layout: data.StructLayout, words: Collection[IntEnum], wraps: bool = False):
        self.dut, self.bus, self.layout, self.words, self.wraps = dut, bus, layout, words, wraps
        self.kept = {(index, word.value): 0 for index in range(CONFIG.ranges) for word in words}
        self.wrong: set[tuple[int, int]] = set()

    async def write(self, index: int, word: IntEnum, value: int, spoilt: int | None = None) -> None:
        """One word, with bit `spoilt` turned; what it replaces is no longer wrong."""
        bits = table_write(self.layout, index, word, value, renewed=random.randrange(2))
        if spoilt is not None:
            bits ^= 1 << spoilt
        self.bus.value = bits
        await RisingEdge(self.dut.clk)
        self.bus.value = 0
        written = unpack(self.layout, bits)
        place = (written["index"] % CONFIG.ranges if self.wraps else written["index"], written["word"])
        if place in self.kept:
            self.kept[place] = written["data"]
            (self.wrong.discard if spoilt is None else self.wrong.add)(place)

    async def fill(self) -> None:
        """Right words everywhere."""
        for index, number in list(self.kept):
            await self.write(index, type(next(iter(self.words)))(number), random.getrandbits(32))

    async def write_some(self) -> None:
        """A word, often one that is wrong, often with a wrong bit."""
        places = sorted(self.wrong) if random.random() < 0.5 else []
        index, number = random.choice(places or sorted(self.kept))
        spoilt = random.randrange(1, self.layout.size) if random.random() < 0.3 else None
        await self.write(index, type(next(iter(self.words)))(number), random.getrandbits(32), spoilt)


@cocotb.test()
async def a_wrong_word_is_told_with_its_entry(dut):
    """A table of words: told a cycle after an entry is used, whichever bit was wrong on the bus."""
    await start(dut, ("write", "index", "used"))
    copies = Copies(dut, dut.write, RANGES, CHOSEN, wraps=True)
    await copies.fill()
    told = 0
    for _ in range(3000):
        await copies.write_some()
        index, used = random.randrange(CONFIG.ranges), random.random() < 0.8
        dut.index.value, dut.used.value = index, used
        await ReadOnly()
        for word, mask in CHOSEN.items():
            assert int(getattr(dut, word.name.lower()).value) == copies.kept[index, word.value] & mask
        await RisingEdge(dut.clk)
        dut.used.value = 0
        await ReadOnly()
        wrong = any((index, word.value) in copies.wrong for word in CHOSEN)
        assert int(dut.wrong.value) == (used and wrong)
        told += used and wrong
        await RisingEdge(dut.clk)
        await ReadOnly()
        assert not int(dut.wrong.value)
        await RisingEdge(dut.clk)
    assert told > 60


@cocotb.test()
async def a_wrong_bound_is_told_with_every_look_up(dut):
    """The ranges that addresses are compared with: any of them, since any may be the one that is missed."""
    await start(dut, ("write", "window", "look_up", "va"))
    copies = Copies(dut, dut.write, RANGES, MATCHED)
    await copies.fill()
    told = 0
    for _ in range(2000):
        place = random.choice(sorted(copies.kept))
        await copies.write(place[0], Word(place[1]), random.getrandbits(32))
        for _ in range(random.randrange(3)):
            index, number = random.choice(sorted(copies.kept))
            await copies.write(index, Word(number), random.getrandbits(32), random.randrange(1, RANGES.size))
        spoilt = set(copies.wrong)
        dut.look_up.value, dut.va.value = 1, random.getrandbits(CONFIG.va_sector_bits)
        await RisingEdge(dut.clk)
        dut.look_up.value = 0
        await ReadOnly()
        assert int(dut.wrong.value) == bool(spoilt)
        told += bool(spoilt)
        await RisingEdge(dut.clk)
        for index, number in sorted(spoilt):
            if random.random() < 0.5:
                await copies.write(index, Word(number), random.getrandbits(32))
    assert 500 < told < 1900


@cocotb.test()
async def a_wrong_send_is_told(dut):
    """An entry two cycles after it is read; a port once as long as it is wrong, while ports are in use."""
    await start(dut, ("write", "index", "read", "routes"))
    copies = Copies(dut, dut.write, SENDS, list(SendWord))
    await copies.fill()
    told = 0
    for _ in range(2000):
        await copies.write_some()
        index = random.randrange(CONFIG.sends)
        dut.index.value, dut.read.value = index, 1
        await RisingEdge(dut.clk)
        dut.read.value = 0
        await ClockCycles(dut.clk, 1)
        await ReadOnly()
        wrong = any((index, word.value) in copies.wrong for word in SendWord)
        assert int(dut.wrong.value) == wrong
        told += wrong
        await RisingEdge(dut.clk)
    assert told > 60
    await copies.fill()
    for used in (0, 1):
        dut.routes.value = used
        for index in range(CONFIG.sends):
            await copies.write(index, SendWord.OFFSET_HIGH, random.getrandbits(32), SENDS["data"].offset + 30)
            pulses = []
            for _ in range(6):
                await RisingEdge(dut.clk)
                await ReadOnly()
                pulses.append(int(dut.wrong.value))
            assert sum(pulses) == used
            await RisingEdge(dut.clk)
            await copies.write(index, SendWord.OFFSET_HIGH, random.getrandbits(32))
            await ClockCycles(dut.clk, 3)


@cocotb.test()
async def a_wrong_total_is_told_when_it_is_compared(dut):
    banks = [f"{name}__{bank}" for name in ("completed", "completed_range") for bank in range(CONFIG.tracker_banks)]
    await start(dut, ("ranges", "clear", *banks))
    copies = Copies(dut, dut.ranges, RANGES, [Word.WF_TOTAL])
    await copies.fill()
    for _ in range(100):
        wrong = random.random() < 0.5
        index = random.randrange(CONFIG.ranges)
        await copies.write(index, Word.WF_TOTAL, 7, RANGES["data"].offset + random.randrange(32) if wrong else None)
        await seen(dut, dut.wrong, 0)
        dut.completed__0.value = 1
        await RisingEdge(dut.clk)
        dut.completed__0.value = 0
        await seen(dut, dut.wrong, 1 if wrong else 0)
        await copies.write(index, Word.WF_TOTAL, 7)


@cocotb.test()
async def what_an_epoch_knows_of_ranges_is_watched(dut):
    inputs = ("ranges", "arm", "disarm", "number", "drained", "cleared", "range_done", "expected_blocks", "idle")
    await start(dut, (*inputs, "sent_blocks__0"))
    copies = Copies(dut, dut.ranges, RANGES, [Word.CONTROL, Word.WF_TOTAL])
    await copies.fill()
    for armed in (0, 1):
        if armed:
            dut.drained.value = dut.cleared.value = dut.arm.value = 1
            await RisingEdge(dut.clk)
            dut.arm.value = 0
            await ClockCycles(dut.clk, 8)
            assert int(dut.armed.value)
        for _ in range(50):
            index, word = random.randrange(CONFIG.ranges), random.choice((Word.CONTROL, Word.WF_TOTAL))
            await copies.write(index, word, 3, RANGES["data"].offset + random.randrange(32))
            await seen(dut, dut.tables_wrong, armed)
            await copies.write(index, word, 3)
            await seen(dut, dut.tables_wrong, 0)


@cocotb.test()
async def what_is_cleared_is_looked_up_in_right_words(dut):
    """Told when ranges are looked at to be cleared; not when the word comes anew, which clears nothing again."""
    channels = [f"memory__{channel}__ready" for channel in range(CONFIG.channels)]
    inputs = ("ranges", "window", "backing_base", "backing_sectors", "arm", "initialised", "start", "settled")
    await start(dut, (*inputs, *channels))
    control = pack(Control, valid=1, mapping=Mapping.LOCAL, first_touch=1)
    words = {Word.CONTROL: control, Word.BASE_LOW: 64, Word.LIMIT_LOW: 96}
    words |= dict.fromkeys((Word.BASE_HIGH, Word.LIMIT_HIGH, Word.WORKGROUPS), 0)
    dut.settled.value = 1
    for name in channels:
        getattr(dut, name).value = 1
    for index in range(CONFIG.ranges):
        for word, value in words.items():
            dut.ranges.value = table_write(RANGES, index, word, value if index == 2 else 0)
            await RisingEdge(dut.clk)
    dut.ranges.value = 0
    assert await cleared(dut) == (32, 0)
    assert await cleared(dut) == (0, 0)
    for word in words:
        spoilt = table_write(RANGES, 2, word, words[word], renewed=1) ^ 1 << RANGES["data"].offset + 5
        dut.ranges.value = spoilt
        await RisingEdge(dut.clk)
        dut.ranges.value = 0
        assert (await cleared(dut))[1] > 0
        dut.ranges.value = table_write(RANGES, 2, word, words[word], renewed=1)
        await RisingEdge(dut.clk)
        dut.ranges.value = 0
        assert await cleared(dut) == (0, 0)


@cocotb.test()
async def a_wrong_port_is_told_even_if_there_is_none_such(dut):
    """With three links a wrong bit may make a port of 3: the block is taken all the same, and so its word is used."""
    ports = [f"port_of__{send}" for send in range(CONFIG.sends)]
    arrays = [
        name for channel in range(CONFIG.lane_channels) for name in (f"returns__{channel}", f"reads__{channel}__ready")
    ]
    inputs = ("ranges", "sends", "window", "armed", "epoch", "blocks__payload", "blocks__valid", "clear", "block_sent")
    await start(dut, (*inputs, *ports, *arrays))
    dut.armed.value = 1
    for port, spoilt in ((2, None), (3, RANGES["data"].offset + 31)):
        for name in ports:
            getattr(dut, name).value = port
        bits = table_write(RANGES, 0, Word.CONTROL, 0, renewed=1)
        dut.ranges.value = bits if spoilt is None else bits ^ 1 << spoilt
        await RisingEdge(dut.clk)
        dut.ranges.value = 0
        for _ in range(3):
            dut.blocks__valid.value = 1
            await ReadOnly()
            assert int(dut.blocks__ready.value)
            await RisingEdge(dut.clk)
            dut.blocks__valid.value = 0
            told = 0
            for _ in range(8):
                await ReadOnly()
                told += int(dut.tables_wrong.value)
                await RisingEdge(dut.clk)
            assert bool(told) == (spoilt is not None)


@cocotb.test()
async def no_send_names_a_port_that_there_is_not(dut):
    """With three links, whatever is written, and whatever wrong bits make of what is kept."""
    await start(dut, ("write", "index", "read", "routes"))
    ports = [getattr(dut, f"port_of__{send}") for send in range(CONFIG.sends)]
    copies = Copies(dut, dut.write, SENDS, list(SendWord))
    bits, seen = len(dut.kept_ports), set()
    assert bits == 2 * CONFIG.sends
    for spoilt in [None] * 100 + list(range(bits)) * 2:
        index = random.randrange(CONFIG.sends)
        await copies.write(index, SendWord.OFFSET_HIGH, random.getrandbits(32))
        if spoilt is not None:
            dut.kept_ports.value = int(dut.kept_ports.value) ^ 1 << spoilt
            await RisingEdge(dut.clk)
        await ReadOnly()
        seen |= {int(port.value) for port in ports}
        await RisingEdge(dut.clk)
    assert seen == {0, 1, 2}


async def cleared(dut) -> tuple[int, int]:
    """Clear what is not known to be; how many writes that took, and how often a wrong word was met."""
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    writes = wrong = 0
    for _ in range(300):
        await ReadOnly()
        writes += sum(int(getattr(dut, f"memory__{channel}__valid").value) for channel in range(CONFIG.channels))
        wrong += int(dut.tables_wrong.value)
        await RisingEdge(dut.clk)
    assert int(dut.finished.value)
    return writes, wrong


async def seen(dut, signal, times: int) -> None:
    """In the next cycles `signal` is high so often."""
    count = 0
    for _ in range(6):
        await ReadOnly()
        count += int(signal.value)
        await RisingEdge(dut.clk)
    assert count == times


CASES = {
    "a_wrong_word_is_told_with_its_entry": lambda: RangeTable(CONFIG, list(CHOSEN), CHOSEN),
    "a_wrong_bound_is_told_with_every_look_up": lambda: RangeMatch(CONFIG),
    "a_wrong_send_is_told": lambda: SendTable(CONFIG),
    "no_send_names_a_port_that_there_is_not": lambda: SendTable(replace(CONFIG, links=3)),
    "a_wrong_total_is_told_when_it_is_compared": lambda: TileTotals(CONFIG),
    "what_an_epoch_knows_of_ranges_is_watched": lambda: CollectiveState(CONFIG),
    "what_is_cleared_is_looked_up_in_right_words": lambda: MemoryClear(CONFIG),
    "a_wrong_port_is_told_even_if_there_is_none_such": lambda: DmaEngine(replace(CONFIG, links=3)),
}


@pytest.mark.parametrize("case", CASES)
def test_copies(case):
    simulate(CASES[case](), case, __name__, case)


@pytest.mark.wide
@pytest.mark.parametrize("case", list(CASES)[:3])
def test_a_parity_that_forgets_the_bus_is_noticed(case):
    """The bit that is kept is made of what is kept alone."""
    with patch("hw.word_table.is_wrong", lambda write: Const(0)), caught():
        simulate(CASES[case](), case, __name__, case)
