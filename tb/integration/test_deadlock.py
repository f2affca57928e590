"""Every program that a topology serves, back to back in random order, on whole nodes with every buffer at one entry and
random stalls: nothing comes to a stop, and what every memory holds in the end is the program's outcome."""

import itertools
import os
import random
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from hw.config import Configuration
from hw.node import Node
from sim.collectives.check import check_links, regions_of
from sim.collectives.inputs import blank, given
from sim.collectives.interpret import interpret
from sim.collectives.known import PROGRAMS
from sim.collectives.program import Part, Program, ProgramError
from sim.host.tiling import Tiling
from sim.sequences.sequence import every_pair
from sim.topologies.known import topology
from tb.drivers.node_program import ProgramBench
from tb.drivers.node_ring import NodeRing, simulate_ring
from tb.drivers.stream import stalls
from tb.integration.test_epochs import LANES

TILING = Tiling(rows=7, columns=13, tile_rows=4, tile_columns=8, wfs=2, dtype_bytes=4)
"""Of every chunk: ragged both ways."""
STALLS = 0, 60, 160
"""Probabilities / 256 that a link takes nothing in a cycle."""
MOST_EPOCHS = 255


def smallest(ports: int) -> Configuration:
    """A node whose every buffer has one entry, and whose Tracker holds four counters."""
    return replace(LANES, channels=1, links=ports, dma_blocks=1, ranges=16, trigger_blocks=128, tracker_banks=1)


def served(wiring: str, gpus: int) -> list[Program]:
    """The programs for which the topology has the links, of integers, whose sums have no order."""
    found = []
    for known in PROGRAMS.values():
        try:
            program = known.make(gpus, dtype="int32")
            check_links(program, topology(wiring, gpus))
        except ProgramError:
            continue
        found.append(program)
    return found


