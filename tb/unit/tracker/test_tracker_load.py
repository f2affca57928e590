"""Tracking throttles nothing: 32 channels commit a sector a cycle each, and the Tracker takes them all."""

import os
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from hw.config import preset
from hw.range_table import RangeWrite
from tb.drivers.clock import start
from tb.drivers.commit_load import Load, TrackerUnderLoad
from tb.drivers.payload import pack
from tb.drivers.tracker_bench import words
from tb.golden.tracker import TiledRange
from tb.runner import caught, simulate

CYCLES = 10_000
LEAST = CYCLES * 0.001
"""Cycles in which something may be held back."""
GPU = preset("gpu")


def gemm(rows: int, columns: int, at_once: int) -> Load:
    """FP16 in tiles of 128 x 128, rows one after the other in whole sectors."""
    area = TiledRange(
        index=0,
        first_wg=0,
        rows=rows,
        columns=columns,
        tile_rows=128,
        tile_columns=128,
        wfs=8,
        block_wfs=8,
        updates=1,
        dma=True,
        launch=False,
    )
    return Load(area, columns * 2 // 32, at_once)


LOADS = {
    "t-nlg-80": gemm(1280, 4256, 80),
    "t-nlg-8": gemm(1280, 4256, 8),
}
"""A chunk of T-NLG's, written by as many workgroups at once as the paper's GPU has compute units, or by a tenth."""


@cocotb.test()
async def all_channels_commit_in_every_cycle(dut):
    await start(dut, ("ranges", "go"))
    while not int(dut.cleared.value):
        await RisingEdge(dut.clk)
    load = LOADS[os.environ["LOAD"]]
    for word, value in words(load.area).items():
        dut.ranges.value = pack(RangeWrite, valid=1, index=0, word=word.value, data=value)
        await RisingEdge(dut.clk)
    dut.ranges.value = 0
    await RisingEdge(dut.clk)
    dut.go.value = 1
    quiet = 0
    while quiet < 100:
        await RisingEdge(dut.clk)
        quiet = quiet + 1 if int(dut.over.value) else 0
    cycles, held = int(dut.cycles.value), int(dut.held.value)
    dut._log.info(f"held back in {held} of {cycles} cycles")
    assert int(dut.triggers.value) == len(load.area.tiles())
    assert int(dut.faults.value) == 0
    assert int(dut.done.value) == 1
    assert cycles >= CYCLES
    assert held < LEAST, f"held back in {held} of {cycles} cycles"


def run(tracker: TrackerUnderLoad, load: str) -> None:
    """A load, on a Tracker."""
    case, environment = "all_channels_commit_in_every_cycle", {"LOAD": load}
    simulate(tracker, "loaded_tracker", __name__, case, environment=environment, counts=False)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.wide if name == "t-nlg-80" else ()) for name in LOADS]
)
def test_tracking_throttles_nothing(name: str) -> None:
    run(TrackerUnderLoad(GPU, LOADS[name]), name)


def test_commits_that_are_not_merged_are_held_back() -> None:
    """Eight banks alone do not do: all channels want the same one."""
    plain = TrackerUnderLoad(replace(GPU, commit_merge_depth=0), LOADS["t-nlg-80"])
    with caught("held back in"):
        run(plain, "t-nlg-80")
