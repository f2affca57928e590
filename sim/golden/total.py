"""Golden model of a reduction whose addends meet in any order: it knows only operands for which the order is of no
consequence, and refuses others. Those are replayed in the order in which they met (:mod:`sim.golden.replay`)."""

from functools import reduce as fold

import numpy as np

from sim.golden.arithmetic import reduce, to_float64

SIGNIFICANT = {"fp16": 11, "bf16": 8, "fp32": 24}
"""Bits of a significand, the leading one included."""
LARGEST = {"fp16": 65504.0, "bf16": float(2**128 - 2**120), "fp32": float(2**128 - 2**104)}


def exactly_summable(addends: np.ndarray, dtype: str) -> bool:
    """Whether every partial sum of `addends` (bit patterns, one addend a row), in whatever order, is exact.

    It is when all are whole multiples of a power of two u, and the sum of their magnitudes is at most 2**bits times u
    and not beyond the largest number: every partial sum then has a place in the type.
    """
    if dtype == "int32":
        return True
    values = to_float64(dtype, addends)
    if not np.isfinite(values).all():
        return False
    mantissa, exponent = np.frexp(values)
    bits = SIGNIFICANT[dtype]
    whole = np.abs(np.ldexp(mantissa, bits)).astype(np.int64)
    unit = np.where(whole > 0, exponent - bits + np.log2(np.maximum(whole & -whole, 1)).astype(int), 512).min(axis=0)
    magnitude = np.abs(values).sum(axis=0)
    return bool((magnitude <= np.minimum(np.ldexp(1.0, bits + unit), LARGEST[dtype])).all())


def total(addends: np.ndarray, dtype: str, op: str, zeroing: bool = False) -> np.ndarray:
    """The reduction of `addends` (bit patterns, one addend a row) where the order in which they meet is of no
    consequence: minimum, maximum, whole numbers, and sums that are exact in any order. With `zeroing` a sum starts from
    +0.

    Raises :class:`ValueError` for another sum.
    """
    addends = np.asarray(addends)
    if op == "add" and len(addends) > 2 and not exactly_summable(addends, dtype):
        raise ValueError(f"the sum of these {len(addends)} {dtype} operands depends on the order in which they meet")
    if zeroing and op == "add":
        addends = np.concatenate([np.zeros_like(addends[:1]), addends])
    return fold(lambda sum_so_far, addend: reduce(op, dtype, sum_so_far, addend), addends)


def direct_reduce_scatter(inputs: np.ndarray, dtype: str, op: str, zeroing: bool = False) -> np.ndarray:
    """What each rank holds when all chunks r have met on rank r in any order: shape (N, elements / N), for `inputs` of
    shape (N, elements)."""
    inputs = np.asarray(inputs)
    return total(inputs, dtype, op, zeroing).reshape(len(inputs), -1)
