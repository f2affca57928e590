"""The figures of a run, as plain values: what the simulation alone determines. :data:`sim.experiments.results.FIGURES`
says what each means."""

from typing import Any

import numpy as np

from hw.config import SECTOR_BYTES, Configuration
from hw.messages import Access, Threshold, TrafficClass
from sim.experiments.array_model import ArrayWork
from sim.experiments.check import Work
from sim.experiments.job import Job, program_of
from sim.experiments.kernel_model import KernelWork
from sim.experiments.program_model import ProgramWork
from sim.experiments.run import Outcome, Seconds
from sim.experiments.spec import Spec
from sim.experiments.spec_values import ARRAY, PROGRAM
from sim.experiments.variants import PHASES, THRESHOLDS
from sim.simulator.read_latencies import latency_figures
from sim.simulator.samples import THRESHOLD, mean_occupancy

ACCESS_NAMES = {Access.READ: "read", Access.STORE: "write", Access.UPDATE: "update"}
_THRESHOLD_NAMES = {threshold: name for name, threshold in THRESHOLDS.items()}
TOTALS = ("tracker_accesses", "tracker_hits", "tracker_evictions", "held_compute", "held_communication")

Spans = dict[str, list[int] | None]


def spans(spec: Spec, statuses: list[dict[str, Any]]) -> Spans:
    """Begin of each phase on the first rank, and its end on the last; None for one that there is not."""
    answer: Spans = dict.fromkeys(("gemm", "rs", "ag"))
    done = max(status["done_cycles"] for status in statuses)
    computed = [0, max(status["gemm_cycles"] for status in statuses)]
    if spec.compute == ARRAY:
        return answer | {"gemm": computed, "rs": [0, done]}
    if spec.compute == PROGRAM:
        classes = {array.traffic for array in program_of(spec).arrays}
        return (
            answer
            | {"gemm": computed if any(computed) else None}
            | {name: [0, done] for name in classes & {"rs", "ag"}}
        )
    for number, kernel in enumerate(spec.variant.kernels):
        begin, end = ([status["spans"][name][number] for status in statuses] for name in ("begin", "end"))
        answer[PHASES[kernel]] = [min(begin), max(end)]
    if spec.variant.overlapped and answer["gemm"]:
        answer["rs"] = [answer["gemm"][0], done]
    return answer


def overlap_figures(overall: int, gemm_alone: int, rs_alone: int, ag: int = 0) -> dict[str, float | None]:
    """Speedup over running one after the other, and what follows from it; None where nothing is to be gained."""
    sequential = gemm_alone + rs_alone + ag
    speedup = sequential / overall if overall else 0.0
    ideal = sequential / (max(gemm_alone, rs_alone) + ag)
    ect = overall - gemm_alone
    return {
        "speedup": speedup,
        "ideal_speedup": ideal,
        "percent_of_ideal": 100 * (speedup - 1) / (ideal - 1) if ideal > 1 else None,
        "ect_cycles": ect,
        "overlap_efficiency": 1 - ect / (sequential - gemm_alone) if sequential > gemm_alone else None,
    }


def _alone(spec: Spec, work: ArrayWork, config: Configuration, outcome: Outcome, cycles: int) -> dict[str, Any]:
    """What each would take by itself; the figures of overlap when the GEMM was run alone."""
    chunk_cycles = work.tiling.sectors * SECTOR_BYTES / config.link_bytes_per_cycle
    steps = program_of(spec).moves().egress
    rs_alone = round(steps * (chunk_cycles + config.link_latency))
    if not outcome.alone_cycles or not outcome.finished:
        return {"rs_alone_cycles": rs_alone}
    return {
        "rs_alone_cycles": rs_alone,
        "gemm_alone_cycles": outcome.alone_cycles,
        **overlap_figures(cycles, outcome.alone_cycles, rs_alone),
    }


def _timeline(job: Job, outcome: Outcome) -> dict[str, Any]:
    """What rank 0's channels did, window by window."""
    samples = outcome.samples
    kinds = {
        f"{traffic_class.name.lower()}_{name}": samples[:, traffic_class.value << 2 | access.value].tolist()
        for traffic_class in TrafficClass
        for access, name in ACCESS_NAMES.items()
    }
    return {
        "window": job.window,
        **{kind: counts for kind, counts in kinds.items() if any(counts)},
        "occupancy": mean_occupancy(samples, job.build.config.channels),
    }