class BackToBack(ProgramBench):
    """Runs one program after another."""

    def __init__(self, dut, wiring: str, gpus: int):
        joined = topology(wiring, gpus)
        self.programs = served(wiring, gpus)
        super().__init__(dut, smallest(joined.ports), self.programs[0], TILING, joined)
        self.epoch = 0
        self.limit = 20_000

    def stall_otherwise(self) -> None:
        """Other stalls than before, of links, compute units and their answers."""
        self.dut.stall.value = random.choice(STALLS)
        for rank in self.ranks:
            for port in (*self.compute[rank], *self.answers[rank]):
                port.stall = stalls(random.choice((0, 30, 70)))

    async def epoch_of(self, program: Program) -> None:
        """A whole epoch of `program`, from data in memory to the comparison of all results."""
        self.use(program)
        self.stall_otherwise()
        self.epoch = self.epoch % MOST_EPOCHS + 1
        elements = TILING.rows * TILING.columns
        inputs = [np.frombuffer(random.randbytes(4 * elements * zeros.size), np.uint32) for zeros in blank(program)]
        pieces = [given(program, rank, inputs[rank]) for rank in self.ranks]
        expected = interpret(program, inputs).memory

        def shaped(piece: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(piece.reshape(TILING.rows, TILING.columns))

        async def prepare(rank: int) -> None:
            await self.control(rank, disarm=1)
            await self.wait(rank, "drained")
            await self.lay(rank, {part: shaped(piece) for part, piece in pieces[rank].lies.items()})
            await ClockCycles(self.dut.clk, random.randrange(1, 200))
            await self.arm(rank, self.epoch)

        outputs: dict[tuple[int, Part], np.ndarray] = {}

        async def work(rank: int) -> None:
            for number, kernel in enumerate(program.kernels(rank)):
                if not kernel.gates:
                    for part in kernel.parts:
                        for split in range(kernel.splits):
                            self.store_part(rank, part, shaped(pieces[rank].stores[number, part, split]))
            await self.ring_in_turns(rank)
            for kernel in program.kernels(rank):
                for part in kernel.parts if kernel.gates else ():
                    await self.complete(rank, kernel.gates[part])
                    outputs[rank, part] = self.chunk_data()
                    self.store_part(rank, part, outputs[rank, part])
            for source in self.compute[rank]:
                await source.drain()

        # A node may be granted to send before its neighbour is armed, so all are armed side by side.
        await self.all_ranks(prepare)
        await self.all_ranks(work)
        await self.done()

        async def check(rank: int) -> None:
            # What stays where it lay has no range, so it cannot be read while the program runs.
            for part in sorted(set(program.result(rank)) & set(regions_of(program, rank))):
                held = await self.held(rank, part)
                wanted = expected[rank][part].view(np.uint32).ravel()
                assert (held.ravel() == wanted).all(), f"{program.name}: {part} of rank {rank} is wrong"
            for (owner, part), stored in outputs.items():
                if owner == rank:
                    # A part that lies in memory already is added to.
                    laid = pieces[rank].lies.get(part)
                    wanted = stored if laid is None else stored + shaped(laid).view(stored.dtype)
                    assert (await self.held(rank, part) == wanted).all(), f"{program.name}: {part} was not stored"
            await self.no_fault(rank)

        await self.all_ranks(check)

    async def ring_in_turns(self, rank: int) -> None:
        """The doorbells of a rank as its program has them."""
        for writes in self.nodes[rank].doorbells:
            await self.ring_doorbell(rank, list(writes))

    async def complete(self, rank: int, parts: tuple[Part, ...]) -> None:
        """Return when the regions of `parts` are complete."""
        indices = [item.index for item in self.nodes[rank].ranges if item.region.part in parts]
        for _ in range(self.limit // 5):
            seen = await self.read(rank, "done_ranges_low")
            if all(seen >> index & 1 for index in indices):
                return
        raise AssertionError(f"rank {rank}: {', '.join(map(str, parts))} never complete")


def bench_of(dut) -> BackToBack:
    """The bench that the environment describes."""
    return BackToBack(dut, os.environ["WIRING"], int(os.environ["GPUS"]))


@cocotb.test()
async def programs_in_random_order(dut):
    """As many epochs as are asked for, 0: one of each; every program comes up before any comes up again."""
    bench = bench_of(dut)
    await bench.reset()
    waiting: list[Program] = []
    for _ in range(int(os.environ["EPOCHS"]) or len(bench.programs)):
        if not waiting:
            waiting = random.sample(bench.programs, len(bench.programs))
        await bench.epoch_of(waiting.pop())


@cocotb.test()
async def every_ordered_pair(dut):
    """Each program right after each program, itself too."""
    bench = bench_of(dut)
    await bench.reset()
    for program in every_pair(bench.programs):
        await bench.epoch_of(program)


def nodes(wiring: str, gpus: int, node: type[Node] = Node) -> NodeRing:
    """The design."""
    joined = topology(wiring, gpus)
    return NodeRing(smallest(joined.ports), gpus, node, joined)


def run(wiring: str, gpus: int, case: str, epochs: int = 0, node: type[Node] = Node) -> None:
    """One case; no memory has a tag that says more than garbage."""
    environment = {"WIRING": wiring, "GPUS": str(gpus), "EPOCHS": str(epochs)}
    design = nodes(wiring, gpus, node)
    simulate_ring(design, "nodes", __name__, case, environment)


WIRINGS = ["ring", "ring-one-way", "mesh", "ideal-switch", "switch"]
IN_ORDER, PAIRS = "programs_in_random_order", "every_ordered_pair"


@pytest.mark.parametrize(
    "wiring",
    [
        pytest.param("ring", marks=pytest.mark.wide),
        "mesh",
        pytest.param("ideal-switch", marks=pytest.mark.wide),
        "switch",
    ],
)
def test_programs_follow_one_another_without_a_stop(wiring):
    run(wiring, 3, IN_ORDER)


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [3, 4])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_many_epochs_follow_one_another(wiring, gpus):
    """A thousand are run where all of it is compiled, in tb/simulation/test_sequences.py."""
    run(wiring, gpus, IN_ORDER, 60)


def test_every_pair_comes_once():
    row = every_pair(range(14))
    assert sorted(itertools.pairwise(row)) == [(one, other) for one in range(14) for other in range(14)]


@pytest.mark.slow
@pytest.mark.parametrize(("wiring", "gpus"), [("mesh", 2), *((wiring, 4) for wiring in WIRINGS)])
def test_every_program_follows_every_program(wiring, gpus):
    run(wiring, gpus, PAIRS)
