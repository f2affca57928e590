"""Geometry of a sub-layer on a channel slice: tiles, chunks, operand panels, and where they lie in memory.

A slice of S of the 32 channels sees S/32 of every tile's sectors, and everything else as the whole GPU has it: the
same workgroups and wavefronts, so the same Tracker entries, triggers and DMA blocks. A WF tile of 16 rows of 8 sectors
becomes one of S rows of 4 sectors; of the whole GPU it is what it is.
"""

import math
from dataclasses import dataclass

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES, TOTAL_CHANNELS
from sim.errors import UsageError
from sim.host.address_space import ARRAY_BASE, input_base
from sim.host.tiling import Tiling

TILE = 128
"""Rows and columns of a WG tile; 8 wavefronts of 16 rows (T3 section 4.2.1)."""
WFS = 8
STEP_DEPTH = 64
"""K of one step of a workgroup."""
ELEMENT_BYTES = 2
SLICED_COLUMNS = 64
"""Columns of a tile in a slice that is not the whole GPU: 4 sectors. Rows are scaled by what is left of S/32."""
WINDOWS = 3 << 23
"""Distance in sectors a channel, from the output on, of the windows through which stores reach the neighbour: behind
the operands."""


@dataclass(frozen=True)
class SubLayer:
    """GEMM of `m` x `n` (K = `k`) on each of `gpus` GPUs, its sum scattered over them, as `channels` channels see it.

    A chunk is m / gpus rows; when that is not a whole number of rows of tiles, it is a rectangle of tiles, as nearly
    square as they can be cut, and the output is stored chunk after chunk. Raises :class:`sim.errors.UsageError` when
    that does not come out even.

    A node of `tracker_banks` numbers the tiles of a chunk from a multiple of them on.
    """

    m: int
    n: int
    k: int
    gpus: int
    channels: int = 1
    tracker_banks: int = 1

    def __post_init__(self) -> None:
        if self.m % TILE:
            raise UsageError(f"M must be a multiple of {TILE}, got {self.m}")
        if not self._cuts:
            raise UsageError(f"a {self.m} x {self.n} output cannot be cut into {self.gpus} chunks of whole tiles")

    @property
    def _cuts(self) -> list[int]:
        """Into how many chunks side by side the output may be cut."""
        down, across = self.m // TILE, self.n // TILE
        if down % self.gpus == 0:
            return [1]
        sides = range(2, self.gpus + 1) if self.n % TILE == 0 else ()
        return [cut for cut in sides if not self.gpus % cut and not across % cut and not down * cut % self.gpus]

    @property
    def split(self) -> int:
        """Chunks side by side (1: a chunk has whole rows). The squarest chunk has the least inputs, and so the least
        reads."""
        return min(self._cuts, key=lambda cut: self.m * cut // self.gpus + self.n // cut)

    @property
    def tiling(self) -> Tiling:
        """One chunk in the slice. With more than one channel the pitch is an odd number of interleave units, so that
        the rows of a tile spread over the channels, as address hashing has it on a GPU."""
        wide = TILE if self.channels == TOTAL_CHANNELS else SLICED_COLUMNS
        high = TILE * TILE * self.channels // (wide * TOTAL_CHANNELS)
        rows = self.m // self.gpus * self.split * high // TILE
        columns = self.n // self.split * wide // TILE
        sectors = math.ceil(columns * ELEMENT_BYTES / SECTOR_BYTES)
        if self.channels > 1:
            units = math.ceil(sectors / INTERLEAVE_SECTORS)
            sectors = (units | 1) * INTERLEAVE_SECTORS
        return Tiling(rows, columns, high, wide, WFS, ELEMENT_BYTES, sectors)

    @property
    def workgroups(self) -> int:
        """Workgroups of a chunk."""
        return self.tiling.workgroups

    @property
    def workgroup_stride(self) -> int:
        """Distance of the numbers of the first tiles of two chunks."""
        return -(-self.workgroups // self.tracker_banks) * self.tracker_banks

    @property
    def chunk_sectors(self) -> int:
        """Sectors of a chunk that hold data (its memory may have padding)."""
        tiling = self.tiling
        return tiling.rows * math.ceil(tiling.columns * ELEMENT_BYTES / SECTOR_BYTES)

    @property
    def steps(self) -> int:
        """Steps of a workgroup."""
        return math.ceil(self.k / STEP_DEPTH)

    def panel_sectors(self, width: int = TILE) -> tuple[int, int]:
        """Sectors that a step reads of a panel of `width` rows or columns, and the last step."""
        whole = max(1, STEP_DEPTH * width * ELEMENT_BYTES * self.channels // (SECTOR_BYTES * TOTAL_CHANNELS))
        total = math.ceil(self.k * width * ELEMENT_BYTES * self.channels / (SECTOR_BYTES * TOTAL_CHANNELS))
        return whole, max(1, total - (self.steps - 1) * whole)

    @property
    def memory(self) -> "Memory":
        """Where everything lies."""
        align = INTERLEAVE_SECTORS * TOTAL_CHANNELS
        array = -(-self.gpus * self.tiling.sectors // align) * align
        backing = -(-self.gpus * self.workgroup_stride * WFS // 2 // align) * align
        return Memory(array=array, backing=backing, channels=self.channels)


@dataclass(frozen=True)
class Memory:
    """First sectors of the regions of a GPU's memory: the output and its backing store, the gathered output, what a
    reduce-scatter kernel receives (`staging`), the operands (`inputs`), and windows to the neighbour's gathered output,
    staging and output."""

    array: int
    backing: int
    channels: int

    @property
    def backing_base(self) -> int:
        return ARRAY_BASE + self.array

    @property
    def gathered(self) -> int:
        return self.backing_base + self.backing

    @property
    def staging(self) -> int:
        return self.gathered + self.array

    @property
    def written(self) -> int:
        """Sectors from the first to the last that is ever written."""
        return 3 * self.array + self.backing

    @property
    def inputs(self) -> int:
        return input_base(self.channels)

    @property
    def operands(self) -> int:
        """Sectors of them."""
        return self.gather_window - self.inputs

    @property
    def gather_window(self) -> int:
        return ARRAY_BASE + self.channels * WINDOWS

    @property
    def staging_window(self) -> int:
        return self.gather_window + self.array

    @property
    def array_window(self) -> int:
        return self.staging_window + self.array
