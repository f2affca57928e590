"""Compute models `kernels` and `trace`: GEMM and communication kernels of a sub-layer at full size, workgroup by
workgroup.

Source: T3 (ASPLOS 2024) sections 5 and 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Access, TrafficClass
from hw.messages import Mapping as RangeMapping
from sim.collectives.compiler import NodeProgram, needs
from sim.collectives.ring_all_gather import ring_all_gather
from sim.experiments.hardware import with_room
from sim.experiments.job import EPOCH, Build, Job, arrays_at, compiled_ring, fault_writes, program_of, results_of
from sim.experiments.spec import Spec
from sim.experiments.variants import ALL_GATHER, GEMM, NEAR_MEMORY, POLICIES, REDUCE_SCATTER, THRESHOLDS
from sim.golden.arithmetic import pattern_type
from sim.host.address_space import ARRAY_BASE
from sim.host.program import host_program
from sim.host.range_entries import range_words, send_words
from sim.host.register_writes import (
    Write,
    arbiter_writes,
    link_writes,
    range_writes,
    register_write,
    send_writes,
    window_write,
)
from sim.host.tiling import Tiling
from sim.topologies.ring import ring
from sim.workloads.calibration import analytic_cycles, gemm_times
from sim.workloads.kernel_plans import (
    Communication,
    KernelPlan,
    Tolerance,
    all_gather_kernel,
    gemm_kernel,
    near_memory_reduce_scatter_kernel,
    plan_texts,
    reduce_scatter_kernel,
)
from sim.workloads.recorded_trace import load_trace
from sim.workloads.sublayer import SubLayer
from sim.workloads.tile_order import Dispatch

SAMPLES = 200
"""Windows of a timeline, about."""
LONG = 10_000_000
"""Cycles of all channels of all nodes from which on a run makes up for the time that better optimized code takes to
compile: of one channel that is more than all of the paper's sub-layers take."""
DIRECT_TILE_ROWS = 1 << 15
STORAGE_SECTORS = 1 << 19
"""Sectors of a channel's model, enough for all of Table 2, so that one build serves them."""
PLAIN_RANGES = 4
"""Ranges beside the collective's: operands, backing store, gathered output, and the window to the neighbour's."""
MANY_UNITS, FAST_LINK = 120, 120.0
"""Compute units, and GB/s per direction, from either of which the detector's boundary of threshold 30 is programmed to
:data:`BOUNDARY_HUNGRY_LINK`."""
BOUNDARY_HUNGRY_LINK = 3584
"""Requests in the detector's window of 4,096 cycles below which there is no threshold where the link runs dry easily:
7/8 of the bandwidth. A stage of 160 workgroups reads and stores for so long that the link has nothing to send when
communication is let in below 30 requests only: T-NLG FC-2 at TP 8 takes 10 % longer, IP 6 %; OP at TP 8 and FC-2 at
TP 16 0.4 % less. A link of 150 GB/s sends what is buffered in half the time: T-NLG OP at TP 16 takes 3.7 % longer with
threshold 30, every other sub-layer as long as without one, within 0.15 %."""


@dataclass(frozen=True)
class KernelWork:
    """`kernels[rank]` are the plans of a rank of `layer`, one entry in all when the run is mirrored. `expected_cycles`:
    how long it should take at most, from which the time limit and the windows of the timeline follow. `model`: figures
    of what machine PAPER's formulas give. `texts`: the plans as files."""

    layer: SubLayer
    kernels: tuple[tuple[KernelPlan, ...], ...]
    expected_cycles: int
    model: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        texts = [plan_texts(rank, plans) for rank, plans in enumerate(self.kernels)]
        object.__setattr__(self, "texts", {name: text for part in texts for name, text in part.items()})


def sublayer_of(spec: Spec) -> SubLayer:
    """Geometry of the GEMM on its channel slice."""
    return SubLayer(*spec.shape, spec.gpus, spec.gpu.channels, spec.hardware.tracker_banks)


def wire_cycles(spec: Spec, layer: SubLayer) -> float:
    """Cycles that a reduce-scatter takes on the link."""
    bytes_a_cycle = spec.gpu.link_bandwidth * layer.channels / TOTAL_CHANNELS
    chunks = program_of(spec).moves().egress
    return chunks * layer.chunk_sectors * SECTOR_BYTES / bytes_a_cycle


def communication_cycles(spec: Spec, layer: SubLayer) -> float:
    """Cycles that a kernel which communicates takes at the most: of the link, or of the compute units that it has."""
    wire, gpu = wire_cycles(spec, layer), spec.gpu
    if not gpu.communication_bandwidth:
        return wire
    rate = (gpu.communication_units or gpu.compute_units) * gpu.communication_bandwidth
    return wire + layer.gpus * layer.chunk_sectors * SECTOR_BYTES / (rate * layer.channels / TOTAL_CHANNELS)


