"""The controller does what its control word says: it refreshes whatever is on its way, its detector has its limits."""

import random
from itertools import groupby, pairwise, permutations, product

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import ROW_BITS, preset
from hw.geometry import BANKS
from hw.memory_controller.bank_machine import DIRECTION_BURST
from hw.memory_controller.dram_queue import HEAD_WAIT
from hw.memory_controller.events import ControllerEvents
from hw.messages import Access, Policy, RowCommand, Source, Threshold
from tb.drivers import dram_stub
from tb.drivers.clock import pass_cycles
from tb.drivers.column_bus import ColumnBus, sector
from tb.drivers.payload import unpack
from tb.drivers.stream import StreamSource
from tb.runner import simulate
from tb.unit.memory_controller.test_arbiter import BOUNDARIES, control
from tb.unit.memory_controller.test_controller import MESSAGES, issue, memory_bench, offer_read, request, start

PAPER = preset("paper")
READS = 250
"""More than all queues of the controller hold together."""


async def read(dut, va, most=2000):
    """Read sector `va`; cycles until its data is returned."""
    await offer_read(dut, va)
    for cycle in range(1, most):
        await ReadOnly()
        returned = unpack(MESSAGES.read_return, int(dut.returns.value))
        await RisingEdge(dut.clk)
        if returned["valid"]:
            return cycle
    raise AssertionError("the read did not return")


async def prepare(dut):
    dut.fault.value = dut.kernel_active.value = dut.control.value = 0
    for stream in ("compute", "communication", "spill"):
        getattr(dut, f"{stream}__valid").value = 0
    await start(dut)


async def row_command(dut):
    """Cycles until the next row command, and that command."""
    for cycle in range(100):
        await ReadOnly()
        row = unpack(MESSAGES.row_command, int(dut.row.value))
        await RisingEdge(dut.clk)
        if row["valid"]:
            return cycle, row
    raise AssertionError("no row command")


async def read_before_refresh(dut, bank, early):
    """Read from an open row of `bank`, offered `early` cycles before the next refresh is due; cycles it takes."""
    dut.control.value = control(refresh=0)
    await pass_cycles(dut, PAPER.timing.rfc)
    await read(dut, sector(bank))
    dut.control.value = control(refresh=1)
    await pass_cycles(dut, PAPER.timing.refi - early)
    time = await read(dut, sector(bank, column=early + 1))
    assert not int(dut.violation.value), f"bank {bank}: timing rule {int(dut.rule.value)}"
    return time


@cocotb.test()
async def a_read_at_any_moment_of_a_refresh(dut):
    """A read of an open row meets the refresh in every cycle around its beginning; it comes before or after it."""
    await prepare(dut)
    times = [await read_before_refresh(dut, 0, early) for early in range(16)]
    hit = times[-1]
    before = times.index(hit)
    assert 0 < before < 8, times
    assert times[before:] == [hit] * len(times[before:]), times
    assert all(time > hit + PAPER.timing.rfc for time in times[:before]), times
    for bank in range(1, 16):
        for early in range(before, before + PAPER.timing.rtp):
            assert await read_before_refresh(dut, bank, early) == hit


@cocotb.test()
async def a_row_conflict_among_hits_is_served(dut):
    """A read of another row comes to its turn among endless hits of the open one, about HEAD_WAIT cycles later."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN)
    hits = StreamSource(dut, "compute", dut.clk)
    dut.compute_response__ready.value = 1
    for number in range(3000):
        hits.queue.append(request(access=Access.READ, source=Source.COMPUTE, id=number % 256, va=4 * (number % 64)))
    await pass_cycles(dut, 300)
    cycles = await read(dut, 1 << 10)
    assert HEAD_WAIT < cycles < HEAD_WAIT + 500, cycles
    assert hits.queue, "the hits came to an end first"
    assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"


@cocotb.test()
async def every_place_of_the_queue_is_used(dut):
    """However far the DRAM queue drained before, as many requests are taken until it is full."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN)
    stopped = [False]
    reads = StreamSource(dut, "communication", dut.clk, lambda: stopped[0])
    # One bank returns less than the sector a cycle that is offered.
    for number in range(12_000):
        reads.queue.append(request(access=Access.READ, source=Source.DMA, va=4 * (number % 64)))
    issued = 0
    most = []
    for rest in (1, *random.sample(range(40, 300), 15)):
        inside = []
        for cycle in range(rest + 500):
            stopped[0] = cycle < rest
            await RisingEdge(dut.clk)
            await ReadOnly()
            issued += int(dut.column.value) & 1
            inside.append(reads.taken - issued)
        dut._log.info(f"{rest} cycles without requests: {min(inside)} to {max(inside)} inside")
        most.append(max(inside))
    assert reads.queue, "the requests came to an end"
    assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"
    assert most == [most[0]] * len(most), most
    assert most[0] >= PAPER.dram_queue_depth


