"""Payloads between Python and the ports of a design: structs packed into the bits of one signal."""

import random
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from amaranth.hdl import Const, ShapeCastable
from amaranth.lib import data


class _Place(NamedTuple):
    """Where a field of a struct is: its lowest bit, a one for each of its bits; its shape, and whether that is a plain
    number's."""

    offset: int
    mask: int
    shape: Any
    plain: bool


@cache
def _places(layout: data.StructLayout) -> Mapping[str, _Place]:
    """Benches pack and unpack in every cycle: shapes are looked up once."""
    return {
        name: _Place(field.offset, (1 << field.width) - 1, field.shape, not isinstance(field.shape, ShapeCastable))
        for name, field in data.Layout.cast(layout)
    }


def _constant(shape: Any, value: Any) -> int:
    return Const.cast(Const(value, shape)).value


_of_enumeration = cache(_constant)


def pack(layout: data.StructLayout, **values: Any) -> int:
    """Bits of a struct with these fields, the others 0. KeyError for a field that it does not have."""
    places = _places(layout)
    bits = 0
    for name, value in values.items():
        offset, mask, shape, plain = places[name]
        if isinstance(value, Enum):
            number = _of_enumeration(shape, value)
        else:
            number = value if plain and isinstance(value, int) else _constant(shape, value)
        bits |= (number & mask) << offset
    return bits


def unpack(layout: data.StructLayout, bits: int) -> dict[str, int]:
    """Every field of a struct's `bits`."""
    return {name: bits >> offset & mask for name, (offset, mask, *_) in _places(layout).items()}


def field(layout: data.StructLayout, bits: int, name: str) -> int:
    """One field of a struct's `bits`."""
    offset, mask, *_ = _places(layout)[name]
    return bits >> offset & mask


def no_write(bus: data.StructLayout) -> int:
    """What programming bus `bus` may hold in a cycle without a write: anything, with `valid` 0."""
    return random.getrandbits(bus.size) & ~pack(bus, valid=1)
