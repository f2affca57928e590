"""The register file answers on AXI4-Lite as its description says, for every register of it."""

import os
import random
from functools import cache

import cocotb
import pytest
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiResp
from cocotbext.axi.axil_channels import AxiLiteARTransaction

from hw.config import preset
from hw.counters import Counter, Counting
from hw.protection import ALL
from hw.range_table import RangeWrite, Word, range_write
from hw.registers.counter_addresses import COUNTER_BITS, counters
from hw.registers.fields import Kind
from hw.registers.map import SEND_BASE, WINDOW_BASE, find_register
from hw.registers.register_file import KEPT_HERE, RegisterFile
from hw.send_table import SendWord, send_write
from tb.drivers.payload import pack
from tb.drivers.register_bench import RegisterBench
from tb.runner import caught, simulate

register_file = cache(RegisterFile)


def counters_of(bench: RegisterBench) -> tuple[Counter, ...]:
    """The counters that a register file has, `cycles` first."""
    return counters(bench.config.links, memories=bench.config.protects_memories)


@cocotb.test()
async def every_register_reads_and_writes_as_described(dut):
    bench = await RegisterBench(dut).start()
    bench.stall(int(os.environ.get("T3_STALLS", "0")))
    for register in bench.registers[:-1]:
        writable = [field for field in register.fields if field.kind is Kind.READ_WRITE]
        if register.name == "cycles_low":
            continue
        if all(field.kind in (Kind.CONSTANT, Kind.READ_WRITE) for field in register.fields):
            assert await bench.read(register.address) == register.reset, register.name
        inputs = [field for field in register.fields if field.kind is Kind.READ_ONLY and register.name not in KEPT_HERE]
        for value in (0xFFFFFFFF, 0, random.getrandbits(32)) if inputs else ():
            for field in inputs:
                getattr(dut, register.member(field)).value = (value & field.mask) >> field.low
            assert await bench.read(register.address) == value & sum(field.mask for field in inputs), register.name
        for value in (0xFFFFFFFF, 0, 0xFFFFFFFF, random.getrandbits(32), 0x55555555):
            if not register.writable:
                await bench.write(register.address, value, response=AxiResp.SLVERR)
                await bench.write(register.address, value & 0xFF, size=1, response=AxiResp.SLVERR)
                continue
            await bench.write(register.address, value)
            if not writable:
                continue
            mask = sum(field.mask for field in writable)
            assert await bench.read(register.address) == value & mask, register.name
            for field in writable:
                port = int(getattr(dut, register.member(field)).value)
                assert port == (value & field.mask) >> field.low, register.member(field)


@cocotb.test()
async def byte_strobes_are_honoured(dut):
    bench = await RegisterBench(dut).start()
    bench.stall(int(os.environ.get("T3_STALLS", "0")))
    masks = {WINDOW_BASE + 0x80 + 4 * Word.PITCH: 0xFFFFFFFF, SEND_BASE + 0x10 + 4: 0xFFFFFFFF}
    for register in bench.registers:
        writable = sum(field.mask for field in register.fields if field.kind is Kind.READ_WRITE)
        if writable:
            masks[register.address] = writable
    for address, mask in masks.items():
        model = bytearray(4)
        await bench.write(address, 0)
        for _ in range(20):
            first = random.randrange(4)
            chosen = random.randbytes(random.randint(1, 4 - first))
            await bench.master.write(address + first, chosen)
            model[first : first + len(chosen)] = chosen
            assert await bench.read(address) == int.from_bytes(model, "little") & mask
    dut.interrupt_status_fault.value = 1
    await ClockCycles(dut.clk, 1)
    dut.interrupt_status_fault.value = 0
    await bench.master.write(bench.address("interrupt_status") + 1, b"\xff\xff\xff")
    assert await bench.read(bench.address("interrupt_status")) == 1


