"""The DRAM queue by itself: a request that waits too long at the head keeps new ones out until it has left."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import Configuration
from hw.memory_controller.dram_queue import HEAD_WAIT, BankEvent, DramQueue, RowEvent
from tb.runner import simulate

BANK, ROW, INDEX = 5, 0x1234, 3
INPUTS = ("insert", "lookup_open", "lookup_row", "activated", "released", "drain", "closed")


@cocotb.test()
async def a_head_that_waits_keeps_others_out(dut):
    Clock(dut.clk, 1, unit="ns").start()
    for name in INPUTS:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    dut.insert_bank.value, dut.insert_row.value, dut.insert_index.value = BANK, ROW, INDEX
    dut.insert.value = 1
    await RisingEdge(dut.clk)
    dut.insert.value = 0

    asked = []
    for _ in range(HEAD_WAIT):
        await ReadOnly()
        assert not int(dut.stuck.value), "kept out too early"
        assert not int(dut.dispatch.value) & 1, "sent to a closed bank"
        if int(dut.row_request.value) & 1:
            asked.append(int(dut.row_request.value))
        await RisingEdge(dut.clk)
    assert asked == [RowEvent.const({"valid": 1, "bank": BANK, "row": ROW}).as_value().value]
    for _ in range(50):
        await ReadOnly()
        assert int(dut.stuck.value)
        await RisingEdge(dut.clk)

    dut.activated.value = asked[0]
    await RisingEdge(dut.clk)
    dut.activated.value = 0
    for _ in range(2):
        await ReadOnly()
        if int(dut.dispatch.value) & 1:
            break
        await RisingEdge(dut.clk)
    assert int(dut.dispatch.value) == BankEvent.const({"valid": 1, "bank": BANK}).as_value().value
    assert int(dut.dispatch_index.value) == INDEX
    await RisingEdge(dut.clk)
    await ReadOnly()
    assert not int(dut.stuck.value)


def test_a_head_that_waits_keeps_others_out():
    simulate(DramQueue(Configuration(dram_queue_depth=4)), "dram_queue", __name__)
