"""Exported Verilog: the same text every time, names that need no escaping, modules yosys has nothing to say against."""

import re

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import PRESETS
from hw.export.exporter import BLOCKS
from hw.export.verilog import to_systemverilog


class Accumulator(wiring.Component):
    """Adds `step` to what came in every cycle."""

    addend: In(8)
    total: Out(8)

    def __init__(self, step: int):
        self._step = step
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        partial = Signal(8, name="total")
        m.d.comb += partial.eq(self.addend + self._step)
        m.d.sync += self.total.eq(self.total + partial)
        return m


class Accumulators(wiring.Component):
    """Three accumulators in a chain, with the steps given."""

    first: In(8)
    last: Out(8)

    def __init__(self, steps: tuple[int, int, int]):
        self._steps = steps
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self.first
        for number, step in enumerate(self._steps):
            m.submodules[f"stage_{number}"] = stage = Accumulator(step)
            m.d.comb += stage.addend.eq(value)
            value = stage.total
        m.d.comb += self.last.eq(value)
        return m


def module_names(text: str) -> list[str]:
    return re.findall(r"^module (\\?\S+?)\s*\(", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("steps", "modules"),
    [
        ((1, 1, 1), ["accumulators", "accumulators__stage_0"]),
        ((1, 2, 1), ["accumulators", "accumulators__stage_0", "accumulators__stage_1"]),
    ],
)
def test_only_equal_submodules_become_one(steps, modules):
    text = to_systemverilog(Accumulators(steps), "accumulators")
    assert sorted(module_names(text)) == modules
    assert len(re.findall(r"^  accumulators__stage_\d stage_\d \($", text, re.MULTILINE)) == 3


def test_the_same_component_gives_the_same_text():
    first, second = (to_systemverilog(BLOCKS["t3_link_lane"](PRESETS["tiny"]), "link") for _ in range(2))
    assert first == second
