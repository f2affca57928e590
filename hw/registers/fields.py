"""What a register map is made of: registers with fields, and windows, which are tables of words."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from amaranth.hdl import unsigned

from ..counters import Counting


class Kind(Enum):
    """What software may do with a field."""

    CONSTANT = "constant"
    READ_ONLY = "ro"
    READ_WRITE = "rw"
    SELF_CLEARING = "sc"
    RW1C = "rw1c"
    COUNTER = "counter"
    WINDOW = "window"


@dataclass(frozen=True)
class Field:
    """Bits `low` to `low + width - 1` of a register. `values` names the members of an enumerated field."""

    name: str
    low: int
    width: int
    kind: Kind
    description: str
    reset: int = 0
    values: type[Enum] | None = None

    @property
    def mask(self) -> int:
        """Bits of the register that belong to the field."""
        return ((1 << self.width) - 1) << self.low

    @property
    def shape(self) -> object:
        """Shape of the field's port on the register file."""
        return self.values if self.values is not None else unsigned(self.width)


@dataclass(frozen=True)
class Register:
    """A 32-bit register, or for a window the first of many."""

    name: str
    address: int
    fields: tuple[Field, ...]
    description: str
    counting: Counting | None = None
    locks: bool = False
    """Writes are refused while an epoch is armed or called for, or something of the last one is left."""

    @property
    def reset(self) -> int:
        """Value after reset, where hardware does not drive it."""
        return sum(field.reset << field.low for field in self.fields)

    @property
    def writable(self) -> bool:
        """Whether a write is accepted (otherwise it is answered with SLVERR)."""
        return any(f.kind in (Kind.READ_WRITE, Kind.SELF_CLEARING, Kind.RW1C, Kind.WINDOW) for f in self.fields)

    def member(self, field: Field) -> str:
        """Name of the field's port on the register file."""
        return self.name if field.name == self.name else f"{self.name}_{field.name}"

    def field(self, name: str) -> Field:
        """The field called `name`; raises KeyError."""
        for item in self.fields:
            if item.name == name:
                return item
        raise KeyError(f"register {self.name} has no field {name!r}; it has {', '.join(f.name for f in self.fields)}")


@dataclass(frozen=True)
class Window:
    """A table of words behind addresses of its own: entry i, word w is at `base` + 4 * (i * `entry_words` + w), of
    which `words` exist; `layouts` has those with fields."""

    name: str
    base: int
    entries: int
    entry_words: int
    words: type[IntEnum]
    layouts: Mapping[Any, object]
    note: str = ""
