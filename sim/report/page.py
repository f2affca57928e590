"""One self-contained HTML page of all charts and tables, each chart as a PNG file, and the figures as JSON."""

import base64
import io
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure

from sim.errors import UsageError
from sim.experiments.spec import label
from sim.files import replaced
from sim.report import metrics
from sim.report.charts import CHARTS
from sim.report.evaluation import AGREEMENT, Evaluation
from sim.report.markdown import results
from sim.report.plan import HALF_TRILLION, LARGE_LAYERS, MACHINES, PAPER, Machine
from sim.report.style import DPI, NAMES, SETTINGS
from sim.report.systems import SYSTEMS
from sim.workloads.table import MAIN_LAYERS

HERE = Path(__file__).resolve().parent
DASH = "\N{EN DASH}"
HEADLINES = {machine.name: len(MAIN_LAYERS) for machine in MACHINES} | {
    "tp32": len(LARGE_LAYERS),
    "palm-mt-nlg": len(HALF_TRILLION),
}
"""Headline -> the sub-layers that the paper's is over."""
NOTICED = 0.03
"""A difference from the paper's number, as a share or of a ratio, from which on the page asks for its reason."""


@dataclass(frozen=True)
class Run:
    """What the page says of how its figures were made."""

    version: str
    asked: int
    seconds: float


def write_report(folder: Path, evaluation: Evaluation, run: Run) -> dict[str, Any]:
    """Write index.html, summary.json, results.md and the PNG files into `folder`; the summary.

    A chart whose points are missing has no PNG, and the page says so.
    """
    summary = {"sources": run.version, "points_asked": run.asked} | evaluation.summary()
    with mpl.rc_context(SETTINGS):
        titles = {figure["name"]: figure["title"] for figure in read_figures()}
        images = {name: _png(_titled(draw(evaluation), titles[name])) for name, draw in CHARTS.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror})") from error
    for name, image in images.items():
        path = folder / f"{name}.png"
        if image is None:
            path.unlink(missing_ok=True)
        else:
            with replaced(path) as draft:
                draft.write_bytes(image)
    figures = described(evaluation, summary)
    machines = [(machine, evaluation.layers(machine, (*MAIN_LAYERS, *LARGE_LAYERS))) for machine in MACHINES]
    with replaced(folder / "summary.json") as draft:
        draft.write_text(json.dumps(summary, indent=1) + "\n")
    with replaced(folder / "results.md") as draft:
        draft.write_text(results(summary, figures, machines, read_agreement_notes()))
    with replaced(folder / "index.html") as draft:
        draft.write_text(render(evaluation, summary, figures, machines, images, run))
    return summary


def _titled(drawing: Figure | None, title: str) -> Figure | None:
    """`drawing` with its title in it: a PNG is also seen without the page."""
    if drawing is not None:
        drawing.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return drawing


def described(evaluation: Evaluation, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What :func:`read_figures` holds, ours beside the paper's numbers; of a system that has one, the table of its
    points. Reasons for a difference stand only where a number of ours can differ."""
    numbers = numbers_of(evaluation, summary)
    answer = []
    for figure in read_figures():
        paper = beside(figure.get("paper", []), numbers)
        comparable = not paper or any(row["ours"] is not None for row in paper)
        found = figure.get("found", []) if comparable else []
        answer.append(figure | {"paper": paper, "found": found, "table": _table_of(figure["name"], summary)})
    return answer


def _table_of(name: str, summary: Mapping[str, Any]) -> list[list[str]]:
    """Head and rows of the table of a system; nothing without points."""
    system, found = SYSTEMS.get(name), summary["systems"].get(name)
    return system.table(found) if system and system.table and found else []


def numbers_of(evaluation: Evaluation, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Our numbers, where figures.toml says they are."""
    # A mean over some sub-layers says nothing beside the paper's over all of them.
    return {
        "headline": {
            name: found for name, found in summary["headline"].items() if found["sub_layers"] == HEADLINES[name]
        },
        "layer": {layer["workload"]: layer for layer in evaluation.layers(PAPER)},
        "systems": {
            system: {record["point"]: record["ours"] for record in records}
            for system, records in summary["systems"].items()
        },
    }


def render(
    evaluation: Evaluation,
    summary: Mapping[str, Any],
    figures: Sequence[Mapping[str, Any]],
    machines: Sequence[tuple[Machine, Sequence[Mapping[str, Any]]]],
    images: Mapping[str, bytes | None],
    run: Run,
) -> str:
    """The page, with its images inside."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "ratio": _form(_ratio),
        "share": _form(_share),
        "count": _form(_count),
    }
    return environment.get_template("template.html.j2").render(
        run=run,
        summary=summary,
        figures=[{**figure, "image": _embedded(images[figure["name"]])} for figure in figures],
        machines=machines,
        whole=HEADLINES["paper"],
        failures=[item | {"name": label(item["spec"])} for item in evaluation.failures()],
        names=NAMES,
        overlapped=metrics.OVERLAPPED,
        ideal=metrics.IDEAL,
        ideal_nmc=metrics.IDEAL_NMC,
        agreement_limit=AGREEMENT,
        agreement_notes=read_agreement_notes(),
    )


def read_figures() -> list[dict[str, Any]]:
    """Titles, the paper's numbers, and reasons found by experiment, from figures.toml, in the order of the page."""
    return tomllib.loads((HERE / "figures.toml").read_text())["figure"]


def read_agreement_notes() -> list[dict[str, str]]:
    """What was found where two ways to simulate one thing do not agree: `text`, and the `command` that shows it."""
    return tomllib.loads((HERE / "figures.toml").read_text())["agreement"]["found"]


def beside(stated: Iterable[Mapping[str, Any]], numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The paper's numbers with ours beside them; `differs` when ours is there and noticeably another."""
    rows = []
    for item in stated:
        ours = _at(numbers, item["ours"])
        above = 0.0 if ours is None else ours - item["value"]
        differs = above > NOTICED or (above < -NOTICED and not item.get("at_most", False))
        rows.append({**item, "ours": ours, "differs": differs})
    return rows


def _at(numbers: Any, path: Sequence[str]) -> float | None:
    """The number at `path` in nested dictionaries; None when it is not there."""
    for key in path:
        if not isinstance(numbers, Mapping) or key not in numbers:
            return None
        numbers = numbers[key]
    return numbers


def _png(drawing: Any) -> bytes | None:
    if drawing is None:
        return None
    file = io.BytesIO()
    drawing.savefig(file, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return file.getvalue()


def _embedded(image: bytes | None) -> str | None:
    return None if image is None else "data:image/png;base64," + base64.b64encode(image).decode()


def _form(write: Callable[[float], str]) -> Callable[[float | None], str]:
    """`write`, but a dash for what is not there."""
    return lambda value: DASH if value is None else write(value)


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}"
