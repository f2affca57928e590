"""Golden Tracker: a dictionary of byte counters, one per WF tile.

Geometry by counting elements one row and column class at a time; nothing is divided by hardware tricks here.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TiledRange:
    """A tracked matrix of `rows` x `columns` elements of 2 bytes, in WG tiles of `tile_rows` x `tile_columns`, each
    split by rows into `wfs` WF tiles; every element is updated `updates` times. `wg` names tiles row by row from
    `first_wg`.
    """

    index: int
    first_wg: int
    rows: int
    columns: int
    tile_rows: int
    tile_columns: int
    wfs: int
    block_wfs: int
    updates: int
    dma: bool
    launch: bool
    block_base: int = 0
    block_shift: int = 3

    @property
    def tiles_across(self) -> int:
        return -(-self.columns // self.tile_columns)

    @property
    def tiles_down(self) -> int:
        return -(-self.rows // self.tile_rows)

    @property
    def workgroups(self) -> int:
        return self.tiles_across * self.tiles_down

    def threshold(self, wg: int, wf: int) -> int:
        """Bytes that will be written to the WF tile; 0 when there is no such tile."""
        number = wg - self.first_wg
        if not 0 <= number < self.workgroups or not 0 <= wf < self.wfs:
            return 0
        down, across = divmod(number, self.tiles_across)
        height = self.tile_rows // self.wfs
        top = down * self.tile_rows + wf * height
        rows = max(0, min(top + height, self.rows) - top)
        left = across * self.tile_columns
        columns = min(left + self.tile_columns, self.columns) - left
        return rows * columns * 2 * self.updates

    def tiles(self) -> list[tuple[int, int]]:
        """Every (wg, wf) with any elements."""
        return [
            (wg, wf)
            for wg in range(self.first_wg, self.first_wg + self.workgroups)
            for wf in range(self.wfs)
            if self.threshold(wg, wf)
        ]

    def block(self, wg: int, wf: int) -> list[tuple[int, int]]:
        """The WF tiles that stand in one DMA block with (wg, wf)."""
        first = wf // self.block_wfs * self.block_wfs
        return [(wg, other) for other in range(first, first + self.block_wfs) if self.threshold(wg, other)]

    def is_bottom(self, wg: int) -> bool:
        return (wg - self.first_wg) // self.tiles_across == self.tiles_down - 1

    def is_right(self, wg: int) -> bool:
        return (wg - self.first_wg) % self.tiles_across == self.tiles_across - 1


@dataclass
class GoldenTracker:
    """Counts accesses; `blocks` and `launches` collect what becomes ready, `faults` what is refused."""

    ranges: dict[int, TiledRange]
    epoch: int
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    lowest: dict[tuple[int, int], int] = field(default_factory=dict)
    complete: set[tuple[int, int]] = field(default_factory=set)
    blocks: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    launches: list[tuple[int, int, int]] = field(default_factory=list)
    faults: list[tuple[str, int, int, int]] = field(default_factory=list)

    def access(self, index: int, wg: int, wf: int, epoch: int, va: int, size: int) -> None:
        """Count `size` bytes at sector `va`."""
        tile = (wg, wf)
        threshold = self.ranges[index].threshold(wg, wf)
        if epoch != self.epoch:
            self.faults.append(("EPOCH", wg, wf, va))
        elif threshold == 0:
            self.faults.append(("TILE", wg, wf, va))
        elif self.counts.get(tile, 0) + size > threshold:
            self.faults.append(("PAST_THRESHOLD", wg, wf, va))
        else:
            self.counts[tile] = self.counts.get(tile, 0) + size
            self.lowest[tile] = min(self.lowest.get(tile, va), va)
            if self.counts[tile] == threshold:
                self.complete.add(tile)
                self._finish(self.ranges[index], tile)

    def _finish(self, area: TiledRange, tile: tuple[int, int]) -> None:
        members = area.block(*tile)
        if not all(member in self.complete for member in members):
            return
        wg, first = members[0]
        if area.dma:
            va = min(self.lowest[member] for member in members)
            self.blocks.append((area.index, wg, first, va, area.is_bottom(wg), area.is_right(wg)))
        if area.launch:
            self.launches.append((area.index, wg, first))

    def done(self, index: int) -> bool:
        """All WF tiles of the range are complete."""
        return all(tile in self.complete for tile in self.ranges[index].tiles())
