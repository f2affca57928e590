"""Plans of the kernels that a :class:`sim.models.workgroup_engine.WorkgroupEngine` runs: GEMM, reduce-scatter,
all-gather.

Which chunks a rank takes in which order is the program's (:mod:`sim.collectives`): a kernel that communicates takes
them in the order in which the program sends them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS
from hw.messages import TrafficClass
from sim.collectives.interpret import chunks_sent
from sim.collectives.program import Program, Via
from sim.host.address_space import ARRAY_BASE
from sim.host.range_entries import pack
from sim.models.plan_layout import (
    GATE_LINES,
    KERNELS,
    MAX_SLOTS,
    MAX_WORKGROUPS,
    PLAN_BITS,
    Kernel,
    Step,
    Wait,
    Workgroup,
)
from sim.workloads.last_level_cache import Fetches
from sim.workloads.sublayer import TILE, SubLayer
from sim.workloads.tile_order import Dispatch, gemm_fetches, panels, tuned_fetches, tuned_order

PIECE_SECTORS = 32
"""Sectors per channel that a workgroup of a communication kernel moves: as many as a WG tile has."""


@dataclass(frozen=True)
class KernelPlan:
    """A kernel: fields of :data:`sim.models.plan_layout.Kernel` but `first` and `count`, and of its workgroups, as
    columns."""

    kernel: dict[str, int]
    workgroups: dict[str, np.ndarray | int]
    count: int
    steps: np.ndarray | None = None
    """Lines of the step file, shape (workgroups, steps)."""
    reads: int = 0
    """Sectors that its reads fetch from memory."""
    waits: tuple[tuple[int, int, int], ...] = ()
    """Workgroups that wait: number, gate, launch events, in the order of the workgroups."""
    gathered_reads: int = 0
    """Those of `reads` that are sectors of the array whose parts it waits for."""


@dataclass(frozen=True)
class GemmTimes:
    """When workgroups work. Each value is one number, or one per workgroup in dispatch order: cycles of a step, cycles
    before the first, and the earliest begin."""

    step_cycles: np.ndarray | int
    lead_cycles: np.ndarray | int
    not_before: np.ndarray | int = 0


@dataclass(frozen=True)
class Tolerance:
    """How well a GEMM hides its memory's latency: `prefetched` steps are read ahead of the one that computes, 0 to 2;
    `reads` sectors of a workgroup are under way in each channel at the most (0: no limit); `per_unit` workgroups share
    a compute unit, which computes for one at a time."""

    prefetched: int = 1
    reads: int = 0
    per_unit: int = 1


@dataclass(frozen=True)
class Communication:
    """What a kernel that communicates has of the GPU: so many compute `units`, each of which copies or adds up
    `bandwidth` GB/s at the most (0: what memory and link let it)."""

    units: int
    bandwidth: float = 0.0

    def cycles(self, sectors: np.ndarray, channels: int) -> np.ndarray | int:
        """How long a unit takes for so many `sectors` of a slice, beside reading and storing them."""
        if not self.bandwidth:
            return 0
        rate = self.bandwidth * channels / TOTAL_CHANNELS / SECTOR_BYTES
        return np.ceil(sectors / rate).astype(int)


def gemm_kernel(
    layer: SubLayer,
    program: Program,
    rank: int,
    units: int,
    times: GemmTimes,
    *,
    overlapped: bool,
    order: Dispatch | None = None,
    tolerance: Tolerance = Tolerance(),
) -> KernelPlan:
    """The GEMM of `rank` on so many compute `units`, whose chunks `program` orders, its tiles in `order` (default: as a
    library would choose).

    `overlapped`: its stores are the hardware's collective, so some chunks go straight to peers and none through the
    cache. What the cache leaves of the reads is found for rank 0: on the others the chunks have other numbers only.
    """
    first, slots = program.gemm(0).chunks, units * tolerance.per_unit
    if order is None:
        order = tuned_order(layer, first, slots)
        fetches = tuned_fetches(layer, first, slots, not overlapped)
    else:
        fetches = gemm_fetches(layer, first, slots, not overlapped, order)
    tiling = layer.tiling
    chunk, row, column = panels(layer, program.gemm(rank).chunks, order)
    straight = [region.chunk for region in program.regions(rank) if region.via is Via.STORE]
    down, across = np.divmod(order.tile, tiling.tiles_across)
    right = (across == tiling.tiles_across - 1) & (layer.n % TILE != 0)
    a_whole, a_last = layer.panel_sectors()
    b_whole, b_last = layer.panel_sectors(layer.n % TILE or TILE)
    panel = -(-(a_whole * layer.steps) // 8) * 8
    inputs = layer.memory.inputs
    a_panels = layer.m // TILE
    right_sectors = -(-tiling.right_bytes // 32)
    b_sectors, b_rest = np.where(right, b_whole, a_whole), np.where(right, b_last, a_last)
    lasts = np.arange(layer.steps) == layer.steps - 1
    reads = (fetches.a * np.where(lasts, a_last, a_whole)).sum()
    reads += (fetches.b * np.where(lasts, b_rest[:, None], b_sectors[:, None])).sum()
    return KernelPlan(
        kernel={
            "slots": slots,
            "steps": layer.steps,
            "stepped": 1,
            "prefetched": tolerance.prefetched,
            "reads": tolerance.reads * layer.channels,
            "units": units if tolerance.per_unit > 1 else 0,
            "traffic_class": TrafficClass.GEMM.value,
            "active": 1,
            "rows": tiling.wf_rows,
            "pitch": tiling.pitch_sectors,
            "wf_stride": tiling.wf_rows * tiling.pitch_sectors,
        },
        workgroups={
            "a_va": inputs + row * panel,
            "b_va": inputs + (a_panels + column) * panel,
            "store_va": ARRAY_BASE
            + chunk * tiling.sectors
            + down * tiling.tile_rows * tiling.pitch_sectors
            + across * (tiling.body_bytes // 32),
            "not_before": times.not_before,
            "lead_cycles": times.lead_cycles,
            "step_cycles": times.step_cycles,
            "wg": chunk * layer.workgroup_stride + order.tile,
            "a_sectors": a_whole,
            "a_last": a_last,
            "b_sectors": b_sectors,
            "b_last": b_rest,
            "row_sectors": np.where(across == tiling.tiles_across - 1, right_sectors, tiling.body_bytes // 32),
            "last_bytes": np.where(
                across == tiling.tiles_across - 1, tiling.right_bytes - 32 * (right_sectors - 1), 32
            ),
            "remote": (overlapped & np.isin(chunk, straight)).astype(int),
            "rows": tiling.tile_rows,
        },
        count=len(order.tile),
        steps=step_lines(fetches),
        reads=int(reads),
    )


def step_lines(fetches: Fetches) -> np.ndarray:
    """Lines of the step file for what is fetched, shape (workgroups, steps)."""
    fields = {"fetch_a": fetches.a, "fetch_b": fetches.b, "wait_a": fetches.wait_a, "wait_b": fetches.wait_b}
    return sum(values.astype(np.uint32) << Step[name].offset for name, values in fields.items())


@dataclass
class _Pieces:
    """Workgroups of a communication kernel: the pieces of each of `chunks`, in order. `received` sectors came over the
    link before this kernel, `arriving` chunks come during it."""

    layer: SubLayer
    chunks: Sequence[int]
    arriving: int
    received: int = 0
    step: np.ndarray = field(init=False)
    chunk: np.ndarray = field(init=False)
    offset: np.ndarray = field(init=False)
    sectors: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        chunk, piece = self.layer.chunk_sectors, PIECE_SECTORS * self.layer.channels
        first = np.arange(0, chunk, piece)
        self.step = np.repeat(np.arange(len(self.chunks)), len(first))
        self.chunk = np.asarray(self.chunks)[self.step]
        self.offset = np.tile(first, len(self.chunks))
        self.sectors = np.minimum(piece, chunk - self.offset)

    @property
    def place(self) -> np.ndarray:
        """Where a piece lies in the array, in sectors."""
        return self.chunk * self.layer.tiling.sectors + self.offset

    @property
    def wait(self) -> np.ndarray:
        """Sectors that must have come over the link: all up to this piece of the step before."""
        chunk = self.layer.chunk_sectors
        return np.where(self.step, self.received + (self.step - 1) * chunk + self.offset + self.sectors, 0)

    def plan(
        self,
        traffic_class: TrafficClass,
        share: Communication,
        after_done: bool,
        reads: Sequence[tuple[np.ndarray, np.ndarray]],
        store_va: np.ndarray,
        remote: np.ndarray | int,
    ) -> KernelPlan:
        """A kernel that reads up to two operands (addresses and sectors) and stores."""
        (a_va, a_sectors), (b_va, b_sectors) = (*reads, (np.zeros_like(self.step),) * 2)[:2]
        return KernelPlan(
            kernel={
                "slots": share.units,
                "steps": 1,
                "prefetched": 1,
                "traffic_class": traffic_class.value,
                "after_done": int(after_done),
                "arrive": self.received + self.arriving * self.layer.chunk_sectors,
                "rows": 1,
            },
            workgroups={
                "a_va": a_va,
                "b_va": b_va,
                "wait": self.wait,
                "step_cycles": share.cycles(self.sectors, self.layer.channels),
                "a_sectors": a_sectors,
                "a_last": a_sectors,
                "b_sectors": b_sectors,
                "b_last": b_sectors,
                "row_sectors": self.sectors,
                "last_bytes": 32,
                "store_va": store_va,
                "remote": remote,
                "rows": 1,
            },
            count=len(self.step),
            reads=int(a_sectors.sum() + b_sectors.sum()),
        )


def reduce_scatter_kernel(layer: SubLayer, program: Program, rank: int, share: Communication) -> KernelPlan:
    """The kernel that a GPU without near-memory compute runs after the GEMM: N steps, of which all but the first read
    what came as well as the own chunk, and all but the last store to the neighbour's staging buffer."""
    chunks = program.gemm(rank).chunks
    pieces = _Pieces(layer, chunks, program.closed_forms["kernels"].arriving)
    memory, chunk = layer.memory, layer.chunk_sectors
    own = ARRAY_BASE + pieces.place
    received = memory.staging + (pieces.step - 1) * chunk + pieces.offset
    last = pieces.step == len(chunks) - 1
    return pieces.plan(
        TrafficClass.RS,
        share,
        False,
        [(own, pieces.sectors), (np.maximum(received, 0), np.where(pieces.step > 0, pieces.sectors, 0))],
        store_va=np.where(last, own, memory.staging_window + pieces.step * chunk + pieces.offset),
        remote=(~last).astype(int),
    )


