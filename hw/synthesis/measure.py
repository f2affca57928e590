"""Area and timing of one block: generic gates, ASIC cells, and an ECP5 FPGA."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..blocks import BLOCKS as INVENTORY
from ..config import Configuration
from .blocks import BLOCKS
from .fpga import FpgaFigures, place_and_route
from .liberty import Library
from .logical_effort import liberty_text
from .mapping import Job, run, write_design
from .sizing import Sizer
from .timing import Analysis, Timing
from .upsizing import upsize

REPORTED_PATHS = 20
BOUND = 30.0
"""FO4 that a cycle may take in a block."""


@dataclass(frozen=True)
class Figures:
    """What synthesis says of one block of one preset.

    `cells`: generic gates and flip-flops; `memory_bits`: bits in memories of any size, `macro_bits` those of memories
    that stay macros; `gate_equivalents`: area of the rest in two-input NANDs of the logical-effort library; `fo4`:
    longest path, from `start` to `end`; with a Liberty file `square_microns` (without macros) and `picoseconds`;
    with the FPGA flow `fpga`.
    """

    cells: int
    memory_bits: int
    macro_bits: int
    gate_equivalents: int
    fo4: float
    start: str
    end: str
    square_microns: float | None = None
    picoseconds: float | None = None
    fpga: FpgaFigures | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures that were measured."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def default_library(folder: Path) -> Path:
    """The logical-effort library as a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "logical_effort.lib"
    text = liberty_text()
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def _map(source: Path, block: str, libraries: list[Path], folder: Path, library: Library) -> tuple[Analysis, Timing]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{block}.log"
    log.unlink(missing_ok=True)
    job = Job(
        str(source),
        block,
        [str(path) for path in libraries],
        str(folder / f"{block}.json"),
        str(log),
        library.inverter.name,
        _apart(source, block),
    )
    module = run(job)
    buffered = json.loads(Path(job.netlist).read_text())["modules"][block]
    sizer = Sizer(buffered, library)
    sizer.run()
    # Which of abc's buffers and our own are the better start is not known beforehand.
    analysis, timing = min((upsize(netlist, library, sizer, BOUND) for netlist in (module, buffered)), key=preference)
    lines = []
    for path in timing.paths[:REPORTED_PATHS]:
        lines.append(f"{path.length / timing.fo4:.1f} FO4, {path.length:.0f} ps: {path.start} -> {path.end}")
        lines += [f"  {point.time / timing.fo4:6.1f}  {point.through:20s} {point.net}" for point in path.points]
    (folder / f"{block}.paths.txt").write_text("\n".join(lines) + "\n")
    return analysis, timing


def preference(result: tuple[Analysis, Timing]) -> tuple[bool, float]:
    """Sorts netlists of one block, best first: those that keep :data:`BOUND` by area, then the others by length."""
    analysis, timing = result
    late = timing.critical > BOUND
    return late, timing.critical if late else analysis.area


def _apart(source: Path, block: str) -> tuple[str, ...]:
    """Modules of the design that are mapped each by itself."""
    pattern = INVENTORY[block].apart if block in INVENTORY else ""
    if not pattern:
        return ()
    return tuple(re.findall(rf"^module \\({block}__(?:{pattern}))$", source.read_text(), re.MULTILINE))


def write_block(block: str, config: Configuration, folder: Path) -> Path:
    """The design of `block` of `config` as a file in `folder`, for :func:`measure_design`."""
    return write_design(BLOCKS[block](config), block, folder)


def measure(block: str, config: Configuration, folder: Path, liberty: list[Path], fpga: bool = False) -> Figures:
    """Synthesize `block` of `config`; netlists, logs and path reports go to `folder`.

    Raises :class:`hw.synthesis.mapping.SynthesisError` when a tool fails.
    """
    return measure_design(write_block(block, config, folder), liberty, fpga)


def measure_design(source: Path, liberty: list[Path], fpga: bool = False) -> Figures:
    """As :func:`measure`, of the design that :func:`write_block` wrote."""
    block, folder = source.stem, source.parent
    default = default_library(folder)
    effort = Library([default])
    analysis, timing = _map(source, block, [default], folder, effort)
    described = json.loads((folder / f"{block}.log").with_suffix(".generic").read_text())
    longest = timing.paths[0] if timing.paths else None
    square_microns = picoseconds = None
    if liberty:
        library = Library(liberty)
        real, real_timing = _map(source, block, liberty, folder / "liberty", library)
        square_microns = round(real.area, 1)
        picoseconds = round(real_timing.paths[0].length, 1) if real_timing.paths else 0.0
    return Figures(
        cells=described["cells"],
        memory_bits=described["memory_bits"],
        macro_bits=sum(item.bits for item in analysis.macros),
        gate_equivalents=round(analysis.area / effort.nand.area),
        fo4=round(timing.critical, 1),
        start=longest.start if longest else "",
        end=longest.end if longest else "",
        square_microns=square_microns,
        picoseconds=picoseconds,
        fpga=place_and_route(source, block, folder) if fpga else None,
    )
