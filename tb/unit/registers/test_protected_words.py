"""Words of a table with check bits are read, written and broadcast as a plain list says, whatever bit is turned."""

import random
from dataclasses import dataclass, field
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module, Signal
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import preset
from hw.protection import MemoryReport, MemoryUpset, ProtectedMemory
from hw.registers.protected_words import CHECK_BITS, WORD_BITS, ProtectedWords, TablePlace
from hw.send_table import send_write
from tb.drivers.clock import start
from tb.drivers.payload import pack, unpack
from tb.runner import caught, simulate

STORED_BITS = WORD_BITS + CHECK_BITS
BUS = send_write(preset("paper", protection="all"))
PLACE = TablePlace(first=0x800, entries=4, entry_bits=2, words=3)
WORDS = [4 * entry + word for entry in range(PLACE.entries) for word in range(PLACE.words)]
INPUTS = ("address", "used", "put", "clear", "place", "value", "strobe", "free", "scrub", "renew", "upset")
RENEWAL = 6 * len(WORDS) + 8
"""Free cycles in which all words come past twice."""
SETTLED = 8
"""Free cycles after which all that was asked for is done."""


@dataclass
class Model:
    """What the memory is to hold, and what was seen."""

    words: list[int] = field(default_factory=lambda: [0] * (1 << PLACE.index_bits))
    turned: set[int] = field(default_factory=set)
    """Places with one wrong bit."""
    lost: set[int] = field(default_factory=set)
    copies: dict[int, int] = field(default_factory=dict)
    spoiled: list[tuple[int, int]] = field(default_factory=list)
    """Broadcasts with a wrong parity: place, bits in which the data differs."""
    corrected: list[int] = field(default_factory=list)
    reported: list[int] = field(default_factory=list)
    renewed: int = 0


class Bench:
    """Asks for one thing in a cycle, as the register file does."""

    def __init__(self, dut):
        self.dut, self.model = dut, Model()
        self.expected: list[tuple[int, int]] = []

    async def start(self) -> "Bench":
        await start(self.dut, INPUTS)
        for place in range(1 << PLACE.index_bits):
            await self.cycle(clear=1, place=place)
            self.expected.append((place, 0))
        return self

    async def cycle(self, **inputs: int) -> int:
        """Drive `inputs`, all else 0; what is on the bus and reported is looked at. Returns `word`."""
        dut, model = self.dut, self.model
        for name in INPUTS:
            getattr(dut, name).value = inputs.get(name, 0)
        await ReadOnly()
        self._bus(unpack(BUS, int(dut.bus.value)), int(dut.bus.value))
        report = unpack(MemoryReport, int(dut.report.value))
        address = report["address"] - PLACE.first
        if report["corrected"]:
            assert address in model.turned, f"{address} was right"
            model.turned.discard(address)
            model.corrected.append(address)
        if report["lost"]:
            assert address in model.lost, f"{address} is not lost"
            model.reported.append(address)
        word = int(dut.corrected.value)
        await RisingEdge(dut.clk)
        return word

    def _bus(self, write: dict[str, int], bits: int) -> None:
        model = self.model
        if not write["valid"]:
            return
        place = write["index"] << PLACE.entry_bits | write["word"]
        if (bits.bit_count() - 1) % 2:
            model.spoiled.append((place, write["data"] ^ model.words[place]))
        elif write["renewed"]:
            assert place not in model.lost, "a lost word is broadcast"
            assert write["data"] == model.words[place], "another word than was written"
            model.renewed += 1
        else:
            assert (place, write["data"]) == self.expected.pop(0)
        model.copies[place] = write["data"]

    async def read(self, place: int) -> None:
        await self.cycle(address=place)
        await self.cycle(used=1)
        word = await self.cycle(free=random.randrange(2))
        if place not in self.model.lost:
            assert word == self.model.words[place]

    async def write(self, place: int, value: int, strobe: int) -> None:
        """The bytes of `strobe`; of a word that is lost all."""
        strobe = 0xF if place in self.model.lost else strobe
        mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
        await self.cycle(address=place)
        kept = {"place": place, "value": value, "strobe": strobe}
        await self.cycle(put=1, used=strobe != 0xF, **kept)
        merged = (self.model.words[place] & ~mask) | (value & mask)
        self.expected.append((place, merged))
        following = random.choice(WORDS)
        await self.cycle(**kept, **random.choice(({"free": 1}, {"address": following})))
        self.model.words[place] = merged
        self.model.turned.discard(place)
        self.model.lost.discard(place)

    async def rest(self, cycles: int, **inputs: int) -> None:
        for number in range(cycles):
            await self.cycle(free=1, **(inputs if number == 0 else {}))

    async def turn(self, memory: ProtectedMemory, place: int, *bits: int) -> None:
        """Have bits turned, and wait until they are."""
        first, second = (*bits, 0)[:2]
        asked = {"memory": memory, "address": PLACE.first + place, "first": first, "second": second}
        upset = pack(MemoryUpset, two=len(bits) > 1, **asked)
        await self.cycle(free=random.randrange(2), upset=upset | pack(MemoryUpset, valid=1))
        for number in range(SETTLED):
            # What was under way before is still right.
            if number == 2 and memory is ProtectedMemory.TABLES:
                (self.model.lost if len(bits) > 1 else self.model.turned).add(place)
            await self.cycle(free=1, upset=upset)


