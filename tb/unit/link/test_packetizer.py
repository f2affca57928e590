"""The store packetizer loses nothing, keeps order, and merges as far as its rules allow."""

import os
import random

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.link.packetizer import TIMEOUT, TIMEOUT_OTHERS, StorePacketizer
from hw.messages import Access, AluOperation, Messages, TrafficClass
from sim.errors import SimulationError
from tb.drivers.asleep import Asleep
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.drivers.stream_checker import checked
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_packetizer
from tb.runner import simulate

SIZES = {
    "paper": preset("paper"),
    "tiny": preset("tiny"),
    "four_channels": preset("quad"),
    "tiny_four_channels": preset("tiny", channels=4),
}


class PacketizerBench:
    """The packetizer with a source per channel."""

    def __init__(self, dut, config: Configuration, source_stall, sink_stall):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.call(random.getrandbits(6))
        self.sources = [StreamSource(dut, f"stores__{c}", dut.clk, source_stall) for c in range(config.channels)]
        self.sink = StreamSink(dut, "packets", dut.clk, sink_stall)
        self.expected: list[list[dict]] = [[] for _ in range(config.channels)]

    def call(self, rank: int):
        """What the headers of packets from now on say of their sender."""
        self.rank = rank
        self.dut.rank.value = rank

    async def reset(self):
        self.dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        observe(watch_packetizer, self.dut, self.config)

    def store(self, **store):
        channel = (store["va"] >> 3) % self.config.channels
        store["data"] = random.getrandbits(256)
        self.sources[channel].queue.append(pack(self.messages.remote_store, **store))
        self.expected[channel].append(store)

    async def finish(self, limit: int = 40000):
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            if not any(source.queue for source in self.sources) and int(self.dut.idle.value):
                offered = any(int(getattr(self.dut, f"stores__{c}__valid").value) for c in range(self.config.channels))
                assert int(self.dut.wake.value) == offered, "awake with nothing to do"
                await RisingEdge(self.dut.clk)
                return
        raise AssertionError("stores are stuck")

    def packets(self) -> list[list[dict]]:
        """The received packets, each checked against its rules and turned back into stores."""
        flits = [unpack(self.messages.link_flit, bits) for bits in self.sink.received]
        packets: list[list[dict]] = []
        while flits:
            flit = flits.pop(0)
            assert flit["header"] and not flit["last"]
            header = unpack(self.messages.link_header, flit["data"])
            assert (header["source"], header["check"]) == (self.rank, 0)
            assert header["va"] % 8 + header["length"] < 8, "packet crosses 256 B"
            names = ("access", "alu", "dtype", "traffic_class", "wg", "wf", "epoch")
            packets.append([])
            for place in range(header["length"] + 1):
                flit = flits.pop(0)
                last = place == header["length"]
                assert not flit["header"] and flit["last"] == last
                packets[-1].append(
                    {name: header[name] for name in names}
                    | {
                        "peer": header["destination"],
                        "va": header["va"] + place,
                        "mask": header["mask"] if last else 0xFFFFFFFF,
                        "data": flit["data"],
                    }
                )
        return packets

    def check(self) -> int:
        """Every store left once, in the order of its channel; returns the number of packets."""
        packets = self.packets()
        due = [list(stores) for stores in self.expected]
        for packet in packets:
            queue = due[(packet[0]["va"] >> 3) % self.config.channels]
            assert packet == queue[: len(packet)]
            del queue[: len(packet)]
        assert not any(due)
        return len(packets)


def run_of_stores(bench: PacketizerBench, length: int, **changes):
    """A run of stores with random attributes, often to the end of 256 B; some are partial, the last one often."""
    start = random.choice([random.getrandbits(42), 8 * random.randrange(3, 1 << 40) - length])
    attributes = {
        "access": random.choice([Access.STORE, Access.UPDATE]).value,
        "alu": random.choice(list(AluOperation)).value,
        "dtype": random.getrandbits(2),
        "traffic_class": random.choice(list(TrafficClass)).value,
        "peer": random.getrandbits(6),
        "wg": random.getrandbits(16),
        "wf": random.getrandbits(3),
        "epoch": random.getrandbits(8),
    } | changes
    for place in range(length):
        if random.random() < 0.1 and "peer" not in changes:
            name = random.choice(list(attributes))
            attributes[name] ^= 3 if name == "access" else 1
        mask = 0xFFFFFFFF
        if random.random() < (0.1 if place < length - 1 else 0.5):
            mask = random.choice([random.getrandbits(31), mask ^ 1 << random.randrange(32)])
        bench.store(va=start + place, mask=mask, **attributes)


def greedy(stores: list[dict]) -> int:
    """Packets of one channel's stores when each continues the open packet as long as it may."""
    packets, before = 0, None
    names = ("access", "alu", "dtype", "traffic_class", "peer", "wg", "wf", "epoch")
    for store in stores:
        continues = (
            before is not None
            and store["va"] == before["va"] + 1
            and store["va"] % 8 != 0
            and before["mask"] == 0xFFFFFFFF
            and all(store[name] == before[name] for name in names)
        )
        packets += not continues
        before = store
    return packets


