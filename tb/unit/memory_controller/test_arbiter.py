"""The arbiter follows its policy cycle by cycle; the detector chooses the threshold from the start of the kernel."""

import os
import random
from functools import cache

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.memory_controller.arbiter import Arbiter
from hw.memory_controller.intensity import IntensityDetector
from hw.messages import ArbiterControl, Policy, Threshold
from tb.drivers.clock import pass_cycles
from tb.drivers.payload import pack
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_arbiter
from tb.runner import caught, simulate

arbiter = cache(Arbiter)

POLICY = os.environ.get("ARBITER_POLICY", "MCA")
BOUNDARIES = {
    "boundary_10": Threshold.OCCUPANCY_5,
    "boundary_30": Threshold.OCCUPANCY_10,
    "boundary_none": Threshold.OCCUPANCY_30,
}
"""The detector's threshold at or above each boundary, the first that is reached."""
LIMIT = {"OCCUPANCY_5": 5, "OCCUPANCY_10": 10, "OCCUPANCY_30": 30, "NONE": 1000}


def control(**values):
    """Packed ArbiterControl. Whether the DRAM is refreshed is nothing to the arbiter."""
    return pack(ArbiterControl, **({"refresh": random.getrandbits(1)} | values))


class Golden:
    """The arbiter in words of section 4.5: who goes, given what is there."""

    def __init__(self, policy, threshold, starvation, pace=1, pace_lag=1):
        self.policy, self.threshold, self.starvation = policy, threshold, starvation
        self.pace, self.pace_lag = pace, pace_lag
        self.last = "communication"
        self.waited = 0
        self.lag = 0
        self.catching_up = False

    def step(self, room, compute, communication, waiting, occupancy, active):
        """Returns (stream or None, forced)."""
        mca = not compute and (occupancy < LIMIT[self.threshold] or not active)
        turn = {
            "ROUND_ROBIN": self.last == "compute" or not compute,
            "COMPUTE_FIRST": not compute,
            "MCA": mca,
            "PACED": mca or self.catching_up,
        }[self.policy]
        starved = self.starvation and self.waited >= self.starvation
        choice = None
        if communication and (turn or starved):
            choice = "communication"
        elif compute:
            choice = "compute"
        if not room:
            choice = None
        if choice:
            self.last = choice
        self.waited = self.waited + 1 if waiting and choice != "communication" else 0
        self.catching_up = waiting and (self.lag >= self.pace_lag or (self.catching_up and self.lag >= self.pace))
        served = self.pace if choice == "communication" else 0
        self.lag = max(0, self.lag + 1 - served) if waiting else 0
        return choice, choice == "communication" and not turn


