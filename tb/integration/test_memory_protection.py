"""Rings whose memories are upset while a collective runs: one wrong bit of a word changes nothing; with two, or one of
a sector, the epoch is aborted, or its sums are right; the next epoch is right."""

import os
import random
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from hw.messages import Fault
from hw.protection import WAY_BITS, ProtectedMemory
from hw.registers.map import find_register
from hw.tracker.storage import entry_layout, stored_width
from hw.tracker.tile_geometry import MAX_WFS
from sim.host.register_writes import register_write
from tb.drivers.node_ring import NodeRing, RingBench
from tb.drivers.tagged_dram import SOURCE
from tb.integration.test_epochs import LONGEST, RINGS, TILING, node_ring, rounds
from tb.runner import simulate

TOLD = 200
"""Cycles in which a notice has come to a peer."""
SCRUB = 20
CONFIGS = {
    name: (replace(config, protection="all"), gpus) for name, (config, gpus, *joined) in RINGS.items() if not joined
}
FORGET = register_write(CONFIGS["small"][0], "interrupt_status", fault=1, memory=1)


async def started(dut) -> RingBench:
    """A programmed ring, nothing armed, scrubbing."""
    config, gpus = CONFIGS[os.environ["RING"]]
    bench = RingBench(dut, config, gpus, TILING)
    await bench.reset()
    await bench.all_ranks(bench.program)
    scrub = register_write(config, "memory_scrub", memory_scrub=SCRUB)
    enable = register_write(config, "interrupt_enable", memory=1)
    await bench.all_ranks(lambda rank: bench.write(rank, [scrub, enable]))
    return bench


async def upset(bench: RingBench, rank: int, bits: int) -> tuple[int, int]:
    """Turn so many bits of a word in use; which memory it is in, and where."""
    config = bench.config
    if random.random() < 0.4:
        memory, address = ProtectedMemory.TRIGGERS, random.randrange(config.trigger_blocks)
        width = stored_width(MAX_WFS) + stored_width(config.va_sector_bits)
    else:
        place = random.randrange(config.tracker_sets) << WAY_BITS
        memory, address = ProtectedMemory.COUNTERS, place | random.randrange(config.tracker_ways)
        width = stored_width(entry_layout(config).size)
    first, second = random.sample(range(width), 2)
    await turn(bench, rank, memory, address, first=first, second=second, two=bits - 1)
    return memory.value, address


async def turn(bench: RingBench, rank: int, memory: ProtectedMemory, address: int, **bits: int) -> None:
    """Have `bits` turned."""
    writes = [
        register_write(bench.config, "memory_upset_bits", **bits),
        register_write(bench.config, "memory_upset", memory=memory, address=address, turn=1),
    ]
    await bench.write(rank, writes)


async def fields(bench: RingBench, rank: int, register: str) -> dict[str, int]:
    """A register, taken apart."""
    value = await bench.read(rank, register)
    return {item.name: (value & item.mask) >> item.low for item in find_register(bench.config, register).fields}


async def total(bench: RingBench, counter: str) -> int:
    """A counter, of all ranks."""
    return sum([await bench.read(rank, f"{counter}_low") for rank in bench.ranks])


@cocotb.test()
async def single_errors_change_nothing(dut):
    """Upsets all over, all the time; sums are right, and what was corrected is counted, located and interrupts."""
    bench = await started(dut)
    for epoch in range(1, 1 + rounds()):
        turned: dict[int, set[tuple[int, int]]] = {rank: set() for rank in bench.ranks}
        partials = bench.partials()
        before = await total(bench, "memory_corrected")
        await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank in bench.ranks:
            bench.store(rank, partials[rank])
        while int(dut.done.value) != (1 << bench.gpus) - 1:
            rank = random.choice(bench.ranks)
            turned[rank].add(await upset(bench, rank, 1))
            assert sum(map(len, turned.values())) < 300, "no end"
        await bench.finish(partials)
        await ClockCycles(dut.clk, 2 * SCRUB * max(bench.config.trigger_blocks, bench.config.tracker_sets))
        assert await total(bench, "memory_corrected") > before
        assert await total(bench, "memory_uncorrected") == 0
        for rank in bench.ranks:
            found = await fields(bench, rank, "memory_error")
            assert int(dut.irq.value) >> rank & 1 == found["corrected"]
            assert not found["lost"]
            if found["corrected"]:
                assert (found["memory"], found["address"]) in turned[rank]


