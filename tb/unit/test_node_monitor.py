"""A node's epoch from arming to done, and its trigger latency, against models of a few lines, cycle by cycle."""

import os
import random
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import preset
from hw.node_monitor import CollectiveState, TriggerLatency
from hw.range_table import RangeWrite, Word
from tb.drivers.clock import start
from tb.drivers.payload import pack
from tb.runner import caught, simulate

RANGES = preset("paper").ranges
FULL = 0xFFFF
INPUTS = (
    *("ranges", "arm", "disarm", "number", "drained", "cleared"),
    *("range_done", "expected_blocks", "idle"),
)
FOUR_LANES = preset("quad", lanes=4)


async def program(dut, index, word, value):
    """Write one word of a range."""
    dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=value)
    await RisingEdge(dut.clk)
    dut.ranges.value = 0


def tell(dut, **values):
    """Set inputs."""
    for name, value in values.items():
        getattr(dut, name).value = value


def sent_in(lanes):
    """Names of the inputs that say what each lane has sent."""
    return [f"sent_blocks__{lane}" for lane in range(lanes)]


@cocotb.test()
async def epochs(dut):
    """Random epochs: armed once drained and cleared, done exactly when everything is, in every lane."""
    sent_blocks = sent_in(int(os.environ.get("LANES", "1")))
    await start(dut, (*INPUTS, *sent_blocks))
    number = 0
    for _ in range(30):
        totals = {index: random.choice([0, random.randrange(1, 1 << 16)]) for index in range(RANGES)}
        controls = {index: random.getrandbits(32) for index in range(RANGES)}
        others = [word for word in Word if word not in (Word.WF_TOTAL, Word.CONTROL)]
        for index, total in totals.items():
            words = [(Word.WF_TOTAL, total), (Word.CONTROL, controls[index]), (random.choice(others), total)]
            for word, value in random.sample(words, len(words)):
                await program(dut, index, word, value)
        needed = sum(1 << index for index, total in totals.items() if total and controls[index] & 1)
        blocks = random.randrange(1 << 20)
        before, number = number, random.randrange(1, 256)
        drained = random.random() < 0.5
        tell(dut, arm=1, range_done=0, expected_blocks=blocks, idle=1, cleared=1, **dict.fromkeys(sent_blocks, 0))
        tell(dut, number=number, drained=drained)
        await RisingEdge(dut.clk)
        tell(dut, arm=0, number=random.randrange(256))
        for wait in range(0 if drained else random.randrange(1, 20), 0, -1):
            tell(dut, drained=wait == 1)
            await ReadOnly()
            assert (int(dut.clear.value), int(dut.armed.value), int(dut.arming.value)) == (0, 0, 1)
            assert int(dut.epoch.value) == before
            await RisingEdge(dut.clk)
        tell(dut, drained=0)
        await ReadOnly()
        assert (int(dut.clear.value), int(dut.armed.value), int(dut.done.value)) == (1, 0, 0)
        await RisingEdge(dut.clk)
        tell(dut, cleared=0)
        for _ in range(random.randrange(1, 20)):
            await ReadOnly()
            assert (int(dut.clear.value), int(dut.armed.value)) == (0, 0)
            assert (int(dut.arming.value), int(dut.epoch.value)) == (1, before)
            await RisingEdge(dut.clk)
        tell(dut, cleared=1)
        await RisingEdge(dut.clk)
        was_done = 0
        for step in range(40):
            ranges = random.choice([needed, needed | random.getrandbits(RANGES), random.getrandbits(RANGES)])
            sent = dict.fromkeys(sent_blocks, blocks)
            if random.random() < 0.33:
                sent[random.choice(sent_blocks)] ^= 1 << random.randrange(20)
            idle = step == 39 or random.random() < 0.6
            tell(dut, range_done=ranges, idle=idle, **sent)
            await ReadOnly()
            finished = ranges & needed == needed and set(sent.values()) == {blocks} and idle
            assert (int(dut.armed.value), int(dut.arming.value)) == (1, 0)
            assert int(dut.epoch.value) == number
            assert int(dut.done.value) == was_done
            assert int(dut.running.value) == (not was_done)
            assert int(dut.done_rises.value) == (finished and not was_done), (step, ranges, needed)
            was_done |= finished
            await RisingEdge(dut.clk)
        if random.random() < 0.5:
            tell(dut, disarm=1)
            await RisingEdge(dut.clk)
            tell(dut, disarm=0, idle=0)
            await ReadOnly()
            assert (int(dut.armed.value), int(dut.done.value), int(dut.running.value)) == (0, 0, 0)
            await RisingEdge(dut.clk)


