"""Every program, on every number of GPUs, in ragged shapes, in step and in disorder: data as the golden says, and
traffic as the closed form, which in turn is what a table written by hand says."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.collectives import closed_forms
from sim.collectives.check import depends_on_order
from sim.collectives.cut import Cut
from sim.collectives.inputs import addends, blank
from sim.collectives.interpret import Outcome, interpret
from sim.collectives.known import PROGRAMS, program
from sim.collectives.program import Kernel, Part, Program, Region, Traffic
from sim.golden.arithmetic import BITS
from sim.golden.matmul import patterns_of
from sim.golden.replay import Command, replay, wrong_operands
from sim.host.tiling import Tiling

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
    ("direct-all-reduce", {"copied": True, "units": 4}),
    ("ring-all-gather-gemm", {"fine": True}),
    ("direct-all-gather-gemm", {"fine": True}),
    ("direct-all-gather-gemm", {"fine": True, "slices": 3}),
    ("direct-reduce-scatter", {"shifted": False}),
    ("ring-all-gather-gemm", {"shifted": False}),
    ("all-to-all", {"copied": True, "units": 4}),
    ("all-to-all-reduce-scatter", {"copied": True}),
    ("all-to-all-reduce-scatter", {"shifted": False}),
    ("broadcast-chain", {"pieces": 4, "root": 1}),
    ("broadcast-chain", {"pieces": 3, "gemm": True}),
    ("broadcast-tree", {"pieces": 3, "root": 1}),
    ("hosted-gemm", {"spread": True}),
    ("hosted-gemm", {"straight": True}),
]
CUT_ANYHOW = [(name, options) for name, options in VARIANTS if "slices" not in options]
"""Whose chunks may have any shape; tile rows that lie in slices are whole ones."""
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
@pytest.mark.parametrize(("name", "options"), CUT_ANYHOW, ids=titles(CUT_ANYHOW))
def test_ragged_shapes_agree_to_the_sector(name: str, options: dict[str, Any], gpus: int) -> None:
    made = program(name, gpus, **options)
    for rows, columns, cut in RAGGED if gpus < 4 else RAGGED[:1]:
        cuts = cuts_of(made, rows, columns, **cut)
        inputs = inputs_of(made, rows * columns)
        agree(made, inputs, interpret(made, inputs, cuts), cuts)


@pytest.mark.parametrize(("name", "options"), CUT_ANYHOW, ids=titles(CUT_ANYHOW))
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


@pytest.mark.parametrize("name", REDUCING)
def test_the_first_touch_keeps_a_negative_zero(name: str) -> None:
    """-0 and -0 is -0, and +0 when memory holds +0 before."""
    for first_touch, expected in ((True, 0x8000), (False, 0)):
        made = program(name, 4, first_touch=first_touch)
        inputs = [np.full(len(chunks), 0x8000, np.uint16) for chunks in blank(made)]
        outcome = interpret(made, inputs)
        agree(made, inputs, outcome)
        assert set(outcome.result.ravel().tolist()) == {expected}


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
    ("ring-all-gather-both", 4, {}, (6, 2, 6, 6, 6, 8)),
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
    ("hosted-gemm", 2, {}, (1, 1, 2, 1, 1, 3)),
    ("hosted-gemm", 5, {}, (4, 1, 5, 4, 4, 6)),
    ("hosted-gemm", 5, {"spread": True}, (2, 1, 5, 4, 2, 6)),
    ("hosted-gemm", 5, {"straight": True}, (1, 1, 2, 1, 1, 3)),
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


def test_a_host_by_hand() -> None:
    """Of four GPUs: each chunk of A crosses one of its links, or all of A each of them; of B and C every chunk one."""
    for straight, a in ((False, (4, 0, 0, 4, 4, 4)), (True, (1, 0, 0, 4, 1, 1))):
        form = program("hosted-gemm", 5, straight=straight).closed_form(4)
        assert [row(form[name]) for name in "abc"] == [a, (4, 0, 0, 4, 4, 4), (0, 0, 4, 0, 0, 4)]


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
    wrong = dict(form) | {"gathered": replace(form["gathered"], **{field: getattr(form["gathered"], field) + 1})}
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


def test_workgroups_find_their_rows_in_slices_of_the_depth() -> None:
    """Eight rows of 30 columns, two tile rows, each in three slices of ten columns, one below the other."""
    made = program("direct-all-gather-gemm", 4, fine=True, slices=3)
    cut = {"tile_rows": 4, "tile_columns": 16, "wfs": 2}
    cuts = {"a": Cut(3 * 8, 10, **cut), "output": Cut(8, 50, **cut)}
    inputs = inputs_of(made, 240)
    for seed in range(3):
        outcome = interpret(made, inputs, cuts, np.random.default_rng(seed))
        agree(made, inputs, outcome, cuts)
        for rank in range(4):
            assert len(outcome.waited[rank]) == 4 * 2
            for index, (part, found) in enumerate(outcome.waited[rank]):
                first = 12 * (index % 2)
                np.testing.assert_array_equal(found, inputs[part.chunk].reshape(24, 10)[first : first + 12])


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
