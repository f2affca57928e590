"""The command `t3rtl sweep`: a grid of points, run and written down."""

import csv
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, TextColumn

from sim.cli import options
from sim.cli.terminal import counted_columns, errors, leave, print_error, refuse
from sim.errors import check_processes
from sim.experiments.results import broken_down, flat, write_results
from sim.experiments.spec import label
from sim.files import check_folder, check_writable, keep, replaced
from sim.simulator.prerequisites import REPORT, require_packages, require_simulator

if TYPE_CHECKING:
    from sim.experiments.outcomes import Outcome

MOST_PROCESSES = 256
"""Local processes of a sweep at the most."""
STORE = Path("build/points")
Scheduler = Annotated[
    str, typer.Option(help="Run on the Dask cluster of this scheduler instead.", metavar="ADDRESS", show_default=False)
]
Store = Annotated[Path, typer.Option(help="Folder of finished points; none of them runs again.", metavar="FOLDER")]


def sweep(
    context: typer.Context,
    vary: Annotated[
        list[str],
        typer.Option(help="Values of a field of the points; repeatable; workload takes patterns.", metavar="FIELD=A,B"),
    ],
    processes: options.Processes = 2,
    scheduler: Scheduler = "",
    store: Store = STORE,
    out: Annotated[Path, typer.Option(help="JSON file of the results; a CSV file goes beside it.")] = Path(
        "build/sweep/results.json"
    ),
) -> None:
    """Simulate every point of a grid, on processes of this machine or on a Dask cluster, and write JSON and CSV.

    Finished points are kept and not run again; a point whose worker dies is run by another.

    Example: t3rtl sweep --vary 'workload=t-nlg/*/tp8' --vary variant=t3,t3-mca --vary link_bandwidth=75,150
    """
    check_processes(processes, MOST_PROCESSES)
    if scheduler:
        refuse(context, "the scheduler's workers do it", "processes")
    from sim.experiments.grid import grid

    points = grid(vary)
    check_writable(out)
    check_writable(table_beside(out))
    check_folder(store)
    require_packages(REPORT, "distributed")
    require_simulator()
    from sim.experiments.experiment import run_experiment, source_version
    from sim.experiments.outcomes import exit_code
    from sim.experiments.store import PointStore
    from sim.experiments.sweep import run_points

    started = time.monotonic()
    kept = PointStore(store, source_version())
    found: dict[Any, Outcome] = {}
    with progress_of("points", len(points)) as advance:
        for outcome in run_points(points, kept, run_experiment, processes, scheduler):
            found[outcome.spec] = outcome
            advance(outcome)
    outcomes = [found[point] for point in points]
    show_failures(outcomes)
    reused = sum(outcome.reused for outcome in outcomes)
    failed = sum(not outcome.passed for outcome in outcomes)
    typer.echo(
        f"{len(outcomes) - failed} of {len(outcomes)} points pass, {reused} of them run before, "
        f"in {time.monotonic() - started:.0f} s"
    )
    keep(out, lambda path: write_sweep(path, outcomes))
    typer.echo(f"results: {out} and {table_beside(out)}")
    leave(exit_code(outcomes))


@contextmanager
def progress_of(title: str, total: int) -> Iterator[Callable[["Outcome"], None]]:
    """A progress bar on the terminal, to be told each outcome; nothing when standard error is not a terminal."""
    columns = (*counted_columns(), TextColumn("{task.fields[last]}"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=total, last="")
        yield lambda outcome: bar.update(task, advance=1, last=label(outcome.spec))


def show_failures(outcomes: Sequence["Outcome"]) -> None:
    """Points that failed, or could not be kept, and why, on standard error."""
    for outcome in outcomes:
        if not outcome.passed:
            print_error(f"{label(outcome.spec)}: {'; '.join(outcome.errors)}")
        if outcome.unsaved:
            print_error(f"{label(outcome.spec)}: {outcome.unsaved}")


def table_beside(path: Path) -> Path:
    """The CSV file that goes with the JSON file `path`."""
    return path.with_suffix(".csv") if path.suffix != ".csv" else path.with_suffix(".table.csv")


def write_sweep(path: Path, outcomes: Sequence["Outcome"]) -> None:
    """Write all outcomes as a file of results at `path`, and as a CSV table beside it: a line each, without lists."""
    results = [item.result or broken_down(item.spec, item.error, item.machine) for item in outcomes]
    write_results(path, results)
    rows = [
        {name: value for name, value in flat(result) if isinstance(value, str | int | float)}
        | {"errors": "; ".join(result["errors"])}
        for result in results
    ]
    with replaced(table_beside(path)) as draft, draft.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