@cocotb.test()
async def words_are_as_they_were_written(dut):
    """Anything in any order: reads, writes of some bytes, one wrong bit here and there, scrubbing, renewal."""
    bench = await Bench(dut).start()
    model = bench.model
    for _ in range(4000):
        place = random.choice(WORDS)
        kind = random.randrange(8)
        if kind < 3:
            await bench.read(place)
        elif kind < 5:
            await bench.write(place, random.getrandbits(32), random.randrange(16))
        elif kind == 5 and place not in model.turned:
            await bench.turn(ProtectedMemory.TABLES, place, random.randrange(STORED_BITS))
        elif kind == 6:
            await bench.rest(random.randrange(3), scrub=random.randrange(2), renew=random.random() < 0.1)
        else:
            await bench.cycle(scrub=random.randrange(2))
    corrected = len(model.corrected)
    assert corrected > 50 and model.renewed > 200 and not model.spoiled and not model.reported
    # Every word comes past, also with a wish for more in the middle.
    await bench.turn(ProtectedMemory.TABLES, next(place for place in WORDS if place not in model.turned), 3)
    model.copies.clear()
    await bench.rest(5, renew=1)
    await bench.rest(RENEWAL, renew=1)
    assert model.copies == {place: model.words[place] for place in WORDS}
    assert len(model.corrected) > corrected and not model.turned
    before = model.renewed
    await bench.rest(50)
    assert model.renewed == before, "renewed unasked"
    for _ in WORDS:
        await bench.rest(4, scrub=1)
    await bench.rest(SETTLED)
    assert model.renewed == before + len(WORDS)
    assert not bench.expected


@cocotb.test()
async def what_is_lost_is_told_and_not_broadcast(dut):
    """Two wrong bits: told when the word is used, and when it is looked at, until it is written."""
    bench = await Bench(dut).start()
    model = bench.model
    for _ in range(200):
        place = random.choice(WORDS)
        await bench.write(place, random.getrandbits(32), 0xF)
        await bench.rest(SETTLED)
        await bench.turn(ProtectedMemory.TABLES, place, *random.sample(range(STORED_BITS), 2))
        model.reported.clear()
        await bench.read(place)
        await bench.rest(2)
        assert model.reported == [place]
        await bench.rest(RENEWAL, renew=1)
        assert 2 <= len(model.reported) <= 3, "looked at once or twice"
        await bench.write(place, random.getrandbits(32), 0xF)
        await bench.rest(RENEWAL, renew=1)
        await bench.read(place)
    assert not model.corrected


@cocotb.test()
async def copies_can_be_upset(dut):
    """For a self test a word is broadcast with bits turned; the one that is kept stays right."""
    bench = await Bench(dut).start()
    model = bench.model
    for place in WORDS:
        await bench.write(place, random.getrandbits(32), 0xF)
    for _ in range(200):
        place, bit = random.choice(WORDS), random.randrange(33)
        await bench.turn(ProtectedMemory.TABLE_COPIES, place, bit)
        assert model.spoiled == [(place, (1 << bit) % (1 << 32))]
        model.spoiled.clear()
        await bench.read(place)
    await bench.turn(ProtectedMemory.TABLE_COPIES, 1 << PLACE.index_bits, 1)
    await bench.turn(ProtectedMemory.SECTORS, WORDS[0], 1)
    assert not model.spoiled and not model.corrected and not model.reported


class Uncorrected(ProtectedWords):
    """Tells of a wrong bit, and leaves it as it is."""

    def elaborate(self, platform: object) -> Module:
        with patch("hw.registers.protected_words.wrong_bits", lambda _, width: Const(0, width)):
            return super().elaborate(platform)


class Hasty(ProtectedWords):
    """Looks at a word while one is on its way into the memory: the old one is broadcast behind the new one."""

    def _visit(self, m, busy, *others):
        super()._visit(m, Signal(), *others)


TESTS = ("words_are_as_they_were_written", "what_is_lost_is_told_and_not_broadcast", "copies_can_be_upset")


@pytest.mark.parametrize("test", TESTS)
def test_protected_words(test):
    simulate(ProtectedWords(BUS, PLACE), "protected_words", __name__, test)


@pytest.mark.wide
@pytest.mark.parametrize("wrong", [Uncorrected, Hasty])
def test_a_word_that_is_not_kept_is_noticed(wrong):
    with caught():
        simulate(wrong(BUS, PLACE), "protected_words", __name__, TESTS[0])
