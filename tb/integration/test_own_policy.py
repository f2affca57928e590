"""The tutorial's arbitration policy: what it does cycle by cycle, and that simulators are built with it."""

import importlib.util
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import preset
from hw.export.verilog import to_systemverilog
from hw.memory_controller import MemoryController, admission
from sim.errors import SimulationError
from sim.simulator import fast_model
from tb.runner import simulate

_spec = importlib.util.spec_from_file_location(
    "own_policy", Path(__file__).resolve().parents[2] / "examples" / "own_policy.py"
)
assert _spec is not None and _spec.loader is not None
own_policy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(own_policy)


@cocotb.test()
async def one_place_in_four_is_communication(dut: Any) -> None:
    """Against the rule in words, with room and requests at random."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.control.value = 0
    dut.kernel_active.value = 1
    dut.accepted.value = 0
    dut.occupancy.value = 0
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    computed, taken = 0, {"compute": 0, "communication": 0}
    for cycle in range(2000):
        room, compute, communication = (random.random() < share for share in (0.8, 0.8, 0.8))
        dut.room.value = room
        for name, waits in (("compute", compute), ("communication", communication)):
            getattr(dut, f"{name}_waiting").value = waits
            getattr(dut, f"{name}_admissible").value = waits
        await ReadOnly()
        choice = None
        if room and communication and (not compute or computed == own_policy.SHARE - 1):
            choice = "communication"
        elif room and compute:
            choice = "compute"
        for name, waits in (("compute", compute), ("communication", communication)):
            assert dut_value(dut, f"take_{name}") == (choice == name), cycle
            assert dut_value(dut, f"held_{name}") == (waits and choice != name), cycle
        if choice == "communication":
            computed = 0
        elif choice:
            computed = min(own_policy.SHARE - 1, computed + 1)
        if choice:
            taken[choice] += 1
        await RisingEdge(dut.clk)
    assert min(taken.values()) > 200


def dut_value(dut: Any, name: str) -> bool:
    return bool(int(getattr(dut, name).value))


def test_one_place_in_four_is_communication() -> None:
    simulate(own_policy.OneInFour(), "own_policy", __name__)


def test_another_share_is_noticed() -> None:
    with patch.object(own_policy, "SHARE", 3), pytest.raises(SimulationError):
        simulate(own_policy.OneInFour(), "own_policy", __name__)


def test_the_controller_holds_it() -> None:
    config = preset("tiny")
    ours = to_systemverilog(MemoryController(config), "controller")
    with patch.object(admission, "Arbiter", own_policy.OneInFour):
        assert to_systemverilog(MemoryController(config), "controller") != ours


def test_changed_hardware_is_found_by_its_text(tmp_path: Path) -> None:
    """The recipe of the same sources leads to a simulator without the change, and is left as it was."""
    recipe, plain, changed = (tmp_path / name for name in ("recipe", "plain", "changed"))
    for folder in (plain, changed):
        folder.mkdir()
        (folder / "complete").write_text("{}")
    assert fast_model._remembered(recipe, lambda: plain) == plain
    with fast_model.changed_hardware():
        assert fast_model._remembered(recipe, lambda: changed) == changed
    assert fast_model._remembered(recipe, lambda: changed) == plain
