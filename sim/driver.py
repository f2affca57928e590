"""The host's driver: turns the geometry of an output array into the words a node is programmed with.

Nothing here talks to a simulator. Functions return register writes, `(byte address, value)` in the order in which they
must be made; whoever holds the bus makes them. Addresses of memory are in sectors (32 B), as in the hardware.
"""

from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from enum import Enum

from amaranth.lib import data

from hw.config import SECTOR_BYTES, Configuration
from hw.messages import Access, AluOperation, DataType, Mapping, Phase, Policy, Threshold
from hw.range_table import ENTRY_WORDS, Blocks, Control, Grouping, Ragged, RowBytes, Rows, Word, Workgroups
from hw.registers import WINDOW_BASE, Kind, find_register

Write = tuple[int, int]

DTYPE_BYTES = {DataType.FP16: 2, DataType.BF16: 2, DataType.FP32: 4, DataType.INT32: 4}
ROW_BYTES_LIMIT = 4096


class DriverError(ValueError):
    """Something asked of the driver does not fit the hardware; the message names the field and what is allowed."""


def _between(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise DriverError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


@dataclass(frozen=True)
class WfTile:
    """The output of one wavefront: `rows` rows of `row_bytes` bytes, the first at sector `offset` of its array."""

    offset: int
    rows: int
    row_bytes: int


@dataclass(frozen=True)
class Tiling:
    """How a row-major array of `rows` x `columns` elements is cut into WG tiles, and those into WF tiles.

    WG tiles are numbered row by row; a WF tile is `tile_rows / wfs` rows of its WG tile. Tiles of the last row and
    column may be ragged. `pitch_sectors` is the distance of two rows (default: the shortest whole number of sectors).
    """

    rows: int
    columns: int
    tile_rows: int = 128
    tile_columns: int = 128
    wfs: int = 8
    dtype_bytes: int = 2
    pitch_sectors: int = 0

    def __post_init__(self) -> None:
        _between("rows", self.rows, 1, 1 << 24)
        _between("columns", self.columns, 1, 1 << 24)
        _between("tile_rows", self.tile_rows, 1, 65535)
        _between("wfs", self.wfs, 1, 8)
        if self.dtype_bytes not in (2, 4):
            raise DriverError(f"dtype_bytes must be 2 or 4, got {self.dtype_bytes!r}")
        _between("tile_columns", self.tile_columns, 1, ROW_BYTES_LIMIT // self.dtype_bytes)
        if self.tile_rows % self.wfs:
            raise DriverError(f"tile_rows must be a multiple of wfs ({self.wfs}), got {self.tile_rows}")
        if self.tiles_across > 1 and self.tile_columns * self.dtype_bytes % SECTOR_BYTES:
            raise DriverError(
                f"tile_columns must be a multiple of {SECTOR_BYTES // self.dtype_bytes} "
                f"(whole {SECTOR_BYTES} B sectors) "
                f"when there is more than one tile in a row, got {self.tile_columns}"
            )
        shortest = -(-self.columns * self.dtype_bytes // SECTOR_BYTES)
        if self.pitch_sectors == 0:
            object.__setattr__(self, "pitch_sectors", shortest)
        _between("pitch_sectors", self.pitch_sectors, shortest, (1 << 32) - 1)

    @property
    def tiles_down(self) -> int:
        """WG tiles in a column."""
        return -(-self.rows // self.tile_rows)

    @property
    def tiles_across(self) -> int:
        """WG tiles in a row."""
        return -(-self.columns // self.tile_columns)

    @property
    def workgroups(self) -> int:
        """WG tiles of the array."""
        return self.tiles_down * self.tiles_across

    @property
    def wf_rows(self) -> int:
        """Rows of a whole WF tile."""
        return self.tile_rows // self.wfs

    @property
    def bottom_rows(self) -> int:
        """Rows of a WG tile in the last tile row."""
        return self.rows - (self.tiles_down - 1) * self.tile_rows

    @property
    def bottom_wfs(self) -> int:
        """WF tiles with any rows in a WG of the last tile row."""
        return -(-self.bottom_rows // self.wf_rows)

    @property
    def bottom_full(self) -> int:
        """WF tiles with all their rows in a WG of the last tile row."""
        return self.bottom_rows // self.wf_rows

    @property
    def partial_rows(self) -> int:
        """Rows of the ragged WF tile of the last tile row (0: none is ragged)."""
        return self.bottom_rows % self.wf_rows

    @property
    def body_bytes(self) -> int:
        """Bytes in a row of a tile, except in the last tile column."""
        return self.tile_columns * self.dtype_bytes

    @property
    def right_bytes(self) -> int:
        """Bytes in a row of a tile of the last tile column."""
        return (self.columns - (self.tiles_across - 1) * self.tile_columns) * self.dtype_bytes

    @property
    def wf_tiles(self) -> int:
        """WF tiles with any rows in the array."""
        return self.tiles_across * ((self.tiles_down - 1) * self.wfs + self.bottom_wfs)

    @property
    def sectors(self) -> int:
        """Sectors the array occupies, from its first row to the end of its last pitch."""
        return self.rows * self.pitch_sectors

    def blocks(self, block_wfs: int) -> int:
        """DMA blocks of the array at `block_wfs` WF tiles per block."""
        whole = -(-self.wfs // block_wfs)
        return self.tiles_across * ((self.tiles_down - 1) * whole + -(-self.bottom_wfs // block_wfs))

    def wf_tile(self, workgroup: int, wf: int) -> WfTile:
        """Where the WF tile `wf` of tile `workgroup` (numbered from 0) lies; `rows` is 0 when it has none."""
        down, across = divmod(workgroup, self.tiles_across)
        first = down * self.tile_rows + wf * self.wf_rows
        rows = max(0, min(self.wf_rows, self.rows - first))
        row_bytes = self.right_bytes if across == self.tiles_across - 1 else self.body_bytes
        return WfTile(first * self.pitch_sectors + across * self.body_bytes // SECTOR_BYTES, rows, row_bytes)


def pack(word: str, layout: data.Layout, **values: int | Enum) -> int:
    """The number with the fields of `layout` set to `values`; raises :class:`DriverError` naming what does not fit."""
    result = 0
    for name, value in values.items():
        number = value.value if isinstance(value, Enum) else int(value)
        field = layout[name]
        _between(f"{word}.{name}", number, 0, (1 << field.width) - 1)
        result |= number << field.offset
    return result


def divisibility(divisor: int) -> tuple[int, int, int]:
    """(inverse, shift, limit) with which the hardware tests 16-bit numbers for being multiples of `divisor`.

    n is a multiple when rotate_right_16(n * inverse mod 2**16, shift) <= limit (Hacker's Delight, 10-17).
    """
    _between("tiles in a row", divisor, 1, 65535)
    shift = (divisor & -divisor).bit_length() - 1
    return pow(divisor >> shift, -1, 1 << 16), shift, 65535 // divisor


def block_shift(tiling: Tiling, block_wfs: int) -> int:
    """log2 of the trigger-table entries one WG owns."""
    return (-(-tiling.wfs // block_wfs) - 1).bit_length()


def trigger_entries(config: Configuration, tiling: Tiling, block_wfs: int) -> int:
    """Trigger-table entries a range needs, over all Tracker banks."""
    banks = config.tracker_banks
    return banks * (-(-tiling.workgroups // banks) << block_shift(tiling, block_wfs))


def range_words(
    config: Configuration,
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
    remote_access: Access = Access.STORE,
    phase: Phase = Phase.RS,
    peer: int = 0,
    offset: int = 0,
    wg_base: int = 0,
    block_base: int = 0,
    block_wfs: int = 1,
    updates: int = 1,
) -> dict[Word, int]:
    """Every word of a range entry.

    With a `tiling` the range holds that array at sector `base`, its tiles numbered from `wg_base`, and each element
    expects `updates` accesses; without one it is plain memory of `sectors` sectors. `offset` (in sectors, may be
    negative) leads from an address here to the peer's. Raises :class:`DriverError` naming the field that does not fit.
    """
    if (tiling is None) == (sectors is None):
        raise DriverError("exactly one of tiling and sectors must be given")
    if tiling is None and (tracked or mapping is not Mapping.LOCAL):
        raise DriverError("tiling must be given for a tracked, remote-mapped or DMA-mapped range")
    length = tiling.sectors if tiling is not None else int(sectors or 0)
    highest = (1 << config.va_sector_bits) - 1
    _between("base", base, 0, highest)
    _between("length in sectors", length, 1, highest - base)
    _between("offset", offset, -highest, highest)
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
        remote_access=remote_access,
        phase=phase,
        peer=peer,
    )
    moved = offset & highest
    for low, value in ((Word.BASE_LOW, base), (Word.LIMIT_LOW, base + length), (Word.OFFSET_LOW, moved)):
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


def _tile_words(
    config: Configuration, tiling: Tiling, wg_base: int, tracked: bool, block_base: int, block_wfs: int, updates: int
) -> dict[Word, int]:
    """The words that describe tiles, thresholds and trigger-table entries."""
    banks = config.tracker_banks
    _between("workgroups", tiling.workgroups, 1, min(65535, 1 << config.wg_bits))
    _between("wg_base", wg_base, 0, min(65536, 1 << config.wg_bits) - tiling.workgroups)
    _between("block_wfs", block_wfs, 1, tiling.wfs)
    _between("updates", updates, 1, 255)
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
        _between(
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


def range_writes(config: Configuration, index: int, words: Dictionary[Word, int]) -> list[Write]:
    """Register writes that program range `index`: it is invalid until its last word, CONTROL, is written."""
    _between("range index", index, 0, config.ranges - 1)
    for word, value in words.items():
        _between(word.name, value, 0, 0xFFFF_FFFF)
    entry = WINDOW_BASE + index * 4 * ENTRY_WORDS
    control = entry + 4 * Word.CONTROL
    body = [(entry + 4 * word, value) for word, value in words.items() if word is not Word.CONTROL]
    return [(control, 0), *body, (control, words[Word.CONTROL])]


def register_write(config: Configuration, register: str, **values: int | Enum) -> Write:
    """The write that sets fields of a register; fields not named take their reset value.

    A register of one field is set as `register_write(config, "rank", rank=2)`. Raises :class:`DriverError`.
    """
    try:
        description = find_register(config, register)
        value = {field.name: field.reset for field in description.fields if field.kind is Kind.READ_WRITE}
        for name, item in values.items():
            field = description.field(name)
            number = item.value if isinstance(item, Enum) else int(item)
            _between(f"{register}.{name}", number, 0, (1 << field.width) - 1)
            value[name] = number
    except KeyError as error:
        raise DriverError(error.args[0]) from error
    return description.address, sum(number << description.field(name).low for name, number in value.items())


def wide_writes(config: Configuration, name: str, value: int) -> list[Write]:
    """Both halves of a value kept in `<name>_low` and `<name>_high`."""
    return [
        register_write(config, f"{name}_{half}", **{f"{name}_{half}": part})
        for half, part in (("low", value & 0xFFFF_FFFF), ("high", value >> 32))
    ]


def arbiter_writes(
    config: Configuration,
    policy: Policy = Policy.MCA,
    threshold: Threshold = Threshold.AUTO,
    starvation_limit: int | None = None,
    refresh: bool | None = None,
) -> list[Write]:
    """Writes that choose the arbitration; None keeps what reset gives."""
    values: dict[str, int | Enum] = {"policy": policy, "threshold": threshold}
    if refresh is not None:
        values["refresh"] = int(refresh)
    writes = [register_write(config, "arbiter", **values)]
    if starvation_limit is not None:
        writes.append(register_write(config, "starvation_limit", starvation_limit=starvation_limit))
    return writes


def arm_writes(config: Configuration, initialised: bool = False) -> list[Write]:
    """The write that starts the programmed epoch; `initialised`: memory holds no tag and no record from before the
    reset, so the node need not sweep it."""
    return [register_write(config, "control", arm=1, initialised=int(initialised))]
