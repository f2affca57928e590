"""The charts of the report: each takes the evaluation and returns a figure, or None when its points are missing."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.report import conccl, flux, metrics, pallas, uncut
from sim.report.evaluation import FIXED_THRESHOLDS, Evaluation
from sim.report.plan import LARGE_LAYERS, LINK_150, PAPER, TWICE_CUS, Machine
from sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    KINDS,
    NAMES,
    ON_PHASE,
    ORANGE,
    PALE,
    PHASE_COLOURS,
    SERIES,
    SKY,
    VERMILION,
    figure,
    grouped_bars,
    layer_axis,
    legend_above,
    percent,
)
from sim.report.t3_charts import (
    fused_all_reduce,
    policies_by_tolerance,
    shared_units,
    small_all_reduces,
    whole_models,
)
from sim.report.timelines import traffic_over_time
from sim.workloads.table import MAIN_LAYERS, WORKLOADS, Workload

SPEEDUPS = {"t3": SKY, "t3-mca": BLUE, "t3-paced": GREEN, metrics.IDEAL: GREY, metrics.IDEAL_NMC: PALE}
PAPER_GEOMEANS = {"t3": 1.20, "t3-mca": 1.30, metrics.IDEAL: 1.35}
"""Speedups over Sequential that the paper states (section 6.1)."""
WORKLOAD = {work.name: work for work in WORKLOADS}
TRACKER_ENTRIES = 2048


def named(layers: Sequence[Mapping[str, Any]]) -> list[Workload]:
    """The sub-layers whose figures `layers` are."""
    return [WORKLOAD[layer["workload"]] for layer in layers]


def execution_time(evaluation: Evaluation) -> Figure | None:
    """Figure 15: shares of GEMM, RS and AG in Sequential."""
    layers = evaluation.layers(PAPER)
    if not layers:
        return None
    drawing, (axis,) = figure(4.2)
    positions = layer_axis(axis, named(layers))
    bottom = [0.0] * len(layers)
    for phase, colour in PHASE_COLOURS.items():
        shares = [layer["spans"][phase] / sum(layer["spans"].values()) for layer in layers]
        axis.bar(positions, shares, 0.72, bottom=bottom, color=colour, label=phase.upper())
        for position, start, share in zip(positions, bottom, shares):
            axis.text(
                position, start + share / 2, f"{100 * share:.0f}", ha="center", va="center", color=ON_PHASE[phase]
            )
        bottom = [start + share for start, share in zip(bottom, shares)]
    axis.set_ylabel("share of Sequential's time")
    percent(axis)
    axis.set_ylim(0, 1)
    axis.grid(visible=False)
    legend_above(axis, 3)
    return drawing


def speedups(evaluation: Evaluation, machine: Machine = PAPER, workloads: Sequence[str] = MAIN_LAYERS) -> Figure | None:
    """Figure 16: speedup over Sequential of T3, T3-MCA, T3-paced and the two ideals."""
    layers = evaluation.layers(machine, workloads)
    if not layers:
        return None
    geomeans = evaluation.headline(machine, workloads)["speedup_geomean"]
    drawing, (axis,) = figure(4.4)
    positions = layer_axis(axis, named(layers), "geomean" if len(layers) == len(workloads) else f"of {len(layers)}")
    series = {
        NAMES[name]: [*(layer["speedup"].get(name, math.nan) for layer in layers), geomeans[name]]
        for name in SPEEDUPS
        if name in geomeans
    }
    grouped_bars(axis, positions, series, [SPEEDUPS[name] for name in SPEEDUPS if name in geomeans], base=1.0)
    if machine is PAPER and workloads is MAIN_LAYERS and len(layers) == len(workloads):
        _beside_the_paper(axis, positions[-1], [name for name in SPEEDUPS if name in geomeans])
    axis.axhline(1.0, color="#555555", linewidth=0.8)
    axis.axvline(positions[-1] - 1, color="#BBBBBB", linewidth=0.8)
    axis.set_ylabel("speedup over Sequential")
    legend_above(axis, 5)
    return drawing


def _beside_the_paper(axis: Axes, position: int, names: Sequence[str]) -> None:
    """The paper's geomeans, as dashes across our bars of them at `position`."""
    width = 0.84 / len(names)
    for index, name in enumerate(names):
        if name in PAPER_GEOMEANS:
            middle = position + (index - (len(names) - 1) / 2) * width
            label = "the paper's" if name == "t3" else None
            ends = [middle - width / 2, middle + width / 2]
            axis.plot(ends, [PAPER_GEOMEANS[name]] * 2, color="black", linewidth=2, label=label)


