"""What goes out with the Verilog: byte-identical exports, linters, FuseSoC, SystemRDL."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hw.config import PRESETS
from hw.export.exporter import BLOCKS, export
from hw.export.files import ICARUS_NOTES, WAIVERS
from hw.registers.map import register_map
from sim.simulator.verilator import prepare_environment

TINY = PRESETS["tiny"]
ALL_MODULES = ("t3_node", "t3_near_bank")
"""Blocks that hold all the others."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    export(TINY, folder)
    return folder


def yosys(*commands: str) -> str:
    """What Yosys says of an error. In a process of its own: after an error Yosys ends the one that it is in."""
    script = "from pyosys import libyosys\ndesign = libyosys.Design()\n"
    script += "".join(f"libyosys.Pass.call(design, {command!r})\n" for command in commands)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return "" if run.returncode == 0 else f"{run.stdout[-2000:]}{run.stderr[-2000:]}"


def lint(top: str, source: Path, *control: Path) -> str:
    """What Verilator's -Wall says of `source`."""
    prepare_environment()
    program = Path(os.environ["VERILATOR_ROOT"]) / "bin" / "verilator"
    command = [str(program), "--lint-only", "-Wall", "--top-module", top, *map(str, control), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.wide
def test_two_exports_are_byte_identical(exported, tmp_path):
    again = export(TINY, tmp_path)
    assert {path.name for path in again} == {path.name for path in exported.iterdir()}
    for path in again:
        assert path.read_bytes() == (exported / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", BLOCKS)
def test_names_need_no_escaping_and_yosys_finds_nothing_wrong(exported, name):
    file = exported / f"{name}.sv"
    text = file.read_text()
    names = re.findall(r"^module (\\?\S+?)\s*\(", text, re.MULTILINE)
    assert name in names
    assert len(set(names)) == len(names)
    for module in names:
        assert re.fullmatch(r"[A-Za-z_]\w*", module), module
    assert "$auto$" not in text
    if name not in ALL_MODULES:
        return
    assert yosys(f"read_verilog -sv {file}", f"hierarchy -check -top {name}", "proc", "check -assert") == ""


@pytest.mark.parametrize("name", BLOCKS)
def test_verilator_has_no_error_but_the_waived_ones(exported, name):
    assert lint(name, exported / f"{name}.sv", exported / "t3_lint.vlt") == ""


def test_every_waiver_is_needed(exported):
    errors = "".join(lint(name, exported / f"{name}.sv") for name in ALL_MODULES)
    rules = set(re.findall(r"%(?:Warning|Error)-(\w+)", errors))
    assert rules == {rule for rule, _ in WAIVERS}


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed (Debian: apt install iverilog)")
@pytest.mark.parametrize("name", BLOCKS)
def test_icarus_has_no_error(exported, name):
    command = ["iverilog", "-g2012", "-Wall", "-t", "null", "-s", name, str(exported / f"{name}.sv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = {line.split(": ", 1)[1] for line in (done.stdout + done.stderr).splitlines()}
    assert done.returncode == 0
    assert said <= set(ICARUS_NOTES), said


def test_no_memory_has_a_reset_and_nothing_is_a_primitive(exported):
    """Arrays are written in clocked processes only, one of which never tests the reset; every module is defined."""
    text = (exported / "t3_node.sv").read_text()
    defined = set(re.findall(r"^module (\w+)", text, re.MULTILINE))
    used = set(re.findall(r"^  (\w+) (?:#\([^)]*\) )?\w+ \($", text, re.MULTILINE))
    assert used <= defined
    arrays = set(re.findall(r"^  reg (?:\[\d+:0\] )?(\S+) \[\d+:0\];", text, re.MULTILINE))
    assert arrays
    for process in re.findall(
        r"^  always(?:_ff)? @\(posedge clk\)(?: begin)?\n(.*?)(?=^  \S)", text, re.MULTILINE | re.DOTALL
    ):
        if any(re.search(rf"{re.escape(name)}\s?\[", process) for name in arrays):
            assert not re.search(r"\brst\b", process), process
    assert not re.search(r"^\s*always_latch", text, re.MULTILINE)


@pytest.mark.skipif(importlib.util.find_spec("fusesoc") is None, reason="fusesoc is not installed (extra [synth])")
@pytest.mark.parametrize("name", BLOCKS)
def test_fusesoc_takes_the_core_of_each_block(exported, name):
    from fusesoc.capi2.coreparser import Core2Parser
    from fusesoc.core import Core

    whole = name == "t3_node"
    core = Core(Core2Parser(), str(exported / ("t3.core" if whole else f"{name}.core")))
    assert core.name.name == ("t3" if whole else name)
    lint_flags = {"tool": "verilator", "target": "lint", "is_toplevel": True}
    files = [item["name"] for item in core.get_files(lint_flags)]
    assert files == ["t3_lint.vlt", *(["t3_near_bank.sv"] if whole else []), f"{name}.sv"]
    assert all((exported / file).exists() for file in files)
    assert core.get_toplevel(lint_flags) == name


@pytest.mark.skipif(importlib.util.find_spec("fusesoc") is None, reason="fusesoc is not installed (extra [synth])")
def test_every_core_depends_on_the_package_of_port_structs(exported):
    from fusesoc.capi2.coreparser import Core2Parser
    from fusesoc.core import Core

    cores = {path.stem: Core(Core2Parser(), str(path)) for path in exported.glob("*.core")}
    package = cores.pop("t3_pkg")
    assert [item["name"] for item in package.get_files({})] == ["t3_pkg.sv"]
    for name, core in cores.items():
        assert [dependency.name for dependency in core.get_depends({"tool": "verilator"})] == ["t3_pkg"], name


@pytest.mark.skipif(importlib.util.find_spec("systemrdl") is None, reason="systemrdl-compiler is not installed")
@pytest.mark.parametrize("name", PRESETS)
def test_systemrdl_compiles_to_the_same_addresses(name, tmp_path):
    from systemrdl import RDLCompiler
    from systemrdl.node import RegNode

    from hw.registers.systemrdl import systemrdl

    config = PRESETS[name]
    file = tmp_path / "t3_registers.rdl"
    file.write_text(systemrdl(config))
    compiler = RDLCompiler()
    compiler.compile_file(str(file))
    top = compiler.elaborate().top
    addresses = {node.inst_name: node.absolute_address for node in top.children() if isinstance(node, RegNode)}
    windows = {"range_table": (0x4000, [config.ranges]), "send_table": (0x6000, [config.sends])}
    expected = {register.name: register.address for register in register_map(config) if register.name not in windows}
    assert addresses == expected
    for name, (address, dimensions) in windows.items():
        table = top.get_child_by_name(name)
        assert (table.raw_absolute_address, table.array_dimensions) == (address, dimensions)
    if importlib.util.find_spec("peakrdl_ipxact"):
        from peakrdl_ipxact import IPXACTExporter

        IPXACTExporter().export(top, str(tmp_path / "t3.xml"))
        assert "<ipxact:addressBlock>" in (tmp_path / "t3.xml").read_text()
