"""Options that commands of `t3rtl` share. Values are checked by :class:`sim.experiments.request.RingRequest`, not
here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hw.config import PRESETS
from sim.experiments.request import BUGS, DIRECTIONS, INITIALS, OPERATIONS, POLICIES, SCHEDULES, THRESHOLDS
from sim.experiments.user_arrays import DTYPES


def _named(text: str, values: Sequence[str], hidden: bool = False) -> Any:
    """An option that takes one of `values`."""
    return typer.Option(help=f"{text}: {', '.join(values[:-1])} or {values[-1]}.", metavar="NAME", hidden=hidden)


Preset = Annotated[str, _named("Configuration of the hardware", list(PRESETS))]
Policy = Annotated[str, _named("Arbiter between compute and communication", POLICIES)]
Threshold = Annotated[
    str, _named("DRAM-queue occupancy below which MCA admits communication (auto: the hardware chooses)", THRESHOLDS)
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
Pauses = Annotated[
    int, typer.Option(help="Idle cycles forced on every interface, percent, 0 to 90.", metavar="PERCENT")
]
Seed = Annotated[int, typer.Option(help="Of the matrices and of every random choice.", metavar="NUMBER")]
StarvationLimit = Annotated[
    int, typer.Option(help="Cycles communication may be held back; 0: no limit.", metavar="CYCLES")
]
Alone = Annotated[bool, typer.Option(help="Run the GEMM by itself first: needed for the figures of overlap.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a configuration field; repeatable; DRAM timing is timing.FIELD.", metavar="FIELD=VALUE"
    ),
]
Trace = Annotated[str, typer.Option(help="Recorded GEMM, see sim/workloads/recorded_trace.py.", metavar="FILE.npz:KEY")]
Tp = Annotated[int, typer.Option(help="GPUs of a recorded GEMM's ring.", metavar="N")]
Waves = Annotated[
    Path | None, typer.Option(help="Write waves to this FST file, and a GTKWave view beside it.", metavar="FILE.fst")
]
Results = Annotated[Path, typer.Option(help="File of the results.", metavar="FILE.json")]
