"""Plans of the kernels of any program (:mod:`sim.collectives`), of arrays that are kept as they are.

A workgroup of a kernel stores one tile, once for each split of the depth; it reads rows of A and columns of B before.
A kernel with gates reads its rows of A from the array that its gates wait for, and so its columns of B; the others come
from plain memory whose content does not matter. The order of the tiles is free within what the program says.

Of a machine (:mod:`sim.workloads.machines`) the workgroups go through the depth in steps, and the last-level cache
leaves only a part of the reads (:mod:`sim.workloads.last_level_cache`); without one each reads all for itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from hw.config import SECTOR_BYTES
from hw.messages import TrafficClass
from sim.collectives.compiler import Placement
from sim.collectives.program import Access, Does, Kernel, Part, Program, ProgramError, Sharing, Via
from sim.host.tiling import Tiling
from sim.models import plan_layout
from sim.models.plan_layout import GATES, STEP_LINES
from sim.topologies.topology import Routes
from sim.workloads.kernel_plans import GemmTimes, KernelPlan, step_lines
from sim.workloads.last_level_cache import Fetches, input_fetches
from sim.workloads.recorded_trace import RecordedTrace

LARGEST_READ = 255
"""Sectors of an operand that a step can read."""
FEWEST_STEPS = 4
TILE_ORDERS = ("rows", "columns", "across", "interleaved", "shifted", "swizzled", "abreast", "banded")
"""`rows`: chunk after chunk, tiles row by row. `columns`: chunk after chunk, column by column, so that few panels of
B are in use at a time. `across`: column by column of all chunks at once, so that stores go to all ranks at any time.
`interleaved`: the first tile of every chunk, then the second of each.
`shifted`: chunk after chunk, rank r of N beginning r / N of the way through each (FLUX). `swizzled`: chunk after chunk,
down the columns of bands of :data:`BAND` tile rows, so that few panels of A are in use at a time. `abreast`: column by
column of the first chunk and the first tile row of all others, then back from column to column of their second rows,
and so on, as chunks arrive that do so at a time. `banded`: column by column of :data:`HIGH_BAND` tile rows, of as many
chunks as it takes, then back from column to column of the next, so that few panels of either operand are in use."""
BAND = 2
HIGH_BAND = 8
SHARING = {
    Sharing.OWN: plan_layout.Sharing.OWN,
    Sharing.FOLLOWS: plan_layout.Sharing.FOLLOWS,
    Sharing.PRECEDES: plan_layout.Sharing.PRECEDES,
}


@dataclass(frozen=True, kw_only=True)
class Laid(Placement):
    """An array where it lies, whose tiles are numbered from `numbers[chunk]` on."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Operands:
    """What a workgroup reads and how long it computes: `depth` of the whole GEMM; `inputs`, first sector of plain
    memory with `input_sectors`; `cycles` of a workgroup for the whole depth, after `lead_cycles`. With a `step_depth`
    each step has so much of the depth, a last-level cache of `capacity` bytes serves what it can, and `row_sectors` lie
    in one row of a bank of each group. A compute unit copies `copied_sectors_per_cycle`, if that is said."""

    depth: int
    inputs: int
    input_sectors: int
    cycles: int
    lead_cycles: int = 0
    step_depth: int = 0
    capacity: int = 0
    row_sectors: int = 1
    copied_sectors_per_cycle: float = 0.0


def gates_of(program: Program, arrays: Mapping[str, Laid]) -> dict[tuple[Part, int], int]:
    """The gate of each tile row of each part that a kernel waits for, on any rank, numbered from 1."""
    parts = {part for rank in range(program.gpus) for kernel in program.kernels(rank) for part in kernel.waited}
    rows = [(part, row) for part in sorted(parts) for row in range(arrays[part.array].tiling.tiles_down)]
    if len(rows) >= GATES:
        raise ProgramError(f"{program.name} needs {len(rows)} gates, a GPU has {GATES - 1}")
    return {row: number for number, row in enumerate(rows, 1)}


