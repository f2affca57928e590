"""Simulates a point of the paper's evaluation on the RTL: a sub-layer at full size in one configuration.

:func:`simulate_point` turns a :class:`sim.experiments.point.Point` into a dictionary that JSON can hold. Figures over
many points (speedups, ideal overlap, geomeans) are computed from these dictionaries by whoever draws them.

Source: T3 (ASPLOS 2024) sections 5 and 6.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Policy, Threshold
from sim.collectives.program import Traffic
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.experiments.point import CONFIGURATIONS, MODES, Point
from sim.experiments.point_figures import closed_form_complaints, compare_closed_forms, figures
from sim.experiments.request import configuration
from sim.experiments.sublayer_run import SubLayerTask, simulate_sublayer
from sim.golden.operands import operand_elements
from sim.simulator.sources import digest_of
from sim.workloads.calibration import analytic_cycles, gemm_times
from sim.workloads.kernel_plans import (
    KernelPlan,
    all_gather_kernel,
    gemm_kernel,
    near_memory_reduce_scatter_kernel,
    reduce_scatter_kernel,
)
from sim.workloads.recorded_trace import load_trace
from sim.workloads.sublayer import SubLayer
from sim.workloads.tile_order import Dispatch

__all__ = ["CONFIGURATIONS", "MODES", "Point", "simulate_point"]

THRESHOLDS = {
    "5": Threshold.OCCUPANCY_5,
    "10": Threshold.OCCUPANCY_10,
    "30": Threshold.OCCUPANCY_30,
    "none": Threshold.NONE,
}


PACKETS = {"dma_packets": 32, "store_packets": 8, "link_receive_packets": 64}
"""Packet buffers (256 B) of one channel's share of a node, for links of 75 GB/s. The stores of a stage of 80 workgroups
take the whole DRAM for 2.6 us, during which a link sends 24 packets per channel: so much the DMA engine has to have
ready, and the receiver has to take in beside what is under way in a round trip of 1 us (9 packets)."""


MANY_UNITS, FAST_LINK = 120, 120.0
"""Compute units, and GB/s per direction, from either of which the detector's boundary of threshold 30 is programmed to
:data:`BOUNDARY_HUNGRY_LINK`."""
BOUNDARY_HUNGRY_LINK = 3584
"""Requests in the detector's window of 4,096 cycles below which there is no threshold where the link runs dry easily:
7/8 of the bandwidth. A stage of 160 workgroups reads and stores for so long that the link has nothing to send when
communication is let in below 30 requests only: T-NLG FC-2 at TP 8 takes 10 % longer, IP 6 %; OP at TP 8 and FC-2 at
TP 16 0.4 % less. A link of 150 GB/s sends what is buffered in half the time: T-NLG OP at TP 16 takes 3.7 % longer with
threshold 30, every other sub-layer as long as without one, within 0.15 %."""


def source_version() -> str:
    """The version of everything that simulating a point depends on (:func:`sim.simulator.sources.digest_of`)."""
    return digest_of(__name__)


def node_configuration(point: Point) -> Configuration:
    """The hardware of `point`: preset `paper` (`quad` with more channels), more room for fetches of evicted counters,
    their home table spread over all channels of the GPU, and :data:`PACKETS` in proportion to channels and links."""
    share = min(4, point.channels * (1 if point.link_bandwidth <= 75 else 2))
    return configuration(
        "paper" if point.channels == 1 else "quad",
        {},
        channels=point.channels,
        link_bandwidth=float(point.link_bandwidth),
        tracker_ways=point.tracker_ways,
        tracker_fetches=16,
        spill_queue_depth=16,
        far_homes=True,
        **{name: packets * share for name, packets in PACKETS.items()},
    )


def sublayer_of(point: Point) -> SubLayer:
    """Geometry of the point's sub-layer on its channel slice."""
    work = point.sublayer
    return SubLayer(work.m, work.n, work.k, work.tp, point.channels)


def rank_kernels(point: Point, layer: SubLayer, rank: int) -> tuple[KernelPlan, ...]:
    """What `rank` runs."""
    slots = point.compute_units
    program, gather_program = ring_reduce_scatter(layer.gpus), ring_all_gather(layer.gpus)
    if point.configuration == "rs-nmc":
        return (near_memory_reduce_scatter_kernel(layer, program, rank, slots),)
    overlapped = point.configuration.startswith("t3")
    if point.trace:
        trace = load_trace(point.trace, layer)
        order = trace.dispatch(layer)
        gemm = gemm_kernel(layer, program, rank, trace.slots, trace.times(layer), overlapped=overlapped, order=order)
    else:
        rows = Dispatch.along_rows(layer) if point.tile_order == "rows" else None
        gemm = gemm_kernel(layer, program, rank, slots, gemm_times(layer, slots), overlapped=overlapped, order=rows)
    if point.configuration == "gemm":
        return (gemm,)
    received = program.closed_forms["hardware" if overlapped else "kernels"].arriving * layer.chunk_sectors
    gather = all_gather_kernel(layer, gather_program, rank, slots, after_done=overlapped, received=received)
    return (gemm, gather) if overlapped else (gemm, reduce_scatter_kernel(layer, program, rank, slots), gather)


