"""The command `t3rtl faults`: something goes wrong in a run, many times over, and what comes of it."""

import json
import time
from collections.abc import Mapping
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.progress import Progress

from sim.cli import options
from sim.cli.sweep import Scheduler
from sim.cli.terminal import counted_columns, errors, leave, print_error, refuse, stages
from sim.errors import UsageError, check_processes, chosen
from sim.experiments.results import provenance
from sim.files import check_folder, replaced
from sim.simulator.prerequisites import REPORT, require_packages, require_simulator

if TYPE_CHECKING:
    from sim.faults.campaign import Finished, Options
    from sim.faults.injections import Space

FOLDER = Path("build/faults")
INJECTIONS = 28000
MOST_INJECTIONS = 100_000_000
MOST_PROCESSES = 256
WATCHDOG_BITS = 32
SHOWN_FAILURES, SHOWN_REGISTERS = 20, 3
Folder = Annotated[Path, typer.Option(help="Folder of summary.json and of finished injections.", metavar="FOLDER")]


def faults(
    context: typer.Context,
    injections: Annotated[
        int,
        typer.Option(
            help="In all, as many of each class that has so many; those that are finished are kept.", metavar="COUNT"
        ),
    ] = INJECTIONS,
    only: Annotated[
        list[str] | None,
        typer.Option("--class", help="Only this class; repeatable.", metavar="NAME", show_default=False),
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs, 2 to 8.", metavar="N")] = 3,
    topology: Annotated[
        str, typer.Option(help="ring, for a ring all-reduce, or mesh, for a direct one.", metavar="NAME")
    ] = "ring",
    seed: Annotated[int, typer.Option(help="Of the choice of injections.", metavar="NUMBER")] = 1,
    watchdog: Annotated[
        int, typer.Option(help="Cycles that each node's watchdog waits; 0: none.", metavar="CYCLES")
    ] = 4000,
    set_: options.Set = None,
    replay: Annotated[
        str, typer.Option(help="One injection alone, as a campaign prints it.", metavar="TEXT", show_default=False)
    ] = "",
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Instead, a build without protection, in which faults have to be seen getting through."
        ),
    ] = False,
    processes: options.Processes = 2,
    scheduler: Scheduler = "",
    out: Folder = FOLDER,
) -> None:
    """Flip bits in memories and flip-flops of a node, spoil what is on its links, abort what it does, and count what
    comes of it: masked, corrected, detected, silent or a hang.

    A campaign that was interrupted goes on where it was. Exit code 1 when something gets through what is protected.

    Example: t3rtl faults --class control --class flit_bit --injections 2000
    """
    check_processes(processes, MOST_PROCESSES)
    if not 1 <= injections <= MOST_INJECTIONS:
        raise UsageError(f"injections must be from 1 to {MOST_INJECTIONS}, got {injections}")
    if not 2 <= gpus <= 8:
        raise UsageError(f"gpus must be from 2 to 8, got {gpus}")
    if not 0 <= watchdog < 1 << WATCHDOG_BITS:
        raise UsageError(f"watchdog must be from 0 to {(1 << WATCHDOG_BITS) - 1} cycles, got {watchdog}")
    if replay:
        refuse(context, "one injection is run alone", "injections", "only", "seed", "processes", "scheduler", "out")
    if control:
        unused = ("injections", "only", "set_", "replay", "processes", "scheduler")
        refuse(context, "the build without protection is run alone", *unused)
    if scheduler:
        refuse(context, "the scheduler's workers do it", "processes")
    from sim.experiments.catalogue import settings
    from sim.faults.campaign import Options, parse, run_now, shared_out, wrong_controls
    from sim.faults.injections import CLASSES
    from sim.faults.places import MEMORY, PROTECTED
    from sim.faults.reference import TOPOLOGIES
    from sim.faults.server import build, explore
    from sim.faults.summary import failures, summarize

    names = chosen("class", only or [], CLASSES, CLASSES)
    if topology not in TOPOLOGIES:
        raise UsageError(f"topology must be one of {', '.join(TOPOLOGIES)}; got {topology!r}")
    asked = Options(gpus, settings(set_), watchdog, topology=topology)
    # A setting that cannot be is refused now.
    covers = "every memory" if asked.config.protects_memories else "no memory"
    empty = MEMORY if asked.config.protects_memories else PROTECTED
    if empty in (only or ()):
        raise UsageError(f"--class {empty} has no effect here: with these settings {covers} is protected")
    if control:
        _control(asked, seed, out)
    wanted = parse(replay) if replay else None
    check_folder(out)
    if scheduler:
        require_packages(REPORT, "distributed")
    require_simulator()
    with stages("faults") as progress:
        setup = asked.setup()
        model = build(setup, progress)
        if wanted is not None:
            progress(wanted.text)
            _show_alone(*run_now(asked, [wanted]))
            return
        progress("a run without a fault")
        space = explore(setup, model).space
        progress("injections whose outcome is known")
        if wrong := wrong_controls(asked, space):
            for sentence in wrong:
                print_error(sentence)
            leave(1)
    counts = shared_out(space, names, injections)
    started = time.monotonic()
    results, ran = _campaign(asked, space, counts, seed, (processes, scheduler), out / "results")
    seconds = time.monotonic() - started
    summary = {
        **{name: value for name, value in provenance().items() if name != "units"},
        "spec": setup.spec.to_json(),
        "watchdog": watchdog,
        "seed": seed,
        "ran": ran,
        "seconds": round(seconds, 1),
        "injections_per_second": round(ran / seconds, 1) if ran else None,
        **summarize(asked, space, results),
    }
    with replaced(out / "summary.json") as draft:
        draft.write_text(json.dumps(summary, indent=1) + "\n")
    _show(summary)
    typer.echo(f"{ran:,} injections in {seconds:,.0f} s, {len(results) - ran:,} were there; {out / 'summary.json'}")
    leave(1 if failures(asked, results) else 0)