def gate_text(gates: Mapping[tuple[Part, int], int], arrays: Mapping[str, Laid]) -> str:
    """The file that says which gate the launch events of each tile count up."""
    lines: dict[int, int] = {}
    for (part, row), gate in gates.items():
        laid = arrays[part.array]
        across = laid.tiling.tiles_across
        first = laid.numbers[part.chunk] + row * across
        lines |= dict.fromkeys(range(first, first + across), gate)
    return "".join(f"{lines.get(number, 0):x}\n" for number in range(max(lines, default=-1) + 1))


def launches_of(tiling: Tiling, row: int, block_wfs: int) -> int:
    """Launch events of tile row `row` of a chunk: one for each DMA block."""
    wfs = tiling.bottom_wfs if row == tiling.tiles_down - 1 else tiling.wfs
    return tiling.tiles_across * -(-wfs // block_wfs)


def program_kernel(
    program: Program,
    rank: int,
    number: int,
    arrays: Mapping[str, Laid],
    operands: Operands,
    topology: Routes,
    *,
    slots: int,
    order: str,
    block_wfs: int,
    data_span: int,
    first_data: int,
    early: int = 0,
    recorded: RecordedTrace | None = None,
) -> KernelPlan:
    """Kernel `number` of `rank`. Its data is taken from `first_data`, each split `data_span` sectors after the one
    before. `early`: gates open so many launch events before they should, the seeded fault. `recorded`, in cycles: when
    and in which order its workgroups begin, and how long each computes."""
    kernel = program.kernels(rank)[number]
    ports = _ports(program, rank, topology)
    if recorded is None:
        tiles = list(_tiles(kernel, arrays, order, rank, program.gpus))
    else:
        numbered = list(_tiles(replace(kernel, order=None), arrays, "rows", rank, program.gpus))
        tiles = [numbered[place] for place in recorded.number.tolist()]
    tilings = [arrays[part.array].tiling for part, _, _ in tiles]
    # Compute units that another kernel takes are counted from all that there are, not from those that this one fills.
    shared = any(other.sharing is not Sharing.OWN for other in program.kernels(rank))
    down, across = np.array([divmod(tile, tiling.tiles_across) for (_, tile, _), tiling in zip(tiles, tilings)]).T
    if len({(tiling.pitch_sectors, tiling.wf_rows) for tiling in tilings}) > 1:
        raise ProgramError(f"kernel {kernel.name} of {program.name} stores arrays that are cut in different ways")
    tiling = tilings[0]
    right = across == tiling.tiles_across - 1
    rows = np.where(down == tiling.tiles_down - 1, tiling.bottom_rows, tiling.tile_rows)
    row_bytes = np.where(right, tiling.right_bytes, tiling.body_bytes)
    row_sectors = -(-row_bytes // 32)
    chunk = np.array([arrays[part.array].chunk(part.chunk) for part, _, _ in tiles])
    place = chunk + down * tiling.tile_rows * tiling.pitch_sectors + across * (tiling.body_bytes // 32)
    depth = operands.depth // kernel.splits
    if kernel.does is Does.MULTIPLY:
        a_va, a_all = _rows_of_a(kernel, tiles, arrays, operands, rows, tiling.dtype_bytes)
        b_all = -(-depth * row_bytes // 32)
        if kernel.column_gates:
            b_va, b_all = _columns_of_b(kernel, tiles, arrays, row_bytes)
    else:
        a_va, a_all = _tiles_read(kernel, tiles, arrays, operands, rows, row_sectors)
        b_all = np.zeros_like(a_all)
    largest = int(max(a_all.max(), b_all.max()))
    steps = max(FEWEST_STEPS if operands.depth else 1, -(-2 * largest // LARGEST_READ))
    if kernel.does is not Does.MULTIPLY:
        steps = len(_waited(kernel)) or 1
    elif operands.step_depth:
        steps = _steps(depth, operands.step_depth, len(tiles))
    if kernel.slices > 1:
        steps = _sliced_steps(kernel, int(a_all[0]), steps)
    fetches = None
    if kernel.does is Does.MULTIPLY and operands.step_depth:
        sectors, tile_bytes = (a_all, b_all), tiling.tile_rows * tiling.body_bytes
        fetches = _fetches(program, rank, kernel, tiles, (down, across), sectors, operands, steps, slots, tile_bytes)
    reads_a = _reads(a_all, steps, None if fetches is None else fetches.a)
    reads_b = _reads(b_all, steps, None if fetches is None else fetches.b)
    b_stride = operands.input_sectors // 2 // tiling.tiles_across
    if fetches is not None:
        b_stride = apart(int(b_all.max()), operands.row_sectors)
        if not kernel.gates:
            row = np.array([part.chunk for part, _, _ in tiles]) * max(each.tiles_down for each in tilings) + down
            a_va = a_va + row * apart(int(a_all.max()), operands.row_sectors)
    if not kernel.column_gates:
        b_va = operands.inputs + across * b_stride
    if recorded is None:
        lead = operands.lead_cycles if kernel.does is Does.MULTIPLY else 0
        times = GemmTimes(_step_cycles(kernel, operands, steps, rows * row_sectors), lead)
    else:
        times = recorded.times(steps)
    return KernelPlan(
        kernel={
            "slots": slots if shared else min(slots, len(tiles)),
            "steps": steps,
            "stepped": int(fetches is not None),
            "prefetched": 1,
            "traffic_class": TrafficClass.GEMM.value,
            "active": 1,
            "rows": tiling.wf_rows,
            "pitch": tiling.pitch_sectors,
            "wf_stride": tiling.wf_rows * tiling.pitch_sectors,
            "a_stride": arrays[_waited(kernel)[0].array].stride if kernel.does is Does.ADD else 0,
            **_slices(kernel, arrays, steps, block_wfs, early),
            "beside": int(number > 0),
            "sharing": SHARING[kernel.sharing].value,
        },
        workgroups={
            "a_va": a_va,
            "b_va": b_va,
            "store_va": place,
            "not_before": times.not_before,
            "lead_cycles": times.lead_cycles,
            "step_cycles": times.step_cycles,
            "wg": np.array([arrays[part.array].numbers[part.chunk] + tile for part, tile, _ in tiles]),
            "a_sectors": a_all // steps,
            "a_last": a_all - a_all // steps * (steps - 1),
            "b_sectors": b_all // steps,
            "b_last": b_all - b_all // steps * (steps - 1),
            "row_sectors": row_sectors,
            "last_bytes": row_bytes - 32 * (row_sectors - 1),
            "remote": np.array([part in ports for part, _, _ in tiles]).astype(int),
            "port": np.array([ports.get(part, 0) for part, _, _ in tiles]),
            "rows": rows,
            "data": np.array([first_data + split * data_span for _, _, split in tiles]),
            "gate": _slice_gates(program, kernel, tiles, arrays),
        },
        count=len(tiles),
        waits=tuple(_waits(program, kernel, tiles, arrays, block_wfs, early)),
        steps=None if fetches is None else step_lines(fetches),
        reads=reads_a + reads_b,
        gathered_reads=(reads_a if kernel.gates else 0) + (reads_b if kernel.column_gates else 0),
    )


def _slices(kernel: Kernel, arrays: Mapping[str, Laid], steps: int, block_wfs: int, early: int) -> dict[str, int]:
    """Where A lies in slices, the steps of each, and the launch events that open its gate: of whole tile rows."""
    if kernel.slices == 1:
        return {}
    tiling = arrays[kernel.waited[0].array].tiling
    return {"slice_steps": steps // kernel.slices, "slice_launches": launches_of(tiling, 0, block_wfs) - early}


def _slice_gates(
    program: Program, kernel: Kernel, tiles: Sequence[tuple[Part, int, int]], arrays: Mapping[str, Laid]
) -> int | np.ndarray:
    """Where A lies in slices, the gate of the first slice of each workgroup's tile row."""
    if kernel.slices == 1:
        return 0
    gates = gates_of(program, arrays)
    return np.array([gates[next(_awaited(kernel, part, tile, arrays))] for part, tile, _ in tiles])


def _sliced_steps(kernel: Kernel, sectors: int, steps: int) -> int:
    """About `steps` of a workgroup that reads so many sectors of A, as many in each slice and of equal size: no fewer,
    if there are as many."""
    whole = sectors // kernel.slices
    fitting = [each for each in range(1, min(whole, LARGEST_READ // kernel.slices) + 1) if whole % each == 0]
    if not fitting:
        raise ProgramError(f"slices must be at most {LARGEST_READ}, the steps of a workgroup, got {kernel.slices}")
    return kernel.slices * next((each for each in fitting if each * kernel.slices >= steps), fitting[-1])


def _step_cycles(kernel: Kernel, operands: Operands, steps: int, sectors: np.ndarray) -> int | np.ndarray:
    """How long a step of each workgroup takes, whose tile has so many `sectors`."""
    if kernel.does is Does.MULTIPLY:
        return operands.cycles // kernel.splits // steps
    if kernel.does is Does.COPY and operands.copied_sectors_per_cycle:
        return np.ceil(sectors / operands.copied_sectors_per_cycle).astype(int)
    return 0


def _waited(kernel: Kernel) -> tuple[Part, ...]:
    """The parts that a kernel which adds waits for: the same for all that it stores."""
    return next(iter(kernel.gates.values()), ())


def _tiles_read(
    kernel: Kernel,
    tiles: Sequence[tuple[Part, int, int]],
    arrays: Mapping[str, Laid],
    operands: Operands,
    rows: np.ndarray,
    row_sectors: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """First sector, and sectors, of what each workgroup reads that copies or adds: as many sectors of its tile row, one
    after another, as its tile has, of plain memory or, step by step, of each chunk that it waits for."""
    places = []
    for (part, tile, _), count in zip(tiles, rows.tolist(), strict=True):
        tiling = arrays[part.array].tiling
        down, across = divmod(tile, tiling.tiles_across)
        place = down * tiling.tile_rows * tiling.pitch_sectors + across * count * (tiling.body_bytes // SECTOR_BYTES)
        places.append(place if kernel.does is Does.ADD else part.chunk * tiling.sectors + place)
    if kernel.does is Does.ADD:
        first = _waited(kernel)[0]
        base = arrays[first.array].chunk(first.chunk)
        return base + np.array(places), len(_waited(kernel)) * rows * row_sectors
    read = np.array([not kernel.alike or part == kernel.parts[0] for part, _, _ in tiles])
    return operands.inputs + np.array(places) % operands.input_sectors, rows * row_sectors * read


def apart(sectors: int, row_sectors: int) -> int:
    """Distance of panels of so many sectors, an odd number of rows of all bank groups: what the workgroups read at a
    time then lies in different banks, as hashed addresses have it on a GPU."""
    return (-(-sectors // row_sectors) | 1) * row_sectors


def _steps(depth: int, step_depth: int, workgroups: int) -> int:
    """Steps of a workgroup: those of `step_depth`, or of twice that, and so on, so that the plan has room for them."""
    steps = max(1, -(-depth // step_depth))
    while steps > LARGEST_READ or steps * workgroups > STEP_LINES:
        steps = -(-steps // 2)
    return steps


def _reads(sectors: np.ndarray, steps: int, fetched: np.ndarray | None) -> int:
    """Sectors that come from memory, of the `sectors` that each workgroup needs of an operand."""
    if fetched is None:
        return int(sectors.sum())
    whole = sectors // steps
    return int(
        (
            fetched * np.where(np.arange(steps) == steps - 1, (sectors - whole * (steps - 1))[:, None], whole[:, None])
        ).sum()
    )


def _fetches(
    program: Program,
    rank: int,
    kernel: Kernel,
    tiles: Sequence[tuple[Part, int, int]],
    places: tuple[np.ndarray, np.ndarray],
    sectors: tuple[np.ndarray, np.ndarray],
    operands: Operands,
    steps: int,
    slots: int,
    tile_bytes: int,
) -> Fetches:
    """What the last-level cache leaves of the reads of `tiles`, which stand at `places` (down, across) of their parts
    and need `sectors` of A and of B. Workgroups that run at a time share what the first of them fetches, also where
    each waits for a gate of its own; tiles that go past the cache, updates and what is sent straight on, take no room
    in it."""
    numbers: dict[object, int] = {}
    a_panel, b_panel = [], []
    for (part, _, split), down, across in zip(tiles, *places, strict=True):
        a_panel.append(numbers.setdefault(("a", part, split, down), len(numbers)))
        b_panel.append(numbers.setdefault(("b", split, across), len(numbers)))
    past = {
        region.part for region in program.regions(rank) if region.store is not Access.STORE or region.via is not Via.DMA
    }
    a_bytes, b_bytes = (-(-needed // steps) * SECTOR_BYTES for needed in sectors)
    return input_fetches(
        np.array(a_panel),
        np.array(b_panel),
        b_bytes,
        steps=steps,
        slots=min(slots, len(tiles)),
        a_bytes=int(a_bytes.max()),
        tile_bytes=0 if past & set(kernel.parts) else tile_bytes,
        capacity=operands.capacity,
        stages=(0,),
    )


def _ports(program: Program, rank: int, topology: Routes) -> dict[Part, int]:
    """The link port by which the stores of a rank leave, for each part that they go straight to a peer from: the first
    one, where they go to several."""
    straight = [region for region in program.regions(rank) if region.via is Via.STORE]
    return {region.part: topology.port(rank, region.sends[0].peer) or 0 for region in straight}


def _rows_of_a(
    kernel: Kernel,
    tiles: Sequence[tuple[Part, int, int]],
    arrays: Mapping[str, Laid],
    operands: Operands,
    rows: np.ndarray,
    element_bytes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """First sector, and sectors, of the rows of A that each workgroup reads: all of a tile row of what it waits for,
    chunk after chunk where that is several."""
    if not kernel.gates:
        plain = -(-(operands.depth // kernel.splits) * rows * element_bytes // 32)
        return np.full(len(tiles), operands.inputs + operands.input_sectors // 2), plain
    places, sectors = [], []
    for (part, tile, _), count in zip(tiles, rows, strict=True):
        waited, tiling = kernel.gates[part], arrays[part.array].tiling
        laid = arrays[waited[0].array]
        row = tile // tiling.tiles_across
        if [gate.chunk - waited[0].chunk for gate in waited] != list(range(len(waited))):
            raise ProgramError(f"kernel {kernel.name} reads rows of chunks of {waited[0].array} that are not in a row")
        panel = kernel.slices * laid.tiling.pitch_sectors
        places.append(laid.chunk(waited[0].chunk) + row * tiling.tile_rows * panel)
        sectors.append(count * panel)
    return np.array(places), np.array(sectors)


def _columns_of_b(
    kernel: Kernel, tiles: Sequence[tuple[Part, int, int]], arrays: Mapping[str, Laid], row_bytes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same of its columns of B, which are rows of what it waits for."""
    places, sectors = [], []
    for (part, tile, _), length in zip(tiles, row_bytes.tolist(), strict=True):
        (waited,), tiling = kernel.column_gates[part], arrays[part.array].tiling
        laid = arrays[waited.array]
        first = tile % tiling.tiles_across * (tiling.body_bytes // tiling.dtype_bytes)
        places.append(laid.chunk(waited.chunk) + first * laid.tiling.pitch_sectors)
        sectors.append(length // tiling.dtype_bytes * laid.tiling.pitch_sectors)
    return np.array(places), np.array(sectors)


def _tiles(
    kernel: Kernel, arrays: Mapping[str, Laid], order: str, rank: int, gpus: int
) -> Iterator[tuple[Part, int, int]]:
    """Part, tile and split of each workgroup, in the order in which they begin: the kernel's own, if it has one."""
    if kernel.order is not None:
        for part in kernel.parts:
            tiling = arrays[part.array].tiling
            own = kernel.order(tiling.tiles_down, tiling.tiles_across)
            yield from ((part, tile, split) for split in range(kernel.splits) for tile in own)
        return
    if order in ("across", "abreast", "banded"):
        in_columns = _in_columns(kernel, arrays, order)
        yield from ((part, tile, split) for split in range(kernel.splits) for part, tile in in_columns)
        return
    chunks = [(part, _in_chunk(arrays[part.array].tiling, order, rank, gpus)) for part in kernel.parts]
    splits = range(kernel.splits)
    if order == "interleaved":
        for turn in range(max(len(tiles) for _, tiles in chunks)):
            yield from ((part, tiles[turn], split) for split in splits for part, tiles in chunks if turn < len(tiles))
        return
    for part, tiles in chunks:
        yield from ((part, tile, split) for split in splits for tile in tiles)


def _in_columns(kernel: Kernel, arrays: Mapping[str, Laid], order: str) -> list[tuple[Part, int]]:
    """All tiles of a kernel column by column, or `abreast` or `banded` those of each group, back and forth."""
    across = arrays[kernel.parts[0].array].tiling.tiles_across
    heights = [arrays[part.array].tiling.tiles_down for part in kernel.parts]
    above = dict(zip(kernel.parts, accumulate(heights, initial=0), strict=False))

    def group_of(part: Part, down: int) -> int:
        if order == "banded":
            return (above[part] + down) // HIGH_BAND
        return down if order == "abreast" and part != kernel.parts[0] else 0

    def place(item: tuple[Part, int]) -> tuple[int, int]:
        part, tile = item
        down, column = divmod(tile, across)
        group = group_of(part, down)
        return group, -column if group % 2 else column

    each = ((part, tile) for part in kernel.parts for tile in range(arrays[part.array].tiling.workgroups))
    return sorted(each, key=place)


def _in_chunk(tiling: Tiling, order: str, rank: int, gpus: int) -> list[int]:
    tiles = list(range(tiling.workgroups))
    if order == "shifted":
        begin = rank * len(tiles) // gpus
        return tiles[begin:] + tiles[:begin]
    across = tiling.tiles_across
    if order == "columns":
        return sorted(tiles, key=lambda tile: (tile % across, tile))
    if order == "swizzled":
        return sorted(tiles, key=lambda tile: (tile // across // BAND, tile % across, tile // across))
    return tiles


def _waits(
    program: Program,
    kernel: Kernel,
    tiles: Sequence[tuple[Part, int, int]],
    arrays: Mapping[str, Laid],
    block_wfs: int,
    early: int,
) -> Iterator[tuple[int, int, int]]:
    """Workgroup, gate and launch events: for each gate the first workgroup that waits for it, since no later one begins
    before."""
    gates = gates_of(program, arrays)
    waited = set()
    for number, (part, tile, _) in enumerate(tiles):
        for gate, down in _awaited(kernel, part, tile, arrays):
            if (gate, down) not in waited:
                waited.add((gate, down))
                yield number, gates[gate, down], launches_of(arrays[gate.array].tiling, down, block_wfs) - early


def _awaited(kernel: Kernel, part: Part, tile: int, arrays: Mapping[str, Laid]) -> Iterator[tuple[Part, int]]:
    """Tile rows of parts for which the workgroup of a tile waits before it begins."""
    tiling = arrays[part.array].tiling
    row, column = divmod(tile, tiling.tiles_across)
    sides = (
        (kernel.gates, row, tiling.tile_rows),
        (
            kernel.column_gates,
            column,
            tiling.body_bytes // tiling.dtype_bytes,
        ),
    )
    for side, number, length in sides:
        gates = side.get(part, ())
        for index, gate in enumerate(gates):
            laid = arrays[gate.array].tiling
            every = range(laid.tiles_down)
            if not kernel.fine:
                downs = every
            elif side is kernel.column_gates or (len(gates) > 1 and kernel.does is Does.MULTIPLY):
                # Rows of one part after another, from the first on.
                first = number * length - index * laid.rows
                downs = range(max(0, first // laid.tile_rows), min(len(every), -(-(first + length) // laid.tile_rows)))
            else:
                downs = range(number * kernel.slices, number * kernel.slices + 1)
            yield from ((gate, down) for down in downs)
