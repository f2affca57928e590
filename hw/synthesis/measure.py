"""Area and timing of one block: generic gates, ASIC cells, and an ECP5 FPGA."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..blocks import BLOCKS as INVENTORY
from ..config import Configuration
from .blocks import BLOCKS
from .copies import LeftOut, join
from .fpga import FpgaFigures, place_and_route
from .liberty import Library
from .logical_effort import liberty_text
from .mapping import Job, run, write_design
from .sizing import Sizer
from .timing import IDEAL, Timing
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


@dataclass(frozen=True)
class Mapped:
    """A netlist of library cells: its area, bits in macros, and paths."""

    area: float
    macro_bits: int
    timing: Timing


def _map(source: Path, block: str, libraries: list[Path], folder: Path, library: Library) -> Mapped:
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
        _copies(source, block),
    )
    run(job)
    (module, left_out), (buffered, _) = (_netlist(job, library) for _ in range(2))
    sizer = Sizer(buffered, library)
    sizer.run()

    def mapped(netlist: dict[str, Any]) -> Mapped:
        analysis, timing = upsize(netlist, library, sizer, BOUND)
        area, bits = analysis.area, sum(item.bits for item in analysis.macros)
        if left_out is not None:
            area, bits = area + left_out.area, bits + left_out.macro_bits
        return Mapped(area, bits, timing)

    # Which of abc's buffers and our own are the better start is not known beforehand.
    best = min((mapped(netlist) for netlist in (module, buffered)), key=preference)
    timing = best.timing
    lines = []
    for path in timing.paths[:REPORTED_PATHS]:
        lines.append(f"{path.length / timing.fo4:.1f} FO4, {path.length:.0f} ps: {path.start} -> {path.end}")
        lines += [f"  {point.time / timing.fo4:6.1f}  {point.through:20s} {point.net}" for point in path.points]
    (folder / f"{block}.paths.txt").write_text("\n".join(lines) + "\n")
    return best


def preference(mapped: Mapped) -> tuple[bool, float]:
    """Sorts netlists of one block, best first: those that keep :data:`BOUND` by area, then the others by length."""
    late = mapped.timing.critical > BOUND
    return late, mapped.timing.critical if late else mapped.area


def _netlist(job: Job, library: Library) -> tuple[dict[str, Any], LeftOut | None]:
    """The flat netlist of a job, and what is not in it."""
    modules = json.loads(Path(job.netlist).read_text())["modules"]
    top = modules[job.top]
    if not job.copies:
        return top, None
    return join(top, modules[top["cells"][job.copies[0]]["type"]], job.copies, library, IDEAL)


def _apart(source: Path, block: str) -> tuple[str, ...]:
    """Modules of the design that are mapped each by itself."""
    pattern = INVENTORY[block].apart if block in INVENTORY else ""
    if not pattern:
        return ()
    return tuple(re.findall(rf"^module \\({block}__(?:{pattern}))$", source.read_text(), re.MULTILINE))


def _copies(source: Path, block: str) -> tuple[str, ...]:
    """Instances in the design that are alike, if there are several."""
    pattern = INVENTORY[block].copies if block in INVENTORY else ""
    if not pattern:
        return ()
    top = source.read_text().partition(f"\nmodule \\{block}\n")[2].partition("\nend\n")[0]
    found = sorted(re.findall(rf"^  cell \\\S+ \\({pattern})$", top, re.MULTILINE), key=lambda name: (len(name), name))
    return tuple(found) if len(found) > 1 else ()


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
    mapped = _map(source, block, [default], folder, effort)
    timing = mapped.timing
    described = json.loads((folder / f"{block}.log").with_suffix(".generic").read_text())
    longest = timing.paths[0] if timing.paths else None
    square_microns = picoseconds = None
    if liberty:
        library = Library(liberty)
        real = _map(source, block, liberty, folder / "liberty", library)
        square_microns = round(real.area, 1)
        picoseconds = round(real.timing.paths[0].length, 1) if real.timing.paths else 0.0
    return Figures(
        cells=described["cells"],
        memory_bits=described["memory_bits"],
        macro_bits=mapped.macro_bits,
        gate_equivalents=round(mapped.area / effort.nand.area),
        fo4=round(timing.critical, 1),
        start=longest.start if longest else "",
        end=longest.end if longest else "",
        square_microns=square_microns,
        picoseconds=picoseconds,
        fpga=place_and_route(source, block, folder) if fpga else None,
    )
