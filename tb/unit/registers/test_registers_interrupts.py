"""The register file keeps faults and events until they are cleared, and raises the interrupt for those enabled."""

import random

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiResp

from hw.config import preset
from hw.messages import Fault, Messages
from hw.range_table import Word
from hw.registers.fields import Kind
from hw.registers.map import SEND_BASE, WINDOW_BASE, find_register
from hw.registers.register_file import RegisterFile
from hw.send_table import SendWord
from tb.drivers.register_bench import RegisterBench
from tb.runner import caught, simulate


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
    dut["_fault_count"].value = random.getrandbits(31) | 1 << 31
    dut.interrupt_status_fault.value = 1
    await ClockCycles(dut.clk, 1)
    await bench.write(bench.address("interrupt_status"), 1)
    dut.interrupt_status_fault.value = 0
    await ClockCycles(dut.clk, 1)
    assert await bench.read(bench.address("interrupt_status")) == 1
    assert 0 < await bench.read(bench.address("fault_count")) < 20


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
async def each_cause_interrupts(dut):
    bench = await RegisterBench(dut).start()
    causes = find_register(bench.config, "interrupt_status").fields
    for cause, bit in [(field.name, field.mask) for field in causes if field.name != "fault"]:
        await bench.write(bench.address("interrupt_enable"), bit)
        event = getattr(dut, f"interrupt_status_{cause}")
        event.value = 1
        await ClockCycles(dut.clk, 1)
        event.value = 0
        await ClockCycles(dut.clk, 2)
        assert int(dut.interrupt_request.value) == 1
        assert await bench.read(bench.address("interrupt_status")) == bit
        for enabled in range(32):
            await bench.write(bench.address("interrupt_enable"), enabled)
            await ClockCycles(dut.clk, 2)
            assert int(dut.interrupt_request.value) == bool(enabled & bit)
        await bench.write(bench.address("interrupt_status"), 31 - bit)
        assert await bench.read(bench.address("interrupt_status")) == bit
        await bench.write(bench.address("interrupt_status"), 31)
        assert await bench.read(bench.address("interrupt_status")) == 0
        assert int(dut.interrupt_request.value) == 0


@cocotb.test()
async def what_an_epoch_needs_is_locked(dut):
    """While locked, a write to a table or to a register that an epoch depends on is refused, changes nothing and leaves
    a fault that names the address, the first of several; every other register is written as ever."""
    bench = await RegisterBench(dut).start()
    locking = {"rank", "spill_base_low", "spill_base_high", "spill_sectors", "expected_blocks", "memory_window"}
    locking |= {register.name for register in bench.registers if register.name.startswith("link_peers")}
    writable = [
        register
        for register in bench.registers
        if any(field.kind is Kind.READ_WRITE for field in register.fields) and register.name != "interrupt_enable"
    ]
    targets = {register.address: register.name in locking for register in writable}
    targets |= {WINDOW_BASE + 0x80 * index + 4 * word: True for index in (0, 5) for word in (Word.CONTROL, Word.PITCH)}
    targets |= {SEND_BASE + 0x10 * index + 4 * word: True for index in (0, 7) for word in (0, 2)}
    assert sum(targets.values()) >= 14
    order = list(targets)
    for _ in range(2):
        random.shuffle(order)
        refused = []
        for address in order:
            dut.locked.value = 0
            before = await bench.read(address)
            dut.locked.value = 1
            if targets[address]:
                refused.append(address)
                size = random.choice([1, 4])
                await bench.write(address, (before ^ 1) & (1 << 8 * size) - 1, size=size, response=AxiResp.SLVERR)
                assert await bench.read(address) == before
            else:
                await bench.write(address, before ^ 1)
                assert await bench.read(address) == before ^ 1
        assert await bench.read(bench.address("interrupt_status")) == 1
        assert await bench.read(bench.address("fault_record")) & 15 == Fault.LOCKED.value
        assert await bench.read(bench.address("fault_va_low")) == refused[0]
        assert await bench.read(bench.address("fault_count")) == len(refused)
        await bench.write(bench.address("interrupt_status"), 1)
    dut.interrupt_status_fault.value = 1
    await bench.write(order[0] if targets[order[0]] else WINDOW_BASE, 0, response=AxiResp.SLVERR)
    await ClockCycles(dut.clk, 5)
    dut.interrupt_status_fault.value = 0
    await ClockCycles(dut.clk, 1)
    count = await bench.read(bench.address("fault_count"))
    await ClockCycles(dut.clk, 5)
    assert await bench.read(bench.address("fault_count")) == count, "more faults than one in a cycle"
    assert await bench.read(bench.address("fault_record")) & 15 == 0


@cocotb.test()
async def a_refused_write_names_its_address(dut):
    """Any byte of any word of a table, while locked: the fault has the address as it was given."""
    bench = await RegisterBench(dut).start()
    await bench.read(0)
    dut.locked.value = 1
    config = bench.config
    words = [WINDOW_BASE + 0x80 * index + 4 * word for index in range(config.ranges) for word in Word]
    words += [SEND_BASE + 0x10 * index + 4 * word for index in range(config.sends) for word in SendWord]
    for address in random.sample(words, 80):
        given = address + random.randrange(4)
        assert await bench.write_raw(given, random.getrandbits(32)) == AxiResp.SLVERR
        assert await bench.read(bench.address("fault_va_low")) == given
        assert await bench.read(bench.address("fault_count")) == 1
        await bench.write(bench.address("interrupt_status"), 1)


class NeverLocks(RegisterFile):
    """A wrong register file, whose tables may be written at any time."""

    def elaborate(self, platform: object) -> Module:
        self.locked = Const(0)
        return super().elaborate(platform)


@pytest.mark.wide
def test_a_register_file_that_never_locks_is_caught():
    with caught():
        simulate(NeverLocks(preset("paper")), "register_file", __name__, "what_an_epoch_needs_is_locked")


@pytest.mark.parametrize(
    "testcase",
    [
        "first_fault_is_kept_and_interrupts",
        "no_fault_is_lost_while_the_status_is_cleared",
        "faults_are_counted_through_all_bits",
        "each_cause_interrupts",
        "what_an_epoch_needs_is_locked",
        "a_refused_write_names_its_address",
    ],
)
def test_interrupts(testcase):
    simulate(RegisterFile(preset("paper")), "register_file", __name__, testcase)
