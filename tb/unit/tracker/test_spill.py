"""The spill port: what is fetched is what was written last, over 1 and 4 channels, with stalls and foreign reads; of
one channel also with most of the records outside."""

import os
import random
from collections import deque
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.geometry import CHANNEL_SECTOR_BITS
from hw.messages import Access, Fault, Messages, Source, TrafficClass
from hw.tracker.spill import SpillPort
from tb.drivers.payload import field, pack
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_spill
from tb.runner import caught, simulate

CONFIGS = {  # by number of channels, and with a far side
    "1": preset("paper"),
    "4": preset("quad", tracker_banks=8, tracker_mshrs=16),
    "far": preset("paper", far_backing_store=True),
}
VA_BITS = 43
INDICES = [0, 1, 2, 3, 14, 15, 16, 17, 250, 251, 4096, 4097, (1 << 19) - 2, (1 << 19) - 1]


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
                value = pack(returned, valid=1, source=Source.SPILL, id=tag, data=data)
            elif random.random() < 0.6:
                # Another's, or none at all.
                valid = random.randrange(2)
                rubbish = {
                    "valid": valid,
                    "source": Source.DMA if valid else Source.SPILL,
                    "id": random.getrandbits(8),
                    "data": random.getrandbits(256),
                }
                value = pack(returned, **rubbish)
            self.port.value = value


def is_far(config: Configuration, index: int) -> bool:
    """Whether record `index` is outside: units of 16 records go around 32 channels, the port's own first."""
    return index // 16 % 32 >= config.channels


class FarSide:
    """The records outside: takes every request at once, answers fetches in any order after a random time."""

    def __init__(self, dut, config: Configuration):
        self.dut, self.layouts = dut, Messages(config)
        self.records: dict[int, int] = {}
        self.due: list[tuple[int, int]] = []
        self.expected: deque[int] = deque()
        """Records of the requests to come."""
        dut.far__response.value = 0
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        request = self.layouts.spill_request
        while True:
            await ReadOnly()
            word = int(self.dut.far__request.value)
            if word & 1:
                index = field(request, word >> 1, "index")
                assert index == self.expected.popleft()
                if field(request, word >> 1, "write"):
                    self.records[index] = field(request, word >> 1, "record")
                else:
                    self.due.append((field(request, word >> 1, "tag"), self.records.get(index, 0)))
            await RisingEdge(self.dut.clk)
            value = 0
            if self.due and random.random() < 0.3:
                tag, record = self.due.pop(random.randrange(len(self.due)))
                answer = {"valid": 1, "tag": tag, "record": self.layouts.spill_record.from_bits(record)}
                value = pack(self.layouts.spill_response, **answer)
            self.dut.far__response.value = value


@cocotb.test()
async def last_write_is_fetched(dut):
    """Of a table of all records, then of one that lacks the last two: fetches of those are answered in between."""
    config = CONFIGS[os.environ["T3_SPILL_PORT"]]
    layouts = Messages(config)
    Clock(dut.clk, 1, unit="ns").start()
    requests = StreamSource(dut, "requests", dut.clk, stalls(10))
    sectors: dict[int, int] = {}
    channels = [Channel(dut, number, config, sectors) for number in range(config.channels)]
    outside = FarSide(dut, config) if config.far_backing_store else None
    base = random.randrange((1 << VA_BITS) - (1 << 18))
    length = 1 << 18
    dut.base.value = base
    dut.sectors.value = length
    dut.window.value = 0
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
    sent = 0
    for number in range(4500):
        if number in (1500, 3000):
            # The table moves and is shorter, each bit of its address both ways, when nothing is under way.
            for _ in range(200):
                await RisingEdge(dut.clk)
            base ^= (1 << VA_BITS) - 1
            base = min(base, (1 << VA_BITS) - (1 << 18))
            length -= 1
            dut.base.value, dut.sectors.value = base, length
            golden.clear()
            sectors.clear()
            if outside:
                outside.records.clear()
        index = random.choice(INDICES)
        va = (base + (index >> 1)) % (1 << VA_BITS)
        inside = index >> 1 < length
        if inside and outside and is_far(config, index):
            outside.expected.append(index)
        elif inside:
            channels[(va >> 3) % config.channels].expected.append(va)
        if random.random() < 0.5 or len(outstanding) == config.spill_tags:
            record = random.getrandbits(128)
            if inside:
                golden[index] = record
            values = {"write": 1, "index": index, "record": layouts.spill_record.from_bits(record)}
        else:
            tag = random.choice([tag for tag in range(config.spill_tags) if tag not in outstanding])
            outstanding[tag] = golden.get(index, 0)
            values = {"write": 0, "index": index, "tag": tag}
            sent += 1
        await requests.send(pack(layouts.spill_request, **values))
    for _ in range(200):
        await RisingEdge(dut.clk)
    assert not outstanding
    assert fetched == sent
    assert not any(channel.expected for channel in channels)
    assert not outside or not outside.expected
    dut._log.info(f"{fetched} fetches")


def _any_table(channel: int) -> tuple[int, int, int]:
    """Base, length and window of a table, which often ends with its window, or just beyond."""
    length = random.choice([0, 1, 2, 8, random.randrange(1 << 18), 1 << 18])
    base = random.choice([random.getrandbits(VA_BITS), (1 << VA_BITS) - random.randrange(1, 1 << 19)])
    place = base // channel
    end = (place + 1) * channel
    base = random.choice([base, end - random.randrange(1, 20), end - length, end - length + 1]) % (1 << VA_BITS)
    window = random.choice([0, 0, random.getrandbits(2) | 1 << 31, place | 1 << 31])
    return base, length, window


