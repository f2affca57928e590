"""What no program may say, and what a topology or a node has not, is refused in one sentence."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.collectives.check import check, check_links
from sim.collectives.cut import Cut
from sim.collectives.inputs import blank
from sim.collectives.interpret import interpret
from sim.collectives.known import PROGRAMS, known_as, program
from sim.collectives.limits import Limits, check_limits, needs_of
from sim.collectives.program import Access, Kernel, Part, Program, ProgramError, Region, Send, Via
from sim.errors import UsageError
from sim.experiments.catalogue import collective
from sim.golden.arithmetic import reduce
from sim.topologies.known import TOPOLOGIES, topology
from tb.simulation.test_programs import agree, inputs_of


def gemm(*parts: Part, **fields: Any) -> Kernel:
    """A kernel that stores `parts`."""
    return Kernel("gemm", parts, **fields)


def changed(name: str, rank: int, place: int, array: str, **fields: Any) -> Program:
    """Program `name` of 4 GPUs with the region of one chunk of one rank changed."""
    right = program(name, 4)

    def regions(number: int) -> Iterator[Region]:
        for region in right.regions(number):
            here = (number, region.chunk, region.array) == (rank, place, array)
            yield replace(region, **fields) if here else region

    return replace(right, regions=regions)


def reordered(name: str, order: list[int], **fields: Any) -> Program:
    """Program `name` of 4 GPUs, whose GEMM takes the chunks of rank 0 in `order`."""
    right = program(name, 4, **fields)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        (kernel,) = right.kernels(rank)
        return (replace(kernel, parts=tuple(Part("output", chunk) for chunk in order)),) if rank == 0 else (kernel,)

    return replace(right, kernels=kernels)


def exchanged() -> Program:
    """Two ranks whose GEMMs each wait for what the other one stores after it."""
    right = program("ring-all-gather-gemm", 2)

    def regions(rank: int) -> list[Region]:
        send = (Send(1 - rank, "a", 0),)
        return [
            Region("a", 0, updates=1, launch=True),
            Region("a", 1, sends=send, via=Via.STORE),
            Region("output", 0),
        ]

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (gemm(Part("output", 0), Part("a", 1), gates={Part("output", 0): (Part("a", 0),)}),)

    return replace(right, regions=regions, kernels=kernels, lies=lambda rank: (), result=lambda rank: ())


def circle() -> Program:
    """Two chunks, each complete when the other one has come."""
    right = program("ring-all-gather", 2)

    def regions(rank: int) -> list[Region]:
        return [Region("gathered", 0, updates=1, sends=(Send(1 - rank, "gathered", 0),))]

    return replace(right, regions=regions, kernels=lambda rank: (), result=lambda rank: ())


def twice() -> Program:
    """A doorbell for a chunk that a kernel stores as well."""
    right = program("all-to-all-dma", 4)
    return replace(right, kernels=lambda rank: (gemm(Part("output", 1)),) if rank == 0 else ())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (changed("direct-reduce-scatter", 1, 1, "output", updates=3),
         r"output\[1\] of rank 1 expects 3 updates, but its local stores and all sends to it are 4"),
        (changed("split-k-reduce-scatter", 1, 1, "output", updates=4),
         r"output\[1\] of rank 1 expects 4 updates, .* are 3"),
        (changed("direct-all-gather", 0, 0, "gathered", sends=(Send(1, "gathered", 0), Send(2, "gathered", 0))),
         r"gathered\[0\] of rank 3 expects 1 updates, .* are 0"),
        (changed("all-to-all", 1, 0, "received", updates=0),
         r"rank 0 sends output\[1\] to received\[0\] of rank 1, which is not tracked there"),
        (changed("all-to-all", 0, 1, "output", sends=(Send(0, "received", 1),)),
         r"rank 0 sends output\[1\] to itself, and no link leads there"),
        (changed("all-to-all", 0, 1, "output", sends=(Send(1, "received", 0), Send(2, "received", 0))),
         r"each store to output\[1\] leaves rank 0, so it goes to one peer, not 2"),
        (changed("all-to-all-dma", 0, 1, "output", updates=0, sends=()), "has a doorbell, but is not tracked there"),
        (changed("all-to-all-dma", 0, 1, "received", doorbell=True), "is rung on rank 0, but no data lies there"),
        (changed("all-to-all-dma", 0, 1, "received", chunk=2), r"numbers of received\[2\] would be used twice"),
        (twice(), r"output\[1\] of rank 0 is complete by its doorbell, but meets 1 accesses as well"),
        (changed("ring-all-gather-gemm", 2, 1, "a", launch=False),
         r"kernel gemm of rank 2 waits for a\[1\], whose gate can never open: it raises no launch events there"),
        (reordered("ring-all-gather-gemm", [0, 3, 2]), r"has a gate before output\[1\], which it does not store"),
        (program("direct-all-gather-gemm", 4, slices=2),
         "kernel gemm reads 2 slices as they arrive, so it must multiply, have fine gates, and not split its depth"),
        (exchanged(), r"the gate a\[0\] before output\[0\] in kernel gemm of rank \d can never open: it waits"),
        (circle(), r"gathered\[0\] of rank \d can never be complete: it waits for itself"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(wrong: Program, sentence: str) -> None:
    for refuse in (check, lambda program: interpret(program, blank(program))):
        with pytest.raises(ProgramError, match=sentence) as caught:
            refuse(wrong)
        assert "\n" not in str(caught.value)


def test_any_order_without_a_circle_is_allowed() -> None:
    """The GEMM may take gathered chunks in the order in which they come last."""
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        made = reordered("ring-all-gather-gemm", order)
        inputs = inputs_of(made, 3)
        agree(made, inputs, interpret(made, inputs))


def test_two_kernels_share_a_rank() -> None:
    """The residual's kernel does not wait for the GEMM, nor the GEMM for it."""
    made = program("ring-all-reduce", 4, residual=True)
    assert [kernel.name for kernel in made.kernels(2)] == ["gemm", "residual"]
    events = interpret(made, inputs_of(made, 1)).events
    first = [(event.rank, event.part.chunk) for event in events if event.step == 0 and event.sender is None]
    # In the first round each GEMM's store goes to the neighbour; only the residuals stay.
    assert first == [(rank, rank) for rank in range(4)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_gpus_that_a_program_cannot_serve(name: str) -> None:
    for gpus, sentence in ((1, f"{name} needs at least 2 GPUs"), (65, "and at most 64, got 65")):
        with pytest.raises(ProgramError, match=sentence):
            program(name, gpus)
    check(program(name, 33))


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("ring-all-scatter", {}, "collective must be one of ring-reduce-scatter, ring-reduce-scatter-both, direct"),
        ("ring-all-gather", {"op": "max"}, "ring-all-gather has no op, only dtype"),
        ("ring-reduce-scatter", {"direction": 2}, r"direction must be \+1 or -1"),
        ("ring-all-reduce", {"pieces": 0}, "pieces must be at least 1, got 0"),
        ("split-k-reduce-scatter", {"splits": 0}, "splits must be at least 1, got 0"),
        ("broadcast-chain", {"root": 4}, "root must be a rank from 0 to 3, got 4"),
        ("broadcast-tree", {"pieces": 0}, "pieces must be at least 1"),
    ],
)
def test_programs_that_are_not_there_are_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProgramError, match=sentence):
        program(name, 4, **options)


