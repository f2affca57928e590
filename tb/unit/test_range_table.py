"""The range table returns what was programmed, word by word."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from hw.config import PRESETS
from hw.range_table import RangeTable, Word
from tb.runner import simulate

CHOSEN = list(Word)


@cocotb.test()
async def programmed_words_are_read_back(dut):
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    ranges = PRESETS["paper"].ranges
    expected = {}
    dut.rst.value = 0
    for index in range(ranges):
        for word in Word:
            value = random.getrandbits(32)
            expected[index, word] = value
            for item in (value, value ^ 0xFFFFFFFF, value):
                dut.write.value = 1 | index << 1 | word << 7 | item << 12
                await RisingEdge(dut.clk)
    dut.write.value = 0
    await RisingEdge(dut.clk)
    for index in random.sample(range(ranges), ranges):
        dut.index.value = index
        await Timer(100, unit="ps")
        for word in CHOSEN:
            assert int(getattr(dut, word.name.lower()).value) == expected[index, word]


def test_range_table():
    simulate(RangeTable(PRESETS["paper"], CHOSEN), "range_table", __name__)
