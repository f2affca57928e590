"""Arrays as the simulated memory holds them: sectors in hexadecimal files, rows padded to whole sectors.

A file has one 32-byte sector a line, most significant byte first, as `$readmemh` and `$writememh` use it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES


def pitch_sectors(columns: int, element_bytes: int) -> int:
    """Sectors from one row of a matrix to the next: rows start on a sector."""
    return -(-columns * element_bytes // SECTOR_BYTES)


def to_sectors(matrix: np.ndarray, pitch: int = 0) -> np.ndarray:
    """Bit patterns of shape (rows, columns) as bytes of shape (rows * pitch, 32), padding zero; `pitch` sectors to a
    row (0: as few as hold it)."""
    rows, columns = matrix.shape
    pitch = pitch or pitch_sectors(columns, matrix.itemsize)
    padded = np.zeros((rows, pitch * SECTOR_BYTES), np.uint8)
    padded[:, : columns * matrix.itemsize] = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    return padded.reshape(rows * pitch, SECTOR_BYTES)


def from_sectors(sectors: np.ndarray, rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Inverse of :func:`to_sectors`; the padding is dropped."""
    used = columns * dtype.itemsize
    wide = sectors.reshape(rows, -1)[:, :used]
    return np.ascontiguousarray(wide).view(dtype).reshape(rows, columns)


def write_hex(path: Path, sectors: np.ndarray) -> None:
    """Write bytes of shape (sectors, 32) as a file for `$readmemh`."""
    path.write_bytes(hex_lines(sectors))


def hex_lines(sectors: np.ndarray) -> bytes:
    """Bytes of shape (sectors, 32) as the lines of such a file."""
    digits = np.frombuffer(np.ascontiguousarray(sectors[:, ::-1]).tobytes().hex().encode(), np.uint8)
    lines = np.full((len(sectors), 2 * SECTOR_BYTES + 1), ord("\n"), np.uint8)
    lines[:, :-1] = digits.reshape(len(sectors), 2 * SECTOR_BYTES)
    return lines.tobytes()


def read_hex(path: Path) -> np.ndarray:
    """Sectors of a file written by `$writememh`, as bytes of shape (sectors, 32)."""
    raw = np.frombuffer(path.read_bytes(), np.uint8)
    width = 2 * SECTOR_BYTES + 1
    if raw.size % width or not (raw[width - 1 :: width] == ord("\n")).all():
        raise ValueError(f"{path} is not a dump of {SECTOR_BYTES}-byte sectors")
    digits = bytes(raw.reshape(-1, width)[:, :-1].tobytes()).decode()
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, SECTOR_BYTES)[:, ::-1]


def gather_channels(dumps: list[np.ndarray], first: int, count: int) -> np.ndarray:
    """Sectors `first` to `first + count - 1` of an address space interleaved over channels, from each channel's
    dump."""
    channels = len(dumps)
    address = np.arange(first, first + count)
    block = address // INTERLEAVE_SECTORS
    local = block // channels * INTERLEAVE_SECTORS + address % INTERLEAVE_SECTORS
    return np.stack(dumps)[block % channels, local]


def scatter_channels(
    images: Iterable[tuple[int, np.ndarray]], base: int, channel: int, channels: int
) -> list[tuple[int, np.ndarray]]:
    """The part of `images` (first sector, sectors) that lies in `channel`, by its own addresses, for an address space
    that is interleaved over channels and whose sector `base` is kept as sector 0."""
    answer = []
    for first, sectors in images:
        address = np.arange(first - base, first - base + len(sectors))
        block = address // INTERLEAVE_SECTORS
        mine = block % channels == channel
        local = (block // channels * INTERLEAVE_SECTORS + address % INTERLEAVE_SECTORS)[mine]
        # Own addresses of one image follow each other without a gap.
        if len(local):
            answer.append((int(local[0]), sectors[mine]))
    return answer


def write_hex_at(path: Path, images: Iterable[tuple[int, np.ndarray]]) -> None:
    """Write `images` (first sector, bytes of shape (sectors, 32)) as one file for `$readmemh`."""
    lines = []
    for first, sectors in images:
        lines.append(f"@{first:x}\n".encode())
        lines.append(hex_lines(sectors))
    path.write_bytes(b"".join(lines))


def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """`arrays` as one, a row each: as they are where all have one shape, else flat, with zeros behind shorter ones."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    longest = max(array.size for array in arrays)
    return np.stack([np.pad(array.ravel(), (0, longest - array.size)) for array in arrays])
