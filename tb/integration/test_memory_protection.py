"""Rings whose memories are upset while a collective runs: one wrong bit of a word changes nothing; with two, or one of
a sector, the epoch is aborted, or its sums are right; the next epoch is right."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from hw.config import Configuration
from hw.messages import Fault
from hw.protection import WAY_BITS, ProtectedMemory, TableUser
from hw.range_table import ENTRY_WORDS, Word
from hw.registers.map import SEND_BASE, WINDOW_BASE, find_register
from hw.send_table import SEND_ENTRY_WORDS, SendWord
from hw.tracker.storage import entry_layout, stored_width
from hw.tracker.tile_geometry import MAX_WFS
from sim.host.register_writes import register_write
from tb.drivers.node_ring import NodeRing, RingBench, simulate_ring
from tb.integration.test_epochs import LONGEST, RINGS, TILING, node_ring, rounds

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
    chosen = random.random()
    if chosen < 0.3:
        memory, address = ProtectedMemory.TRIGGERS, random.randrange(config.trigger_blocks)
        width = stored_width(MAX_WFS) + stored_width(config.va_sector_bits)
    elif chosen < 0.5 and bits == 1:
        memory, address, width = ProtectedMemory.TABLES, table_word(config), stored_width(32)
    else:
        place = random.randrange(config.tracker_sets) << WAY_BITS
        memory, address = ProtectedMemory.COUNTERS, place | random.randrange(config.tracker_ways)
        width = stored_width(entry_layout(config).size)
    first, second = random.sample(range(width), 2)
    await turn(bench, rank, memory, address, first=first, second=second, two=bits - 1)
    return memory.value, address


def table_word(config: Configuration) -> int:
    """Any word of the range table or the send table."""
    if random.random() < 0.2:
        send, word = random.randrange(config.sends), random.choice(list(SendWord))
        return (SEND_BASE - WINDOW_BASE) // 4 + send * SEND_ENTRY_WORDS + word
    return random.randrange(config.ranges) * ENTRY_WORDS + random.choice(list(Word))


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


def epochs(missing: Callable[[], str]) -> Iterator[int]:
    """Every other epoch: as many as there are rounds, and on until nothing is `missing`, at most ten times as many."""
    epoch = 1
    while epoch < 2 * rounds() or missing():
        assert epoch < 20 * rounds(), missing()
        yield epoch
        epoch += 2


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
        words = bench.config.ranges * len(Word)
        await ClockCycles(dut.clk, 2 * SCRUB * max(bench.config.trigger_blocks, bench.config.tracker_sets, words))
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
    aborted: list[bool] = []
    for epoch in epochs(lambda: "" if any(aborted) else "no word that was lost was in use"):
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
        for rank in bench.ranks:
            bench.store(rank, partials[rank])
        await ClockCycles(dut.clk, random.randrange(LONGEST // 2))
        for _ in range(4):
            turned = random.choice(bench.ranks)
            await upset(bench, turned, 2)
        aborted.append(await ends(dut, bench, epoch, partials))


@cocotb.test()
async def a_poisoned_sector_ends_the_epoch(dut):
    """A bit of one sector is turned, where it waits for the DRAM or in a packet slot, or of the parity of what goes
    with it: wherever it is found, a sector is not written, and the epoch is aborted on all GPUs."""
    bench = await started(dut)
    config = bench.config
    memories = (ProtectedMemory.SECTORS, ProtectedMemory.PACKETS, ProtectedMemory.QUEUES)
    aborted = dict.fromkeys(memories, 0)
    for epoch in epochs(lambda: "" if all(aborted.values()) else str(aborted)):
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
        memory = memories[epoch // 2 % len(memories)]
        places = config.lanes if memory is ProtectedMemory.PACKETS else config.channels
        rank, place = random.choice(bench.ranks), random.randrange(places)
        for source in bench.ranks:
            bench.store(source, partials[source])
        await ClockCycles(dut.clk, random.randrange(LONGEST // 2))
        await turn(bench, rank, memory, place, first=0 if memory is ProtectedMemory.QUEUES else random.randrange(128))
        found = await ends(dut, bench, epoch, partials, forget=rank)
        aborted[memory] += found


@cocotb.test()
async def a_lost_word_of_a_table_ends_the_epoch(dut):
    """Two bits of a word that software reads back: the epoch is aborted, and the host writes the tables anew."""
    bench = await started(dut)
    scrub = register_write(bench.config, "memory_scrub", memory_scrub=SCRUB // 4)
    await bench.all_ranks(lambda rank: bench.write(rank, [scrub]))
    for epoch in range(1, 2 * rounds(), 2):
        partials = await begun(bench, epoch)
        rank, address = random.choice(bench.ranks), table_word(bench.config)
        first, second = random.sample(range(stored_width(32)), 2)
        await turn(bench, rank, ProtectedMemory.TABLES, address, first=first, second=second, two=1)

        async def mend(rank: int, lost: int = WINDOW_BASE + 4 * address) -> None:
            """A word that is never programmed stays lost, too, until it is written."""
            await bench.write(rank, [(lost, 0)])
            await bench.program(rank)

        assert await ends(dut, bench, epoch, partials, mend=mend)


@cocotb.test()
async def a_wrong_copy_ends_the_epoch_that_uses_it(dut):
    """A bit of words as the blocks have them: the epoch is aborted, or ends right; the next one is right with nothing
    programmed, since they are broadcast anew. Blocks of two kinds at least tell: rounds go on until they have."""
    bench = await started(dut)
    users: set[TableUser] = set()

    async def note(rank: int) -> None:
        found = await fields(bench, rank, "memory_error")
        if found["memory"] == ProtectedMemory.TABLE_COPIES.value:
            users.update(user for user in TableUser if found["address"] >> user & 1)
        # What nobody has used is right again when all words have come past.
        await ClockCycles(dut.clk, 2 * SCRUB * bench.config.ranges * len(Word))

    for epoch in epochs(lambda: "" if len(users) >= 2 else f"told by {users} only"):
        partials = await begun(bench, epoch)
        for _ in range(3):
            rank, address = random.choice(bench.ranks), table_word(bench.config)
            await turn(bench, rank, ProtectedMemory.TABLE_COPIES, address, first=random.randrange(33))
        await ends(dut, bench, epoch, partials, mend=note)


async def begun(bench: RingBench, epoch: int) -> Any:
    """Arm, and store for a while."""
    partials = bench.partials()
    await bench.all_ranks(lambda rank: bench.arm(rank, epoch))
    await bench.all_ranks(lambda rank: bench.write(rank, [FORGET]))
    for rank in bench.ranks:
        bench.store(rank, partials[rank])
    await ClockCycles(bench.dut.clk, random.randrange(LONGEST // 2))
    return partials


async def ends(
    dut, bench: RingBench, epoch: int, partials, forget: int | None = None, mend: Callable | None = None
) -> bool:
    """See the epoch end, right or aborted for a memory's error (returned), and the next one, which is right. An upset
    of rank `forget` that has not been done is taken back. Between the two each rank does `mend`, if words of its tables
    were wrong, by which accesses may have been refused before that was known."""
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
                assert mend or fault in (Fault.MEMORY, Fault.PAST_THRESHOLD)
                assert (await fields(bench, rank, "memory_error"))["lost"]
        for rank in bench.ranks:
            bench.kill(rank)
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
    else:
        await bench.finish(partials)
    if mend:
        await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
        await bench.all_ranks(mend)
    await bench.all_ranks(lambda rank: bench.control(rank, clear_counters=1))
    await bench.collective(epoch + 1)
    assert await total(bench, "memory_uncorrected") == 0
    await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
    return aborted


def run(design: NodeRing, name: str, ring: str, case: str, repeats: int) -> None:
    """One of the cases."""
    environment = {"RING": ring, "ROUNDS": str(repeats)}
    simulate_ring(design, name, __name__, case, environment)


@pytest.mark.parametrize(
    ("case", "ring", "repeats"),
    [
        pytest.param("single_errors_change_nothing", "small", 4, marks=pytest.mark.wide),
        pytest.param("single_errors_change_nothing", "lanes", 3, marks=pytest.mark.wide),
        ("two_errors_end_the_epoch", "small", 4),
        ("a_poisoned_sector_ends_the_epoch", "small", 9),
        pytest.param("a_poisoned_sector_ends_the_epoch", "lanes", 6, marks=pytest.mark.wide),
        ("a_lost_word_of_a_table_ends_the_epoch", "small", 3),
        pytest.param("a_wrong_copy_ends_the_epoch_that_uses_it", "small", 6, marks=pytest.mark.wide),
        pytest.param("a_wrong_copy_ends_the_epoch_that_uses_it", "lanes", 6, marks=pytest.mark.wide),
    ],
)
def test_memory_protection(case, ring, repeats):
    run(node_ring(*CONFIGS[ring]), "node_ring", ring, case, repeats)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "single_errors_change_nothing",
        "two_errors_end_the_epoch",
        "a_poisoned_sector_ends_the_epoch",
        "a_lost_word_of_a_table_ends_the_epoch",
        "a_wrong_copy_ends_the_epoch_that_uses_it",
    ],
)
@pytest.mark.parametrize("ring", CONFIGS)
def test_memory_protection_at_length(case, ring):
    run(node_ring(*CONFIGS[ring]), "node_ring", ring, case, 40)
