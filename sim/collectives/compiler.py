"""What a program is on this hardware: the register writes of a rank, and what must then be seen of it.

Every chunk of every array has its own wg numbers, the same on all ranks, which begin at a whole Tracker bank; a send to
another chunk moves the number of a tile with its address. What the hardware lacks (more than one send of a block) is
refused in one sentence.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hw.config import Configuration
from hw.messages import Access, AluOperation, DataType, TrafficClass
from hw.messages import Mapping as AccessMapping
from sim.collectives import program as words
from sim.collectives.check import check, regions_of
from sim.collectives.cut import Cut
from sim.collectives.limits import Limits, check_limits
from sim.collectives.program import Part, Program, Region, Via
from sim.host.limits import DriverError
from sim.host.range_entries import range_words, send_words, trigger_entries
from sim.host.register_writes import (
    Write,
    doorbell_writes,
    link_writes,
    range_writes,
    register_write,
    send_writes,
    wide_writes,
)
from sim.host.tiling import Tiling
from sim.topologies.topology import Routes

IDENTITY = {
    DataType.FP16: {AluOperation.MIN: 0x7E00, AluOperation.MAX: 0x7E00},
    DataType.BF16: {AluOperation.MIN: 0x7FC0, AluOperation.MAX: 0x7FC0},
    DataType.FP32: {AluOperation.MIN: 0x7FC00000, AluOperation.MAX: 0x7FC00000},
    DataType.INT32: {AluOperation.MIN: 0x7FFFFFFF, AluOperation.MAX: 0x80000000},
}
"""Element bit patterns that leave the other operand as it is; a sum starts from (positive) zero."""
MOST_RINGS = 64
"""Of a region's doorbell. A host that rings all regions of 16 GPUs in turns keeps within its program."""
_ACCESS = {words.Access.STORE: Access.STORE, words.Access.UPDATE: Access.UPDATE}


@dataclass(frozen=True)
class Placement:
    """Where an array lies on every GPU and how it is cut: its chunks one after another from sector `base` on, each with
    `tiling` and so many sectors of a `gap` behind it."""

    base: int
    tiling: Tiling
    gap: int = 0

    @property
    def stride(self) -> int:
        """Sectors from chunk to chunk."""
        return self.tiling.sectors + self.gap

    def chunk(self, index: int) -> int:
        """First sector of a chunk."""
        return self.base + index * self.stride


@dataclass(frozen=True)
class Range:
    """A region in the range table: entry `index`; `base` its first sector, `wg_base` the number of its first tile,
    `block_base` its first entry of the trigger table (0 when it is not tracked), `first_send` its first entry of the
    send table (0 when it is not sent); `wg_there`: for each of its sends the number of the first tile at the peer."""

    index: int
    region: Region
    tiling: Tiling
    base: int
    wg_base: int
    block_base: int
    first_send: int
    wg_there: tuple[int, ...]


@dataclass(frozen=True)
class NodeProgram:
    """What the host must do for one rank, and what it must then see.

    `writes` program the node; arming is a separate write. `doorbells`: the writes of each ring, in their order, to be
    made when the node is armed, each while `status.doorbell` is low. `ranges` in the order of the range table;
    `expected_blocks` DMA blocks that the rank sends, `expected_triggers` WF tiles that become complete;
    `trigger_entries` it uses. `fill`: what must hold `fill_element` in every element before the node is armed (first
    sector, sectors), empty with first-touch. `backing_sectors`: size of the Tracker's backing store.
    """

    rank: int
    writes: tuple[Write, ...]
    doorbells: tuple[tuple[Write, ...], ...]
    ranges: tuple[Range, ...]
    expected_blocks: int
    expected_triggers: int
    trigger_entries: int
    fill: tuple[tuple[int, int], ...]
    fill_element: int
    backing_sectors: int


@dataclass(frozen=True)
class Needs:
    """What a program takes of every node: entries of the range table, without plain memory, and of the trigger table;
    sectors of the Tracker's backing store."""

    ranges: int
    trigger_entries: int
    backing_sectors: int


