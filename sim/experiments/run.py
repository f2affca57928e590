"""From a checked request to a judged result: makes the matrices, runs the ring, compares, gathers the figures."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from hw.config import SECTOR_BYTES
from hw.messages import AluOperation, DataType, Policy, Threshold
from sim.experiments.request import DIRECTIONS, WORKGROUP_SLOTS, WRONG_ORDER, RingRequest
from sim.experiments.results import ScenarioResult, overlap_figures
from sim.experiments.ring_run import RingOutcome, RingTask, simulate_ring
from sim.experiments.verdict import judge, overflow_complaints
from sim.golden.matmul import partial_products

_THRESHOLDS = {
    "5": Threshold.OCCUPANCY_5,
    "10": Threshold.OCCUPANCY_10,
    "30": Threshold.OCCUPANCY_30,
    "none": Threshold.NONE,
    "auto": Threshold.AUTO,
}
_PHASES = ("gemm", "rs", "ag", "other")
_ACCESSES = ("read", "store", "update")


def ring_task(request: RingRequest) -> RingTask:
    """What the simulator is given for `request`: real products of random matrices, or the user's arrays."""
    m, n, k = request.shape
    if request.inputs is not None:
        partials = request.inputs.reshape(request.gpus, m, n)
    else:
        partials = partial_products(request.gpus, m, n, max(k, 1), request.dtype, np.random.default_rng(request.seed))
    tiling = request.tiling()
    return RingTask(
        config=request.configuration(),
        partials=partials,
        tiling=tiling,
        dtype=DataType[request.dtype.upper()],
        op=AluOperation[request.op.upper()],
        block_wfs=request.dma_block or request.wfs,
        direction=DIRECTIONS[request.direction],
        first_touch=request.initial == "first-touch",
        policy=Policy[request.policy.upper().replace("-", "_")],
        threshold=_THRESHOLDS[request.threshold],
        starvation_limit=request.starvation_limit,
        slots=WORKGROUP_SLOTS if request.schedule == "staggered" else tiling.workgroups,
        depth=k,
        pauses=request.pauses / 100,
        alone=request.alone,
        seed=request.seed,
        waves=request.waves,
        wrong_order=request.bug == WRONG_ORDER,
        bug=request.bug,
    )


def _figures(task: RingTask, outcome: RingOutcome) -> dict[str, Any]:
    registers = [status["registers"] for status in outcome.ranks]
    config = task.config

    def total(name: str) -> int:
        return sum(counts[name] for counts in registers)

    def peak(name: str) -> int:
        return max(counts[name] for counts in registers)

    steps = task.program.closed_forms["hardware"].egress
    chunk_cycles = task.tiling.sectors * SECTOR_BYTES / config.link_bytes_per_cycle
    rs_alone = round(steps * (chunk_cycles + config.link_latency))
    counted = total("cycles") * config.channels
    kilocycles = (outcome.cycles + outcome.alone_cycles) / 1000
    figures: dict[str, Any] = {
        "gemm_cycles": outcome.gemm_cycles,
        "rs_alone_cycles": rs_alone,
        "sectors": {
            f"{phase}_{access}": total(f"sectors_{phase}_{access}") for phase in _PHASES for access in _ACCESSES
        },
        "occupancy_mean": round(total("occupancy_sum") / counted, 3) if counted else None,
        "occupancy_peak": peak("occupancy_peak"),
        "occupancy_window": outcome.window,
        "occupancy_over_time": outcome.occupancy,
        "link_utilisation": [
            round(max(status["link_busy"]) / max(status["done_cycles"], 1), 4) for status in outcome.ranks
        ],
        "tracker_accesses": total("tracker_accesses"),
        "tracker_hits": total("tracker_hits"),
        "tracker_evictions": total("tracker_evictions"),
        "tracker_live_peak": peak("tracker_live_peak"),
        "trigger_latency_peak": peak("trigger_latency_peak"),
        "held_compute_cycles": total("held_compute"),
        "held_communication_cycles": total("held_communication"),
        "counters": registers,
        "kilocycles_per_second": round(kilocycles / max(outcome.simulate_seconds, 1e-6), 1),
        "simulate_seconds": round(outcome.simulate_seconds, 3),
        "total_seconds": round(outcome.total_seconds, 3),
    }
    if outcome.alone_cycles and outcome.finished:
        figures["gemm_alone_cycles"] = outcome.alone_cycles
        figures |= overlap_figures(outcome.cycles, outcome.alone_cycles, rs_alone)
    return figures


def run_ring_with_output(
    request: RingRequest, progress: Callable[[str], None] = lambda stage: None
) -> tuple[ScenarioResult, np.ndarray]:
    """Run `request`; the result and what every rank holds, shape (gpus, rows, columns), as bit patterns.

    `progress` is told each stage. Raises :class:`sim.errors.SimulationError` when the simulator itself fails.
    """
    progress("multiplying the matrices")
    task = ring_task(request)
    outcome = simulate_ring(task, progress)
    progress("comparing with the golden model")
    verdict = judge(task, outcome)
    complaints = verdict.complaints + (overflow_complaints(task, outcome) if request.overflow else ())
    plain = (
        "tile",
        "wfs",
        "dma_block",
        "direction",
        "initial",
        "pauses",
        "schedule",
        "seed",
        "starvation_limit",
        "bug",
    )
    options = {key: value for key, value in asdict(request).items() if key in (*plain, "settings")}
    return (
        ScenarioResult(
            **request.identity(),
            passed=not complaints,
            cycles=outcome.cycles,
            options=options,
            complaints=complaints,
            mismatches=verdict.mismatches,
            **_figures(task, outcome),
        ),
        outcome.reduced,
    )


def run_ring(request: RingRequest, progress: Callable[[str], None] = lambda stage: None) -> ScenarioResult:
    """Run `request` and judge it; see :func:`run_ring_with_output`."""
    return run_ring_with_output(request, progress)[0]