def wire_cycles(point: Point, layer: SubLayer) -> float:
    """Cycles that a reduce-scatter takes on the link."""
    bytes_a_cycle = point.link_bandwidth * point.channels / TOTAL_CHANNELS
    chunks = ring_reduce_scatter(layer.gpus).closed_forms["hardware"].egress
    return chunks * layer.chunk_sectors * SECTOR_BYTES / bytes_a_cycle


def boundary_none(point: Point) -> int:
    """What the detector's boundary of threshold 30 is programmed to; 0 leaves it at its reset value."""
    hungry = point.compute_units >= MANY_UNITS or point.link_bandwidth >= FAST_LINK
    return BOUNDARY_HUNGRY_LINK if hungry else 0


def sublayer_task(point: Point) -> SubLayerTask:
    """The simulation of `point`."""
    layer = sublayer_of(point)
    overlapped = point.configuration.startswith("t3")
    mca = point.configuration.startswith("t3-mca")
    paced = point.configuration == "t3-paced"
    gemm, wire = analytic_cycles(layer, point.compute_units), wire_cycles(point, layer)
    expected = {"gemm": gemm, "rs-nmc": wire, "sequential": gemm + 2 * wire}
    return SubLayerTask(
        layer=layer,
        config=node_configuration(point),
        kernels=tuple(rank_kernels(point, layer, rank) for rank in range(layer.gpus if point.mode == "ring" else 1)),
        overlapped=overlapped,
        near_memory=point.configuration == "rs-nmc",
        policy=Policy.PACED if paced else Policy.MCA if mca else Policy.ROUND_ROBIN,
        # An update that arrives, and the read that sends it on, in the time of a sector on the link.
        pace=max(1, int(SECTOR_BYTES * TOTAL_CHANNELS / point.link_bandwidth / 2)) if paced else 0,
        boundary_none=boundary_none(point),
        threshold=THRESHOLDS.get(point.configuration.removeprefix("t3-mca-"), Threshold.AUTO),
        starvation_limit=point.starvation_limit,
        expected_cycles=round(expected.get(point.configuration, max(gemm, wire) + wire)),
        seed=point.seed,
    )


def closed_forms(point: Point, layer: SubLayer, kernels: tuple[KernelPlan, ...]) -> dict[str, int]:
    """Sectors per GPU that must be counted, and other numbers that are known.

    `gemm_read`: what the last-level cache leaves; `output_store`, `output_update`: writes of the output by GEMM and
    reduce-scatter; `arrived`: sectors from the link in all; `triggers`: WF tiles completed.
    """
    reduction, gather = (program(layer.gpus).closed_forms for program in (ring_reduce_scatter, ring_all_gather))
    reduced, gathered = {
        "gemm": (Traffic(local_stores=layer.gpus), Traffic()),
        "rs-nmc": (reduction["near-memory kernel"], Traffic()),
        "sequential": (reduction["kernels"], gather["kernels"]),
    }.get(point.configuration, (reduction["hardware"], gather["kernels"]))
    chunk = layer.chunk_sectors
    return {
        "gemm_read": 0 if point.configuration == "rs-nmc" else kernels[0].reads,
        "output_store": reduced.stores * chunk,
        "output_update": reduced.updates * chunk,
        "rs_read": reduced.reads * chunk,
        "ag_read": gathered.reads * chunk,
        "ag_store": gathered.stores * chunk,
        "arrived": (reduced.arriving + gathered.arriving) * chunk,
        "triggers": reduced.triggers * layer.tiling.wf_tiles,
    }


def golden_reduction(layer: SubLayer, seed: int) -> np.ndarray:
    """What rank r must hold of chunk r, shape (gpus, rows, columns), as bit patterns."""
    tiling = layer.tiling
    inputs = []
    for rank in range(layer.gpus):
        elements = operand_elements(seed, rank, layer.gpus * tiling.sectors)
        rows = elements.reshape(layer.gpus, tiling.rows, -1)[:, :, : tiling.columns]
        inputs.append(rows.reshape(layer.gpus, -1))
    reduced = ring_reduce_scatter(layer.gpus).golden(np.stack(inputs))
    return np.asarray(reduced).reshape(layer.gpus, tiling.rows, tiling.columns)


