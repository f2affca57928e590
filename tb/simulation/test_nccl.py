"""The layouts of a user's results: by hand, by the definitions of the calls, and as programs leave them."""

from functools import reduce as fold

import numpy as np
import pytest

from sim.collectives.interpret import interpret
from sim.collectives.known import program
from sim.golden import nccl
from sim.golden.arithmetic import reduce
from sim.golden.ring import ring_reduce_scatter


def fp16(*values: float) -> np.ndarray:
    """Bit patterns of `values`."""
    return np.array(values, np.float16).view(np.uint16)


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