def limits_of(config: Configuration) -> Limits:
    """What a node has for programs."""
    return Limits(
        ranges=config.ranges,
        sends=config.sends,
        sends_of_a_block=config.sends,
        wg_bits=config.wg_bits,
        count_bits=config.count_bits,
        ports=config.links,
    )


def cuts(tilings: Mapping[str, Tiling], block_wfs: int) -> dict[str, Cut]:
    """The tilings of arrays, with `block_wfs` WF tiles to a DMA block, as programs know them."""
    return {
        name: Cut(
            tiling.rows,
            tiling.columns,
            tiling.tile_rows,
            tiling.tile_columns,
            tiling.wfs,
            block_wfs,
            tiling.dtype_bytes,
        )
        for name, tiling in tilings.items()
    }


def workgroup_stride(config: Configuration, tiling: Tiling) -> int:
    """Distance of the first tile numbers of two chunks: the tiles of a chunk, rounded up to whole Tracker banks."""
    return -(-tiling.workgroups // config.tracker_banks) * config.tracker_banks


def workgroup_numbers(
    program: Program, config: Configuration, placements: Mapping[str, Placement]
) -> tuple[dict[Part, int], int]:
    """The number of each chunk's first tile, and how many numbers there are."""
    numbers, used = {}, 0
    for array in program.arrays:
        for chunk in range(array.chunks):
            numbers[Part(array.name, chunk)] = used
            used += workgroup_stride(config, placements[array.name].tiling)
    return numbers, used


def needs(program: Program, config: Configuration, placements: Mapping[str, Placement], block_wfs: int = 1) -> Needs:
    """What `program` takes of the nodes of `config`, of which only the Tracker's banks matter."""
    regions = [list(program.regions(rank)) for rank in range(program.gpus)]
    entries = (
        sum(trigger_entries(config, placements[region.array].tiling, block_wfs) for region in rank if region.updates)
        for rank in regions
    )
    return Needs(max(map(len, regions)), max(entries), backing_sectors(program, config, placements))


def backing_sectors(program: Program, config: Configuration, placements: Mapping[str, Placement]) -> int:
    """Sectors of the memory-backed table that holds evicted counters: 16 B for each {wg, wf}."""
    return (workgroup_numbers(program, config, placements)[1] << config.wf_bits) // 2


def compile_program(
    program: Program,
    config: Configuration,
    topology: Routes,
    rank: int,
    placements: Mapping[str, Placement],
    *,
    epoch: int = 1,
    block_wfs: int = 1,
    plain: Sequence[tuple[int, int]] = (),
    backing: int | None = None,
) -> NodeProgram:
    """Compile `program` for `rank`. `placements` by the names of its arrays; `block_wfs` WF tiles make a DMA block;
    `plain` (first sector, sectors) is memory that kernels use as it is; `backing` the first sector of the Tracker's
    backing store, which is plain memory too.

    Raises :class:`sim.collectives.program.ProgramError` for a program that contradicts itself or is too large for a
    node (:func:`sim.collectives.limits.check_limits`), and :class:`sim.host.limits.DriverError` for one that does not
    fit as it is placed.
    """
    check(program)
    _check_fields(config, program.gpus, rank, epoch)
    check_limits(
        program,
        limits_of(config),
        topology,
        cuts({name: place.tiling for name, place in placements.items()}, block_wfs),
    )
    table = backing_sectors(program, config, placements)
    plain = [*plain, *([] if backing is None else [(backing, table)])]
    regions = regions_of(program, rank)
    if len(regions) + len(plain) > config.ranges:
        raise DriverError(
            f"ranges must be at least {len(regions) + len(plain)} for {len(regions)} chunks and {len(plain)} plain "
            f"ranges, the configuration has {config.ranges}"
        )
    _check_overlap([*_extents(program, placements), *plain])
    numbers, used = workgroup_numbers(program, config, placements)
    if not config.tracker_tags and used > config.tracker_sets:
        raise DriverError(
            f"tracker_sets must be at least {used} without tracker_tags, a place for each of the workgroups, "
            f"got {config.tracker_sets}"
        )
    ranges = _ranges(config, regions, placements, numbers, block_wfs)
    tracked = [item for item in ranges if item.region.updates]
    expected = sum(item.tiling.blocks(block_wfs) * len(item.region.sends) for item in tracked)
    writes = [
        register_write(config, "rank", rank=rank),
        *link_writes(config, [topology.source(rank, port) for port in range(topology.ports)], topology.shared),
        register_write(config, "epoch", epoch=epoch),
        *wide_writes(config, "spill_base", backing or 0),
        register_write(config, "spill_sectors", spill_sectors=0 if backing is None else table),
    ]
    for item in ranges:
        writes += _region_writes(program, config, topology, rank, item, placements, block_wfs)
    for index, (start, length) in enumerate(plain, len(ranges)):
        writes += range_writes(config, index, range_words(config, base=start, sectors=length))
    writes.append(register_write(config, "expected_blocks", expected_blocks=expected))
    fill, element = _fill(program, rank, tracked)
    return NodeProgram(
        rank=rank,
        writes=tuple(writes),
        doorbells=tuple(_doorbells(config, ranges, block_wfs)),
        ranges=tuple(ranges),
        expected_blocks=expected,
        expected_triggers=sum(item.tiling.wf_tiles for item in tracked),
        trigger_entries=sum(trigger_entries(config, item.tiling, block_wfs) for item in tracked),
        fill=fill,
        fill_element=element,
        backing_sectors=table,
    )


def _ranges(
    config: Configuration,
    regions: Mapping[Part, Region],
    placements: Mapping[str, Placement],
    numbers: Mapping[Part, int],
    block_wfs: int,
) -> list[Range]:
    """The regions in the range table, those that are tracked one after another in the trigger table, and their sends
    one after another in the send table."""
    ranges, entries, sends = [], 0, 0
    for index, (part, region) in enumerate(regions.items()):
        place = placements[region.array]
        first = entries if region.updates else 0
        ranges.append(
            Range(
                index,
                region,
                place.tiling,
                place.chunk(region.chunk),
                numbers[part],
                first,
                sends if region.sends else 0,
                tuple(numbers[send.part] for send in region.sends),
            )
        )
        entries += trigger_entries(config, place.tiling, block_wfs) if region.updates else 0
        sends += len(region.sends)
    return ranges


def _doorbells(config: Configuration, ranges: Sequence[Range], block_wfs: int) -> Iterator[tuple[Write, ...]]:
    """The writes of each ring. Regions that are sent to different peers first are rung in turns, a few workgroups at a
    time: ready blocks reach the ports' queues in one line, and those of one region alone would fill the queue of one
    port while the others have nothing to do. So are those of different arrays, both of which a kernel may wait for, or
    whole rows of their tiles in turns where the regions say so."""
    lines: dict[tuple[int | None, str], list[Range]] = {}
    for item in ranges:
        if item.region.doorbell:
            first = next((send.peer for send in item.region.sends), None)
            lines.setdefault((first, "" if item.region.whole_rows else item.region.array), []).append(item)
    rings = (_pieces(config, line, block_wfs if len(lines) > 1 else None) for line in lines.values())
    for turn in itertools.zip_longest(*rings):
        yield from (tuple(writes) for writes in turn if writes is not None)


def _pieces(config: Configuration, line: Sequence[Range], block_wfs: int | None) -> Iterator[list[Write]]:
    """The rings of some regions, one after another: of as many blocks as can wait for a port, but not more than
    :data:`MOST_RINGS` of a region, or one of each row where rows are rung; whole regions, or rows of them, without
    `block_wfs`."""
    for item, first, last in _stretches(line):
        count = last - first
        if block_wfs is not None:
            blocks = -(-item.tiling.wfs // block_wfs)
            count = max(1, config.dma_blocks // blocks, -(-item.tiling.workgroups // MOST_RINGS))
        for begin in range(first, last, count):
            yield doorbell_writes(config, item.index, item.wg_base + begin, min(count, last - begin))


def _stretches(line: Sequence[Range]) -> Iterator[tuple[Range, int, int]]:
    """Regions with the first workgroup that is rung and the one behind the last: whole, or rows of tiles in turns."""

    def of(item: Range) -> list[tuple[Range, int, int]]:
        workgroups = item.tiling.workgroups
        step = item.tiling.tiles_across if item.region.whole_rows else workgroups
        return [(item, first, first + step) for first in range(0, workgroups, step)]

    return filter(None, itertools.chain.from_iterable(itertools.zip_longest(*map(of, line))))


def _fill(program: Program, rank: int, tracked: Sequence[Range]) -> tuple[tuple[tuple[int, int], ...], int]:
    """What memory must hold before the start, but for data that lies there: where (first sector, sectors), and the
    element."""
    arrays, lies = {array.name: array for array in program.arrays}, set(program.lies(rank))
    tracked = [item for item in tracked if item.region.part not in lies]
    fill = tuple((item.base, item.tiling.sectors) for item in tracked if not arrays[item.region.array].first_touch)
    updated = [arrays[item.region.array] for item in tracked if item.region.store is words.Access.UPDATE]
    elements = {IDENTITY[DataType[array.dtype.upper()]].get(AluOperation[array.op.upper()], 0) for array in updated}
    if fill and len(elements) > 1:
        raise DriverError("arrays that are filled before the start must all be filled with the same element")
    return fill, min(elements, default=0)


def _check_fields(config: Configuration, gpus: int, rank: int, epoch: int) -> None:
    if not 0 <= rank < gpus:
        raise DriverError(f"rank must be from 0 to {gpus - 1}, got {rank}")
    if not 1 <= epoch < 1 << config.epoch_bits:
        raise DriverError(f"epoch must be from 1 to {(1 << config.epoch_bits) - 1}, got {epoch}")


def _extents(program: Program, placements: Mapping[str, Placement]) -> Iterator[tuple[int, int]]:
    for array in program.arrays:
        place = placements[array.name]
        yield place.base, array.chunks * place.stride


def _check_overlap(extents: Sequence[tuple[int, int]]) -> None:
    for (start, length), (following, _) in itertools.pairwise(sorted(extents)):
        if start + length > following:
            raise DriverError(f"the regions at sectors {start} (of {length}) and {following} overlap")


def _port(program: Program, topology: Routes, rank: int, peer: int) -> int:
    """The port that leads to `peer`."""
    port = topology.port(rank, peer)
    if port is None:
        raise words.ProgramError(
            f"{program.name} sends from rank {rank} to rank {peer}, but the {topology.name} has no link there"
        )
    return port


def _region_writes(
    program: Program,
    config: Configuration,
    topology: Routes,
    rank: int,
    item: Range,
    placements: Mapping[str, Placement],
    block_wfs: int,
) -> list[Write]:
    """The writes of a region's sends and of its range entry."""
    region = item.region
    array = program.array(region.array)
    writes = []
    for index, send in enumerate(region.sends):
        there = program.array(send.array)
        if placements[send.array].tiling != item.tiling:
            raise DriverError(f"{region.part} is sent to {send.part}, whose tiles are others")
        sent = send_words(
            config,
            peer=send.peer,
            port=_port(program, topology, rank, send.peer),
            offset=placements[send.array].chunk(send.chunk) - item.base,
            wg_offset=item.wg_there[index] - item.wg_base,
            access=_ACCESS[send.access],
            alu=AluOperation[there.op.upper()],
            dtype=DataType[there.dtype.upper()],
            traffic_class=TrafficClass[there.traffic.upper()],
        )
        writes += send_writes(config, item.first_send + index, sent)
    mapping = AccessMapping.LOCAL
    if region.sends:
        mapping = AccessMapping.REMOTE if region.via is Via.STORE else AccessMapping.DMA
    entry = range_words(
        config,
        base=item.base,
        tiling=item.tiling,
        mapping=mapping,
        access=_ACCESS[region.store],
        alu=AluOperation[array.op.upper()],
        dtype=DataType[array.dtype.upper()],
        # What lies in memory before must not be cleared.
        first_touch=array.first_touch and bool(region.updates) and not region.doorbell,
        tracked=bool(region.updates),
        launch=region.launch,
        first_send=item.first_send,
        sends=len(region.sends),
        wg_base=item.wg_base,
        block_base=item.block_base,
        block_wfs=block_wfs,
        updates=max(region.updates, 1),
    )
    return [*writes, *range_writes(config, item.index, entry)]
