"""Event counters, declared beside the logic that counts: the register file adds them up, documents describe them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from amaranth.hdl import Const, ValueLike


class Counting(Enum):
    """How a counter takes its input: adds it, keeps the greatest, or keeps the last one that is not zero."""

    SUM = "sum"
    MAXIMUM = "maximum"
    LAST = "last"


@dataclass(frozen=True)
class Counter:
    """One event counter of a node: `description` is what it counts, in what unit.

    In every cycle `value` of a block's events, added up over the blocks of one kind (where there are several, a cycle
    later), arrives on the register file's port `count_<name>` of `width` bits. Width 0: the register file counts cycles
    by itself.
    """

    name: str
    width: int
    counting: Counting
    description: str
    value: Callable[[Any], ValueLike] = field(default=lambda events: Const(0, 0), repr=False)


def total(name: str, description: str, value: Callable[[Any], ValueLike]) -> Counter:
    """A counter that adds up at most 255 events a cycle."""
    return Counter(name, 8, Counting.SUM, description, value)


def peak(name: str, description: str, value: Callable[[Any], ValueLike]) -> Counter:
    """A counter that keeps the greatest of values below 65536."""
    return Counter(name, 16, Counting.MAXIMUM, description, value)
