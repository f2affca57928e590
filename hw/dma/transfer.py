"""The transfer: what a ready block is to the part of the DMA engine that makes addresses, in three dimensions.

A block is tiles at a distance, a tile is rows at a pitch, a row is bytes: all of it is said here, once, before the
first address is made. The same split as the N-D mid-end of iDMA (Benz et al., IEEE TC 2024). Source: T3 section 4.2.2.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..message_parameters import MessageParameters
from ..messages import Messages, TrafficClass
from ..range_table import Control

ROW_SECTORS_BITS = 12
"""Width of the number of sectors in a row (ROW_BYTES is 16 bits)."""
TILES_BITS = 4
"""Width of a number of WF tiles, 8 at most."""

Geometry = data.StructLayout(
    {
        "row_sectors": unsigned(ROW_SECTORS_BITS),
        "last_bytes": unsigned(5),
        "rows": unsigned(16),
        "pitch": unsigned(32),
        "stride": unsigned(32),
        "ragged": unsigned(1),
        "ragged_tile": unsigned(TILES_BITS),
        "ragged_rows": unsigned(16),
    }
)
"""Rows of `row_sectors` sectors, of which the last has `last_bytes` bytes (0: 32), `pitch` sectors apart, `rows` to a
tile; tiles are `stride` sectors apart. With `ragged`, tile number `ragged_tile` has `ragged_rows` rows."""


def label_layout(parameters: MessageParameters) -> data.StructLayout:
    """What a transfer is for: its range, WG and epoch, its sends, `first` to `first` + `count` - 1, and the
    `traffic_class` of the first of them, which is that of its reads."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "range": unsigned(parameters.range_bits),
            "wg": messages.wg,
            "epoch": messages.epoch,
            "first": unsigned(parameters.send_bits),
            "count": Control["sends"].shape,
            "traffic_class": TrafficClass,
        }
    )


def transfer_layout(parameters: MessageParameters) -> data.StructLayout:
    """`tiles` tiles from number `tile` on, whose first sector is `va`. Counts of 0 act as 1. No row of it that begins
    behind sector `last_row` is read, and nothing at all if the first one is not `inside` its range."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "va": messages.va,
            "tile": messages.wf,
            "tiles": unsigned(TILES_BITS),
            "geometry": Geometry,
            "last_row": messages.va,
            "inside": unsigned(1),
            "label": label_layout(parameters),
        }
    )


def sector_layout(parameters: MessageParameters) -> data.StructLayout:
    """One sector of a transfer: its tile and its `place` in the packet that it will be in; `mask`: its bytes;
    `packet_end`, `end`: the last of a packet, which ends with the row and with 8 aligned sectors; of the transfer."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "va": messages.va,
            "tile": messages.wf,
            "place": unsigned(3),
            "mask": unsigned(32),
            "packet_end": unsigned(1),
            "end": unsigned(1),
        }
    )
