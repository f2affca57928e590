"""`t3rtl reduce`: a collective call on a user's own arrays."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli import groups, options
from sim.cli.groups import Outputs, use
from sim.cli.run import execute
from sim.cli.terminal import leave
from sim.experiments import catalogue
from sim.experiments.spec_values import TOPOLOGIES
from sim.experiments.tensors import CALLS, load_tensors
from sim.experiments.user_arrays import save_output
from sim.files import keep


@use(groups.node, groups.waves, groups.results, groups.outputs)
def reduce(
    inputs: Annotated[Path, typer.Option(help="npz file with an array x of shape (N, ...): x[r] is rank r's tensor.")],
    dtype: options.Dtype,
    out: Annotated[Path, typer.Option(help="npz file for y: row r is what rank r gets.")],
    collective: Annotated[str, typer.Option(help=f"The call: {', '.join(CALLS)}.", metavar="NAME")] = "reduce-scatter",
    topology: Annotated[str, typer.Option(help=f"How they are joined: {' or '.join(TOPOLOGIES)}.", metavar="NAME")] = (
        TOPOLOGIES[0]
    ),
    op: options.Operation = "add",
    *,
    outputs: Outputs,
    **fields: Any,
) -> None:
    """Reduce, gather or exchange your own arrays as PyTorch's reduce_scatter_tensor, all_gather_into_tensor, all_reduce
    or all_to_all_single does, in their layouts.

    x holds bit patterns (integers as wide as the type), or float16 for fp16, float32 for fp32, float32 for bf16
    (rounded to nearest even). y comes back in the type of x, and is written only when it is the call's definition's.

    Example: t3rtl reduce --collective all-reduce --inputs x.npz --dtype fp16 --out y.npz
    """
    tensors = load_tensors(inputs, dtype, collective)
    spec = catalogue.tensors(inputs, dtype, collective, topology, op, name=inputs.name, **fields)
    result, held = execute(spec, outputs, (out,))
    if not result["passed"]:
        leave(1)
    y = tensors.result(held)
    if not (y == tensors.golden(dtype, op)).all():
        typer.echo(f"{collective} left what it should by its program, but not by its definition", err=True)
        leave(1)
    keep(out, lambda path: save_output(path, tensors.array.restored(y)))
    typer.echo(f"{collective} of {tensors.array.patterns.shape} {dtype} in {result['cycles']:,} cycles; y is in {out}")
    leave(0)