def near_memory_reduce_scatter_kernel(layer: SubLayer, program: Program, rank: int, share: Communication) -> KernelPlan:
    """A reduce-scatter kernel whose stores the neighbour's memory adds to its own chunk: N - 1 steps that read the sum
    so far and pass it on."""
    arriving = program.closed_forms["near-memory kernel"].arriving
    pieces = _Pieces(layer, chunks_sent(program, rank), arriving)
    return pieces.plan(
        TrafficClass.RS,
        share,
        False,
        [(ARRAY_BASE + pieces.place, pieces.sectors)],
        store_va=layer.memory.array_window + pieces.place,
        remote=1,
    )


def all_gather_kernel(
    layer: SubLayer, program: Program, rank: int, share: Communication, *, after_done: bool, received: int
) -> KernelPlan:
    """N - 1 steps: the own chunk, then each one that came, is read and stored to the neighbour. `received` sectors came
    over the link before."""
    pieces = _Pieces(layer, chunks_sent(program, rank), program.closed_forms["kernels"].arriving, received)
    memory = layer.memory
    own = np.isin(pieces.chunk, program.gemm(rank).chunks)
    return pieces.plan(
        TrafficClass.AG,
        share,
        after_done,
        [(np.where(own, ARRAY_BASE, memory.gathered) + pieces.place, pieces.sectors)],
        store_va=memory.gather_window + pieces.place,
        remote=1,
    )