@cocotb.test()
async def tables_are_broadcast_and_read_back(dut):
    bench = await RegisterBench(dut).start()
    for window in (
        (dut.range_write, range_write(bench.config), WINDOW_BASE, 0x80, bench.config.ranges, Word),
        (dut.send_write, send_write(bench.config), SEND_BASE, 0x10, bench.config.sends, SendWord),
    ):
        dut.rst.value = 1
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        await table_is_broadcast_and_reads_back(dut, bench, *window)


async def table_is_broadcast_and_reads_back(dut, bench, bus, layout, base, pitch, entries, words):
    """Every word of every entry of one table, from a reset on."""
    table: dict[tuple[int, int], int] = {}
    before: dict[tuple[int, int], int] = {}
    renewed = set()
    broadcast = []

    def field(number, name):
        at = layout[name]
        return number >> at.offset & ((1 << at.width) - 1)

    async def listen():
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            number = int(bus.value)
            if not field(number, "valid"):
                continue
            write = tuple(field(number, name) for name in ("index", "word", "data"))
            if "renewed" not in layout.members:
                broadcast.append(write)
                continue
            assert number.bit_count() % 2, "the parity is wrong"
            if not field(number, "renewed"):
                broadcast.append(write)
                continue
            renewed.add(write[:2])
            assert write[2] in (table.get(write[:2], 0), before.get(write[:2]))

    listener = cocotb.start_soon(listen())
    assert await bench.read(base) == 0
    # A word in each cycle, 32 of each range there is, for which the shorter table is gone through more than once.
    cleared = [(index, word, 0) for index in range(entries) for word in range(pitch // 4)]
    assert broadcast == cleared * (32 * bench.config.ranges // len(cleared))
    broadcast.clear()
    order = [(index, word.value) for index in range(entries) for word in words]
    random.shuffle(order)
    for index, word in order:
        before[index, word] = table.get((index, word), 0)
        table[index, word] = random.getrandbits(32)
        await bench.write(base + index * pitch + word * 4, table[index, word])
    if bench.config.protects_memories:
        # Corrected before it is broadcast.
        await ClockCycles(dut.clk, 1)
    assert broadcast == [(index, word, table[index, word]) for index, word in order]
    random.shuffle(order)
    for index, word in order:
        assert await bench.read(base + index * pitch + word * 4) == table[index, word]
    assert renewed == (set(order) if bench.config.protects_memories else set())
    listener.cancel()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    for index, word in order[:10]:
        assert await bench.read(base + index * pitch + word * 4) == 0


@cocotb.test()
async def a_ring_reads_out_the_entry(dut):
    """Every word of the range, once, in order, beginning right after the ring; accesses that come meanwhile wait."""
    bench = await RegisterBench(dut).start()
    config = bench.config
    seen, rings = [], 0

    async def listen():
        nonlocal rings
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            rings += int(dut.doorbell_ring.value)
            bits = int(dut.doorbell_entry.value)
            if bits & 1:
                seen.append((int(dut.doorbell_range.value), bits))

    cocotb.start_soon(listen())
    table = {(index, word): random.getrandbits(32) for index in range(config.ranges) for word in Word}
    for (index, word), value in table.items():
        await bench.write(WINDOW_BASE + index * 0x80 + word * 4, value)
    first, count = random.getrandbits(16), random.getrandbits(16)
    await bench.write(bench.address("doorbell_workgroups"), first | count << 16)
    assert (int(dut.doorbell_workgroups_first.value), int(dut.doorbell_workgroups_count.value)) == (first, count)
    assert not seen
    for number in range(12):
        index = random.randrange(config.ranges)
        await bench.write(bench.address("doorbell"), index)
        assert not seen, "read out without a ring"
        await bench.write(bench.address("doorbell"), index | 1 << 31)
        word = random.choice(list(Word))
        if number % 2:
            await bench.write(WINDOW_BASE + index * 0x80 + word * 4, ~table[index, word] & 0xFFFFFFFF)
        assert await bench.read(bench.address("doorbell")) == index
        entry = [table[index, word] for word in Word]
        expected = [pack(RangeWrite, valid=1, index=index, word=word, data=entry[word]) for word in Word]
        assert seen == [(index, bits) for bits in expected] and rings == number + 1
        seen.clear()
        if number % 2:
            table[index, word] ^= 0xFFFFFFFF
            assert await bench.read(WINDOW_BASE + index * 0x80 + word * 4) == table[index, word]


@cocotb.test()
async def unmapped_addresses_are_refused(dut):
    bench = await RegisterBench(dut).start()
    mapped = {register.address for register in bench.registers}
    mapped |= {WINDOW_BASE + i * 0x80 + word * 4 for i in range(bench.config.ranges) for word in Word}
    mapped |= {SEND_BASE + i * 0x10 + word * 4 for i in range(bench.config.sends) for word in SendWord}
    edges = [
        WINDOW_BASE - 4,
        WINDOW_BASE + len(Word) * 4,
        WINDOW_BASE + bench.config.ranges * 0x80,
        SEND_BASE - 4,
        SEND_BASE + len(SendWord) * 4,
        SEND_BASE + bench.config.sends * 0x10,
        0x14,
        0x64,
        0x98,
        0xFFFC,
        0xC000,
    ]
    for address in edges + [random.randrange(0, 1 << 16, 4) for _ in range(300)]:
        if address not in mapped:
            assert await bench.read(address, AxiResp.SLVERR) == 0
            await bench.write(address, 0xFFFFFFFF, response=AxiResp.SLVERR)
            await bench.write(address, 0xFF, size=1, response=AxiResp.SLVERR)


async def cycles_are_counted_one_by_one(bench):
    """Between two reads the counter goes on by the cycles (1 ns) that the later one is later: reads take as long."""

    async def low_word():
        return await bench.read(bench.address("cycles_low")), get_sim_time("ns")

    first, start = await low_word()
    for _ in range(8):
        value, now = await low_word()
        assert value - first & 0xFFFFFFFF == now - start


@cocotb.test()
async def every_counter_carries_through_all_its_bits(dut):
    """From whatever it holds, a counter goes on by what it is given, modulo 2**48, and both halves read it."""
    bench = await RegisterBench(dut).start()
    counted = counters_of(bench)
    await bench.read(0)
    top = (1 << COUNTER_BITS) - 1
    some = random.getrandbits(COUNTER_BITS)
    for start in (top, 0, top, some, top ^ some):
        for counter in counted:
            getattr(dut, f"total_{counter.name}").value = start
        await RisingEdge(dut.clk)
        assert 0 < (await bench.counter("cycles") - start & top) < 100
        await cycles_are_counted_one_by_one(bench)
        for counter in counted[1:]:
            assert await bench.counter(counter.name) == start, counter.name
        for counter in counted[1:]:
            getattr(dut, f"count_{counter.name}").value = 1
        await RisingEdge(dut.clk)
        for counter in counted[1:]:
            getattr(dut, f"count_{counter.name}").value = 0
        for counter in counted[1:]:
            expected = 1
            if counter.counting is Counting.SUM:
                expected = start + 1 & top
            elif counter.counting is Counting.MAXIMUM and start & (1 << counter.width) - 1:
                expected = start
            assert await bench.counter(counter.name) == expected, counter.name


@cocotb.test()
async def counters_count_latch_and_clear(dut):
    bench = await RegisterBench(dut).start()
    counted = counters_of(bench)
    await bench.read(0)
    expected = dict.fromkeys((counter.name for counter in counted), 0)
    del expected["cycles"]
    # Several times: a bit that every addition inverts is right after every other one.
    for additions in (100, 1, 20, 7):
        for number in range(additions):
            for counter in counted[1:]:
                power = 1 << number % counter.width
                value = random.choice((0, 1, power, random.getrandbits(counter.width))) if number > 20 else power
                getattr(dut, f"count_{counter.name}").value = value
                if counter.counting is Counting.SUM:
                    expected[counter.name] += value
                elif counter.counting is Counting.MAXIMUM:
                    expected[counter.name] = max(expected[counter.name], value)
                elif value:
                    expected[counter.name] = value
            await RisingEdge(dut.clk)
        for counter in counted[1:]:
            getattr(dut, f"count_{counter.name}").value = 0
        for name, value in expected.items():
            assert await bench.counter(name) == value, name
    before = await bench.counter("cycles")
    waited = await bench.counter("cycles") - before
    assert 2 < waited < 40

    # A high half is the one that belonged to the low half last read, however far the counter has moved on.
    dut.total_occupancy_sum.value = (5 << 32) - 1
    await ClockCycles(dut.clk, 1)
    assert await bench.read(bench.address("occupancy_sum_low")) == 0xFFFFFFFF
    dut.count_occupancy_sum.value = 1
    await ClockCycles(dut.clk, 1)
    dut.count_occupancy_sum.value = 0
    assert await bench.read(bench.address("occupancy_sum_high")) == 4
    assert await bench.counter("occupancy_sum") == 5 << 32
    dut.total_occupancy_sum.value = (1 << COUNTER_BITS) - 1
    await ClockCycles(dut.clk, 1)
    assert await bench.counter("occupancy_sum") == (1 << COUNTER_BITS) - 1

    await bench.write(bench.address("control"), find_register(bench.config, "control").field("clear_counters").mask)
    await ClockCycles(dut.clk, 2)
    for counter in counted[1:]:
        assert await bench.counter(counter.name) == 0, counter.name
    assert await bench.counter("cycles") < 30 * len(counted)


@cocotb.test()
async def latest_and_highest_are_right_after_each_value(dut):
    """Not only after many, which hide what one of them did."""
    bench = await RegisterBench(dut).start()
    counted = counters_of(bench)
    await bench.read(0)
    kept = {counter.name: counter for counter in counted[1:] if counter.counting is not Counting.SUM}
    expected = dict.fromkeys(kept, 0)
    for number in range(48):
        for name, counter in kept.items():
            value = 1 << number if number < counter.width else random.getrandbits(counter.width)
            getattr(dut, f"count_{name}").value = value
            if counter.counting is Counting.MAXIMUM:
                expected[name] = max(expected[name], value)
            elif value:
                expected[name] = value
        await RisingEdge(dut.clk)
        for name in kept:
            getattr(dut, f"count_{name}").value = 0
        for name, value in expected.items():
            assert await bench.counter(name) == value, name
    for bit in range(48):
        for name, counter in kept.items():
            if counter.counting is Counting.MAXIMUM:
                lower = random.getrandbits(counter.width) & ~(1 << bit % counter.width)
                expected[name] = lower | 1 << bit % counter.width
                held, event = random.sample((lower, expected[name]), 2)
                getattr(dut, f"total_{name}").value = held
                getattr(dut, f"count_{name}").value = event
        await RisingEdge(dut.clk)
        for name in kept:
            getattr(dut, f"count_{name}").value = 0
        await ClockCycles(dut.clk, 2)
        for name, value in expected.items():
            assert await bench.counter(name) == value, name


@cocotb.test()
async def any_byte_of_a_word_may_be_addressed(dut):
    """An access is to the whole word around its address, as AXI4 has it; most masters only ever name the first byte."""
    bench = await RegisterBench(dut).start()
    reads = bench.master.read_if

    async def read(address):
        await reads.ar_channel.send(AxiLiteARTransaction(araddr=address))
        answer = await reads.r_channel.recv()
        assert answer.rresp == AxiResp.OKAY
        return int(answer.rdata)

    window = WINDOW_BASE + 0x80 + 4 * Word.PITCH
    for address in (window, bench.address("link_retry"), bench.address("spill_base_high")):
        for byte in range(4):
            value = random.getrandbits(8)
            assert await bench.write_raw(address + byte, value) == AxiResp.OKAY
            assert [await read(address + other) for other in range(4)] == [value] * 4
    for register in bench.registers[:-1]:
        if register.counting is None:
            assert [await read(register.address + byte) for byte in range(4)] == [
                await bench.read(register.address)
            ] * 4


@cocotb.test()
async def pulses_last_one_cycle(dut):
    bench = await RegisterBench(dut).start()
    register = find_register(bench.config, "control")
    high = {register.member(field): 0 for field in register.fields}

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            for name in high:
                high[name] += int(getattr(dut, name).value)

    cocotb.start_soon(watch())
    for field in register.fields:
        before = dict(high)
        await bench.write(register.address, field.mask)
        await ClockCycles(dut.clk, 5)
        name = register.member(field)
        assert {key: high[key] - before[key] for key in high} == {key: int(key == name) for key in high}
        assert await bench.read(register.address) == 0
    for _ in range(60):
        before = dict(high)
        value, strobe = random.getrandbits(32), random.getrandbits(4)
        assert await bench.write_raw(register.address, value, strobe) == AxiResp.OKAY
        await ClockCycles(dut.clk, 5)
        for field in register.fields:
            name = register.member(field)
            meant = value >> field.low & 1 and strobe >> field.low // 8 & 1
            assert high[name] - before[name] == meant, name


@cocotb.test()
async def reads_and_writes_back_to_back(dut):
    bench = await RegisterBench(dut).start()
    bench.stall(int(os.environ.get("T3_STALLS", "0")))
    names = ("link_silence", "link_retry", "spill_base_low")
    values = {}

    async def writer(name):
        for _ in range(60):
            values[name] = random.getrandbits(24)
            await bench.write(bench.address(name), values[name])

    async def reader():
        for _ in range(120):
            assert await bench.read(bench.address("identification")) == 0x54330003

    tasks = [cocotb.start_soon(task) for task in (*map(writer, names), reader(), reader())]
    for task in tasks:
        await task
    for name in names:
        assert await bench.read(bench.address(name)) == values[name]


CASES = (
    "tables_are_broadcast_and_read_back",
    "a_ring_reads_out_the_entry",
    "unmapped_addresses_are_refused",
    "counters_count_latch_and_clear",
    "every_counter_carries_through_all_its_bits",
    "latest_and_highest_are_right_after_each_value",
    "any_byte_of_a_word_may_be_addressed",
    "pulses_last_one_cycle",
)
STALLED_CASES = (
    "every_register_reads_and_writes_as_described",
    "byte_strobes_are_honoured",
    "reads_and_writes_back_to_back",
)


@pytest.mark.parametrize("testcase", CASES)
def test_register_file(testcase):
    simulate(register_file(preset("paper")), "register_file", __name__, testcase)


@pytest.mark.parametrize("stall", [0, 50])
@pytest.mark.parametrize("testcase", STALLED_CASES)
def test_register_file_with_stalls(testcase, stall):
    simulate(register_file(preset("paper")), "register_file", __name__, testcase, environment={"T3_STALLS": str(stall)})


@pytest.mark.parametrize(
    "testcase",
    [
        "byte_strobes_are_honoured",
        "tables_are_broadcast_and_read_back",
        "a_ring_reads_out_the_entry",
        "any_byte_of_a_word_may_be_addressed",
        "reads_and_writes_back_to_back",
        "every_register_reads_and_writes_as_described",
        "every_counter_carries_through_all_its_bits",
        "counters_count_latch_and_clear",
    ],
)
def test_protected_register_file(testcase):
    """The same, in the same cycles, while words of the tables are looked at and broadcast anew."""
    config = preset("paper", protection=ALL)
    environment = {"T3_PROTECTION": ALL}
    simulate(register_file(config), "register_file", __name__, testcase, environment=environment)


@pytest.mark.parametrize("testcase", ["every_register_reads_and_writes_as_described", "unmapped_addresses_are_refused"])
def test_wide_register_file(testcase):
    simulate(register_file(preset("wide")), "register_file", __name__, testcase, environment={"T3_PRESET": "wide"})


class UnlatchedRegisterFile(RegisterFile):
    """Broken on purpose: a counter's high half is read as it is now."""

    def __init__(self, config):
        super().__init__(config)
        self._high = self._totals["occupancy_sum"][32:]


def test_missing_latch_is_caught():
    with caught("assert 5 == 4"):
        simulate(UnlatchedRegisterFile(preset("paper")), "register_file", __name__, "counters_count_latch_and_clear")
