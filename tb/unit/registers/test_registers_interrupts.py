"""The register file keeps faults and events until they are cleared, and raises the interrupt for those enabled."""

import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import preset
from hw.messages import Messages
from hw.registers.map import find_register
from hw.registers.register_file import RegisterFile
from tb.drivers.register_bench import RegisterBench
from tb.runner import simulate


@cocotb.test()
async def first_fault_is_kept_and_interrupts(dut):
    bench = await RegisterBench(dut).start()
    layout = Messages(bench.config).fault_record

    def record():
        return {name: random.randrange(10) if name == "fault" else random.getrandbits(at.width) for name, at in layout}

    for _ in range(8):
        records = [record() for _ in range(random.randint(1, 6))]
        for item in records:
            item["access"] %= 3
            dut.interrupt_status_fault.value = 1
            dut.fault_record.value = sum(value << layout[name].offset for name, value in item.items())
            await RisingEdge(dut.clk)
            dut.interrupt_status_fault.value = 0
            dut.fault_record.value = 0
            if random.randrange(2):
                await RisingEdge(dut.clk)
        assert await bench.read(bench.address("interrupt_status")) == 1
        assert int(dut.interrupt_request.value) == 0
        await bench.write(bench.address("interrupt_enable"), 1)
        await ClockCycles(dut.clk, 1)
        assert int(dut.interrupt_request.value) == 1
        packed = await bench.read(bench.address("fault_record"))
        for field in find_register(bench.config, "fault_record").fields:
            assert (packed & field.mask) >> field.low == records[0][field.name], field.name
        va = await bench.read(bench.address("fault_va_low")) | await bench.read(bench.address("fault_va_high")) << 32
        assert va == records[0]["va"]
        assert await bench.read(bench.address("fault_count")) == len(records)
        await bench.write(bench.address("interrupt_status"), 2)
        assert await bench.read(bench.address("interrupt_status")) == 1
        await bench.write(bench.address("interrupt_status"), 1)
        assert await bench.read(bench.address("interrupt_status")) == 0
        assert await bench.read(bench.address("fault_count")) == 0
        assert int(dut.interrupt_request.value) == 0
        await bench.write(bench.address("interrupt_enable"), 0)


@cocotb.test()
async def no_fault_is_lost_while_the_status_is_cleared(dut):
    bench = await RegisterBench(dut).start()
    await bench.read(0)
    dut.interrupt_status_fault.value = 1
    await ClockCycles(dut.clk, 1)
    await bench.write(bench.address("interrupt_status"), 1)
    dut.interrupt_status_fault.value = 0
    await ClockCycles(dut.clk, 1)
    assert await bench.read(bench.address("interrupt_status")) == 1
    assert await bench.read(bench.address("fault_count")) > 0


@cocotb.test()
async def faults_are_counted_through_all_bits(dut):
    bench = await RegisterBench(dut).start()
    await bench.read(0)
    some = random.getrandbits(32)
    for start in (some, some ^ 0xFFFFFFFF, 0xFFFFFFFF):
        dut["_fault_count"].value = start
        await RisingEdge(dut.clk)
        assert await bench.read(bench.address("fault_count")) == start
        dut.interrupt_status_fault.value = 1
        await ClockCycles(dut.clk, 1)
        dut.interrupt_status_fault.value = 0
        assert await bench.read(bench.address("fault_count")) == start + 1 & 0xFFFFFFFF


@cocotb.test()
async def done_interrupts(dut):
    bench = await RegisterBench(dut).start()
    await bench.write(bench.address("interrupt_enable"), 2)
    for _ in range(2):
        dut.interrupt_status_done.value = 1
        await ClockCycles(dut.clk, 1)
        dut.interrupt_status_done.value = 0
        await ClockCycles(dut.clk, 2)
        assert int(dut.interrupt_request.value) == 1
        assert await bench.read(bench.address("interrupt_status")) == 2
        await bench.write(bench.address("interrupt_status"), 1)
        assert await bench.read(bench.address("interrupt_status")) == 2
        await bench.write(bench.address("interrupt_status"), 3)
        assert await bench.read(bench.address("interrupt_status")) == 0
        assert int(dut.interrupt_request.value) == 0


@pytest.mark.parametrize(
    "testcase",
    [
        "first_fault_is_kept_and_interrupts",
        "no_fault_is_lost_while_the_status_is_cleared",
        "faults_are_counted_through_all_bits",
        "done_interrupts",
    ],
)
def test_interrupts(testcase):
    simulate(RegisterFile(preset("paper")), "register_file", __name__, testcase)
