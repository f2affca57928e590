"""The store packetizer loses nothing, keeps order, and merges as far as its rules allow."""

import os
import random
from itertools import product
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module
from amaranth.hdl import Value
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.link.packetizer import TIMEOUT, TIMEOUT_OTHERS, StorePacketizer
from hw.link.wire import arrival_layout, packet_layout, routes_layout
from hw.messages import Messages
from tb.drivers.asleep import Asleep
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSource, never, stalls
from tb.drivers.stream_checker import checked
from tb.drivers.wrong_blocks import RoutesOfTheFirst
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_packetizer
from tb.golden.packets import packet_routes
from tb.runner import caught, simulate

SIZES = {
    "paper": preset("paper"),
    "tiny": preset("tiny"),
    "four_channels": preset("quad"),
    "tiny_four_channels": preset("tiny", channels=4),
    "five_ports": preset("paper", links=5, remote_queue_depth=3),
}


NAMES = ("first_send", "sends", "wg", "wf", "epoch")
"""What all stores of a packet have in common."""


class PacketizerBench:
    """The packetizer with a source per channel, and slots: `slot_stall` says when there is none. Sends leave by the
    ports `port_of`, by all in turn by default."""

    def __init__(self, dut, config: Configuration, source_stall, slot_stall, port_of: list[int] | None = None):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.sources = [
            StreamSource(dut, f"stores__{c}", dut.clk, source_stall, idle=self._rubbish) for c in range(config.channels)
        ]
        self.slot_stall = slot_stall or never
        self.direct(port_of or [send % config.links for send in range(config.sends)])
        self.standing: set[int] = set()
        """Ports for whose packets there is no slot."""
        self.expected: dict[tuple[int, int], list[dict]] = {}
        self.received: list[list[dict]] = []

    def direct(self, port_of: list[int]) -> None:
        """Change the port of each send; when idle."""
        self.port_of = port_of
        for send, port in enumerate(port_of):
            getattr(self.dut, f"port_of__{send}").value = port

    def _rubbish(self, last: int) -> int:
        """What lies at `stores` when there is none: often for the port of the `last` one."""
        rubbish = random.getrandbits(self.messages.remote_store.size)
        if random.random() < 0.5:
            port = self.messages.remote_store["port"]
            bits = (1 << port.width) - 1 << port.offset
            rubbish = rubbish & ~bits | last & bits
        return rubbish

    async def reset(self):
        self.dut.slots__room.value = 0
        self.dut.slots__slot.value = 0
        self.dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        observe(watch_packetizer, self.dut, self.config)
        cocotb.start_soon(self._slots())

    def store(self, wrong_port: int | None = None, **store):
        store["port"] = self.port_of[store["first_send"]]
        store["data"] = random.getrandbits(256)
        channel = (store["va"] >> 3) % self.config.channels
        said = store if wrong_port is None else store | {"port": wrong_port}
        self.sources[channel].queue.append(pack(self.messages.remote_store, **said))
        self.expected.setdefault((channel, store["port"]), []).append(store)

    async def _slots(self):
        """Give slots for the sends that were asked for in the cycle before; take the packets that are closed."""
        asked: dict[str, int] | None = None
        room, slot = False, 0
        sectors: dict[int, int] = {}
        arrivals, packets = arrival_layout(self.config), packet_layout(self.config)
        upcoming = routes_layout(self.config)
        while True:
            stands = asked is None or any(asked["ports"] >> port & 1 for port in self.standing)
            room = not stands and (room or not self.slot_stall())
            self.dut.slots__room.value = int(room)
            self.dut.slots__slot.value = slot
            await ReadOnly()
            arrival = unpack(arrivals, int(self.dut.arrival.value))
            if arrival["valid"]:
                assert room and arrival["slot"] == slot and arrival["index"] == len(sectors)
                sectors[arrival["index"]] = arrival["data"]
            if int(self.dut.slots__close.value):
                packet = unpack(packets, int(self.dut.slots__packet.value))
                routes = packet_routes(packet["first"], packet["count"], self.port_of)
                assert room and asked == routes, "a slot was had for other sends"
                self._closed(packet, sectors)
                sectors, room = {}, False
                slot = random.randrange(self.config.store_packets)
            before, asked = asked, unpack(upcoming, int(self.dut.slots__upcoming.value))
            if asked != before:
                assert not sectors, "other sends are asked for while a packet is open"
                room = False
            await RisingEdge(self.dut.clk)

    def _closed(self, packet: dict, sectors: dict[int, int]) -> None:
        """A packet turned back into stores."""
        assert packet["va"] % 8 + packet["length"] < 8, "packet crosses 256 B"
        assert list(sectors) == list(range(packet["length"] + 1))
        same = {"first_send": packet["first"], "sends": packet["count"]}
        same |= {name: packet[name] for name in ("wg", "wf", "epoch")} | {"port": self.port_of[packet["first"]]}
        self.received.append(
            [
                same
                | {
                    "va": packet["va"] + place,
                    "mask": packet["mask"] if place == packet["length"] else 0xFFFFFFFF,
                    "data": sector,
                }
                for place, sector in sectors.items()
            ]
        )

    async def finish(self, limit: int = 40000):
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            if not any(source.queue for source in self.sources) and int(self.dut.idle.value):
                offered = any(int(getattr(self.dut, f"stores__{c}__valid").value) for c in range(self.config.channels))
                assert int(self.dut.wake.value) == offered, "awake with nothing to do"
                # The last store leaves its source's queue in the cycle in which it is taken.
                if not offered:
                    await RisingEdge(self.dut.clk)
                    return
        raise AssertionError("stores are stuck")

    def check(self) -> int:
        """Every store left once, in the order of its channel and port; returns the number of packets."""
        due = {queue: list(stores) for queue, stores in self.expected.items()}
        for packet in self.received:
            queue = due[(packet[0]["va"] >> 3) % self.config.channels, packet[0]["port"]]
            assert packet == queue[: len(packet)]
            del queue[: len(packet)]
        assert not any(due.values())
        return len(self.received)