@cocotb.test()
async def random_stores(dut):
    config = SIZES[os.environ["SIZE"]]
    stall = float(os.environ["STALL"])
    bench = PacketizerBench(dut, config, stalls(stall), stalls(stall))
    await bench.reset()
    for runs in (20, 15, 15):
        for _ in range(runs):
            run_of_stores(bench, random.choice([1, 2, 8, 20]))
        await bench.finish()
        count = bench.check()
        if config.channels == 1 and not stall:
            assert count == greedy(bench.expected[0])
        bench.call(~bench.rank & 0x3F)
        bench.sink.received.clear()
        bench.expected = [[] for _ in range(config.channels)]


ALIKE = {
    "access": 1,
    "alu": 0,
    "dtype": 0,
    "traffic_class": 0,
    "peer": 1,
    "wg": 2,
    "wf": 3,
    "epoch": 9,
    "mask": 0xFFFFFFFF,
}
"""Attributes of stores that only their addresses tell apart."""


@cocotb.test()
async def store_rate(dut):
    """512 consecutive stores become 64 packets, no slower than the 9 flits of a packet allow."""
    config = SIZES["paper"]
    bench = PacketizerBench(dut, config, None, None)
    await bench.reset()
    for place in range(512):
        bench.store(va=place, **ALIKE)
    cycles = 0
    task = cocotb.start_soon(bench.finish())
    while not task.done():
        await RisingEdge(dut.clk)
        cycles += 1
    assert bench.check() == 64
    dut._log.info(f"512 stores in {cycles} cycles")
    assert cycles <= 64 * 9 + 20


@cocotb.test()
async def timeout_of_an_open_packet(dut):
    """A store continues the packet until just as many cycles after the last, fewer while another channel waits."""
    config = SIZES[os.environ["SIZE"]]
    bench = PacketizerBench(dut, config, None, None)
    await bench.reset()
    channels = range(config.channels)
    for own, other in [(own, other) for own in channels for other in channels if own != other or config.channels == 1]:
        limit = TIMEOUT if own == other else TIMEOUT_OTHERS
        for distance in range(1 if own == other else 3, limit + 5):
            before = len(bench.packets())
            row = random.randrange(1 << 35) * config.channels
            for place in range(random.randrange(3, 8) if own == other else 3):
                # Between two rising edges, so that a source offers it at the next one.
                await FallingEdge(dut.clk)
                bench.store(va=8 * (row + own) + place, **ALIKE)
                if own == other:
                    await ClockCycles(dut.clk, distance)
                elif place == 0:  # Time to come to this channel.
                    await ClockCycles(dut.clk, 3)
                elif place == 1:
                    await ClockCycles(dut.clk, 2)
                    bench.store(va=8 * (row + other), **ALIKE)
                    await ClockCycles(dut.clk, distance - 2)
            await bench.finish()
            found = [packet[0]["va"] >> 3 for packet in bench.packets()[before:]].count(row + own)
            apart = distance > limit
            assert found == (1 + (place if own == other else 1) * apart), (own, other, distance)
    bench.check()


class MixesWavefronts(StorePacketizer):
    """A wrong packetizer that merges stores of different wavefronts."""

    def _continues(self, store, expected):
        return (store.va == expected.va) & (store.va[:3] != 0) & (store.wg == expected.wg)


@pytest.mark.parametrize(
    ("size", "stall"), [("paper", 0), ("paper", 40), ("tiny", 20), ("four_channels", 0), ("tiny_four_channels", 30)]
)
def test_random_stores(size, stall):
    environment = {"SIZE": size, "STALL": str(stall)}
    simulate(
        checked(Asleep(StorePacketizer(SIZES[size]))), "packetizer", __name__, "random_stores", environment=environment
    )


def test_mixed_wavefronts_are_caught():
    with pytest.raises(SimulationError):
        simulate(
            MixesWavefronts(SIZES["paper"]),
            "packetizer",
            __name__,
            "random_stores",
            seed=1,
            environment={"SIZE": "paper", "STALL": "0"},
        )


class WakesLate(StorePacketizer):
    """A wrong packetizer that sleeps on when the first store comes."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.wake.eq(~self.idle)
        return m


def test_a_packetizer_that_wakes_late_is_caught():
    with pytest.raises(SimulationError):
        simulate(
            Asleep(WakesLate(SIZES["tiny"])),
            "packetizer",
            __name__,
            "random_stores",
            environment={"SIZE": "tiny", "STALL": "20"},
        )


@pytest.mark.parametrize("size", ["paper", "four_channels"])
def test_timeout_of_an_open_packet(size):
    environment = {"SIZE": size}
    simulate(
        checked(Asleep(StorePacketizer(SIZES[size]))),
        "packetizer",
        __name__,
        "timeout_of_an_open_packet",
        environment=environment,
    )


def test_store_rate():
    simulate(checked(Asleep(StorePacketizer(SIZES["paper"]))), "packetizer", __name__, "store_rate")
