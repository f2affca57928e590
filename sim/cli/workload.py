"""`t3rtl workload` and `t3rtl calibrate`: one point of the paper's evaluation, and the times it rests on."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.terminal import errors, finish, stages
from sim.errors import UsageError
from sim.experiments.point import CONFIGURATIONS, MODES, TILE_ORDERS, Point
from sim.files import replaced
from sim.simulator.prerequisites import require_simulator
from sim.workloads.table import WORKLOADS

ROUNDS = 3
"""Simulations per calibration, at most."""
GOOD = 0.002
"""Error of the GEMM alone with which a calibration is content."""


def workload(
    name: Annotated[str, typer.Argument(help="sub-layer, see t3rtl list")],
    configuration: Annotated[str, typer.Option(help=f"one of {', '.join(CONFIGURATIONS)}")] = "t3-mca",
    mode: Annotated[str, typer.Option(help=f"one of {', '.join(MODES)}")] = "mirrored",
    link_bandwidth: Annotated[float, typer.Option(help="GB/s per direction")] = 75.0,
    compute_units: Annotated[int, typer.Option(help="CUs")] = 80,
    channels: Annotated[int, typer.Option(help="channels simulated, of 32: 1, 2 or 4")] = 1,
    starvation_limit: Annotated[int, typer.Option(help="cycles; 0: none")] = 2000,
    tracker_ways: Annotated[int, typer.Option(help="ways of the Tracker's 256 sets")] = 8,
    seed: Annotated[int, typer.Option(help="of the operands")] = 1,
    tile_order: Annotated[str, typer.Option(help=f"one of {', '.join(TILE_ORDERS)}")] = "tuned",
    out: Annotated[Path | None, typer.Option(help="write all figures there as JSON")] = None,
) -> None:
    """Simulate one sub-layer of the paper at full size and print its figures."""
    point = Point(
        name,
        configuration,
        link_bandwidth,
        compute_units,
        channels,
        mode,
        starvation_limit,
        tracker_ways,
        seed,
        tile_order=tile_order,
    )
    run_point(point, out)


def run_trace(
    trace: str, shape: tuple[int, ...], policy: str, threshold: str, starvation_limit: int, out: Path
) -> None:
    """`t3rtl run --trace`: a recorded GEMM and its reduce-scatter on one node."""
    names = {"round-robin": "t3", "mca": "t3-mca" if threshold == "auto" else f"t3-mca-{threshold}"}
    if policy not in names:
        raise UsageError(f"policy must be one of {', '.join(names)} with a trace; got {policy!r}")
    name = trace.rpartition(":")[2] or trace
    run_point(Point(name, names[policy], starvation_limit=starvation_limit, trace=trace, shape=shape), out)


def run_point(point: Point, out: Path | None) -> None:
    """Simulate `point`, print its figures, write them to `out`, leave with its exit code."""
    require_simulator()
    from sim.experiments.experiment import simulate_point

    with stages(f"{point.workload} {point.configuration}") as progress:
        result = simulate_point(point, progress)
    if out is not None:
        with replaced(out) as draft:
            draft.write_text(json.dumps(result, indent=1) + "\n")
    for line in figure_lines(result):
        typer.echo(line)
    for complaint in result["complaints"]:
        errors.print(f"{point.workload}: {complaint}", style="red", markup=False, soft_wrap=True)
    finish(result["passed"])


def figure_lines(result: dict[str, Any]) -> list[str]:
    """The figures of one point that are worth a line on the terminal."""
    spans = {name: span for name, span in result["spans"].items() if span}
    sectors = {
        f"{phase}_{access}": count
        for phase, counts in result["dram_sectors"].items()
        for access, count in counts.items()
        if count
    }
    tracker, seconds = result["tracker"], result["seconds"]
    forms = result["closed_forms"]
    wrong = "nothing to compare" if result["mismatches"] is None else f"{result['mismatches']:,} wrong elements"
    kilocycles = result["cycles"] / 1000 / max(seconds["simulate"], 1e-6)
    figures = {
        "cycles": f"{result['cycles']:,}",
        "phases": ", ".join(f"{name} {begin:,} to {end:,}" for name, (begin, end) in spans.items()),
        "GEMM by the model": f"{result['analytic_gemm_cycles']:,}",
        "RS on the wire": f"{result['rs_wire_cycles']:,}",
        "DRAM sectors per GPU": ", ".join(f"{kind} {count:,}" for kind, count in sectors.items()),
        "closed forms": f"{sum(form['matches'] for form in forms.values())} of {len(forms)} exact",
        "data": wrong,
        "link utilisation": "-" if result["link_utilisation"] is None else f"{100 * result['link_utilisation']:.1f} %",
        "Tracker": f"{tracker['hits']:,} hits, {tracker['evictions']:,} evictions, {tracker['refetches']:,} refetches, "
        f"peak {tracker['peak_occupancy']:,} entries, {tracker['triggers']:,} triggers",
        "arbiter": ", ".join(f"{name} {value}" for name, value in result["arbiter"].items()),
        "seconds": f"{seconds['total']:.1f} and build {seconds['build']:.1f} ({kilocycles:,.0f} kcycles/s, "
        f"Python {100 * seconds['python_share']:.1f} %)",
    }
    return [f"  {name:<22}{text}" for name, text in figures.items()]


def calibrate(
    only: Annotated[str, typer.Option(help="part of the names of the sub-layers; empty: all")] = "",
    compute_units: Annotated[int, typer.Option(help="CUs")] = 80,
) -> None:
    """Find lead times with which simulated GEMMs take as long as machine PAPER's model says; keep them in sim/data."""
    require_simulator()
    from sim.experiments.experiment import sublayer_of
    from sim.workloads.calibration import TABLE, key

    points = [Point(work.name, "gemm", compute_units=compute_units) for work in WORKLOADS if only in work.name]
    if not points:
        raise UsageError(f"only must be a part of a sub-layer's name, got {only!r}; see t3rtl list")
    distinct = {key(sublayer_of(point), compute_units): point for point in points}
    with stages("calibrate") as progress:
        for name, point in distinct.items():
            found = calibrated(point, progress)
            typer.echo(f"{name:<28}{found['lead_cycles']:>8} cycles, error {100 * found['error']:+.2f} %")
            entries = json.loads(TABLE.read_text()) | {name: found}
            with replaced(TABLE) as draft:
                draft.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n")