def run_of_stores(bench: PacketizerBench, length: int, **changes):
    """A run of stores with random attributes, often to the end of 256 B; some are partial, the last one often."""
    start = random.choice([random.getrandbits(42), 8 * random.randrange(3, 1 << 40) - length])
    attributes = {
        "first_send": random.randrange(bench.config.sends),
        "sends": random.choice([1, random.getrandbits(6)]),
        "wg": random.getrandbits(16),
        "wf": random.getrandbits(3),
        "epoch": random.getrandbits(8),
    } | changes
    for place in range(length):
        if random.random() < 0.1:
            name = random.choice(NAMES)
            attributes[name] ^= 1 << random.randrange(bench.messages.remote_store[name].width)
        mask = 0xFFFFFFFF
        if random.random() < (0.1 if place < length - 1 else 0.5):
            mask = random.choice([random.getrandbits(31), mask ^ 1 << random.randrange(32)])
        bench.store(va=start + place, mask=mask, **attributes)


def greedy(stores: list[dict]) -> int:
    """Packets of one queue's stores when each continues the open packet as long as it may."""
    packets, before = 0, None
    for store in stores:
        continues = (
            before is not None
            and store["va"] == before["va"] + 1
            and store["va"] % 8 != 0
            and before["mask"] == 0xFFFFFFFF
            and all(store[name] == before[name] for name in NAMES)
        )
        packets += not continues
        before = store
    return packets


@cocotb.test()
async def random_stores(dut):
    config = SIZES[os.environ["SIZE"]]
    stall = float(os.environ["STALL"])
    port_of = random.choices(range(config.links), k=config.sends)
    bench = PacketizerBench(dut, config, stalls(stall), stalls(stall), port_of)
    await bench.reset()
    for runs in (20, 15, 15):
        for _ in range(runs):
            run_of_stores(bench, random.choice([1, 2, 8, 20]))
        # Whole packets but for some bytes of the last sector, for one peer and for several.
        for sends in (1, random.randrange(2, 64)):
            row = 8 * random.randrange(1 << 39)
            for place in range(8):
                mask = 0xFFFFFFFF if place < 7 else random.getrandbits(31)
                bench.store(va=row + place, **ALIKE | {"sends": sends, "mask": mask})
        await bench.finish()
        count = bench.check()
        # Where queues take turns, a packet may end because another one waits.
        fewest = sum(greedy(stores) for stores in bench.expected.values())
        assert count >= fewest
        if not stall:
            assert count == fewest
        bench.received.clear()
        bench.expected.clear()


ALIKE = {"first_send": 1, "sends": 1, "wg": 2, "wf": 3, "epoch": 9, "mask": 0xFFFFFFFF}
"""Attributes of stores that only their addresses tell apart."""


