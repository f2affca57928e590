"""Floating-point operations by the ten million through the RTL of the near-bank ALU, compared with the golden model.

`boundaries`: every one of the 65,536 patterns of a 16-bit type with each boundary value, in both orders. A boundary
value has the first, second, middle or last fraction of a binade, so that the set holds both zeros, the ends of the
subnormals, infinities, quiet and signaling NaNs, the largest finite number, and every power of two with its neighbours:
adding those to any number meets each halfway case and what lies just beside it. `subnormals`: every pair of subnormals
and zeros. `random`: pairs stratified by the distance of their exponents, which uniform patterns rarely bring close.

The golden sum of two FP16 numbers is exact before its one rounding: both are multiples of 2**-24 below 2**16, so the
sum has at most 41 bits and float64 has 53. BF16 sums of distant exponents are not exact in float64, but a type with p
bits is rounded right from one with 2p + 2 bits (Figueroa, "When is double rounding innocuous?"), and 53 > 18.

`python -m tb.arithmetic_sweep --dtype fp16 --op add --random 50000000`
"""

import time
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Literal

import numpy as np
import typer

from sim.benches.vectors import run_elements
from sim.golden.arithmetic import reduce

EXPONENT_BITS = {"fp16": 5, "bf16": 8, "fp32": 8}
WIDTHS = {"fp16": 16, "bf16": 16, "fp32": 32}
CHUNK = 1 << 21
"""Pairs in one run of the bench."""
Pairs = Iterator[tuple[np.ndarray, np.ndarray]]


def boundary_values(dtype: str) -> np.ndarray:
    """Patterns at the ends of binades: all of FP16's, those of 36 of BF16's or FP32's 256 exponents."""
    exponent_bits = EXPONENT_BITS[dtype]
    fraction_bits = WIDTHS[dtype] - 1 - exponent_bits
    top = (1 << exponent_bits) - 1
    exponents: set[int] = set(range(top + 1))
    if dtype != "fp16":
        middle = top // 2
        exponents = {*range(6), *range(middle - 12, middle + 13), *range(top - 4, top + 1)}
    fractions = (0, 1, 1 << fraction_bits - 1, (1 << fraction_bits) - 1)
    values = [exponent << fraction_bits | fraction for exponent in sorted(exponents) for fraction in fractions]
    return np.array(values + [value | 1 << WIDTHS[dtype] - 1 for value in values], np.uint32)


def boundaries(dtype: str) -> Pairs:
    """Every pattern of a 16-bit type with each boundary value, in both orders."""
    everything = np.arange(1 << 16, dtype=np.uint32)
    for value in boundary_values(dtype):
        constant = np.full_like(everything, value)
        yield everything, constant
        yield constant, everything


def subnormals(dtype: str) -> Pairs:
    """Every pair of subnormals and zeros, of either sign."""
    fraction_bits = WIDTHS[dtype] - 1 - EXPONENT_BITS[dtype]
    small = np.arange(1 << fraction_bits, dtype=np.uint32)
    small = np.concatenate([small, small | 1 << WIDTHS[dtype] - 1])
    for value in small:
        yield small, np.full_like(small, value)


def stratified(dtype: str, count: int, seed: int) -> Pairs:
    """`count` random pairs: in each of as many strata as distances matter, equally many of that exponent distance;
    one stratum more is of uniform patterns."""
    generator = np.random.default_rng(seed)
    width = WIDTHS[dtype]
    fraction_bits = width - 1 - EXPONENT_BITS[dtype]
    top = (1 << EXPONENT_BITS[dtype]) - 1
    distances = np.arange(-fraction_bits - 3, fraction_bits + 5)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        a, b = (generator.integers(0, 1 << width, size, dtype=np.uint32) for _ in range(2))
        distance = distances[np.arange(size) % len(distances)]
        exponent = np.clip((a >> fraction_bits & top).astype(np.int64) + distance, 0, top).astype(np.uint32)
        close = (b & ~np.uint32(top << fraction_bits)) | exponent << np.uint32(fraction_bits)
        # The last distance stands for the stratum of uniform patterns.
        yield a, np.where(distance == distances[-1], b, close).astype(np.uint32)


def chunks(pairs: Pairs) -> Pairs:
    """The same pairs in arrays of about CHUNK."""
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in pairs:
        held.append(pair)
        if sum(len(a) for a, _ in held) >= CHUNK:
            yield np.concatenate([a for a, _ in held]), np.concatenate([b for _, b in held])
            held = []
    if held:
        yield np.concatenate([a for a, _ in held]), np.concatenate([b for _, b in held])


def compare(dtype: str, op: str, pairs: Pairs) -> int:
    """Run all pairs through the RTL; returns how many. Raises :class:`AssertionError` with the first differences."""
    total = 0
    for a, b in chunks(pairs):
        got, expected = run_elements(op, dtype, a, b), reduce(op, dtype, a, b)
        wrong = np.nonzero(got != expected)[0]
        found = [f"{op}({a[n]:x}, {b[n]:x}) = {got[n]:x}, expected {expected[n]:x}" for n in wrong[:5]]
        assert not found, f"{dtype}: {len(wrong)} of {len(a)} wrong: " + "; ".join(found)
        total += len(a)
    return total


def main(
    dtype: Annotated[Literal["fp16", "bf16", "fp32"], typer.Option()] = "fp16",
    op: Annotated[Literal["add", "min", "max"], typer.Option()] = "add",
    random: Annotated[int, typer.Option(min=0, help="stratified random pairs")] = 20_000_000,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    exhaustive: Annotated[bool, typer.Option(help="boundary values and subnormals (16-bit types)")] = True,
) -> None:
    """Compare the ALU with the golden model; prints pairs and seconds, exit code 1 with the first wrong results."""
    started = time.perf_counter()
    parts: list[Pairs] = [stratified(dtype, random, seed)]
    if exhaustive and WIDTHS[dtype] == 16:
        parts += [boundaries(dtype), subnormals(dtype)]
    try:
        count = compare(dtype, op, chain(*parts))
    except AssertionError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{dtype} {op}: {count:,} pairs equal the golden model, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    typer.run(main)
