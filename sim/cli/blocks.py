"""`t3rtl vectors`, `t3rtl verilog` and `t3rtl list`: what needs no experiment."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from hw.config import PRESETS
from sim.cli import options
from sim.cli.terminal import finish, stages
from sim.collectives.known import PROGRAMS
from sim.errors import UsageError
from sim.experiments.catalogue import recorded
from sim.experiments.hardware import configuration, parse_settings
from sim.experiments.spec_values import DTYPES, OPERATIONS
from sim.experiments.variants import POLICIES, THRESHOLDS, VARIANTS
from sim.files import cannot_write, check_folder
from sim.simulator.prerequisites import require_simulator
from sim.topologies.known import TOPOLOGIES
from sim.workloads.machines import machines
from sim.workloads.table import WORKLOADS

SHOWN_MISMATCHES = 10


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
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    except OSError as error:
        if error.filename != str(file):
            raise
        raise UsageError(f"{file} cannot be read ({error.strerror})") from error
    for line, a, b, expected, got in mismatches[:SHOWN_MISMATCHES]:
        typer.echo(f"line {line}: {a:X} {op} {b:X} gives {got:X}, not {expected:X}")
    if len(mismatches) > SHOWN_MISMATCHES:
        typer.echo(f"and {len(mismatches) - SHOWN_MISMATCHES} more")
    typer.echo(f"{count} vectors, {len(mismatches)} mismatches")
    finish(not mismatches)


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
        raise cannot_write(out, error) from error
    for path in files:
        typer.echo(str(path))


def show_list(
    as_json: Annotated[bool, typer.Option("--json", help="For programs instead of people.")] = False,
) -> None:
    """Show presets, workloads, policies, collectives, topologies and machines."""
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
    collectives = {
        name: {"summary": known.summary, "topologies": list(known.topologies)} for name, known in PROGRAMS.items()
    }
    known_machines = {
        name: {
            "compute_units": machine.compute_units,
            "tflops": machine.tflops,
            "memory_tb_per_s": machine.memory_tb_per_s,
            "channels": machine.channels,
            "cycle_ns": round(machine.cycle_ns, 3),
            "llc_mib": machine.llc_mib,
            "links": machine.links,
            "link_gb_per_s": machine.link_gb_per_s,
            "tile": list(machine.tile),
            "source": machine.source,
            "gemm": {
                "efficiency": machine.gemm.efficiency,
                "fixed_depth": machine.gemm.fixed_depth,
                "fit": machine.gemm.fit,
                "worst": machine.gemm.worst,
            },
        }
        for name, machine in machines().items()
    }
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "presets": presets,
                    "workloads": workloads,
                    "policies": list(POLICIES),
                    "thresholds": list(THRESHOLDS),
                    "variants": list(VARIANTS),
                    "collectives": collectives,
                    "topologies": {name: known.summary for name, known in TOPOLOGIES.items()},
                    "machines": known_machines,
                },
                indent=1,
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
    table = Table(
        Column("collective", no_wrap=True), "what it does", "topologies", title="Collectives (t3rtl explain NAME)"
    )
    for name, known in PROGRAMS.items():
        table.add_row(name, known.summary, ", ".join(known.topologies))
    console.print(table)
    table = Table("topology", "links of a GPU", title="Topologies")
    for name, wired in TOPOLOGIES.items():
        table.add_row(name, wired.summary)
    console.print(table)
    columns = ("units", "TFLOP/s", "DRAM TB/s", "cycle ns", "links GB/s", "GEMM off")
    table = Table(Column("machine", no_wrap=True), *columns, title="Machines (sim/workloads/data/machines.toml)")
    for name, machine in machines().items():
        numbers = machine.compute_units, machine.tflops, machine.memory_tb_per_s, machine.cycle_ns
        worst = "" if machine.gemm.worst is None else f"{100 * machine.gemm.worst:.1f} %"
        links = f"{machine.links} {machine.link_gb_per_s:g}"
        table.add_row(name, *(f"{value:.4g}" for value in numbers), links, worst)
    console.print(table)
    console.print(f"Policies: {', '.join(POLICIES)}; thresholds of mca: {', '.join(THRESHOLDS)}")
    console.print(f"Variants of full-size runs: {', '.join(VARIANTS)}")
    console.print(f"Recorded GEMMs: {', '.join(recorded())}")
