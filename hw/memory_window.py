"""Which addresses are in the memory of a node, and which of them in one of its lanes."""

from amaranth.hdl import Mux, Value, unsigned
from amaranth.lib import data

from .geometry import INTERLEAVE_SECTORS
from .message_parameters import ChannelParameters

WindowCheck = data.StructLayout({"high": unsigned(31), "checked": unsigned(1)})
"""Where in the address space the memory of a node lies: accesses whose address has other bits than `high` above those
that the memory tells apart are refused, if `checked`."""


def in_lane(parameters: ChannelParameters, lane: Value, va: Value) -> Value:
    """Whether sector address `va` is in lane number `lane`, of several."""
    low = (INTERLEAVE_SECTORS - 1).bit_length() + parameters.lane_channel_bits
    return va[low : low + parameters.lane_bits] == lane


def in_window(parameters: ChannelParameters, window: data.View, va: Value) -> Value:
    """Whether sector address `va` is in the memory of the node."""
    return ~window.checked | (va[-parameters.window_bits :] == window.high[: parameters.window_bits])


def ends_in_window(parameters: ChannelParameters, window: data.View, end: Value) -> Value:
    """Whether the sector before `end` is in the memory of the node."""
    bits = parameters.window_bits
    low, high = end[:-bits], end[-bits:]
    following = (window.high[:bits] + 1)[:bits]
    return ~window.checked | Mux(low == 0, high == following, high == window.high[:bits])
