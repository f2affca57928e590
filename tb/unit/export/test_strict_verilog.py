"""The export against a strict front end, slang: the node, which holds every block, at three sizes, and every block as a
design of its own, without an error."""

import os
import subprocess
import sys
from pathlib import Path

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from hw.config import PRESETS
from hw.export.exporter import BLOCKS
from hw.export.verilog import to_systemverilog
from tb.runner import simulate

SLANG = """
import sys
from pyslang.driver import Driver

driver = Driver()
driver.addStandardArgs()
driver.parseCommandLine(f'slang "{sys.argv[1]}" --top {sys.argv[2]} -Werror --threads 1')
driver.processOptions()
driver.parseAllSources()
driver.reportParseDiags()
compilation = driver.createCompilation()
driver.reportCompilation(compilation, True)
driver.runAnalysis(compilation)
driver.reportDiagnostics(True)
print("errors:", driver.diagEngine.numErrors)
"""
"""A process of its own for each design: slang has crashed after several in one."""


def errors(folder: Path, text: str, top: str) -> int:
    """How many errors slang finds in `text`, its analysis of who drives what included; it prints them."""
    source = folder / f"{top}.sv"
    source.write_text(text)
    command = [sys.executable, "-c", SLANG, str(source), top]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    print(answer.stderr)
    return int(answer.stdout.rpartition("errors:")[2])


class Switched(wiring.Component):
    """Switches over signals that never change, between others; `number` is what two of them have, in bits 3:2."""

    bit: In(1)
    out: Out(6)

    def __init__(self, number: int):
        self._number = number
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low, high = Signal(), Signal(3)
        m.d.comb += [low.eq(0), high.eq(self._number)]
        with m.If(self.bit):
            m.d.comb += self.out[0].eq(1)
        with m.If(low):
            with m.If(self.bit):
                m.d.comb += self.out[1].eq(1)
        with m.Else():
            m.d.comb += self.out[1].eq(~self.bit)
        with m.Switch(high):
            with m.Case("00-", 2):
                m.d.comb += self.out[2:4].eq(1)
            with m.Case(5):
                m.d.comb += self.out[2:4].eq(2)
        with m.If(low):
            m.d.comb += self.out[4].eq(1)
        with m.If(self.bit):
            m.d.comb += self.out[0].eq(0)
            m.d.comb += self.out[5].eq(1)
        return m


@cocotb.test()
async def constants_decide(dut):
    chosen = int(os.environ["CHOSEN"])
    for bit in (1, 0, 1):
        dut.bit.value = bit
        await Timer(1, unit="ns")
        assert int(dut.out.value) == (1 - bit) << 1 | chosen << 2 | bit << 5


@pytest.mark.parametrize(("number", "chosen"), [(0, 1), (1, 1), (2, 1), (5, 2), (7, 0)])
def test_what_a_constant_decides_is_written_whole(number: int, chosen: int, tmp_path: Path) -> None:
    """yosys leaves out a line of an `else` whose `if` never holds, when it stands behind another one."""
    assert errors(tmp_path, to_systemverilog(Switched(number), "switched"), "switched") == 0
    simulate(Switched(number), "switched", __name__, "constants_decide", environment={"CHOSEN": str(chosen)})


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        *(("quad", name) for name in BLOCKS),
        pytest.param("paper", "t3_node", marks=pytest.mark.wide),
        ("tiny", "t3_node"),
    ],
)
def test_slang_finds_no_error(preset: str, name: str, tmp_path: Path) -> None:
    assert errors(tmp_path, to_systemverilog(BLOCKS[name](PRESETS[preset]), name), name) == 0


def test_slang_finds_a_memory_written_by_two_processes(tmp_path: Path) -> None:
    text = """module twice(input clk, input [1:0] d, output [1:0] q);
  reg [1:0] memory [3:0];
  initial memory[0] = 2'd0;
  always_ff @(posedge clk) memory[d] <= d;
  assign q = memory[0];
endmodule
"""
    assert errors(tmp_path, text, "twice") == 1


class Table(wiring.Component):
    """A memory of four bytes with initial contents; `written` also has a write port."""

    address: In(2)
    value: Out(8)

    def __init__(self, contents: list[int], written: bool):
        self._contents, self._written = contents, written
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(shape=8, depth=4, init=self._contents)
        read = table.read_port(domain="comb")
        m.d.comb += [read.addr.eq(self.address), self.value.eq(read.data)]
        if self._written:
            write = table.write_port()
            m.d.comb += [write.addr.eq(self.address), write.data.eq(self.value + 1), write.en.eq(1)]
        return m


def test_only_a_memory_that_is_never_written_has_contents(tmp_path: Path) -> None:
    table = to_systemverilog(Table([1, 2, 3, 4], written=False), "table_of_constants")
    assert "initial begin" in table
    assert errors(tmp_path, table, "table_of_constants") == 0
    assert "initial begin" not in to_systemverilog(Table([], written=True), "counters")
    with pytest.raises(ValueError, match=r"table.* is written and has initial contents"):
        to_systemverilog(Table([0, 0, 0, 1], written=True), "counters")
