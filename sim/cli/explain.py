"""`t3rtl explain`: a collective as a program, in words and as a picture."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli import choices
from sim.collectives.explain import explain as lines_about
from sim.collectives.known import PROGRAMS, program
from sim.collectives.program import Program
from sim.errors import UsageError
from sim.experiments.spec_values import DIRECTIONS
from sim.files import check_writable, replaced
from sim.simulator.prerequisites import REPORT, require_packages
from sim.topologies.known import TOPOLOGIES, topology

PICTURES = (".svg", ".png")


def explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A collective, as `t3rtl list` shows them.", metavar="NAME")],
    gpus: Annotated[int, typer.Option(help="GPUs that take part.", metavar="N")] = 4,
    wiring: Annotated[
        str | None,
        typer.Option("--topology", help=f"How they are joined: {', '.join(TOPOLOGIES)}.", metavar="NAME"),
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Only this rank, or all.", metavar="R")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw it too: chunks over GPUs and rounds.", metavar="FILE.svg|FILE.png")
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="Way round the ring: cw to the next rank, or ccw.", metavar="NAME")
    ] = None,
    pieces: choices.Pieces = None,
    splits: choices.Splits = None,
    residual: choices.Residual = False,
    gates: choices.Gates = None,
    slices: choices.Slices = None,
    root: choices.Root = None,
    spread: choices.Spread = False,
    straight: choices.Straight = False,
) -> None:
    """Show what a collective is as a program: per rank its regions, sends and triggers, and what it moves.

    Without --topology the first one is taken that has all the links it needs.

    Example: t3rtl explain ring-all-reduce --gpus 4 --picture build/all-reduce.svg
    """
    said = choices.chosen(
        context,
        name,
        direction=None if direction is None else choices.named("direction", direction, DIRECTIONS),
        pieces=pieces,
        splits=splits,
        residual=residual,
        gates=gates,
        slices=slices,
        root=root,
        spread=spread,
        straight=straight,
    )
    _check_picture(picture)
    made = program(name, gpus, **said)
    joined = topology(wiring or next(PROGRAMS[name].topologies), gpus)
    if rank is not None and not 0 <= rank < gpus:
        raise UsageError(f"rank must be from 0 to {gpus - 1}, got {rank}")
    for line in lines_about(made, joined, range(gpus) if rank is None else [rank]):
        typer.echo(line)
    if picture is not None:
        _draw(picture, made, joined.name)
        typer.echo(f"\n{picture}")


def _check_picture(path: Path | None) -> None:
    """Refuse a file that cannot be drawn to, before anything is shown."""
    if path is None:
        return
    if path.suffix not in PICTURES:
        raise UsageError(f"a picture is a file that ends in {' or '.join(PICTURES)}, not {path}")
    check_writable(path)
    require_packages(REPORT, "matplotlib")


def _draw(path: Path, made: Program, wiring: str) -> None:
    import matplotlib as mpl

    from sim.report.space_time import space_time
    from sim.report.style import SETTINGS

    # Neither the time nor random names: the same picture is the same file.
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context(SETTINGS | {"svg.hashsalt": made.name}), replaced(path, path.suffix) as draft:
        space_time(made, wiring).savefig(draft, facecolor="white", metadata=metadata)