def _campaign(
    asked: "Options",
    space: "Space",
    counts: Mapping[str, int],
    seed: int,
    workers: tuple[int, str],
    folder: Path,
) -> tuple[list["Finished"], int]:
    """The results of a campaign in the order of its injections, and how many of them were not there before."""
    from sim.faults import campaign

    listed = campaign.plan(space, counts, seed)
    store = campaign.Store(folder, asked)
    known = store.load()
    with Progress(*counted_columns(), console=errors, transient=True, disable=not errors.is_terminal) as bar:
        running = campaign.run_all(asked, listed, store, *workers)
        finished = bar.track(running, total=len(listed), description="injections")
        found = {item.injection.text: item for item in finished}
    return [found[item.text] for item in listed if item.text in found], len(found.keys() - known.keys())


def _control(asked: "Options", seed: int, out: Path) -> NoReturn:
    """Run the build without protection; exit code 1 when a class of faults is not seen getting through."""
    from sim.faults.campaign import UNPROTECTED, lets_through, plan, run_now, unprotected
    from sim.faults.server import build, explore
    from sim.faults.summary import summarize, table

    check_folder(out)
    require_simulator()
    bare = unprotected(asked)
    with stages("faults") as progress:
        setup = bare.setup()
        model = build(setup, progress)
        progress("a run without a fault")
        space = explore(setup, model).space
        progress("injections without protection")
        results = run_now(bare, plan(space, UNPROTECTED, seed))
    summary = summarize(bare, space, results)
    with replaced(out / "control.json") as draft:
        draft.write_text(json.dumps({**provenance(), "seed": seed, **summary}, indent=1) + "\n")
    for line in table(summary["classes"]):
        typer.echo(line)
    held = [name for name, through in lets_through(results).items() if not through]
    for name in held:
        print_error(f"{name}: nothing is seen getting through without protection, so the campaign can see nothing")
    leave(1 if held else 0)


def _show_alone(finished: "Finished") -> None:
    """What came of one injection; exit code 1 when it was silent or hung."""
    for name, value in finished.facts.to_json().items():
        typer.echo(f"{name:16} {value}")
    typer.echo(f"{'outcome':16} {finished.outcome}")
    leave(1 if finished.failed else 0)


def _show(summary: Mapping[str, Any]) -> None:
    from sim.faults.summary import table

    for line in table(summary["classes"]):
        typer.echo(line)
    if summary["longest_abort_cycles"]:
        typer.echo(f"an abort took {summary['longest_abort_cycles']:,} cycles at the most")
    for name, rows in groupby(summary["worst"], itemgetter("class")):
        for row in islice(rows, SHOWN_REGISTERS):
            ended = f"{row['silent']} silent, {row['hang']} hung of {row['injections']}"
            typer.echo(f"{name}: {ended} in {row['variable']}")
    for item in summary["failures"][:SHOWN_FAILURES]:
        print_error(f"{item['class']}: {item['outcome']}: {item['command']}")
