"""A component as generic gates: what yosys makes of it without any cell library. Memories stay memories."""

import tempfile
from pathlib import Path

from amaranth.lib import wiring
from pyosys import libyosys

from .mapping import write_design


def to_gates(component: wiring.Component, name: str) -> str:
    """Flat SystemVerilog of `component` as module `name`: two-input gates, multiplexers, flip-flops, memory arrays."""
    abc = Path(libyosys.__file__).parent / "yosys-abc"
    with tempfile.TemporaryDirectory() as folder:
        source = write_design(component, name, Path(folder))
        target = Path(folder) / "gates.sv"
        design = libyosys.Design()
        for command in (
            f"read_rtlil {source}",
            f"hierarchy -check -top {name}",
            "proc",
            "flatten",
            "opt",
            "wreduce",
            "booth",
            "alumacc",
            "opt",
            "memory -nomap",
            "opt",
            "techmap",
            "opt -fast",
            f"abc -exe {abc} -g gates",
            # Bit by bit: Verilator takes a vector whose bits depend on each other for a loop.
            "splitnets",
            "opt_clean -purge",
            "check -assert",
            f"write_verilog -sv -noattr {target}",
        ):
            libyosys.Pass.call(design, f"tee -q {command}")
        return target.read_text()
