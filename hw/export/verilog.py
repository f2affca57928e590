"""Conversion of an Amaranth component to SystemVerilog text.

yosys (pyosys) writes the text, because the plain Verilog of Amaranth's own back end has `always @*` blocks that assign
constants, which event-driven simulators and Verilator never execute.
"""

import re
import tempfile
from pathlib import Path

from amaranth.lib import wiring
from pyosys import libyosys

from . import conversion
from .netlist_names import merge_modules
from .processes import change_once

_MODULES = re.compile(r"^module .*?^endmodule$", re.MULTILINE | re.DOTALL)
_CONNECTIONS = re.compile(r"(.*?\n)((?:  assign [^\n]*;\n)*)(endmodule)", re.DOTALL)
_NAMELESS = re.compile(r"\\(\$\S*) ")
"""A name made up by a tool, `\\$auto$...$1234 `."""
_PLAIN_NUMBER = re.compile(r"\b_\d+_\b")
_NUMBERED = re.compile(r"\\([A-Za-z_]\w*\$[\w$]*) ")
"""A name with a number, `\\port$1 `, which Verilog takes without the backslash as well."""

_CONSTANT_SWITCH = re.compile(
    r"(?:^ *attribute [^\n]*\n)*^( *)switch \d+'([01]+)\n(.*?)^\1end\n", re.MULTILINE | re.DOTALL
)


def _same_every_time(module: re.Match[str]) -> str:
    """One module's text, free of what depends on the designs that this process has converted before.

    yosys counts the names it makes up over the life of the process: here they are `_1_`, `_2_`, in order of appearance.
    It writes the connections at the end of a module in an order of hashes: here they are sorted.
    """
    found = _CONNECTIONS.fullmatch(module[0])
    assert found is not None
    body, connections, end = found.groups()
    text = body + "".join(sorted(connections.splitlines(keepends=True))) + end
    names: dict[str, str] = {}
    taken = set(_PLAIN_NUMBER.findall(text))
    number = 0
    for name in dict.fromkeys(_NAMELESS.findall(text)):
        number += 1
        while f"_{number}_" in taken:
            number += 1
        names[name] = f"_{number}_"
    return change_once(_NUMBERED.sub(r"\1", _NAMELESS.sub(lambda match: names[match[1]], text)))


def _chosen(switch: re.Match[str]) -> str:
    """A switch over a constant as one over nothing, with the case that holds.

    yosys takes away the cases that do not hold by itself, but writes what then is an `else` alone without its `begin`.
    """
    indent, value, body = switch.groups()
    # What stands before the first case is its attribute; the last line of each piece but the last is the next one's.
    pieces = re.split(rf"^{indent}  case ?(.*)\n", body, flags=re.MULTILINE)
    for patterns, statements in zip(pieces[1::2], pieces[2::2], strict=True):
        texts = [pattern.partition("'")[2] for pattern in patterns.split(",")] if patterns else [value]
        if any(all(bit in ("-", at) for bit, at in zip(text, value, strict=True)) for text in texts):
            kept = re.sub(rf"^{indent}  attribute [^\n]*\n", "", statements, flags=re.MULTILINE)
            return f"{indent}switch {{ }}\n{indent}  case\n{kept}{indent}end\n"
    return ""


def _without_constant_switches(text: str) -> str:
    """RTLIL in which nothing is decided by a constant."""
    while (simpler := _CONSTANT_SWITCH.sub(_chosen, text)) != text:
        text = simpler
    return text


def run_pass(design: libyosys.Design, command: str) -> None:
    """Run a yosys command, without its log on standard output."""
    libyosys.Pass.call(design, f"tee -q {command}")


def to_rtlil(component: wiring.Component, name: str, sources: bool = False) -> str:
    """RTLIL of `component` as module `name`, equal submodules merged; with `sources` cells name their source lines."""
    return merge_modules(conversion.to_rtlil(component, name, sources))


def to_systemverilog(component: wiring.Component, name: str, locations: bool = False) -> str:
    """SystemVerilog of `component` as module `name`; its submodules are called `name__submodule`.

    Submodules that are equal up to numbers in names are written once, under the name of the first. The same component
    gives the same text, every time. Ports are `clk`, `rst` and the members of its signature, flattened with double
    underscores. A memory that is written starts with anything; :class:`ValueError` when it is given contents.
    With `locations`, attributes `src` tell which line of Python a signal or an expression comes from.
    """
    text = merge_modules(conversion.to_rtlil(component, name, sources=locations, contents=False))
    text = _without_constant_switches(text)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "design.il"
        target = Path(folder) / "design.sv"
        source.write_text(text)
        design = libyosys.Design()
        for command in (
            f"read_rtlil {source}",
            # Wires of no width (a field with only one value) are `[-1:0]` in Verilog.
            "delete w:* s:0 %i",
            "proc -nomux -norom",
            "memory_collect",
            f"write_verilog -sv -norename {'' if locations else '-noattr '}{target}",
        ):
            run_pass(design, command)
        return _MODULES.sub(_same_every_time, target.read_text())
