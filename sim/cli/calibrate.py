"""`t3rtl calibrate`: the times that full-size GEMMs rest on."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from sim.cli import options
from sim.cli.terminal import stages
from sim.errors import UsageError
from sim.experiments.catalogue import layer
from sim.experiments.spec import Spec
from sim.files import replaced
from sim.simulator.prerequisites import require_simulator
from sim.workloads.table import WORKLOADS

ROUNDS = 3
"""Simulations per calibration, at most."""
GOOD = 0.002
"""Error of the GEMM alone with which a calibration is content."""


def calibrate(
    only: Annotated[str, typer.Option(help="Part of the names of the sub-layers; empty: all.", metavar="TEXT")] = "",
    compute_units: options.ComputeUnits = 80,
) -> None:
    """Find lead times with which simulated GEMMs take as long as machine PAPER's model says; keep them in a table.

    Example: t3rtl calibrate --only t-nlg/fc-2/tp8 --compute-units 160
    """
    require_simulator()
    from sim.experiments.kernel_model import sublayer_of
    from sim.workloads.calibration import TABLE, key

    specs = [layer(work.name, "gemm", compute_units=compute_units) for work in WORKLOADS if only in work.name]
    if not specs:
        raise UsageError(f"only must be a part of a sub-layer's name, got {only!r}; see t3rtl list")
    distinct = {key(sublayer_of(spec), compute_units): spec for spec in specs}
    with stages("calibrate") as progress:
        for name, spec in distinct.items():
            found = calibrated(spec, progress)
            typer.echo(f"{name:<28}{found['lead_cycles']:>8} cycles, error {100 * found['error']:+.2f} %")
            entries = json.loads(TABLE.read_text()) | {name: found}
            with replaced(TABLE) as draft:
                draft.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n")


def calibrated(spec: Spec, progress: Callable[[str], None]) -> dict[str, Any]:
    """Entry of the table for the GEMM of `spec`: simulate, correct the lead time by the error per round, repeat."""
    from sim.experiments.experiment import simulate
    from sim.experiments.job import program_of
    from sim.experiments.kernel_model import kernel_work, sublayer_of
    from sim.workloads.calibration import FIXED_DEPTH, Calibration, analytic_cycles, depth_cycles, step_cycles
    from sim.workloads.kernel_plans import GemmTimes, gemm_kernel

    sublayer, units, work = sublayer_of(spec), spec.gpu.compute_units, kernel_work(spec)
    target = analytic_cycles(sublayer, units)
    rounds = sublayer.gpus * sublayer.workgroups / units
    lead = round(depth_cycles(FIXED_DEPTH))
    tried = []
    for number in range(ROUNDS):
        progress(f"{spec.name}, lead time {lead}, simulation {number + 1}")
        kernel = gemm_kernel(
            sublayer, program_of(spec), 0, units, GemmTimes(step_cycles(sublayer), lead), overlapped=False
        )
        outcome, _ = simulate(spec, replace(work, kernels=((kernel,),)))
        spans = outcome.ranks[0]["spans"]
        took = spans["end"][0] - spans["begin"][0]
        tried.append(Calibration(lead, round(took / target - 1, 5)))
        correction = round((target - took) / math.ceil(rounds))
        if abs(tried[-1].error) < GOOD or (lead == 0 and correction < 0):
            break
        lead = max(0, lead + correction)
    return asdict(min(tried, key=lambda entry: abs(entry.error)))
