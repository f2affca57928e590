"""The command `t3rtl sequences`: collectives one after the other in one simulation, some of them aborted."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.progress import Progress

from sim.cli import options
from sim.cli.terminal import counted_columns, errors, leave, print_error, refuse, stages
from sim.errors import UsageError, check_processes
from sim.experiments.results import provenance
from sim.files import check_folder, replaced
from sim.simulator.prerequisites import require_simulator

if TYPE_CHECKING:
    from sim.sequences.campaign import Finished, Store
    from sim.sequences.collectives import Collectives
    from sim.sequences.sequence import CollectiveSequence

FOLDER = Path("build/sequences")
SEQUENCES = 1000
MOST_SEQUENCES = 100_000_000
MOST_PROCESSES = 256
MOST_LENGTH = 100_000
FEWEST_GPUS, MOST_GPUS = 2, 16
SHOWN_FAILURES = 20
RANDOM, PAIRS, EVERY_CYCLE = "random", "pairs", "every-cycle"
Folder = Annotated[Path, typer.Option(help="Folder of summary.json and of finished sequences.", metavar="FOLDER")]


def sequences(
    context: typer.Context,
    count: Annotated[
        int,
        typer.Option(
            "--sequences",
            help="Random ones, most with aborts; those that are finished are kept.",
            metavar="COUNT",
        ),
    ] = SEQUENCES,
    length: Annotated[
        int,
        typer.Option(help="Collectives of each random one.", metavar="COUNT", show_default="2 or 3"),
    ] = 0,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Instead, every collective after every other, in one sequence.")
    ] = False,
    every_cycle: Annotated[
        str,
        typer.Option(
            help="Instead, this collective aborted at each of its cycles by each GPU in turn, and run again.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    topology: Annotated[
        str, typer.Option(help="ring, ring-one-way, mesh, ideal-switch or switch.", metavar="NAME")
    ] = "mesh",
    gpus: Annotated[int, typer.Option(help="GPUs, 2 to 16.", metavar="N")] = 3,
    seed: Annotated[int, typer.Option(help="Of the choice of sequences.", metavar="NUMBER")] = 1,
    set_: options.Set = None,
    replay: Annotated[
        str, typer.Option(help="One sequence alone, as a campaign prints it.", metavar="TEXT", show_default=False)
    ] = "",
    processes: options.Processes = 2,
    out: Folder = FOLDER,
) -> None:
    """Run collectives one after the other on the same GPUs without a reset between them, some aborted at a random cycle
    by a random GPU, and compare every element of each that was not.

    A campaign that was interrupted goes on where it was. Exit code 1 when something was wrong, hung, or took too long.

    Example: t3rtl sequences --gpus 3 --sequences 200
    """
    check_processes(processes, MOST_PROCESSES)
    _check_numbers(count, length, gpus, seed)
    if replay:
        drawing = ("count", "length", "pairs", "every_cycle", "seed")
        refuse(context, "one sequence is run alone", *drawing, "processes", "out")
    elif pairs:
        refuse(context, "every pair is one sequence", "count", "length", "every_cycle", "processes")
    elif every_cycle:
        refuse(context, "there are as many as cycles", "count", "length")
    from sim.experiments.catalogue import settings
    from sim.sequences.campaign import Options, Store, cycles_alone, merged, summarize
    from sim.sequences.collectives import TOPOLOGIES, collectives_of
    from sim.sequences.sequence import parse
    from sim.sequences.server import build, prepared

    if topology not in TOPOLOGIES:
        raise UsageError(f"topology must be one of {', '.join(TOPOLOGIES)}; got {topology!r}")
    asked = Options(topology, gpus, settings(set_))
    known = collectives_of(topology, gpus, asked.settings)
    if every_cycle:
        known.number(f"{every_cycle}:0")
    alone = parse(replay, known) if replay else None
    require_simulator()
    check_folder(out)
    with stages("sequences") as progress:
        model = build(known, progress)
        progress("writing collectives")
        with prepared(known, model) as shared:
            if alone is not None:
                progress(str(alone))
                _run_alone(known, model, shared, alone)
            progress("each collective alone")
            cycles = cycles_alone(known, model, shared)
            listed = _listed(known, cycles, count, length, pairs, every_cycle, seed)
            started = time.monotonic()
            store = Store(out / "results", asked)
            there = store.load().keys()
            results = _run_all(known, model, shared, listed, store, processes)
    seconds = time.monotonic() - started
    ran = sum(item.text not in there for item in results)
    made = {
        **{name: value for name, value in provenance().items() if name != "units"},
        "kind": _kind(length, pairs, every_cycle),
        "seed": seed,
        "ran": ran,
        "seconds": round(seconds, 1),
        **summarize(asked, results),
    }
    summary = merged(out / "summary.json", made)
    with replaced(out / "summary.json") as draft:
        draft.write_text(json.dumps(summary, indent=1) + "\n")
    _show(made)
    typer.echo(f"seed {seed}; {ran:,} sequences in {seconds:,.0f} s, the others were there; {out / 'summary.json'}")
    leave(1 if made["failed"] else 0)


def _kind(length: int, pairs: bool, every_cycle: str) -> str:
    """What summary.json calls these sequences; those of one kind take each other's place."""
    if pairs or every_cycle:
        return PAIRS if pairs else f"{EVERY_CYCLE} {every_cycle}"
    return f"{RANDOM} of {length}" if length else RANDOM


