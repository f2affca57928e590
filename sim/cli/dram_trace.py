"""The command `t3rtl dram-trace`: a request trace through one channel's memory controller and HBM model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hw.messages import Policy as ArbiterPolicy
from hw.messages import Threshold as ArbiterThreshold
from sim.benches.trace_file import KINDS, generate, read_trace, write_trace
from sim.cli import options
from sim.cli.terminal import finish, stages
from sim.errors import UsageError
from sim.experiments.request import POLICIES, THRESHOLDS, configuration, parse_settings
from sim.files import check_writable, replaced
from sim.simulator.prerequisites import require_simulator

_POLICIES = dict(zip(POLICIES, ArbiterPolicy, strict=True))
_THRESHOLDS = dict(zip(THRESHOLDS, ArbiterThreshold, strict=True))


def dram_trace(
    file: Annotated[
        Path, typer.Argument(help="Trace: lines 0xADDR READ|WRITE|UPDATE CYCLE, cycle 0 for at once.", metavar="FILE")
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
    if queue_depth is not None:
        chosen["dram_queue_depth"] = queue_depth
    config = configuration(preset, chosen)
    for name, value, allowed in (("policy", policy, _POLICIES), ("threshold", threshold, _THRESHOLDS)):
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    if not 0 <= starvation_limit < 1 << 16:
        raise UsageError(f"starvation-limit must be a whole number from 0 to 65535, got {starvation_limit}")
    trace = generate(generated, requests, seed) if generated else read_trace(file)
    traces = {"compute": trace}
    if communication is not None:
        traces["communication"] = read_trace(communication)
    require_simulator()
    check_writable(out)
    if generated:
        write_trace(file, trace)
    from sim.benches.dram_trace import arbiter_control, build, play

    with stages("dram-trace") as progress:
        progress("building the channel")
        executable = build(config)
        progress(f"playing {sum(map(len, traces.values())):,} requests")
        control = arbiter_control(_POLICIES[policy], _THRESHOLDS[threshold], starvation_limit, refresh)
        result = play(executable, traces, control)
    report = {"trace": str(file), "preset": preset, "policy": policy, "threshold": threshold, **result.summary()}
    with replaced(out) as draft:
        draft.write_text(json.dumps(report, indent=1) + "\n")
    for name, text in result.lines():
        typer.echo(f"{name:<22}{text}")
    typer.echo(f"results: {out}")
    finish(result.passed)
