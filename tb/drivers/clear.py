"""Waiting for a block that sweeps its memories after `clear`."""

from typing import Any

from cocotb.triggers import ReadOnly, RisingEdge


async def cleared(dut: Any) -> None:
    """Return one cycle after `dut.cleared` says that the sweep is done."""
    while True:
        await ReadOnly()
        ready = int(dut.cleared.value)
        await RisingEdge(dut.clk)
        if ready:
            return