def speedups_link_150(evaluation: Evaluation) -> Figure | None:
    """The speedups with links of 150 GB/s per direction."""
    return speedups(evaluation, LINK_150)


def speedups_tp32(evaluation: Evaluation) -> Figure | None:
    """The speedups of the models that Table 2 runs at TP 32."""
    return speedups(evaluation, PAPER, LARGE_LAYERS)


def dram_accesses(evaluation: Evaluation) -> Figure | None:
    """Figure 18: DRAM accesses by kind, T3 beside Sequential, as shares of Sequential's total."""
    layers = [layer for layer in evaluation.layers(PAPER) if "t3" in layer["dram_sectors"]]
    if not layers:
        return None
    drawing, (axis,) = figure(4.8)
    positions = layer_axis(axis, named(layers))
    for side, name in ((-0.21, "sequential"), (0.21, "t3")):
        bottom = [0.0] * len(layers)
        for kind in KINDS:
            counted = [kind.total(layer["dram_sectors"][name][kind.traffic_class]) for layer in layers]
            shares = [sectors / layer["dram_accesses"]["sequential"] for sectors, layer in zip(counted, layers)]
            axis.bar(
                [position + side for position in positions],
                shares,
                0.37,
                bottom=bottom,
                color=kind.colour,
                label=kind.label if side < 0 else None,
            )
            bottom = [start + share for start, share in zip(bottom, shares)]
        for position, top in zip(positions, bottom):
            text = "Seq." if side < 0 else f"T3 {100 * (top - 1):+.0f} %"
            axis.text(position + side, top + 0.015, text, ha="center", va="bottom", fontsize=8.5, rotation=90)
    axis.set_ylim(0, 1.2)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axis.set_ylabel("DRAM accesses, of Sequential's")
    percent(axis)
    legend_above(axis, 4)
    return drawing


def twice_the_compute(evaluation: Evaluation) -> Figure | None:
    """Figure 20: speedup of T3-MCA and of the ideal with the paper's CUs and with twice as many."""
    once, twice = (
        {layer["workload"]: layer["speedup"] for layer in evaluation.layers(machine)} for machine in (PAPER, TWICE_CUS)
    )
    common = [workload for workload in once if workload in twice and "t3-mca" in once[workload]]
    if not common:
        return None
    drawing, (axis,) = figure(4.4)
    positions = layer_axis(axis, [WORKLOAD[name] for name in common], "geomean")

    def curve(source: dict[str, dict[str, float]], name: str) -> list[float]:
        values = [source[workload].get(name, math.nan) for workload in common]
        return [*values, metrics.geomean(value for value in values if not math.isnan(value)) or math.nan]

    series = {
        "T3-MCA, 80 CUs": curve(once, "t3-mca"),
        "T3-MCA, 160 CUs": curve(twice, "t3-mca"),
        "Ideal-GEMM-RS-Overlap, 80 CUs": curve(once, metrics.IDEAL),
        "Ideal-GEMM-RS-Overlap, 160 CUs": curve(twice, metrics.IDEAL),
    }
    grouped_bars(axis, positions, series, (BLUE, VERMILION, PALE, GREY), base=1.0)
    axis.axhline(1.0, color="#555555", linewidth=0.8)
    axis.axvline(positions[-1] - 1, color="#BBBBBB", linewidth=0.8)
    axis.set_ylabel("speedup over Sequential")
    legend_above(axis, 4)
    return drawing