@cocotb.test()
async def requests_of_any_stream_wait_for_a_place(dut):
    """While one bank is all that is asked for, each time for another row, the queue is full: each read returns once."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN)
    for stream, source in (("communication", Source.DMA), ("spill", Source.SPILL)):
        reads = StreamSource(dut, stream, dut.clk)
        for number in range(READS):
            reads.queue.append(request(access=Access.READ, source=source, id=number, va=number << 10))
        returned = []
        for _ in range(60 * READS):
            await ReadOnly()
            item = unpack(MESSAGES.read_return, int(dut.returns.value))
            if item["valid"]:
                returned.append((item["source"], item["id"]))
            await RisingEdge(dut.clk)
        assert sorted(returned) == [(source.value, number) for number in range(READS)]


@cocotb.test()
async def idle_only_without_a_request(dut):
    """A read of any stream, from the cycle in which it is offered until its data has been taken."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN, refresh=0)
    dut.compute_response__ready.value = 1
    for stream, source in (("compute", Source.COMPUTE), ("communication", Source.DMA), ("spill", Source.SPILL)):
        answer = dut.compute_response__valid if stream == "compute" else dut.returns
        for row in range(3):
            await pass_cycles(dut, 100)
            await ReadOnly()
            assert unpack(ControllerEvents, int(dut.events.value))["idle"]
            await RisingEdge(dut.clk)
            getattr(dut, f"{stream}__payload").value = request(access=Access.READ, source=source, va=row << 10)
            getattr(dut, f"{stream}__valid").value = 1
            answered = 0
            while not answered:
                await ReadOnly()
                assert not unpack(ControllerEvents, int(dut.events.value))["idle"], stream
                answered = int(answer.value) & 1
                await RisingEdge(dut.clk)
                getattr(dut, f"{stream}__valid").value = 0


@cocotb.test()
async def the_last_request_of_a_bank_is_found_at_every_place(dut):
    """A bank's read leaves the DRAM queue while its only other ones stand behind `between` reads of other banks, which
    are soon gone or stay; of several, each is for a row that differs in one bit from the one that is opened."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN)
    reads = StreamSource(dut, "communication", dut.clk)
    bus = ColumnBus(dut, PAPER)
    issued = 0

    def offer(bank: int, row: int) -> None:
        bus.request(sector(bank, row), Access.READ, traffic_class=0)
        reads.queue.append(request(access=Access.READ, source=Source.DMA, va=sector(bank, row)))

    for between, others in product(range(PAPER.dram_queue_depth + 16), (15, 3)):
        # A row has to be closed before the second read: by then the ones behind are in the queue.
        row = random.getrandbits(ROW_BITS)
        offer(0, row ^ (1 << ROW_BITS) - 1)
        offer(0, row)
        for number in range(between):
            offer(1 + number % others, between + number)
        for bit in range(ROW_BITS) if others < 15 else (0,):
            offer(0, row ^ 1 << bit)
        for _ in range(4000):
            await ReadOnly()
            bus.cycle()
            issued += int(dut.column.value) & 1
            left = len(reads.queue) + reads.taken - issued
            await RisingEdge(dut.clk)
            if not left:
                break
        assert not left, f"{left} requests are not served, {between} reads between two of a bank"
        assert not int(dut.violation.value), f"{between} between: timing rule {int(dut.rule.value)}"


@cocotb.test()
async def every_bank_keeps_its_times(dut):
    """Behind a request that opens its bank's row, a read that hits and a store that hits, one for another row comes: no
    timing rule is broken, and its column command is as early as the rules allow."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN, refresh=0)
    reads, stores = StreamSource(dut, "communication", dut.clk), StreamSource(dut, "spill", dut.clk)
    read = {"access": Access.READ, "source": Source.DMA}
    store = {"access": Access.STORE, "source": Source.SPILL}
    distances = []
    for bank in random.sample(range(16), 16):
        for first_row, source, fields in ((0, reads, read), (1, reads, read), (2, stores, store)):
            for row in (first_row, first_row + 1):
                source.queue.append(request(va=sector(bank, row), **fields))
            await issue(dut)
            await RisingEdge(dut.clk)
            distances.append(1 + await issue(dut))
            await pass_cycles(dut, 60)
            assert not int(dut.violation.value), f"bank {bank}: timing rule {int(dut.rule.value)}"
    timing = PAPER.timing
    to_read, to_store = timing.rp + timing.rcd_rd, timing.rp + timing.rcd_wr
    opened = timing.ras - timing.rcd_rd + to_read
    assert distances == [opened, timing.rtp + to_read, timing.wtp + to_store] * 16, distances


