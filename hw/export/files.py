"""Files that go with an export: lint waivers, and the description of the core for FuseSoC."""

from collections.abc import Sequence

from ..release import release
from .port_structs import PACKAGE

WAIVERS = (
    ("DECLFILENAME", "A file holds a block with all its submodules, so that one file can be taken alone."),
    ("UNUSEDSIGNAL", "Fields of a packed payload that a block passes over, and names kept for whoever reads waves."),
    ("WIDTHEXPAND", "Constants in comparisons are as short as their value; Verilog widens them with zeros."),
    ("WIDTHTRUNC", "`!` of a vector: a test for zero."),
    (
        "PROCASSINIT",
        "Registers have an initial value as well as a reset to it, for FPGAs; ASIC flows ignore the former.",
    ),
    ("CASEINCOMPLETE", "Every process assigns all its outputs before the case statement, so nothing is latched."),
)
"""Rules of Verilator's `-Wall` that do not hold for the export, each with the reason."""

ICARUS_NOTES = (
    "sorry: constant selects in always_* processes are not currently supported (all bits will be included).",
    "warning: always_comb process has no sensitivities.",
)
"""What `iverilog -g2012 -Wall` says of the export. The first is about which events wake a process (more than needed
do), the second about processes that assign constants, which always_comb executes once at time zero."""


def lint_waivers() -> str:
    """A Verilator control file that waives :data:`WAIVERS`."""
    lines = ["`verilator_config"]
    for rule, reason in WAIVERS:
        lines += [f"// {reason}", f"lint_off -rule {rule}"]
    return "\n".join(lines) + "\n"


def fusesoc_core(name: str, title: str, sources: Sequence[str], toplevel: str) -> str:
    """A FuseSoC core (CAPI 2) `name` of `sources`, with a target that lints `toplevel`."""
    files = "\n".join(f"      - {source}" for source in sources)
    return f"""CAPI=2:
name: ::{name}:{release()}
description: T3 (Track & Trigger) {title}
filesets:
  rtl:
    files:
{files}
    file_type: systemVerilogSource
    depend: ["::{PACKAGE}:{release()}"]
  waivers:
    files:
      - t3_lint.vlt
    file_type: vlt
targets:
  default:
    filesets: [rtl]
    toplevel: {toplevel}
  lint:
    default_tool: verilator
    filesets: [waivers, rtl]
    toplevel: {toplevel}
    tools:
      verilator:
        mode: lint-only
        verilator_options: [-Wall]
"""


def package_core() -> str:
    """A FuseSoC core of the package of port structs, which the others depend on."""
    return f"""CAPI=2:
name: ::{PACKAGE}:{release()}
description: T3 (Track & Trigger) structs of the ports
filesets:
  rtl:
    files:
      - {PACKAGE}.sv
    file_type: systemVerilogSource
targets:
  default:
    filesets: [rtl]
"""
