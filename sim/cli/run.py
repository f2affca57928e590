"""`t3rtl run`: one experiment, whatever its source. Each use is a command with the options that it honours."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sim.cli import choices, groups, options
from sim.cli.baseline import compared
from sim.cli.groups import Outputs, use
from sim.cli.recorded import Recorded, check_distinct
from sim.cli.rows import figure_lines, format_row, header
from sim.cli.sweep import STORE
from sim.cli.terminal import keep_results, leave, refuse, said_on_command_line, show_errors, stages
from sim.errors import UsageError, check_threads
from sim.experiments import catalogue
from sim.experiments.spec import Spec, label
from sim.experiments.spec_values import ARRAY, PROGRAM, TOPOLOGIES
from sim.experiments.user_arrays import chunk_elements, load_inputs, save_output
from sim.files import check_writable, keep
from sim.models import ONE_MODEL_CHANNELS
from sim.simulator.prerequisites import require_simulator, require_waves
from sim.workloads.program_plans import TILE_ORDERS


class Uses(TyperGroup):
    """The uses of `t3rtl run`; the name of a sub-layer, which has slashes, is short for `layer NAME`, and `--collective
    NAME` for `collective NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """As of any group of commands."""
        if "--collective" in args and args[0].startswith("--"):
            place = args.index("--collective")
            args = ["collective", *args[place + 1 : place + 2], *args[:place], *args[place + 2 :]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As of any group of commands."""
        return super().resolve_command(ctx, ["layer", *args] if "/" in args[0] else args)


run = typer.Typer(
    cls=Uses,
    help="""Run one experiment on the RTL and check it: every element in every bit, every counter.

    Say what is to run; each use has options of its own, which `t3rtl run USE --help` shows.

    Examples: t3rtl run shape --gpus 2 --shape 256 128 64, t3rtl run t-nlg/fc-2/tp8 --variant t3-mca""",
)


def execute(spec: Spec, outputs: Outputs, others: tuple[Path, ...] = ()) -> tuple[Any, Any]:
    """Run `spec`, show its figures, write `outputs`; the result, and what the ranks hold of the data. `others` are
    further files that the command will write."""
    results, waves, timeline, page, threads, baseline = outputs
    recorded = Recorded(timeline, page)
    check_threads(threads, 1 if spec.mirrored else spec.gpus, waves is not None, spec.hardware.lanes)
    if waves is not None and spec.hardware.channels > ONE_MODEL_CHANNELS:
        raise UsageError(
            f"waves are of at most {ONE_MODEL_CHANNELS} channels, this GPU has {spec.hardware.channels}: say, for "
            "example, --set channels=4 --set lanes=2"
        )
    require_simulator()
    read = [Path(spec.inputs)] if spec.inputs else [catalogue.trace_file(spec.trace)[0]] if spec.trace else []
    check_distinct(results, waves, *others, *recorded.files, read=read)
    for path in (results, *others, *recorded.files):
        check_writable(path)
    if waves is not None:
        require_waves()
        check_writable(waves)
    from sim.experiments.experiment import run_with_output
    from sim.experiments.regression import quiet

    title = spec.name if spec.compute in (ARRAY, PROGRAM) else label(spec)
    with stages(title) as progress, quiet():
        result, reduced = run_with_output(spec, progress, waves, recorded.writer, threads)
    if spec.compute in (ARRAY, PROGRAM):
        typer.echo(header())
        typer.echo(format_row(result))
    for line in figure_lines(result):
        typer.echo(line)
    show_errors([result])
    keep_results(results, [result])
    with stages(title) as progress, quiet():
        gained = compared(result, STORE, baseline, progress, threads)
    if gained is not None:
        typer.echo(f"  {'speedup':<22}{gained}")
    typer.echo(f"results: {results}")
    if waves is not None:
        typer.echo(f"waves: {waves}, a view of them for GTKWave: {waves.with_suffix('.gtkw')}")
    recorded.say(typer.echo)
    return result, reduced


def _run(spec: Spec, outputs: Outputs) -> None:
    """Run `spec`, and leave with what it says."""
    result, _ = execute(spec, outputs)
    leave(0 if result["passed"] else 1)


@run.command()
@use(groups.node, groups.stores, groups.in_detail, groups.waves, groups.outputs)
def shape(
    gpus: options.Gpus = 4,
    shape: options.Shape = (512, 256, 64),
    tile: options.Tile = (128, 128),
    schedule: options.Schedule = "staggered",
    alone: options.Alone = True,
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """Multiply real matrices on every GPU of a small ring and reduce-scatter the products.

    Example: t3rtl run shape --gpus 4 --shape 1024 512 128 --policy mca --threshold 10 --initial zeroing
    """
    own: dict[str, Any] = {"gpus": gpus, "shape": shape, "tile": tile, "schedule": schedule, "alone": alone}
    _run(catalogue.shape(name=f"ring-{gpus}", **own, **fields), outputs)


@run.command()
@use(groups.node, groups.stores, groups.in_detail, choices.variants, groups.beside, groups.waves, groups.outputs)
def collective(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A collective, see t3rtl list.", metavar="NAME")],
    gpus: options.Gpus = 4,
    wiring: Annotated[
        str, typer.Option("--topology", help=f"How they are joined: {' or '.join(TOPOLOGIES)}.", metavar="NAME")
    ] = TOPOLOGIES[0],
    shape: options.Shape = (384, 128, 64),
    tile: options.Tile = (32, 64),
    machine: Annotated[
        str,
        typer.Option(
            help="A machine, see t3rtl list: its square slice is simulated, shape and tile are the whole GPU's.",
            metavar="NAME",
        ),
    ] = "",
    host_bandwidth: Annotated[
        list[float] | None,
        typer.Option(
            help="GB/s of each link from the host, and once more of each to it if that is another.", metavar="GB/S"
        ),
    ] = None,
    tile_order: Annotated[
        str, typer.Option(help=f"In which order a GEMM takes its tiles: {', '.join(TILE_ORDERS)}.", metavar="NAME")
    ] = TILE_ORDERS[0],
    trace: Annotated[
        str,
        typer.Option(
            help="A recorded GEMM, whose workgroups begin and compute as they did, with --machine.",
            metavar="FILE.npz:KEY",
        ),
    ] = "",
    mode: options.Mode = "ring",
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """Any collective as a program, with the kernels that it is beside or part of, and real data. M rows has each of its
    arrays, K columns what a GEMM reads as it is gathered.

    Example: t3rtl run --collective ring-all-gather-gemm --topology ring --gpus 3 --shape 120 100 70 --gates fine
    """
    if not fields["independent"]:
        refuse(context, "there is no independent GEMM", "gemm_shape", "sharing")
    said = choices.chosen(context, name, **{option: fields.pop(option) for option in choices.VARIANTS})
    fields["gemm_shape"] = fields["gemm_shape"] or ()
    fields["host_bandwidth"] = tuple(host_bandwidth or ())
    fields["tile"] = tile if not machine or said_on_command_line(context, "tile") else None
    own: dict[str, Any] = {"shape": shape, "machine": machine, "tile_order": tile_order, "trace": trace, "mode": mode}
    _run(catalogue.collective(name, gpus, wiring=wiring, choices=said, **own, **fields), outputs)


@run.command()
@use(groups.cut, groups.gpu, groups.baseline, groups.outputs)
def layer(
    name: Annotated[str, typer.Argument(help="Sub-layer or recorded GEMM, see t3rtl list.", metavar="NAME")],
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """One sub-layer of the paper's Table 2, or a GEMM recorded on a GPU, at full size.

    Example: t3rtl run t-nlg/fc-2/tp8 --variant t3-mca --mode ring
    """
    _run(catalogue.layer(name, **fields), outputs)


@run.command()
@use(groups.cut, groups.gpu, groups.baseline, groups.outputs)
def gemm(shape: options.Shape, tp: options.Tp = 8, *, outputs: Outputs, **fields: Any) -> None:
    """A GEMM of your own at full size, workgroup by workgroup, its times by the model of the paper's machine.

    Example: t3rtl run gemm --shape 4096 5120 640 --tp 8 --variant sequential
    """
    _run(catalogue.own(shape, tp, **fields), outputs)


@run.command()
@use(groups.gpu, groups.baseline, groups.outputs)
def trace(
    trace: Annotated[
        str, typer.Argument(help="Recorded GEMM, see sim/workloads/recorded_trace.py.", metavar="FILE.npz:KEY")
    ],
    shape: options.Shape,
    tp: options.Tp = 8,
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """A GEMM whose workgroups run in the order and for the time that was recorded on a GPU, at full size.

    Compute units are those of the communication kernels: the trace has its own.

    Example: t3rtl run trace sim/workloads/data/h200_gemm_traces.npz:tnlg_fc2_tp8 --shape 8192 4256 2128 --tp 8
    """
    catalogue.trace_file(trace)
    _run(catalogue.own(shape, tp, trace=trace, **fields), outputs)


@run.command()
@use(groups.node, groups.in_detail, groups.waves, groups.results, groups.outputs)
def arrays(
    inputs: Annotated[
        Path, typer.Option(help="npz file with an array x of shape (N, elements), N = 2, 3, 4, 8 or 16.")
    ],
    dtype: options.Dtype,
    out: Annotated[Path, typer.Option(help="npz file for y of shape (N, elements/N): row r is what rank r holds.")],
    op: options.Operation = "add",
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """Reduce-scatter your own arrays, in NCCL's ring order.

    x holds bit patterns (integers as wide as the type), or float16 for fp16, float32 for fp32, float32 for bf16
    (rounded to nearest even). y comes back in the type of x, and is written only when it equals the golden model.

    Example: t3rtl run arrays --inputs x.npz --dtype fp16 --op add --out y.npz
    """
    array = load_inputs(inputs, dtype)
    spec = catalogue.arrays(inputs, dtype, name=inputs.name, op=op, **fields)
    result, reduced = execute(spec, outputs, (out,))
    if result["passed"]:
        ranks, elements = array.patterns.shape
        y = array.restored(chunk_elements(reduced, elements // ranks))
        keep(out, lambda path: save_output(path, y))
        typer.echo(f"{ranks} x {elements} {dtype} reduced by {op} in {result['cycles']:,} cycles; y is in {out}")
    leave(0 if result["passed"] else 1)