@cocotb.test()
async def directions_take_turns(dut):
    """While reads and stores of open rows wait, each direction has one command and DIRECTION_BURST more at a time."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN, refresh=0)
    reads, stores = StreamSource(dut, "communication", dut.clk), StreamSource(dut, "compute", dut.clk)
    for number in range(600):
        reads.queue.append(request(access=Access.READ, source=Source.DMA, va=sector(number % 8, 0, number // 8 % 64)))
        stores.queue.append(
            request(access=Access.STORE, source=Source.COMPUTE, va=sector(8 + number % 8, 0, number // 8 % 64))
        )
    commands = []
    while reads.queue and stores.queue:
        await issue(dut)
        commands.append(unpack(MESSAGES.column_command, int(dut.column.value))["command"])
        await RisingEdge(dut.clk)
    turns = [len(list(run)) for _, run in groupby(commands)]
    # Until all rows are open, and when one direction comes to its end, there is not always something of either.
    assert turns[3:-2] == [1 + DIRECTION_BURST] * len(turns[3:-2]), turns
    assert len(turns) > 15
    assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"


@cocotb.test()
async def no_bank_waits_for_another(dut):
    """A bank is precharged for a read of another row as soon after a command of one other bank as of any."""
    await prepare(dut)
    dut.control.value = control(policy=Policy.ROUND_ROBIN, refresh=0)
    reads, stores = StreamSource(dut, "communication", dut.clk), StreamSource(dut, "compute", dut.clk)
    rows = [0] * BANKS

    def read(bank: int) -> None:
        reads.queue.append(request(access=Access.READ, source=Source.DMA, va=sector(bank, rows[bank])))

    def store(bank: int) -> None:
        stores.queue.append(request(access=Access.STORE, source=Source.COMPUTE, va=sector(bank, rows[bank])))

    for bank in range(BANKS):
        read(bank)
    await pass_cycles(dut, 300)
    for command in (read, store):
        times = set()
        for bank, other in permutations(range(BANKS), 2):
            await pass_cycles(dut, 40)
            command(other)
            rows[bank] += 1
            read(bank)
            cycles, row = await row_command(dut)
            assert (row["command"], row["bank"]) == (RowCommand.PRE.value, bank)
            times.add(cycles)
        assert len(times) == 1, times
    assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"


@cocotb.test()
async def refreshes_come_in_their_interval(dut):
    """Idle, the channel is refreshed every tREFI to the cycle."""
    await prepare(dut)
    dut.control.value = control(refresh=1)
    refreshes = []
    for cycle in range(4 * PAPER.timing.refi + 50):
        await ReadOnly()
        if unpack(ControllerEvents, int(dut.events.value))["refresh"]:
            refreshes.append(cycle)
        await RisingEdge(dut.clk)
    assert [after - before for before, after in pairwise(refreshes)] == [PAPER.timing.refi] * 3


@cocotb.test()
async def detector_has_its_limits(dut):
    """Without requests, the limit becomes that of the first boundary of 0, `window` cycles into the kernel."""
    await prepare(dut)
    for _ in range(150):
        window = random.choice([1 << random.randrange(1, 11), random.randrange(2, 300)])
        bounds = {name: random.choice([0, 1 << random.randrange(16)]) for name in BOUNDARIES}
        dut.control.value = control(threshold=Threshold.AUTO, window=window, refresh=1, **bounds)
        dut.kernel_active.value = 1
        expected = [limit for name, limit in BOUNDARIES.items() if not bounds[name]] or [Threshold.NONE]
        seen = []
        for _ in range(window + 5):
            await RisingEdge(dut.clk)
            await ReadOnly()
            seen.append(unpack(ControllerEvents, int(dut.events.value))["threshold"])
        assert seen[-1] == expected[0].value, (window, bounds)
        # The start of a kernel is taken for the densest.
        assert seen.index(expected[0].value) == (window if bounds["boundary_10"] else 0)
        await RisingEdge(dut.clk)
        dut.kernel_active.value = 0
        await RisingEdge(dut.clk)


@pytest.mark.parametrize(
    "testcase",
    [
        "a_read_at_any_moment_of_a_refresh",
        "a_row_conflict_among_hits_is_served",
        "every_place_of_the_queue_is_used",
        "requests_of_any_stream_wait_for_a_place",
        "idle_only_without_a_request",
        "the_last_request_of_a_bank_is_found_at_every_place",
        "every_bank_keeps_its_times",
        "directions_take_turns",
        "no_bank_waits_for_another",
        "refreshes_come_in_their_interval",
        "detector_has_its_limits",
    ],
)
def test_control(testcase):
    simulate(memory_bench(PAPER, False), "memory_bench_paper", __name__, testcase, sources=[dram_stub.SOURCE])
