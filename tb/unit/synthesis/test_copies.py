"""A chip of many like parts is timed as one netlist: what `hw.synthesis.copies` puts together has the paths, the area
and the memories of the netlist in which every part is whole."""

from dataclasses import replace
from pathlib import Path

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.blocks import BLOCKS as INVENTORY
from hw.synthesis import copies, measure
from hw.synthesis.mapping import write_design

LANES = 4


class Lane(wiring.Component):
    """A long path of its own, and short ones from its input, through it, and to its output."""

    def __init__(self, number: int):
        self._number = number
        super().__init__({"a": In(8), "b": In(8), "y": Out(8), "through": Out(8), "same": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=16, depth=128, init=[])
        write, read = memory.write_port(), memory.read_port()
        kept, product, total = Signal(8), Signal(16), Signal(16)
        m.d.sync += [kept.eq(self.a), product.eq(kept * kept), total.eq(total + product + read.data)]
        m.d.comb += [
            write.addr.eq(total),
            write.data.eq(total),
            write.en.eq(kept[0]),
            read.addr.eq(total),
            read.en.eq(1),
        ]
        m.d.sync += self.y.eq(total[:8] ^ (total[8:] + self._number))
        m.d.comb += [self.through.eq(self.a + self.b), self.same.eq(self.b)]
        return m


class Chip(wiring.Component):
    """Lanes in a row: what leaves one within the cycle enters the next."""

    def __init__(self) -> None:
        super().__init__({"a": In(8), "b": In(8), "y": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        through, same = self.a, self.b
        outputs = []
        for number in range(LANES):
            m.submodules[f"lane_{number}"] = lane = Lane(number)
            m.d.comb += [lane.a.eq(through), lane.b.eq(same)]
            through, same = lane.through, lane.same
            outputs.append(lane.y)
        last = Signal(8)
        m.d.sync += [last.eq(through + same), self.y.eq(sum(outputs) + last)]
        return m


def figures(folder: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> measure.Figures:
    """Of the chip, with `pattern` the names of copies in it."""
    block = replace(INVENTORY["node"], name="chip", apart=r"lane_\d+", copies=pattern)
    monkeypatch.setitem(INVENTORY, "chip", block)
    return measure.measure_design(write_design(Chip(), "chip", folder), [])


def test_a_chip_of_copies_is_as_a_whole_one(tmp_path, monkeypatch):
    whole = figures(tmp_path / "whole", monkeypatch, "")
    joined = figures(tmp_path / "joined", monkeypatch, r"lane_\d+")
    assert (joined.memory_bits, joined.macro_bits) == (whole.memory_bits, whole.macro_bits) == (LANES * 2048,) * 2
    assert joined.cells == pytest.approx(whole.cells, rel=0.05)
    assert joined.gate_equivalents == pytest.approx(whole.gate_equivalents, rel=0.05)
    assert joined.fo4 == pytest.approx(whole.fo4, rel=0.05)


def test_copies_without_what_their_ports_see_are_noticed(tmp_path, monkeypatch):
    whole = figures(tmp_path / "whole", monkeypatch, "")
    monkeypatch.setattr(copies._Part, "seen_from_ports", lambda part, ideal: set())
    assert figures(tmp_path / "joined", monkeypatch, r"lane_\d+").fo4 < 0.9 * whole.fo4
