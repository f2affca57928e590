"""Golden model of a sector that met its operands in an order which only the hardware knows: the column commands that
were issued to it, one after another, replayed bit for bit; and whether their operands are those that had to come."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.golden.arithmetic import sector_result

WHOLE = (1 << 32) - 1


class Command(NamedTuple):
    """A column command: `operation` (store, add, min, max) with a sector's 32 bytes `operand`, of which `mask` says by
    bit which are written. `first`: the first update of an epoch, which acts as a store."""

    operation: str
    operand: bytes
    mask: int = WHOLE
    first: bool = False


def replay(commands: Iterable[Command], dtype: str, before: bytes = bytes(32)) -> bytes:
    """The 32 bytes of a sector that held `before`, after `commands` in their order."""
    for command in commands:
        before = sector_result(command.operation, dtype, before, command.operand, command.mask, command.first)
    return before


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
