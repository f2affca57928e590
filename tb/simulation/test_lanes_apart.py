"""A GPU whose lanes are models of their own: who waits for whom in a cycle is what `sim/models/lane_bus.py` says."""

from unittest.mock import patch

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import preset
from sim.models import lane_bus
from sim.models.gpu import Gpu
from sim.models.gpu_lane import GpuLane
from tb.drivers.netlist_paths import combinational_inputs

CONFIG = preset("paper", channels=2, lanes=2)
BUS = ("down", "early", "late")


def of_bus(names: set[str]) -> set[str]:
    """Parts of the bus among names of ports."""
    return {name.partition("__")[0] for name in names} & set(BUS)


@pytest.mark.parametrize(("source_sectors", "request_ports"), [(1 << 14, 0), (0, 1), (1 << 14, 2)])
def test_what_a_lane_says_early_depends_on_registers(source_sectors: int, request_ports: int) -> None:
    lane = GpuLane(CONFIG, 1 << 14, source_sectors=source_sectors, request_ports=request_ports)
    paths = combinational_inputs(lane)
    assert of_bus(paths["early"]) == set()
    assert of_bus(paths["late"]) == {"down"}


@pytest.mark.parametrize(("source_sectors", "plans"), [(0, True), (1 << 14, False), (1 << 14, True)])
def test_what_a_lane_says_late_reaches_registers_only(source_sectors: int, plans: bool) -> None:
    paths = combinational_inputs(Gpu(CONFIG, 1 << 14, source_sectors, plans=plans, lanes_apart=True))
    for name, inputs in paths.items():
        assert of_bus(inputs) <= {"early"}, name
        # The host drives its bus while the clock rises.
        assert not any(inner.startswith("axi_") for inner in inputs), name


def test_an_output_that_is_early_but_depends_on_inputs_is_found() -> None:
    with patch.object(lane_bus, "LATE", tuple(name for name in lane_bus.LATE if name != "blocks__ready")):
        paths = combinational_inputs(GpuLane(CONFIG, 1 << 14))
    assert of_bus(paths["early"]) == {"down"}


class Paths(wiring.Component):
    """An output behind a register, one before, one of both inputs."""

    def __init__(self) -> None:
        super().__init__({"a": In(2), "b": In(2), "held": Out(2), "straight": Out(2), "both": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.held.eq(self.a)
        m.d.comb += [self.straight.eq(self.a + 1), self.both.eq((self.held == self.b) | self.a[0])]
        return m


def test_paths_end_at_registers() -> None:
    assert combinational_inputs(Paths()) == {"held": set(), "straight": {"a"}, "both": {"a", "b"}}
