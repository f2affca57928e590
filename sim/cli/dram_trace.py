"""The command `t3rtl dram-trace`: a request trace through one channel's memory controller and HBM model."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from hw.config import Timing
from sim.benches.trace_file import KINDS, generate, read_trace, write_trace
from sim.cli import options
from sim.cli.recorded import check_distinct
from sim.cli.terminal import finish, refuse, stages
from sim.errors import UsageError
from sim.experiments.hardware import configuration, parse_settings
from sim.experiments.results import provenance
from sim.experiments.variants import POLICIES, THRESHOLDS
from sim.files import check_writable, keep, replaced
from sim.simulator.prerequisites import require_simulator

CHANNEL_SETTINGS = (
    *("compute_queue_depth", "communication_queue_depth", "dram_queue_depth", "response_depth", "commit_queue_depth"),
    *(f"timing.{item.name}" for item in fields(Timing)),
)
"""What `--set` changes in one channel; all else of a configuration is elsewhere in a node."""


def dram_trace(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="Trace: lines 0xADDR READ|WRITE|UPDATE CYCLE, cycle 0 for at once; DRAMsim3's, or Ramulator's.",
            metavar="FILE",
        ),
    ],
    communication: Annotated[
        Path | None,
        typer.Option(help="A second trace, for the communication stream; FILE is the compute stream.", metavar="FILE"),
    ] = None,
    generated: Annotated[
        str,
        typer.Option("--generate", help=f"First write FILE: {', '.join(KINDS[:-1])} or {KINDS[-1]}.", metavar="KIND"),
    ] = "",
    requests: Annotated[int, typer.Option(help="Length of a generated trace.", metavar="COUNT")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the addresses of random-read.", metavar="NUMBER")] = 1,
    preset: options.Preset = "paper",
    queue_depth: Annotated[
        int | None, typer.Option(help="Requests the DRAM queue holds, 1 to 64.", metavar="COUNT")
    ] = None,
    refresh: Annotated[bool, typer.Option(help="All-bank refresh.")] = True,
    policy: options.Policy = "mca",
    threshold: options.Threshold = "auto",
    starvation_limit: options.StarvationLimit = 2000,
    settings: options.Set = None,
    out: options.Results = Path("build/dram-trace/results.json"),
) -> None:
    """Play a request trace through one channel's memory controller and HBM model, and check the DRAM's timing.

    The channel is 1 GiB; address bits from the bottom: 5 offset, 2 bank group, 6 column, 2 bank, 15 row. A request is
    offered from its cycle on, in the order of the lines. random-read draws sectors uniformly from the whole gibibyte
    (numpy's PCG64 with the seed).

    Example: t3rtl dram-trace build/random.trace --generate random-read --requests 1000000
    """
    chosen = parse_settings(settings or [])
    for name in chosen:
        if name not in CHANNEL_SETTINGS:
            raise UsageError(f"{name} is not of one channel; allowed: {', '.join(CHANNEL_SETTINGS)}")
    if queue_depth is not None:
        if "dram_queue_depth" in chosen:
            raise UsageError("dram_queue_depth is set twice")
        chosen["dram_queue_depth"] = queue_depth
    config = configuration(preset, chosen)
    for name, value, allowed in (("policy", policy, POLICIES), ("threshold", threshold, THRESHOLDS)):
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    if not 0 <= starvation_limit < 1 << 16:
        raise UsageError(f"starvation-limit must be a whole number from 0 to 65535, got {starvation_limit}")
    _refuse_idle(context, generated, policy, alone=communication is None)
    trace = generate(generated, requests, seed) if generated else read_trace(file)
    traces = {"compute": trace}
    if communication is not None:
        traces["communication"] = read_trace(communication)
    require_simulator()
    check_distinct(out, read=[file, *([] if communication is None else [communication])])
    check_writable(out)
    if generated:
        write_trace(file, trace)
    from sim.benches.dram_trace import arbiter_control, build, play

    with stages("dram-trace") as progress:
        executable = build(config, progress)
        progress(f"playing {sum(map(len, traces.values())):,} requests")
        control = arbiter_control(POLICIES[policy], THRESHOLDS[threshold], starvation_limit, refresh)
        result = play(executable, traces, control)
    for name, text in result.lines():
        typer.echo(f"{name:<22}{text}")
    made = {name: value for name, value in provenance().items() if name not in ("schema", "units")}
    run = {"trace": str(file), "preset": preset, "policy": policy, "threshold": threshold}
    keep(out, lambda path: _write(path, made | run | result.summary()))
    typer.echo(f"results: {out}")
    finish(result.passed)


def _refuse_idle(context: typer.Context, generated: str, policy: str, alone: bool) -> None:
    """Refuse options that nothing asks for: of a trace that is not generated, of an arbiter with one stream."""
    if not generated:
        refuse(context, "no trace is generated; give --generate", "requests", "seed")
    elif generated != "random-read":
        refuse(context, "only random-read draws addresses", "seed")
    if alone:
        refuse(context, "one stream needs no arbiter; give --communication", "policy", "threshold", "starvation_limit")
    if policy != "mca":
        refuse(context, "threshold is of policy mca", "threshold")


def _write(path: Path, report: dict[str, object]) -> None:
    with replaced(path) as draft:
        draft.write_text(json.dumps(report, indent=1) + "\n")
