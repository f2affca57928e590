"""Figure 17: DRAM traffic over time, by kind, with the occupancy of the DRAM queues beneath."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from sim.figures.evaluation import Evaluation
from sim.figures.plan import FIG_17_LAYER, PAPER
from sim.figures.style import NAMES, figure

GPU_CHANNELS = 32
CHANNEL_BANDWIDTH = 32
"""Bytes a cycle of a channel, which at 1 GHz is GB/s."""
SHOWN = ("sequential", "t3", "t3-mca")
BANDS = (
    ("GEMM reads", "gemm", ("read",), "#0072B2"),
    ("GEMM stores and updates", "gemm", ("store", "update"), "#7FB8DA"),
    ("RS reads", "rs", ("read",), "#D58A00"),
    ("RS stores and updates", "rs", ("store", "update"), "#F5CE74"),
    ("AG reads", "ag", ("read",), "#007A58"),
    ("AG stores", "ag", ("store", "update"), "#7CCDB3"),
    ("Tracker's home table", "other", ("read", "store", "update"), "#CC79A7"),
)
"""Label, phase, accesses, colour: hue says the phase, a darker shade reads."""


def traffic_over_time(evaluation: Evaluation) -> Figure | None:
    """DRAM traffic of one sub-layer in Sequential, T3 and T3-MCA, on one time axis."""
    runs = {name: run for name in SHOWN if (run := evaluation.result(PAPER.point(FIG_17_LAYER, name))) is not None}
    if not runs:
        return None
    drawing, axes = figure(3.0 * len(runs) + 0.6, rows=2 * len(runs), sharex=True, height_ratios=[3, 1] * len(runs))
    for (name, run), traffic, queue in zip(runs.items(), axes[::2], axes[1::2]):
        timeline = run["timeline"]
        window = timeline["window"]
        times = [(index + 0.5) * window / 1000 for index in range(len(timeline["occupancy"]))]
        traffic.stackplot(
            times,
            [bandwidth(timeline, phase, accesses) for _, phase, accesses, _ in BANDS],
            labels=[label for label, *_ in BANDS],
            colors=[colour for *_, colour in BANDS],
        )
        traffic.axhline(GPU_CHANNELS * CHANNEL_BANDWIDTH, color="#555555", linewidth=0.8, linestyle="--")
        traffic.set_ylim(0, GPU_CHANNELS * CHANNEL_BANDWIDTH * 1.08)
        traffic.set_ylabel("DRAM, GB/s")
        traffic.set_title(f"{NAMES[name]}: {run['cycles'] / 1000:,.0f} µs", loc="left", fontweight="bold", fontsize=11)
        queue.plot(times, timeline["occupancy"], color="#333333", linewidth=1.0)
        queue.set_ylim(0, 66)
        queue.set_yticks([0, 32, 64])
        queue.set_ylabel("queue")
    axes[-1].set_xlabel("time, µs")
    axes[-1].set_xlim(left=0)
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return drawing


def bandwidth(timeline: Mapping[str, Any], phase: str, accesses: tuple[str, ...], channels: int = 1) -> list[float]:
    """GB/s of the whole GPU in each window of a slice's `timeline`."""
    scale = 32 * GPU_CHANNELS / channels / timeline["window"]
    counted = [timeline.get(f"{phase}_{access}") for access in accesses]
    present = [samples for samples in counted if samples]
    return [scale * sum(samples) for samples in zip(*present)] if present else [0.0] * len(timeline["occupancy"])
