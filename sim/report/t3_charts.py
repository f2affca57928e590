"""Charts of the section on T3's own open questions."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from sim.report import metrics
from sim.report.evaluation import Evaluation
from sim.report.style import BLUE, GREEN, GREY, PALE, SKY, figure, grouped_bars, legend_above
from sim.report.t3 import all_reduce, contention, decode, end_to_end, tolerance
from sim.report.t3.record import WORK
from sim.workloads.table import MAIN_LAYERS

DRAWN = tolerance.LAYERS[0]
COLOURS = {"t3": SKY, "t3-mca": BLUE, "t3-paced": GREEN, metrics.IDEAL: GREY}
LABELS = {"t3": "T3", "t3-mca": "T3-MCA", "t3-paced": "T3-paced", metrics.IDEAL: "ideal overlap"}


def fused_all_reduce(evaluation: Evaluation) -> Figure | None:
    """Speedup over GEMM, reduce-scatter and all-gather in turn: of T3 and then its all-gather, and of one all-reduce in
    Q pieces."""
    records = {record["point"]: record for record in evaluation.systems["t3"]}
    counts = all_reduce.PIECES[8]
    layers = [
        layer
        for layer in MAIN_LAYERS
        if WORK[layer].tp == 8 and all(all_reduce.fused(layer, q).name in records for q in counts)
    ]
    if not layers:
        return None
    drawing, (axis,) = figure(3.8)

    def of(pieces: int) -> list[float]:
        return [records[all_reduce.fused(layer, pieces).name]["ours"]["speedup"] for layer in layers]

    ours = [records[all_reduce.fused(layer, 1).name]["ours"] for layer in layers]
    then = [each["speedup"] / each.get("over_t3", math.nan) for each in ours]
    series = {"T3, then all-gather": then} | {f"fused, Q = {pieces}": of(pieces) for pieces in counts}
    positions = list(range(len(layers)))
    grouped_bars(axis, positions, series, (GREY, SKY, BLUE, GREEN))
    axis.set_xticks(positions, [layer.replace("/", "\n") for layer in layers])
    axis.axhline(1.0, color="#555555", linewidth=0.8)
    axis.set_ylabel("speedup over all three in turn")
    legend_above(axis, 4)
    return drawing


def policies_by_tolerance(evaluation: Evaluation) -> Figure | None:
    """Speedups of the policies on T-NLG FC-2 by how its GEMM reads; the paper's geomeans as lines."""
    readings = {tolerance.point(DRAWN, reading): reading.name for reading in tolerance.READINGS}
    records = [record for record in evaluation.systems["t3"] if record["point"] in readings]
    if not records:
        return None
    drawing, (axis,) = figure(4.2)
    positions = list(range(len(records)))
    series = {LABELS[name]: [record["ours"][name] for record in records] for name in COLOURS}
    grouped_bars(axis, positions, series, tuple(COLOURS.values()))
    for name, value in tolerance.PUBLISHED.items():
        axis.axhline(value, color=COLOURS[name], linewidth=0.9, linestyle="--")
    names = [readings[record["point"]] for record in records]
    axis.set_xticks(positions, [name.replace("-tile", "\ntile").replace("-compute", "\ncompute") for name in names])
    axis.tick_params(axis="x", labelsize=7)
    axis.set_ylim(bottom=0.9)
    axis.set_ylabel("speedup over Sequential")
    legend_above(axis, 4)
    return drawing


def whole_models(evaluation: Evaluation) -> Figure | None:
    """Greatest and mean speedup of training and of prompts, the paper's and ours."""
    records = {record["point"]: record for record in evaluation.systems["t3"]}
    places = [f"{phase} {what}" for phase in end_to_end.PHASES for what in ("maximum", "geomean")]
    found = [records.get(f"t3/end-to-end/{place.replace(' ', '/')}") for place in places]
    there = [record for record in found if record is not None]
    if len(there) < len(places):
        return None
    drawing, (axis,) = figure(3.6)
    series = {}
    for variant in ("t3", "t3-mca"):
        series[f"paper, {LABELS[variant]}"] = [record["published"][variant] for record in there]
        series[f"here at the most, {LABELS[variant]}"] = [record["ours"][variant] for record in there]
    positions = list(range(len(places)))
    grouped_bars(axis, positions, series, (PALE, SKY, GREY, BLUE))
    axis.set_xticks(positions, places)
    axis.set_ylim(bottom=0.95)
    axis.set_ylabel("speedup of the whole")
    legend_above(axis, 4)
    return drawing


def shared_units(evaluation: Evaluation) -> Figure | None:
    """By how much an all-reduce and a GEMM are longer on their shares of the compute units, the paper's beside ours."""
    records = {record["point"]: record for record in evaluation.systems["t3"]}
    found = [
        [records.get(contention.place(rate, share) + "/geomean") for share in contention.SHARES]
        for rate in contention.RATES
    ]
    there = [[record for record in row if record is not None] for row in found]
    if any(len(row) < len(contention.SHARES) for row in there):
        return None
    drawing, axes = figure(3.8, columns=2)
    positions = list(range(len(contention.SHARES)))
    limited = f"each copies {contention.RATES[1]:g} GB/s"
    for axis, name, title in zip(axes, ("all_reduce", "gemm"), ("all-reduce", "GEMM on the others"), strict=True):
        ours = [[record["ours"][name] for record in row] for row in there]
        published = [record["published"].get(name, math.nan) for record in there[0]]
        series = {"paper": published, "here": ours[0]}
        if name == "all_reduce":
            series[limited] = ours[1]
        grouped_bars(axis, positions, series, (PALE, SKY, BLUE))
        axis.set_xticks(positions, [str(share) for share in contention.SHARES])
        axis.set_xlabel("compute units of the all-reduce")
        axis.set_title(title, fontsize=9)
        axis.set_ylim(bottom=0.9)
    axes[0].set_ylabel("time over that on all units")
    legend_above(axes[0], 3)
    return drawing


def small_all_reduces(evaluation: Evaluation) -> Figure | None:
    """Microseconds of all-reduces by their bytes: in the memory, by kernels, over links alone, and as recorded."""
    records = {record["point"]: record for record in evaluation.systems["t3"]}
    found = [(message, records.get(f"t3/decode/{name}")) for name, message in decode.MESSAGES.items()]
    there = sorted(((message.bytes, message, record) for message, record in found if record is not None), key=_bytes)
    if not there:
        return None
    drawing, (axis,) = figure(3.8)
    sizes = [size / 2**20 for size, _, _ in there]
    axis.plot(sizes, [record["ours"]["us"] for _, _, record in there], "o-", color=BLUE, label="in the memory")
    kernels = [record["ours"]["kernels_us"] for _, _, record in there]
    axis.plot(sizes, kernels, "s-", color=GREEN, label="kernels")
    axis.plot(sizes, [message.link_us for _, message, _ in there], "--", color=GREY, label="links alone")
    for kind, mark, label in (("us", "D", "NCCL, 8 x H200"), ("line_us", "x", "line through these")):
        pairs = [(size, record["real"][kind]) for size, (_, _, record) in zip(sizes, there) if kind in record["real"]]
        if pairs:
            axis.plot(*zip(*pairs), mark, color="black", label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("MiB that each GPU has")
    axis.set_ylabel("microseconds")
    legend_above(axis, 5)
    return drawing


def _bytes(entry: tuple[int, decode.Message, Mapping[str, Any]]) -> int:
    return entry[0]