def test_links_that_a_topology_has_not_are_refused() -> None:
    runs = {name: list(known.topologies) for name, known in PROGRAMS.items()}
    assert runs["ring-reduce-scatter"] == list(TOPOLOGIES)
    meshes = ["mesh", "ideal-switch", "switch", "hosted-mesh"]
    assert runs["ring-reduce-scatter-both"] == runs["ring-all-gather-both"] == ["ring", *meshes]
    assert runs["direct-all-gather"] == runs["broadcast-tree"] == meshes
    assert runs["hosted-gemm"] == [*meshes[:3], "hosted-ring", "hosted-mesh"]
    for name, wiring, gpus, options in (
        ("all-to-all", "ring", 4, {}),
        ("direct-reduce-scatter", "ring-one-way", 3, {}),
        ("ring-reduce-scatter", "ring-one-way", 3, {"direction": -1}),
        ("broadcast-tree", "ring", 4, {}),
    ):
        sentence = f"{name} sends from rank . to rank ., but the {wiring} has no link there"
        with pytest.raises(ProgramError, match=sentence):
            check_links(program(name, gpus, **options), topology(wiring, gpus))
    # Three GPUs on a ring both ways are a full mesh.
    check_links(program("all-to-all", 3), topology("ring", 3))


ROOMY = Limits(ranges=64, sends=64, sends_of_a_block=15, wg_bits=12, count_bits=17, ports=15)


