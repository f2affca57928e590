"""Mutants of a netlist: listed by yosys, applied together behind one selector."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyosys import libyosys

ROOT = Path(__file__).resolve().parents[2]
SELECT = Path(__file__).with_name("mutant_select.sv")
"""Source of the module that drives the selector from the plusarg."""
_CELL_KINDS_LEFT_ALONE = ("$meminit*", "$check", "$assert", "$assume", "$cover", "$print", "$scopeinfo")
"""What is no hardware: checks, and initial content of memories."""
_LOOPS_ALLOWED = "/* verilator lint_off UNOPTFLAT */\n"
"""A bit that is inverted when another bit of the same port is high may depend on itself."""


_NO_LOGIC = re.compile(r"-port ((\w+_)?clk|RD_[AS]RST|RD_EN -portbit \d+(?! .*-wire)) ", re.IGNORECASE)
"""A fault of the clock is none of the logic, and no proof sees it. A memory's read port has no reset, and one without a
clock no enable: yosys, which gives it inputs for them, ends the process when those are not constant."""


@dataclass(frozen=True)
class Mutant:
    """One fault: `command` applies it (yosys `mutate ...`), `sources` are the lines of `hw` that made its cell."""

    number: int
    command: str
    sources: tuple[str, ...]

    @property
    def mode(self) -> str:
        """What was done: `inv`, `const0`, `const1`, or inverted if another of its bits is 0, 1: `cnot0`, `cnot1`."""
        return self.command.split("-mode ")[1].split()[0]

    @property
    def place(self) -> str:
        """Where: module, and the wire or else the cell's port, with the bit."""
        of = options(self.command)
        inside = (
            f"{of['-wire']}[{of['-wirebit']}]" if "-wire" in of else f"{of['-cell']}.{of['-port']}[{of['-portbit']}]"
        )
        return f"{of['-module']}.{inside}"


def options(command: str) -> dict[str, str]:
    """What a mutation says by each of its options."""
    words = command.split()
    return {word: words[at + 1] for at, word in enumerate(words) if word.startswith("-")}


@contextmanager
def netlist_design(rtlil: str) -> Iterator[libyosys.Design]:
    """`rtlil` as a design of cells, its processes turned into multiplexers."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "design.il"
        source.write_text(rtlil)
        design = libyosys.Design()
        call(design, f"read_rtlil {source}")
    call(design, "proc -norom", "memory_collect")
    yield design


def call(design: libyosys.Design, *commands: str) -> None:
    """Run yosys commands without their output."""
    for command in commands:
        libyosys.Pass.call(design, f"tee -q {command}")


def put_beside(design: libyosys.Design, command: str, *flat: str) -> None:
    """`design`, made one module by the commands `flat`, becomes module `gold`, and with mutation `command` in it module
    `gate`, of one design."""
    call(design, "design -save original", *flat, "rename -top gold", "design -stash gold", "design -load original")
    call(design, command, *flat, "rename -top gate", "design -copy-from gold -as gold gold")


def list_mutants(rtlil: str, name: str, patterns: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """About `count` faults in cells made by source files that match one of `patterns` (relative to the root, `*` any).

    yosys spreads them evenly over source lines and wires; the same seed gives the same ones.
    """
    chosen = " ".join(f"a:src=*{pattern}*" for pattern in patterns)
    left_alone = " ".join(f"t:{kind} %d" for kind in _CELL_KINDS_LEFT_ALONE)
    with netlist_design(rtlil) as design, tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "list"
        call(
            design,
            f"hierarchy -top {name}",
            f"select -set chosen {chosen} t:* %i {left_alone}",
            f"mutate -list {2 * count} -seed {seed} -o {found} @chosen",
        )
        commands = [line for line in found.read_text().splitlines() if not _NO_LOGIC.search(line)][:count]
    return [Mutant(number, command, _sources(command)) for number, command in enumerate(commands, 1)]


def _sources(command: str) -> tuple[str, ...]:
    """Lines of `hw` named by a mutation, relative to the root."""
    lines = [Path(word) for before, word in zip(command.split(), command.split()[1:]) if before == "-src"]
    return tuple(str(line.relative_to(ROOT)) for line in lines if line.is_relative_to(ROOT))


def _behind_register(rtlil: str, command: str) -> tuple[str, str]:
    """The netlist and the command for the same fault at a buffer between the register and all who read it.

    At the register's output it would take the name by which tests set the register. Ports and parts of a wire are left.
    """
    of = options(command)
    start = rtlil.index(f"\nmodule \\{of['-module']}\n")
    end = rtlil.index("\nend\n", start)
    module = rtlil[start:end]
    cell = re.search(
        rf"^  cell \S+ {re.escape(of['-cell'])}\n(?:    .*\n)*?    connect \\Q (\S+)$", module, re.MULTILINE
    )
    wire = cell and re.search(rf"^  wire(?: width (\d+))? {re.escape(cell[1])}$", module, re.MULTILINE)
    if not cell or not wire:
        return rtlil, command
    register, width = cell[1], wire[1] or 1
    read, buffer = f"{register}$read", f"$read_{register[1:]}"
    if f" {buffer}\n" not in module:
        # Everywhere but at the output itself, and where a cell's port has the same name.
        named = re.compile(rf"(?<!\S)(?<!^    connect )(?<!connect \\Q ){re.escape(register)}(?!\S)", re.MULTILINE)
        declared = f"{wire[0]}\n  wire width {width} {read}\n"
        between = (
            f"  cell $pos {buffer}\n    parameter \\A_SIGNED 0\n    parameter \\A_WIDTH {width}\n"
            f"    parameter \\Y_WIDTH {width}\n    connect \\A {register}\n    connect \\Y {read}\n  end\n"
        )
        before, after = module.split(f"{wire[0]}\n", 1)
        module = before + declared + between + named.sub(lambda _: read, after)
    behind = command.replace(f"-cell {of['-cell']} -port Q", f"-cell {buffer} -port Y")
    return rtlil[:start] + module + rtlil[end:], behind


def apply_mutants(rtlil: str, name: str, mutants: Sequence[Mutant]) -> str:
    """SystemVerilog of the netlist with all `mutants` in it, each active when the plusarg `mutant` is its number."""
    commands = []
    for mutant in mutants:
        command = mutant.command
        if " -port Q " in command:
            rtlil, command = _behind_register(rtlil, command)
        commands.append(command.replace("mutate ", f"mutate -ctrl mutant_number 16 {mutant.number} ", 1))
    with netlist_design(rtlil) as design, tempfile.TemporaryDirectory() as folder:
        call(design, *commands)
        target = Path(folder) / "design.sv"
        call(design, f"write_verilog -sv -norename -noattr {target}")
        text = target.read_text()
    return _drive_selector(text, name)


def _drive_selector(text: str, name: str) -> str:
    """`text` with the selector of module `name` driven by an instance of `mutant_select` instead of a port."""
    start = re.search(rf"^module {name}\(", text, re.MULTILINE)
    if start is None:
        raise ValueError(f"no module {name} in the netlist")
    head, body = text[: start.start()], text[start.start() :]
    ports, rest = body.split(");", 1)
    ports = re.sub(r",\s*mutant_number|mutant_number,\s*", "", ports)
    declaration = "wire [15:0] mutant_number;\n  mutant_select mutant_select (.mutant(mutant_number));"
    rest = re.sub(r"input \[15:0\] mutant_number;\s*wire \[15:0\] mutant_number;", declaration, rest, count=1)
    return f"{_LOOPS_ALLOWED}{head}{ports});{rest}"
