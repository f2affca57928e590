"""Range entries: the words that tell a node what an array's memory is, who stores to it, and what then happens."""

from enum import Enum

from amaranth.lib import data

from hw.geometry import INTERLEAVE_SECTORS
from hw.link.parameters import LinkParameters
from hw.messages import Access, AluOperation, DataType, Mapping, TrafficClass
from hw.range_table import Blocks, Control, Grouping, Ragged, RowBytes, Rows, Word, Workgroups
from hw.send_table import WG_OFFSET_BITS, OffsetHigh, SendControl, SendWord
from hw.tracker.parameters import TrackerParameters
from sim.host.limits import DriverError, between
from sim.host.tiling import Tiling

DTYPE_BYTES = {DataType.FP16: 2, DataType.BF16: 2, DataType.FP32: 4, DataType.INT32: 4}


def pack(word: str, layout: data.Layout, **values: int | Enum) -> int:
    """The number with the fields of `layout` set to `values`; raises :class:`DriverError` naming what does not fit."""
    result = 0
    for name, value in values.items():
        number = value.value if isinstance(value, Enum) else int(value)
        field = layout[name]
        between(f"{word}.{name}", number, 0, (1 << field.width) - 1)
        result |= number << field.offset
    return result


def divisibility(divisor: int) -> tuple[int, int, int]:
    """(inverse, shift, limit) with which the hardware tests 16-bit numbers for being multiples of `divisor`.

    n is a multiple when rotate_right_16(n * inverse mod 2**16, shift) <= limit (Hacker's Delight, 10-17).
    """
    between("tiles in a row", divisor, 1, 65535)
    shift = (divisor & -divisor).bit_length() - 1
    return pow(divisor >> shift, -1, 1 << 16), shift, 65535 // divisor


