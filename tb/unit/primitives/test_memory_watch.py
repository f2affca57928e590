"""A parity beside a memory tells what was used with a wrong bit: of a queue, of a list of free numbers, and of a memory
with a clocked read port. Bits are turned as they are read."""

import os
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.interfaces import gathered_ports
from hw.primitives.memory_watch import MemoryWatch, watch
from hw.primitives.partial_parities import partial_parities
from hw.primitives.places import FreeList
from hw.primitives.queue import Queue
from tb.drivers.turned_memory import turned_memory
from tb.runner import caught, simulate

CYCLES = 4000
DEPTH = 5
WORDS = 8
CONTROL = 21
PAYLOAD = data.StructLayout({"control": unsigned(CONTROL), "data": unsigned(9)})
COUNTS = (1 << CONTROL) - 1
"""Bits of a payload that have no parity of their own."""
MARK = 3
NUMBERS = 5


class FirstPartOnly(MemoryWatch):
    """The wrong variant: of a word of several parts only the first counts."""

    def elaborate(self, platform: object) -> Module:
        with patch("hw.primitives.memory_watch.partial_parities", lambda *word: partial_parities(*word)[:1]):
            return super().elaborate(platform)


class Clocked(wiring.Component):
    """A watched memory with a clocked read port: each read is used."""

    def __init__(self) -> None:
        address = range(WORDS)
        ports = {"write": In(1), "write_address": In(address), "word": In(PAYLOAD), "wrong": Out(1), "checking": Out(1)}
        super().__init__({**ports, "read": In(1), "read_address": In(address), "found": Out(PAYLOAD)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=PAYLOAD, depth=WORDS, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.write_address),
            write.data.eq(self.word),
            read.en.eq(self.read),
            read.addr.eq(self.read_address),
            self.found.eq(read.data),
        ]
        found = watch(m, "memory_watch", write, (read, self.read), apart=("data",))
        m.d.comb += [self.wrong.eq(found.wrong), self.checking.eq(found.busy)]
        return m


class Turned(wiring.Component):
    """`design` with `turn_<n>`: bits that are turned in what is read of its memory number n, made in `module`."""

    def __init__(self, design: wiring.Component, module: str, *widths: int):
        self._design, self._module = design, module
        self._turns = [f"turn_{number}" for number in range(len(widths))]
        turns = {name: In(width) for name, width in zip(self._turns, widths)}
        super().__init__({**design.signature.members, **turns})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turns = iter([getattr(self, name) for name in self._turns])
        with patch(f"{self._module}.Memory", turned_memory(turns)):
            m.submodules.design = self._design.elaborate(platform)
        signature = self._design.signature
        connect(m, gathered_ports(signature.flip(), flipped(self)), self._design)
        return m


@dataclass
class WatchBench:
    """A design of which bits are turned where they are read, and what it has to tell of that."""

    dut: Any
    latency: int = 2
    """Cycles from the look-up until it is told; from the cycle in which the word is there always 2."""
    now: int = 0
    told: int = 0
    due: deque[int] = field(default_factory=deque)
    lookups: deque[int] = field(default_factory=lambda: deque(maxlen=4))

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start()
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)

    def turn(self, *widths: int) -> list[int]:
        """Turn no bit, or any, of the next words that are read, which have so many bits; returns which."""
        turns = [random.choice([0, 0, 1 << random.randrange(width), random.getrandbits(width)]) for width in widths]
        for number, bits in enumerate(turns):
            getattr(self.dut, f"turn_{number}").value = bits
        return turns

    def look_up(self) -> None:
        """A word is looked up in this cycle that will be used."""
        self.lookups.append(self.now)

    def use(self, *turned: int) -> None:
        """Words that were looked up are there in this cycle, with these bits turned."""
        if any(bits.bit_count() & 1 for bits in turned):
            self.due.append(self.now + 2)

    async def next(self) -> None:
        """To the next cycle; what is told is told now."""
        due = bool(self.due) and self.due[0] == self.now
        assert int(self.dut.wrong.value) == due, f"cycle {self.now}: a wrong bit is told too early, late or never"
        ages = [self.now - asked for asked in self.lookups]
        assert int(self.dut.checking.value) == (due or any(0 < age < self.latency for age in ages))
        if due:
            self.due.popleft()
            self.told += 1
        self.now += 1
        await RisingEdge(self.dut.clk)