def kernel_work(spec: Spec) -> KernelWork:
    """What the GPUs run: the plans of the variant's kernels for every simulated rank."""
    layer = sublayer_of(spec)
    ranks = 1 if spec.mirrored else layer.gpus
    gemm, wire = analytic_cycles(layer, spec.gpu.compute_units), wire_cycles(spec, layer)
    communication = communication_cycles(spec, layer)
    expected = sum(
        (max(gemm, wire) if spec.variant.overlapped else gemm) if kernel == GEMM else communication
        for kernel in spec.variant.kernels
    )
    model = {
        "analytic_gemm_cycles": round(gemm),
        "calibrated": not spec.trace and gemm_times(layer, spec.gpu.compute_units).calibrated,
        "rs_wire_cycles": round(wire),
    }
    kernels = tuple(_rank_kernels(spec, layer, rank) for rank in range(ranks))
    return KernelWork(layer, kernels, round(expected), model)


def _rank_kernels(spec: Spec, layer: SubLayer, rank: int) -> tuple[KernelPlan, ...]:
    units, overlapped = spec.gpu.compute_units, spec.variant.overlapped
    share = Communication(spec.gpu.communication_units or units, spec.gpu.communication_bandwidth)
    program, gather = program_of(spec), ring_all_gather(layer.gpus)
    received = (program.moves() if overlapped else program.closed_forms["kernels"]).arriving * layer.chunk_sectors
    plans = {
        GEMM: lambda: _gemm(spec, layer, rank, units),
        REDUCE_SCATTER: lambda: reduce_scatter_kernel(layer, program, rank, share),
        NEAR_MEMORY: lambda: near_memory_reduce_scatter_kernel(layer, program, rank, share),
        ALL_GATHER: lambda: all_gather_kernel(layer, gather, rank, share, after_done=overlapped, received=received),
    }
    return tuple(plans[kernel]() for kernel in spec.variant.kernels)


def _gemm(spec: Spec, layer: SubLayer, rank: int, slots: int) -> KernelPlan:
    overlapped, program = spec.variant.overlapped, program_of(spec)
    tolerance = Tolerance(spec.gpu.prefetch, spec.gpu.reads_under_way, spec.gpu.workgroups_per_unit)
    gemm = partial(gemm_kernel, layer, program, rank, overlapped=overlapped, tolerance=tolerance)
    if spec.trace:
        trace = load_trace(spec.trace, layer.gpus * layer.workgroups)
        return gemm(trace.slots, trace.times(layer.steps), order=trace.dispatch(layer))
    rows = Dispatch.along_rows(layer) if spec.tile_order == "rows" else None
    return gemm(slots, gemm_times(layer, slots), order=rows)


