"""`t3rtl run`: one experiment, whatever its source. Each use is a command with the options that it honours."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sim.cli import choices, options
from sim.cli.baseline import compared
from sim.cli.recorded import NOT_RECORDED, Recorded, check_distinct
from sim.cli.rows import figure_lines, format_row, header
from sim.cli.sweep import STORE
from sim.cli.terminal import keep_results, leave, refuse, said_on_command_line, show_errors, stages
from sim.errors import UsageError, check_threads
from sim.experiments import catalogue
from sim.experiments.spec import ARRAY, PROGRAM, SHARING, TOPOLOGIES, Spec, label
from sim.experiments.user_arrays import chunk_elements, load_inputs, save_output
from sim.files import check_writable, keep
from sim.models import ONE_MODEL_CHANNELS
from sim.simulator.prerequisites import require_simulator, require_waves
from sim.workloads.program_plans import TILE_ORDERS

OUT = Path("build/run/results.json")


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


def execute(
    spec: Spec,
    results: Path,
    waves: Path | None = None,
    others: tuple[Path, ...] = (),
    recorded: Recorded = NOT_RECORDED,
    baseline: bool = False,
    threads: int = 0,
) -> tuple[Any, Any]:
    """Run `spec`, show its figures, write them to `results`; the result, and what the ranks hold of the data. `others`
    are further files that the command will write, `recorded` those of its timeline. With
    `baseline`, what it is compared with is run too if that was not done before. GPUs are advanced on so many `threads`
    (0: on all cores)."""
    check_threads(threads, 1 if spec.mirrored else spec.gpus, waves is not None, spec.hardware.lanes)
    if waves is not None and spec.hardware.channels > ONE_MODEL_CHANNELS:
        raise UsageError(
            f"waves are of at most {ONE_MODEL_CHANNELS} channels, this GPU has {spec.hardware.channels}: say, for "
            "example, --set channels=4 --set lanes=2"
        )
    require_simulator()
    check_distinct(results, waves, *others, *recorded.files)
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


@run.command()
def shape(
    gpus: options.Gpus = 4,
    shape: options.Shape = (512, 256, 64),
    preset: options.Preset = "paper",
    policy: options.Policy = "paced",
    threshold: options.Threshold = "auto",
    dtype: options.Dtype = "fp16",
    op: options.Operation = "add",
    tile: options.Tile = (128, 128),
    wfs: options.Wavefronts = 8,
    dma_block: options.DmaBlock = 0,
    direction: options.Direction = "cw",
    initial: options.Initial = "first-touch",
    stalls: options.Stalls = 0,
    bit_errors: options.BitErrors = 0.0,
    schedule: options.Schedule = "staggered",
    seed: options.Seed = 1,
    starvation_limit: options.StarvationLimit = 2000,
    watchdog: options.Watchdog = 0,
    alone: options.Alone = True,
    settings: options.Set = None,
    waves: options.Waves = None,
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    out: options.Results = OUT,
    bug: options.Bug = "",
) -> None:
    """Multiply real matrices on every GPU of a small ring and reduce-scatter the products.

    Example: t3rtl run shape --gpus 4 --shape 1024 512 128 --policy mca --threshold 10 --initial zeroing
    """
    spec = catalogue.shape(
        policy,
        threshold,
        name=f"ring-{gpus}",
        gpus=gpus,
        shape=shape,
        preset=preset,
        dtype=dtype,
        op=op,
        tile=tile,
        wfs=wfs,
        dma_block=dma_block,
        direction=direction,
        initial=initial,
        stalls=stalls,
        bit_errors=bit_errors,
        schedule=schedule,
        seed=seed,
        starvation_limit=starvation_limit,
        watchdog=watchdog,
        alone=alone,
        settings=catalogue.settings(settings),
        bug=bug,
    )
    result, _ = execute(spec, out, waves, recorded=Recorded(timeline, html), threads=threads)
    leave(0 if result["passed"] else 1)


@run.command()
def collective(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A collective, see t3rtl list.", metavar="NAME")],
    gpus: options.Gpus = 4,
    wiring: Annotated[
        str, typer.Option("--topology", help=f"How they are joined: {' or '.join(TOPOLOGIES)}.", metavar="NAME")
    ] = TOPOLOGIES[0],
    shape: options.Shape = (384, 128, 64),
    preset: options.Preset = "paper",
    policy: options.Policy = "paced",
    threshold: options.Threshold = "auto",
    dtype: options.Dtype = "fp16",
    op: options.Operation = "add",
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
    wfs: options.Wavefronts = 8,
    dma_block: options.DmaBlock = 0,
    tile_order: Annotated[
        str, typer.Option(help=f"In which order a GEMM takes its tiles: {', '.join(TILE_ORDERS)}.", metavar="NAME")
    ] = TILE_ORDERS[0],
    direction: options.Direction = "cw",
    initial: options.Initial = "first-touch",
    pieces: choices.Pieces = None,
    splits: choices.Splits = None,
    residual: choices.Residual = False,
    gates: choices.Gates = None,
    root: choices.Root = None,
    naive: choices.Naive = False,
    copied: choices.Copied = False,
    alike: choices.Alike = False,
    lying: choices.Lying = False,
    spread: choices.Spread = False,
    straight: choices.Straight = False,
    units: choices.Units = None,
    mode: options.Mode = "ring",
    independent: Annotated[
        bool, typer.Option("--independent", help="Run a GEMM that has nothing to do with it beside it.")
    ] = False,
    gemm_shape: Annotated[
        tuple[int, int, int] | None, typer.Option(help="Of that GEMM, if not that of the arrays.", metavar="M N K")
    ] = None,
    sharing: Annotated[
        str,
        typer.Option(help=f"On whose compute units a kernel that copies runs: {', '.join(SHARING)}.", metavar="NAME"),
    ] = "own",
    stalls: options.Stalls = 0,
    bit_errors: options.BitErrors = 0.0,
    seed: options.Seed = 1,
    starvation_limit: options.StarvationLimit = 2000,
    watchdog: options.Watchdog = 0,
    settings: options.Set = None,
    waves: options.Waves = None,
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    out: options.Results = OUT,
    bug: options.Bug = "",
) -> None:
    """Any collective as a program, with the kernels that it is beside or part of, and real data. M rows has each of its
    arrays, K columns what a GEMM reads as it is gathered.

    Example: t3rtl run --collective ring-all-gather-gemm --topology ring --gpus 3 --shape 120 100 70 --gates fine
    """
    if not independent:
        refuse(context, "there is no independent GEMM", "gemm_shape", "sharing")
    said = choices.chosen(
        context,
        name,
        pieces=pieces,
        splits=splits,
        residual=residual or None,
        gates=gates,
        root=root,
        naive=naive or None,
        copied=copied or None,
        alike=alike or None,
        lying=lying or None,
        spread=spread or None,
        straight=straight or None,
        units=units,
    )
    spec = catalogue.collective(
        name,
        gpus,
        policy,
        threshold,
        wiring,
        said,
        shape=shape,
        preset=preset,
        dtype=dtype,
        op=op,
        tile=tile if not machine or said_on_command_line(context, "tile") else None,
        machine=machine,
        host_bandwidth=tuple(host_bandwidth or ()),
        wfs=wfs,
        dma_block=dma_block,
        tile_order=tile_order,
        mode=mode,
        independent=independent,
        gemm_shape=gemm_shape or (),
        sharing=sharing,
        direction=direction,
        initial=initial,
        stalls=stalls,
        bit_errors=bit_errors,
        seed=seed,
        starvation_limit=starvation_limit,
        watchdog=watchdog,
        settings=catalogue.settings(settings),
        bug=bug,
    )
    result, _ = execute(spec, out, waves, recorded=Recorded(timeline, html), threads=threads)
    leave(0 if result["passed"] else 1)


def _shared(
    variant: options.Variant = "t3-paced",
    mode: options.Mode = "mirrored",
    link_bandwidth: options.LinkBandwidth = 75.0,
    compute_units: options.ComputeUnits = 80,
    channels: options.Channels = 1,
    starvation_limit: options.StarvationLimit = 2000,
    watchdog: options.Watchdog = 0,
    tracker_ways: options.TrackerWays = 8,
    prefetch: options.Prefetch = 1,
    reads_under_way: options.ReadsUnderWay = 0,
    communication_units: options.CommunicationUnits = 0,
    communication_bandwidth: options.CommunicationBandwidth = 0.0,
    seed: options.Seed = 1,
    settings: options.Set = None,
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    baseline: options.Baseline = True,
    out: options.Results = OUT,
) -> None:
    """The options of every use at full size. All but `settings`, `threads`, files are of the spec, or its variant."""


def full_size(use: Callable[..., Spec]) -> Callable[..., None]:
    """Command of a use at full size: `use` makes the spec of its own parameters and of `machine`, the shared ones."""
    own = [item for item in signature(use).parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
    parameters = [*own, *signature(_shared).parameters.values()]

    def command(
        settings: list[str] | None,
        threads: int,
        timeline: Path | None,
        html: Path | None,
        baseline: bool,
        out: Path,
        **fields: Any,
    ) -> None:
        spec = use(settings=catalogue.settings(settings), **fields)
        result, _ = execute(spec, out, recorded=Recorded(timeline, html), baseline=baseline, threads=threads)
        leave(0 if result["passed"] else 1)

    command.__name__, command.__doc__ = use.__name__, use.__doc__
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run.command()(command)


@full_size
def layer(
    name: Annotated[str, typer.Argument(help="Sub-layer or recorded GEMM, see t3rtl list.", metavar="NAME")],
    tile_order: options.TileOrder = "tuned",
    workgroups_per_unit: options.WorkgroupsPerUnit = 1,
    **machine: Any,
) -> Spec:
    """One sub-layer of the paper's Table 2, or a GEMM recorded on a GPU, at full size.

    Example: t3rtl run t-nlg/fc-2/tp8 --variant t3-mca --mode ring
    """
    return catalogue.layer(name, tile_order=tile_order, workgroups_per_unit=workgroups_per_unit, **machine)


@full_size
def gemm(
    shape: options.Shape,
    tp: options.Tp = 8,
    tile_order: options.TileOrder = "tuned",
    workgroups_per_unit: options.WorkgroupsPerUnit = 1,
    **machine: Any,
) -> Spec:
    """A GEMM of your own at full size, workgroup by workgroup, its times by the model of the paper's machine.

    Example: t3rtl run gemm --shape 4096 5120 640 --tp 8 --variant sequential
    """
    return catalogue.own(shape, tp, tile_order=tile_order, workgroups_per_unit=workgroups_per_unit, **machine)


@full_size
def trace(
    trace: Annotated[
        str, typer.Argument(help="Recorded GEMM, see sim/workloads/recorded_trace.py.", metavar="FILE.npz:KEY")
    ],
    shape: options.Shape,
    tp: options.Tp = 8,
    **machine: Any,
) -> Spec:
    """A GEMM whose workgroups run in the order and for the time that was recorded on a GPU, at full size.

    Compute units are those of the communication kernels: the trace has its own.

    Example: t3rtl run trace sim/workloads/data/h200_gemm_traces.npz:tnlg_fc2_tp8 --shape 8192 4256 2128 --tp 8
    """
    catalogue.trace_file(trace)
    return catalogue.own(shape, tp, trace=trace, **machine)


@run.command()
def arrays(
    inputs: Annotated[
        Path, typer.Option(help="npz file with an array x of shape (N, elements), N = 2, 3, 4, 8 or 16.")
    ],
    dtype: options.Dtype,
    out: Annotated[Path, typer.Option(help="npz file for y of shape (N, elements/N): row r is what rank r holds.")],
    op: options.Operation = "add",
    preset: options.Preset = "paper",
    policy: options.Policy = "paced",
    threshold: options.Threshold = "auto",
    direction: options.Direction = "cw",
    watchdog: options.Watchdog = 0,
    settings: options.Set = None,
    waves: options.Waves = None,
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    results: options.Results = OUT,
    bug: options.Bug = "",
) -> None:
    """Reduce-scatter your own arrays, in NCCL's ring order.

    x holds bit patterns (integers as wide as the type), or float16 for fp16, float32 for fp32, float32 for bf16
    (rounded to nearest even). y comes back in the type of x, and is written only when it equals the golden model.

    Example: t3rtl run arrays --inputs x.npz --dtype fp16 --op add --out y.npz
    """
    array = load_inputs(inputs, dtype)
    spec = catalogue.arrays(
        inputs,
        dtype,
        policy,
        threshold,
        name=inputs.name,
        op=op,
        preset=preset,
        direction=direction,
        watchdog=watchdog,
        settings=catalogue.settings(settings),
        bug=bug,
    )
    result, reduced = execute(spec, results, waves, (out,), Recorded(timeline, html), threads=threads)
    if result["passed"]:
        ranks, elements = array.patterns.shape
        y = array.restored(chunk_elements(reduced, elements // ranks))
        keep(out, lambda path: save_output(path, y))
        typer.echo(f"{ranks} x {elements} {dtype} reduced by {op} in {result['cycles']:,} cycles; y is in {out}")
    leave(0 if result["passed"] else 1)
