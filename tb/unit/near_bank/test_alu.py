"""The near-bank ALU, lane by lane, against numpy: types, operations, special values in all pairs, masks, first touch.

The operations run from files in the bench of `sim/benches/vectors.py`, a million pairs in seconds.
"""

import random

import numpy as np
import pytest
from amaranth import Module, Mux

from hw.near_bank import alu as alu_module
from hw.near_bank.alu import Alu
from hw.near_bank.float_add import Round
from sim.benches.vectors import OPERATIONS, WIDTHS, build_bench, pack_operand, run_elements, run_operations, run_vectors
from sim.golden.arithmetic import reduce, sector_result
from sim.models.clock_gates import ClockGated
from tb.drivers.column_commands import random_mask, random_sector

EXPONENT_BITS = {"fp16": 5, "bf16": 8, "fp32": 8}
CASES = [(dtype, op) for dtype in WIDTHS for op in OPERATIONS]


def special_values(dtype: str) -> np.ndarray:
    """Zeros, subnormals, extreme and near-one normals, infinities and NaNs of both signs; for int32 the corners."""
    if dtype == "int32":
        values = [0, 1, 2, 0x7FFFFFFF, 0x7FFFFFFE, 0x40000000, 0x55555555]
        return np.array(values + [value ^ 0xFFFFFFFF for value in values], np.uint32)
    width, exponent_bits = WIDTHS[dtype], EXPONENT_BITS[dtype]
    fraction_bits = width - 1 - exponent_bits
    top = (1 << exponent_bits) - 1
    exponents = {
        0,
        1,
        2,
        fraction_bits,
        fraction_bits + 1,
        fraction_bits + 2,
        top // 2,
        top // 2 + 1,
        top - 2,
        top - 1,
        top,
    }
    fractions = {0, 1, 2, 3, (1 << fraction_bits) - 1, (1 << fraction_bits) - 2, 1 << fraction_bits - 1}
    fractions |= {(1 << fraction_bits - 1) + 1, (1 << fraction_bits - 1) - 1}
    values = [e << fraction_bits | f for e in exponents for f in fractions]
    return np.array(values + [value | 1 << width - 1 for value in values], np.uint32)