def node_of(spec: Spec, layer: SubLayer) -> Configuration:
    """The hardware, with the ranges and trigger-table entries that the sub-layer needs; for plain memory a few ranges
    do."""
    config = spec.hardware
    if not spec.variant.overlapped:
        return replace(config, gpus=8, ranges=16)
    program = program_of(spec)
    needed = needs(program, config, arrays_at(program, layer.tiling), layer.tiling.wfs)
    config = with_room(config, needed, PLAIN_RANGES, least=16)
    return replace(config, gpus=max(8, config.gpus, layer.gpus, config.ranges // 2))


def _boundary_none(spec: Spec) -> int:
    """What the detector's boundary of threshold 30 is programmed to; 0 leaves it at its reset value."""
    hungry = spec.gpu.compute_units >= MANY_UNITS or spec.gpu.link_bandwidth >= FAST_LINK
    return BOUNDARY_HUNGRY_LINK if hungry else 0


def _before(spec: Spec, config: Configuration) -> list[Write]:
    policy, threshold = POLICIES[spec.variant.policy], THRESHOLDS[spec.variant.threshold]
    writes = arbiter_writes(config, policy, threshold, spec.starvation_limit)
    boundary = _boundary_none(spec)
    if boundary:
        name = "detector_boundary_none"
        writes.append(register_write(config, name, **{name: boundary}))
    return [*writes, window_write(config, ARRAY_BASE), *fault_writes(spec, config)]


def _window(
    config: Configuration,
    index: int,
    base: int,
    sectors: int,
    target: int,
    traffic_class: TrafficClass,
    access: Access,
    peer: int,
    port: int,
) -> list[Write]:
    """Range `index` and its send: stores to it go to `target` of the neighbour `peer`, to which `port` leads."""
    region = Tiling(
        rows=sectors, columns=SECTOR_BYTES // 2, tile_rows=DIRECT_TILE_ROWS, tile_columns=SECTOR_BYTES // 2, wfs=1
    )
    words = range_words(
        config,
        base=base,
        tiling=region,
        mapping=RangeMapping.REMOTE,
        first_send=index,
        sends=1,
    )
    sent = send_words(config, peer=peer, port=port, offset=target - base, access=access, traffic_class=traffic_class)
    return [*send_writes(config, index, sent), *range_writes(config, index, words)]


def _plain(config: Configuration, index: int, base: int, sectors: int) -> list[Write]:
    return range_writes(config, index, range_words(config, base=base, sectors=sectors))


def _peer(layer: SubLayer, rank: int) -> int:
    """The rank that kernels of `rank` store to: that to which an all-gather's chunks go."""
    (peer,) = {send.peer for region in ring_all_gather(layer.gpus).regions(rank) for send in region.sends}
    return peer


def _port(config: Configuration, layer: SubLayer, rank: int) -> int:
    """The link port that leads to that rank."""
    return ring(layer.gpus, config.links).port(rank, _peer(layer, rank)) or 0


def _plain_memory(spec: Spec, config: Configuration, layer: SubLayer, rank: int) -> list[Write]:
    """What a node is programmed with on which kernels reduce: plain ranges, and windows to the neighbour."""
    memory, peer = layer.memory, _peer(layer, rank)
    port = _port(config, layer, rank)
    writes = [
        register_write(config, "rank", rank=rank),
        *link_writes(config, [ring(layer.gpus, config.links).source(rank, port) for port in range(config.links)]),
        register_write(config, "epoch", epoch=EPOCH),
        register_write(config, "expected_blocks", expected_blocks=0),
        *_plain(config, 0, ARRAY_BASE, memory.array),
        *_plain(config, 1, memory.inputs, memory.operands),
        *_plain(config, 2, memory.staging, memory.array),
        *_window(
            config, 3, memory.staging_window, memory.array, memory.staging, TrafficClass.RS, Access.STORE, peer, port
        ),
    ]
    if spec.variant.near_memory:
        writes += _window(
            config, 4, memory.array_window, memory.array, ARRAY_BASE, TrafficClass.RS, Access.UPDATE, peer, port
        )
    return writes


def _nodes(spec: Spec, config: Configuration, layer: SubLayer, ranks: int) -> list[NodeProgram]:
    """The collective of each rank, where the hardware does it."""
    if not spec.variant.overlapped:
        return []
    memory = layer.memory
    inputs = (memory.inputs, memory.operands)
    return compiled_ring(spec, config, layer.tiling, ranks, inputs, memory.backing_base)


def _setup(
    spec: Spec, config: Configuration, layer: SubLayer, ranks: int, nodes: Sequence[NodeProgram]
) -> list[list[Write]]:
    """Register writes that program each rank."""
    memory = layer.memory
    if nodes:
        programs = [list(node.writes) for node in nodes]
        free = len(nodes[0].ranges) + 2
    else:
        programs = [_plain_memory(spec, config, layer, rank) for rank in range(ranks)]
        free = 5
    for rank, writes in enumerate(programs):
        peer = _peer(layer, rank)
        writes += _plain(config, free, memory.gathered, memory.array)
        writes += _window(
            config,
            free + 1,
            memory.gather_window,
            memory.array,
            memory.gathered,
            TrafficClass.AG,
            Access.STORE,
            peer,
            _port(config, layer, rank),
        )
        writes.append(register_write(config, "control", clear_counters=1))
    return programs


def kernel_job(spec: Spec, work: KernelWork) -> Job:
    """The run of `work`."""
    layer, memory, ranks = work.layer, work.layer.memory, len(work.kernels)
    config = node_of(spec, layer)
    nodes = _nodes(spec, config, layer, ranks)
    setup, wiring = _setup(spec, config, layer, ranks, nodes), ring(layer.gpus, config.links)
    before = [_before(spec, config)] * ranks
    phases, program = host_program(config, [{}] * ranks, before, setup, [])
    needed = memory.written // config.channels
    return Job(
        build=Build(
            config,
            ranks,
            storage_sectors=max(STORAGE_SECTORS, 1 << needed.bit_length()),
            optimize="-O2" if work.expected_cycles * ranks * config.channels > LONG else "-O1",
            topology=wiring,
        ),
        session={
            "fill": False,
            "alone": False,
            "stall": 0,
            "timeout": 4 * work.expected_cycles + 200_000,
            "late_cycles": 0,
            "doorbells": False,
            "phases": phases,
            "mirrored_arrays": (
                (ARRAY_BASE, layer.tiling.sectors, layer.gpus, 0, layer.workgroup_stride),
                (memory.gathered, layer.tiling.sectors, layer.gpus, 0, 0),
            ),
        },
        program=tuple(program),
        plusargs={
            "plan": Path("plan"),
            "steps": Path("steps"),
            "operand_seed": spec.seed,
        },
        write_inputs=partial(_write, work.texts),
        window=max(1, work.expected_cycles // SAMPLES),
        results=results_of(program_of(spec), layer.tiling),
        pattern=pattern_type(spec.dtype) if ranks > 1 and spec.variant.overlapped else None,
        nodes=tuple(nodes),
    )


def _write(texts: Mapping[str, str], folder: Path) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text)
