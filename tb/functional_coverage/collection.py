"""Collects functional coverage of one process and writes it, when the environment variable T3_COVERAGE is set."""

import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ReadOnly, RisingEdge
from cocotb_coverage.coverage import coverage_db

from sim.simulator.verilator import BUILD
from tb.functional_coverage import plan  # the groups must exist before anything is written
from tb.functional_coverage.near_bank import sample_operations

FOLDER = BUILD / "coverage" / "functional"


def is_on() -> bool:
    """Whether coverage is collected."""
    return os.environ.get("T3_COVERAGE", "0") not in ("", "0")


def write(origin: str) -> None:
    """Write what this process has seen; `origin` names the file, with the process number."""
    assert plan.GROUPS
    FOLDER.mkdir(parents=True, exist_ok=True)
    coverage_db.export_to_xml(str(FOLDER / f"{re.sub(r'[^A-Za-z0-9_.]', '_', origin)}.{os.getpid()}.xml"))


def observe(monitor: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    """Run coroutine `monitor` beside the running cocotb test, and write what it saw when the test ends."""
    if is_on():
        cocotb.start_soon(_until_the_end(monitor.__name__, monitor(*arguments)))


async def _until_the_end(name: str, monitoring: Coroutine[Any, Any, None]) -> None:
    try:
        await monitoring
    finally:
        write(f"{os.environ.get('COCOTB_TEST_MODULES', 'test')}.{name}")


async def cycles(dut: Any) -> AsyncIterator[None]:
    """Each settled cycle out of reset."""
    while True:
        await RisingEdge(dut.clk)
        await ReadOnly()
        if not int(dut.rst.value):
            yield


def observe_vectors(operands: list[int], old: np.ndarray, new: np.ndarray, results: bytes) -> None:
    """An observer of `sim.benches.vectors`: sample all operations of a run."""
    sample_operations(operands, old, new)
    write("vectors")
