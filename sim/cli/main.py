"""The command `t3rtl`. Exit code 0 only when the result is right, 1 when it is wrong, 2 for bad input.

Bad input is one sentence on standard error. What needs the simulator is imported inside the commands, so that help,
lists and refusals come at once.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hw.config import PRESETS
from sim.cli import options
from sim.cli.alternatives import alternatives
from sim.cli.dram_trace import dram_trace
from sim.cli.report import report
from sim.cli.sweep import sweep
from sim.cli.synth import synth
from sim.cli.terminal import counted_columns, errors, finish, show_complaints, stages
from sim.cli.workload import calibrate, run_trace, workload
from sim.errors import UsageError, check_folder, check_processes
from sim.experiments.request import (
    OPERATIONS,
    POLICIES,
    THRESHOLDS,
    RingRequest,
    chunk_elements,
    configuration,
    parse_settings,
    reduce_request,
)
from sim.experiments.results import ScenarioResult, figure_lines, format_row, header, summary, write_results
from sim.experiments.user_arrays import DTYPES, load_inputs, save_output
from sim.files import check_writable
from sim.simulator.prerequisites import require_simulator, require_waves
from sim.workloads.table import WORKLOADS

SHOWN_MISMATCHES = 10

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""T3 (Track & Trigger) as hardware: GEMM overlapped with ring reduce-scatter, in RTL, bit for bit.

    Start with [bold]t3rtl run --gpus 2 --shape 256 128 64[/bold], then [bold]t3rtl list[/bold].
    Exit code: 0 the result is right, 1 it is wrong, 2 bad input.""",
)


@app.command()
def run(
    gpus: options.Gpus = 4,
    shape: options.Shape = (512, 256, 64),
    preset: options.Preset = "paper",
    policy: options.Policy = "mca",
    threshold: options.Threshold = "auto",
    dtype: options.Dtype = "fp16",
    op: options.Operation = "add",
    tile: options.Tile = (128, 128),
    wfs: options.Wavefronts = 8,
    dma_block: options.DmaBlock = 0,
    direction: options.Direction = "cw",
    initial: options.Initial = "first-touch",
    pauses: options.Pauses = 0,
    schedule: options.Schedule = "staggered",
    seed: options.Seed = 1,
    starvation_limit: options.StarvationLimit = 2000,
    alone: options.Alone = True,
    settings: options.Set = None,
    waves: options.Waves = None,
    out: options.Results = Path("build/run/results.json"),
    bug: options.Bug = "",
    trace: options.Trace = "",
    tp: options.Tp = 8,
) -> None:
    """Multiply real matrices on every GPU and reduce-scatter the products through the RTL.

    Every element is compared with the golden model in every bit, every counter with its closed form.

    With --trace, workgroups run as they were recorded on a GPU: one GPU of --tp, at full size, mirrored.

    Example: t3rtl run --gpus 4 --shape 1024 512 128 --policy mca --threshold 10 --initial zeroing

    Example: t3rtl run --trace sim/workloads/data/h200_gemm_traces.npz:tnlg_fc2_tp8 --shape 8192 4256 2128 --tp 8
    """
    if trace:
        run_trace(trace, (*shape, tp), policy, threshold, starvation_limit, out)
    request = RingRequest(
        gpus=gpus,
        shape=shape,
        preset=preset,
        policy=policy,
        threshold=threshold,
        dtype=dtype,
        op=op,
        tile=tile,
        wfs=wfs,
        dma_block=dma_block,
        direction=direction,
        initial=initial,
        pauses=pauses,
        schedule=schedule,
        seed=seed,
        starvation_limit=starvation_limit,
        alone=alone,
        bug=bug,
        waves=waves,
        settings=parse_settings(settings or []),
    )
    require_simulator()
    check_writable(out)
    if waves is not None:
        require_waves()
        check_writable(waves)
    from sim.experiments.regression import quiet
    from sim.experiments.run import run_ring

    with stages("ring") as progress, quiet():
        result = run_ring(request, progress)
    write_results(out, [result])
    typer.echo(header())
    typer.echo(format_row(result))
    for line in figure_lines(result):
        typer.echo(line)
    show_complaints([result])
    typer.echo(f"results: {out}")
    finish(result.passed)


