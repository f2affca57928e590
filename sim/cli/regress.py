"""`t3rtl regress` and `t3rtl bench`: the end-to-end scenarios, and how fast they are simulated."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from sim.cli import options
from sim.cli.rows import format_row, header, summary
from sim.cli.terminal import counted_columns, errors, keep_results, leave, print_error, refuse, say, show_errors, stages
from sim.errors import UsageError, check_processes, check_threads
from sim.experiments.catalogue import shape as experiment
from sim.experiments.results import Result, exit_code
from sim.experiments.spec import Spec
from sim.files import check_writable
from sim.simulator.machine import processors
from sim.simulator.prerequisites import require_simulator

MOST_THREADS = 64


def regress(
    out: Annotated[Path, typer.Option(help="File of the results.", metavar="FILE.json")] = Path(
        "build/sim/results.json"
    ),
    only: Annotated[str, typer.Option(help="Only scenarios whose name contains this.", metavar="TEXT")] = "",
    processes: options.Processes = 2,
    threads: Annotated[
        int, typer.Option(help="Threads that advance the GPUs of one scenario; 0: all cores.", metavar="COUNT")
    ] = 1,
) -> None:
    """Run the end-to-end scenarios, one row each, and end in a summary line.

    Example: t3rtl regress --only policy
    """
    check_processes(processes)
    check_threads(threads, MOST_THREADS)
    from sim.experiments.scenarios import SCENARIOS

    chosen = [scenario for scenario in SCENARIOS if only in scenario.name]
    if not chosen:
        raise UsageError(
            f"no scenario's name contains {only!r}; there are {', '.join(item.name for item in SCENARIOS)}"
        )
    require_simulator()
    check_writable(out)
    from sim.experiments.regression import run_all

    started = time.monotonic()
    results: dict[int, Result] = {}
    typer.echo(header())
    with Progress(*counted_columns(), console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("scenarios", total=len(chosen))
        for index, result in run_all(chosen, processes, say, threads):
            results[index] = result
            typer.echo(format_row(result))
            bar.advance(task)
    ordered = [results[index] for index in range(len(chosen))]
    show_errors(ordered)
    typer.echo(summary(ordered, time.monotonic() - started))
    keep_results(out, ordered)
    typer.echo(f"results: {out}")
    leave(exit_code(ordered))


def bench(
    context: typer.Context,
    gpus: options.Gpus = 4,
    shape: options.Shape = (4096, 512, 128),
    preset: options.Preset = "paper",
    minimum: Annotated[float, typer.Option(help="Fail below this speed, kcycles/s.", metavar="SPEED")] = 0.0,
    repeat: Annotated[int, typer.Option(help="Runs; the fastest counts.", metavar="COUNT")] = 3,
    threads: options.Threads = 0,
    profile: Annotated[bool, typer.Option("--profile", help="Where the time goes, by part, instead.")] = False,
    out: options.Results = Path("build/bench/results.json"),
) -> None:
    """Measure simulation speed: thousands of cycles of the whole ring a second, of wall time and of processor time,
    with all data on.

    Examples: t3rtl bench --gpus 4 --threads 2 --minimum 100, t3rtl bench --profile
    """
    if not 1 <= repeat <= 100:
        raise UsageError(f"repeat must be from 1 to 100, got {repeat}")
    spec = experiment(name=f"bench-{gpus}", gpus=gpus, shape=shape, preset=preset)
    check_threads(threads, gpus)
    if profile:
        refuse(context, "one profiled run on one thread leaves no result", "minimum", "repeat", "threads", "out")
        require_simulator()
        _profile(spec)
        return
    require_simulator()
    check_writable(out)
    from sim.experiments.regression import run_all

    results = []
    with stages("bench") as progress:
        for number in range(repeat):
            progress(f"run {number + 1} of {repeat}")
            results += [result for _, result in run_all([spec], processes=1, tell=progress, threads=threads)]
    best = max(results, key=lambda result: result.get("kilocycles_per_second", 0.0))
    speed, cycles = best.get("kilocycles_per_second", 0.0), best.get("cycles", 0)
    show_errors(results)
    per_processor = best.get("kilocycles_per_processor_second", 0.0)
    typer.echo(
        f"{gpus} GPUs, preset {preset}, threads {min(threads or processors(), gpus)}: {speed:,.0f} kcycles/s, "
        f"{per_processor:,.0f} per second of processor time "
        f"(best of {repeat}, {cycles:,} cycles)"
    )
    if speed < minimum:
        print_error(f"slower than {minimum:g} kcycles/s")
    keep_results(out, [best])
    leave(exit_code(results) or int(speed < minimum))


def _profile(spec: Spec) -> None:
    """Say what share of one thread's time each part of `spec` takes, and how fast it would be alone."""
    from sim.experiments.experiment import simulate
    from sim.experiments.regression import quiet

    with stages("bench") as progress, quiet():
        outcome, _ = simulate(spec, progress=progress, profiled=True)
    cycles, total = max(status["done_cycles"] for status in outcome.ranks), sum(outcome.profile.values())
    typer.echo(f"{spec.gpus} GPUs, preset {spec.preset}: {cycles:,} cycles in {total:.2f} s of processor time")
    for part, seconds in outcome.profile.items():
        share, speed = 100 * seconds / total, cycles / seconds / 1000
        typer.echo(f"{part:<45} {seconds:7.2f} s {share:6.1f} % {speed:12,.0f} kcycles/s")
