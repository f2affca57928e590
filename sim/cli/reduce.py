"""`t3rtl reduce`: a collective call on a user's own arrays."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import options
from sim.cli.recorded import Recorded
from sim.cli.run import OUT, execute
from sim.cli.terminal import leave
from sim.errors import UsageError
from sim.experiments import catalogue
from sim.experiments.spec import TOPOLOGIES
from sim.experiments.tensors import CALLS, load_tensors
from sim.experiments.user_arrays import save_output
from sim.files import keep


def reduce(
    inputs: Annotated[Path, typer.Option(help="npz file with an array x of shape (N, ...): x[r] is rank r's tensor.")],
    dtype: options.Dtype,
    out: Annotated[Path, typer.Option(help="npz file for y: row r is what rank r gets.")],
    collective: Annotated[str, typer.Option(help=f"The call: {', '.join(CALLS)}.", metavar="NAME")] = "reduce-scatter",
    topology: Annotated[str, typer.Option(help=f"How they are joined: {' or '.join(TOPOLOGIES)}.", metavar="NAME")] = (
        TOPOLOGIES[0]
    ),
    op: options.Operation = "add",
    preset: options.Preset = "paper",
    policy: options.Policy = "paced",
    threshold: options.Threshold = "auto",
    settings: options.Set = None,
    waves: options.Waves = None,
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    results: options.Results = OUT,
) -> None:
    """Reduce, gather or exchange your own arrays as PyTorch's reduce_scatter_tensor, all_gather_into_tensor, all_reduce
    or all_to_all_single does, in their layouts.

    x holds bit patterns (integers as wide as the type), or float16 for fp16, float32 for fp32, float32 for bf16
    (rounded to nearest even). y comes back in the type of x, and is written only when it is the call's definition's.

    Example: t3rtl reduce --collective all-reduce --inputs x.npz --dtype fp16 --out y.npz
    """
    tensors = load_tensors(inputs, dtype, collective)
    spec = catalogue.tensors(
        inputs,
        dtype,
        collective,
        topology,
        op,
        name=inputs.name,
        preset=preset,
        policy=policy,
        threshold=threshold,
        settings=catalogue.settings(settings),
    )
    if out.resolve() == results.resolve():
        raise UsageError("--out and --results must be two files")
    result, held = execute(spec, results, waves, (out,), Recorded(timeline, html), threads=threads)
    if not result["passed"]:
        leave(1)
    y = tensors.result(held)
    if not (y == tensors.golden(dtype, op)).all():
        typer.echo(f"{collective} left what it should by its program, but not by its definition", err=True)
        leave(1)
    keep(out, lambda path: save_output(path, tensors.array.restored(y)))
    typer.echo(f"{collective} of {tensors.array.patterns.shape} {dtype} in {result['cycles']:,} cycles; y is in {out}")
    leave(0)
