"""`python -m tb.formal`: run the proofs."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sim.cli.terminal import errors, finish
from sim.simulator.verilator import BUILD
from tb.formal import report, solver
from tb.formal.proof import all_proofs
from tb.formal.solver import Outcome

LOG_WIDTH = 140
"""Columns of the table where no terminal says how many there are."""


def _table(outcomes: list[Outcome]) -> Table:
    columns = ("block", "proof", "engine", "mode", "depth", "status", "s", "CPU s", "cover", "seeded bug")
    table = Table(*columns, box=None)
    for outcome in outcomes:
        table.add_row(
            outcome.block,
            outcome.name,
            outcome.engine,
            outcome.mode,
            str(outcome.depth),
            outcome.status,
            f"{outcome.seconds:.1f}",
            f"{outcome.cpu_seconds:.1f}",
            outcome.cover,
            outcome.seeded_bug,
            style=None if outcome.passed else "red",
        )
    return table


def main(
    only: Annotated[list[str] | None, typer.Option(help="Only this proof (may be repeated).")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Proofs at a time.")] = 2,
    time_factor: Annotated[float, typer.Option(min=0.1, help="Times the time limits, for a busy machine.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of summary.json, junit.xml, models, logs and traces.")] = BUILD
    / "formal",
) -> None:
    """Prove the properties of every block; each with a cover run and a seeded bug that must be found. Exit code 1 when
    one of the three fails for any proof."""
    proofs = all_proofs()
    unknown = [name for name in only or () if name not in proofs]
    if unknown:
        errors.print(f"--only must be one of {', '.join(proofs)}; got {unknown[0]!r}", highlight=False)
        raise typer.Exit(2)
    if missing := solver.missing_tools():
        errors.print(f"not installed: {', '.join(missing)}; {solver.MISSING}", highlight=False)
        raise typer.Exit(2)
    names = list(dict.fromkeys(only or proofs))
    # The longest first, so that none is left alone at the end.
    order = sorted(names, key=list(proofs).index, reverse=True)
    found: dict[str, Outcome] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool,
        Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar,
    ):
        task = bar.add_task("formal", total=len(names))
        for future in as_completed([pool.submit(solver.run_named, name, out / name, time_factor) for name in order]):
            outcome = future.result()
            found[outcome.name] = outcome
            bar.update(task, advance=1, description=f"formal: {outcome.name} {outcome.status}")
    outcomes = [found[name] for name in names]
    report.write(outcomes, out)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    console.print(_table(outcomes))
    for line in report.errors(outcomes):
        errors.print(line, style="red", markup=False, soft_wrap=True)
    finish(all(outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    typer.run(main)