def random_pairs(dtype: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Half uniform bit patterns, half pairs of close exponents (cancellation, halfway cases)."""
    generator = np.random.default_rng(seed)
    width = WIDTHS[dtype]
    a = generator.integers(0, 1 << width, count, dtype=np.uint64).astype(np.uint32)
    b = generator.integers(0, 1 << width, count, dtype=np.uint64).astype(np.uint32)
    if dtype != "int32":
        near = np.arange(count) % 2 == 0
        fraction_bits = width - 1 - EXPONENT_BITS[dtype]
        distance = generator.integers(-fraction_bits - 3, fraction_bits + 4, count)
        top = (1 << EXPONENT_BITS[dtype]) - 1
        exponent = np.clip((a >> fraction_bits & top).astype(np.int64) + distance, 0, top).astype(np.uint32)
        close = (b & ~np.uint32(top << fraction_bits)) | exponent << np.uint32(fraction_bits)
        b = np.where(near, close, b)
    return a, b


def assert_equal(dtype: str, op: str, a: np.ndarray, b: np.ndarray, component: Alu | None = None) -> None:
    got, expected = run_elements(op, dtype, a, b, component), reduce(op, dtype, a, b)
    wrong = np.nonzero(got != expected)[0]
    lines = [f"{op}({a[n]:x}, {b[n]:x}) = {got[n]:x}, expected {expected[n]:x}" for n in wrong[:10]]
    assert not lines, f"{dtype}: {len(wrong)} of {len(a)} wrong\n" + "\n".join(lines)


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_special_values_in_all_pairs(dtype, op):
    values = special_values(dtype)
    a, b = np.meshgrid(values, values)
    assert_equal(dtype, op, a.reshape(-1), b.reshape(-1))


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_random_pairs(dtype, op):
    count = 1_000_000 if (dtype, op) == ("fp16", "add") else 60_000
    assert_equal(dtype, op, *random_pairs(dtype, count, random.randrange(1 << 32)))


@pytest.mark.parametrize("gated_clocks", [True, False])
def test_masks_stores_and_first_touch(gated_clocks):
    operations, expected, olds, news = [], [], [], []
    for _ in range(4000):
        dtype = random.choice(list(WIDTHS))
        op = random.choice([*OPERATIONS, "store"])
        kind = "WR" if op == "store" else "UPDATE"
        mask, first = random_mask(kind, dtype), random.random() < 0.4
        old, new = random_sector(), random_sector()
        operations.append(pack_operand(op, dtype, mask, first))
        olds.append(np.frombuffer(old, np.uint8))
        news.append(np.frombuffer(new, np.uint8))
        expected.append(np.frombuffer(sector_result(op, dtype, old, new, mask, first), np.uint8))
    component = None if gated_clocks else Alu()
    got = run_operations(operations, np.array(olds), np.array(news), component)
    wrong = np.nonzero((got != np.array(expected)).any(axis=1))[0]
    assert not len(wrong), f"operation {operations[wrong[0]]:x}: {got[wrong[0]]} not {expected[wrong[0]]}"


def write_vectors(path, dtype, op, count) -> list[str]:
    """Lines as `testfloat_gen` writes them (flags zero)."""
    a, b = random_pairs(dtype, count, random.randrange(1 << 32))
    digits = WIDTHS[dtype] // 4
    rows = zip(a, b, reduce(op, dtype, a, b), strict=True)
    lines = [f"{x:0{digits}X} {y:0{digits}X} {z:0{digits}X} 00" for x, y, z in rows]
    path.write_text("\n".join(lines) + "\n")
    return lines


@pytest.mark.parametrize(("dtype", "op"), [("fp16", "add"), ("fp32", "min"), ("int32", "add")])
def test_vectors(tmp_path, dtype, op):
    path = tmp_path / "vectors"
    lines = write_vectors(path, dtype, op, 100_000)
    assert run_vectors(path, dtype, op) == (100_000, [])
    lines[41] = "0 0 1 00"
    path.write_text("\n".join(lines))
    count, mismatches = run_vectors(path, dtype, op)
    assert count == 100_000
    assert [mismatch[0] for mismatch in mismatches] == [42]


def test_vectors_compare_nan_by_being_nan(tmp_path):
    path = tmp_path / "vectors"
    path.write_text("7C00 FC00 FE00 10\n\n3C00 3C00 7E00 00\n7E00 3C00 4000 00\n")
    count, mismatches = run_vectors(path, "fp16", "add")
    assert count == 3
    assert mismatches == [(3, 0x3C00, 0x3C00, 0x7E00, 0x4000), (4, 0x7E00, 0x3C00, 0x4000, 0x7E00)]


@pytest.mark.parametrize(
    "line", ["3C00 3C00 4000", "3C00 3C0G 4000 00", "13C00 3C00 4000 00", "3C00 3C00 -1 00", "a b c d e"]
)
def test_bad_vectors_name_the_line(tmp_path, line):
    path = tmp_path / "vectors"
    path.write_text(f"3C00 3C00 4000 00\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        run_vectors(path, "fp16", "add")


def test_bad_arguments(tmp_path):
    path = tmp_path / "vectors"
    path.write_text("")
    with pytest.raises(ValueError, match="no vectors"):
        run_vectors(path, "fp16", "add")
    with pytest.raises(ValueError, match="dtype"):
        run_vectors(path, "fp64", "add")
    with pytest.raises(ValueError, match="op must"):
        run_vectors(path, "fp16", "mul")


class WrongRound(Round):
    """A wrong last step: the sticky bit is stuck at one, so ties go up."""

    def elaborate(self, platform: object) -> Module:
        wrong = Module()
        inner = Round(self._width)
        wrong.submodules.inner = inner
        for name in ("fp16", "short", "integer"):
            wrong.d.comb += getattr(inner, name).eq(getattr(self, name))
        for name in ("shift", "sign", "exponent", "exponent_next"):
            wrong.d.comb += getattr(inner.normalized, name).eq(getattr(self.normalized, name))
        wrong.d.comb += [
            inner.normalized.fraction.eq(Mux(self.integer, self.normalized.fraction, self.normalized.fraction | 1)),
            self.result.eq(inner.result),
        ]
        return wrong


@pytest.mark.wide
def test_a_wrong_rounding_is_caught(monkeypatch):
    monkeypatch.setattr(alu_module, "Round", WrongRound)
    component = ClockGated(Alu())
    build_bench(component)
    with pytest.raises(AssertionError, match="wrong"):
        assert_equal("fp16", "add", *random_pairs("fp16", 10_000, 1), component)
