"""How an array is cut into WG tiles and WF tiles, and where each lies.

Addresses and distances are in sectors (32 B), as in the hardware.
"""

from dataclasses import dataclass

from hw.config import SECTOR_BYTES
from sim.host.limits import DriverError, between

ROW_BYTES_LIMIT = 4096


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
        between("rows", self.rows, 1, 1 << 24)
        between("columns", self.columns, 1, 1 << 24)
        between("tile_rows", self.tile_rows, 1, 65535)
        between("wfs", self.wfs, 1, 8)
        if self.dtype_bytes not in (2, 4):
            raise DriverError(f"dtype_bytes must be 2 or 4, got {self.dtype_bytes!r}")
        between("tile_columns", self.tile_columns, 1, ROW_BYTES_LIMIT // self.dtype_bytes)
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
        between("pitch_sectors", self.pitch_sectors, shortest, (1 << 32) - 1)

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
