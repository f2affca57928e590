"""Tracker, ALU and arbiter after synthesis to generic gates, under the cocotb tests of the blocks themselves."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from hw.memory_controller.arbiter import Arbiter
from hw.synthesis.gates import to_gates
from tb.unit import test_alu as alu
from tb.unit import test_arbiter as arbiter
from tb.unit import test_tracker as tracker


@pytest.fixture(autouse=True)
def gate_level() -> Iterator[None]:
    """Every simulation of a test builds the gates instead of the RTL."""
    with patch("tb.runner.to_systemverilog", to_gates):
        yield


def test_gates_hold_no_arithmetic():
    text = to_gates(Arbiter(), "arbiter")
    assert " + " not in text
    assert " < " not in text
    assert "always_ff @(posedge clk)" in text


@pytest.mark.parametrize("policy", ["ROUND_ROBIN", "MCA"])
def test_arbiter(policy):
    arbiter.test_arbiter(policy)


@pytest.mark.slow
def test_alu():
    with patch("sim.benches.vectors.to_systemverilog", to_gates):
        alu.test_masks_stores_and_first_touch(gated_clocks=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["small_no_stalls", "tiny"])
def test_tracker(case):
    tracker.run("every_block_triggers_once", tracker.CASES[case])