def thresholds(evaluation: Evaluation) -> Figure | None:
    """Time of each fixed threshold and of the hardware's own choice, against the best fixed one."""
    layers = [layer for layer in evaluation.layers(PAPER) if "threshold" in layer]
    if not layers:
        return None
    drawing, (axis,) = figure(4.2)
    positions = layer_axis(axis, named(layers))
    best = [min(layer["cycles"][name] for name in FIXED_THRESHOLDS) for layer in layers]
    above = {
        name: [layer["cycles"][name] / least - 1 for layer, least in zip(layers, best)]
        for name in (*FIXED_THRESHOLDS, "t3-mca")
    }
    series = {f"threshold {threshold}": above[name] for name, threshold in FIXED_THRESHOLDS.items()}
    grouped_bars(axis, positions, series, (SKY, GREEN, ORANGE, PALE))
    axis.plot(positions, above["t3-mca"], "D", color="black", markersize=5.5, clip_on=False, label="hardware's choice")
    axis.axhline(0.02, color=VERMILION, linewidth=1.0, linestyle="--", label="2 %")
    axis.set_ylabel("time above the best threshold's")
    percent(axis, decimals=1)
    axis.set_ylim(bottom=min(0, *above["t3-mca"]))
    legend_above(axis, 6)
    return drawing


def tracker(evaluation: Evaluation) -> Figure | None:
    """Tracker entries in use at the peak, against its 2,048, and counters it evicted, under T3-MCA."""
    layers = [
        layer for layer in evaluation.layers(PAPER, (*MAIN_LAYERS, *LARGE_LAYERS)) if "t3-mca" in layer["tracker"]
    ]
    if not layers:
        return None
    return _tracker(named(layers), [layer["tracker"]["t3-mca"] for layer in layers])


def tracker_recorded(evaluation: Evaluation) -> Figure | None:
    """The same of GEMMs recorded on a real GPU."""
    runs = evaluation.recorded()
    by_shape = {(work.m, work.n, work.k, work.tp): work for work in reversed(WORKLOADS)}
    known = [(by_shape[shape], run["tracker"]) for run in runs if (shape := tuple(run["shape"])) in by_shape]
    return _tracker(*zip(*known)) if known else None


def _tracker(layers: Sequence[Workload], counted: Sequence[Mapping[str, int]]) -> Figure:
    drawing, (above, below) = figure(6.2, rows=2, sharex=True)
    positions = layer_axis(below, layers)
    above.tick_params(axis="x", length=0, labelbottom=False)
    above.bar(positions, [tracker["peak_occupancy"] for tracker in counted], 0.7, color=BLUE)
    above.axhline(TRACKER_ENTRIES, color=VERMILION, linewidth=1.0, linestyle="--", label="2,048 entries = 19 KB")
    above.set_ylabel("entries in use, peak")
    legend_above(above, 1)
    below.bar(positions, [tracker["evictions"] for tracker in counted], 0.7, color=ORANGE)
    below.set_ylabel("evictions")
    return drawing


def starvation_limit(evaluation: Evaluation) -> Figure | None:
    """Time, longest wait of communication and requests forced through, over the starvation limit."""
    return _swept(
        evaluation,
        "starvation_limit",
        "starvation limit, cycles (0: none)",
        [
            ("time, of the default's", lambda run, default: run["cycles"] / default["cycles"]),
            ("GEMM's time, of the default's", lambda run, default: run["gemm_cycles"] / default["gemm_cycles"]),
            ("longest wait, cycles", lambda run, _: run["arbiter"]["communication_wait_peak"]),
            ("requests forced through", lambda run, _: run["arbiter"]["forced"]),
        ],
    )


