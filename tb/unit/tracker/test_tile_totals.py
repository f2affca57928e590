"""A range is done when as many of its WF tiles are complete as it has, whichever banks they were in."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import preset
from hw.range_table import RangeWrite, Word
from hw.tracker.tracker import TOTAL_BITS, TileTotals
from tb.drivers.clock import pass_cycles
from tb.drivers.payload import pack
from tb.runner import simulate

CONFIG = preset("paper", tracker_banks=8, tracker_sets=256)
CYCLES = 1 << 13
"""In which all banks complete a tile of one range."""


async def program(dut, index: int, total: int) -> None:
    dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=Word.WF_TOTAL.value, data=total)
    await RisingEdge(dut.clk)
    dut.ranges.value = 0


async def complete(dut, index: int, banks: int, cycles: int = 1) -> None:
    """In each of `cycles`, a tile of range `index` in every bank of the mask."""
    for bank in range(CONFIG.tracker_banks):
        getattr(dut, f"completed__{bank}").value = banks >> bank & 1
        getattr(dut, f"completed_range__{bank}").value = index
    await pass_cycles(dut, cycles)
    for bank in range(CONFIG.tracker_banks):
        getattr(dut, f"completed__{bank}").value = 0
    await ClockCycles(dut.clk, 4)


@cocotb.test()
async def done_is_exactly_the_total(dut):
    """Not one tile early, not one late, up to many more than 16 bits count, and a total of 0 is never reached."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.ranges.value, dut.clear.value = 0, 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await complete(dut, 0, 0)
    for index in range(CONFIG.ranges):
        for total in ((1 << TOTAL_BITS) - 1, 0):
            await program(dut, index, total)
        last = random.randrange(1, 256)
        steps = 1 + CYCLES + random.randrange(3)
        total = 8 * steps + last.bit_count() + 1
        await program(dut, index, total)
        await complete(dut, index, 0xFF, steps)
        await complete(dut, index, last)
        assert int(dut.done.value) == (1 << index) - 1, f"range {index} is done a tile early"
        await complete(dut, index, 1 << random.randrange(8))
        assert int(dut.done.value) == (2 << index) - 1, f"range {index} is not done at {total}"
    await program(dut, 0, 0)
    await complete(dut, 0, 1)
    assert int(dut.done.value) == (1 << CONFIG.ranges) - 2
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    await ClockCycles(dut.clk, 2)
    assert int(dut.done.value) == 0


def test_tile_totals():
    simulate(TileTotals(CONFIG), "tile_totals", __name__)
