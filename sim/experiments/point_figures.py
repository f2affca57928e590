"""Figures of one simulated point, as plain numbers; :func:`sim.experiments.experiment.simulate_point` says what each
means."""

from dataclasses import asdict
from typing import Any

import numpy as np

from hw.messages import Access, Phase, Threshold
from sim.experiments.point import Point
from sim.experiments.sublayer_run import SubLayerOutcome, SubLayerTask
from sim.simulator.samples import THRESHOLD, mean_occupancy

_ACCESS_NAMES = {Access.READ: "read", Access.STORE: "write", Access.UPDATE: "update"}
_THRESHOLD_NAMES = {
    Threshold.OCCUPANCY_5: "5",
    Threshold.OCCUPANCY_10: "10",
    Threshold.OCCUPANCY_30: "30",
    Threshold.NONE: "none",
}


def _counted(status: dict[str, Any]) -> dict[str, int]:
    registers = status["registers"]
    return {
        "gemm_read": registers["sectors_gemm_read"],
        "output_store": registers["sectors_gemm_store"] + registers["sectors_rs_store"],
        "output_update": registers["sectors_gemm_update"] + registers["sectors_rs_update"],
        "rs_read": registers["sectors_rs_read"],
        "ag_read": registers["sectors_ag_read"],
        "ag_store": registers["sectors_ag_store"],
        "arrived": max(status["spans"]["arrived"]),
        "triggers": registers["tracker_triggers"],
    }


def compare_closed_forms(expected: dict[str, int], statuses: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every known number beside the counted one; of several ranks one that is wrong, if there is any."""
    answer = {}
    for name, number in expected.items():
        counts = [_counted(status)[name] for status in statuses]
        counted = next((count for count in counts if count != number), number)
        answer[name] = {"expected": number, "counted": counted, "matches": counted == number}
    return answer


def closed_form_complaints(forms: dict[str, dict[str, Any]]) -> list[str]:
    """A sentence for each of what :func:`compare_closed_forms` found wrong."""
    return [
        f"{name} is {form['counted']}, not {form['expected']}" for name, form in forms.items() if not form["matches"]
    ]


def spans(point: Point, statuses: list[dict[str, Any]]) -> dict[str, list[int] | None]:
    """Begin of each phase on the first rank, and its end on the last; None for one that there is not."""

    def kernel(number: int) -> list[int]:
        begin, end = ([status["spans"][name][number] for status in statuses] for name in ("begin", "end"))
        return [min(begin), max(end)]

    answer: dict[str, list[int] | None] = dict.fromkeys(("gemm", "rs", "ag"))
    if point.configuration == "rs-nmc":
        return answer | {"rs": kernel(0)}
    answer["gemm"] = gemm = kernel(0)
    if point.configuration == "sequential":
        answer |= {"rs": kernel(1), "ag": kernel(2)}
    elif point.configuration != "gemm":
        answer |= {"rs": [gemm[0], max(status["done_cycles"] for status in statuses)], "ag": kernel(1)}
    return answer


def _timeline(task: SubLayerTask, outcome: SubLayerOutcome) -> dict[str, Any]:
    """What rank 0's channels did, window by window."""
    samples = outcome.samples[0]
    kinds = {
        f"{phase.name.lower()}_{name}": samples[:, phase.value << 2 | access.value].tolist()
        for phase in Phase
        for access, name in _ACCESS_NAMES.items()
    }
    return {
        "window": outcome.window,
        **{kind: counts for kind, counts in kinds.items() if any(counts)},
        "occupancy": mean_occupancy(samples, task.config.channels),
    }


def _threshold(point: Point, outcome: SubLayerOutcome, gemm_end: int) -> str | None:
    if not point.configuration.startswith("t3-mca"):
        return None
    samples = outcome.samples[0]
    last = min(max(gemm_end // outcome.window - 1, 0), len(samples) - 1)
    return _THRESHOLD_NAMES[Threshold(int(samples[last, THRESHOLD]))]


def figures(point: Point, task: SubLayerTask, outcome: SubLayerOutcome) -> dict[str, Any]:
    """What the simulation alone determines."""
    statuses = outcome.ranks
    registers = [status["registers"] for status in statuses]
    phases = spans(point, statuses)
    lengths = {name: span[1] - span[0] if span else None for name, span in phases.items()}
    ends = [span[1] for span in phases.values() if span]

    def total(name: str) -> int:
        return sum(counts[name] for counts in registers)

    def peak(name: str) -> int:
        return max(counts[name] for counts in registers)

    reduced = phases["rs"]
    busy = [_busy_in_reduction(point, status) for status in statuses]
    counted = total("cycles") * task.config.channels
    overlapped = task.overlapped
    return {
        "point": asdict(point),
        "shape": {"m": task.layer.m, "n": task.layer.n, "k": task.layer.k, "tp": task.layer.gpus},
        "cycles": max(ends),
        **{f"{name}_cycles": length for name, length in lengths.items()},
        "spans": phases,
        "dram_sectors": {
            phase.name.lower(): {
                name: round(total(f"sectors_{phase.name.lower()}_{access.name.lower()}") / len(statuses))
                for access, name in _ACCESS_NAMES.items()
            }
            for phase in Phase
        },
        "link_utilisation": (
            round(float(np.mean(busy)) / (reduced[1] - reduced[0]), 4) if reduced and reduced[1] > reduced[0] else None
        ),
        "tracker": {
            "accesses": peak("tracker_accesses"),
            "hits": min(counts["tracker_hits"] for counts in registers),
            "misses": max(counts["tracker_accesses"] - counts["tracker_hits"] for counts in registers),
            "evictions": peak("tracker_evictions"),
            "refetches": peak("tracker_fetches"),
            "stall_cycles": peak("tracker_stalls"),
            "peak_occupancy": peak("tracker_live_peak"),
            "triggers": peak("tracker_triggers"),
        },
        "arbiter": {
            "held_compute": peak("held_compute"),
            "held_communication": peak("held_communication"),
            "forced": peak("forced_communication"),
            "communication_wait_peak": max(status["communication_wait_peak"] for status in statuses),
            "threshold": _threshold(point, outcome, phases["gemm"][1]) if phases["gemm"] else None,
        },
        "trigger_latency": peak("trigger_latency_peak") if overlapped else None,
        "occupancy_mean": round(total("occupancy_sum") / counted, 3) if counted else None,
        "occupancy_peak": peak("occupancy_peak"),
        "timeline": _timeline(task, outcome),
    }


def _busy_in_reduction(point: Point, status: dict[str, Any]) -> int:
    """Cycles of the reduce-scatter during which the link out of a GPU was busy."""
    if point.configuration.startswith("t3"):
        return int(status["link_busy_done"])
    if point.configuration == "sequential":
        return int(status["spans"]["link_busy"][1])
    return int(status["link_busy"][0])
