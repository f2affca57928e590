"""Options of commands that choose among the variants of a program."""

from inspect import signature
from typing import Annotated, Any

import typer

from sim.cli.terminal import refuse
from sim.collectives.known import PROGRAMS
from sim.errors import UsageError

GATES = {"coarse": False, "fine": True}
"""Whether a workgroup waits for its tile row only."""
SET_BY_OPTION = {
    "direction": "direction",
    "pieces": "pieces",
    "splits": "splits",
    "residual": "residual",
    "gates": "fine",
    "slices": "slices",
    "root": "root",
    "naive": "shifted",
    "copied": "copied",
    "units": "units",
    "alike": "alike",
    "lying": "lying",
    "spread": "spread",
    "straight": "straight",
}
"""Parameter of a command -> option of a program."""

Pieces = Annotated[
    int | None, typer.Option(help="Into how many pieces, that follow each other, it is cut.", metavar="Q")
]
Splits = Annotated[int | None, typer.Option(help="Addends of a split-K GEMM.", metavar="S")]
Residual = Annotated[bool, typer.Option("--residual", help="A kernel adds a residual before the gather.")]
Gates = Annotated[
    str | None,
    typer.Option(help="Workgroups wait for a chunk, or for their tile row: coarse or fine.", metavar="NAME"),
]
Slices = Annotated[
    int | None, typer.Option(help="Of the depth, in which A arrives; a workgroup begins with the first.", metavar="S")
]
Root = Annotated[int | None, typer.Option(help="The rank that has what is broadcast.", metavar="R")]

Naive = Annotated[
    bool, typer.Option("--naive", help="All ranks take the chunks in the order of their numbers, not shifted.")
]
Copied = Annotated[
    bool, typer.Option("--copied", help="A kernel copies what is sent from memory, no GEMM computes it.")
]
Alike = Annotated[bool, typer.Option("--alike", help="The kernel reads one chunk for all, as for an all-gather.")]
Lying = Annotated[bool, typer.Option("--lying", help="What is sent lies in memory, and no kernel runs.")]
Spread = Annotated[bool, typer.Option("--spread", help="A rank sends what it got to all others at a time.")]
Straight = Annotated[bool, typer.Option("--straight", help="All ranks get all of A from the host.")]
Units = Annotated[int | None, typer.Option(help="Compute units of communication kernels.", metavar="COUNT")]


def variants(
    pieces: Pieces = None,
    splits: Splits = None,
    residual: Residual = False,
    gates: Gates = None,
    slices: Slices = None,
    root: Root = None,
    naive: Naive = False,
    copied: Copied = False,
    alike: Alike = False,
    lying: Lying = False,
    spread: Spread = False,
    straight: Straight = False,
    units: Units = None,
) -> None:
    """Variants of a program, as a group of options (:mod:`sim.cli.groups`)."""


VARIANTS = tuple(signature(variants).parameters)


def chosen(context: typer.Context, name: str, **values: Any) -> dict[str, Any]:
    """Options of program `name` from the parameters of the command that runs in `context`: `values`, but None and flags
    that are not set. What the program does not know is refused."""
    if name not in PROGRAMS:
        raise UsageError(f"collective must be one of {', '.join(PROGRAMS)}; got {name!r}")
    for parameter in values:
        if SET_BY_OPTION[parameter] not in PROGRAMS[name].options:
            refuse(context, f"{name} has no such choice", parameter)
    said = {parameter: value for parameter, value in values.items() if value is not None and value is not False}
    if "gates" in said:
        said["gates"] = named("gates", said["gates"], GATES)
    if "naive" in said:
        said["naive"] = False
    return {SET_BY_OPTION[parameter]: value for parameter, value in said.items()}


def named(option: str, value: str, allowed: dict[str, Any]) -> Any:
    """What `value` stands for."""
    if value not in allowed:
        raise UsageError(f"{option} must be one of {', '.join(allowed)}; got {value!r}")
    return allowed[value]
