"""Link lanes joined by a switch over wires that damage what they carry, with sources of packets and a check of
everything that arrives."""

import random
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

import cocotb
from amaranth import Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration, Timing
from hw.link.egress import STORES
from hw.link.lane import LinkLane
from hw.link.port_sender import LinkTimers
from hw.link.wire import arrival_layout, packet_layout
from hw.messages import Messages
from hw.range_table import RangeWrite, Word
from hw.send_table import SendControl, SendWord, SendWrite
from sim.models.link import DelayLine, LinkModel
from sim.models.switch import Switch
from tb.drivers.packet_routes import announce_packets
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import Stall, StreamSink, stalls

CONFIG = Configuration(
    links=1,
    ranges=8,
    dma_packets=1,
    store_packets=16,
    link_receive_packets=8,
    link_repeat=16,
    link_latency=10,
    link_bandwidth=1024,
    link_output_flits=3,
    timing=Timing(refresh=False),
)
"""Links that take a flit a cycle."""
TIMERS = {"silence": 60, "retry": 300, "dead": 4000}
NUMBER_BITS = 12
"""Of a wg number: that of the packet, below the rank that sends it."""
EPOCH = 1


class SwitchedLanes(wiring.Component):
    """`gpus` lanes of one port, each on its port of `switch`.

    Ports: by rank those of :class:`hw.link.lane.LinkLane` that a test drives; of all, a bit for each rank: `resets`;
    `flips`: a bit of what comes out of a wire is turned: flits to the switch, flits from it, messages from it, messages
    to it; `stray` and `stall` of the switch.
    """

    def __init__(self, gpus: int, config: Configuration = CONFIG, switch: type[Switch] = Switch):
        self._gpus, self._config, self._switch = gpus, config, switch
        messages = Messages(config)
        members = {"resets": In(gpus), "flips": In(4 * gpus), "stray": Out(1), "stall": In(8), "ranges": In(RangeWrite)}
        for rank in range(gpus):
            members |= {
                f"sends_{rank}": In(SendWrite),
                f"epoch_{rank}": In(messages.epoch),
                f"armed_{rank}": In(1),
                f"notice_{rank}": In(messages.epoch),
                f"heard_{rank}": Out(messages.epoch),
                f"packet_{rank}": In(packet_layout(config)),
                f"close_{rank}": In(1),
                f"room_{rank}": Out(1),
                f"slot_{rank}": Out(config.slot_bits),
                f"arrival_{rank}": In(arrival_layout(config)),
                f"requests_{rank}": Out(stream.Signature(messages.memory_request)),
                f"faults_{rank}": Out(stream.Signature(messages.fault_record)),
                f"empty_{rank}": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.switch = switch = self._switch(config, self._gpus)
        timers = LinkTimers.const(TIMERS)
        m.d.comb += [
            switch.present.eq(-1),
            switch.timers.eq(timers),
            switch.stall.eq(self.stall),
            self.stray.eq(switch.stray),
        ]
        for rank in range(self._gpus):
            lane = LinkLane(config)
            # One name for all resets: then all lanes are one module.
            reset = Signal(name="lane_reset")
            m.d.comb += reset.eq(self.resets[rank])
            m.submodules[f"lane_{rank}"] = ResetInserter(reset)(lane)

            def port(name: str, rank: int = rank):
                return getattr(self, f"{name}_{rank}")

            source = lane.sources[STORES]
            m.d.comb += [
                lane.ranges.eq(self.ranges),
                lane.timers.eq(timers),
                lane.rank.eq(rank),
                *(getattr(lane, name).eq(port(name)) for name in ("sends", "epoch", "armed", "notice")),
                port("heard").eq(lane.heard[0]),
                port("empty").eq(lane.empty),
                source.packet.eq(port("packet")),
                source.close.eq(port("close")),
                port("room").eq(source.room),
                port("slot").eq(source.slot),
                lane.arrivals[config.slot_banks - 1].eq(port("arrival")),
            ]
            announce_packets(m, f"lane_{rank}", config, lane, STORES)
            connect(m, lane.requests[0], flipped(port("requests")))
            connect(m, lane.faults, flipped(port("faults")))
            self._join(m, rank, lane, switch)
        return m

    def _join(self, m: Module, rank: int, lane: LinkLane, switch: Switch) -> None:
        config, gpus = self._config, self._gpus
        m.submodules[f"there_{rank}"] = there = LinkModel(config)
        flit, state = switch.link_out[rank].flit.shape(), switch.messages_in[rank].state.shape()
        m.submodules[f"back_{rank}"] = back = DelayLine(flit, config.link_latency, config.link_latency + 2)
        m.submodules[f"states_{rank}"] = states = DelayLine(state, config.link_latency, config.link_latency + 2)
        to, out, answers, said = (self.flips[kind * gpus + rank] for kind in range(4))
        connect(m, lane.tx[0], there.tx)
        m.d.comb += [
            switch.link_in[rank].valid.eq(there.rx.valid),
            switch.link_in[rank].flit.eq(there.rx.payload.as_value() ^ to << 40),
            there.rx.ready.eq(1),
            there.rx_messages.eq(switch.messages_out[rank]),
            lane.tx_messages[0].eq(there.tx_messages.as_value() ^ answers << 9),
            back.valid.eq(switch.link_out[rank].valid),
            back.payload.eq(switch.link_out[rank].flit),
            lane.rx[0].valid.eq(back.out_valid),
            lane.rx[0].payload.eq(back.out_payload.as_value() ^ out << 40),
            states.valid.eq(lane.rx_messages[0].valid),
            states.payload.eq(lane.rx_messages[0].state),
            switch.messages_in[rank].valid.eq(states.out_valid),
            switch.messages_in[rank].state.eq(states.out_payload.as_value() ^ said << 8),
        ]


@dataclass
class Packet:
    """A packet, and how much of it has arrived."""

    source: int
    number: int
    destination: int
    epoch: int
    va: int
    sectors: list[int]
    arrived: int = 0


class Arrival(NamedTuple):
    """The last sector of a packet was written."""

    cycle: int
    source: int
    destination: int
    number: int


class SwitchBench:
    """Drives :class:`SwitchedLanes`: sources, memory and wires; each write is checked as it comes.

    Exactly once, at its destination, in the order of each source for each destination, bit for bit. `standing`: ranks
    whose memory takes nothing; `damage`: chance that a word on a wire is wrong; `arrivals`: packets that came whole.
    """

    def __init__(self, dut, gpus: int, config: Configuration = CONFIG, stall: float = 0):
        self.dut, self.gpus, self.config = dut, gpus, config
        self.ranks = range(gpus)
        self.messages = Messages(config)
        self.standing: set[int] = set()
        self.damage = 0.0
        self.now = 0
        self.epoch = [EPOCH] * gpus
        self.queues: list[deque[Packet]] = [deque() for _ in self.ranks]
        self.sent: dict[tuple[int, int], Packet] = {}
        self.order: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.arrivals: list[Arrival] = []
        self.faults: list[tuple[int, int]] = []
        self.heard: list[set[int]] = [set() for _ in self.ranks]
        self.next_number = 0
        self.filling = 0
        dut.resets.value = dut.flips.value = dut.stall.value = dut.ranges.value = 0
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.sinks = [StreamSink(dut, f"requests_{rank}", dut.clk, self._stalls(rank, stall)) for rank in self.ranks]
        self.refused = [StreamSink(dut, f"faults_{r}", dut.clk) for r in self.ranks]

    def _stalls(self, rank: int, percent: float) -> Stall:
        stalled = stalls(percent)
        return lambda: rank in self.standing or stalled()

    def signal(self, name: str, rank: int):
        """A port of the design."""
        return getattr(self.dut, f"{name}_{rank}")

    async def reset(self, armed: bool = True) -> None:
        """Reset all, program, and arm."""
        for rank in self.ranks:
            for name in ("sends", "packet", "close", "arrival", "notice"):
                self.signal(name, rank).value = 0
            self.signal("epoch", rank).value = self.epoch[rank]
            self.signal("armed", rank).value = int(armed)
        self.dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await self.program()
        for rank in self.ranks:
            cocotb.start_soon(self._source(rank))
        cocotb.start_soon(self._run())

    async def program(self) -> None:
        """Give all lanes a range of all addresses and a send for each peer."""
        top = (1 << self.config.va_sector_bits) - 1
        words = [(Word.CONTROL, 1), (Word.BASE_LOW, 0), (Word.BASE_HIGH, 0)]
        words += [(Word.LIMIT_LOW, top & 0xFFFFFFFF), (Word.LIMIT_HIGH, top >> 32)]
        writes = [(0, word, value) for word, value in words]
        writes += [(index, Word.CONTROL, 0) for index in range(1, self.config.ranges)]
        for index, word, value in writes:
            self.dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=value)
            await RisingEdge(self.dut.clk)
        self.dut.ranges.value = 0
        for peer in range(self.config.sends):
            control = pack(SendControl, peer=peer, access=1)
            for send_word in SendWord:
                data = control if send_word is SendWord.CONTROL else 0
                for rank in self.ranks:
                    write = pack(SendWrite, valid=1, index=peer, word=send_word.value, data=data)
                    self.signal("sends", rank).value = write
                await RisingEdge(self.dut.clk)
        for rank in self.ranks:
            self.signal("sends", rank).value = 0

    def packet(self, source: int, destination: int, length: int = 0) -> Packet:
        """Queue a packet of so many sectors, or any."""
        self.next_number += 1
        number = self.next_number
        length = length or random.choice([1, 8, random.randint(1, 8)])
        va = random.randrange(1 << self.config.va_sector_bits - 2)
        sectors = [random.getrandbits(256) for _ in range(length)]
        packet = Packet(source, number, destination, self.epoch[source], va, sectors)
        self.queues[source].append(packet)
        self.sent[source, number] = packet
        self.order[source, destination].append(number)
        return packet

    async def _source(self, rank: int) -> None:
        """Fill slots as merged stores do."""
        layout, arrival = packet_layout(self.config), arrival_layout(self.config)
        while True:
            while not self.queues[rank]:
                await RisingEdge(self.dut.clk)
            packet = self.queues[rank].popleft()
            self.filling += 1
            self.signal("packet", rank).value = pack(
                layout,
                va=packet.va,
                wg=rank << NUMBER_BITS | packet.number,
                epoch=packet.epoch,
                length=len(packet.sectors) - 1,
                mask=0xFFFFFFFF,
                first=packet.destination,
                count=1,
            )
            # What comes of the sends of a packet holds a cycle later.
            await RisingEdge(self.dut.clk)
            while True:
                await RisingEdge(self.dut.clk)
                await ReadOnly()
                if int(self.signal("room", rank).value):
                    break
            slot = int(self.signal("slot", rank).value)
            for index, sector in enumerate(packet.sectors):
                await RisingEdge(self.dut.clk)
                self.signal("arrival", rank).value = pack(arrival, valid=1, index=index, slot=slot, data=sector)
            self.signal("close", rank).value = 1
            await RisingEdge(self.dut.clk)
            self.signal("arrival", rank).value = 0
            self.signal("close", rank).value = 0
            self.filling -= 1

    async def _run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.now += 1
            if self.damage:
                bits = range(4 * self.gpus)
                self.dut.flips.value = sum(1 << bit for bit in bits if random.random() < self.damage)
            for rank in self.ranks:
                self.heard[rank].add(int(self.signal("heard", rank).value))
                while self.sinks[rank].received:
                    self._arrives(rank, unpack(self.messages.memory_request, self.sinks[rank].received.popleft()))
                while self.refused[rank].received:
                    record = unpack(self.messages.fault_record, self.refused[rank].received.popleft())
                    self.faults.append((rank, record["fault"]))

    def _arrives(self, rank: int, request: dict[str, int]) -> None:
        source, number = request["wg"] >> NUMBER_BITS, request["wg"] & (1 << NUMBER_BITS) - 1
        packet = self.sent.get((source, number))
        assert packet and packet.destination == rank, f"{rank}: nobody sent {request}"
        place = packet.arrived
        assert place < len(packet.sectors), f"{rank}: packet {number} of {source} arrives again"
        right = request["va"] == packet.va + place and request["data"] == packet.sectors[place]
        assert right, f"{rank}: packet {number} of {source} is wrong"
        assert packet.epoch == self.epoch[rank], f"{rank}: a write of epoch {packet.epoch}"
        if not place:
            due = self.order[source, rank].popleft()
            assert due == number, f"{rank}: packet {number} of {source} arrives before {due}"
        packet.arrived += 1
        if packet.arrived == len(packet.sectors):
            self.arrivals.append(Arrival(self.now, source, rank, number))

    def undelivered(self) -> list[Packet]:
        """Packets that have not come whole."""
        return [packet for packet in self.sent.values() if packet.arrived < len(packet.sectors)]

    async def finish(self, limit: int = 20_000, but: tuple[int, ...] = ()) -> None:
        """Return when all has arrived but what is for the ranks `but`."""
        start = self.now
        while missing := [packet for packet in self.undelivered() if packet.destination not in but]:
            assert self.now < start + limit, [(one.source, one.destination, one.number) for one in missing[:5]]
            for _ in range(20):
                await RisingEdge(self.dut.clk)

    async def cycles(self, count: int) -> None:
        """Wait."""
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def arm(self, rank: int, epoch: int) -> None:
        """End the epoch of a rank, wait until its slots are free, and arm the next one."""
        self.signal("armed", rank).value = 0
        for _ in range(5000):
            await RisingEdge(self.dut.clk)
            if int(self.signal("empty", rank).value):
                break
        else:
            raise AssertionError(f"rank {rank}: the epoch does not come to its end")
        await self.cycles(50)
        self.epoch[rank] = epoch
        self.signal("epoch", rank).value = epoch
        self.signal("armed", rank).value = 1

    def forget(self) -> None:
        """What has not arrived never will; none of it may."""
        self.sent.clear()
        for due in self.order.values():
            due.clear()
