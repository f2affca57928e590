"""Rings of whole nodes whose epochs are aborted at any cycle: the next one is right in every bit, and nothing hangs."""

import os
import random
from functools import cache
from typing import Any
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from hw import node as node_module
from hw.config import Configuration, Timing
from hw.memory_clear import MemoryClear
from hw.messages import Fault
from hw.node import Node
from hw.range_table import Word
from hw.registers.map import SEND_BASE, WINDOW_BASE
from sim.host.register_writes import register_write
from sim.host.tiling import Tiling
from sim.topologies.switch import Switch
from tb.drivers.node_ring import NodeRing, RingBench, simulate_ring
from tb.runner import SimulationError

SMALL = Configuration(
    ranges=8,
    links=1,
    compute_queue_depth=4,
    communication_queue_depth=4,
    dram_queue_depth=8,
    response_depth=4,
    commit_queue_depth=8,
    remote_queue_depth=4,
    dma_packets=2,
    store_packets=2,
    link_receive_packets=4,
    link_bandwidth=512,
    link_latency=30,
    tracker_sets=4,
    tracker_ways=1,
    tracker_mshrs=2,
    trigger_blocks=16,
    wg_bits=9,
    timing=Timing(refresh=False),
)
LANES = Configuration(
    channels=2,
    links=2,
    compute_queue_depth=1,
    communication_queue_depth=2,
    dram_queue_depth=2,
    response_depth=1,
    commit_queue_depth=1,
    remote_queue_depth=1,
    dma_packets=1,
    store_packets=1,
    link_receive_packets=1,
    link_bandwidth=256,
    link_latency=5,
    tracker_sets=4,
    tracker_ways=1,
    tracker_banks=2,
    tracker_mshrs=1,
    trigger_blocks=16,
    wg_bits=9,
    ranges=4,
    timing=Timing(refresh=False),
)
RINGS: dict[str, tuple[Any, ...]] = {
    "small": (SMALL, 3),
    "lanes": (LANES, 2),
    "switched": (SMALL, 3, Node, Switch(3)),
}
"""Arguments of :class:`NodeRing`."""
TILING = Tiling(rows=8, columns=64, tile_rows=8, tile_columns=32, wfs=2, dtype_bytes=4)
"""Two WG tiles of two WF tiles a chunk, 4 rows of 4 sectors each."""
LONGEST = 900
"""Cycles in which a collective is over, when it is not held up."""
BOUND = 600
"""Cycles in which a node whose epoch has ended must be drained: what its queues and packet buffers hold is far less."""

node_ring = cache(NodeRing)


def rounds() -> int:
    """How often the running simulation repeats what it is about."""
    return int(os.environ["ROUNDS"])


async def started(dut) -> RingBench:
    """A programmed ring, nothing armed."""
    config, gpus, *joined = RINGS[os.environ["RING"]]
    bench = RingBench(dut, config, gpus, TILING, *joined[1:])
    await bench.reset()
    await bench.all_ranks(bench.program)
    return bench


async def begin(bench: RingBench, epoch: int, cycles: int) -> None:
    """Run an epoch for some cycles, and end its kernels."""
    await bench.all_ranks(lambda rank: bench.arm(rank, epoch))
    for rank, partial in enumerate(bench.partials()):
        bench.store(rank, partial)
    await ClockCycles(bench.dut.clk, cycles)
    for rank in bench.ranks:
        bench.kill(rank)


@cocotb.test()
async def an_epoch_aborted_at_any_cycle_leaves_nothing_to_the_next(dut):
    """All nodes end an epoch at a random cycle, by `disarm` or by arming at once; the next epoch's sums are right."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        await begin(bench, epoch, random.randrange(LONGEST))
        if random.random() < 0.5:
            await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
        await bench.collective(epoch + 1)


@cocotb.test()
async def nothing_old_is_accepted_in_an_epoch_without_stores(dut):
    """The next epoch is armed at once, and no GPU stores anything: nothing may be sent or received in it, and the
    memory that no store of the new epoch has touched is given no tag of it."""
    bench = await started(dut)
    for epoch in range(1, 3 * rounds(), 3):
        await begin(bench, epoch, random.randrange(40, LONGEST))
        await bench.all_ranks(lambda rank, following=epoch + 1: bench.arm(rank, following, clear_counters=1))
        await bench.all_ranks(lambda rank: bench.control(rank, clear_counters=1))
        await ClockCycles(dut.clk, LONGEST)
        for rank in bench.ranks:
            for counter in ("link0_sent_packets", "link0_received_packets", "dma_reads", "tracker_accesses"):
                assert await bench.read(rank, f"{counter}_low") == 0, (rank, counter)
        await bench.collective(epoch + 2)


@cocotb.test()
async def one_node_aborts_and_goes_ahead(dut):
    """One node ends its epoch and arms the next while the others are still in the old one, which they end later."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        await begin(bench, epoch, random.randrange(LONGEST))
        ahead = random.choice(bench.ranks)
        partials = bench.partials()
        await bench.arm(ahead, epoch + 1)
        bench.store(ahead, partials[ahead])
        await ClockCycles(dut.clk, random.randrange(200))
        behind = [rank for rank in bench.ranks if rank != ahead]
        random.shuffle(behind)
        for rank in behind:
            await bench.arm(rank, epoch + 1)
            bench.store(rank, partials[rank])
            await ClockCycles(dut.clk, random.randrange(200))
        await bench.finish(partials)


