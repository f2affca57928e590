"""Every program, on every number of GPUs, in ragged shapes, in step and in disorder: data as the golden says, and
traffic as the closed form, which in turn is what a table written by hand says."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.collectives import closed_forms
from sim.collectives.check import check, check_links, depends_on_order
from sim.collectives.cut import Cut
from sim.collectives.inputs import addends, blank
from sim.collectives.interpret import Outcome, interpret
from sim.collectives.known import PROGRAMS, program
from sim.collectives.limits import Limits, check_limits, needs_of
from sim.collectives.program import Access, Kernel, Part, Program, ProgramError, Region, Send, Traffic, Via
from sim.golden.arithmetic import BITS, reduce
from sim.golden.matmul import patterns_of
from sim.golden.replay import Command, replay, wrong_operands
from sim.host.tiling import Tiling
from sim.topologies.known import TOPOLOGIES, topology

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PROGRAMS),
    ("ring-reduce-scatter", {"direction": -1}),
    ("split-k-reduce-scatter", {"splits": 1}),
    ("split-k-reduce-scatter", {"splits": 3}),
    ("ring-all-reduce", {"pieces": 2}),
    ("ring-all-reduce", {"pieces": 4}),
    ("ring-all-reduce", {"residual": True}),
    ("ring-all-reduce", {"splits": 2}),
    ("ring-all-reduce", {"pieces": 2, "splits": 3, "residual": True}),
    ("direct-all-reduce", {"residual": True}),
    ("ring-all-gather-gemm", {"fine": True}),
    ("direct-all-gather-gemm", {"fine": True}),
    ("broadcast-chain", {"pieces": 4, "root": 1}),
    ("broadcast-tree", {"pieces": 3, "root": 1}),
]
REDUCING = [name for name, known in PROGRAMS.items() if "op" in known.options]


def titles(variants: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What pytest calls them."""
    return ["-".join([name, *(f"{option}{value}" for option, value in options.items())]) for name, options in variants]


def inputs_of(program: Program, elements: int, seed: int = 5) -> list[np.ndarray]:
    """Random inputs, `elements` per chunk, whose sums are exact in any order: small whole numbers."""
    rng = np.random.default_rng(seed)
    dtype = program.arrays[0].dtype
    low, high = (-(2**31), 2**31) if dtype == "int32" else (-3, 4)
    return [
        patterns_of(dtype, rng.integers(low, high, len(chunks) * elements).astype(np.float64))
        for chunks in blank(program)
    ]


