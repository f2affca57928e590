"""Where a simulator's processor time goes, by part of what is simulated.

A simulator that was built for it has a function for each block of statements, named after the line of SystemVerilog
that it stands for, and writes a histogram of which function runs, 100 samples a second (gprof's, of the C library).
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sim.errors import MachineError
from sim.simulator.fast_model import EXECUTABLE

HISTOGRAM = "profile"
"""Beginning of the file's name, which ends in the number of the process."""
PARTS: Mapping[str, str] = {
    "memory controllers": r"__controller_\d+",
    "address maps": r"__address_map_\d+",
    "Tracker and backing store": r"__node__(tracker|spill|trigger_latency|doorbell)|backing_store",
    "DMA engines": r"__dma\b|__dma__",
    "links": r"__(links|packetizer)|__(link|bounds)_?\d*(__|$)",
    "registers, epochs, the rest of the nodes": r"__(node|lane)(__|$)",
    "DRAM and near-bank units": r"__hbm_\d+|^hbm_array",
    "DRAM timing checkers": r"__timing_checker",
    "compute units": r"__gemm|__requests_\d+|^(source_array|operand_array|plan_memory|model_memory)",
    "switch": r"^switch",
    "records for results and timelines": r"recorder|sampler|read_latency|command_log|gathered_checker",
}
"""Part -> what the name of a module holds that is of it, the first that fits."""
SETTLING, HOST = "settling, clock gates, what spans parts", "host, wires, libraries"
"""What is a simulator's own, and all that is not of the design."""
_LINE = re.compile(r"__PROF__(\w+?)__l?(\d+)")
_MODULE = re.compile(r"^module +(\S+?)\s*[(;#]", re.MULTILINE)
_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+([\d.]+)\s.*?(\S+)$")


def histogram_environment(folder: Path) -> dict[str, str]:
    """Environment variables that have a profiled simulator write its histogram to `folder`."""
    return {"GMON_OUT_PREFIX": str(folder / HISTOGRAM)}


def seconds_by_part(model: Path, folder: Path) -> dict[str, float]:
    """Processor seconds by part, the most first, of the run of the simulator in `model` whose histogram is in `folder`.

    Raises :class:`sim.errors.MachineError` when gprof is missing or fails.
    """
    (histogram,) = folder.glob(f"{HISTOGRAM}.*")
    command = ["gprof", "-b", "-p", "--no-demangle", str(model / EXECUTABLE), str(histogram)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MachineError("gprof, which comes with the C++ compiler, cannot read the profile") from error
    return by_part(flat_profile(done.stdout), {path.stem: path.read_text() for path in model.glob("**/*.sv")})


def flat_profile(text: str) -> dict[str, float]:
    """Function -> seconds in it, from gprof's flat profile."""
    found = (_ROW.match(line) for line in text.splitlines())
    return {row[2]: float(row[1]) for row in found if row}


def by_part(functions: Mapping[str, float], sources: Mapping[str, str]) -> dict[str, float]:
    """Part -> seconds, of `functions` of a model of the SystemVerilog `sources` (name of the file -> its text)."""
    modules = {
        name: [(text.count("\n", 0, m.start()) + 1, m[1]) for m in _MODULE.finditer(text)]
        for name, text in sources.items()
    }
    found = dict.fromkeys([*PARTS, SETTLING, HOST], 0.0)
    for function, seconds in functions.items():
        line = _LINE.search(function)
        if line and line[1] in modules:
            before = [module for first, module in modules[line[1]] if first <= int(line[2])]
            part = part_of(before[-1]) if before else SETTLING
        else:
            part = SETTLING if "___024root" in function else HOST
        found[part] += seconds
    return dict(sorted(((part, seconds) for part, seconds in found.items() if seconds), key=lambda item: -item[1]))


def part_of(module: str) -> str:
    """The part that `module` belongs to."""
    return next((part for part, names in PARTS.items() if re.search(names, module)), SETTLING)
