"""Programs one rank of a ring reduce-scatter: which chunk is remote-mapped, DMA-mapped or kept (T3 Figs 10-12).

The array has one chunk per GPU, each of `tiling.rows` rows, stacked row-major at the same address on every GPU. In
direction +1 the sum of chunk c starts on rank c + 1, travels up the ring and ends on rank c; direction -1 mirrors it.
So on rank r chunk r - 1 goes straight to the neighbour (never to this memory), chunk r stays, and the rest collect one
local and one arriving update per element before the DMA engine sends them on.
"""

import itertools
from dataclasses import dataclass

from hw.config import Configuration
from hw.messages import Access, AluOperation, DataType, Mapping, Phase
from sim.host.limits import DriverError
from sim.host.range_entries import range_words, trigger_entries
from sim.host.register_writes import Write, range_writes, register_write, wide_writes
from sim.host.tiling import Tiling

REMOTE = "remote"
DMA = "dma"
TERMINAL = "terminal"

IDENTITY = {
    DataType.FP16: {AluOperation.MIN: 0x7E00, AluOperation.MAX: 0x7E00},
    DataType.BF16: {AluOperation.MIN: 0x7FC0, AluOperation.MAX: 0x7FC0},
    DataType.FP32: {AluOperation.MIN: 0x7FC00000, AluOperation.MAX: 0x7FC00000},
    DataType.INT32: {AluOperation.MIN: 0x7FFFFFFF, AluOperation.MAX: 0x80000000},
}
"""Element bit patterns that leave the other operand as it is; a sum starts from (positive) zero."""


@dataclass(frozen=True)
class Chunk:
    """One chunk on one rank. `base` in sectors; `wg_base` the number of its first tile; `updates` expected here per
    element (0: it never enters this memory); `peer` the rank it goes to, or -1."""

    index: int
    role: str
    base: int
    wg_base: int
    updates: int
    peer: int


@dataclass(frozen=True)
class Plan:
    """What a rank does in one reduce-scatter, and what the host must do for it.

    `chunks` in array order (chunk c is in range c); `terminal_range` is the range whose completion ends this rank's
    part; `expected_blocks` the DMA blocks it sends; `fill` the regions (first sector, sectors) that must hold
    `fill_element` in every element before the node is armed, empty with first-touch; `home_sectors` the size of the
    Tracker's home table.
    """

    rank: int
    gpus: int
    epoch: int
    chunks: tuple[Chunk, ...]
    terminal_range: int
    expected_blocks: int
    trigger_entries: int
    fill: tuple[tuple[int, int], ...]
    fill_element: int
    home_sectors: int