def random_bits(program: Program, elements: int, seed: int = 5) -> list[np.ndarray]:
    """Random bit patterns, infinities and NaNs among them."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, np.iinfo(kind.dtype).max, len(kind) * elements, kind.dtype, True) for kind in blank(program)
    ]


def agree(program: Program, inputs: list[np.ndarray], outcome: Outcome, cuts: dict[str, Cut] | None = None) -> None:
    """Data with the golden, traffic of every rank with the closed form."""
    np.testing.assert_array_equal(outcome.result, program.golden(inputs))
    for rank in range(program.gpus):
        form = program.closed_form(rank)
        if cuts is None:
            assert outcome.moved[rank] == form
        else:
            assert outcome.traffic[rank] == closed_forms.in_sectors(form, cuts)


@pytest.mark.parametrize("gpus", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=titles(VARIANTS))
def test_every_program_agrees_with_golden_and_closed_form(name: str, options: dict[str, Any], gpus: int) -> None:
    made = program(name, gpus, **options)
    assert made.name == name
    inputs = inputs_of(made, 6)
    agree(made, inputs, interpret(made, inputs))


def cuts_of(program: Program, rows: int, columns: int, **cut: int) -> dict[str, Cut]:
    """Chunks of `rows` x `columns`; what a GEMM computes of gathered chunks is twice as wide, in tiles as high."""
    size = BITS[program.arrays[0].dtype] // 8
    wide = {"columns": 2 * columns + 1} if any(array.name == "a" for array in program.arrays) else {}
    whole = Cut(rows, columns, element_bytes=size, **cut)
    return {array.name: replace(whole, **(wide if array.name == "output" else {})) for array in program.arrays}


RAGGED = [
    (37, 50, {"tile_rows": 16, "tile_columns": 16, "wfs": 4, "block_wfs": 3}),
    (16, 16, {"tile_rows": 16, "tile_columns": 16, "wfs": 1}),
    (5, 7, {"tile_rows": 32, "tile_columns": 32, "wfs": 8, "block_wfs": 8}),
    (33, 17, {"tile_rows": 8, "tile_columns": 48, "wfs": 2, "block_wfs": 2}),
]


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=titles(VARIANTS))
def test_ragged_shapes_agree_to_the_sector(name: str, options: dict[str, Any], gpus: int) -> None:
    made = program(name, gpus, **options)
    for rows, columns, cut in RAGGED if gpus < 4 else RAGGED[:1]:
        cuts = cuts_of(made, rows, columns, **cut)
        inputs = inputs_of(made, rows * columns)
        agree(made, inputs, interpret(made, inputs, cuts), cuts)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=titles(VARIANTS))
def test_neither_data_nor_traffic_depends_on_when_anything_arrives(name: str, options: dict[str, Any]) -> None:
    made = program(name, 4, **options)
    cuts = cuts_of(made, 9, 20, tile_rows=4, tile_columns=16, wfs=2)
    inputs = inputs_of(made, 180)
    for seed in range(3):
        agree(made, inputs, interpret(made, inputs, cuts, np.random.default_rng(seed)), cuts)


@pytest.mark.parametrize("first_touch", [True, False])
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int32"])
@pytest.mark.parametrize("name", REDUCING)
def test_every_type_and_operation(name: str, dtype: str, op: str, first_touch: bool) -> None:
    made = program(name, 4, dtype=dtype, op=op, first_touch=first_touch)
    anything = op != "add" or not depends_on_order(made)
    for seed in range(2):
        inputs = (random_bits if anything else inputs_of)(made, 12, seed)
        agree(made, inputs, interpret(made, inputs, rng=np.random.default_rng(seed)))


# Columns as in the table of the requirement: read, own writes, arriving writes, egress, DMA blocks, triggered; written
# down from it by hand, for all arrays that are communicated.
BY_HAND: list[tuple[str, int, dict[str, Any], tuple[int, ...]]] = [
    ("ring-reduce-scatter", 2, {}, (0, 1, 1, 1, 0, 1)),
    ("ring-reduce-scatter", 3, {}, (1, 2, 2, 2, 1, 2)),
    ("ring-reduce-scatter", 8, {}, (6, 7, 7, 7, 6, 7)),
    ("ring-reduce-scatter", 8, {"direction": -1}, (6, 7, 7, 7, 6, 7)),
    ("ring-reduce-scatter-both", 4, {}, (4, 6, 6, 6, 4, 6)),
    ("direct-reduce-scatter", 4, {}, (0, 1, 3, 3, 0, 1)),
    ("direct-reduce-scatter", 16, {}, (0, 1, 15, 15, 0, 1)),
    ("ring-all-gather", 4, {}, (3, 1, 3, 3, 3, 4)),
    ("direct-all-gather", 8, {}, (1, 1, 7, 7, 1, 8)),
    ("all-to-all", 8, {}, (0, 1, 7, 7, 0, 8)),
    ("all-to-all-dma", 8, {}, (7, 0, 7, 7, 7, 14)),
    ("ring-all-reduce", 8, {}, (13, 7, 14, 14, 13, 14)),
    ("ring-all-reduce", 2, {}, (1, 1, 2, 2, 1, 2)),
    ("ring-all-reduce", 4, {"pieces": 2}, (10, 6, 12, 12, 10, 12)),
    ("ring-all-reduce", 4, {"residual": True}, (5, 4, 6, 6, 5, 6)),
    ("ring-all-reduce", 4, {"splits": 3}, (5, 9, 8, 8, 5, 6)),
    ("direct-all-reduce", 8, {}, (1, 7 - 6, 14, 14, 1, 8)),
    ("direct-all-reduce", 4, {"residual": True}, (1, 2, 6, 6, 1, 4)),
    ("ring-all-gather-gemm", 4, {}, (3, 0, 3, 3, 3, 4)),
    ("direct-all-gather-gemm", 4, {}, (1, 0, 3, 3, 1, 4)),
    ("split-k-reduce-scatter", 4, {"splits": 3}, (2, 9, 5, 5, 2, 3)),
    ("split-k-reduce-scatter", 2, {"splits": 2}, (0, 2, 2, 2, 0, 1)),
    ("broadcast-chain", 4, {}, (1, 0, 0, 1, 1, 1)),
    ("broadcast-tree", 4, {}, (1, 0, 0, 2, 1, 1)),
]


def row(moved: Traffic) -> tuple[int, ...]:
    """The columns of the table."""
    own = moved.local_stores + moved.local_updates
    return moved.reads, own, moved.arriving, moved.egress, moved.blocks, moved.triggers


@pytest.mark.parametrize(("name", "gpus", "options", "expected"), BY_HAND)
def test_closed_forms_and_interpretation_are_the_table(
    name: str, gpus: int, options: dict[str, Any], expected: tuple[int, ...]
) -> None:
    made = program(name, gpus, **options)
    outcome = interpret(made, inputs_of(made, 2))
    computed = {"output"} if any(array.name == "a" for array in made.arrays) else set()
    for moved in (made.closed_form(0), outcome.moved[0]):
        assert row(sum((moved[array] for array in moved if array not in computed), Traffic())) == expected


def test_ranks_of_a_broadcast_by_hand() -> None:
    """Five ranks from rank 3 on: 3 sends to 4 and 0, 4 to 1 and 2; as a chain 3, 4, 0, 1, 2."""
    tree = [program("broadcast-tree", 5, pieces=2, root=3).closed_form(rank)["data"] for rank in range(5)]
    assert [moved.egress for moved in tree] == [0, 0, 0, 4, 4]
    assert [moved.reads for moved in tree] == [0, 0, 0, 2, 2]
    assert [moved.arriving_stores for moved in tree] == [2, 2, 2, 0, 2]
    chain = [program("broadcast-chain", 5, pieces=2, root=3).closed_form(rank)["data"] for rank in range(5)]
    assert [moved.egress for moved in chain] == [2, 2, 0, 2, 2]
    assert [moved.arriving_stores for moved in chain] == [2, 2, 2, 0, 2]
    assert {moved.triggers for moved in (*tree, *chain)} == {2}


def test_sectors_of_a_ragged_chunk_by_hand() -> None:
    """40 x 40 FP16 in tiles of 32 x 32, 4 WFs of 8 rows, 2 to a block: 3 sectors a row, 2 across; 4 WF tiles in the
    upper tiles, 1 in the lower ones."""
    cut = Cut(40, 40, 32, 32, 4, 2)
    assert (cut.sectors, cut.wf_tiles, cut.blocks, cut.workgroups, cut.wf_tile_bytes) == (120, 10, 6, 4, 512)
    made = program("direct-all-reduce", 4)
    cuts = {"output": cut, "gathered": cut}
    expected = Traffic(
        reads=120, local_updates=120, arriving_stores=360, arriving_updates=360, egress=720, blocks=6, triggers=40
    )
    assert closed_forms.in_sectors(made.closed_form(0), cuts) == expected
    inputs = inputs_of(made, 1600)
    assert interpret(made, inputs, cuts).traffic == (expected,) * 4


@pytest.mark.parametrize("size", [2, 4])
def test_cuts_count_what_tilings_count(size: int) -> None:
    """Two that share nothing: a cut of the interpreter, and the host's tiling."""
    for rows, columns in ((37, 50), (128, 256), (300, 200), (1, 1), (33, 17), (129, 130)):
        for wfs, block in ((1, 1), (4, 2), (8, 3), (8, 8)):
            cut = Cut(rows, columns, 64, 64, wfs, block, size)
            tiling = Tiling(rows, columns, 64, 64, wfs, size)
            assert (cut.sectors, cut.wf_tiles, cut.blocks) == (tiling.sectors, tiling.wf_tiles, tiling.blocks(block))
            assert cut.workgroups == tiling.workgroups
            tiles = list(cut.tiles())
            counted = sum(tile.sectors for tile in tiles), len(tiles), len({tile.block for tile in tiles})
            assert counted == (cut.sectors, cut.wf_tiles, cut.blocks)


