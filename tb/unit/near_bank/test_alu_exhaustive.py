"""The near-bank ALU on every boundary value with every pattern, and on millions of stratified pairs."""

from itertools import chain

import numpy as np
import pytest

from sim.golden.arithmetic import to_float64
from tb import arithmetic_sweep
from tb.arithmetic_sweep import boundaries, boundary_values, compare, stratified, subnormals


@pytest.mark.slow
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_special_operands_exhaustively(dtype, op):
    assert compare(dtype, op, chain(boundaries(dtype), subnormals(dtype))) > 35_000_000


@pytest.mark.slow
def test_millions_of_fp16_sums():
    assert compare("fp16", "add", stratified("fp16", 50_000_000, 1)) == 50_000_000


@pytest.mark.slow
@pytest.mark.parametrize("op", ["add", "min", "max"])
def test_millions_of_fp32_operations(op):
    values = boundary_values("fp32")
    a, b = np.meshgrid(values, values)
    directed = (a.reshape(-1), b.reshape(-1))
    assert compare("fp32", op, chain([directed], stratified("fp32", 5_000_000, 2))) == 5_000_000 + len(values) ** 2


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_boundary_values_hold_what_they_say(dtype):
    patterns = boundary_values(dtype)
    numbers = to_float64(dtype, patterns)
    magnitudes = np.sort(np.unique(np.abs(numbers[np.isfinite(numbers)])))
    assert magnitudes[0] == 0 and np.isinf(numbers).sum() == 2 and np.isnan(numbers).sum() == 6
    assert len(set(patterns.tolist())) == len(patterns)
    if dtype == "fp16":
        assert {2.0**exponent for exponent in range(-14, 16)} <= set(magnitudes.tolist())
        assert magnitudes[1] == 2.0**-24 and magnitudes[-1] == 65504
        for power in (1.0, 1024.0):
            assert {power * (1 + 2**-10), power * (1 - 2**-11)} <= set(magnitudes.tolist()), "neighbours are missing"


def test_strata_bring_exponents_close():
    (a, b), *_ = stratified("fp16", 100_000, 3)
    distance = (b >> 10 & 31).astype(int) - (a >> 10 & 31)
    counts = [np.count_nonzero(distance == wanted) for wanted in range(-10, 11)]
    assert min(counts) > 1000
    again, _ = next(stratified("fp16", 100_000, 3))
    assert np.array_equal(a, again)


def test_a_wrong_result_among_many_is_found(monkeypatch):
    right = arithmetic_sweep.run_elements

    def wrong(op, dtype, a, b):
        results = right(op, dtype, a, b)
        results[777] ^= 1
        return results

    pairs = next(stratified("fp16", 10_000, 4))
    assert compare("fp16", "add", iter([pairs])) == 10_000
    monkeypatch.setattr(arithmetic_sweep, "run_elements", wrong)
    with pytest.raises(AssertionError, match="1 of 10000 wrong: add"):
        compare("fp16", "add", iter([pairs]))