@app.command()
def reduce(
    inputs: Annotated[
        Path, typer.Option(help="npz file with an array x of shape (N, elements), N = 2, 3, 4, 8 or 16.")
    ],
    dtype: options.Dtype,
    out: Annotated[Path, typer.Option(help="npz file for y of shape (N, elements/N): row r is what rank r holds.")],
    op: options.Operation = "add",
    preset: options.Preset = "paper",
    policy: options.Policy = "mca",
    results: Annotated[Path | None, typer.Option(help="Also write the figures of the run to this JSON file.")] = None,
    bug: options.Bug = "",
) -> None:
    """Reduce-scatter your own arrays through the RTL, in NCCL's ring order.

    x holds bit patterns (integers as wide as the type), or float16 for fp16, float32 for fp32, float32 for bf16
    (rounded to nearest even). y comes back in the type of x, and is written only when it equals the golden model.

    Example: t3rtl reduce --inputs x.npz --dtype fp16 --op add --out y.npz
    """
    array = load_inputs(inputs, dtype)
    request = reduce_request(array.patterns, dtype, op=op, preset=preset, policy=policy, bug=bug)
    require_simulator()
    check_writable(out)
    if results is not None:
        check_writable(results)
    from sim.experiments.regression import quiet
    from sim.experiments.run import run_ring_with_output

    with stages("reduce") as progress, quiet():
        result, reduced = run_ring_with_output(request, progress)
    if results is not None:
        write_results(results, [result])
    show_complaints([result])
    if result.passed:
        ranks, elements = array.patterns.shape
        save_output(out, array.restored(chunk_elements(reduced, elements // ranks)))
        typer.echo(f"{ranks} x {elements} {dtype} reduced by {op} in {result.cycles:,} cycles; y is in {out}")
    finish(result.passed)


@app.command()
def vectors(
    file: Annotated[Path, typer.Argument(help="Berkeley TestFloat lines: A B Z FLAGS, hexadecimal.", metavar="FILE")],
    dtype: options.Dtype = "fp16",
    op: options.Operation = "add",
) -> None:
    """Drive test vectors through the RTL of the near-bank ALU and report mismatches in Z.

    Example: testfloat_gen f16_add > f16_add.txt; t3rtl vectors --dtype fp16 --op add f16_add.txt
    """
    for name, value, allowed in (("dtype", dtype, DTYPES), ("op", op, OPERATIONS)):
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    if not file.is_file():
        raise UsageError(f"{file} does not exist or is not a file")
    require_simulator()
    from sim.benches.vectors import run_vectors

    try:
        with stages("vectors"):
            count, mismatches = run_vectors(file, dtype, op)
    except (ValueError, OSError) as error:
        raise UsageError(f"{file}: {error}") from error
    for line, a, b, expected, got in mismatches[:SHOWN_MISMATCHES]:
        typer.echo(f"line {line}: {a:X} {op} {b:X} gives {got:X}, not {expected:X}")
    if len(mismatches) > SHOWN_MISMATCHES:
        typer.echo(f"and {len(mismatches) - SHOWN_MISMATCHES} more")
    typer.echo(f"{count} vectors, {len(mismatches)} mismatches")
    finish(not mismatches)


@app.command()
def verilog(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("build/verilog"),
    preset: options.Preset = "paper",
    settings: options.Set = None,
) -> None:
    """Write the node as Verilog, with a file list and a JSON of parameters, ports and counters.

    Example: t3rtl verilog --preset quad --out build/quad
    """
    config = configuration(preset, parse_settings(settings or []))
    check_folder(out)
    from hw.export.exporter import export

    try:
        with stages("verilog"):
            files = export(config, out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror})") from error
    for path in files:
        typer.echo(str(path))


@app.command("list")
def show_list(
    as_json: Annotated[bool, typer.Option("--json", help="For programs instead of people.")] = False,
) -> None:
    """Show presets, workloads and policies."""
    presets = {
        name: {
            "channels": config.channels,
            "dram_queue_depth": config.dram_queue_depth,
            "tracker_entries": config.tracker_sets * config.tracker_ways,
            "link_bandwidth": config.link_bandwidth,
            "link_latency": config.link_latency,
        }
        for name, config in PRESETS.items()
    }
    workloads = [
        {
            "name": work.name,
            "model": work.model,
            "sublayer": work.sublayer,
            "tp": work.tp,
            "m": work.m,
            "n": work.n,
            "k": work.k,
        }
        for work in WORKLOADS
    ]
    if as_json:
        typer.echo(
            json.dumps(
                {"presets": presets, "workloads": workloads, "policies": POLICIES, "thresholds": THRESHOLDS}, indent=1
            )
        )
        return
    console = Console(highlight=False)
    table = Table("preset", "channels", "DRAM queue", "Tracker entries", "link GB/s", "link latency", title="Presets")
    for name, values in presets.items():
        table.add_row(name, *(f"{value:g}" for value in values.values()))
    console.print(table)
    table = Table("workload", "model", "sub-layer", "TP", "M", "N", "K", title="Workloads (Table 2 of the paper)")
    for entry in workloads:
        table.add_row(*map(str, entry.values()))
    console.print(table)
    console.print(f"Policies: {', '.join(POLICIES)}; thresholds of mca: {', '.join(THRESHOLDS)}")


@app.command()
def regress(
    out: Annotated[Path, typer.Option(help="File of the results, a list.")] = Path("build/sim/results.json"),
    only: Annotated[str, typer.Option(help="Only scenarios whose name contains this.", metavar="TEXT")] = "",
    processes: Annotated[int, typer.Option("--processes", "-j", help="Scenarios at a time.")] = 2,
) -> None:
    """Run the end-to-end scenarios, one row each, and end in a summary line.

    Example: t3rtl regress --only nccl
    """
    check_processes(processes)
    require_simulator()
    check_writable(out)
    from sim.experiments.regression import run_all
    from sim.experiments.scenarios import SCENARIOS

    chosen = [scenario for scenario in SCENARIOS if only in scenario.name]
    if not chosen:
        raise UsageError(
            f"no scenario's name contains {only!r}; there are {', '.join(item.name for item in SCENARIOS)}"
        )
    started = time.monotonic()
    results: dict[int, ScenarioResult] = {}
    typer.echo(header())
    with Progress(*counted_columns(), console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("scenarios", total=len(chosen))
        for index, result in run_all(chosen, processes):
            results[index] = result
            typer.echo(format_row(result))
            bar.advance(task)
    ordered = [results[index] for index in range(len(chosen))]
    write_results(out, ordered)
    show_complaints(ordered)
    typer.echo(f"results: {out}")
    typer.echo(summary(ordered, time.monotonic() - started))
    finish(all(result.passed for result in ordered))


@app.command()
def bench(
    gpus: options.Gpus = 4,
    shape: options.Shape = (4096, 512, 128),
    preset: options.Preset = "paper",
    minimum: Annotated[float, typer.Option(help="Fail below this speed, kcycles/s.")] = 0.0,
    repeat: Annotated[int, typer.Option(help="Runs; the fastest counts.")] = 3,
    out: Annotated[Path, typer.Option(help="File of the results.")] = Path("build/bench/results.json"),
) -> None:
    """Measure simulation speed: thousands of cycles of the whole ring a second, on one core, with all data on.

    Example: t3rtl bench --gpus 4 --minimum 100
    """
    if not 1 <= repeat <= 100:
        raise UsageError(f"repeat must be from 1 to 100, got {repeat}")
    request = RingRequest(name=f"bench-{gpus}", gpus=gpus, shape=shape, preset=preset)
    require_simulator()
    check_writable(out)
    from sim.experiments.regression import run_all

    results = []
    with stages("bench") as progress:
        for number in range(repeat):
            progress(f"run {number + 1} of {repeat}")
            results += [result for _, result in run_all([request], processes=1)]
    best = max(results, key=lambda result: result.kilocycles_per_second or 0.0)
    write_results(out, [best])
    show_complaints(results)
    speed = best.kilocycles_per_second or 0.0
    typer.echo(f"{gpus} GPUs, preset {preset}: {speed:,.0f} kcycles/s (best of {repeat}, {best.cycles:,} cycles)")
    if speed < minimum:
        errors.print(f"slower than {minimum:g} kcycles/s", style="red")
    finish(all(result.passed for result in results) and speed >= minimum)


app.command("dram-trace")(dram_trace)
app.command("sweep")(sweep)
app.command("synth")(synth)
app.command("alternatives")(alternatives)
app.command("report")(report)
app.command("workload")(workload)
app.command("calibrate")(calibrate)


def command_line(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. Errors have been printed."""
    try:
        return app(list(arguments) or ["--help"], prog_name="t3rtl", standalone_mode=False) or 0
    except UsageError as error:
        return _refuse(str(error))
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from sim.errors import SimulationError

        if isinstance(error, SimulationError):
            errors.print(f"t3rtl: {error}", style="red", markup=False, soft_wrap=True)
            return 1
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _refuse(message())


def _refuse(sentence: str) -> int:
    """Print `sentence` as one line on standard error; 2."""
    print(f"t3rtl: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def main() -> None:
    """Entry point of the command `t3rtl`."""
    sys.exit(command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