@pytest.mark.parametrize("field", ["reads", "local_updates", "arriving_stores", "egress", "blocks", "triggers"])
def test_wrong_traffic_is_caught(field: str) -> None:
    """The comparison fails when a closed form is wrong, or when something is moved twice or not at all."""
    right = program("ring-all-reduce", 4)
    form = right.closed_form(0)
    wrong = form | {"gathered": replace(form["gathered"], **{field: getattr(form["gathered"], field) + 1})}
    inputs = inputs_of(right, 4)
    with pytest.raises(AssertionError):
        agree(replace(right, closed_form=lambda rank: wrong), inputs, interpret(right, inputs))


def test_wrong_data_is_caught() -> None:
    """A multicast that leaves one peer a chunk of another rank, and an all-to-all that mixes up places."""
    right = program("all-to-all", 4)

    def turned(rank: int) -> Iterator[Region]:
        for region in right.regions(rank):
            swap = {1: 2, 2: 1}
            sends = tuple(replace(send, chunk=swap.get(send.chunk, send.chunk)) for send in region.sends)
            yield replace(region, sends=sends if region.chunk == 3 else region.sends)

    wrong = replace(right, regions=turned)
    inputs = inputs_of(right, 4)
    with pytest.raises(AssertionError):
        agree(wrong, inputs, interpret(wrong, inputs))


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("name", ["ring-all-gather-gemm", "direct-all-gather-gemm"])
def test_workgroups_find_what_the_owner_wrote(name: str, fine: bool) -> None:
    made = program(name, 4, fine=fine)
    cuts = cuts_of(made, 9, 20, tile_rows=4, tile_columns=16, wfs=2)
    inputs = inputs_of(made, 180)
    outcome = interpret(made, inputs, cuts, np.random.default_rng(3))
    for rank in range(4):
        assert len(outcome.waited[rank]) == 4 * 3
        for index, (part, found) in enumerate(outcome.waited[rank]):
            owned = inputs[part.chunk].reshape(9, 20)
            down = 4 * (index % 3)
            np.testing.assert_array_equal(found, owned[down : down + 4] if fine else owned)