def plan_texts(rank: int, kernels: Sequence[KernelPlan]) -> dict[str, str]:
    """File name -> text of the plan of `rank`, plan<rank>.hex, what its workgroups wait for, waits<rank>.hex, and the
    steps of its GEMM, steps<rank>.hex. Kernels that run beside others come first."""
    assert len(kernels) <= KERNELS
    kernels = sorted(kernels, key=lambda plan: -plan.kernel.get("beside", 0))
    lines = []
    first, first_wait = KERNELS, 0
    for kernel in kernels:
        assert kernel.count < MAX_WORKGROUPS
        assert kernel.kernel["slots"] <= MAX_SLOTS
        place = {"first": first, "count": kernel.count, "first_wait": first_wait, "waits": len(kernel.waits)}
        lines.append(pack("kernel", Kernel, **place, **kernel.kernel))
        first += kernel.count
        first_wait += len(kernel.waits)
    assert first_wait <= GATE_LINES
    beside = [plan.kernel["slots"] for plan in kernels if plan.kernel.get("beside")]
    if beside:
        assert max(beside) + max((plan.kernel["slots"] for plan in kernels[len(beside) :]), default=0) <= MAX_SLOTS
    lines += [0] * (KERNELS - len(lines))
    records = [_records(kernel) for kernel in kernels]
    text = "".join(f"{line:0{PLAN_BITS // 4}x}\n" for line in lines)
    waits = [wait for kernel in kernels for wait in kernel.waits]
    texts = {
        f"plan{rank}.hex": text + "".join(records),
        f"waits{rank}.hex": "".join(f"{_wait(*wait):x}\n" for wait in waits),
    }
    steps = [kernel.steps for kernel in kernels if kernel.steps is not None]
    assert len(steps) <= 1
    texts[f"steps{rank}.hex"] = "".join(f"{line:x}\n" for part in steps for line in part.ravel().tolist())
    return texts


def _wait(workgroup: int, gate: int, launches: int) -> int:
    return pack("wait", Wait, workgroup=workgroup, gate=gate, launches=launches)


def _records(plan: KernelPlan) -> str:
    """The workgroups of a kernel, one line each."""
    words = np.zeros((plan.count, PLAN_BITS // 64), np.uint64)
    for name, values in plan.workgroups.items():
        place = Workgroup[name]
        column = np.broadcast_to(np.asarray(values, np.uint64), (plan.count,))
        if (column >> np.uint64(place.width)).any():
            raise ValueError(f"{name} of a workgroup must be below {1 << place.width}, got {column.max()}")
        word, shift = divmod(place.offset, 64)
        words[:, word] |= column << np.uint64(shift)
        if shift + place.width > 64:
            words[:, word + 1] |= column >> np.uint64(64 - shift)
    digits = np.ascontiguousarray(words[:, ::-1]).astype(">u8").tobytes().hex()
    width = PLAN_BITS // 4
    return "".join(digits[place : place + width] + "\n" for place in range(0, len(digits), width))