def _mismatches(task: SubLayerTask, reduced: np.ndarray | None, complaints: list[str]) -> int | None:
    """Elements that differ from the golden, when the run has any that are checked."""
    if reduced is None or not task.overlapped:
        return None
    golden = golden_reduction(task.layer, task.seed)
    wrong = np.argwhere(reduced != golden)
    if len(wrong):
        rank, row, column = wrong[0]
        complaints.append(
            f"{len(wrong)} of {golden.size} elements differ, the first on rank {rank} at row {row}, column {column}: "
            f"{reduced[rank, row, column]:#x} instead of {golden[rank, row, column]:#x}"
        )
    return len(wrong)


def simulate_point(point: Point, progress: Callable[[str], None] = lambda stage: None) -> dict[str, Any]:
    """Simulate `point` on the RTL and return its figures; every time is in cycles of 1 ns.

    - `point`: the fields of the point; `shape`: m, n, k and tp of the sub-layer;
    - `cycles`: start of the GEMM to the end of the last phase; `gemm_cycles`, `rs_cycles`, `ag_cycles`: length of each
      phase that the configuration has (else null), and `spans`: its [begin, end]; with T3 `rs` begins with the GEMM;
    - `analytic_gemm_cycles`: what machine PAPER's formula gives (`calibrated`: whether the lead time of its workgroups
      was calibrated to it, see :mod:`sim.workloads.calibration`); `rs_wire_cycles`: N - 1 chunks over the link;
    - `dram_sectors`: {gemm, rs, ag, other: {read, write, update}}, per GPU (mean over the nodes of a ring);
    - `closed_forms`: name -> {expected, counted, matches}, sectors per GPU;
    - `link_utilisation`: share of `rs_cycles` during which the outgoing link moves bytes, in the reduce-scatter;
    - `tracker`: accesses, hits, misses, evictions, refetches, peak_occupancy, triggers (the worst node of a ring);
    - `arbiter`: held_compute, held_communication (cycles), forced (requests), communication_wait_peak: most cycles in
      which one communication request could have been taken and was not; threshold (the one in force when the GEMM ends,
      null without MCA);
    - `trigger_latency`: longest time from a block's last commit to its first DMA read (null without triggers);
    - `occupancy_mean`, `occupancy_peak` of the DRAM queues;
    - `timeline`: `window` cycles per sample and equally long lists: DRAM sectors in the window under
      `<phase>_<access>`, and `occupancy`, the mean number of requests in the DRAM queues;
    - `mismatches`: wrong elements (null in mirrored mode); `passed`; `complaints`: one sentence each;
    - `seconds`: build (0 when cached), prepare, simulate, check and total (without `build`) of wall time; python and
      python_share: processor time, and its part, of everything but `build` and the simulation from reset to the dump of
      the memories: plans, start and end of the simulator's process, reading and checking. On an idle machine processor
      time is wall time; a busy one does not change it.

    Raises :class:`sim.errors.SimulationError` when the simulator itself fails.
    """
    began, worked = time.perf_counter(), time.thread_time()
    task = sublayer_task(point)
    planned, plan_processor = time.perf_counter() - began, time.thread_time() - worked
    outcome = simulate_sublayer(task, progress)
    progress("checking the result")
    checking, worked = time.perf_counter(), time.thread_time()
    complaints = outcome.faults
    mismatches = _mismatches(task, outcome.reduced, complaints)
    forms = compare_closed_forms(closed_forms(point, task.layer, task.kernels[0]), outcome.ranks)
    if outcome.finished:
        complaints += closed_form_complaints(forms)
    answer = figures(point, task, outcome)
    waited = answer["arbiter"]["communication_wait_peak"]
    if task.overlapped and 0 < point.starvation_limit < waited:
        complaints.append(f"communication was passed over for {waited} cycles, the limit is {point.starvation_limit}")
    answer |= {
        "analytic_gemm_cycles": round(analytic_cycles(task.layer, point.compute_units)),
        "calibrated": not point.trace and gemm_times(task.layer, point.compute_units).calibrated,
        "rs_wire_cycles": round(wire_cycles(point, task.layer)),
        "closed_forms": forms,
        "mismatches": mismatches,
        "passed": not complaints,
        "complaints": complaints,
    }
    prepare = planned + outcome.prepare_seconds
    check = outcome.collect_seconds + time.perf_counter() - checking
    total = prepare + outcome.simulate_seconds + check
    python = plan_processor + outcome.python_processor + time.thread_time() - worked
    answer["seconds"] = {
        "build": round(outcome.build_seconds, 3),
        "prepare": round(prepare, 3),
        "simulate": round(outcome.simulate_seconds, 3),
        "check": round(check, 3),
        "total": round(total, 3),
        "python": round(python, 3),
        "python_share": round(python / (python + outcome.simulate_processor), 4),
    }
    return answer
