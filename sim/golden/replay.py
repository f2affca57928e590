"""Golden model of a sector that met its operands in an order which only the hardware knows: the column commands that
were issued to it, one after another, replayed bit for bit; and whether their operands are those that had to come."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sim.golden.arithmetic import BITS, OPERATIONS, identity, pattern_type, reduce, sector_result

SECTOR_BYTES = 32
WHOLE = (1 << SECTOR_BYTES) - 1
LOGGED = ("store", *OPERATIONS)
"""Operations by their number in a log."""
LOG = np.dtype(
    [("sector", "<i8"), ("operation", "u1"), ("first", "?"), ("mask", "<u4"), ("operand", "u1", (SECTOR_BYTES,))]
)
"""A line of a log: the fields of a :class:`Command`, and of which sector."""


class Command(NamedTuple):
    """A column command: `operation` (store, add, min, max) with a sector's 32 bytes `operand`, of which `mask` says by
    bit which are written. `first`: the first update of an epoch, which acts as a store."""

    operation: str
    operand: bytes
    mask: int = WHOLE
    first: bool = False


def replay(commands: Iterable[Command], dtype: str, before: bytes = bytes(SECTOR_BYTES)) -> bytes:
    """The 32 bytes of a sector that held `before`, after `commands` in their order."""
    for command in commands:
        before = sector_result(command.operation, dtype, before, command.operand, command.mask, command.first)
    return before


def replay_log(log: np.ndarray, dtype: str, before: np.ndarray) -> np.ndarray:
    """What sectors hold after all commands of `log` (an array of :data:`LOG`, in the order of issue) that held `before`
    (bytes, shape (sectors, 32)): as :func:`replay` for each sector, but for many at a time.

    The n-th commands of all sectors are replayed together: sectors share nothing.
    """
    memory = np.array(before, np.uint8)
    order = np.argsort(log["sector"], kind="stable")
    _, begins, counts = np.unique(log["sector"][order], return_index=True, return_counts=True)
    for turn in range(counts.max(initial=0)):
        lines = log[order[begins[counts > turn] + turn]]
        memory[lines["sector"]] = _results(lines, dtype, memory[lines["sector"]])
    return memory


def _results(lines: np.ndarray, dtype: str, old: np.ndarray) -> np.ndarray:
    """What sectors that held `old` hold after one command each, as of :func:`sim.golden.arithmetic.sector_result`."""
    kind, size = pattern_type(dtype), BITS[dtype] // 8
    merged, result = old.copy(), lines["operand"].copy()
    for number, operation in enumerate(OPERATIONS, 1):
        chosen = lines["operation"] == number
        fill = np.frombuffer(identity(operation, dtype).to_bytes(size, "little") * (SECTOR_BYTES // size), np.uint8)
        merged[chosen & lines["first"]] = fill
        reduced = chosen & ~lines["first"]
        operands = (np.ascontiguousarray(side[reduced]).view(kind) for side in (old, result))
        result[reduced] = reduce(operation, dtype, *operands).view(np.uint8)
    written = (lines["mask"][:, None] >> np.arange(SECTOR_BYTES, dtype=np.uint32) & 1).astype(bool)
    return np.where(written, result, merged)


def wrong_operands(commands: Sequence[Command], expected: Iterable[bytes], first_touch: bool = True) -> str | None:
    """What speaks against `commands` having brought each of the `expected` operands once, in any order, the first one
    and no other as a first touch; None when nothing does.

    Bytes that a command's mask leaves out count as zero, in the expected operands too. A replay alone would follow the
    hardware into whatever it lost or did twice.
    """
    came = Counter(_masked(command.operand, command.mask) for command in commands)
    wanted = Counter(expected)
    lost, extra = wanted - came, came - wanted
    if lost or extra:
        return f"{lost.total()} of {wanted.total()} operands never came, {extra.total()} came that nobody sent"
    if [command.first for command in commands] != [first_touch and index == 0 for index in range(len(commands))]:
        return "not the first command, or not it alone, was a first touch"
    return None


def _masked(operand: bytes, mask: int) -> bytes:
    return bytes(byte if mask >> index & 1 else 0 for index, byte in enumerate(operand))
