"""Goldens of sums whose order is not known, replays of an order that is, and the layouts of a user's results."""

import itertools
from functools import reduce as fold

import numpy as np
import pytest

from sim.collectives.interpret import interpret
from sim.collectives.known import program
from sim.golden import nccl
from sim.golden.arithmetic import reduce
from sim.golden.matmul import patterns_of
from sim.golden.replay import LOG, LOGGED, WHOLE, Command, replay, replay_log, wrong_operands
from sim.golden.ring import ring_reduce_scatter
from sim.golden.total import exactly_summable, total


def fp16(*values: float) -> np.ndarray:
    """Bit patterns of `values`."""
    return np.array(values, np.float16).view(np.uint16)


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        ((1.0, 2.0, 3.0), True),
        ((2048.0, 1.0, 1.0), False),  # 2049 has no place beside 11 bits; 2 + 2048 has
        ((1024.0, 1023.0, 1.0), True),
        ((1024.0, 1024.0, 1.0), False),
        ((2.0**-24, 2.0**-24, 2.0**-23), True),
        ((60000.0, 60000.0, -60000.0), False),  # infinite, or not
        ((np.inf, 1.0, 1.0), False),
        ((0.0, -0.0, 0.0), True),
        ((-0.0, -0.0, -0.0), True),
    ],
)
def test_which_sums_are_exact_in_any_order(values: tuple[float, ...], exact: bool) -> None:
    column = fp16(*values).reshape(-1, 1)
    assert exactly_summable(column, "fp16") == exact
    results = {
        int(fold(lambda a, b: reduce("add", "fp16", a, b), column[list(order)])[0])
        for order in itertools.permutations(range(len(values)))
    }
    if exact:
        assert results == {int(total(column, "fp16", "add")[0])}
    else:
        with pytest.raises(ValueError, match="depends on the order in which they meet"):
            total(column, "fp16", "add")


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_what_is_called_exact_is(dtype: str) -> None:
    """Random operands of few bits at many magnitudes: every order gives the same, or they are refused."""
    rng = np.random.default_rng(4)
    refused = 0
    for _ in range(300):
        values = rng.integers(-7, 8, (4, 1)) * 2.0 ** rng.integers(-4, 5, (4, 1))
        column = patterns_of(dtype, values)
        if not exactly_summable(column, dtype):
            refused += 1
            continue
        results = {
            int(fold(lambda a, b: reduce("add", dtype, a, b), column[list(order)])[0])
            for order in itertools.permutations(range(4))
        }
        assert results == {int(total(column, dtype, "add")[0])}
    assert (dtype == "fp32") == (refused == 0)


def test_minimum_maximum_and_whole_numbers_have_no_order() -> None:
    rng = np.random.default_rng(1)
    for dtype, op in (("fp16", "min"), ("fp16", "max"), ("int32", "add")):
        kind = np.uint16 if dtype == "fp16" else np.uint32
        column = rng.integers(0, np.iinfo(kind).max, (4, 50), kind, True)
        for order in itertools.permutations(range(4)):
            assert (total(column[list(order)], dtype, op) == total(column, dtype, op)).all()


def test_a_replay_is_the_sum_in_that_order() -> None:
    """16 lanes of 2048 + 1 + 1, whose order decides, beside numpy's own half precision."""
    operands = [np.full(16, value, np.float16) for value in (2048, 1, 1)]
    results = []
    for order in ((0, 1, 2), (1, 2, 0)):
        commands = [Command("add", operands[index].tobytes(), first=place == 0) for place, index in enumerate(order)]
        first, second, third = (operands[index] for index in order)
        assert replay(commands, "fp16", b"\xff" * 32) == ((first + second) + third).tobytes()
        results.append(replay(commands, "fp16"))
    assert results[0] != results[1]


