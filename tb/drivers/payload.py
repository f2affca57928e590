"""Payloads between Python and the ports of a design: structs packed into the bits of one signal."""

import random
from typing import Any

from amaranth.lib import data


def pack(layout: data.StructLayout, **values: Any) -> int:
    """Bits of a struct with these fields, the others 0. KeyError for a field that it does not have."""
    return layout.const(values).as_value().value


def unpack(layout: data.StructLayout, bits: int) -> dict[str, int]:
    """Every field of a struct's `bits`."""
    return {name: bits >> field.offset & (1 << field.width) - 1 for name, field in layout}


def no_write(bus: data.StructLayout) -> int:
    """What programming bus `bus` may hold in a cycle without a write: anything, with `valid` 0."""
    return random.getrandbits(bus.size) & ~pack(bus, valid=1)
