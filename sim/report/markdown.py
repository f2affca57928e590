"""The report's numbers as Markdown tables, for those who look at a repository before they run anything."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from sim.report import metrics
from sim.report.plan import Machine

SHOWN = ("t3", "t3-mca", "t3-paced")


def ratio(value: float | None) -> str:
    """Three digits after the point, or nothing."""
    return "" if value is None else f"{value:.3f}"


def share(value: float | None) -> str:
    """Percent, or nothing."""
    return "" if value is None else f"{100 * value:.1f} %"


def results(
    summary: Mapping[str, Any],
    figures: Iterable[Mapping[str, Any]],
    machines: Iterable[tuple[Machine, Sequence[Mapping[str, Any]]]],
    agreement_notes: Iterable[Mapping[str, str]],
) -> str:
    """Text of results.md: the paper's numbers beside ours with the reasons found, every sub-layer, agreements."""
    seconds = summary["seconds"]
    parts = [
        "# The paper's evaluation on this RTL",
        f"Written by `t3rtl report`: {summary['points']} of {summary['points_asked']} points, "
        f"{len(summary['failed'])} failed a check, {seconds['total'] / 60:,.0f} processor minutes in all, "
        f"{share(seconds['python_share'])} of them in Python (sources {summary['sources']}). "
        "Ratios are of simulated cycles; speedups are over Sequential.",
    ]
    for figure in figures:
        if figure["paper"] or figure["found"] or figure["table"]:
            form = {"ratio": ratio, "share": share}
            rows = [
                [row["says"], form[row["form"]](row["value"]), form[row["form"]](row["ours"])]
                for row in figure["paper"]
            ]
            parts += [f"## {figure['title']}", *([_table(["", "paper", "ours"], rows)] if rows else [])]
            parts += [_table(figure["table"][0], figure["table"][1:])] if figure["table"] else []
            parts += [_note(note) for note in figure["found"]]
    for machine, layers in machines:
        if layers:
            parts += [f"## {machine.title}", _layers(layers, summary["headline"][machine.name])]
    if summary["agreement"]:
        parts += ["## Two ways to simulate one thing", _agreements(summary["agreement"])]
        parts += [_note(note) for note in agreement_notes]
    return "\n\n".join(parts) + "\n"


def _note(note: Mapping[str, str]) -> str:
    return f"{note['text']} Shown by `{note['command']}`."


def _layers(layers: Sequence[Mapping[str, Any]], headline: Mapping[str, Any]) -> str:
    names = (*SHOWN, metrics.IDEAL)
    rows = []
    for layer in layers:
        threshold = layer.get("threshold", {"chosen": "", "best": "", "loss": None})
        rows.append(
            [
                layer["workload"],
                f"{layer['cycles'][metrics.BASELINE]:,}",
                *(ratio(layer["speedup"].get(name)) for name in names),
                *(share(layer["gemm_slowdown"].get(name)) for name in SHOWN),
                threshold["chosen"],
                threshold["best"],
                share(threshold["loss"]),
            ]
        )
    rows.append(["**geomean of TP 8 and 16**", "", *(ratio(headline["speedup_geomean"].get(name)) for name in names)])
    slower = [f"GEMM slower, {name}" for name in SHOWN]
    return _table(["sub-layer", "Sequential", *names, *slower, "threshold", "best", "loss"], rows)


def _agreements(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest difference of each comparison."""

    def pair(row: Mapping[str, Any]) -> tuple[str, str]:
        return row["compared"], row["workload"]

    found = []
    for (compared, workload), alike in groupby(rows, pair):
        ratios = list(alike)
        worst = max(ratios, key=lambda row: row["difference"])
        found.append([compared, workload, str(len(ratios)), share(worst["difference"]), worst["ratio"]])
    return _table(["compared", "sub-layer", "ratios", "largest difference", "of"], found)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *([*row, *[""] * (len(heads) - len(row))] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