async def start(dut):
    """Clock and reset; what the control input was before must not matter."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    rubbish = random.getrandbits(ArbiterControl.size)
    for value in (rubbish, rubbish ^ (1 << ArbiterControl.size) - 1, rubbish):
        dut.control.value = value
        await RisingEdge(dut.clk)
    dut.rst.value = 0


async def compare(dut, golden, room, waiting, admissible, occupancy, active):
    """One cycle of the arbiter and its golden model; `waiting` and `admissible` are (compute, communication)."""
    dut.compute_waiting.value, dut.communication_waiting.value = waiting
    dut.compute_admissible.value, dut.communication_admissible.value = admissible
    dut.room.value, dut.kernel_active.value, dut.occupancy.value = room, active, occupancy
    await ReadOnly()
    choice, forced = golden.step(room, *admissible, waiting[1], occupancy, active)
    assert int(dut.take_compute.value) == (choice == "compute")
    assert int(dut.take_communication.value) == (choice == "communication")
    assert int(dut.forced.value) == forced
    assert int(dut.held_compute.value) == (waiting[0] and choice != "compute")
    assert int(dut.held_communication.value) == (waiting[1] and choice != "communication")
    assert int(dut.passed_over.value) == (room and admissible[1] and choice != "communication")
    await RisingEdge(dut.clk)


@cocotb.test()
async def arbiter_follows_the_golden(dut):
    await start(dut)
    observe(watch_arbiter, dut)
    for threshold in LIMIT:
        for starvation in (0, 1, 3, 12):
            # A communication that starves before it lags is met with every threshold.
            pace, lag = (4, 30) if starvation == 3 else random.choice([(1, 1), (3, 12), (6, 5), (4, 30)])
            golden = Golden(POLICY, threshold, starvation, pace, lag)
            dut.rst.value = 1
            dut.control.value = control(
                policy=Policy[POLICY],
                threshold=Threshold[threshold],
                starvation_limit=starvation,
                pace=pace,
                pace_lag=lag,
            )
            dut.communication_waiting.value = 0
            await RisingEdge(dut.clk)
            dut.rst.value = 0
            busy, often = random.choice([0.5, 0.9, 1.0]), random.choice([0.8, 0.97])
            for _ in range(400):
                waiting = [random.random() < busy, random.random() < often]
                admissible = [is_there and random.random() < 0.9 for is_there in waiting]
                room, active = random.random() < 0.8, random.random() < 0.6
                occupancy = random.choice([0, 4, 5, 9, 10, 29, 30, 64, random.randrange(65)])
                await compare(dut, golden, room, waiting, admissible, occupancy, active)
            # Communication goes, waits without room for as long as it may, and goes again though compute could.
            for occupancy in (0, 4, 5, 9, 10, 29, 30, 64):
                for active in (False, True):
                    await compare(dut, golden, True, (False, True), (False, True), 0, active)
                    for _ in range(starvation):
                        await compare(dut, golden, False, (True, True), (True, True), occupancy, active)
                    await compare(dut, golden, True, (True, True), (True, True), occupancy, active)


@cocotb.test()
async def detector_measures_the_start_of_the_kernel(dut):
    dut.kernel_active.value = 0
    dut.accepted.value = 0
    await start(dut)
    window = 100
    dut.control.value = control(
        threshold=Threshold.AUTO, window=window, boundary_10=80, boundary_30=50, boundary_none=20
    )
    await RisingEdge(dut.clk)
    await ReadOnly()
    assert int(dut.threshold.value) == Threshold.NONE.value
    await RisingEdge(dut.clk)
    for count, expected in (
        (80, Threshold.OCCUPANCY_5),
        (79, Threshold.OCCUPANCY_10),
        (50, Threshold.OCCUPANCY_10),
        (49, Threshold.OCCUPANCY_30),
        (20, Threshold.OCCUPANCY_30),
        (19, Threshold.NONE),
        (0, Threshold.NONE),
    ):
        chosen = set(random.sample(range(window), count))
        dut.kernel_active.value = 1
        for cycle in range(window + 30):
            # requests after the window do not count
            dut.accepted.value = cycle in chosen or cycle >= window
            await ReadOnly()
            if 0 < cycle < window:
                assert int(dut.threshold.value) == Threshold.OCCUPANCY_5.value
            await RisingEdge(dut.clk)
        await ReadOnly()
        assert int(dut.threshold.value) == expected.value, (count, int(dut.threshold.value))
        await RisingEdge(dut.clk)
        dut.kernel_active.value = 0
        await RisingEdge(dut.clk)
    for threshold in (Threshold.OCCUPANCY_5, Threshold.OCCUPANCY_10, Threshold.OCCUPANCY_30, Threshold.NONE):
        dut.control.value = control(threshold=threshold)
        await ReadOnly()
        assert int(dut.threshold.value) == threshold.value
        await RisingEdge(dut.clk)


@cocotb.test()
async def a_long_window_is_counted_in_full(dut):
    """Windows and numbers of requests that use all 16 bits, with a number of requests just at or below a boundary."""
    dut.kernel_active.value = 0
    dut.accepted.value = 0
    await start(dut)
    # Two numbers whose lower bits are each other's complement: every bit is 1 in one that is just too low for all
    # boundaries, and 0 in one that just reaches each.
    cases = []
    for count in (0xD555, 0xEAAA):
        cases.append((count, dict.fromkeys(BOUNDARIES, count + 1), Threshold.NONE))
        for name, threshold in BOUNDARIES.items():
            cases.append((count, dict.fromkeys(BOUNDARIES, 0xFFFF) | {name: count}, threshold))
    for count, boundaries, expected in cases:
        window = count + random.randrange(10)
        dut.control.value = control(threshold=Threshold.AUTO, window=window, **boundaries)
        dut.kernel_active.value = 1
        dut.accepted.value = 1
        await pass_cycles(dut, count)
        dut.accepted.value = 0
        await pass_cycles(dut, window - count)
        await ReadOnly()
        assert int(dut.threshold.value) == Threshold.OCCUPANCY_5.value, "the window has ended too early"
        await pass_cycles(dut, 1)
        await ReadOnly()
        assert int(dut.threshold.value) == expected.value, (window, count, boundaries)
        await RisingEdge(dut.clk)
        dut.kernel_active.value = 0
        await RisingEdge(dut.clk)


@cocotb.test()
async def a_starved_stream_waits_exactly_the_limit(dut):
    await start(dut)
    for limit in (1, 0x155, 0x2AAA, 0x5555, 0xFFFF):
        for room_comes_late in (False, True)[: 1 + (limit == 0xFFFF)]:
            dut.communication_waiting.value = 0
            dut.communication_admissible.value = 0
            dut.control.value = control(policy=Policy.COMPUTE_FIRST, starvation_limit=limit)
            dut.compute_waiting.value, dut.compute_admissible.value, dut.occupancy.value = 1, 1, 64
            dut.room.value = not room_comes_late
            await pass_cycles(dut, 2)
            dut.communication_waiting.value = 1
            dut.communication_admissible.value = 1
            await pass_cycles(dut, limit - 1)
            await ReadOnly()
            assert not int(dut.forced.value), "communication is forced before it has waited long enough"
            await pass_cycles(dut, 9 if room_comes_late else 1)
            dut.room.value = 1
            await ReadOnly()
            assert int(dut.forced.value) and int(dut.take_communication.value) and not int(dut.take_compute.value)
            await RisingEdge(dut.clk)


class CarelessArbiter(Arbiter):
    """Lets communication in at any occupancy."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        taken = self.room & self.communication_admissible & ~self.compute_admissible
        m.d.comb += self.take_communication.eq(taken)
        return m


@pytest.mark.parametrize("policy", [policy.name for policy in Policy])
def test_arbiter(policy):
    simulate(arbiter(), "arbiter", __name__, "arbiter_follows_the_golden", environment={"ARBITER_POLICY": policy})


def test_an_arbiter_without_threshold_is_noticed():
    with caught():
        simulate(CarelessArbiter(), "careless_arbiter", __name__, "arbiter_follows_the_golden")


def test_starvation():
    simulate(arbiter(), "arbiter", __name__, "a_starved_stream_waits_exactly_the_limit")


@pytest.mark.parametrize("testcase", ["detector_measures_the_start_of_the_kernel", "a_long_window_is_counted_in_full"])
@pytest.mark.parametrize("kind", [Arbiter, IntensityDetector])
def test_detector(kind, testcase):
    """By itself, and in the arbiter, whose threshold is the detector's."""
    simulate(kind(), "arbiter" if kind is Arbiter else "intensity_detector", __name__, testcase)