@cocotb.test()
async def every_bit_tells_stores_apart(dut):
    """Of two stores of consecutive addresses that differ in one bit of anything else the second begins a packet, as it
    does behind one that lacks a byte; if they differ in nothing it continues the first one's, but across 256 B. Each
    send is that of a packet alone, too, each through one port and another."""
    config = SIZES[os.environ["SIZE"]]
    bench = PacketizerBench(dut, config, None, None)
    await bench.reset()
    layout = bench.messages.remote_store
    bits = [(name, bit) for name in NAMES for bit in range(layout[name].width)]
    bits += 3 * [(name, bit) for name, bit in bits if name in ("first_send", "sends")]
    bits += [("va", bit) for bit in range(3, layout["va"].width)] + [("mask", bit) for bit in range(32)]
    for crosses in (False, True):
        port_of = random.choices(range(config.links), k=config.sends)
        for others in range(2):
            bench.direct([(port + others) % config.links for port in port_of])
            pairs = [*bits, *[("", 0)] * 2 * config.sends]
            random.shuffle(pairs)
            for number, (name, bit) in enumerate(pairs):
                _store_pair(bench, name, bit, number % config.sends, crosses)
            await bench.finish()
            assert bench.check() == sum(greedy(stores) for stores in bench.expected.values())
            bench.received.clear()
            bench.expected.clear()


def _store_pair(bench: PacketizerBench, name: str, bit: int, first_send: int, crosses: bool) -> None:
    """Two stores, the second of which differs in a bit of `name` (the first has not all bytes if that is `mask`), or in
    nothing: then they are for one peer."""
    layout = bench.messages.remote_store
    first = {other: random.getrandbits(layout[other].width) for other in NAMES}
    first |= {"first_send": first_send, "mask": 0xFFFFFFFF}
    if name == "":
        first["sends"] = 1
    row = random.randrange((1 << layout["va"].width - 3) - 1)
    first["va"] = 8 * row + (7 if crosses else random.randrange(7))
    second = first | {"va": first["va"] + 1}
    if name:
        (first if name == "mask" else second)[name] ^= 1 << bit
    bench.store(**first)
    bench.store(**second)


@cocotb.test()
async def store_rate(dut):
    """512 consecutive stores become 64 packets, a store a cycle, whatever their sends."""
    config = SIZES["paper"]
    bench = PacketizerBench(dut, config, None, None)
    await bench.reset()
    some = random.getrandbits(6)
    for first, sends in product(range(config.links), (some, some ^ 63)):
        for place in range(512):
            bench.store(va=place, **ALIKE | {"first_send": first, "sends": sends})
        cycles = 0
        task = cocotb.start_soon(bench.finish())
        while not task.done():
            await RisingEdge(dut.clk)
            cycles += 1
        assert bench.check() == 64
        dut._log.info(f"512 stores in {cycles} cycles")
        assert cycles <= 512 + 20
        bench.received.clear()
        bench.expected.clear()


@cocotb.test()
async def a_port_that_there_is_not(dut):
    """A store whose port a wrong bit has made one that does not exist is taken with those of the last port, and others
    go on."""
    config = SIZES[os.environ["SIZE"]]
    bench = PacketizerBench(dut, config, stalls(20), stalls(20))
    await bench.reset()
    last = config.links - 1
    for _ in range(40):
        run_of_stores(bench, random.randrange(1, 9))
        wrong = random.randrange(config.links, 16)
        bench.store(wrong_port=wrong, va=random.getrandbits(40), **ALIKE | {"first_send": last})
    await bench.finish()
    assert bench.check() >= 80


@cocotb.test()
async def timeout_of_an_open_packet(dut):
    """A store continues the packet until just as many cycles after the last, fewer while another queue waits."""
    config = SIZES[os.environ["SIZE"]]
    bench = PacketizerBench(dut, config, None, None)
    await bench.reset()
    queues = [(channel, port) for channel in range(config.channels) for port in range(config.links)]
    for own, other in [(own, other) for own in queues for other in queues if own != other or len(queues) <= 2]:
        limit = TIMEOUT if own == other else TIMEOUT_OTHERS
        (channel, port), (others_channel, others_port) = own, other
        for distance in range(1 if own == other else 3, limit + 5):
            before = len(bench.received)
            row = random.randrange(1 << 35) * config.channels
            for place in range(random.randrange(3, 8) if own == other else 3):
                # Between two rising edges, so that a source offers it at the next one.
                await FallingEdge(dut.clk)
                bench.store(va=8 * (row + channel) + place, **ALIKE | {"first_send": port})
                if own == other:
                    await ClockCycles(dut.clk, distance)
                elif place == 0:  # Time to come to this channel.
                    await ClockCycles(dut.clk, 3)
                elif place == 1:
                    await ClockCycles(dut.clk, 2)
                    bench.store(va=8 * (row + others_channel), **ALIKE | {"first_send": others_port})
                    await ClockCycles(dut.clk, distance - 2)
            await bench.finish()
            packets = bench.received[before:]
            found = [(packet[0]["va"] >> 3, packet[0]["port"]) for packet in packets].count((row + channel, port))
            apart = distance > limit
            assert found == (1 + (place if own == other else 1) * apart), (own, other, distance)
    bench.check()


