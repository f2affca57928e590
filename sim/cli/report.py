"""The command `t3rtl report`: runs what is missing of the paper's evaluation, and draws all of it."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli import options
from sim.cli.sweep import (
    MOST_PROCESSES,
    STORE,
    Scheduler,
    Store,
    progress_of,
    show_failures,
)
from sim.cli.terminal import leave, refuse
from sim.errors import check_processes
from sim.files import check_folder
from sim.simulator.prerequisites import REPORT, require_packages, require_simulator


def report(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(help="Only sub-layers that match; repeatable.", metavar="PATTERN")
    ] = None,
    section: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these points; repeatable: layers, link-150, 2x-cus, tp32, sweeps, ring, slices, recorded, "
            "pallas, flux, conccl, uncut, t3; or whole-gpu, which takes hours.",
            metavar="NAME",
        ),
    ] = None,
    run: Annotated[bool, typer.Option(help="Run points that are missing, or draw what is there.")] = True,
    processes: options.Processes = 2,
    scheduler: Scheduler = "",
    store: Store = STORE,
    out: Annotated[Path, typer.Option(help="Folder of the page and the charts.", metavar="FOLDER")] = Path(
        "build/figures"
    ),
) -> None:
    """Draw the paper's figures from the RTL, the paper's numbers beside ours: one HTML page, PNGs, summary.json.

    Points that have been run before are taken from disk, so an interrupted report goes on where it was.

    Example: t3rtl report --only 't-nlg/*/tp8' --section layers
    """
    check_processes(processes, MOST_PROCESSES)
    if not run:
        refuse(context, "nothing is run", "processes", "scheduler")
    if scheduler:
        refuse(context, "the scheduler's workers do it", "processes")
    from sim.report.plan import SECTIONS, needed_points

    points = needed_points(section or SECTIONS, only or ())
    check_folder(out)
    check_folder(store)
    require_packages(REPORT, "matplotlib", "jinja2", "distributed")
    from sim.experiments.experiment import run_experiment, source_version
    from sim.experiments.outcomes import Outcome, exit_code
    from sim.experiments.store import PointStore
    from sim.experiments.sweep import run_points
    from sim.report.evaluation import Evaluation
    from sim.report.page import Run, write_report

    kept = PointStore(store, source_version())
    started = time.monotonic()
    if run:
        require_simulator()
        found = {}
        with progress_of("points", len(points)) as advance:
            for outcome in run_points(points, kept, run_experiment, processes, scheduler):
                found[outcome.spec] = outcome
                advance(outcome)
    else:
        stored = ((point, kept.load(point)) for point in points)
        found = {point: Outcome(point, result, reused=True) for point, result in stored if result is not None}
    outcomes = {point: found[point] for point in points if point in found}
    seconds = time.monotonic() - started
    summary = write_report(out, Evaluation(outcomes), Run(kept.version, len(points), seconds))
    failed = [outcome for outcome in outcomes.values() if not outcome.passed]
    show_failures(list(outcomes.values()))
    for line in (*_headline(summary["headline"]["paper"]), *_systems(summary["systems"])):
        typer.echo(line)
    typer.echo(f"page: {out / 'index.html'}, figures as data: {out / 'summary.json'}")
    typer.echo(
        f"{len(outcomes) - len(failed)} of {len(points)} points pass, {len(failed)} failed, "
        f"{sum(outcome.reused for outcome in outcomes.values())} run before, in {seconds:.0f} s"
    )
    leave(exit_code(list(outcomes.values())))


def _systems(systems: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A line for each point of another system: ours, and what its authors state."""
    from sim.report.systems import SYSTEMS

    return [SYSTEMS[name].line(record) for name, records in systems.items() for record in records]


def _headline(headline: dict[str, Any]) -> list[str]:
    """Geomean and maximum of each speedup, a line each, and over how many sub-layers when not over all."""
    from sim.workloads.table import MAIN_LAYERS

    count, whole = headline["sub_layers"], len(MAIN_LAYERS)
    over = "" if count == whole else f" ({count} of {whole} sub-layers: not to be compared with the paper's)"
    return [
        f"{name:<14} geomean {value:.3f}, maximum {headline['speedup_maximum'][name]:.3f} over Sequential{over}"
        for name, value in headline["speedup_geomean"].items()
    ]