@cocotb.test()
async def a_queue_tells_what_left_it_wrong(dut):
    bench = WatchBench(dut)
    await bench.start()
    bypass = bool(int(os.environ["BYPASS"]))
    stored, offered, pushed, popped = 0, 0, 0, 1
    for _ in range(CYCLES):
        dut.o__ready.value = random.randrange(2)
        # What is offered stays as it is, on both sides.
        if pushed or not offered:
            dut.i__valid.value = offered = random.randrange(2)
            dut.i__payload.value = random.getrandbits(PAYLOAD.size)
            dut.i_mark.value = random.getrandbits(MARK)
        if popped:
            payload, mark = bench.turn(PAYLOAD.size, MARK)
            if bypass:
                # A payload may be offered before it is in the memory.
                dut.turn_0.value = payload = 0
        await ReadOnly()
        pushed = offered & int(dut.i__ready.value)
        popped = int(dut.o__valid.value) & int(dut.o__ready.value)
        if popped and not (bypass and not stored):
            bench.look_up()
            bench.use(payload & COUNTS, mark)
        stored += pushed - popped
        await bench.next()
    assert bench.told > CYCLES // 40


@cocotb.test()
async def a_free_list_tells_what_it_gave_out_wrong(dut):
    bench = WatchBench(dut)
    await bench.start()
    held: list[int] = []
    fresh, free = NUMBERS, NUMBERS
    for _ in range(CYCLES):
        dut.take.value = take = int(bool(free) and random.randrange(2))
        dut.give.value = give = int(bool(held) and random.randrange(2))
        if give:
            dut.given.value = held.pop(random.randrange(len(held)))
        (turned,) = bench.turn(3)
        await ReadOnly()
        if take:
            assert int(dut.available.value)
            # Numbers are turned as they are used, so what is held is not what it was.
            held.append(int(dut.index.value))
            if fresh:
                fresh -= 1
            else:
                bench.look_up()
                bench.use(turned)
        free += give - take
        await bench.next()
    assert bench.told > CYCLES // 40


@cocotb.test()
async def a_clocked_port_tells_a_cycle_later(dut):
    bench = WatchBench(dut, latency=3)
    await bench.start()
    known: set[int] = set()
    read = 0
    for _ in range(CYCLES):
        dut.write.value = write = random.randrange(2)
        dut.write_address.value = place = random.randrange(WORDS)
        dut.word.value = random.getrandbits(PAYLOAD.size)
        (turned,) = bench.turn(PAYLOAD.size)
        if read:
            # What was asked for in the cycle before is there.
            bench.use(turned & COUNTS)
        dut.read.value = read = int(bool(known) and random.randrange(2))
        dut.read_address.value = random.choice(list(known)) if known else 0
        if read:
            bench.look_up()
        await ReadOnly()
        if write:
            known.add(place)
        await bench.next()
    assert bench.told > CYCLES // 40


def queue(bypass: bool = False) -> wiring.Component:
    design = Queue(PAYLOAD, DEPTH, bypass, mark=MARK, checked=True, apart=("data",))
    return Turned(design, "hw.primitives.queue", PAYLOAD.size, MARK)


CASES = {
    "a_queue_tells_what_left_it_wrong": queue,
    "a_free_list_tells_what_it_gave_out_wrong": lambda: Turned(
        FreeList(NUMBERS, checked=True), "hw.primitives.places", 3
    ),
    "a_clocked_port_tells_a_cycle_later": lambda: Turned(Clocked(), __name__, PAYLOAD.size),
}


def run(case: str, design: wiring.Component, bypass: bool = False) -> None:
    simulate(design, "watched", __name__, case, environment={"BYPASS": str(int(bypass))})


@pytest.mark.parametrize("case", CASES)
def test_what_was_used_wrong_is_told(case):
    run(case, CASES[case]())


def test_what_went_around_a_queue_is_not_looked_at():
    run("a_queue_tells_what_left_it_wrong", queue(bypass=True), bypass=True)


@pytest.mark.parametrize("case", ["a_queue_tells_what_left_it_wrong", "a_clocked_port_tells_a_cycle_later"])
def test_a_part_that_is_left_out_is_caught(case):
    with patch("hw.primitives.memory_watch.MemoryWatch", FirstPartOnly), caught():
        run(case, CASES[case]())
