"""The arbiter and its detector at the ends of their ranges: settings of any value, changed in flight; counters full."""

import random
from functools import cache

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.memory_controller.arbiter import Arbiter
from hw.memory_controller.intensity import IntensityDetector
from hw.messages import ArbiterControl, Policy, Threshold
from tb.drivers.clock import pass_cycles
from tb.runner import simulate
from tb.unit.memory_controller.test_arbiter import BOUNDARIES, LIMIT, Golden, compare, control, start

arbiter = cache(Arbiter)

FULL = 0xFFFF


@cocotb.test()
async def settings_change_in_flight(dut):
    """Every field of the control word is random and changes while requests wait."""
    await start(dut)
    golden = Golden("MCA", "NONE", 0)
    for _ in range(150):
        golden.policy = random.choice(list(Policy)).name
        golden.threshold = random.choice(list(LIMIT))
        golden.starvation = random.choice([0, 1, 7, random.randrange(1 << 16)])
        fields = {name: random.randrange(1 << field.width) for name, field in ArbiterControl}
        fields |= {"policy": Policy[golden.policy].value, "threshold": Threshold[golden.threshold].value}
        fields |= {"starvation_limit": golden.starvation}
        golden.pace, golden.pace_lag = fields["pace"], fields["pace_lag"]
        dut.control.value = control(**fields)
        for _ in range(random.randrange(1, 20)):
            waiting = [random.random() < 0.7, random.random() < 0.8]
            admissible = [there and random.random() < 0.8 for there in waiting]
            room, active, occupancy = random.random() < 0.8, random.random() < 0.5, random.randrange(65)
            dut.accepted.value = random.random() < 0.5
            await compare(dut, golden, room, waiting, admissible, occupancy, active)
            assert int(dut.threshold.value) == Threshold[golden.threshold].value


@cocotb.test()
async def a_long_wait_does_not_wrap(dut):
    """After more cycles than the wait counter counts, communication is still forced."""
    await start(dut)
    dut.control.value = control(policy=Policy.COMPUTE_FIRST, threshold=Threshold.NONE, starvation_limit=FULL)
    dut.room.value = dut.compute_waiting.value = dut.compute_admissible.value = dut.communication_waiting.value = 1
    dut.communication_admissible.value = 0
    await pass_cycles(dut, FULL + 10)
    assert int(dut.held_communication.value) == 1
    dut.communication_admissible.value = 1
    await ReadOnly()
    assert int(dut.take_communication.value) == 1
    assert int(dut.forced.value) == 1
    assert int(dut.take_compute.value) == 0


@cocotb.test()
async def any_lag_is_made_up_for(dut):
    """PACED: a lag of any size up to the largest is counted, and communication goes first until it is made up for."""
    await start(dut)
    # A little more than each power of two: made up for at once if the highest bit were lost. Short ones: to the end.
    lags = [(1 << bit) + random.randrange(256, 512) for bit in range(9, 16)]
    lags += [random.randrange(200, 3000) for _ in range(20)] + [0x5555, 0xAAAA, FULL + 20]
    for lag in lags:
        for pace_lag in (min(lag + 1, FULL), min(lag, FULL), random.randrange(min(lag, FULL))):
            pace = random.choice([0x55, 0xAA, random.randrange(129, 256), random.randrange(1, 256)])
            golden = Golden("PACED", "NONE", 0, pace, pace_lag)
            dut.control.value = control(
                policy=Policy.PACED, threshold=Threshold.NONE, starvation_limit=0, pace=pace, pace_lag=pace_lag
            )
            await compare(dut, golden, False, (False, False), (False, False), 0, True)
            dut.communication_waiting.value = 1
            await pass_cycles(dut, lag)
            golden.lag = min(lag, FULL)
            golden.catching_up = lag > pace_lag
            for _ in range(40):
                there = random.random() < 0.8
                await compare(dut, golden, random.random() < 0.9, (there, True), (there, True), 64, True)


@cocotb.test()
async def windows_of_any_length(dut):
    """Requests in a random window against random boundaries; one window as long as the field allows."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.kernel_active.value = dut.accepted.value = 0
    dut.rst.value = 1
    await pass_cycles(dut, 2)
    dut.rst.value = 0
    short = [random.randrange(1, 300) for _ in range(100)]
    longer = [random.randrange(1 << 10, 1 << 11) for _ in range(66)]
    for number, window in enumerate([*short, *longer, FULL]):
        quiet = random.randrange(window - 1023 if window in longer else window + 1)
        count = window - quiet
        near = [count, min(count + 1, FULL), count ^ 1 << random.randrange(12)]
        bounds = {name: random.choice([random.randrange(window + 1), *near, FULL]) for name in BOUNDARIES}
        if number < 48:  # Each bit of each boundary in turn decides alone whether it is reached.
            bounds = dict.fromkeys(BOUNDARIES, FULL) | {list(BOUNDARIES)[number % 3]: count | 1 << number // 3}
        elif window in longer:
            bounds = dict.fromkeys(BOUNDARIES, FULL) | {list(BOUNDARIES)[number % 3]: count ^ 1 << number % 11}
        # The start of a kernel is measured whatever threshold is programmed.
        programmed = random.choice(list(Threshold))
        others = {
            name: random.randrange(1 << ArbiterControl[name].width) for name in ("starvation_limit", "pace", "pace_lag")
        }
        dut.control.value = control(threshold=programmed, window=window, **bounds, **others)
        await RisingEdge(dut.clk)
        dut.kernel_active.value = 1
        # Requests come without a break from a random moment of the window on.
        await pass_cycles(dut, quiet)
        dut.accepted.value = 1
        await pass_cycles(dut, count + 2)
        dut.control.value = control(threshold=Threshold.AUTO, window=window, **bounds, **others)
        await ReadOnly()
        reached = [threshold for name, threshold in BOUNDARIES.items() if count >= bounds[name]]
        expected = reached[0] if reached else Threshold.NONE
        assert int(dut.threshold.value) == expected.value, (window, count, bounds)
        await RisingEdge(dut.clk)
        # What was chosen stays, whatever the boundaries become.
        bounds = {name: random.choice([0, FULL]) for name in BOUNDARIES}
        dut.control.value = control(threshold=Threshold.AUTO, window=window, **bounds, **others)
        await RisingEdge(dut.clk)
        await ReadOnly()
        assert int(dut.threshold.value) == expected.value
        await RisingEdge(dut.clk)
        dut.kernel_active.value = dut.accepted.value = 0
        await RisingEdge(dut.clk)


def test_settings_change_in_flight():
    simulate(arbiter(), "arbiter", __name__, "settings_change_in_flight")


def test_a_long_wait_does_not_wrap():
    simulate(arbiter(), "arbiter", __name__, "a_long_wait_does_not_wrap")


def test_any_lag_is_made_up_for():
    simulate(arbiter(), "arbiter", __name__, "any_lag_is_made_up_for")


@pytest.mark.parametrize("kind", [Arbiter, IntensityDetector])
def test_windows_of_any_length(kind):
    """Of the detector by itself, and in the arbiter, whose threshold is the detector's."""
    simulate(kind(), "arbiter" if kind is Arbiter else "intensity_detector", __name__, "windows_of_any_length")
