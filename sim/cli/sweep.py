"""The command `t3rtl sweep`: a grid of points, run and written down."""

import csv
import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, TextColumn

from sim.cli.terminal import counted_columns, errors, finish
from sim.errors import UsageError, check_processes
from sim.experiments.grid import label
from sim.files import check_writable, replaced
from sim.simulator.prerequisites import require_simulator

if TYPE_CHECKING:
    from sim.experiments.sweep import Outcome

MOST_PROCESSES = 256
"""Local processes of a sweep at the most."""
STORE = Path("build/points")
Processes = Annotated[int, typer.Option("--processes", "-j", help="Points at a time, on this machine.")]
Scheduler = Annotated[
    str, typer.Option(help="Run on the Dask cluster of this scheduler instead.", metavar="ADDRESS", show_default=False)
]
Store = Annotated[Path, typer.Option(help="Folder of finished points; none of them runs again.", metavar="FOLDER")]


def require_report_packages(*packages: str) -> None:
    """Raise :class:`UsageError` when a package of the extra [report] is missing."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} not installed in this Python environment: pip install --editable '.[report]'"
        )


def sweep(
    vary: Annotated[
        list[str],
        typer.Option(help="Values of a field of the points; repeatable; workload takes patterns.", metavar="FIELD=A,B"),
    ],
    processes: Processes = 2,
    scheduler: Scheduler = "",
    store: Store = STORE,
    out: Annotated[Path, typer.Option(help="JSON file of the results; a CSV file goes beside it.")] = Path(
        "build/sweep/results.json"
    ),
) -> None:
    """Simulate every point of a grid, on processes of this machine or on a Dask cluster, and write JSON and CSV.

    Finished points are kept and not run again; a point whose worker dies is run by another.

    Example: t3rtl sweep --vary 'workload=t-nlg/*/tp8' --vary configuration=t3,t3-mca --vary link_bandwidth=75,150
    """
    check_processes(processes, MOST_PROCESSES)
    require_report_packages("distributed")
    from sim.experiments.experiment import simulate_point, source_version
    from sim.experiments.grid import grid
    from sim.experiments.store import PointStore
    from sim.experiments.sweep import run_points

    points = grid(vary)
    require_simulator()
    check_writable(out)
    check_writable(table_beside(out))
    started = time.monotonic()
    kept = PointStore(store, source_version())
    found: dict[Any, Outcome] = {}
    with progress_of("points", len(points)) as advance:
        for outcome in run_points(points, kept, simulate_point, processes, scheduler):
            found[outcome.point] = outcome
            advance(outcome)
    outcomes = [found[point] for point in points]
    write_sweep(out, outcomes)
    show_failures(outcomes)
    reused = sum(outcome.reused for outcome in outcomes)
    failed = sum(not outcome.passed for outcome in outcomes)
    typer.echo(f"results: {out} and {table_beside(out)}")
    typer.echo(
        f"{len(outcomes) - failed} of {len(outcomes)} points pass, {reused} of them run before, "
        f"in {time.monotonic() - started:.0f} s"
    )
    finish(not failed)


@contextmanager
def progress_of(title: str, total: int) -> Iterator[Callable[["Outcome"], None]]:
    """A progress bar on the terminal, to be told each outcome; nothing when standard error is not a terminal."""
    columns = (*counted_columns(), TextColumn("{task.fields[last]}"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=total, last="")
        yield lambda outcome: bar.update(task, advance=1, last=label(outcome.point))


def show_failures(outcomes: Sequence["Outcome"]) -> None:
    """Points that failed, and why, on standard error."""
    for outcome in outcomes:
        if not outcome.passed:
            text = "; ".join(outcome.complaints)
            errors.print(f"{label(outcome.point)}: {text}", style="red", markup=False, soft_wrap=True)


def table_beside(path: Path) -> Path:
    """The CSV file that goes with the JSON file `path`."""
    return path.with_suffix(".csv") if path.suffix != ".csv" else path.with_suffix(".table.csv")


def write_sweep(path: Path, outcomes: Sequence["Outcome"]) -> None:
    """Write all outcomes as a JSON list at `path`, and as a CSV table beside it: a line each, without time series."""
    entries = [{"point": asdict(item.point), "result": item.result, "complaints": item.complaints} for item in outcomes]
    with replaced(path) as draft:
        draft.write_text(json.dumps(entries, indent=1) + "\n")
    rows = [
        asdict(item.point)
        | {"passed": item.passed}
        | _flat(item.result or {})
        | {"complaints": "; ".join(item.complaints)}
        for item in outcomes
    ]
    with replaced(table_beside(path)) as draft, draft.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _flat(result: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers and words of a nested result under names like dram_sectors.gemm.read; lists are left out."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            flat[prefix + name] = value
    return flat