def tracker_ways(evaluation: Evaluation) -> Figure | None:
    """Time and evictions over the Tracker's ways."""
    return _swept(
        evaluation,
        "tracker_ways",
        "ways of the Tracker's 256 sets",
        [
            ("time, of that with 8 ways", lambda run, default: run["cycles"] / default["cycles"]),
            ("evictions", lambda run, _: run["tracker"]["evictions"]),
            ("entries in use, peak", lambda run, _: run["tracker"]["peak_occupancy"]),
        ],
    )


def _swept(
    evaluation: Evaluation,
    field: str,
    label: str,
    quantities: Sequence[tuple[str, Callable[[dict[str, Any], dict[str, Any]], float]]],
) -> Figure | None:
    curves = evaluation.sweep(field)
    if not curves:
        return None
    columns = 3 if len(quantities) % 3 == 0 else 2
    rows = -(-len(quantities) // columns)
    drawing, axes = figure(3.0 * rows + 0.6, rows=rows, columns=columns)
    for axis, (title, quantity) in zip(axes, quantities):
        for (workload, curve), colour, marker in zip(curves.items(), SERIES, "osD^v"):
            default = evaluation.result(PAPER.spec(workload, "t3-mca")) or curve[-1][1]
            values = [f"{value / 1000:g} k" if value >= 1000 else str(value) for value, _ in curve]
            axis.plot(values, [quantity(run, default) for _, run in curve], color=colour, marker=marker, label=workload)
        axis.set_xlabel(label)
        axis.set_ylabel(title)
        axis.tick_params(axis="x", labelsize=9)
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(curves))
    return drawing


def pallas_over_alone(evaluation: Evaluation) -> Figure | None:
    """JAX's collective matmul: time over D GEMMs alone, published, of NCCL and cuBLAS, and ours with either gates."""
    records = {(record["gpus"], record["gates"]): record for record in evaluation.systems["pallas"]}
    devices = sorted({gpus for gpus, _ in records})
    if not devices:
        return None
    drawing, (axis,) = figure(4.0)

    def of(gpus: int, source: str, *gates: str) -> float:
        found = [records[gpus, name][source]["over_alone"] for name in gates if (gpus, name) in records]
        return found[0] if found else math.nan

    series = {
        "NCCL and cuBLAS, H100": [of(gpus, "real", *pallas.GATES) for gpus in devices],
        "Pallas, H100": [of(gpus, "published", *pallas.GATES) for gpus in devices],
        "here, coarse gates": [of(gpus, "ours", "coarse") for gpus in devices],
        "here, fine gates": [of(gpus, "ours", "fine") for gpus in devices],
    }
    positions = list(range(len(devices)))
    grouped_bars(axis, positions, series, (PALE, GREY, SKY, BLUE))
    axis.axhline(1.0, color="#555555", linewidth=0.8)
    axis.set_xticks(positions, [f"D = {gpus}" for gpus in devices])
    axis.set_ylabel("time over D GEMMs alone")
    legend_above(axis, 4)
    return drawing


def flux_overlap(evaluation: Evaluation) -> Figure | None:
    """FLUX: E_overlap by tokens, machine by machine, and the range that its authors state."""
    records = [record for record in evaluation.systems["flux"] if record["plain"]]
    if not records:
        return None
    drawing, axes = figure(3.6, 1, len(flux.PUBLISHED), sharey=True)
    found = {
        (record["machine"], record["way"], record["rows"]): record["ours"]["overlap_efficiency"] for record in records
    }
    positions = list(range(len(flux.ROWS)))
    for axis, (name, stated) in zip(axes, flux.PUBLISHED.items(), strict=True):
        series = {way: [found.get((name, way, rows), math.nan) for rows in flux.ROWS] for way in flux.WAYS}
        grouped_bars(axis, positions, series, (ORANGE, SKY, BLUE))
        long = positions[-len(flux.LONG_ROWS)] - 0.5, positions[-1] + 0.5
        axis.fill_between(long, stated.least / 100, stated.greatest / 100, color=PALE, zorder=0, label="FLUX")
        axis.plot(long, [stated.mean / 100] * 2, color=GREY, linewidth=1.2, label="FLUX, mean")
        axis.axhline(0.0, color="#555555", linewidth=0.8)
        axis.set_xticks(positions, [f"{rows:,}" for rows in flux.ROWS])
        axis.set_title(name, loc="right")
        axis.set_ylim(-0.5, 1.05)
    axes[0].set_ylabel("E_overlap")
    percent(axes[0])
    legend_above(axes[0], 5)
    return drawing


