"""`t3rtl compare`: which figures of two files of results differ."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.terminal import finish
from sim.experiments.compare import compare as compared


def compare(
    first: Annotated[Path, typer.Argument(help="Results of a run, or summary.json of a report.", metavar="FILE")],
    second: Annotated[Path, typer.Argument(help="The same of another commit, or another run.", metavar="FILE")],
    shown: Annotated[int, typer.Option(help="Differences to show, at most.", metavar="COUNT")] = 20,
) -> None:
    """List the figures that differ between two files of results, wall time aside.

    Figures that only one file has are counted. Exit code 1 when a figure differs, or nothing could be compared.

    Example: t3rtl compare before/results.json build/sim/results.json
    """
    found = compared(first, second)
    for where, one, other in found.different[:shown]:
        typer.echo(f"{where}: {_short(one)} and {_short(other)}")
    if len(found.different) > shown:
        typer.echo(f"and {len(found.different) - shown} more")
    for side in ("first", "second"):
        names = sorted({where.rpartition(": ")[2] for where, owner in found.only if owner == side})
        if names:
            typer.echo(f"only in the {side} file: {', '.join(names[:shown])}{' ...' if len(names) > shown else ''}")
    typer.echo(f"{found.equal:,} figures agree, {len(found.different):,} differ")
    finish(found.equal > 0 and not found.different)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