def workgroup_stride(config: Configuration, tiling: Tiling) -> int:
    """Distance of the first tile numbers of two chunks: the tiles of a chunk, rounded up to whole Tracker banks."""
    return -(-tiling.workgroups // config.tracker_banks) * config.tracker_banks


def home_sectors(config: Configuration, gpus: int, tiling: Tiling) -> int:
    """Sectors of the memory-backed table that holds evicted counters: 16 B for each {wg, wf}."""
    return (gpus * workgroup_stride(config, tiling) << config.wf_bits) // 2


def chunk_role(rank: int, gpus: int, chunk: int, direction: int) -> str:
    """Role of a chunk on a rank."""
    if chunk == rank:
        return TERMINAL
    return REMOTE if chunk == (rank - direction) % gpus else DMA


def _check(config: Configuration, rank: int, gpus: int, epoch: int, direction: int) -> None:
    if not 2 <= gpus <= 64:
        raise DriverError(f"gpus must be from 2 to 64, got {gpus}")
    if not 0 <= rank < gpus:
        raise DriverError(f"rank must be from 0 to {gpus - 1}, got {rank}")
    if not 1 <= epoch < 1 << config.epoch_bits:
        raise DriverError(f"epoch must be from 1 to {(1 << config.epoch_bits) - 1}, got {epoch}")
    if direction not in (1, -1):
        raise DriverError(f"direction must be +1 or -1, got {direction}")


def ring_reduce_scatter_plan(
    config: Configuration,
    rank: int,
    gpus: int,
    tiling: Tiling,
    base: int,
    epoch: int,
    *,
    direction: int = 1,
    op: AluOperation = AluOperation.ADD,
    dtype: DataType = DataType.FP16,
    block_wfs: int = 1,
    first_touch: bool = True,
    inputs: tuple[int, int] | None = None,
    home: int | None = None,
) -> tuple[list[Write], Plan]:
    """Register writes that program `rank`, and its plan. Arming is a separate write
    (:func:`sim.host.register_writes.arm_writes`).

    `tiling` is one chunk; `base` the array's first sector. `inputs` (first sector, sectors) is plain memory the kernel
    reads; `home` the first sector of the Tracker's home table, also mapped as plain memory. The neighbour in direction
    +1 is reached through link port 0, that in direction -1 through the last port. Raises
    :class:`sim.host.limits.DriverError`.
    """
    _check(config, rank, gpus, epoch, direction)
    table = home_sectors(config, gpus, tiling)
    plain = [region for region in (inputs, None if home is None else (home, table)) if region is not None]
    if gpus + len(plain) > config.ranges:
        raise DriverError(
            f"ranges must be at least {gpus + len(plain)} for {gpus} chunks and {len(plain)} plain ranges, "
            f"the configuration has {config.ranges}"
        )
    regions = sorted([(base, gpus * tiling.sectors), *plain])
    for (start, length), (following, _) in itertools.pairwise(regions):
        if start + length > following:
            raise DriverError(f"the regions at sectors {start} (of {length}) and {following} overlap")

    peer = (rank + direction) % gpus
    port = 0 if direction == 1 else config.links - 1
    stride = workgroup_stride(config, tiling)
    if not config.tracker_tags and gpus * stride > config.tracker_sets:
        raise DriverError(
            f"tracker_sets must be at least {gpus * stride} without tracker_tags, a place for each of the workgroups, "
            f"got {config.tracker_sets}"
        )
    writes = [
        register_write(config, "rank", rank=rank),
        *wide_writes(config, "route", port << peer),
        register_write(config, "epoch", epoch=epoch),
        *wide_writes(config, "spill_base", home or 0),
    ]
    chunks = []
    entries = 0
    for index in range(gpus):
        role = chunk_role(rank, gpus, index, direction)
        tracked = role != REMOTE
        chunk = Chunk(
            index=index,
            role=role,
            base=base + index * tiling.sectors,
            wg_base=index * stride,
            updates=2 if tracked else 0,
            peer=-1 if role == TERMINAL else peer,
        )
        words = range_words(
            config,
            base=chunk.base,
            tiling=tiling,
            mapping={REMOTE: Mapping.REMOTE, DMA: Mapping.DMA, TERMINAL: Mapping.LOCAL}[role],
            access=Access.UPDATE,
            alu=op,
            dtype=dtype,
            first_touch=first_touch and tracked,
            tracked=tracked,
            remote_access=Access.STORE if role == TERMINAL else Access.UPDATE,
            phase=Phase.RS,
            peer=0 if role == TERMINAL else peer,
            wg_base=chunk.wg_base,
            block_base=entries if tracked else 0,
            block_wfs=block_wfs,
            updates=max(chunk.updates, 1),
        )
        writes += range_writes(config, index, words)
        if tracked:
            entries += trigger_entries(config, tiling, block_wfs)
        chunks.append(chunk)
    for index, (start, length) in enumerate(plain, gpus):
        writes += range_writes(config, index, range_words(config, base=start, sectors=length, phase=Phase.OTHER))
    expected = sum(tiling.blocks(block_wfs) for chunk in chunks if chunk.role == DMA)
    writes.append(register_write(config, "expected_blocks", expected_blocks=expected))
    fill = () if first_touch else tuple((chunk.base, tiling.sectors) for chunk in chunks if chunk.role != REMOTE)
    return writes, Plan(
        rank=rank,
        gpus=gpus,
        epoch=epoch,
        chunks=tuple(chunks),
        terminal_range=rank,
        expected_blocks=expected,
        trigger_entries=entries,
        fill=fill,
        fill_element=IDENTITY[dtype].get(op, 0),
        home_sectors=table,
    )
