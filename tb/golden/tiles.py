"""Brute-force geometry of a tiled matrix: every element is put into its tile one by one.

Slow and plain on purpose. `count_tiles` knows nothing of thresholds, classes or strides; it only asks of each element
which workgroup and which wavefront of it produces that element, and where the element lies in memory.
"""

from dataclasses import dataclass, field

SECTOR_BYTES = 32


@dataclass
class Tile:
    """What one wavefront produces: bytes, the rows it has, and the bytes it writes in each sector of the array."""

    bytes: int = 0
    rows: set[int] = field(default_factory=set)
    columns: set[int] = field(default_factory=set)
    sectors: dict[int, int] = field(default_factory=dict)


def count_tiles(
    rows: int, columns: int, tile_rows: int, tile_columns: int, wfs: int, element_bytes: int, pitch_sectors: int
) -> dict[tuple[int, int], Tile]:
    """Tiles of a row-major matrix by (workgroup, wavefront), only those that produce something."""
    tiles: dict[tuple[int, int], Tile] = {}
    tiles_in_a_row = 0
    while tiles_in_a_row * tile_columns < columns:
        tiles_in_a_row += 1
    for row in range(rows):
        for column in range(columns):
            workgroup = (row // tile_rows) * tiles_in_a_row + column // tile_columns
            wavefront = row % tile_rows * wfs // tile_rows
            tile = tiles.setdefault((workgroup, wavefront), Tile())
            tile.bytes += element_bytes
            tile.rows.add(row)
            tile.columns.add(column)
            sector = row * pitch_sectors + column * element_bytes // SECTOR_BYTES
            tile.sectors[sector] = tile.sectors.get(sector, 0) + element_bytes
    return tiles


def count_blocks(tiles: dict[tuple[int, int], Tile], block_wfs: int) -> dict[tuple[int, int], list[int]]:
    """DMA blocks by (workgroup, block in it): the wavefronts of each, only those that produce something."""
    blocks: dict[tuple[int, int], list[int]] = {}
    for workgroup, wavefront in sorted(tiles):
        blocks.setdefault((workgroup, wavefront // block_wfs), []).append(wavefront)
    return blocks