def calibrated(point: Point, progress: Callable[[str], None]) -> dict[str, Any]:
    """Entry of the table for the GEMM of `point`: simulate, correct the lead time by the error per round, repeat."""
    from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
    from sim.experiments.experiment import sublayer_of, sublayer_task
    from sim.experiments.sublayer_run import simulate_sublayer
    from sim.workloads.calibration import FIXED_DEPTH, Calibration, analytic_cycles, depth_cycles, step_cycles
    from sim.workloads.kernel_plans import GemmTimes, gemm_kernel

    layer = sublayer_of(point)
    program = ring_reduce_scatter(layer.gpus)
    target = analytic_cycles(layer, point.compute_units)
    rounds = layer.gpus * layer.workgroups / point.compute_units
    lead = round(depth_cycles(FIXED_DEPTH))
    tried = []
    for number in range(ROUNDS):
        progress(f"{point.workload}, lead time {lead}, simulation {number + 1}")
        times = GemmTimes(step_cycles(layer), lead)
        kernel = gemm_kernel(layer, program, 0, point.compute_units, times, overlapped=False)
        outcome = simulate_sublayer(replace(sublayer_task(point), kernels=((kernel,),)))
        spans = outcome.ranks[0]["spans"]
        took = spans["end"][0] - spans["begin"][0]
        tried.append(Calibration(lead, round(took / target - 1, 5)))
        correction = round((target - took) / math.ceil(rounds))
        if abs(tried[-1].error) < GOOD or (lead == 0 and correction < 0):
            break
        lead = max(0, lead + correction)
    return asdict(min(tried, key=lambda entry: abs(entry.error)))
