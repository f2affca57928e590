"""What every command of `t3rtl` shows on the terminal: progress, complaints, the exit code."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from sim.experiments.results import ScenarioResult

errors = Console(stderr=True, highlight=False)


def counted_columns() -> tuple[ProgressColumn, ...]:
    """Columns of a progress bar over a known number of pieces of work."""
    text = TextColumn("{task.description}")
    return SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


@contextmanager
def stages(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on the terminal that names the current stage; nothing when standard error is not a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title)
        yield lambda stage: bar.update(task, description=f"{title}: {stage}")


def show_complaints(results: Sequence[ScenarioResult]) -> None:
    """What the checkers had to say of `results`, on standard error."""
    for result in results:
        for complaint in result.complaints:
            errors.print(f"{result.name}: {complaint}", style="red", markup=False, soft_wrap=True)


def finish(passed: bool) -> None:
    """Leave with exit code 0 when everything was right, else 1."""
    raise typer.Exit(0 if passed else 1)
