"""Rings of whole nodes that gather and reduce by program: a doorbell starts what lies in memory, blocks go on into
chunks with other wg numbers, and no host acts between the halves of an all-reduce."""

import os
import random
from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import cocotb
import numpy as np
import pytest
from amaranth import Module
from cocotb.triggers import ClockCycles

from hw import memory_lane, node
from hw.link import egress
from hw.link.egress import Egress
from hw.link.lane import LinkLane
from hw.memory_lane import MemoryLane
from hw.messages import Fault
from hw.node import Node
from hw.registers.map import find_register
from sim.collectives.interpret import interpret
from sim.collectives.program import Part, Program
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_all_reduce import ring_all_reduce
from sim.host.tiling import Tiling
from tb.drivers.node_program import ProgramBench
from tb.drivers.node_ring import NodeRing, simulate_ring
from tb.drivers.wrong_blocks import LeavesOutWgOffset, RingsTwice
from tb.integration.test_epochs import LANES, SMALL
from tb.runner import SimulationError

CONFIGURATIONS = {
    "small": replace(SMALL, ranges=16, trigger_blocks=128),
    "lanes": replace(LANES, ranges=16, trigger_blocks=128),
}
"""Few buffers, and a Tracker of four counters: it evicts all the time."""
TILINGS = {
    "even": Tiling(rows=8, columns=32, tile_rows=8, tile_columns=16, wfs=2, dtype_bytes=4),
    "ragged": Tiling(rows=7, columns=21, tile_rows=4, tile_columns=8, wfs=2, dtype_bytes=4, pitch_sectors=5),
    "corner": Tiling(rows=9, columns=19, tile_rows=8, tile_columns=16, wfs=4, dtype_bytes=4),
}
EPOCHS = 4

node_ring = cache(NodeRing)


def gather_of_what_lies(gpus: int) -> Program:
    """A ring all-gather without kernels: each rank's chunk lies in its memory."""
    stored = ring_all_gather(gpus, "int32")

    def regions(rank: int):
        for region in stored.regions(rank):
            yield replace(region, doorbell=region.chunk == rank)

    return replace(
        stored,
        regions=regions,
        kernels=lambda rank: (),
        lies=lambda rank: (Part("gathered", rank),),
    )


PROGRAMS = {"gather": gather_of_what_lies, "reduce": lambda gpus: ring_all_reduce(gpus, dtype="int32")}
program_of = cache(lambda name, gpus: PROGRAMS[name](gpus))


async def started(dut) -> ProgramBench:
    """The ring out of reset."""
    gpus = int(os.environ["GPUS"])
    config = CONFIGURATIONS[os.environ["NODE"]]
    bench = ProgramBench(dut, config, program_of(os.environ["PROGRAM"], gpus), TILINGS[os.environ["TILING"]])
    await bench.reset()
    return bench


async def begin_gather(bench: ProgramBench, epoch: int) -> np.ndarray:
    """Data in every memory, and every node armed."""
    chunks = np.stack([bench.chunk_data() for _ in bench.ranks])
    await bench.all_ranks(lambda rank: bench.lay(rank, {Part("gathered", rank): chunks[rank]}))
    await bench.all_ranks(lambda rank: bench.control(rank, clear_counters=1))
    await bench.all_ranks(lambda rank: bench.arm(rank, epoch))
    return chunks


async def gathered(bench: ProgramBench, chunks: np.ndarray) -> None:
    """Ring, wait for the end, and compare every memory with what its owner had."""

    async def start(rank: int) -> None:
        await ClockCycles(bench.dut.clk, random.randrange(100))
        await bench.ring_doorbells(rank)

    await bench.all_ranks(start)
    await bench.done()

    async def check(rank: int) -> None:
        for chunk in bench.ranks:
            held = await bench.held(rank, Part("gathered", chunk))
            assert (held == chunks[chunk]).all(), f"rank {rank}: chunk {chunk} is not what rank {chunk} had"
        await bench.no_fault(rank)
        await counted(bench, rank)

    await bench.all_ranks(check)


