"""Runs test vectors through the RTL of the near-bank ALU, far faster than a Python testbench could.

A small SystemVerilog bench reads operations from a file and writes results to another, one per cycle.
Vectors are in the format of Berkeley TestFloat 3 (`testfloat_gen f16_add`): lines `A B Z FLAGS`, hexadecimal.
"""

import functools
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hw.export.verilog import to_systemverilog
from hw.messages import AluOperation, DataType
from hw.near_bank.alu import Alu, AluOperand
from sim.models import model_texts
from sim.models.clock_gates import ClockGated
from sim.simulator.executable import build_executable
from sim.simulator.process import failure

WIDTHS = {"fp16": 16, "bf16": 16, "fp32": 32, "int32": 32}
"""Element width of each data type."""
OPERATIONS = ("add", "min", "max")
_INFINITY = {"fp16": 0x7C00, "bf16": 0x7F80, "fp32": 0x7F800000}
_SECTOR_BYTES = 32
Mismatch = tuple[int, int, int, int, int]
"""Line number, A, B, the Z of the line, and what the hardware gave."""


Observer = Callable[[list[int], np.ndarray, np.ndarray, bytes], None]
observers: list[Observer] = []
"""Called after each run through the standard bench, with its operands, old and new sectors, and the bench's output."""


def build_bench(component: Alu | ClockGated) -> Path:
    """The executable bench around `component`, built unless it is there already."""
    return build_bench_of({"alu.sv": to_systemverilog(component, "alu")})


def build_bench_of(texts: dict[str, str]) -> Path:
    """As :func:`build_bench`, of SystemVerilog files (name -> text) with module `alu` in them."""
    here = Path(__file__).parent
    texts = texts | {"vector_bench.sv": (here / "vector_bench.sv").read_text()} | model_texts(["clock_gate.sv"])
    return build_executable("vector_bench", texts, ["--binary", "--timing", "-CFLAGS", "-std=c++20 -fcoroutines"])


@functools.cache
def _standard_bench() -> Path:
    return build_bench(ClockGated(Alu()))


def pack_operand(operation: str, dtype: str, mask: int = 0xFFFFFFFF, first: bool = False) -> int:
    """Bits of an ALU operand; `operation` also "store"."""
    constant = AluOperand.const(
        {
            "operation": AluOperation[operation.upper()],
            "dtype": DataType[dtype.upper()],
            "first": int(first),
            "mask": mask,
        }
    )
    return int(constant.as_value().value)


def run_operations(
    operands: list[int], old: np.ndarray, new: np.ndarray, component: Alu | ClockGated | None = None
) -> np.ndarray:
    """Results of ALU operations: `old`, `new` and the result are arrays of bytes, one row of 32 per operation.

    Raises :class:`sim.errors.SimulationError` when the simulation does not give one result per operation.
    """
    executable = build_bench(component) if component else _standard_bench()
    output = run_text(executable, operation_lines(operands, old, new))
    if component is None:
        for observer in observers:
            observer(operands, old, new, output)
    return np.frombuffer(output, np.uint8).reshape(-1, _SECTOR_BYTES)[:, ::-1].copy()


def operation_lines(operands: list[int], old: np.ndarray, new: np.ndarray) -> str:
    """What the bench reads: a line "operand old new" per operation."""
    rows = zip(operands, old[:, ::-1], new[:, ::-1], strict=True)
    return "".join(f"{operand:x} {a.tobytes().hex()} {b.tobytes().hex()}\n" for operand, a, b in rows)


def run_text(executable: Path, text: str, plusargs: Sequence[str] = ()) -> bytes:
    """Results of operations in the bench's own format, as bytes most significant first; errors as of run_operations."""
    with tempfile.TemporaryDirectory() as folder:
        operations, results = Path(folder) / "operations.hex", Path(folder) / "results.hex"
        operations.write_text(text)
        outcome = subprocess.run(
            [str(executable), f"+operations={operations}", f"+results={results}", *plusargs],
            capture_output=True,
            text=True,
            check=False,
        )
        digits = results.read_text().split() if results.exists() else []
        if outcome.returncode or len("".join(digits)) != 2 * _SECTOR_BYTES * text.count("\n"):
            said = outcome.stdout + outcome.stderr
            raise failure("the bench of the ALU", outcome.returncode, said, Path(folder))
    return bytes.fromhex("".join(digits))


def run_elements(
    op: str, dtype: str, a: np.ndarray, b: np.ndarray, component: Alu | ClockGated | None = None
) -> np.ndarray:
    """The hardware's `op` of two arrays of bit patterns, packed into whole sectors; `a` is what memory holds."""
    kind = np.dtype(f"<u{WIDTHS[dtype] // 8}")
    per_sector = _SECTOR_BYTES // kind.itemsize
    padding = -len(a) % per_sector
    old, new = (
        np.pad(np.asarray(values).astype(kind), (0, padding)).view(np.uint8).reshape(-1, _SECTOR_BYTES)
        for values in (a, b)
    )
    result = run_operations([pack_operand(op, dtype)] * len(old), old, new, component)
    return result.reshape(-1).view(kind)[: len(a)]


def read_vectors(path: Path, dtype: str) -> np.ndarray:
    """Columns line number, A, B, Z of a file of TestFloat lines; empty lines are skipped.

    Raises :class:`ValueError` naming the first line that is none.
    """
    limit = 1 << WIDTHS[dtype]
    rows: list[tuple[int, int, int, int]] = []
    with path.open(encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words:
                continue
            try:
                a, b, z, _ = (int(word, 16) for word in words)
            except ValueError:
                raise ValueError(
                    f"line {number} of {path}: expected `A B Z FLAGS` in hex, got {line.strip()!r}"
                ) from None
            if not all(0 <= value < limit for value in (a, b, z)):
                raise ValueError(
                    f"line {number} of {path}: a value of {dtype} has {WIDTHS[dtype]} bits, got {line.strip()!r}"
                )
            rows.append((number, a, b, z))
    if not rows:
        raise ValueError(f"{path} holds no vectors")
    return np.array(rows, np.int64)


def run_vectors(path: str | Path, dtype: str, op: str) -> tuple[int, list[Mismatch]]:
    """Drive the vectors of a file through the ALU: (how many, mismatches in Z). A NaN as Z matches any NaN's place, but
    the hardware's must be a NaN; flags are not compared.

    Raises :class:`ValueError` for a bad line, type or operation, :class:`OSError` when the file cannot be read.
    """
    if dtype not in WIDTHS:
        raise ValueError(f"dtype must be one of {', '.join(WIDTHS)}; got {dtype!r}")
    if op not in OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(OPERATIONS)}; got {op!r}")
    number, a, b, z = read_vectors(Path(path), dtype).T
    got = run_elements(op, dtype, a, b).astype(np.int64)
    wrong = got != z
    if dtype in _INFINITY:
        magnitude = (1 << (WIDTHS[dtype] - 1)) - 1
        wrong &= ~((got & magnitude > _INFINITY[dtype]) & (z & magnitude > _INFINITY[dtype]))
    columns = zip(*(values[wrong].tolist() for values in (number, a, b, z, got)), strict=True)
    return len(number), list(columns)