@cocotb.test()
async def two_errors_end_the_epoch(dut):
    """Two bits of a word, some times an epoch: it is aborted for that cause, or ends with the right sums."""
    bench = await started(dut)
    aborted = 0
    for epoch in range(1, 2 * rounds(), 2):
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
        for rank in bench.ranks:
            bench.store(rank, partials[rank])
        await ClockCycles(dut.clk, random.randrange(LONGEST // 2))
        for _ in range(4):
            turned = random.choice(bench.ranks)
            await upset(bench, turned, 2)
        aborted += await ends(dut, bench, epoch, partials)
    assert aborted, "no word that was lost was in use"


@cocotb.test()
async def a_poisoned_sector_ends_the_epoch(dut):
    """A bit of one sector is turned, where it waits for the DRAM or in a packet slot: wherever it is found, it is not
    written, and the epoch is aborted on all GPUs."""
    bench = await started(dut)
    config = bench.config
    aborted: dict[ProtectedMemory, int] = {ProtectedMemory.SECTORS: 0, ProtectedMemory.PACKETS: 0}
    for epoch in range(1, 2 * rounds(), 2):
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
        memory = list(aborted)[epoch // 2 % 2]
        places = config.lanes if memory is ProtectedMemory.PACKETS else config.channels
        rank, place = random.choice(bench.ranks), random.randrange(places)
        for source in bench.ranks:
            bench.store(source, partials[source])
        await ClockCycles(dut.clk, random.randrange(LONGEST // 2))
        await turn(bench, rank, memory, place, first=random.randrange(128))
        found = await ends(dut, bench, epoch, partials, forget=rank)
        aborted[memory] += found
    assert all(aborted.values()), aborted


async def ends(dut, bench: RingBench, epoch: int, partials, forget: int | None = None) -> bool:
    """See the epoch end, right or aborted for a memory's error (returned), and the next one, which is right. An upset
    of rank `forget` that has not been done is taken back."""
    for _ in range(4 * LONGEST // 100):
        await ClockCycles(dut.clk, 100)
        if await total(bench, "memory_uncorrected"):
            break
    await ClockCycles(dut.clk, bench.gpus * TOLD)
    if forget is not None:
        await turn(bench, forget, ProtectedMemory.COUNTERS, (1 << WAY_BITS) - 1)
    causes = {rank: await fields(bench, rank, "abort_cause") for rank in bench.ranks}
    aborted = any(found["memory"] for found in causes.values())
    if aborted:
        for rank, found in causes.items():
            assert found["memory"] or found["peer"], (rank, found)
            assert found["epoch"] == epoch
            if found["memory"]:
                fault = Fault((await fields(bench, rank, "fault_record"))["fault"])
                assert fault in (Fault.MEMORY, Fault.PAST_THRESHOLD)
                assert (await fields(bench, rank, "memory_error"))["lost"]
        for rank in bench.ranks:
            bench.kill(rank)
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
    else:
        await bench.finish(partials)
    await bench.all_ranks(lambda rank: bench.control(rank, clear_counters=1))
    await bench.collective(epoch + 1)
    assert await total(bench, "memory_uncorrected") == 0
    await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
    return aborted


def run(design: NodeRing, name: str, ring: str, case: str, repeats: int) -> None:
    """One of the cases."""
    environment = {"RING": ring, "ROUNDS": str(repeats)}
    simulate(design, name, __name__, case, environment=environment, sources=[SOURCE], plusargs=["+tag=1"])


@pytest.mark.parametrize(
    ("case", "ring", "repeats"),
    [
        ("single_errors_change_nothing", "small", 4),
        ("single_errors_change_nothing", "lanes", 3),
        ("two_errors_end_the_epoch", "small", 4),
        ("a_poisoned_sector_ends_the_epoch", "small", 6),
        ("a_poisoned_sector_ends_the_epoch", "lanes", 4),
    ],
)
def test_memory_protection(case, ring, repeats):
    run(node_ring(*CONFIGS[ring]), "node_ring", ring, case, repeats)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["single_errors_change_nothing", "two_errors_end_the_epoch", "a_poisoned_sector_ends_the_epoch"]
)
@pytest.mark.parametrize("ring", CONFIGS)
def test_memory_protection_at_length(case, ring):
    run(node_ring(*CONFIGS[ring]), "node_ring", ring, case, 40)
