"""`t3rtl compare`: two files of results side by side, what differs first."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from sim.cli.terminal import finish
from sim.errors import UsageError
from sim.experiments.compare import compare as compared
from sim.experiments.compare import ratio

LONGEST = 24
"""Letters of a value that are shown: of a list its beginning."""


def compare(
    first: Annotated[Path, typer.Argument(help="Results of a run, or summary.json of a report.", metavar="FILE")],
    second: Annotated[Path, typer.Argument(help="The same of another commit, or another run.", metavar="FILE")],
    shown: Annotated[int, typer.Option(help="Differences to show, at most.", metavar="COUNT")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Show all figures, those that agree too.")] = False,
) -> None:
    """Lay two files of results side by side, wall time aside: what was run differently, the figures that differ, the
    greatest ratio first, lists last, and how many agree.

    Figures that only one file has are named. Exit code 1 when a figure differs, or nothing could be compared.

    Example: t3rtl compare before/results.json build/sim/results.json
    """
    if shown < 1:
        raise UsageError(f"shown must be from 1, got {shown}")
    found = compared(first, second)
    if found.settings:
        _show("run differently", found.settings)
    different = found.different if everything else found.different[:shown]
    if different:
        _show("figure", different)
    if len(found.different) > len(different):
        typer.echo(f"and {len(found.different) - len(different)} more; --all shows them")
    if everything and found.agreeing:
        _show("figure that agrees", [(where, value, value) for where, value in found.agreeing])
    for side in ("first", "second"):
        names = sorted({where.rpartition(": ")[2] for where, owner in found.only if owner == side})
        if names:
            more = len(names) > shown and not everything
            typer.echo(
                f"only in the {side} file: {', '.join(names[:shown] if more else names)}{' ...' if more else ''}"
            )
    typer.echo(f"{found.equal:,} figures agree, {len(found.different):,} differ")
    finish(found.equal > 0 and not found.different)


def _show(title: str, rows: list[tuple[str, Any, Any]]) -> None:
    sides = (Column(side, justify="right", overflow="fold") for side in ("first", "second"))
    table = Table(Column(title, overflow="fold"), *sides, Column(justify="right", no_wrap=True))
    for where, one, other in rows:
        table.add_row(where, _short(one), _short(other), _change(one, other))
    Console(highlight=False).print(table)


def _change(one: Any, other: Any) -> str:
    """By how much the second figure is above the first."""
    if one == other or math.isinf(ratio(one, other)):
        return ""
    return f"{100 * (other / one - 1):+.1f} %"


def _short(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