def test_a_gate_that_opens_early_is_caught() -> None:
    """Without its gates the GEMM begins before anything has come."""
    right = program("ring-all-gather-gemm", 4)

    def ungated(rank: int) -> tuple[Kernel, ...]:
        (gemm,) = right.kernels(rank)
        early = {part: gates if part.chunk == rank else (Part("a", rank),) for part, gates in gemm.gates.items()}
        return (replace(gemm, gates=early),)

    inputs = inputs_of(right, 4)
    found = interpret(replace(right, kernels=ungated), inputs).waited[0]
    assert [part.chunk for part, _ in found] == [0, 0, 0, 0]
    assert [part.chunk for part, _ in interpret(right, inputs).waited[0]] == [0, 3, 2, 1]


def test_what_depends_on_order_is_known_and_not_guessed() -> None:
    dependent = {name for name in PROGRAMS if depends_on_order(program(name, 4))}
    assert dependent == {"direct-reduce-scatter", "direct-all-reduce", "split-k-reduce-scatter"}
    assert not depends_on_order(program("direct-reduce-scatter", 2))
    assert not depends_on_order(program("direct-reduce-scatter", 4, dtype="int32"))
    assert not depends_on_order(program("direct-reduce-scatter", 4, op="max"))
    assert depends_on_order(program("ring-all-reduce", 4, residual=True))
    made = program("direct-reduce-scatter", 4)
    rng = np.random.default_rng(0)
    inputs = [patterns_of("fp16", rng.standard_normal(400)) for _ in range(4)]
    results = {interpret(made, inputs, rng=np.random.default_rng(seed)).result.tobytes() for seed in range(4)}
    assert len(results) > 1
    with pytest.raises(ValueError, match="the sum of these 4 fp16 operands depends on the order"):
        made.golden(inputs)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("direct-reduce-scatter", {}),
        ("split-k-reduce-scatter", {"splits": 3}),
        ("ring-all-reduce", {"pieces": 2, "residual": True}),
        ("direct-all-reduce", {"dtype": "bf16"}),
    ],
)
def test_the_order_in_which_addends_came_can_be_replayed(name: str, options: dict[str, Any]) -> None:
    """Of random floats, in the order of an interpretation in disorder: sector for sector what memory holds, and met by
    what its ranks must have sent."""
    made = program(name, 4, **options)
    rng = np.random.default_rng(0)
    dtype = made.arrays[0].dtype
    inputs = [patterns_of(dtype, rng.standard_normal(32 * len(chunks))) for chunks in blank(made)]
    outcome = interpret(made, inputs, rng=np.random.default_rng(1))
    assert depends_on_order(made)
    checked = 0
    for rank in range(4):
        for (part, _), met in outcome.met[rank].items():
            if made.array(part.array).traffic != "rs":
                continue
            wanted = addends(made, inputs, outcome.memory, rank, part)
            for first in (0, 16):
                lanes = slice(first, first + 16)
                commands = [Command("add", data[0, lanes].tobytes(), first=not index) for index, data in enumerate(met)]
                assert replay(commands, dtype) == outcome.memory[rank][part][0, lanes].tobytes()
                assert wrong_operands(commands, [data[0, lanes].tobytes() for data in wanted]) is None
                doubled = [*commands[:-1], commands[0]._replace(first=False)]
                assert wrong_operands(doubled, [data[0, lanes].tobytes() for data in wanted]) is not None
                checked += 1
    assert checked >= 8


