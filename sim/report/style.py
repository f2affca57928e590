"""Looks that all charts share: colours that colour-blind readers can tell apart (Okabe and Ito's), axes, labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from sim.report import metrics
from sim.workloads.table import Workload

BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
GREY, PALE = "#8C8C8C", "#CFCFCF"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY)
PHASE_COLOURS = {"gemm": BLUE, "rs": ORANGE, "ag": GREEN}
ON_PHASE = {"gemm": "white", "rs": "black", "ag": "black"}
"""Colour of text on that of a phase."""
NAMES = {
    "gemm": "GEMM alone",
    "sequential": "Sequential",
    "t3": "T3",
    "t3-mca": "T3-MCA",
    "t3-paced": "T3-paced",
    "rs-nmc": "RS with NMC alone",
    metrics.IDEAL: "Ideal-GEMM-RS-Overlap",
    metrics.IDEAL_NMC: "Ideal-RS+NMC",
} | {f"t3-mca-{threshold}": f"T3-MCA, {threshold}" for threshold in ("5", "10", "30", "none")}
WIDTH = 11.0
"""Inches; 1,210 pixels at DPI."""
DPI = 110
CROWDED = 18
"""Sub-layers beyond which labels get smaller."""


@dataclass(frozen=True)
class Kind:
    """DRAM accesses that are drawn as one: of a class its `reads`, its writes (stores and updates), or None: all."""

    label: str
    traffic_class: str
    reads: bool | None
    colour: str

    def total(self, counts: Mapping[str, int]) -> int:
        """Sectors of this kind among `counts` of the class by access."""
        return sum(count for access, count in counts.items() if self.reads in (None, access == "read"))


KINDS = (
    Kind("GEMM reads", "gemm", True, "#0072B2"),
    Kind("GEMM stores and updates", "gemm", False, "#7FB8DA"),
    Kind("RS reads", "rs", True, "#D58A00"),
    Kind("RS stores and updates", "rs", False, "#F5CE74"),
    Kind("AG reads", "ag", True, "#007A58"),
    Kind("AG stores", "ag", False, "#7CCDB3"),
    Kind("Tracker's backing store", "other", None, PURPLE),
)
"""Hue says the traffic class, the darker shade reads."""
SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E3E3E3",
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
"""Of matplotlib, to be in force while charts are drawn."""


def figure(height: float, rows: int = 1, columns: int = 1, **grid: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure of the report's width, `height` inches, and its axes in reading order."""
    drawing = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    axes = drawing.subplots(rows, columns, squeeze=False, **grid)
    return drawing, [axis for row in axes for axis in row]


def layer_axis(axis: Axes, layers: Sequence[Workload], extra: str = "") -> list[int]:
    """Put sub-layers on the x axis, by model and TP, and a label `extra` behind them, if any; the positions of all."""
    crowded = len(layers) > CROWDED
    positions: list[int] = []
    at = 0
    for (model, tp), group_layers in groupby(layers, key=lambda layer: (layer.model, layer.tp)):
        members = list(group_layers)
        group = list(range(at, at + len(members)))
        positions += group
        axis.text(
            (group[0] + group[-1]) / 2,
            -0.115,
            f"{model}\nTP {tp}" if crowded else f"{model}, TP {tp}",
            transform=axis.get_xaxis_transform(),
            ha="center",
            va="top",
            fontweight="bold",
        )
        at = group[-1] + 2
    labels = [layer.sublayer for layer in layers]
    if extra:
        positions.append(at)
        labels.append(extra)
    axis.set_xticks(positions, labels)
    axis.tick_params(axis="x", length=0, labelsize=8.5 if crowded else None)
    axis.set_xlim(positions[0] - 0.75, positions[-1] + 0.75)
    return positions


def grouped_bars(
    axis: Axes,
    positions: Sequence[int],
    series: Mapping[str, Sequence[float]],
    colours: Sequence[str],
    base: float = 0.0,
) -> None:
    """Bars side by side at each position, one of each of `series`, standing on `base`; a NaN is left out."""
    width = 0.84 / len(series)
    for index, ((name, values), colour) in enumerate(zip(series.items(), colours)):
        offset = (index - (len(series) - 1) / 2) * width
        axis.bar(
            [position + offset for position in positions],
            [value - base for value in values],
            width * 0.94,
            bottom=base,
            label=name,
            color=colour,
        )


def legend_above(axis: Axes, columns: int) -> None:
    """The legend in a line above the axes."""
    axis.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, borderaxespad=0.2, columnspacing=1.4)


def percent(axis: Axes, decimals: int = 0) -> None:
    """The y axis in percent of a share."""
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals, symbol=" %"))
