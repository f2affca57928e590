"""`python -m tb.mutation`: make mutants of every block, run the block's tests on them, report the score."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sim.cli.terminal import errors, stages
from sim.errors import UsageError
from sim.simulator.verilator import BUILD
from tb.mutation.blocks import BLOCKS, QUICK, QUICK_MUTANTS
from tb.mutation.campaign import MutantResult, run_block
from tb.mutation.outcomes import keep_outcome
from tb.mutation.summary import read_reasons, record_scores, score, write

LEAST_SCORE = 95.0
"""Percent of the mutants not proven equivalent that must be killed."""


def _table(results: list[MutantResult]) -> Table:
    table = Table("block", "mutants", "killed", "survived", "equivalent", "score", box=None)
    groups = {name: [item for item in results if item.block == name] for name in BLOCKS}
    for name, found in [*groups.items(), ("total", results)]:
        if found:
            outcomes = [item.outcome for item in found]
            counts = [len(found), *map(outcomes.count, ("killed", "survived", "equivalent"))]
            table.add_row(name, *map(str, counts), "" if score(found) is None else f"{score(found):.1f} %")
    return table


def main(
    block: Annotated[list[str] | None, typer.Option(help="only this block (may be repeated)")] = None,
    quick: Annotated[bool, typer.Option(help="a small sample of three small blocks")] = False,
    mutants: Annotated[int | None, typer.Option(min=1, help="instead of each block's own number")] = None,
    number: Annotated[
        list[int] | None,
        typer.Option(min=1, help="only this one of the mutants of the one --block (may be repeated); nothing is kept"),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-j", min=1, help="mutants at a time")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="of the choice of mutants and of the tests")] = 1,
    out: Annotated[Path, typer.Option(help="folder of summary.json and junit.xml")] = BUILD / "mutation",
    record: Annotated[
        bool,
        typer.Option(
            help="keep the scores in tb/mutation/scores.json, for the coverage page, and outcomes.json beside it"
        ),
    ] = False,
) -> None:
    """Mutation score of every block. Exit code 1 when it is below 95 % or a survivor is not explained.

    Results are kept in build/mutation/results: a run that was interrupted goes on where it was, and survivors are
    tried again when a test has changed. With --record, each outcome is kept in tb/mutation/outcomes.json as it comes,
    and a run in another checkout goes on from there.
    """
    unknown = [name for name in block or () if name not in BLOCKS]
    if unknown:
        errors.print(f"--block must be one of {', '.join(BLOCKS)}; got {unknown[0]!r}", highlight=False)
        raise typer.Exit(2)
    if number and (record or len(block or ()) != 1):
        errors.print("--number takes one --block, and no --record", highlight=False)
        raise typer.Exit(2)
    names = block or (QUICK if quick else tuple(BLOCKS))
    count = mutants or (QUICK_MUTANTS if quick else None)
    results: list[MutantResult] = []
    with stages("mutation") as show:
        for name in names:
            try:
                for result in run_block(name, BLOCKS[name], seed, count, show, number or (), processes):
                    results.append(result)
                    if record:
                        keep_outcome(name, result.netlist, result.command, result.outcome)
            except UsageError as error:
                errors.print(str(error), highlight=False)
                raise typer.Exit(2) from None
    if not number:
        write(results, out)
    if record:
        record_scores(results)
    Console(highlight=False).print(_table(results))
    reasons = read_reasons()
    open_survivors = [
        result
        for result in results
        if result.outcome == "survived" and not any(reason.explains(result) for reason in reasons)
    ]
    for result in open_survivors:
        errors.print(
            f"survived: {result.block} {result.number} {result.mode} {result.place} {' '.join(result.sources)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    total = score(results)
    if open_survivors or (total is not None and total < LEAST_SCORE):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