def block_shift(tiling: Tiling, block_wfs: int) -> int:
    """log2 of the trigger-table entries one WG owns."""
    return (-(-tiling.wfs // block_wfs) - 1).bit_length()


def trigger_entries(config: TrackerParameters, tiling: Tiling, block_wfs: int) -> int:
    """Trigger-table entries a range needs, over all Tracker banks."""
    banks = config.tracker_banks
    return banks * (-(-tiling.workgroups // banks) << block_shift(tiling, block_wfs))


def range_words(
    config: TrackerParameters,
    *,
    base: int,
    tiling: Tiling | None = None,
    sectors: int | None = None,
    mapping: Mapping = Mapping.LOCAL,
    access: Access = Access.STORE,
    alu: AluOperation = AluOperation.ADD,
    dtype: DataType = DataType.FP16,
    first_touch: bool = False,
    tracked: bool = False,
    launch: bool = False,
    first_send: int = 0,
    sends: int = 0,
    wg_base: int = 0,
    block_base: int = 0,
    block_wfs: int = 1,
    updates: int = 1,
) -> dict[Word, int]:
    """Every word of a range entry.

    With a `tiling` the range holds that array at sector `base`, its tiles numbered from `wg_base`, and each element
    expects `updates` accesses; without one it is plain memory of `sectors` sectors. What it holds goes where `sends`
    entries of the send table say, from `first_send` on. Raises :class:`DriverError` naming the field that does not fit.
    """
    if (tiling is None) == (sectors is None):
        raise DriverError("exactly one of tiling and sectors must be given")
    if tiling is None and (tracked or mapping is not Mapping.LOCAL):
        raise DriverError("tiling must be given for a tracked, remote-mapped or DMA-mapped range")
    length = tiling.sectors if tiling is not None else int(sectors or 0)
    highest = (1 << config.va_sector_bits) - 1
    between("base", base, 0, highest)
    between("length in sectors", length, 1, highest - base)
    between("sends", sends, int(mapping is not Mapping.LOCAL), config.sends)
    between("first_send", first_send, 0, config.sends - max(sends, 1))
    if mapping is Mapping.DMA and not tracked:
        raise DriverError("tracked must be true for a DMA-mapped range: its blocks are triggered by the Tracker")
    words = dict.fromkeys(Word, 0)
    words[Word.CONTROL] = pack(
        "CONTROL",
        Control,
        valid=1,
        mapping=mapping,
        access=access,
        alu=alu,
        dtype=dtype,
        first_touch=first_touch,
        tracked=tracked,
        launch=launch,
        first_send=first_send,
        sends=sends,
    )
    for low, value in ((Word.BASE_LOW, base), (Word.LIMIT_LOW, base + length)):
        words[low] = value & 0xFFFF_FFFF
        words[Word(low + 1)] = value >> 32
    if tiling is not None:
        if DTYPE_BYTES[dtype] != tiling.dtype_bytes:
            raise DriverError(
                f"dtype {dtype.name} has {DTYPE_BYTES[dtype]} bytes but the tiling's dtype_bytes is "
                f"{tiling.dtype_bytes}"
            )
        words.update(_tile_words(config, tiling, wg_base, tracked, block_base, block_wfs, updates))
    return words


def send_words(
    config: LinkParameters,
    *,
    peer: int,
    port: int = 0,
    offset: int = 0,
    wg_offset: int = 0,
    access: Access = Access.STORE,
    alu: AluOperation = AluOperation.ADD,
    dtype: DataType = DataType.FP16,
    traffic_class: TrafficClass = TrafficClass.RS,
) -> dict[SendWord, int]:
    """Every word of a send to rank `peer`, to which link port `port` leads.

    `offset` (in sectors) leads from an address here to the peer's, `wg_offset` from a tile's number here to its number
    there; both may be negative. Raises :class:`DriverError` naming the field that does not fit: so does an offset to a
    sector of another lane, in a node of several.
    """
    highest = (1 << config.va_sector_bits) - 1
    numbers = 1 << min(config.wg_bits, WG_OFFSET_BITS)
    between("port", port, 0, config.links - 1)
    between("offset", offset, -highest, highest)
    between("wg_offset", wg_offset, 1 - numbers, numbers - 1)
    turn = INTERLEAVE_SECTORS * config.channels
    if config.lanes > 1 and offset % turn:
        raise DriverError(
            f"the offset of a send must be a multiple of {turn} sectors, so that it ends in the lane in which it "
            f"begins (channels={config.channels}, lanes={config.lanes}); got {offset}"
        )
    moved = offset & highest
    return {
        SendWord.CONTROL: pack(
            "send CONTROL",
            SendControl,
            peer=peer,
            access=access,
            alu=alu,
            dtype=dtype,
            traffic_class=traffic_class,
            wg_offset=wg_offset % (1 << WG_OFFSET_BITS),
        ),
        SendWord.OFFSET_LOW: moved & 0xFFFF_FFFF,
        SendWord.OFFSET_HIGH: pack("send OFFSET_HIGH", OffsetHigh, offset=moved >> 32, port=port),
    }


def _tile_words(
    config: TrackerParameters,
    tiling: Tiling,
    wg_base: int,
    tracked: bool,
    block_base: int,
    block_wfs: int,
    updates: int,
) -> dict[Word, int]:
    """The words that describe tiles, thresholds and trigger-table entries."""
    banks = config.tracker_banks
    between("workgroups", tiling.workgroups, 1, min(65535, 1 << config.wg_bits))
    between("wg_base", wg_base, 0, min(65536, 1 << config.wg_bits) - tiling.workgroups)
    between("block_wfs", block_wfs, 1, tiling.wfs)
    between("updates", updates, 1, 255)
    if wg_base % banks or block_base % banks:
        raise DriverError(
            f"wg_base and block_base must be multiples of tracker_banks ({banks}), got {wg_base}, {block_base}"
        )
    shift = block_shift(tiling, block_wfs)
    if tracked:
        entries = trigger_entries(config, tiling, block_wfs)
        if block_base < 0 or block_base + entries > config.trigger_blocks:
            raise DriverError(
                f"trigger_blocks must be at least {block_base + entries} to hold this range, the configuration has "
                f"{config.trigger_blocks}"
            )
        between(
            "WF tile bytes x updates", tiling.wf_rows * tiling.body_bytes * updates, 1, (1 << config.count_bits) - 1
        )
    inverse, rotation, limit = divisibility(tiling.tiles_across)
    return {
        Word.WORKGROUPS: pack("WORKGROUPS", Workgroups, base=wg_base, count=tiling.workgroups),
        Word.RAGGED: pack("RAGGED", Ragged, bottom=(tiling.tiles_down - 1) * tiling.tiles_across, inverse=inverse),
        Word.GROUPING: pack(
            "GROUPING", Grouping, limit=limit, shift=rotation, wfs=tiling.wfs, block_wfs=block_wfs, block_shift=shift
        ),
        Word.BLOCKS: pack(
            "BLOCKS", Blocks, base=block_base, bottom_wfs=tiling.bottom_wfs, bottom_full=tiling.bottom_full
        ),
        Word.ROWS: pack("ROWS", Rows, full=tiling.wf_rows, partial=tiling.partial_rows),
        Word.ROW_BYTES: pack("ROW_BYTES", RowBytes, body=tiling.body_bytes, right=tiling.right_bytes),
        Word.PITCH: tiling.pitch_sectors,
        Word.WF_STRIDE: tiling.wf_rows * tiling.pitch_sectors,
        Word.THRESHOLD_BODY: tiling.wf_rows * tiling.body_bytes * updates,
        Word.THRESHOLD_RIGHT: tiling.wf_rows * tiling.right_bytes * updates,
        Word.THRESHOLD_BOTTOM: tiling.partial_rows * tiling.body_bytes * updates,
        Word.THRESHOLD_CORNER: tiling.partial_rows * tiling.right_bytes * updates,
        Word.WF_TOTAL: tiling.wf_tiles if tracked else 0,
    }