def test_a_replay_stores_masks_and_keeps_what_was_there() -> None:
    ones, twos = np.full(8, 1, np.uint32).tobytes(), np.full(8, 2, np.uint32).tobytes()
    half = (1 << 16) - 1
    after = replay([Command("store", twos, half), Command("add", ones), Command("max", twos, 0xF)], "int32", ones)
    assert np.frombuffer(after, np.uint32).tolist() == [3, 3, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int32"])
def test_a_log_of_many_sectors_is_replayed_as_each_of_them(dtype: str) -> None:
    """Random commands to 20 sectors, masks by whole elements; one sector is never named."""
    rng = np.random.default_rng(6)
    log = np.zeros(400, LOG)
    log["sector"] = rng.integers(1, 20, 400)
    log["operation"] = rng.integers(0, 4, 400)
    log["first"] = rng.random(400) < 0.2
    size = 2 if dtype in ("fp16", "bf16") else 4
    chosen = rng.random((400, 32 // size)) < 0.7
    log["mask"] = (np.repeat(chosen, size, axis=1) * (1 << np.arange(32, dtype=np.uint64))).sum(axis=1)
    log["operand"] = rng.integers(0, 256, (400, 32))
    before = rng.integers(0, 256, (20, 32), dtype=np.uint8)
    after = replay_log(log, dtype, before)
    for sector in range(20):
        commands = [
            Command(LOGGED[line["operation"]], line["operand"].tobytes(), int(line["mask"]), bool(line["first"]))
            for line in log[log["sector"] == sector]
        ]
        assert after[sector].tobytes() == replay(commands, dtype, before[sector].tobytes())
    assert (after[0] == before[0]).all()
    assert (replay_log(log[:0], dtype, before) == before).all()
    # Two commands in the other order are another log.
    shuffled = replay_log(log[::-1], dtype, before)
    assert (shuffled != after).any()


def test_operands_that_were_lost_doubled_or_invented_are_found() -> None:
    a, b, c = (np.full(16, value, np.uint16).tobytes() for value in (1, 2, 3))
    right = [Command("add", b, first=True), Command("add", a), Command("add", a)]
    assert wrong_operands(right, [a, a, b]) is None
    zeroed = [command._replace(first=False) for command in right]
    assert wrong_operands(zeroed, [a, a, b], first_touch=False) is None
    for commands, sentence in (
        (right[:2], "1 of 3 operands never came, 0 came"),
        ([*right, right[1]], "0 of 3 operands never came, 1 came that nobody sent"),
        ([*right[:2], Command("add", c)], "1 of 3 operands never came, 1 came"),
        (zeroed, "was a first touch"),
        ([right[0], right[1]._replace(first=True), right[2]], "was a first touch"),
    ):
        assert sentence in str(wrong_operands(commands, [a, a, b]))
    partial = Command("add", a, mask=0xF, first=True)
    assert wrong_operands([partial], [a[:4] + bytes(28)]) is None
    assert wrong_operands([partial._replace(mask=WHOLE)], [a[:4] + bytes(28)]) is not None


# Layouts of PyTorch's calls.


def test_layouts_by_hand() -> None:
    """Two ranks with a tensor of 2 x 2 each, of FP16 patterns of small numbers."""
    x = fp16(1, 2, 3, 4, 10, 20, 30, 40).reshape(2, 2, 2)
    assert nccl.reduce_scatter_tensor(x, "fp16", "add").tolist() == [
        [fp16(11, 22).tolist()],
        [fp16(33, 44).tolist()],
    ]
    assert nccl.all_reduce(x, "fp16", "add").tolist() == [fp16(11, 22, 33, 44).reshape(2, 2).tolist()] * 2
    assert nccl.all_gather_into_tensor(x).tolist() == [x.reshape(4, 2).tolist()] * 2
    assert nccl.all_to_all_single(x).tolist() == [
        [fp16(1, 2).tolist(), fp16(10, 20).tolist()],
        [fp16(3, 4).tolist(), fp16(30, 40).tolist()],
    ]


@pytest.mark.parametrize("shape", [(4, 8), (4, 4, 3), (2, 6, 5, 2), (3, 9)])
def test_layouts_by_the_definitions(shape: tuple[int, ...]) -> None:
    """Each rank's tensor by slices, as the calls are documented."""
    ranks, rows = shape[:2]
    x = np.random.default_rng(2).integers(0, 1 << 16, shape, np.uint16)
    gathered, exchanged = nccl.all_gather_into_tensor(x), nccl.all_to_all_single(x)
    summed, everywhere = nccl.reduce_scatter_tensor(x, "fp16", "max"), nccl.all_reduce(x, "fp16", "max")
    whole = fold(lambda a, b: reduce("max", "fp16", a, b), x)
    part = rows // ranks
    for rank in range(ranks):
        np.testing.assert_array_equal(gathered[rank], np.concatenate(list(x)))
        np.testing.assert_array_equal(summed[rank], whole[rank * part : (rank + 1) * part])
        np.testing.assert_array_equal(everywhere[rank], whole)
        pieces = [x[other, rank * part : (rank + 1) * part] for other in range(ranks)]
        np.testing.assert_array_equal(exchanged[rank], np.concatenate(pieces))
    results = (summed, gathered, exchanged, everywhere)
    for collective, result in zip(nccl.COLLECTIVES, results, strict=True):
        assert nccl.result_shape(collective, shape) == result.shape


def test_an_all_reduce_of_any_length_is_that_of_the_ring() -> None:
    """10 elements on 4 ranks are chunks of 3, the last one filled up."""
    x = np.random.default_rng(3).integers(0, 0x7800, (4, 5, 2), np.uint16)
    padded = np.pad(x.reshape(4, 10), ((0, 0), (0, 2)))
    expected = ring_reduce_scatter(padded, "fp16", "add").ravel()[:10].reshape(5, 2)
    assert (nccl.all_reduce(x, "fp16", "add") == expected).all()
    # And what the program leaves.
    result = interpret(program("ring-all-reduce", 4), padded).result[:, :10]
    assert (nccl.all_reduce(x, "fp16", "add") == result.reshape(4, 5, 2)).all()


@pytest.mark.parametrize(
    ("collective", "name"),
    [("all_gather_into_tensor", "direct-all-gather"), ("all_to_all_single", "all-to-all-dma")],
)
def test_programs_leave_what_the_layouts_say(collective: str, name: str) -> None:
    x = np.random.default_rng(3).integers(0, 1 << 16, (4, 8, 3), np.uint16)
    result = interpret(program(name, 4), x.reshape(4, -1)).result
    expected = getattr(nccl, collective)(x)
    assert (result.reshape(expected.shape) == expected).all()


@pytest.mark.parametrize(
    ("collective", "shape", "sentence"),
    [
        ("reduce_scatter", (4, 8), "collective must be one of reduce_scatter_tensor, all_gather_into_tensor"),
        ("all_reduce", (8,), r"x must have shape \(N, ...\) for N >= 2 GPUs, got \(8,\)"),
        ("all_reduce", (1, 8), "for N >= 2 GPUs"),
        ("reduce_scatter_tensor", (4, 6), "must be a multiple of the 4 GPUs for reduce_scatter_tensor, got 6"),
        ("all_to_all_single", (4, 6, 4), "must be a multiple of the 4 GPUs for all_to_all_single, got 6"),
    ],
)
def test_layouts_that_cannot_be_are_refused(collective: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        nccl.result_shape(collective, shape)
