"""Two link lanes over wires that lose, damage, double and delay: everything arrives exactly once, in order, bit for bit."""

import json
import os
import random
from functools import cache

import cocotb
import pytest
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import preset
from hw.link.egress import DMA, STORES
from hw.link.lane import LinkLane
from hw.link.wire import LinkParameters
from sim.errors import SimulationError
from tb.drivers.lane_pair import SIDES, LaneBench, LanePair
from tb.drivers.lossy_wire import Weather
from tb.runner import simulate

ONE = preset("paper", ranges=4)
SIZES = {
    "two": LinkParameters(ONE, links=2, repeat=16),
    "tiny": LinkParameters(
        ONE, links=2, dma_slots=1, store_slots=1, sends=4, receive_packets=1, output_flits=1, repeat=16
    ),
    "one": LinkParameters(ONE, links=1, dma_slots=4, sends=4, receive_packets=4, repeat=16, sequence_bits=8),
    "seven": LinkParameters(ONE, links=7, dma_slots=24, store_slots=8, sends=8, receive_packets=4, repeat=16),
    "fifteen": LinkParameters(ONE, links=15, dma_slots=32, store_slots=1, receive_packets=2, repeat=16),
    "unprotected": LinkParameters(ONE, links=2, repeat=16, protection="none"),
}
CLEAR = Weather()
STORM = Weather(drop=0.02, damage=0.03, double=0.02, delay=0.03, late=40)


@cache
def pair(size: str) -> LanePair:
    return LanePair(SIZES[size])


def bench_of(dut) -> LaneBench:
    weather = Weather(**json.loads(os.environ.get("WEATHER", "{}")))
    latency, pause = int(os.environ.get("LATENCY", "20")), float(os.environ.get("PAUSE", "0"))
    return LaneBench(dut, SIZES[os.environ["SIZE"]], latency, weather, pause)


def run(size: str, case: str, weather: Weather = CLEAR, latency: int = 20, pause: float = 0, component=None) -> None:
    environment = {"SIZE": size, "WEATHER": json.dumps(vars(weather)), "LATENCY": str(latency), "PAUSE": str(pause)}
    simulate(component or pair(size), "lane_pair", __name__, case, environment=environment)


@cocotb.test()
async def traffic(dut):
    """Random packets of both sources, both ways, several sends each; nothing is lost, doubled or out of order."""
    bench = bench_of(dut)
    await bench.reset()
    for _ in range(int(os.environ.get("ROUNDS", "2"))):
        for _ in range(60):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish()
    marks = {side: sum(p.mark for p in bench.packets[side].values()) for side in SIDES}
    assert bench.blocks == marks
    assert not any(sink.received for sink in bench.faults.values())
    happened = sum((wire.happened for wire in bench.flits.values()), start=next(iter(bench.states.values())).happened)
    dut._log.info(f"{bench.now} cycles, {dict(happened)}, {bench.events['again']} times again")
    if bench.weather.damage:
        assert bench.events["again"] and happened["damaged"] and happened["dropped"]
    else:
        assert not bench.events["again"]


@pytest.mark.parametrize(
    ("size", "weather", "pause"),
    [
        ("two", CLEAR, 20),
        ("two", STORM, 10),
        ("tiny", STORM, 10),
        ("one", STORM, 0),
        ("unprotected", CLEAR, 10),
    ],
)
def test_traffic(size, weather, pause):
    run(size, "traffic", weather, pause=pause)
