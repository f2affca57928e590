"""Long waits that do not wake Python in every cycle, as `cocotb.triggers.ClockCycles` does."""

from typing import Any

from cocotb.triggers import RisingEdge, Timer

PERIOD_PS = 1000


async def pass_cycles(dut: Any, count: int) -> None:
    """Return at the `count`-th rising edge of `dut.clk`, of period 1 ns, from now on; to be called after one."""
    if count:
        await Timer(count * PERIOD_PS - PERIOD_PS // 2, unit="ps")
        await RisingEdge(dut.clk)
