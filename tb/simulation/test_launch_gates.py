"""Gates count launch events from 0 on after every reset; tags of reads give back what they were taken with."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from hw.config import PRESETS
from hw.messages import Messages
from sim.models import FOLDER as MODELS
from sim.models.launch_gates import LaunchGates
from sim.models.plan_layout import GATES
from sim.models.read_tags import ReadTags
from tb.drivers.payload import pack
from tb.runner import simulate

TILES = 300
GATE_OF = [7 * number % 50 for number in range(TILES)]
LAUNCH = Messages(PRESETS["paper"]).launch_event


async def reset(dut):
    """Two cycles."""
    await FallingEdge(dut.clk)
    dut.rst.value = 1
    for _ in range(2):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def launch(dut, counts):
    """Random launch events, each held until it is taken; those are counted in `counts`."""
    left = 400
    while left:
        await FallingEdge(dut.clk)
        if not int(dut.launches__valid.value):
            number = random.randrange(TILES)
            dut.launches__payload.value = pack(LAUNCH, wg=number)
            dut.launches__valid.value = random.random() < 0.7
        await ReadOnly()
        if int(dut.launches__valid.value) and int(dut.launches__ready.value):
            counts[GATE_OF[number]] += 1
            left -= 1
            await FallingEdge(dut.clk)
            dut.launches__valid.value = 0


async def counted(dut, counts):
    for gate, count in enumerate(counts):
        await FallingEdge(dut.clk)
        other = random.randrange(len(counts))
        dut.gate.value, dut.slice_gate.value = gate, other
        await ReadOnly()
        assert int(dut.count.value) == count, gate
        assert int(dut.slice_count.value) == counts[other], other
    await FallingEdge(dut.clk)


@cocotb.test()
async def gates_count_from_zero_after_every_reset(dut):
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    dut.launches__valid.value = 0
    for _ in range(3):
        await reset(dut)
        counts = [0] * GATES
        # Events that come before the counters are cleared wait.
        await launch(dut, counts)
        assert sum(counts) == 400
        await counted(dut, counts)


@cocotb.test()
async def tags_name_the_reads_under_way(dut):
    """In any order, all 256 of them at a time, none twice."""
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    dut.take.value, dut.give.value = 0, 0
    await reset(dut)
    under_way: dict[int, tuple[int, int]] = {}
    full = 0
    for turn in range(4000):
        await FallingEdge(dut.clk)
        taking = random.random() < (0.9 if turn // 700 % 2 == 0 else 0.2) and bool(int(dut.free.value))
        giving = bool(under_way) and random.random() < 0.5
        read = random.randrange(256), random.getrandbits(32)
        dut.slot.value, dut.va.value = read
        dut.take.value = taking
        dut.give.value = giving
        back = random.choice(list(under_way)) if giving else 0
        dut.given.value = back
        await ReadOnly()
        assert int(dut.free.value) == (len(under_way) < 256)
        full += not int(dut.free.value)
        if giving:
            assert (int(dut.given_slot.value), int(dut.given_va.value)) == under_way.pop(back)
        if taking:
            tag = int(dut.tag.value)
            assert tag not in under_way and tag != (back if giving else None)
            under_way[tag] = read
    assert full


def test_gates_count_from_zero_after_every_reset(tmp_path):
    (tmp_path / "gates.hex").write_text("".join(f"{gate:x}\n" for gate in GATE_OF))
    simulate(
        LaunchGates(PRESETS["paper"], sliced=True),
        "launch_gates",
        __name__,
        "gates_count_from_zero_after_every_reset",
        sources=[MODELS / "plan_memory.sv", MODELS / "model_memory.sv"],
        plusargs=[f"+gates={tmp_path}/gates"],
    )


def test_tags_name_the_reads_under_way():
    simulate(ReadTags(), "read_tags", __name__, "tags_name_the_reads_under_way")
