"""Start of a bench, and long waits that do not wake Python in every cycle, as `cocotb.triggers.ClockCycles` does."""

from collections.abc import Iterable
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

PERIOD_PS = 1000


async def pass_cycles(dut: Any, count: int) -> None:
    """Return at the `count`-th rising edge of `dut.clk`, of period 1 ns, from now on; to be called after one."""
    if count:
        await Timer(count * PERIOD_PS - PERIOD_PS // 2, unit="ps")
        await RisingEdge(dut.clk)


async def start(dut: Any, inputs: Iterable[str]) -> None:
    """Every input at 0, a clock, a reset."""
    for name in inputs:
        getattr(dut, name).value = 0
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
