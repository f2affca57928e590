"""What every command of `t3rtl` shows on the terminal, how it refuses options, and how it ends."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

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

from sim.errors import MachineError, UsageError
from sim.experiments.results import Result, as_text, write_results
from sim.files import keep
from sim.simulator.build_folder import Building

errors = Console(stderr=True, highlight=False)


def counted_columns() -> tuple[ProgressColumn, ...]:
    """Columns of a progress bar over a known number of pieces of work."""
    text = TextColumn("{task.description}")
    return SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


@contextmanager
def stages(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on the terminal that names the current stage; when standard error is not a terminal, a line for each
    build, because that is what takes long."""
    if not errors.is_terminal:
        yield lambda stage: say(f"{title}: {stage}") if isinstance(stage, Building) else None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(title)
        yield lambda stage: bar.update(task, description=f"{title}: {stage}")


def say(text: str) -> None:
    """A remark on standard error, where it is no terminal too."""
    errors.print(text, style="dim", markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """What is wrong, on standard error."""
    errors.print(text, style="red", markup=False, soft_wrap=True)


def show_errors(results: Sequence[Result]) -> None:
    """What is wrong with `results`, on standard error."""
    for result in results:
        for text in result["errors"]:
            print_error(f"{result['spec']['name']}: {text}")


def refuse(context: typer.Context, reason: str, *names: str) -> None:
    """Refuse the options with parameters `names`, of the command that runs in `context`, if the user wrote one of them:
    there is no use for them, for `reason`."""
    for name in names:
        if said_on_command_line(context, name):
            option = next(item.opts[0] for item in context.command.params if item.name == name)
            raise UsageError(f"{option} has no effect here: {reason}")


def said_on_command_line(context: typer.Context, name: str) -> bool:
    """Whether the user wrote the option with parameter `name` of the command that runs in `context`."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def keep_results(path: Path, results: Sequence[Result]) -> None:
    """Write finished `results` to `path`; where that fails somewhere else, or on standard output, and then raise
    :class:`sim.errors.MachineError`."""
    kept = False

    def write(place: Path) -> None:
        nonlocal kept
        write_results(place, results)
        kept = True

    try:
        keep(path, write)
    except MachineError:
        if not kept:
            sys.stdout.write(as_text(results))
        raise


def finish(passed: bool) -> None:
    """Leave with exit code 0 when everything was right, else 1."""
    leave(0 if passed else 1)


def leave(code: int) -> NoReturn:
    """Leave with exit code `code`."""
    raise typer.Exit(code)


def silence_broken_pipe() -> None:
    """Let the interpreter end quietly after the reader of standard output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
