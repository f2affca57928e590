"""The switch: nothing is lost, doubled or out of order, no packet waits for one to another GPU, inputs take turns;
grants and aborts pass through it, and what an epoch leaves in it goes away."""

import random
from collections import Counter
from functools import cache
from unittest.mock import patch

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from sim.errors import SimulationError
from tb.drivers.switch_bench import CONFIG, EPOCH, SwitchBench, SwitchedLanes
from tb.drivers.wrong_switches import (
    FirstComes,
    HalfAsFast,
    OneGrantIsEnough,
    Overtaken,
    SaysNothingOfStrays,
    TellsNobody,
    ThrowsNothingAway,
    WrongInputs,
    takes_all_for_clean,
)
from tb.runner import simulate

GPUS = 4
STALL = 30
"""Percent of the cycles in which a memory takes nothing."""

lanes = cache(SwitchedLanes)


async def started(dut, armed: bool = True, stall: float = 0) -> SwitchBench:
    """All lanes programmed."""
    bench = SwitchBench(dut, GPUS, stall=stall)
    await bench.reset(armed)
    return bench


def anywhere(bench: SwitchBench, count: int) -> None:
    """Queue packets of all to all."""
    for _ in range(count):
        source, destination = random.sample(bench.ranks, 2)
        bench.packet(source, destination)


@cocotb.test()
async def all_arrives_once_and_in_order(dut):
    """Random packets, first on wires that are right, then on wires that damage some of what they carry; stalls of
    links and memories."""
    bench = await started(dut, stall=STALL)
    anywhere(bench, 120)
    await bench.finish()
    dut.stall.value = 60
    bench.damage = 0.004
    for _ in range(3):
        anywhere(bench, 60)
        await bench.finish(60_000)
    bench.damage = 0
    await bench.cycles(10)
    assert not bench.faults and not int(dut.stray.value)


@cocotb.test()
async def a_blocked_output_stops_no_other(dut):
    """A memory stands. What has gone ahead for it keeps slots of the switch, all but one of each input; everything for
    others passes, and when the memory goes on, the rest arrives."""
    bench = await started(dut)
    blocked = random.randrange(GPUS)
    others = [rank for rank in bench.ranks if rank != blocked]
    bench.standing.add(blocked)
    # What the memory's node has room for takes no slots of the switch.
    room = CONFIG.link_receive_packets
    for number in range(room + len(others) * (room - 1)):
        bench.packet(others[number % len(others)], blocked, 8)
    await bench.cycles(1500)
    for source in others:
        for destination in others:
            if destination != source:
                for _ in range(12):
                    bench.packet(source, destination)
        bench.packet(blocked, source)
    await bench.finish(but=(blocked,))
    assert len([packet for packet in bench.undelivered() if packet.destination == blocked]) > len(others)
    bench.standing.clear()
    await bench.finish()


@cocotb.test()
async def inputs_take_turns(dut):
    """Three inputs that always have packets for one output: of any four packets that leave none are of one input that
    has had two since another had its last."""
    bench = await started(dut)
    output = random.randrange(GPUS)
    others = [rank for rank in bench.ranks if rank != output]
    for source in others:
        for _ in range(60):
            bench.packet(source, output, 8)
    await bench.finish()
    # Sources begin one by one, and end one by one.
    sources = [arrival.source for arrival in bench.arrivals][30:-30]
    for first in range(0, len(sources) - len(others), len(others)):
        shares = Counter(sources[first : first + len(others)])
        assert set(shares.values()) == {1}, f"not in turns: {sources[first : first + 6]}"


@cocotb.test()
async def all_outputs_are_busy_at_once(dut):
    """Every source sends to a peer of its own: each link brings nearly a flit a cycle."""
    bench = await started(dut)
    count = 60
    for source in bench.ranks:
        for _ in range(count):
            bench.packet(source, (source + 1) % GPUS, 8)
    await bench.finish()
    for rank in bench.ranks:
        times = [arrival.cycle for arrival in bench.arrivals if arrival.destination == rank]
        cycles = (times[-6] - times[5]) / (len(times) - 11)
        # The source fills slots with ten sectors' time a packet and some cycles of the test's own.
        assert cycles < 14, f"rank {rank}: a packet every {cycles:.1f} cycles"


@cocotb.test()
async def a_grant_passes_when_all_have_granted(dut):
    """Nothing is sent before the last peer has armed, and to nobody."""
    bench = await started(dut, armed=False)
    last = random.randrange(GPUS)
    for rank in bench.ranks:
        if rank != last:
            bench.signal("armed", rank).value = 1
            await bench.cycles(random.choice([1, 150]))
    for source in bench.ranks:
        for destination in bench.ranks:
            if last != source != destination:
                bench.packet(source, destination)
    await bench.cycles(400)
    assert not any(packet.arrived for packet in bench.sent.values()), "sent without a grant"
    bench.signal("armed", last).value = 1
    anywhere(bench, 40)
    await bench.finish()
    assert not bench.faults


@cocotb.test()
async def every_abort_reaches_all_others(dut):
    """One notice comes at once; two different ones both come to all who have not said them; then they are over."""
    bench = await started(dut)
    await bench.cycles(300)
    first, second = random.sample(bench.ranks, 2)
    bench.signal("notice", first).value = EPOCH
    await bench.cycles(60)
    for rank in bench.ranks:
        assert (EPOCH in bench.heard[rank]) == (rank != first), f"rank {rank} heard {bench.heard[rank]}"
    bench.signal("notice", second).value = EPOCH + 1
    await bench.cycles(60)
    for heard in bench.heard:
        heard.clear()
    await bench.cycles(GPUS * 4 * CONFIG.link_repeat)
    for rank in bench.ranks:
        wanted = {EPOCH, EPOCH + 1} - {0, *([EPOCH] if rank == first else [EPOCH + 1] if rank == second else [])}
        assert bench.heard[rank] - {0} == wanted, f"rank {rank} hears {bench.heard[rank]}"
    bench.signal("notice", first).value = bench.signal("notice", second).value = 0
    await bench.cycles(150)
    for heard in bench.heard:
        heard.clear()
    await bench.cycles(150)
    assert all(heard == {0} for heard in bench.heard)