def _check_numbers(count: int, length: int, gpus: int, seed: int) -> None:
    if not 1 <= count <= MOST_SEQUENCES:
        raise UsageError(f"sequences must be from 1 to {MOST_SEQUENCES}, got {count}")
    if not 0 <= length <= MOST_LENGTH:
        raise UsageError(f"length must be from 1 to {MOST_LENGTH}, or 0 for 2 or 3, got {length}")
    if not FEWEST_GPUS <= gpus <= MOST_GPUS:
        raise UsageError(f"gpus must be from {FEWEST_GPUS} to {MOST_GPUS}, got {gpus}")
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"seed must be from 0 to {(1 << 32) - 1}, got {seed}")


def _run_alone(known: "Collectives", model: Path, shared: Path, alone: "CollectiveSequence") -> NoReturn:
    """Show what comes of one sequence, and leave."""
    from sim.sequences.server import OK, run_sequences

    ((_, found),) = run_sequences(known, model, shared, [alone])
    for name, value in found.to_json().items():
        typer.echo(f"{name:16} {value}")
    leave(0 if found.verdict == OK else 1)


def _listed(
    known: "Collectives",
    cycles: Mapping[str, int],
    count: int,
    length: int,
    pairs: bool,
    every_cycle: str,
    seed: int,
) -> list["CollectiveSequence"]:
    """What is to be run."""
    from sim.sequences.sequence import at_every_cycle, drawn
    from sim.sequences.sequence import pairs as all_pairs

    if pairs:
        return [all_pairs(known, seed)]
    if every_cycle:
        return list(at_every_cycle(known, cycles, every_cycle, seed))
    return [drawn(known, cycles, (seed << 32) + number, length) for number in range(count)]


def _run_all(
    known: "Collectives",
    model: Path,
    shared: Path,
    listed: list["CollectiveSequence"],
    store: "Store",
    processes: int,
) -> list["Finished"]:
    """What came of each, with how many are done where that can be seen."""
    from sim.sequences.campaign import run_all

    with Progress(*counted_columns(), console=errors, transient=True, disable=not errors.is_terminal) as bar:
        running = run_all(known, (model, shared), listed, store, processes)
        return list(bar.track(running, total=len(listed), description="sequences"))


def _show(made: Mapping[str, Any]) -> None:
    typer.echo(
        f"{made['sequences']:,} sequences on {made['gpus']} GPUs, {made['topology']}: "
        f"{made['collectives']:,} collectives, of which {made['aborted']:,} were aborted; "
        f"{made['wrong']} wrong, {made['hung']} hung"
    )
    if made["longest_abort_cycles"]:
        typer.echo(f"an abort took {made['longest_abort_cycles']:,} cycles at the most")
    for item in made["failures"][:SHOWN_FAILURES]:
        print_error(f"{item['verdict']} of collective {item['item']} on GPU {item['gpu']}: {item['command']}")