def _threshold(spec: Spec, job: Job, outcome: Outcome, gemm: list[int] | None) -> str | None:
    """The threshold in force when the GEMM ends."""
    if spec.variant.policy != "mca" or gemm is None or not len(outcome.samples):
        return None
    last = min(max(gemm[1] // job.window - 1, 0), len(outcome.samples) - 1)
    return _THRESHOLD_NAMES[Threshold(int(outcome.samples[last, THRESHOLD]))]


def _busy_in_reduction(spec: Spec, status: dict[str, Any]) -> int:
    """Cycles of the reduce-scatter during which the link out of a GPU was busy."""
    if spec.variant.overlapped:
        return int(status["link_busy_done"])
    kernel = next(number for number, name in enumerate(spec.variant.kernels) if PHASES[name] == "rs")
    if kernel:
        return int(status["spans"]["link_busy"][kernel])
    return int(status["link_busy"][0])


def _link_utilisation(spec: Spec, statuses: list[dict[str, Any]], reduced: list[int] | None) -> float | None:
    if not reduced or reduced[1] <= reduced[0]:
        return None
    busy = [_busy_in_reduction(spec, status) for status in statuses]
    return round(float(np.mean(busy)) / (reduced[1] - reduced[0]), 4)


def _sectors(total: dict[str, int], nodes: int) -> dict[str, dict[str, int]]:
    """Per GPU, by traffic class and access."""
    return {
        traffic_class.name.lower(): {
            name: round(total[f"sectors_{traffic_class.name.lower()}_{access.name.lower()}"] / nodes)
            for access, name in ACCESS_NAMES.items()
        }
        for traffic_class in TrafficClass
    }


def figures(spec: Spec, job: Job, work: Work, outcome: Outcome) -> dict[str, Any]:
    """Everything that :data:`sim.experiments.results.FIGURES` lists but the result and the seconds."""
    statuses = outcome.ranks
    registers = [status["registers"] for status in statuses]
    total = {name: sum(counts[name] for counts in registers) for name in registers[0]}
    peak = {name: max(counts[name] for counts in registers) for name in registers[0]}
    phases = spans(spec, statuses)
    cycles = max(span[1] for span in phases.values() if span)
    if isinstance(work, ArrayWork):
        cycles = max(status["done_cycles"] for status in statuses)
    if isinstance(work, ProgramWork):
        cycles = max(max(status["done_cycles"], status["gemm_cycles"]) for status in statuses)
    counted = total["cycles"] * job.build.config.channels
    overlapped = spec.variant.overlapped
    alone = _alone(spec, work, job.build.config, outcome, cycles) if isinstance(work, ArrayWork) else {}
    return {
        "cycles": cycles,
        **{f"{name}_cycles": span[1] - span[0] if span else None for name, span in phases.items()},
        "spans": phases,
        **alone,
        **(work.model if isinstance(work, KernelWork) else {}),
        "dram_sectors": _sectors(total, len(statuses)),
        "link_utilisation": _link_utilisation(spec, statuses, phases["rs"]),
        "link_utilisation_by_gpu": [
            round(max(status["link_busy"]) / max(status["done_cycles"], 1), 4) if overlapped else None
            for status in statuses
        ],
        "link_errors": {
            "flipped_bits": outcome.flipped_bits,
            **{
                figure: sum(total[f"link{port}_{figure}"] for port in range(job.build.config.links))
                for figure in ("damaged", "replays")
            },
        },
        "tracker": {
            "accesses": peak["tracker_accesses"],
            "hits": min(counts["tracker_hits"] for counts in registers),
            "misses": max(counts["tracker_accesses"] - counts["tracker_hits"] for counts in registers),
            "evictions": peak["tracker_evictions"],
            "refetches": peak["tracker_fetches"],
            "stall_cycles": peak["tracker_stalls"],
            "peak_occupancy": peak["tracker_live_peak"],
            "triggers": peak["tracker_triggers"],
        },
        "arbiter": {
            "held_compute": peak["held_compute"],
            "held_communication": peak["held_communication"],
            "forced": peak["forced_communication"],
            "communication_wait_peak": max(status["communication_wait_peak"] for status in statuses),
            "threshold": _threshold(spec, job, outcome, phases["gemm"]),
        },
        "trigger_latency": peak["trigger_latency_peak"] if overlapped and total["dma_reads"] else None,
        "read_latency": latency_figures(outcome.read_latencies),
        "occupancy_mean": round(total["occupancy_sum"] / counted, 3) if counted else None,
        "occupancy_peak": peak["occupancy_peak"],
        "totals": {name: total[name] for name in TOTALS}
        | {
            f"sectors_{traffic_class.name.lower()}_{access.name.lower()}": total[
                f"sectors_{traffic_class.name.lower()}_{access.name.lower()}"
            ]
            for traffic_class in TrafficClass
            for access in ACCESS_NAMES
        },
        "counters": registers,
        "timeline": _timeline(job, outcome),
    }


def wall_time(seconds: Seconds, planned: float, planning: float, checked: float, checking: float) -> dict[str, float]:
    """The figures `seconds`: wall time of `seconds`, and of planning and checking around it; `planning` and `checking`
    are processor time."""
    prepare, check = planned + seconds.prepare, checked + seconds.check
    python = planning + seconds.python + checking
    return {
        "build": round(seconds.build, 3),
        "prepare": round(prepare, 3),
        "simulate": round(seconds.simulate, 3),
        "simulate_processor": round(seconds.simulate_processor, 3),
        "check": round(check, 3),
        "total": round(prepare + seconds.simulate + check, 3),
        "python": round(python, 3),
        "python_share": round(python / (python + seconds.simulate_processor), 4),
    }
