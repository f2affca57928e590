"""Rings of whole nodes whose arrays lie anywhere in memory, on each GPU elsewhere, with garbage in every entry of the
tables that the program does not use, and any choice between the streams.

With their random programming these are the tests in which toggles of whole nodes are counted; in others they would take
longer than all the rest."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from hw.link import egress
from hw.messages import Access, Fault, Policy, Threshold, TrafficClass
from hw.range_table import Word
from hw.registers.map import find_register
from hw.send_table import SendWord
from sim.collectives.program import Part
from sim.collectives.ring_all_reduce import ring_all_reduce
from sim.host.register_writes import Write, range_writes, register_write, send_writes, window_write
from tb.drivers.node_program import ProgramBench
from tb.drivers.node_ring import NodeRing, simulate_ring
from tb.drivers.payload import pack
from tb.drivers.wrong_blocks import LeavesOutOffsetHigh
from tb.integration import test_doorbells
from tb.integration.test_doorbells import TILINGS, begin_gather, forget_faults, gather_of_what_lies, gathered
from tb.integration.test_memory_protection import upset
from tb.runner import SimulationError

ROUNDS = 6
"""Every bit of what is random has then very likely changed both ways on one of the GPUs."""
SMALL = test_doorbells.CONFIGURATIONS["small"]
CONFIGURATIONS = {
    "small": SMALL,
    "protected": replace(SMALL, protection="all"),
    "channels": replace(test_doorbells.CONFIGURATIONS["lanes"], links=1),
}
GPUS = {"small": 3, "protected": 3, "channels": 2}


def places(bench: ProgramBench) -> list[int]:
    """Random first sectors of the arrays on each rank, each in a random one of the memories that addresses tell
    apart, and so far from its end that it holds all arrays and the backing store."""
    window = bench.config.va_sector_bits - bench.config.window_bits
    return [
        random.randrange(1 << bench.config.window_bits) << window | random.randrange((1 << window) - (1 << 14))
        for _ in bench.ranks
    ]


def garbage(bench: ProgramBench) -> list[Write]:
    """Writes of random words to every entry of the range table, which is then not valid, and of the send table."""
    answer = []
    for index in range(bench.config.ranges):
        words = {word: random.getrandbits(32) for word in Word}
        answer += range_writes(bench.config, index, words | {Word.CONTROL: random.getrandbits(31) << 1})
    for index in range(bench.config.sends):
        answer += send_writes(bench.config, index, {word: random.getrandbits(32) for word in SendWord})
    return answer


def choices(bench: ProgramBench) -> list[Write]:
    """Writes of random values to what decides only how fast the streams are."""
    boundaries = ("detector_boundary_10", "detector_boundary_30", "detector_boundary_none")
    widths = dict.fromkeys(("starvation_limit", "detector_window", "pace_lag", *boundaries), 16) | {"pace": 8}
    random_values = {name: random.getrandbits(width) for name, width in widths.items()}
    if bench.config.protects_memories:
        random_values["memory_scrub"] = random.randrange(10, 100)
    longest = {name: random.randrange(1 << 23, 1 << 24) for name in ("link_retry", "link_dead")}
    values = random_values | longest | {"watchdog": random.randrange(1 << 20, 1 << 32)}
    policy, threshold = random.choice(list(Policy)), random.choice(list(Threshold))
    return [
        register_write(bench.config, "arbiter", policy=policy, threshold=threshold, refresh=0),
        *(register_write(bench.config, name, **{name: value}) for name, value in values.items()),
    ]


def own_memory(bench: ProgramBench, rank: int) -> Write:
    """Have everything refused that is not in the memory of a rank."""
    return window_write(bench.config, bench.bases[rank])


async def programmed(bench: ProgramBench, rank: int) -> None:
    """The program of a rank, which accepts nothing that is not in its memory."""
    await bench.program(rank)
    await bench.write(rank, [own_memory(bench, rank)])


async def reduced(bench: ProgramBench) -> None:
    """One all-reduce of armed nodes, to its end, compared with the sums. Meanwhile bits of protected memories turn."""
    parts = [Part("output", chunk) for chunk in bench.ranks]
    partials = [{part: bench.chunk_data() for part in parts} for _ in bench.ranks]
    for rank in bench.ranks:
        for part in bench.plan.gemm(rank).parts:
            bench.store_part(rank, part, partials[rank][part])
    if bench.config.protects_memories:
        while int(bench.dut.done.value) != (1 << bench.gpus) - 1:
            await upset(bench, random.choice(bench.ranks), bits=1)
    await bench.done()

    async def check(rank: int) -> None:
        for chunk in bench.ranks:
            held = await bench.held(rank, Part("output" if chunk == rank else "gathered", chunk))
            expected = np.sum([partials[other][parts[chunk]] for other in bench.ranks], axis=0, dtype=np.uint32)
            assert (held == expected).all(), f"rank {rank}: chunk {chunk} is not the sum"
        await bench.no_fault(rank)

    await bench.all_ranks(check)


async def refused(bench: ProgramBench, rank: int) -> None:
    """A store to an address of no range is refused and named to the bit."""
    held = range(bench.bases[rank], bench.bases[rank] + 2 * bench.sectors)
    va = bench.bases[rank]
    while va in held:
        va = random.getrandbits(bench.config.va_sector_bits)
    wg, wf = random.getrandbits(bench.config.wg_bits), random.getrandbits(bench.config.wf_bits)
    request = {"access": Access.STORE.value, "traffic_class": TrafficClass.GEMM.value, "va": va, "wg": wg, "wf": wf}
    packed = pack(bench.messages.compute_request, mask=random.getrandbits(32), data=random.getrandbits(256), **request)
    bench.compute[rank][bench.channel(va)].queue.append(packed)
    for _ in range(100):
        if await bench.read(rank, "fault_count"):
            break
    found = find_register(bench.config, "fault_record")
    record = await bench.read(rank, "fault_record")
    seen = {field.name: (record & field.mask) >> field.low for field in found.fields}
    expected = {"fault": Fault.OUTSIDE.value, "link": 0, "access": Access.STORE.value, "wf": wf, "wg": wg}
    assert seen == expected, (rank, seen, expected)
    assert await bench.read(rank, "fault_va_high") << 32 | await bench.read(rank, "fault_va_low") == va
    await forget_faults(bench, rank)


async def started(dut) -> ProgramBench:
    """The ring out of reset."""
    program = ring_all_reduce(int(os.environ["GPUS"]), dtype="int32")
    bench = ProgramBench(dut, CONFIGURATIONS[os.environ["NODE"]], program, TILINGS["ragged"])
    await bench.reset()
    return bench


def epochs(bench: ProgramBench) -> Iterator[int]:
    """Random numbers of epochs, none twice."""
    return iter(random.sample(range(1, 1 << bench.config.epoch_bits), 2 * ROUNDS))


@cocotb.test()
async def collectives_anywhere(dut):
    """Wherever the arrays lie, each memory ends with all sums, or with all chunks that lay in one and whose doorbell
    was rung; what is not there is refused."""
    bench = await started(dut)
    numbers = epochs(bench)
    reduce, gather = bench.plan, gather_of_what_lies(bench.gpus)
    for program in [reduce, gather] * (ROUNDS // 2):
        bench.use(program, places(bench))
        await bench.all_ranks(bench.unlock)
        await bench.all_ranks(lambda rank: bench.write(rank, [*garbage(bench), own_memory(bench, rank)]))
        if program is gather:
            await bench.all_ranks(lambda rank: bench.write(rank, choices(bench)))
            await gathered(bench, await begin_gather(bench, next(numbers)))
        else:
            await bench.all_ranks(bench.program)
            await bench.all_ranks(lambda rank: bench.write(rank, choices(bench)))
            epoch = next(numbers)
            await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
            await reduced(bench)
        await bench.all_ranks(lambda rank: refused(bench, rank))


@cocotb.test()
async def a_neighbour_whose_arrays_lie_elsewhere(dut):
    """One GPU has its arrays where its neighbour does not expect them: what comes for other addresses is refused, named
    by such an address, and writes nothing; the next epoch, which all agree on, is right."""
    bench = await started(dut)
    numbers = epochs(bench)
    for _ in range(ROUNDS):
        expected = places(bench)
        wrong = random.choice(bench.ranks)
        bench.use(bench.plan, expected)
        others = [rank for rank in bench.ranks if rank != wrong]
        await bench.all_ranks(lambda rank: programmed(bench, rank), others)
        elsewhere = [*expected]
        elsewhere[wrong] = places(bench)[wrong]
        bench.use(bench.plan, elsewhere)
        await programmed(bench, wrong)
        epoch = next(numbers)
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank in bench.ranks:
            for part in bench.plan.gemm(rank).parts:
                bench.store_part(rank, part, bench.chunk_data())
        for _ in range(bench.limit // 5):
            if await bench.read(wrong, "fault_count"):
                break
        record = await bench.read(wrong, "fault_record")
        assert record & 15 == Fault.OUTSIDE.value and record >> 4 & 1, f"{record:#x}"
        va = await bench.read(wrong, "fault_va_high") << 32 | await bench.read(wrong, "fault_va_low")
        assert expected[wrong] <= va < expected[wrong] + bench.sectors
        for rank in bench.ranks:
            bench.kill(rank)
        await ClockCycles(dut.clk, 500)
        assert not int(dut.done.value) >> wrong & 1
        await bench.control(wrong, abort=1)
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
        bench.use(bench.plan, places(bench))
        await bench.all_ranks(lambda rank: programmed(bench, rank))
        epoch = next(numbers)
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        # What the epoch before left in the Tracker was dropped, which is reported.
        await bench.all_ranks(lambda rank: forget_faults(bench, rank))
        await reduced(bench)


ANYWHERE = "collectives_anywhere"
ELSEWHERE = "a_neighbour_whose_arrays_lie_elsewhere"


def run(case: str, size: str, ring: NodeRing) -> None:
    """One case on the ring."""
    environment = {"GPUS": str(GPUS[size]), "NODE": size}
    simulate_ring(ring, "doorbell_ring", __name__, case, environment, counts=True)


@pytest.mark.parametrize(("case", "size"), [(ANYWHERE, "protected"), (ELSEWHERE, "channels")])
def test_addresses(case, size):
    run(case, size, NodeRing(CONFIGURATIONS[size], GPUS[size]))


@pytest.mark.wide
def test_a_send_table_without_upper_bits_is_noticed():
    with patch.object(egress, "SendTable", LeavesOutOffsetHigh), pytest.raises(SimulationError):
        run(ANYWHERE, "small", NodeRing(CONFIGURATIONS["small"], GPUS["small"]))
