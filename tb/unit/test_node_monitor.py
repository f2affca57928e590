"""A node's epoch from arming to done, and its trigger latency, against models of a few lines, cycle by cycle."""

import random

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import preset
from hw.node_monitor import CollectiveState, TriggerLatency
from hw.range_table import RangeWrite, Word
from sim.errors import SimulationError
from tb.runner import simulate

RANGES = preset("paper").ranges
FULL = 0xFFFF


async def start(dut, inputs):
    """Every input at 0, a clock, a reset."""
    for name in inputs:
        getattr(dut, name).value = 0
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


async def program(dut, index, word, value):
    """Write one word of a range."""
    fields = {"valid": 1, "index": index, "word": word.value, "data": value}
    dut.ranges.value = RangeWrite.const(fields).as_value().value
    await RisingEdge(dut.clk)
    dut.ranges.value = 0


def tell(dut, **values):
    """Set inputs."""
    for name, value in values.items():
        getattr(dut, name).value = value


@cocotb.test()
async def epochs(dut):
    """Random epochs: granted once per arming, armed from then on, done exactly when everything is."""
    inputs = ("ranges", "arm", "disarm", "cleared", "range_done", "sent_blocks", "expected_blocks", "idle")
    await start(dut, inputs)
    for _ in range(30):
        totals = {index: random.choice([0, random.randrange(1, 1 << 16)]) for index in range(RANGES)}
        for index, total in totals.items():
            await program(dut, index, Word.WF_TOTAL, total)
            await program(dut, index, random.choice([word for word in Word if word != Word.WF_TOTAL]), total)
        needed = sum(1 << index for index, total in totals.items() if total)
        blocks = random.randrange(1 << 20)
        tell(dut, arm=1, range_done=0, sent_blocks=0, expected_blocks=blocks, idle=1, cleared=1)
        await RisingEdge(dut.clk)
        tell(dut, arm=0)
        await ReadOnly()
        assert (int(dut.clear.value), int(dut.armed.value), int(dut.done.value)) == (1, 0, 0)
        await RisingEdge(dut.clk)
        tell(dut, cleared=0)
        for _ in range(random.randrange(1, 20)):
            await ReadOnly()
            assert (int(dut.clear.value), int(dut.grant.value), int(dut.armed.value)) == (0, 0, 0)
            await RisingEdge(dut.clk)
        tell(dut, cleared=1)
        await ReadOnly()
        assert int(dut.grant.value) == 1
        await RisingEdge(dut.clk)
        was_done = 0
        for step in range(40):
            ranges = random.choice([needed, needed | random.getrandbits(RANGES), random.getrandbits(RANGES)])
            sent = random.choice([blocks, blocks, blocks ^ 1 << random.randrange(20)])
            idle = step == 39 or random.random() < 0.6
            tell(dut, range_done=ranges, sent_blocks=sent, idle=idle)
            await ReadOnly()
            finished = ranges & needed == needed and sent == blocks and idle
            assert (int(dut.armed.value), int(dut.grant.value)) == (1, 0)
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


def test_epochs():
    simulate(CollectiveState(preset("paper")), "collective_state", __name__, "epochs")


def test_a_hasty_end_is_noticed():
    with pytest.raises(SimulationError):
        simulate(Hasty(preset("paper")), "hasty_state", __name__, "epochs")


def test_latencies():
    simulate(TriggerLatency(), "trigger_latency", __name__, "latencies")