@cocotb.test()
async def nothing_is_reached_beyond_the_table(dut):
    """Tables of any length anywhere, some beyond the end of the address space or not in this node's memory: a write
    beyond is lost, a fetch answered with no record, while others' data returns; each leaves a fault, or meets one."""
    config = CONFIGS[os.environ["T3_SPILL_PORT"]]
    layouts = Messages(config)
    Clock(dut.clk, 1, unit="ns").start()
    requests = StreamSource(dut, "requests", dut.clk, stalls(10))
    faults = StreamSink(dut, "faults", dut.clk, stalls(60))
    sectors: dict[int, int] = {}
    channels = [Channel(dut, number, config, sectors) for number in range(config.channels)]
    for name in ("base", "sectors", "window"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    channel = 1 << CHANNEL_SECTOR_BITS + config.channel_bits
    answers: dict[int, int] = {}

    async def listen() -> None:
        while True:
            await ReadOnly()
            value = int(dut.response.value)
            if field(layouts.spill_response, value, "valid"):
                answers[field(layouts.spill_response, value, "tag")] = field(layouts.spill_response, value, "record")
            await RisingEdge(dut.clk)

    cocotb.start_soon(listen())
    reached = {True: 0, False: 0}
    tables = [_any_table(channel) for _ in range(60)]
    # One that ends where the last sector of the address space is but for one bit of its address.
    tables += [((1 << VA_BITS) - (1 << bit) - (1 << 18), 1 << 18, 0) for bit in range(VA_BITS)]
    for _ in range(16):
        length, place = random.getrandbits(18), random.randrange(1, (1 << VA_BITS) // channel - 1)
        tables += [((place + 1) * channel - length + over, length, place | 1 << 31) for over in range(2)]
    random.shuffle(tables)
    for base, length, window in tables:
        while any(channel.expected for channel in channels):
            await RisingEdge(dut.clk)
        dut.base.value, dut.sectors.value, dut.window.value = base, length, window
        await ClockCycles(dut.clk, 3)
        last = base + length - 1
        fits = last < (1 << VA_BITS) - 1 and (
            not window >> 31 or base // channel == last // channel == window & ~(1 << 31)
        )
        for number in random.sample(range(config.spill_tags), 8):
            around, within = 2 * length + random.randrange(-4, 4), random.randrange(max(1, 2 * length))
            index = min(random.choice([random.choice(INDICES), around, within]) % (1 << 19), (1 << 19) - 1)
            inside = fits and index >> 1 < length
            reached[inside] += 1
            write = random.getrandbits(1)
            va = base + (index >> 1)
            if inside:
                channels[(va >> 3) % config.channels].expected.append(va)
                sectors[va] = 0
            values = {"write": write, "index": index, "tag": number}
            await requests.send(pack(layouts.spill_request, **values))
            await ClockCycles(dut.clk, 4 if inside and write else 60)
            assert (number in answers) != bool(write)
            assert answers.pop(number, 0) == 0
            found = [faults.received.popleft() for _ in range(len(faults.received))]
            assert len(found) == (not inside)
            for fault in found:
                record = layouts.fault_record
                assert field(record, fault, "fault") == Fault.OUTSIDE.value
                assert field(record, fault, "access") == (Access.STORE if write else Access.READ).value
                assert field(record, fault, "va") == va % (1 << VA_BITS)
                assert not any(field(record, fault, name) for name in ("link", "wg", "wf"))
    await ClockCycles(dut.clk, 120)
    assert not any(channel.expected for channel in channels)
    assert min(reached.values()) > 50, reached


def run(port: str, design: type[SpillPort] = SpillPort, case: str = "last_write_is_fetched") -> None:
    simulate(design(CONFIGS[port]), "spill", __name__, case, environment={"T3_SPILL_PORT": port})


@pytest.mark.parametrize("port", ["1", "4"])
@pytest.mark.parametrize("case", ["last_write_is_fetched", "nothing_is_reached_beyond_the_table"])
def test_spill(case, port):
    run(port, case=case)


def test_records_of_other_channels_are_fetched_outside():
    run("far")


class TrustsIndices(SpillPort):
    """Takes the table for as long as the numbers of records."""

    def elaborate(self, platform: object) -> Module:
        self.sectors = Const(1 << 18, self._config.spill_sector_bits)
        return super().elaborate(platform)


def test_a_port_without_bounds_is_caught():
    with caught("assert"):
        run("1", TrustsIndices, "nothing_is_reached_beyond_the_table")


class WrongHalf(SpillPort):
    """Always takes the lower record of a sector."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.sync += self.response.record.eq(self.returns[0].data)
        return m


def test_the_wrong_half_is_caught():
    with caught("assert"):
        run("1", WrongHalf)


class KeepsAllRecords(SpillPort):
    """Has nothing outside."""

    def elaborate(self, platform: object) -> Module:
        with patch("hw.tracker.spill.TOTAL_CHANNELS", 1):
            return super().elaborate(platform)


def test_records_on_the_wrong_side_are_caught():
    with caught():
        run("far", KeepsAllRecords)
