"""Maps a design to the cells of a Liberty library with yosys and abc; memories of some size stay as macros.

Runs as a process of its own (`python -m hw.synthesis.mapping JOB`), because an error inside yosys ends the process.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.lib import wiring

from ..export.netlist_names import merge_modules

MACRO_BITS = 1024
"""A memory of at least this many bits is a macro (an SRAM, or a register file when its read is asynchronous); a smaller
one is made of flip-flops."""

ABC_SCRIPT = (
    "strash; ifraig; scorr; dc2; strash; if -g -K 8 -C 16; strash; if -g -K 6; strash; &get -n; &dch -f; &nf -p; &put; "
    "topo; buffer -N 10; topo; upsize; dnsize; stime"
)
"""Two rounds of depth-oriented restructuring: with one, adders and comparators come out a third longer."""


class SynthesisError(RuntimeError):
    """yosys or abc failed; the message ends with the last lines of the log."""


@dataclass(frozen=True)
class Job:
    """What to map: `source` (RTLIL), module `top`, Liberty files; results `netlist` (JSON) and `log`."""

    source: str
    top: str
    libraries: list[str]
    netlist: str
    log: str
    driver: str
    """Cell that stands for the drivers of inputs in abc's sizing."""
    apart: tuple[str, ...] = ()
    """Modules whose logic is mapped by itself, each once; the netlist is flat all the same."""
    copies: tuple[str, ...] = ()
    """Instances in `top` that all stand for the first one's module: it is mapped once, and is a module of its own in
    the netlist (:mod:`hw.synthesis.copies`)."""


def write_design(component: wiring.Component, name: str, folder: Path) -> Path:
    """RTLIL of `component` as `folder/name.il`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.il"
    source.write_text(merge_modules(rtlil.convert(component, name=name, emit_src=False)))
    return source


def run(job: Job) -> None:
    """Map the job's design: its netlist holds yosys's JSON descriptions of flat modules, `top` and that of `copies`."""
    description = Path(job.netlist).with_suffix(".job")
    description.write_text(json.dumps(asdict(job)))
    done = subprocess.run(
        [sys.executable, "-m", "hw.synthesis.mapping", str(description)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        log = Path(job.log)
        tail = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        raise SynthesisError("\n".join([f"yosys failed on {job.top}", *tail, done.stderr[-1000:]]))


def memory_sizes(source: Path, top: str) -> dict[str, int]:
    """Bits of every memory of RTLIL file `source`, by name."""
    from pyosys import libyosys

    design = libyosys.Design()
    for command in (f"read_rtlil {source}", f"hierarchy -check -top {top}", "proc", "flatten", "memory_collect"):
        libyosys.Pass.call(design, f"tee -q {command}")
    return {name.partition("/")[2]: bits for name, bits in _memories(design).items()}


def _bits(memory: Any) -> int:
    from pyosys import libyosys

    words, width = (memory.getParam(libyosys.IdString(f"\\{name}")).as_int() for name in ("SIZE", "WIDTH"))
    return int(words * width)


def _memories(design: Any) -> dict[str, int]:
    """Bits of every memory, by module and name."""
    return {
        f"{_name(module)}/{_name(cell)}": _bits(cell)
        for module in design.selected_modules()
        for cell in module.selected_cells()
        if cell.type.str() == "$mem_v2"
    }


def _name(thing: Any) -> str:
    return str(thing.name.str()).removeprefix("\\")


def _instances(design: Any, top: str) -> dict[str, int]:
    """How often each module stands in module `top`, or below; it itself once."""
    counts = {top: 1}
    waiting = [top]
    modules = {_name(module): module for module in design.selected_modules()}
    while waiting:
        for cell in modules[waiting.pop()].selected_cells():
            name = cell.type.str().removeprefix("\\")
            if name in modules:
                counts[name] = counts.get(name, 0) + 1
                waiting.append(name)
    return counts


def _copied(design: Any, job: Job) -> str:
    """The module of the first of the job's copies; empty without any."""
    from pyosys import libyosys

    if not job.copies:
        return ""
    top = design.module(libyosys.IdString(f"\\{job.top}"))
    return str(top.cell(libyosys.IdString(f"\\{job.copies[0]}")).type.str().removeprefix("\\"))


