"""The spill port: what is fetched is what was written last, over 1 and 4 channels, with stalls and foreign reads."""

import os
import random
from collections import deque

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.messages import Access, Messages, Source, TrafficClass
from hw.tracker.spill import TAGS, SpillPort
from sim.errors import SimulationError
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_spill
from tb.runner import simulate

CONFIGS = {1: preset("paper"), 4: preset("quad", tracker_banks=2)}
VA_BITS = 43
INDICES = [0, 1, 2, 3, 14, 15, 16, 17, 250, 251, 4096, 4097, (1 << 19) - 2, (1 << 19) - 1]


def field(layout, value: int, name: str) -> int:
    item = layout[name]
    return value >> item.offset & (1 << item.width) - 1


class Channel:
    """One channel's memory: serves its requests in order, returns reads in order after a random time, and lets reads of
    the DMA engine return in between."""

    def __init__(self, dut, number: int, config: Configuration, sectors: dict[int, int]):
        self.dut, self.number, self.layouts, self.sectors = dut, number, Messages(config), sectors
        self.channel_bits = config.channel_bits
        self.sink = StreamSink(dut, f"memory__{number}", dut.clk, stalls(30))
        self.due: list[tuple[int, int, int]] = []
        self.expected: deque[int] = deque()
        """Sectors of the requests to come."""
        self.port = getattr(dut, f"returns__{number}")
        self.port.value = 0
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        layout, returned = self.layouts.memory_request, self.layouts.read_return
        cycle = 0
        while True:
            await RisingEdge(self.dut.clk)
            cycle += 1
            while self.sink.received:
                request = self.sink.received.popleft()
                va, mask = field(layout, request, "va"), field(layout, request, "mask")
                assert va == self.expected.popleft()
                assert (va >> 3) % (1 << self.channel_bits) == self.number
                assert field(layout, request, "traffic_class") == TrafficClass.OTHER.value
                assert field(layout, request, "source") == Source.SPILL.value
                assert not any(field(layout, request, name) for name in ("tracked", "first_touch", "range", "wg", "wf"))
                old = self.sectors.get(va, 0)
                if field(layout, request, "access") == Access.STORE.value:
                    assert mask in (0xFFFF, 0xFFFF0000)
                    bits = sum(0xFF << 8 * byte for byte in range(32) if mask >> byte & 1)
                    self.sectors[va] = old & ~bits | field(layout, request, "data") & bits
                else:
                    assert field(layout, request, "access") == Access.READ.value
                    self.due.append((cycle + random.randint(1, 30), field(layout, request, "id"), old))
            value = 0
            if self.due and self.due[0][0] <= cycle:
                _, tag, data = self.due.pop(0)
                value = returned.const({"valid": 1, "source": Source.SPILL, "id": tag, "data": data}).as_value().value
            elif random.random() < 0.6:
                # Another's, or none at all.
                valid = random.randrange(2)
                rubbish = {
                    "valid": valid,
                    "source": Source.DMA if valid else Source.SPILL,
                    "id": random.getrandbits(8),
                    "data": random.getrandbits(256),
                }
                value = returned.const(rubbish).as_value().value
            self.port.value = value


@cocotb.test()
async def last_write_is_fetched(dut):
    config = CONFIGS[int(os.environ["T3_CHANNELS"])]
    layouts = Messages(config)
    Clock(dut.clk, 1, unit="ns").start()
    requests = StreamSource(dut, "requests", dut.clk, stalls(10))
    sectors: dict[int, int] = {}
    channels = [Channel(dut, number, config, sectors) for number in range(config.channels)]
    base = random.getrandbits(VA_BITS)
    dut.base.value = base
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    observe(watch_spill, dut, config)

    outstanding: dict[int, int] = {}
    golden: dict[int, int] = {}
    fetched = 0

    async def answers() -> None:
        nonlocal fetched
        response = layouts.spill_response
        while True:
            await ReadOnly()
            value = int(dut.response.value)
            if field(response, value, "valid"):
                assert field(response, value, "record") == outstanding.pop(field(response, value, "tag"))
                fetched += 1
            await RisingEdge(dut.clk)

    cocotb.start_soon(answers())
    # One channel answers at once, so no tag waits for another; of several, no more than there are MSHRs.
    most = TAGS if config.channels == 1 else config.tracker_mshrs * config.tracker_banks
    sent = 0
    for number in range(4500):
        if number in (1500, 3000):
            # The table moves, each bit of its address both ways, when nothing is under way.
            for _ in range(200):
                await RisingEdge(dut.clk)
            base ^= (1 << VA_BITS) - 1
            dut.base.value = base
            golden.clear()
            sectors.clear()
        index = random.choice(INDICES)
        va = (base + (index >> 1)) % (1 << VA_BITS)
        channels[(va >> 3) % config.channels].expected.append(va)
        if random.random() < 0.5 or len(outstanding) == most:
            golden[index] = random.getrandbits(128)
            values = {"write": 1, "index": index, "record": layouts.spill_record.from_bits(golden[index])}
        else:
            tag = random.choice([tag for tag in range(TAGS) if tag not in outstanding])
            outstanding[tag] = golden.get(index, 0)
            values = {"write": 0, "index": index, "tag": tag}
            sent += 1
        await requests.send(layouts.spill_request.const(values).as_value().value)
    for _ in range(200):
        await RisingEdge(dut.clk)
    assert not outstanding
    assert fetched == sent
    assert not any(channel.expected for channel in channels)
    dut._log.info(f"{fetched} fetches")


def run(channels: int, design: type[SpillPort] = SpillPort) -> None:
    simulate(
        design(CONFIGS[channels]),
        "spill",
        __name__,
        "last_write_is_fetched",
        environment={"T3_CHANNELS": str(channels)},
    )


@pytest.mark.parametrize("channels", [1, 4])
def test_spill(channels):
    run(channels)


class WrongHalf(SpillPort):
    """Always takes the lower record of a sector."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.response.record.eq(self.returns[0].data)
        return m


def test_the_wrong_half_is_caught():
    with pytest.raises(SimulationError, match="assert"):
        run(1, WrongHalf)