def conccl_percent(evaluation: Evaluation) -> Figure | None:
    """ConCCL: percent of the ideal speedup by pair, and the means that its authors state."""
    records = [record for record in evaluation.systems["conccl"] if "strategy" in record]
    if not records:
        return None
    found = {
        (record["gemm"], record["operation"], record["strategy"]): record["ours"]["percent_of_ideal"]
        for record in records
    }
    pairs = [pair for pair in conccl.pairs() if any((*pair, name) in found for name in conccl.STRATEGIES)]
    drawing, (axis,) = figure(4.2)
    positions = list(range(len(pairs)))
    shown = (*conccl.KERNELS, "mca", "paced")
    series = {name: [found.get((*pair, name), math.nan) / 100 for pair in pairs] for name in shown}
    grouped_bars(axis, positions, series, (PALE, GREY, ORANGE, SKY, BLUE))
    for name in ("side-by-side", "priority", "paced"):
        axis.axhline(conccl.PUBLISHED[name] / 100, color=GREY, linewidth=0.8, linestyle=":")
    axis.set_xticks(positions, [f"{gemm}\n{operation}" for gemm, operation in pairs])
    axis.set_ylabel("of the ideal speedup; dotted: ConCCL's 21, 42, 66 %")
    percent(axis)
    legend_above(axis, 5)
    return drawing


def uncut_scaling(evaluation: Evaluation) -> Figure | None:
    """Uncut-GEMMs: speedup over one GPU, published and ours, data on the GPUs and, where it was run, on the host."""
    records = {record["point"]: record for record in evaluation.systems["uncut"]}
    counts = list(uncut.PUBLISHED[uncut.SIDE])
    points = {
        "": [uncut.spread(gpus) for gpus in counts],
        ", data on the host": [uncut.hosted(gpus) for gpus in counts],
    }
    found = {place: [records.get(point.name) for point in of_place] for place, of_place in points.items()}
    series = {
        name + place: [record[source]["speedup"] for record in of_place if record]
        for place, of_place in found.items()
        for name, source in {"Uncut-GEMMs, A100": "published", "here": "ours"}.items()
        if all(of_place)
    }
    if not series:
        return None
    drawing, (axis,) = figure(3.6)
    positions = list(range(len(counts)))
    grouped_bars(axis, positions, series, (GREY, BLUE, PALE, SKY)[: len(series)])
    axis.set_xticks(positions, [f"{gpus} GPUs" for gpus in counts])
    axis.set_ylabel("speedup over one GPU")
    legend_above(axis, 2)
    return drawing


CHARTS: dict[str, Callable[[Evaluation], Figure | None]] = {
    "execution-time": execution_time,
    "speedups": speedups,
    "traffic-over-time": traffic_over_time,
    "dram-accesses": dram_accesses,
    "twice-the-compute": twice_the_compute,
    "speedups-link-150": speedups_link_150,
    "speedups-tp32": speedups_tp32,
    "thresholds": thresholds,
    "tracker": tracker,
    "tracker-recorded": tracker_recorded,
    "starvation-limit": starvation_limit,
    "tracker-ways": tracker_ways,
    "pallas": pallas_over_alone,
    "flux": flux_overlap,
    "conccl": conccl_percent,
    "uncut": uncut_scaling,
    "t3": fused_all_reduce,
    "t3-tolerance": policies_by_tolerance,
    "t3-end-to-end": whole_models,
    "t3-contention": shared_units,
    "t3-decode": small_all_reduces,
}
"""Name of a chart, also of its PNG file, and what draws it."""