def _in_all(design: Any, top: str, amount: Callable[[Any], int]) -> int:
    """The sum of the `amount` of every cell in `top` that is no module, as often as it stands there."""
    counts = _instances(design, top)
    return sum(
        counts.get(_name(module), 0)
        * sum(amount(cell) for cell in module.selected_cells() if cell.type.str().removeprefix("\\") not in counts)
        for module in design.selected_modules()
    )


def _map(job: Job) -> None:
    from pyosys import libyosys

    design = libyosys.Design()

    def call(*commands: str) -> None:
        for command in commands:
            libyosys.Pass.call(design, f"tee -q -a {job.log} {command}")

    call(f"read_rtlil {job.source}", f"hierarchy -check -top {job.top}")
    copied = _copied(design, job)
    call(*(f"chtype -set {copied} {job.top}/{name}" for name in job.copies[1:]), f"hierarchy -check -top {job.top}")
    # What stood only in other copies is gone.
    left = {_name(module) for module in design.selected_modules()}
    apart = [name for name in (*job.apart, copied) if name in left]
    call(
        "proc",
        *(f"setattr -mod -set keep_hierarchy 1 {name}" for name in apart),
        "flatten",
        "setattr -unset init",
        "opt_expr",
        "opt_clean",
        "check -assert",
        "opt -nodffe -nosdff",
        "wreduce",
        "peepopt",
        "opt_clean",
        "booth",
        "alumacc",
        "opt -nodffe -nosdff",
        "memory -nomap",
        "opt_clean",
    )
    memories = _memories(design)
    memory_bits = _in_all(design, job.top, lambda cell: _bits(cell) if cell.type.str() == "$mem_v2" else 0)
    small = [name for name, bits in memories.items() if bits < MACRO_BITS]
    if small:
        call(f"select -set small {' '.join(small)}", "memory_map @small")
    libraries = " ".join(f"-liberty {path}" for path in job.libraries)
    script = Path(job.log).with_suffix(".abc")
    script.write_text(ABC_SCRIPT.replace("; ", "\n") + "\n")
    constraints = script.with_suffix(".constr")
    constraints.write_text(f"set_driving_cell {job.driver}\nset_load 3\n")
    abc = Path(libyosys.__file__).parent / "yosys-abc"
    call(
        "setattr -unset init",
        "opt -nodffe -nosdff",
        # Adders and comparators in logarithmic depth (Sklansky 1960).
        "techmap -map +/techmap.v -map +/choices/sklansky.v",
        "opt -nodffe -nosdff -fast",
        "dfflegalize -cell $_DFF_P_ x",
        "techmap",
        "simplemap",
        "opt -nodffe -nosdff",
    )
    cells = _in_all(design, job.top, lambda cell: int(not cell.type.str().startswith("$mem")))
    described = {"cells": cells, "memory_bits": memory_bits, "memories": memories}
    Path(job.log).with_suffix(".generic").write_text(json.dumps(described, indent=1))
    call(
        f"dfflibmap {libraries}",
        "opt -nodffe -nosdff",
        f"abc -exe {abc} {libraries} -script {script} -constr {constraints}",
        "setundef -zero",
        "setattr -mod -unset keep_hierarchy",
        *([f"setattr -mod -set keep_hierarchy 1 {copied}"] if copied else []),
        "flatten",
        "opt_clean -purge",
        f"stat {libraries}",
        f"write_json {job.netlist}",
    )


if __name__ == "__main__":
    _map(Job(**json.loads(Path(sys.argv[1]).read_text())))
