"""The link model keeps its bandwidth and latency to the cycle, and loses or reorders nothing."""

import os
import random
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from math import ceil

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.link.wire import FlitKind, flit_layout, message_layout
from sim.errors import SimulationError
from sim.models.link import FRACTION_BITS, LinkModel, own_rate
from tb.drivers.stream import StreamSource, stalls
from tb.runner import simulate

link_model = cache(LinkModel)

SIZES = {
    "paper": preset("paper"),
    "short": preset("paper", link_latency=1),
    "two": preset("paper", link_latency=2, link_header_bytes=32),
    "fastest": preset("paper", link_bandwidth=1024.0, link_latency=37),
    "quad": preset("quad", link_header_bytes=16, link_latency=100),
    "heavy_header": preset("paper", link_header_bytes=256, link_bandwidth=300, link_latency=20),
}


def slower(config: Configuration) -> int:
    """The rate that the link is given: a share of its own, 0 for that."""
    share = float(os.environ.get("SHARE", 0))
    return max(1, round(share * own_rate(config))) if share else 0


async def start(dut, config: Configuration, stall: float) -> tuple[StreamSource, list, list]:
    """Reset the model; returns the source and the lists of (cycle, payload) accepted and delivered, kept up to date."""
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    dut.stall.value = 0
    dut.rate.value = slower(config)
    dut.rx_messages.value = 0
    dut.rx__ready.value = 1
    source = StreamSource(dut, "tx", dut.clk, stalls(stall))
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    accepted, delivered = [], []

    async def watch():
        cycle = 0
        while True:
            await ReadOnly()
            if int(dut.tx__valid.value) and int(dut.tx__ready.value):
                accepted.append((cycle, int(dut.tx__payload.value)))
            if int(dut.rx__valid.value):
                delivered.append((cycle, int(dut.rx__payload.value)))
            await RisingEdge(dut.clk)
            cycle += 1

    cocotb.start_soon(watch())
    return source, accepted, delivered


def packets(config: Configuration, count: int) -> list[int]:
    """Flits of `count` packets with random data."""
    kinds = []
    for _ in range(count):
        kinds += [FlitKind.HEADER, *[FlitKind.DATA] * random.choice([1, 8, random.randint(1, 8)])]
    layout = flit_layout(config)
    place = layout["kind"].offset
    clear = ~(3 << place)
    return [random.getrandbits(layout.size) & clear | kind.value << place for kind in kinds]


def conforming(costs: Iterable[int], rate: Fraction, burst: Fraction) -> list[int]:
    """The first cycles in which flits of `costs` bytes may pass, at most one a cycle, by the Generic Cell Rate
    Algorithm (ITU-T I.371, virtual scheduling): at `rate` bytes a cycle, `burst` bytes at once.
    """
    cycles: list[int] = []
    due = Fraction(0)
    for cost in costs:
        cycle = max(cycles[-1] + 1 if cycles else 0, ceil(due - (burst - cost) / rate))
        due = max(due, Fraction(cycle)) + cost / rate
        cycles.append(cycle)
    return cycles


@cocotb.test()
async def flits_arrive_in_time(dut):
    config = SIZES[os.environ["SIZE"]]
    stall = float(os.environ["STALL"])
    source, accepted, delivered = await start(dut, config, stall)
    flits = packets(config, 60)
    source.queue.extend(flits)
    while len(delivered) < len(flits):
        await RisingEdge(dut.clk)
        dut.stall.value = int(random.random() * 200 < stall)
    assert [payload for _, payload in accepted] == flits
    assert delivered == [(cycle + config.link_latency, payload) for cycle, payload in accepted]
    place = flit_layout(config)["kind"].offset
    costs = [config.link_header_bytes if flit >> place & 3 == FlitKind.HEADER.value else 32 for flit in flits]
    own = Fraction(own_rate(config), 2**FRACTION_BITS)
    rate = Fraction(slower(config) or own_rate(config), 2**FRACTION_BITS)
    fastest = conforming(costs, rate, max(32, config.link_header_bytes) + own)
    taken = [cycle - accepted[0][0] for cycle, _ in accepted]
    if stall:
        assert all(cycle >= first for cycle, first in zip(taken, fastest, strict=True)), "faster than the link"
    else:
        assert taken == fastest
        dut._log.info(f"{sum(costs)} bytes in {taken[-1]} cycles: {sum(costs) / taken[-1]:.3f} of {float(rate):.3f}")


@cocotb.test()
async def state_arrives_in_time(dut):
    config = SIZES[os.environ["SIZE"]]
    await start(dut, config, 0)
    bits = message_layout(config)["state"].width
    sent, received = [], []
    for cycle in range(3 * config.link_latency + 200):
        message = 0
        if random.random() < (1 if cycle < config.link_latency + 20 else 0.4):
            message = random.getrandbits(bits) << 1 | 1
            sent.append((cycle, message))
        dut.rx_messages.value = message
        await ReadOnly()
        if int(dut.tx_messages.value) & 1:
            received.append((cycle, int(dut.tx_messages.value)))
        await RisingEdge(dut.clk)
    due = [(cycle + config.link_latency, message) for cycle, message in sent]
    assert received == [item for item in due if item[0] < 3 * config.link_latency + 200]


class OneCycleLate(LinkModel):
    """A wrong model whose state messages come a cycle late."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.submodules.states._latency += 1
        return m


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stall", [0, 40])
def test_flits_arrive_in_time(size, stall):
    environment = {"SIZE": size, "STALL": str(stall)}
    simulate(link_model(SIZES[size]), "link_model", __name__, "flits_arrive_in_time", environment=environment)


@pytest.mark.parametrize("size", ["paper", "fastest", "quad"])
@pytest.mark.parametrize("share", ["1", "0.61", "0.04"])
def test_flits_arrive_at_the_rate_of_a_slower_link(size, share):
    environment = {"SIZE": size, "STALL": "0", "SHARE": share}
    simulate(link_model(SIZES[size]), "link_model", __name__, "flits_arrive_in_time", environment=environment)


class Faster(LinkModel):
    """A wrong model that is twice as fast as it should be."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += m.submodules.rate.rate.eq(self.rate << 1)
        return m


def test_a_link_that_is_as_fast_as_others_is_caught():
    environment = {"SIZE": "paper", "STALL": "0", "SHARE": "0.25"}
    with pytest.raises(SimulationError):
        simulate(Faster(SIZES["paper"]), "link_model", __name__, "flits_arrive_in_time", environment=environment)


@pytest.mark.parametrize("size", ["paper", "short", "two"])
def test_state_arrives_in_time(size):
    simulate(link_model(SIZES[size]), "link_model", __name__, "state_arrives_in_time", environment={"SIZE": size})


def test_late_state_is_caught():
    with pytest.raises(SimulationError):
        simulate(
            OneCycleLate(SIZES["two"]), "link_model", __name__, "state_arrives_in_time", environment={"SIZE": "two"}
        )
