"""Options that commands of `t3rtl` share. Values are checked by :class:`sim.experiments.spec.Spec`, not here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hw.config import PRESETS
from sim.experiments.hardware import BUGS
from sim.experiments.spec_values import DIRECTIONS, DTYPES, INITIALS, MODES, OPERATIONS, SCHEDULES, TILE_ORDERS
from sim.experiments.variants import POLICIES, THRESHOLDS, VARIANTS


def _named(text: str, values: Sequence[str], hidden: bool = False) -> Any:
    """An option that takes one of `values`."""
    return typer.Option(help=f"{text}: {', '.join(values[:-1])} or {values[-1]}.", metavar="NAME", hidden=hidden)


Preset = Annotated[str, _named("Configuration of the hardware", list(PRESETS))]
Policy = Annotated[str, _named("Arbiter between compute and communication", list(POLICIES))]
Threshold = Annotated[
    str,
    _named("DRAM-queue occupancy below which mca admits communication (auto: the hardware chooses)", list(THRESHOLDS)),
]
Dtype = Annotated[str, _named("Element type", DTYPES)]
Operation = Annotated[str, _named("Reduction", OPERATIONS)]
Direction = Annotated[str, _named("Way round the ring, cw to the next rank", list(DIRECTIONS))]
Initial = Annotated[str, _named("What the first update meets, nothing or explicit zeros", INITIALS)]
Schedule = Annotated[str, _named("Stages of 80 workgroups, or a chunk in one stage", SCHEDULES)]
Bug = Annotated[str, _named("Fault to build in on purpose", BUGS, hidden=True)]

Gpus = Annotated[int, typer.Option(help="GPUs on the ring.", metavar="N")]
Shape = Annotated[
    tuple[int, int, int], typer.Option(help="Output rows and columns, and depth on one GPU.", metavar="M N K")
]
Tile = Annotated[tuple[int, int], typer.Option(help="Rows and columns of a WG tile.", metavar="R C")]
Wavefronts = Annotated[
    int, typer.Option(help="Wavefronts of a workgroup, 1 to 8; they share a tile by rows.", metavar="COUNT")
]
DmaBlock = Annotated[int, typer.Option(help="WF tiles in a DMA block, 1 to 8; 0: all of a workgroup.", metavar="COUNT")]
Stalls = Annotated[
    int, typer.Option(help="Idle cycles forced on every interface, percent, 0 to 90.", metavar="PERCENT")
]
BitErrors = Annotated[
    float, typer.Option(help="Probability that a bit on a link is wrong, 0 to 0.001.", metavar="RATE")
]
Seed = Annotated[int, typer.Option(help="Of the operands and of every random choice.", metavar="NUMBER")]
StarvationLimit = Annotated[
    int, typer.Option(help="Cycles communication may be held back; 0: no limit.", metavar="CYCLES")
]
Watchdog = Annotated[
    int,
    typer.Option(help="Cycles in which nothing moves, after which a GPU ends the run; 0: never.", metavar="CYCLES"),
]
Alone = Annotated[bool, typer.Option(help="Run the GEMM by itself first: needed for the figures of overlap.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a configuration field; repeatable; DRAM timing is timing.FIELD.", metavar="FIELD=VALUE"
    ),
]
Waves = Annotated[
    Path | None, typer.Option(help="Write waves to this FST file, and a GTKWave view beside it.", metavar="FILE.fst")
]
Threads = Annotated[
    int,
    typer.Option(
        help="Threads for the GPUs, at most one each, or for the lanes of one; 0: all cores.", metavar="COUNT"
    ),
]
Timeline = Annotated[
    Path | None, typer.Option(help="Write what happened to this file, for ui.perfetto.dev.", metavar="FILE.pftrace")
]
Baseline = Annotated[
    bool, typer.Option(help="Run Sequential too, to compare with, unless that was done before.", show_default=True)
]
Html = Annotated[
    Path | None,
    typer.Option(help="Draw what happened on this page: space-time, bandwidth, queues.", metavar="FILE.html"),
]
Out = Annotated[Path, typer.Option("--out", help="File of the results.", metavar="FILE.json")]
Results = Annotated[Path, typer.Option(help="File of the results.", metavar="FILE.json")]
"""Where `--out` is the file of the arrays."""

Variant = Annotated[str, _named("What runs and who reduces", list(VARIANTS))]
Mode = Annotated[str, _named("One node, its neighbour's traffic mirrored, or all nodes and their data", MODES)]
LinkBandwidth = Annotated[float, typer.Option(help="Of a link, per direction, of the whole GPU.", metavar="GB/S")]
ComputeUnits = Annotated[int, typer.Option(help="CUs: workgroups at a time.", metavar="COUNT")]
Channels = Annotated[int, typer.Option(help="Channels simulated, of 32: 1, 2, 4, 8, 16 or 32.", metavar="COUNT")]
TrackerWays = Annotated[int, typer.Option(help="Ways of the Tracker's 256 sets: 1, 2, 4, 8 or 16.", metavar="COUNT")]
TileOrder = Annotated[str, _named("Tiles as a library orders them, or row by row", TILE_ORDERS)]
Prefetch = Annotated[
    int,
    typer.Option(help="Steps that a GEMM's workgroup reads ahead of the one that computes, 0 to 2.", metavar="COUNT"),
]
ReadsUnderWay = Annotated[
    int,
    typer.Option(help="Sectors that a GEMM's workgroup has under way in a channel; 0: no limit.", metavar="SECTORS"),
]
WorkgroupsPerUnit = Annotated[
    int, typer.Option(help="Workgroups of a GEMM that share a CU, 1 to 3; it computes for one.", metavar="COUNT")
]
CommunicationUnits = Annotated[
    int, typer.Option(help="Compute units of kernels that communicate; 0: all that there are.", metavar="COUNT")
]
CommunicationBandwidth = Annotated[
    float, typer.Option(help="GB/s that each of these copies at the most; 0: no limit.", metavar="GB/S")
]
Tp = Annotated[int, typer.Option(help="GPUs that share the GEMM.", metavar="N")]
Processes = Annotated[int, typer.Option("--processes", "-j", help="At a time, on this machine.", metavar="COUNT")]
