"""Words of the range table and the send table as they come on a programming bus."""

from enum import IntEnum

from amaranth.lib import data

from tb.drivers.payload import pack


def table_write(layout: data.StructLayout, index: int, word: IntEnum, value: int, renewed: int = 0) -> int:
    """The word of an entry, with the parity that a checked bus has."""
    bits = pack(layout, valid=1, index=index, word=word.value, data=value)
    if "parity" not in layout.members:
        return bits
    bits |= renewed << layout["renewed"].offset
    odd = (bits.bit_count() - 1) % 2
    return bits | odd << layout["parity"].offset
