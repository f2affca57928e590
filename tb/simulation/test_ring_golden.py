"""The golden ring reduces in NCCL's order: a recorded reduction comes out bit for bit."""

from pathlib import Path

import numpy as np
import pytest

from sim.golden.arithmetic import is_nan
from sim.golden.gather import all_gather
from sim.golden.matmul import partial_products, patterns_of
from sim.golden.ring import ring_reduce_scatter

RECORDED = Path(__file__).resolve().parent.parent / "data" / "nccl_ring_rs_n4.npz"


def recorded(kind: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(RECORDED) as archive:
        return (
            archive[f"fp16_{kind}_sum_n4_in"].view(np.uint16),
            archive[f"fp16_{kind}_sum_n4_out"].view(np.uint16),
        )


@pytest.mark.parametrize("kind", ["normal", "wide", "bits"])
def test_recorded_nccl_reduction(kind):
    inputs, outputs = recorded(kind)
    result = ring_reduce_scatter(inputs, "fp16", "add")
    nan = is_nan("fp16", outputs)
    assert (nan == is_nan("fp16", result)).all()
    assert (result[~nan] == outputs[~nan]).all()
    assert nan.any() == (kind == "bits")


@pytest.mark.parametrize("kind", ["normal", "wide"])
def test_the_other_direction_is_another_result(kind):
    """The recorded data tells the order apart: the check above would fail with a wrong one."""
    inputs, outputs = recorded(kind)
    assert (ring_reduce_scatter(inputs, "fp16", "add", direction=-1) != outputs).any()


def test_order_by_hand():
    """Four ranks, one element a chunk. In FP16 1 + 2048 rounds to 2048, so the order decides between 0 and 1."""
    x = patterns_of("fp16", np.array([[0, 0, 0, 0], [1, 0, 0, 0], [2048, 0, 0, 0], [-2048, 0, 0, 0]], float))
    forward = ring_reduce_scatter(x, "fp16", "add").view(np.float16)
    backward = ring_reduce_scatter(x, "fp16", "add", direction=-1).view(np.float16)
    assert forward[0] == 0  # ((x1 + x2) + x3) + x0 = ((1 + 2048) - 2048) + 0
    assert backward[0] == 1  # ((x3 + x2) + x1) + x0 = ((-2048 + 2048) + 1) + 0
    assert not forward[1:].any()


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("direction", [1, -1])
def test_integers_against_numpy(ranks, direction):
    rng = np.random.default_rng(ranks)
    x = rng.integers(0, 1 << 32, (ranks, ranks * 6), dtype=np.uint32)
    wide = x.reshape(ranks, ranks, 6)
    numbers = wide.view(np.int32)
    expected = {"add": wide.sum(0, dtype=np.uint32), "min": numbers.min(0), "max": numbers.max(0)}
    for op, answer in expected.items():
        assert (ring_reduce_scatter(x, "int32", op, direction).view(np.uint32) == answer.view(np.uint32)).all()
        assert (ring_reduce_scatter(wide, "int32", op, direction) == ring_reduce_scatter(x, "int32", op)).all()


def test_zeroing_changes_only_negative_zero():
    negative, positive = 0x8000, 0x0000
    x = np.full((2, 2), negative, np.uint16)
    assert (ring_reduce_scatter(x, "fp16", "add") == negative).all()
    assert (ring_reduce_scatter(x, "fp16", "add", zeroing=True) == positive).all()
    inputs, _ = recorded("bits")
    plain = ring_reduce_scatter(inputs, "fp16", "add")
    zeroed = ring_reduce_scatter(inputs, "fp16", "add", zeroing=True)
    assert ((plain == zeroed) | ((plain == negative) & (zeroed == positive))).all()
    assert (
        ring_reduce_scatter(inputs, "fp16", "min", zeroing=True) == ring_reduce_scatter(inputs, "fp16", "min")
    ).all()


def test_extremes_ignore_nan():
    x = patterns_of("fp32", np.array([[np.nan, -0.0], [1.0, 0.0]], np.float32))
    assert ring_reduce_scatter(x, "fp32", "max").view(np.float32).tolist() == [[1.0], [0.0]]
    low = ring_reduce_scatter(x, "fp32", "min")
    assert low[0].view(np.float32) == 1.0 and low[1] == 0x80000000


@pytest.mark.parametrize("shape", [(4, 6), (1, 4), (4,), (2, 3, 5), ()])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="inputs must have shape"):
        ring_reduce_scatter(np.zeros(shape, np.uint16), "fp16", "add")


def test_wrong_direction_is_refused():
    with pytest.raises(ValueError, match="direction must be"):
        ring_reduce_scatter(np.zeros((2, 2), np.uint16), "fp16", "add", direction=0)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int32"])
def test_partial_products_differ_by_gpu(dtype):
    products = partial_products(2, 4, 6, 8, dtype, np.random.default_rng(1))
    assert products.shape == (2, 4, 6)
    assert products.dtype == (np.uint16 if dtype in ("fp16", "bf16") else np.uint32)
    assert (products[0] != products[1]).any() and not is_nan(dtype, products).any()


def test_all_gather_by_hand():
    assert all_gather(np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [[1, 2, 3, 4, 5, 6]] * 3
