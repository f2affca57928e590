"""The controller's schedule of fixed traffic: every command is right, and comes in the cycle in which it always came.

What a schedule has to achieve is measured elsewhere, against an independent simulator (`rates_of_the_reference`) and by
whole sub-layers. This test notices what those cannot, a command that is late now and then; a change that is meant to
alter the schedule changes SCHEDULES with it, and tells by how much.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import ROW_BITS, Configuration, preset
from hw.memory_controller.events import ControllerEvents
from hw.messages import Access, AluOperation, DataType, Source, Threshold, TrafficClass
from tb.drivers import dram_stub, payload
from tb.drivers.column_bus import ColumnBus, sector
from tb.drivers.stream import StreamSink, StreamSource
from tb.runner import caught, simulate
from tb.unit.memory_controller.test_controller import ALL_BYTES, HIGH_BITS, MESSAGES, control, memory_bench, request

Generator = random.Random
REQUESTS = {"compute": 200, "communication": 200, "spill": 40}
SOURCES = {"compute": Source.COMPUTE, "communication": Source.DMA, "spill": Source.SPILL}


@dataclass(frozen=True)
class Traffic:
    """`rows`: how many different ones, one bit apart (0: any); `banks`: of the 16; `held`: the share of cycles in which
    responses and commits are not taken; `writes`: the share of the requests that are no reads."""

    policy: str
    threshold: str
    rows: int
    banks: int
    held: float
    writes: float


TRAFFIC = {
    "any row": Traffic("ROUND_ROBIN", "NONE", 0, 16, 0.0, 0.5),
    "row hits": Traffic("COMPUTE_FIRST", "NONE", 1, 16, 0.0, 0.5),
    "two banks": Traffic("MCA", "OCCUPANCY_10", 8, 2, 0.0, 0.7),
    "reads held": Traffic("MCA", "OCCUPANCY_30", 3, 16, 0.96, 0.1),
    "commits held": Traffic("MCA", "OCCUPANCY_5", 0, 16, 0.97, 0.9),
    "one bank": Traffic("MCA", "NONE", 8, 1, 0.3, 0.3),
    "some reads held": Traffic("MCA", "OCCUPANCY_30", 3, 16, 0.8, 0.1),
    "some commits held": Traffic("MCA", "OCCUPANCY_5", 0, 16, 0.85, 0.9),
    "four banks": Traffic("COMPUTE_FIRST", "NONE", 4, 4, 0.0, 0.5),
    "many rows": Traffic("ROUND_ROBIN", "NONE", 0, 16, 0.5, 0.5),
}
SCHEDULES = {
    "any row": {
        "cycles": 2215,
        "row": 847553,
        "column": 439779,
        "returns": 95843,
        "compute_response": 113969,
        "commits": 233343,
        "occupancy": 115514,
    },
    "row hits": {
        "cycles": 826,
        "row": 608,
        "column": 176852,
        "returns": 57690,
        "compute_response": 30222,
        "commits": 92393,
        "occupancy": 41859,
    },
    "two banks": {
        "cycles": 4786,
        "row": 743740,
        "column": 769498,
        "returns": 228410,
        "compute_response": 49583,
        "commits": 493816,
        "occupancy": 110781,
    },
    "reads held": {
        "cycles": 4060,
        "row": 504786,
        "column": 407828,
        "returns": 96046,
        "compute_response": 380928,
        "commits": 52290,
        "occupancy": 27608,
    },
    "commits held": {
        "cycles": 12590,
        "row": 3843911,
        "column": 2007536,
        "returns": 142405,
        "compute_response": 50747,
        "commits": 2527550,
        "occupancy": 26704,
    },
    "one bank": {
        "cycles": 3813,
        "row": 113932,
        "column": 815672,
        "returns": 382106,
        "compute_response": 183052,
        "commits": 255345,
        "occupancy": 218090,
    },
    "some reads held": {
        "cycles": 1305,
        "row": 273923,
        "column": 265813,
        "returns": 148127,
        "compute_response": 99980,
        "commits": 35674,
        "occupancy": 36883,
    },
    "some commits held": {
        "cycles": 3152,
        "row": 1136108,
        "column": 577992,
        "returns": 50802,
        "compute_response": 11062,
        "commits": 602111,
        "occupancy": 40369,
    },
    "four banks": {
        "cycles": 1648,
        "row": 89790,
        "column": 344065,
        "returns": 118845,
        "compute_response": 51377,
        "commits": 177230,
        "occupancy": 90012,
    },
    "many rows": {
        "cycles": 2465,
        "row": 906719,
        "column": 469938,
        "returns": 121717,
        "compute_response": 126903,
        "commits": 225663,
        "occupancy": 128434,
    },
}
"""Of each traffic: `cycles` until all is done; `occupancy`, the sum over all cycles; the other figures are sums of the
cycles in which something happened."""


def place(rng: Generator, traffic: Traffic, first_row: int, taken: set[int]) -> int:
    """A sector that no request had so far."""
    while True:
        row = rng.getrandbits(ROW_BITS)
        if traffic.rows:
            other = rng.getrandbits(10) % traffic.rows
            row = first_row ^ (1 << 2 * other) * (other > 0)
        bank = rng.getrandbits(4) % traffic.banks
        va = sector(bank, row, column=rng.getrandbits(6))
        if va not in taken:
            taken.add(va)
            return va


def requests_of(rng: Generator, traffic: Traffic, bus: ColumnBus) -> tuple[dict[str, list[int]], list[int]]:
    """Packed requests of each stream, which `bus` is told, and the packed commits that are to follow, in any order."""
    first_row, taken = rng.getrandbits(ROW_BITS), set[int]()
    packed: dict[str, list[int]] = {name: [] for name in REQUESTS}
    commits = []
    for name, count in REQUESTS.items():
        for number in range(count):
            va = place(rng, traffic, first_row, taken) | rng.getrandbits(HIGH_BITS) << 10 + ROW_BITS
            access = [Access.STORE, Access.UPDATE][rng.getrandbits(1)] if rng.random() < traffic.writes else Access.READ
            ordered: dict[str, Any] = {
                "alu": list(AluOperation)[rng.getrandbits(2)],
                "dtype": list(DataType)[rng.getrandbits(2)],
                "first_touch": rng.getrandbits(1),
                "traffic_class": list(TrafficClass)[rng.getrandbits(2)],
                "epoch": rng.getrandbits(8),
            }
            bus.request(va, access, **{key: getattr(value, "value", value) for key, value in ordered.items()})
            tile = {"range": number % 16, "wg": number * 0x101, "wf": number % 8}
            fields = {"source": SOURCES[name], "id": number % 256, "tracked": 1, "mask": ALL_BYTES, **tile}
            packed[name].append(request(access=access, va=va, data=rng.getrandbits(256), **ordered, **fields))
            if access != Access.READ:
                commits.append(payload.pack(MESSAGES.commit, va=va, epoch=ordered["epoch"], bytes=32, **tile))
    return packed, commits


@cocotb.test()
async def schedule_of_fixed_traffic(dut):
    Clock(dut.clk, 1, unit="ns").start()
    rng = Generator(2024)
    dut.fault.value = 0
    dut.kernel_active.value = 1
    held = 0.0

    def stall() -> bool:
        return rng.random() < held

    sources = {name: StreamSource(dut, name, dut.clk) for name in REQUESTS}
    sinks = {name: StreamSink(dut, name, dut.clk, stall) for name in ("compute_response", "commits")}
    found = {}
    for name, traffic in TRAFFIC.items():
        dut.control.value = control(traffic.policy, Threshold[traffic.threshold], starvation=300)
        dut.rst.value = 1
        # The DRAM is not reset: nothing may be left of what it was told.
        for _ in range(preset("paper").timing.rfc):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        held = traffic.held
        bus = ColumnBus(dut, preset("paper"))
        requests, commits = requests_of(rng, traffic, bus)
        for stream, packed in requests.items():
            sources[stream].queue.extend(packed)
        sums: Counter[str] = Counter()
        taken = {sink.name: sink.taken for sink in sinks.values()}
        idle_for = 0
        while idle_for < 20:
            await ReadOnly()
            sums["cycles"] += 1
            cycle = sums["cycles"]
            bus.cycle()
            for signal in ("row", "column", "returns"):
                sums[signal] += cycle * (int(getattr(dut, signal).value) & 1)
            for sink in sinks.values():
                sums[sink.name] += cycle * (sink.taken - taken[sink.name])
                taken[sink.name] = sink.taken
            events = payload.unpack(ControllerEvents, int(dut.events.value))
            sums["occupancy"] += events["occupancy"]
            idle_for = idle_for + 1 if events["idle"] and not any(source.queue for source in sources.values()) else 0
            assert cycle < 40_000, f"{name}: not done"
            await RisingEdge(dut.clk)
        assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"
        assert not any(bus.waiting.values()), f"{name}: requests without a command"
        assert sorted(sinks["commits"].received) == sorted(commits), f"{name}: wrong commits"
        sinks["commits"].received.clear()
        found[name] = dict(sums)
    assert found == SCHEDULES, f"now SCHEDULES = {found}"


def run(name: str, config: Configuration) -> None:
    bench = memory_bench(config, False)
    simulate(bench, f"memory_bench_{name}", __name__, "schedule_of_fixed_traffic", sources=[dram_stub.SOURCE])


def test_schedule_of_fixed_traffic():
    run("paper", preset("paper"))


@pytest.mark.wide
def test_a_later_command_is_caught():
    timing = preset("paper").timing
    with caught("now SCHEDULES"):
        run("late", preset("paper", timing=replace(timing, rrd=timing.rrd + 1)))