@cocotb.test()
async def a_neighbour_that_never_arms_holds_up_one_epoch_only(dut):
    """Its stores stuck behind a grant that never comes, a node answers no more plain reads; from `disarm` on it is
    drained in a bounded time, answers again, and the next epoch is right."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        silent = random.choice(bench.ranks)
        others = [rank for rank in bench.ranks if rank != silent]
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number), others)
        for rank in others:
            bench.store(rank, bench.partials()[rank])
        await ClockCycles(dut.clk, 2 * LONGEST)
        for rank in others:
            bench.kill(rank)
            assert any(source.queue for source in bench.compute[rank]) or rank != (silent - 1) % bench.gpus
        await bench.all_ranks(lambda rank: bench.control(rank, disarm=1), others)
        bench.limit = BOUND
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"), others)
        await bench.all_ranks(bench.plain_range_answers)
        bench.limit = 60000
        await bench.collective(epoch + 1)


@cocotb.test()
async def arming_waits_and_can_be_called_off(dut):
    """While an arming waits for what is left, `disarm` calls it off; another one takes its place. The epoch register
    may hold anything once the arming was called for."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        await begin(bench, epoch, random.randrange(LONGEST))
        await bench.all_ranks(lambda rank: bench.call(rank, 0xEE))
        await ClockCycles(dut.clk, random.randrange(20))
        if random.random() < 0.5:
            await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
            if random.random() < 0.5:
                await ClockCycles(dut.clk, random.randrange(60))
                for rank in bench.ranks:
                    assert not await bench.status(rank, "arming") and not await bench.status(rank, "armed")
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch + 1: bench.arm(rank, number))
        for rank in bench.ranks:
            bench.store(rank, partials[rank])
            await bench.write(rank, [register_write(bench.config, "epoch", epoch=random.randrange(256))])
        await bench.finish(partials)


@cocotb.test()
async def nothing_is_programmed_in_an_epoch(dut):
    """While an epoch is armed a write to a table is refused, recorded, and of no consequence; once it is drained tables
    are written as ever."""
    bench = await started(dut)
    wrong = [(WINDOW_BASE, 0), (SEND_BASE, 0), (WINDOW_BASE + 4 * Word.LIMIT_LOW.value, 1)]
    for epoch in range(1, 2 * rounds(), 2):
        partials = bench.partials()
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank in bench.ranks:
            bench.store(rank, partials[rank])
        await ClockCycles(dut.clk, random.randrange(LONGEST // 2))
        rank = random.choice(bench.ranks)
        await bench.write(rank, wrong, AxiResp.SLVERR)
        assert await bench.read(rank, "fault_record") & 15 == Fault.LOCKED.value
        await bench.write(rank, [register_write(bench.config, "interrupt_status", fault=1)])
        await bench.finish(partials)
        await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
        await bench.all_ranks(bench.program)
        await bench.collective(epoch + 1)


@cocotb.test()
async def memory_keeps_nothing_for_the_epoch_after_a_reset(dut):
    """Garbage whose tags are the first epoch's, and resets of all nodes at any cycle, the memories' contents kept: an
    epoch of the same number is right each time, and so are others whose ranges lie elsewhere."""
    bench = await started(dut)
    for _ in range(rounds()):
        await bench.collective(1)
        await begin(bench, random.choice([2, 3]), random.randrange(LONGEST))
        await bench.reset()
        await bench.all_ranks(bench.program)
        await begin(bench, 1, random.randrange(LONGEST))
        await bench.reset()
        await bench.all_ranks(bench.program)
        if random.random() < 0.3:
            await bench.collective(4)


CASES = {
    "an_epoch_aborted_at_any_cycle_leaves_nothing_to_the_next": 20,
    "nothing_old_is_accepted_in_an_epoch_without_stores": 8,
    "one_node_aborts_and_goes_ahead": 20,
    "a_neighbour_that_never_arms_holds_up_one_epoch_only": 5,
    "arming_waits_and_can_be_called_off": 20,
    "nothing_is_programmed_in_an_epoch": 5,
    "memory_keeps_nothing_for_the_epoch_after_a_reset": 8,
}
"""Rounds of each case; the quick tests do a third of them."""


def run(design: NodeRing, name: str, ring: str, case: str, repeats: int) -> None:
    """One of the cases; no memory has a tag that says more than garbage."""
    environment = {"RING": ring, "ROUNDS": str(repeats)}
    simulate_ring(design, name, __name__, case, environment)


@pytest.mark.parametrize("case", CASES)
def test_epochs(case):
    run(node_ring(*RINGS["small"]), "node_ring", "small", case, -(-CASES[case] // 3))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ring", RINGS)
def test_epochs_at_length(ring, case):
    run(node_ring(*RINGS[ring]), "node_ring", ring, case, CASES[case])


class TrustsRecords(Node):
    """A wrong node, which clears the tags but not the backing store."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(node_module, "MemoryClear", ClearsNoRecords):
            return super().elaborate(platform)


class ClearsNoRecords(MemoryClear):
    """A sweep that knows of no backing store."""

    def elaborate(self, platform: object) -> Module:
        self.backing_base = Const(0, self._config.va_sector_bits)
        return super().elaborate(platform)


@pytest.mark.slow
def test_records_from_before_a_reset_are_noticed():
    case = "memory_keeps_nothing_for_the_epoch_after_a_reset"
    with pytest.raises(SimulationError):
        run(NodeRing(SMALL, 3, TrustsRecords), "trusting_ring", "small", case, CASES[case])
