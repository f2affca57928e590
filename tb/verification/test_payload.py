"""Payloads that benches pack have the bits that Amaranth gives them."""

import random
from enum import Enum

import pytest
from amaranth.lib import data

from hw.config import preset
from hw.link.wire import packet_layout
from hw.messages import Messages
from hw.range_table import Control, RangeWrite
from sim.benches.dram_channel import TraceFigures
from sim.models.timing_checker import Rule
from tb.drivers.payload import field, pack, unpack

QUAD = preset("quad")
MESSAGES = Messages(QUAD)
LAYOUTS = (MESSAGES.memory_request, MESSAGES.column_command, packet_layout(QUAD), RangeWrite, Control)


def anything(part: data.Field) -> int | Enum:
    """A member of an enumeration or its number; a number that may be too wide, or negative."""
    shape = part.shape
    if isinstance(shape, type) and issubclass(shape, Enum):
        member = random.choice(list(shape))
        return random.choice([member, member.value])
    return random.choice([random.getrandbits(part.width + 2), -random.getrandbits(part.width), True])


@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
def test_bits_are_amaranths(layout: data.StructLayout) -> None:
    random.seed(1)
    parts = dict(data.Layout.cast(layout))
    for _ in range(100):
        values = {name: anything(part) for name, part in parts.items()}
        bits = layout.const(values).as_value().value
        assert pack(layout, **values) == bits
        expected = {name: bits >> part.offset & (1 << part.width) - 1 for name, part in parts.items()}
        assert unpack(layout, bits) == {name: field(layout, bits, name) for name in parts} == expected


def test_a_member_of_an_enumeration_fits_where_numbers_are() -> None:
    assert pack(TraceFigures, rule=Rule.RRD) == TraceFigures.const({"rule": Rule.RRD}).as_value().value
    with pytest.raises(KeyError):
        pack(TraceFigures, ruler=1)