async def counted(bench: ProgramBench, rank: int) -> None:
    """The counters are the closed form, to the sector and to the tile."""
    tiling, moves = bench.tiling, bench.plan.moves(rank)
    tiles = tiling.wf_tiles
    sectors = sum(
        tile.rows * -(-tile.row_bytes // 32)
        for tile in (tiling.wf_tile(wg, wf) for wg in range(tiling.workgroups) for wf in range(tiling.wfs))
    )
    rung = sum(region.doorbell for region in bench.plan.regions(rank))
    for name, expected in (
        ("doorbell_tiles", rung * tiles),
        ("tracker_triggers", moves.triggers * tiles),
        ("dma_reads", moves.reads * sectors),
        ("dma_blocks", moves.blocks * tiling.blocks(1)),
    ):
        assert await bench.counter(rank, name) == expected, (rank, name)


@cocotb.test()
async def a_doorbell_starts_an_all_gather(dut):
    """Each memory ends with all chunks; what moved is the closed form; nothing is refused."""
    bench = await started(dut)
    for epoch in range(1, 1 + EPOCHS):
        await gathered(bench, await begin_gather(bench, epoch))


@cocotb.test()
async def a_ring_cut_short_leaves_nothing_to_the_next_epoch(dut):
    """All nodes are disarmed at any cycle of the walk and of what follows it; the next epoch is right."""
    bench = await started(dut)
    for epoch in range(1, 2 * EPOCHS, 2):
        await begin_gather(bench, epoch)
        for rank in bench.ranks:
            (writes,) = bench.nodes[rank].doorbells
            await bench.write(rank, writes)
        await ClockCycles(dut.clk, random.randrange(400))
        await bench.all_ranks(lambda rank: bench.control(rank, disarm=1))
        await bench.all_ranks(lambda rank: bench.wait(rank, "drained"))
        chunks = await begin_gather(bench, epoch + 1)
        # Ready blocks of the epoch that was cut short were dropped, which is reported.
        await bench.all_ranks(lambda rank: forget_faults(bench, rank))
        await gathered(bench, chunks)


async def forget_faults(bench: ProgramBench, rank: int) -> None:
    """Clear the fault record."""
    await bench.write(rank, [(find_register(bench.config, "interrupt_status").address, 1)])


@cocotb.test()
async def a_ring_of_a_node_that_is_not_armed_is_refused(dut):
    """A fault record says so, and nothing is counted."""
    bench = await started(dut)
    await bench.all_ranks(lambda rank: bench.program(rank))
    for rank in bench.ranks:
        (writes,) = bench.nodes[rank].doorbells
        await bench.ring_doorbell(rank, list(writes))
        assert await bench.read(rank, "fault_count") == 1
        assert await bench.read(rank, "fault_record") & 15 == Fault.NOT_ARMED.value
        assert await bench.counter(rank, "doorbell_tiles") == 0
        await forget_faults(bench, rank)
    await gathered(bench, await begin_gather(bench, 1))


@cocotb.test()
async def an_all_reduce_needs_no_host(dut):
    """The chunk that a rank reduces goes on by DMA into its neighbour's gathered array, whose wg numbers are others."""
    bench = await started(dut)
    evictions = 0
    for epoch in range(1, 1 + EPOCHS):
        parts = [Part("output", chunk) for chunk in bench.ranks]
        partials = [{part: bench.chunk_data() for part in parts} for _ in bench.ranks]
        await bench.all_ranks(lambda rank: bench.program(rank))
        await bench.all_ranks(lambda rank: bench.control(rank, clear_counters=1))
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank in bench.ranks:
            for part in bench.plan.gemm(rank).parts:
                bench.store_part(rank, part, partials[rank][part])
        await bench.done()
        inputs = [np.stack([partials[rank][part] for part in parts]).ravel() for rank in bench.ranks]
        by_program = interpret(bench.plan, inputs).result.reshape(bench.gpus, bench.gpus, -1)

        async def check(rank: int, given=partials, interpreted=by_program) -> None:
            for chunk in bench.ranks:
                held = await bench.held(rank, Part("output" if chunk == rank else "gathered", chunk))
                total = sum(given[other][Part("output", chunk)].astype(np.uint64) for other in bench.ranks)
                assert (held == total.astype(np.uint32)).all(), f"rank {rank}: chunk {chunk} is not the sum"
                assert (held.ravel() == interpreted[rank][chunk]).all(), "the program without hardware says otherwise"
            await bench.no_fault(rank)
            await counted(bench, rank)

        await bench.all_ranks(check)
        evictions += await bench.counter(0, "tracker_evictions")
    assert evictions or bench.gpus < 3, "the Tracker was to overflow"


GATHER = "a_doorbell_starts_an_all_gather"
CUT = "a_ring_cut_short_leaves_nothing_to_the_next_epoch"
UNARMED = "a_ring_of_a_node_that_is_not_armed_is_refused"
REDUCE = "an_all_reduce_needs_no_host"


def run(case: str, gpus: int, tiling: str, size: str = "small", kind: type[Node] = Node) -> None:
    """One case; no memory has a tag that says more than garbage."""
    environment = {
        "GPUS": str(gpus),
        "NODE": size,
        "TILING": tiling,
        "PROGRAM": "reduce" if case == REDUCE else "gather",
    }
    rings = node_ring if kind is Node else partial(NodeRing, node=kind)
    design = rings(CONFIGURATIONS[size], gpus)
    simulate_ring(design, "doorbell_ring", __name__, case, environment)


@pytest.mark.parametrize("case", [GATHER, REDUCE])
@pytest.mark.parametrize(
    ("gpus", "tiling"),
    [
        (3, "ragged"),
        pytest.param(2, "corner", marks=pytest.mark.wide),
        pytest.param(2, "ragged", marks=pytest.mark.wide),
        pytest.param(3, "even", marks=pytest.mark.wide),
        pytest.param(4, "ragged", marks=pytest.mark.wide),
        pytest.param(4, "corner", marks=pytest.mark.wide),
    ],
)
def test_rings(case, gpus, tiling):
    run(case, gpus, tiling)


@pytest.mark.parametrize("case", [CUT, UNARMED])
def test_epochs_of_doorbells(case):
    run(case, 3, "ragged")


@pytest.mark.slow
@pytest.mark.parametrize("case", [GATHER, REDUCE, CUT])
def test_lanes_of_one_buffer(case):
    run(case, 2, "ragged", "lanes")


class RungTwice(Node):
    """A wrong node, whose doorbell commits every tile twice."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(node, "Doorbell", RingsTwice):
            return super().elaborate(platform)


class SameNumbers(Node):
    """A wrong node, which sends a block under the wg that it has here."""

    def _lane(self) -> MemoryLane:
        return LaneOfSameNumbers(self._config)


class LaneOfSameNumbers(MemoryLane):
    """The memory side of that node."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(memory_lane, "LinkLane", SendsSameNumbers):
            return super().elaborate(platform)


class SendsSameNumbers(LinkLane):
    """A lane that knows of no wg offset."""

    def _egress(self) -> Egress:
        return EgressOfSameNumbers(self._parameters)


class EgressOfSameNumbers(Egress):
    """The egress of that lane."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(egress, "SendTable", LeavesOutWgOffset):
            return super().elaborate(platform)


@pytest.mark.wide
@pytest.mark.parametrize(("case", "kind"), [(GATHER, RungTwice), (REDUCE, SameNumbers)])
def test_wrong_nodes_are_noticed(case, kind):
    with pytest.raises(SimulationError):
        run(case, 2, "ragged", "small", kind)