# What no program may say.


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
        ("ring-all-reduce", {"pieces": 0}, "pieces and splits must be at least 1, got 0 and 1"),
        ("split-k-reduce-scatter", {"splits": 0}, "splits must be at least 1, got 0"),
        ("broadcast-chain", {"root": 4}, "the root a rank, got 1 and 4 of 4"),
        ("broadcast-tree", {"pieces": 0}, "pieces must be at least 1"),
    ],
)
def test_programs_that_are_not_there_are_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProgramError, match=sentence):
        program(name, 4, **options)


def test_links_that_a_topology_has_not_are_refused() -> None:
    runs = {name: list(known.topologies) for name, known in PROGRAMS.items()}
    assert runs["ring-reduce-scatter"] == list(TOPOLOGIES)
    assert runs["ring-reduce-scatter-both"] == ["ring", "mesh", "ideal-switch", "switch"]
    assert runs["direct-all-gather"] == runs["broadcast-tree"] == ["mesh", "ideal-switch", "switch"]
    for name, wiring, gpus, options in (
        ("all-to-all", "ring", 4, {}),
        ("direct-reduce-scatter", "ring-one-way", 3, {}),
        ("ring-reduce-scatter", "ring-one-way", 3, {"direction": -1}),
        ("broadcast-tree", "ring", 4, {}),
    ):
        sentence = f"{name} sends from rank . to rank ., but the ring has no link there"
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
