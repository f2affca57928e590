"""A ring whose nodes are the exported Verilog file of the whole node, instead of the component it is made from."""

from typing import Any
from unittest.mock import patch

import pytest
from amaranth import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw.config import Configuration
from hw.export.verilog import to_systemverilog
from hw.memory_controller.events import ControllerEvents
from hw.node import Node
from sim.experiments.catalogue import shape
from sim.experiments.experiment import run_experiment
from sim.experiments.regression import quiet
from sim.models import gpu
from sim.simulator import fast_model


class ExportedNode(wiring.Component):
    """The ports of :class:`hw.node.Node`; inside, an instance of module `t3_node`."""

    exported: str = ""

    def __init__(self, config: Configuration):
        node = Node(config)
        super().__init__(dict(node.signature.members))
        # What a simulation observes inside of the component is no port of the exported file: it sees nothing.
        self.probes = [Signal(ControllerEvents) for _ in node.probes]
        self.remote_room = [Signal.like(room) for room in node.remote_room]
        ExportedNode.exported = to_systemverilog(node, "t3_node")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in self.signature.flatten(self):
            direction = "i" if member.flow == In else "o"
            ports[f"{direction}_{'__'.join(map(str, path))}"] = Value.cast(value)
        m.submodules.node = Instance("t3_node", **ports)
        return m


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_the_exported_node_reduces_bit_for_bit(name: str) -> None:
    """Two GPUs, a GEMM and its reduce-scatter; the check compares every element and every counter."""
    sources = fast_model._gpu_sources

    def with_node(*arguments: Any) -> dict[str, str]:
        texts: dict[str, str] = sources(*arguments)
        return {**texts, "t3_node.sv": ExportedNode.exported}

    with (
        fast_model.changed_hardware(),
        patch.object(gpu, "Recorded", ExportedNode),
        patch.object(fast_model, "_gpu_sources", with_node),
        quiet(),
    ):
        result = run_experiment(shape(gpus=2, shape=(256, 64, 32), tile=(64, 64), preset=name, alone=False))
    assert "module t3_node" in ExportedNode.exported
    assert result["errors"] == []
