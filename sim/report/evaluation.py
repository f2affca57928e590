"""What is computed from the outcomes of points: figures of each sub-layer on each machine, and headlines over all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hw.config import TOTAL_CHANNELS
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.experiments.variants import VARIANTS
from sim.report import metrics
from sim.report.plan import (
    COMPARED,
    HALF_TRILLION,
    LARGE_LAYERS,
    MACHINES,
    PAPER,
    RING_LAYERS,
    SLICE_LAYERS,
    STARVATION_LIMITS,
    SWEPT_LAYERS,
    TRACKER_WAYS,
    Machine,
)
from sim.report.systems import SYSTEMS
from sim.workloads.table import MAIN_LAYERS

AGREEMENT = 0.02
"""How far apart, as a share, two ways to simulate one thing may be."""
FIXED_THRESHOLDS = {
    name: variant.threshold
    for name, variant in VARIANTS.items()
    if variant.policy == "mca" and variant.threshold != "auto"
}
"""Variants in which the arbiter does not choose its threshold, and what it is."""


@dataclass(frozen=True)
class Evaluation:
    """The outcomes of the points that were asked for. A point that was not, or has no result, has no figures."""

    outcomes: Mapping[Spec, Outcome]

    def result(self, spec: Spec) -> dict[str, Any] | None:
        """The result of `spec`, also one that is wrong: the page says so beside it."""
        outcome = self.outcomes.get(spec)
        return None if outcome is None else outcome.result

    def layer(self, machine: Machine, workload: str, **others: object) -> dict[str, Any]:
        """Everything about one sub-layer on one machine that its points give; keys without a figure are left out."""
        runs = {
            name: result
            for name in VARIANTS
            if (result := self.result(machine.spec(workload, name, **others))) is not None
        }
        figures: dict[str, Any] = {
            "workload": workload,
            "tp": machine.spec(workload, "gemm").gpus,
            "machine": machine.name,
            "cycles": {name: run["cycles"] for name, run in runs.items()},
            "dram_sectors": {name: run["dram_sectors"] for name, run in runs.items()},
            "dram_accesses": {name: metrics.total_sectors(run["dram_sectors"]) for name, run in runs.items()},
            "tracker": {name: run["tracker"] for name, run in runs.items() if name in metrics.OVERLAPPED},
            "arbiter": {name: run["arbiter"] for name, run in runs.items() if name in metrics.OVERLAPPED},
            "link_utilisation": {name: run["link_utilisation"] for name, run in runs.items()},
            "trigger_latency": {name: runs[name]["trigger_latency"] for name in metrics.OVERLAPPED if name in runs},
        }
        sequential = runs.get(metrics.BASELINE)
        if sequential is not None:
            figures |= _against_sequential(runs, sequential)
        fixed = {name: runs[name]["cycles"] for name in FIXED_THRESHOLDS if name in runs}
        if "t3-mca" in runs and len(fixed) == len(FIXED_THRESHOLDS):
            best = min(fixed, key=lambda name: fixed[name])
            figures["threshold"] = {
                "chosen": runs["t3-mca"]["arbiter"]["threshold"],
                "best": FIXED_THRESHOLDS[best],
                "loss": runs["t3-mca"]["cycles"] / fixed[best] - 1,
            }
        return figures

    def layers(self, machine: Machine, workloads: Iterable[str] = MAIN_LAYERS) -> list[dict[str, Any]]:
        """:meth:`layer` of those `workloads` that have a Sequential run to compare with."""
        found = (self.layer(machine, workload) for workload in workloads)
        return [figures for figures in found if "speedup" in figures]

    def failures(self) -> list[dict[str, Any]]:
        """Every spec that failed, and what speaks against it."""
        return [
            {"spec": outcome.spec, "errors": outcome.errors, "has_result": outcome.result is not None}
            for outcome in self.outcomes.values()
            if not outcome.passed
        ]

    def headline(self, machine: Machine, workloads: Sequence[str] = MAIN_LAYERS) -> dict[str, Any]:
        """Geomeans and maxima over `workloads`, and how many of them there are."""
        layers = self.layers(machine, workloads)
        speedups = _by_name(layers, "speedup")
        slowdowns = _by_name(layers, "gemm_slowdown")
        return {
            "sub_layers": len(layers),
            "speedup_geomean": {name: metrics.geomean(values) for name, values in speedups.items()},
            "speedup_maximum": {name: max(values) for name, values in speedups.items()},
            "below_ideal_geomean": _below_ideal(layers),
            "dram_reduction": _dram_reduction(layers),
            "dram_reduction_without_ag": _dram_reduction(layers, without="ag"),
            "gemm_slowdown_maximum": {name: max(values) for name, values in slowdowns.items()},
            "threshold_loss_maximum": max(
                (layer["threshold"]["loss"] for layer in layers if "threshold" in layer), default=None
            ),
        }

    def agreements(self) -> list[dict[str, Any]]:
        """N nodes against one mirrored node, and slices of four channels and the whole GPU against one channel, ratio
        by ratio."""
        pairs: list[tuple[str, str, dict[str, Any], dict[str, Any]]]
        pairs = [("N nodes, mirrored node", name, {"mode": "ring"}, {"mode": "mirrored"}) for name in RING_LAYERS]
        pairs += [("S = 4, S = 1", name, {"channels": 4}, {"channels": 1}) for name in SLICE_LAYERS]
        pairs += [("S = 32, S = 1", name, {"channels": TOTAL_CHANNELS}, {"channels": 1}) for name in MAIN_LAYERS]
        rows = []
        for kind, workload, one, other in pairs:
            first, second = (_ratios(self.layer(PAPER, workload, **fields)) for fields in (one, other))
            for name in first:
                if name in second:
                    difference = metrics.relative_difference(first[name], second[name])
                    rows.append(
                        {
                            "compared": kind,
                            "workload": workload,
                            "ratio": name,
                            "values": [first[name], second[name]],
                            "difference": difference,
                            "agrees": difference <= AGREEMENT,
                        }
                    )
        return rows

    def recorded(self) -> list[dict[str, Any]]:
        """Tracker and time of the GEMMs that were recorded on a real GPU, under T3-MCA."""
        return [
            {
                "workload": spec.name,
                "shape": [*spec.shape, spec.gpus],
                "cycles": outcome.result["cycles"],
                "tracker": outcome.result["tracker"],
            }
            for spec, outcome in self.outcomes.items()
            if spec.trace and outcome.result is not None
        ]

    @cached_property
    def systems(self) -> dict[str, list[dict[str, Any]]]:
        """By published system a record of each point: ours, what its authors state, what real GPUs do. A point that
        failed a check, or is compared with one, has none. Found once, since many charts ask for them."""
        right = {spec: outcome for spec, outcome in self.outcomes.items() if outcome.passed}
        return {name: system.records(right) for name, system in SYSTEMS.items()}

    def closed_forms(self) -> list[dict[str, Any]]:
        """By TP: how many points had their sectors compared with the closed forms, and which of them were off."""
        rows: dict[int, dict[str, Any]] = {}
        for spec, outcome in self.outcomes.items():
            if outcome.result is not None and outcome.result["closed_forms"]:
                tp = spec.gpus
                row = rows.setdefault(tp, {"tp": tp, "points": 0, "counters": 0, "off": []})
                row["points"] += 1
                row["counters"] += len(outcome.result["closed_forms"])
                row["off"] += [
                    {"spec": spec.to_json(), "counter": name}
                    for name, form in outcome.result["closed_forms"].items()
                    if not form["matches"]
                ]
        return [rows[tp] for tp in sorted(rows)]

    def cost(self) -> dict[str, float]:
        """Processor seconds of all points, the share of it that was spent in Python, and the greatest of a run."""
        seconds = [outcome.result["seconds"] for outcome in self.outcomes.values() if outcome.result is not None]
        total = sum(item["total"] for item in seconds)
        return {
            "total": total,
            "python_share": sum(item["python_share"] * item["total"] for item in seconds) / total if total else 0.0,
            "python_share_maximum": max((item["python_share"] for item in seconds), default=0.0),
        }

    def sweep(self, field: str) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
        """Workload -> [(value of `field`, result)], for `starvation_limit` or `tracker_ways`."""
        values = {"starvation_limit": STARVATION_LIMITS, "tracker_ways": TRACKER_WAYS}[field]
        found = {
            workload: [
                (value, result)
                for value in values
                if (result := self.result(PAPER.spec(workload, "t3-mca", **{field: value}))) is not None
            ]
            for workload in SWEPT_LAYERS
        }
        return {workload: curve for workload, curve in found.items() if len(curve) > 1}

    def summary(self) -> dict[str, Any]:
        """All figures as plain data; geomeans and maxima on top."""
        return {
            "headline": {machine.name: self.headline(machine) for machine in MACHINES}
            | {"tp32": self.headline(PAPER, LARGE_LAYERS), "palm-mt-nlg": self.headline(PAPER, HALF_TRILLION)},
            "points": len(self.outcomes),
            "failed": [{"spec": item["spec"].to_json(), "errors": list(item["errors"])} for item in self.failures()],
            "sub_layers": [
                layer for machine in MACHINES for layer in self.layers(machine, (*MAIN_LAYERS, *LARGE_LAYERS))
            ],
            "recorded": self.recorded(),
            "systems": self.systems,
            "agreement": self.agreements(),
            "closed_forms": self.closed_forms(),
            "seconds": self.cost(),
            "sweeps": {
                field: {
                    workload: [
                        {field: value, "cycles": run["cycles"], "tracker": run["tracker"], "arbiter": run["arbiter"]}
                        for value, run in curve
                    ]
                    for workload, curve in self.sweep(field).items()
                }
                for field in ("starvation_limit", "tracker_ways")
            },
        }


def _against_sequential(runs: Mapping[str, dict[str, Any]], sequential: dict[str, Any]) -> dict[str, Any]:
    gemm, rs, ag = (sequential[f"{phase}_cycles"] for phase in ("gemm", "rs", "ag"))
    speedup = {name: sequential["cycles"] / runs[name]["cycles"] for name in metrics.OVERLAPPED if name in runs}
    ideal = metrics.ideal_speedup(gemm, rs, ag)
    bounds = {metrics.IDEAL: ideal}
    if "rs-nmc" in runs:
        bounds[metrics.IDEAL_NMC] = metrics.ideal_speedup(gemm, rs, ag, runs["rs-nmc"]["rs_cycles"])
    return {
        "spans": {"gemm": gemm, "rs": rs, "ag": ag},
        "calibration": {
            "gemm_cycles": sequential["analytic_gemm_cycles"],
            "gemm_deviation": gemm / sequential["analytic_gemm_cycles"] - 1,
            "rs_cycles": sequential["rs_wire_cycles"],
            "rs_deviation": rs / sequential["rs_wire_cycles"] - 1,
        },
        "speedup": speedup | bounds,
        "percent_of_ideal": {name: metrics.percent_of_ideal(value, ideal) for name, value in speedup.items()},
        "overlap_efficiency": {
            name: metrics.overlap_efficiency(runs[name]["cycles"], sequential["cycles"], gemm) for name in speedup
        },
        "gemm_slowdown": {name: runs[name]["gemm_cycles"] / gemm - 1 for name in speedup},
    } | (_saved(sequential["dram_sectors"], runs["t3"]["dram_sectors"]) if "t3" in runs else {})


def _saved(sequential: Mapping[str, Any], t3: Mapping[str, Any]) -> dict[str, float]:
    """How many times fewer RS reads and output writes T3 needs (the paper: 2.5x and 1.14x at TP 8)."""

    def writes(sectors: Mapping[str, Any]) -> int:
        return sum(count for name in ("gemm", "rs") for access, count in sectors[name].items() if access != "read")

    return {
        "rs_reads_saved": sequential["rs"]["read"] / t3["rs"]["read"],
        "output_writes_saved": writes(sequential) / writes(t3),
    }


def _dram_reduction(layers: Iterable[Mapping[str, Any]], without: str = "") -> dict[str, float]:
    """By what share T3's DRAM accesses are fewer than Sequential's, those of the traffic class `without` left out:
    geomean of what remains, and maximum."""
    kept = [
        metrics.total_sectors(layer["dram_sectors"]["t3"], without)
        / metrics.total_sectors(layer["dram_sectors"][metrics.BASELINE], without)
        for layer in layers
        if "t3" in layer["dram_sectors"]
    ]
    mean = metrics.geomean(kept)
    return {} if mean is None else {"geomean": 1 - mean, "maximum": 1 - min(kept)}


def _by_name(layers: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[float]]:
    """Values of `key` of all layers, by configuration."""
    found: dict[str, list[float]] = {}
    for layer in layers:
        for name, value in layer[key].items():
            found.setdefault(name, []).append(value)
    return found


def _below_ideal(layers: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """By what share each overlapped configuration's speedup stays below the ideal's: 1 - geomean of their quotients."""
    found: dict[str, list[float]] = {}
    for layer in layers:
        for name in metrics.OVERLAPPED:
            if name in layer["speedup"]:
                found.setdefault(name, []).append(layer["speedup"][name] / layer["speedup"][metrics.IDEAL])
    return {name: 1 - kept for name, values in found.items() if (kept := metrics.geomean(values)) is not None}


def _ratios(layer: Mapping[str, Any]) -> dict[str, float]:
    """The reported ratios of a sub-layer that two ways to simulate it are compared by."""
    if "speedup" not in layer:
        return {}
    accesses = layer["dram_accesses"]
    ratios = {f"speedup {name}": value for name, value in layer["speedup"].items()}
    for name in COMPARED[1:]:
        if name in accesses:
            ratios[f"DRAM accesses {name} / sequential"] = accesses[name] / accesses[metrics.BASELINE]
            ratios[f"overlap efficiency {name}"] = layer["overlap_efficiency"][name]
    return ratios