async def next_epoch(bench: SwitchBench, epoch: int) -> None:
    """Forget what the one before has left, and run `epoch` to its end: all that is sent arrives."""
    bench.faults.clear()
    bench.forget()
    for rank in random.sample(bench.ranks, GPUS):
        await bench.arm(rank, epoch)
    anywhere(bench, 60)
    await bench.finish()


@cocotb.test()
async def an_ended_epoch_leaves_nothing(dut):
    """A rank takes no more of an epoch whose packets fill the switch; all arm the next one, in which nothing of it
    arrives, is refused, or is in the way."""
    bench = await started(dut)
    for epoch in range(EPOCH + 1, EPOCH + 5):
        blocked = random.randrange(GPUS)
        bench.standing.add(blocked)
        for source in bench.ranks:
            for _ in range(30):
                bench.packet(source, blocked if source != blocked else (blocked + 1) % GPUS, 8)
        await bench.cycles(random.randrange(200, 900))
        for queue in bench.queues:
            queue.clear()
        while bench.filling:
            # Who waits for a slot gets one when the epoch ends.
            for rank in bench.ranks:
                bench.signal("armed", rank).value = 0
            await RisingEdge(dut.clk)
        bench.standing.clear()
        told = epoch - 1 if random.random() < 0.5 else 0
        bench.signal("notice", blocked).value = told
        await bench.cycles(400)
        await next_epoch(bench, epoch)
        bench.signal("notice", blocked).value = 0
        assert not bench.faults, bench.faults


@cocotb.test()
async def a_rank_is_reset_alone(dut):
    """One lane is reset in the midst of traffic; the others end the epoch, and the next one is right for all."""
    bench = await started(dut)
    for epoch in range(EPOCH + 1, EPOCH + 4):
        anywhere(bench, 40)
        await bench.cycles(random.randrange(50, 400))
        victim = random.randrange(GPUS)
        for queue in bench.queues:
            queue.clear()
        for rank in bench.ranks:
            bench.signal("armed", rank).value = 0
        while bench.filling:
            await RisingEdge(dut.clk)
        dut.resets.value = 1 << victim
        await bench.cycles(8)
        dut.resets.value = 0
        await bench.program()
        await bench.cycles(600)
        await next_epoch(bench, epoch)
        assert not bench.faults, bench.faults


@cocotb.test()
async def a_packet_for_nobody_is_reported(dut):
    """It is thrown away, and the others go on."""
    bench = await started(dut)
    bench.packet(0, GPUS, 8)
    anywhere(bench, 40)
    await bench.finish(but=(GPUS,))
    assert int(dut.stray.value)


CASES = [
    all_arrives_once_and_in_order,
    a_blocked_output_stops_no_other,
    inputs_take_turns,
    all_outputs_are_busy_at_once,
    a_grant_passes_when_all_have_granted,
    every_abort_reaches_all_others,
    an_ended_epoch_leaves_nothing,
    a_rank_is_reset_alone,
    a_packet_for_nobody_is_reported,
]
NAMES = [case.name for case in CASES]


def run(case: str, design: SwitchedLanes) -> None:
    """One case."""
    simulate(design, "switched_lanes", __name__, case)


@pytest.mark.parametrize("case", NAMES)
def test_switch(case):
    run(case, lanes(GPUS))


WRONG_SWITCHES = {
    WrongInputs: ("a_blocked_output_stops_no_other", "AssertionError: .*, [0-9]+, [0-9]+"),
    SaysNothingOfStrays: ("a_packet_for_nobody_is_reported", "AssertionError"),
    ThrowsNothingAway: ("an_ended_epoch_leaves_nothing", "does not come to its end|AssertionError: .*[0-9]+, [0-9]+"),
    OneGrantIsEnough: ("a_grant_passes_when_all_have_granted", "sent without a grant"),
    TellsNobody: ("every_abort_reaches_all_others", "rank [0-9] heard"),
}
"""Each with the case that finds it, and what that says."""
WRONG_PARTS = {
    "switch_input.flit_is_clean": (takes_all_for_clean, "all_arrives_once_and_in_order", " is wrong| nobody sent"),
    "switch_input.Queue": (Overtaken, "all_arrives_once_and_in_order", "arrives before"),
    "switch_output.Turns": (FirstComes, "inputs_take_turns", "not in turns"),
    "switch_output.FlitBuffer": (HalfAsFast, "all_outputs_are_busy_at_once", "a packet every"),
    "switch.Turns": (FirstComes, "every_abort_reaches_all_others", "rank [0-9] hears"),
}
"""The same of blocks that the switch is made of."""


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG_SWITCHES)
def test_a_wrong_switch_is_caught(wrong):
    case, sentence = WRONG_SWITCHES[wrong]
    with pytest.raises(SimulationError, match=sentence):
        run(case, SwitchedLanes(GPUS, switch=wrong))


@pytest.mark.slow
@pytest.mark.parametrize("part", WRONG_PARTS)
def test_a_wrong_part_of_a_switch_is_caught(part):
    wrong, case, sentence = WRONG_PARTS[part]
    with patch(f"sim.models.{part}", wrong), pytest.raises(SimulationError, match=sentence):
        run(case, SwitchedLanes(GPUS))
