"""What is counted, located and reported of errors in memories, cycle by cycle against a model of a few lines."""

import random
from itertools import pairwise

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration
from hw.memory_errors import Location, MemoryErrors, MemoryEvents
from hw.messages import Fault, Messages
from hw.protection import MemoryReport, ProtectedMemory
from tb.drivers.clock import start
from tb.drivers.payload import pack, unpack
from tb.runner import caught, simulate

CONFIG = Configuration()
MEMORIES = [ProtectedMemory.COUNTERS, ProtectedMemory.TRIGGERS, ProtectedMemory.TRIGGERS] * 9
"""As many as a node of one lane has."""


@cocotb.test()
async def reports_are_counted_and_located(dut):
    """Random reports, several in a cycle; of these the last memory's is kept, a lost word's before others."""
    names = [f"reports__{number}" for number in range(len(MEMORIES))]
    reports = [getattr(dut, name) for name in names]
    await start(dut, ("forget", "interval", "faults__ready", *names))
    location = {"memory": 0, "lost": 0, "corrected": 0, "address": 0}
    corrected, lost, fault, seen = 0, 0, None, 0
    for _ in range(8000):
        drawn = []
        for port in reports:
            kind = random.choice(["", "", "", "corrected", "lost"]) if random.random() < 0.03 else ""
            drawn.append((kind, random.getrandbits(20)))
            port.value = pack(MemoryReport, corrected=kind == "corrected", lost=kind == "lost", address=drawn[-1][1])
        forget, ready = random.random() < 0.02, random.random() < 0.5
        dut.forget.value, dut.faults__ready.value = forget, ready
        await ReadOnly()
        assert unpack(MemoryEvents, int(dut.events.value)) == {"corrected": corrected, "lost": lost}
        assert (int(dut.lost.value), int(dut.met.value)) == (lost > 0, corrected + lost > 0)
        assert unpack(Location, int(dut.location.value)) == location
        assert int(dut.faults__valid.value) == (fault is not None)
        if fault is not None:
            record = unpack(Messages(CONFIG).fault_record, int(dut.faults__payload.value))
            assert (record["fault"], record["wg"], record["va"]) == (Fault.MEMORY.value, *fault)
            seen += ready
        corrected, lost = (sum(kind == name for kind, _ in drawn) for name in ("corrected", "lost"))
        kept = "lost" if lost else "corrected"
        found = [(memory.value, at) for memory, (kind, at) in zip(MEMORIES, drawn, strict=True) if kind == kept]
        if fault is None or ready:
            fault = found[-1] if lost else None
        if forget:
            location = dict.fromkeys(location, 0)
        if found and (lost or not location["lost"]):
            location = {"lost": lost > 0, "corrected": not lost, "memory": found[-1][0], "address": found[-1][1]}
        await RisingEdge(dut.clk)
    assert seen > 500


@cocotb.test()
async def scrubbing_keeps_its_interval(dut):
    """One pulse in so many cycles; none at 0."""
    await start(dut, ("interval",))
    for interval in (1, 2, 7, 300, 0):
        dut.interval.value = interval
        pulses = []
        for cycle in range(3000):
            await ReadOnly()
            if int(dut.scrub.value):
                pulses.append(cycle)
            await RisingEdge(dut.clk)
        steps = {after - before for before, after in pairwise(pulses[1:])}
        assert steps == ({interval} if interval else set())
        assert bool(pulses) == bool(interval)


class Forgetful(MemoryErrors):
    """Lets a correction hide a lost word."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.reports[0].corrected):
            m.d.sync += self.location.lost.eq(0)
        return m


@pytest.mark.parametrize("test", ["reports_are_counted_and_located", "scrubbing_keeps_its_interval"])
def test_memory_errors(test):
    simulate(MemoryErrors(CONFIG, MEMORIES), "memory_errors", __name__, test)


def test_a_lost_word_that_is_hidden_is_noticed():
    with caught():
        simulate(Forgetful(CONFIG, MEMORIES), "memory_errors", __name__, "reports_are_counted_and_located")