@cocotb.test()
async def commands_at_any_time(dut):
    """`arm` and `disarm` in any cycle, both at once included: the last of them counts, with the number that came with
    it; a clear only when drained after the last epoch ended, armed only when swept after that; locked from the call
    until drained after the end."""
    await start(dut, (*INPUTS, *sent_in(1)))
    armed, current = False, 0
    wanted: int | None = None
    clears = swept = was_drained = may_arm = left_over = False
    for _ in range(6000):
        arm, disarm = random.random() < 0.03, random.random() < 0.03
        number, drained = random.randrange(1, 256), not armed and random.random() < 0.2
        sweeping = clears and not swept
        cleared = not sweeping and random.random() < 0.5
        tell(dut, arm=arm, disarm=disarm, number=number, drained=drained, cleared=cleared)
        await ReadOnly()
        if int(dut.armed.value) and not armed:
            assert may_arm and wanted is not None
            armed, current, wanted, clears = True, wanted, None, False
        assert (int(dut.armed.value), int(dut.epoch.value)) == (armed, current)
        assert int(dut.arming.value) == (wanted is not None)
        assert int(dut.locked.value) == (armed or wanted is not None or left_over)
        left_over = armed or (left_over and not drained)
        may_arm = wanted is not None and clears and cleared and not (arm or disarm)
        if int(dut.clear.value):
            assert not armed and was_drained
            clears = True
            swept = False
        elif clears:
            swept = True
        if arm or disarm:
            armed, wanted = False, number if arm else None
            # What is programmed between two calls must be swept too.
            clears = clears and not arm
        was_drained = drained
        await RisingEdge(dut.clk)
    for _ in range(20):
        tell(dut, arm=0, disarm=0, drained=not armed, cleared=1)
        await RisingEdge(dut.clk)
    await ReadOnly()
    assert int(dut.armed.value) == (armed or wanted is not None)


@cocotb.test()
async def latencies(dut):
    """Random commits, blocks and reads; then a wait longer than the counter counts, which it reports as full."""
    await start(dut, ("commit", "busy", "read"))
    age, armed, was_busy = 0, False, False
    for cycle in range(3000):
        commit, busy, read = random.random() < 0.1, random.random() < 0.9, random.random() < 0.2
        if cycle >= 2990:
            commit, busy, read = False, cycle > 2995, False
        tell(dut, commit=commit, busy=busy, read=read)
        await ReadOnly()
        first = read and (armed or (busy and not was_busy))
        assert int(dut.value.value) == (age if first else 0), cycle
        armed = (armed or (busy and not was_busy)) and not first
        was_busy = busy
        age = 1 if commit else age + 1
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, FULL + 10)
    tell(dut, read=1)
    await ReadOnly()
    assert int(dut.value.value) == FULL


class Hasty(CollectiveState):
    """Reports done without waiting for what is in flight."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.done_rises.eq(self.armed & ~self.done)
        return m


class Rash(CollectiveState):
    """Does not wait for what is left of an older epoch."""

    def elaborate(self, platform: object) -> Module:
        self.drained = Const(1)
        return super().elaborate(platform)


class UnlocksEarly(CollectiveState):
    """Lets tables be written as soon as an epoch has ended."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.locked.eq(self.armed | self.arming)
        return m


@pytest.mark.parametrize("case", ["epochs", "commands_at_any_time"])
def test_epochs(case):
    simulate(CollectiveState(preset("paper")), "collective_state", __name__, case)


def test_every_lane_has_to_send():
    simulate(CollectiveState(FOUR_LANES), "collective_state", __name__, "epochs", environment={"LANES": "4"})


class AsksOneLane(CollectiveState):
    """Takes what the first lane has sent for what all have."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(self, "sent_blocks", vars(self)["sent_blocks"][:1]):
            return super().elaborate(platform)


def test_a_lane_that_is_not_asked_is_noticed():
    state = AsksOneLane(FOUR_LANES)
    with caught():
        simulate(state, "hasty_state", __name__, "epochs", environment={"LANES": "4"})


@pytest.mark.parametrize("case", ["epochs", "commands_at_any_time"])
def test_arming_that_does_not_wait_is_noticed(case):
    with caught():
        simulate(Rash(preset("paper")), "rash_state", __name__, case)


def test_tables_that_are_unlocked_early_are_noticed():
    with caught():
        simulate(UnlocksEarly(preset("paper")), "early_state", __name__, "commands_at_any_time")


def test_a_hasty_end_is_noticed():
    with caught():
        simulate(Hasty(preset("paper")), "hasty_state", __name__, "epochs")


def test_latencies():
    simulate(TriggerLatency(), "trigger_latency", __name__, "latencies")