@pytest.mark.parametrize(
    ("name", "limits", "sentence"),
    [
        ("ring-reduce-scatter", {"ranges": 7}, "ring-reduce-scatter on 8 GPUs needs 8 ranges, a node has 7"),
        ("all-to-all", {"sends": 6}, "all-to-all on 8 GPUs needs 7 sends, a node has 6"),
        ("direct-all-gather", {"sends_of_a_block": 1}, "needs 7 sends of one block, a node has 1"),
        ("direct-reduce-scatter", {"ports": 2}, "needs 7 link ports, a node has 2"),
        ("all-to-all-dma", {"doorbell": False}, "all-to-all-dma needs 7 doorbells, a node has none"),
        ("all-to-all", {"wg_offset": False}, "all-to-all sends into chunks with other wg numbers, and a node cannot"),
        ("all-to-all", {"wg_bits": 5}, "all-to-all needs 64 wg numbers, a node has 32"),
        ("direct-reduce-scatter", {"count_bits": 12}, "counts 4096 bytes for a WF tile, a node counts to 4095"),
    ],
)
def test_what_a_node_has_not_is_refused(name: str, limits: dict[str, Any], sentence: str) -> None:
    made = program(name, 8)
    cut = Cut(40, 40, 32, 32, 4, 2)
    cuts = {array.name: cut for array in made.arrays}
    check_limits(made, ROOMY, topology("mesh", 8), cuts)
    check_limits(made, replace(ROOMY, wg_bits=6, count_bits=13), topology("mesh", 8), cuts)
    with pytest.raises(ProgramError, match=sentence):
        check_limits(made, replace(ROOMY, **limits), topology("mesh", 8), cuts)


def test_what_programs_take_of_a_node() -> None:
    needs = needs_of(program("ring-all-reduce", 4, pieces=2))
    assert (needs.ranges, needs.sends, needs.sends_of_a_block) == (14, 12, 1)
    assert (needs.ports, needs.doorbells, needs.wg_offset) == (1, 0, True)
    needs = needs_of(program("direct-all-gather-gemm", 8))
    assert (needs.ranges, needs.sends, needs.sends_of_a_block) == (16, 7, 7)
    assert (needs.ports, needs.doorbells, needs.wg_offset) == (7, 1, False)


def test_updates_of_a_chunk_without_first_touch_meet_its_identity() -> None:
    """A region that is updated but not tracked: memory that nobody wrote counts as zero."""
    right = program("ring-all-gather", 2)
    bare = replace(
        right,
        regions=lambda rank: [Region("gathered", 0, Access.UPDATE)],
        kernels=lambda rank: (gemm(Part("gathered", 0), splits=2),),
        result=lambda rank: (Part("gathered", 0),),
    )
    inputs = [np.array([0x3C00, 0x4000], np.uint16)] * 2
    held = interpret(bare, inputs).result
    assert (held == reduce("add", "fp16", inputs[0][:1], inputs[0][1:])).all()


def test_a_program_of_ones_own_is_known_while_it_is_wanted() -> None:
    """On what runs on the RTL, see examples/own_collective.py."""
    name = "of-ones-own"
    with known_as(name, lambda gpus: program("direct-reduce-scatter", gpus)):
        assert collective(name, 3, wiring="mesh", shape=(60, 40, 0)).collective == name
        with pytest.raises(ProgramError, match=f"there is a collective called {name}"), known_as(name, program):
            pass
    with pytest.raises(UsageError, match="collective must be one of"):
        collective(name, 3, wiring="mesh", shape=(60, 40, 0))
