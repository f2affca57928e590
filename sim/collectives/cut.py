"""How a chunk is cut into tiles, as far as traffic depends on it. Knows nothing of addresses or of the hardware."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SECTOR_BYTES = 32


class Tile(NamedTuple):
    """A WF tile: elements [top:bottom, left:right] of its chunk, in row `down` of WG tiles and DMA block `block`;
    `sectors` hold it."""

    top: int
    bottom: int
    left: int
    right: int
    down: int
    block: int
    sectors: int


@dataclass(frozen=True)
class Cut:
    """A chunk of `rows` x `columns` elements of `element_bytes`, in WG tiles of `tile_rows` x `tile_columns`, the last
    ones ragged; those in `wfs` WF tiles one below the other, of which `block_wfs` make a DMA block. Each row begins at
    a whole sector, and so does each tile."""

    rows: int
    columns: int
    tile_rows: int = 128
    tile_columns: int = 128
    wfs: int = 8
    block_wfs: int = 1
    element_bytes: int = 2

    def tiles(self) -> Iterator[Tile]:
        """All WF tiles, one after another: the interpreter counts with them, not with the numbers below."""
        height, block = self.tile_rows // self.wfs, -1
        for down, top in enumerate(range(0, self.rows, self.tile_rows)):
            for left in range(0, self.columns, self.tile_columns):
                right = min(left + self.tile_columns, self.columns)
                for wf, first in enumerate(range(top, min(top + self.tile_rows, self.rows), height)):
                    block += wf % self.block_wfs == 0
                    bottom = min(first + height, top + self.tile_rows, self.rows)
                    row = len(range(left * self.element_bytes, right * self.element_bytes, SECTOR_BYTES))
                    yield Tile(first, bottom, left, right, down, block, (bottom - first) * row)

    @property
    def sectors(self) -> int:
        """Sectors of a chunk."""
        return self.rows * -(-self.columns * self.element_bytes // SECTOR_BYTES)

    @property
    def wf_tiles(self) -> int:
        """WF tiles of a chunk."""
        return self._down(1)

    @property
    def blocks(self) -> int:
        """DMA blocks of a chunk."""
        return self._down(self.block_wfs)

    @property
    def workgroups(self) -> int:
        """WG tiles of a chunk."""
        return -(-self.rows // self.tile_rows) * -(-self.columns // self.tile_columns)

    @property
    def wf_tile_bytes(self) -> int:
        """Bytes of a whole WF tile."""
        return self.tile_rows // self.wfs * self.tile_columns * self.element_bytes

    def _down(self, together: int) -> int:
        """Groups of `together` WF tiles: as many as begin in each WG tile, those of the last row cut short."""
        whole, rest = divmod(self.rows, self.tile_rows)
        last = -(-rest // (self.tile_rows // self.wfs))
        return -(-self.columns // self.tile_columns) * (whole * -(-self.wfs // together) + -(-last // together))
