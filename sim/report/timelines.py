"""Figure 17: DRAM traffic over time, by kind, with the occupancy of the DRAM queues beneath."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS
from sim.report.evaluation import Evaluation
from sim.report.plan import FIG_17_LAYER, PAPER
from sim.report.style import KINDS, NAMES, Kind, figure

PEAK = TOTAL_CHANNELS * SECTOR_BYTES
"""GB/s of the whole GPU: a sector a cycle of each channel, at 1 GHz."""
SHOWN = ("sequential", "t3", "t3-mca")


def traffic_over_time(evaluation: Evaluation, shown: Sequence[str] = SHOWN) -> Figure | None:
    """DRAM traffic of one sub-layer in the variants `shown`, on one time axis."""
    runs = {name: run for name in shown if (run := evaluation.result(PAPER.spec(FIG_17_LAYER, name))) is not None}
    if not runs:
        return None
    drawing, axes = figure(3.0 * len(runs) + 0.6, rows=2 * len(runs), sharex=True, height_ratios=[3, 1] * len(runs))
    for (name, run), traffic, queue in zip(runs.items(), axes[::2], axes[1::2]):
        timeline = run["timeline"]
        window = timeline["window"]
        times = [(index + 0.5) * window / 1000 for index in range(len(timeline["occupancy"]))]
        traffic.stackplot(
            times,
            [bandwidth(timeline, kind) for kind in KINDS],
            labels=[kind.label for kind in KINDS],
            colors=[kind.colour for kind in KINDS],
        )
        traffic.axhline(PEAK, color="#555555", linewidth=0.8, linestyle="--")
        traffic.set_ylim(0, PEAK * 1.08)
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


def bandwidth(timeline: Mapping[str, Any], kind: Kind, channels: int = 1) -> list[float]:
    """GB/s of the whole GPU of one kind of access, in each window of the `timeline` of a slice of `channels`."""
    scale = SECTOR_BYTES * TOTAL_CHANNELS / channels / timeline["window"]
    counts = {
        access: samples
        for name, samples in timeline.items()
        for traffic_class, _, access in [name.partition("_")]
        if traffic_class == kind.traffic_class
    }
    windows = range(len(timeline["occupancy"]))
    return [scale * kind.total({access: samples[at] for access, samples in counts.items()}) for at in windows]