@cocotb.test()
async def a_port_that_stands_holds_up_no_other(dut):
    """There is no slot for the packets of one port: stores of the others go on, as many as are not behind a full queue;
    when there are slots again, its stores leave in their order."""
    config = SIZES["five_ports"]
    bench = PacketizerBench(dut, config, stalls(20), stalls(20))
    await bench.reset()
    for _ in range(8):
        stands = random.randrange(config.links)
        bench.standing = {stands}
        for first in random.sample(range(2 * config.links), 2 * config.links):
            for number in range(1 if first % config.links == stands else 10):
                bench.store(va=800 * first + number, **ALIKE | {"first_send": first})
        for _ in range(1500):
            await RisingEdge(dut.clk)
        left = sum(len(packet) for packet in bench.received if packet[0]["port"] != stands)
        assert left == 20 * (config.links - 1), "a port waits for another"
        assert all(packet[0]["port"] != stands for packet in bench.received)
        bench.standing = set()
        await bench.finish()
        bench.check()
        bench.received.clear()
        bench.expected.clear()


class WaitsForASlot(StorePacketizer):
    """A wrong packetizer, which serves a queue until its packet has a slot."""

    def _passes_over(self, known: Value) -> Value:
        return Const(0)


def test_waiting_for_a_slot_is_caught():
    with caught("a port waits for another"):
        simulate(WaitsForASlot(SIZES["five_ports"]), "packetizer", __name__, "a_port_that_stands_holds_up_no_other")


def test_a_port_that_stands_holds_up_no_other():
    simulate(
        checked(Asleep(StorePacketizer(SIZES["five_ports"]))),
        "packetizer",
        __name__,
        "a_port_that_stands_holds_up_no_other",
    )


class MixesWavefronts(StorePacketizer):
    """A wrong packetizer that merges stores of different wavefronts."""

    def _continues(self, store, last):
        return (store.va == last.va + 1) & (store.va[:3] != 0) & (store.wg == last.wg)


@pytest.mark.parametrize(
    ("size", "stall"),
    [
        ("paper", 0),
        ("paper", 40),
        ("tiny", 20),
        ("four_channels", 0),
        ("tiny_four_channels", 30),
        ("five_ports", 30),
    ],
)
def test_random_stores(size, stall):
    environment = {"SIZE": size, "STALL": str(stall)}
    simulate(
        checked(Asleep(StorePacketizer(SIZES[size]))), "packetizer", __name__, "random_stores", environment=environment
    )


@pytest.mark.parametrize("size", ["paper", "five_ports"])
@pytest.mark.parametrize("case", ["a_port_that_there_is_not", "every_bit_tells_stores_apart"])
def test_stores_of_any_port(case, size):
    simulate(checked(Asleep(StorePacketizer(SIZES[size]))), "packetizer", __name__, case, environment={"SIZE": size})


def test_routes_of_the_first_send_alone_are_caught():
    """A slot that is had for one send is not had for all of a packet."""
    environment = {"SIZE": "paper", "STALL": "0"}
    with patch("hw.link.packetizer.SendRoutes", RoutesOfTheFirst), caught("other sends"):
        simulate(StorePacketizer(SIZES["paper"]), "packetizer", __name__, "random_stores", environment=environment)


def test_mixed_wavefronts_are_caught():
    with caught():
        simulate(
            MixesWavefronts(SIZES["paper"]),
            "packetizer",
            __name__,
            "random_stores",
            environment={"SIZE": "paper", "STALL": "0"},
        )


class WakesLate(StorePacketizer):
    """A wrong packetizer that sleeps on when the first store comes."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.wake.eq(~self.idle)
        return m


def test_a_packetizer_that_wakes_late_is_caught():
    with caught():
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
