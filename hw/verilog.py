"""Conversion of an Amaranth component to SystemVerilog text.

yosys (pyosys) writes the text, because the plain Verilog of Amaranth's own back end has `always @*` blocks that assign
constants, which event-driven simulators and Verilator never execute.
"""

import re
import tempfile
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring


_MODULE = re.compile(r"^module \\(\S+?)\(", re.MULTILINE)


def _plain_module_names(text: str) -> str:
    """Replace the dots Amaranth puts between module names, so that no module name needs escaping."""
    for name in sorted(set(_MODULE.findall(text)), key=len, reverse=True):
        text = text.replace(f"\\{name}(", f"{name.replace('.', '__')}(").replace(
            f"\\{name} ", f"{name.replace('.', '__')} "
        )
    return text


def to_systemverilog(component: wiring.Component, name: str) -> str:
    """SystemVerilog of `component` as module `name`; its submodules are called `name__submodule`.

    Ports are `clk`, `rst` and the members of its signature, flattened with double underscores.
    """
    from pyosys import libyosys

    text = rtlil.convert(component, name=name, emit_src=False)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "design.il"
        target = Path(folder) / "design.sv"
        source.write_text(text)
        design = libyosys.Design()
        # `tee` keeps each pass from writing its log to standard output.
        for command in (
            f"read_rtlil {source}",
            "proc -nomux -norom",
            "memory_collect",
            f"write_verilog -sv -norename -noattr {target}",
        ):
            libyosys.run_pass(f"tee -q {command}", design)
        return _plain_module_names(target.read_text())
