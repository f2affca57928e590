"""Golden model of the link packets: the sectors of a WF tile, and how they are cut into packets."""

from dataclasses import dataclass

SECTOR = 32


@dataclass(frozen=True)
class Tile:
    """A range's geometry as the range table states it; addresses, pitch and strides in sectors."""

    wfs: int
    block_wfs: int
    rows_full: int
    rows_partial: int
    bottom_wfs: int
    bottom_full: int
    bytes_body: int
    bytes_right: int
    pitch: int
    wf_stride: int


def packet_routes(first: int, count: int, port_of: list[int]) -> dict[str, int]:
    """The ports that a packet's sends use, `port_of` that of each in the table, around its end; whether none uses that
    of another; and how many sends there are."""
    sends = min(max(count, 1), len(port_of))
    used = [port_of[(first + number) % len(port_of)] for number in range(sends)]
    return {"ports": sum(1 << port for port in set(used)), "single": int(len(set(used)) == sends), "sends": sends}


def row_sectors(va: int, row_bytes: int) -> list[tuple[int, int]]:
    """(sector address, byte mask) of a row of `row_bytes` bytes that starts at sector `va`."""
    sectors = []
    for first in range(0, row_bytes, SECTOR):
        valid = min(SECTOR, row_bytes - first)
        sectors.append((va + first // SECTOR, 2**valid - 1))
    return sectors


def block_rows(
    tile: Tile, va: int, first_wf: int, bottom: bool, right: bool
) -> list[tuple[int, list[tuple[int, int]]]]:
    """The rows of a DMA block in order, each as (wf, its sectors); the first WF tile starts at `va`."""
    rows = []
    wfs = tile.bottom_wfs if bottom else tile.wfs
    for wf in range(first_wf, min(first_wf + tile.block_wfs, wfs)):
        ragged = bottom and wf == tile.bottom_full
        start = va + (wf - first_wf) * tile.wf_stride
        for row in range(tile.rows_partial if ragged else tile.rows_full):
            row_bytes = tile.bytes_right if right else tile.bytes_body
            rows.append((wf, row_sectors(start + row * tile.pitch, row_bytes)))
    return rows


def row_packets(sectors: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Cut the sectors of a row where the address is a multiple of 8 sectors (256 B)."""
    packets: list[list[tuple[int, int]]] = []
    for va, mask in sectors:
        if not packets or va % 8 == 0:
            packets.append([])
        packets[-1].append((va, mask))
    return packets
