"""Two link lanes joined by lossy wires, with sources of packets and a check of everything that arrives."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.link.egress import DMA, STORES
from hw.link.events import LinkEvents
from hw.link.parameters import LinkParameters
from hw.link.port_sender import LinkTimers
from hw.link.wire import arrival_layout, flit_layout, message_layout, packet_layout
from hw.messages import Messages
from hw.range_table import Control
from hw.send_table import SendControl
from tb.drivers.lane_pair import SIDES
from tb.drivers.lane_tables import IDS, LaneTables
from tb.drivers.lossy_wire import LossyWire, Weather
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_lane_pair


def epoch_after(number: int) -> int:
    """The number of another epoch, often one that differs in a single bit."""
    while True:
        found = number ^ 1 << random.randrange(8) if random.random() < 0.7 else random.randrange(256)
        if found not in (0, number):
            return found


@dataclass
class Packet:
    """A packet to be sent by `sends`, and how much of each send has arrived."""

    number: int
    source: int
    va: int
    wf: int
    mask: int
    epoch: int
    mark: int
    sectors: list[int]
    sends: list[int]
    bank: int
    slot: int = -1
    arrived: dict[int, int] = field(default_factory=dict)


class LaneBench(LaneTables):
    """Drives a :class:`LanePair`: sources, wires, memory; checks each write as it arrives.

    Exactly once, in the order of each source on each port, bit for bit; a write that is not expected fails at once.
    """

    def __init__(self, dut, parameters: LinkParameters, latency: int, weather: Weather, stall: float = 0):
        super().__init__(dut, parameters)
        self.latency = latency
        self.messages = Messages(parameters)
        self.weather = weather
        self.stall = stall
        self.ready = {side: stalls(stall) for side in SIDES}
        self.standing: set[tuple[str, int]] = set()
        """Ports whose wire takes nothing, as (side, port)."""
        self.pace = 1
        """Cycles in which a wire takes one flit."""
        self.flits = {(s, p): self._wire(flit_layout(parameters).size) for s in SIDES for p in range(parameters.links)}
        bits = message_layout(parameters).size - 1
        self.states = {(s, p): self._wire(bits) for s in SIDES for p in range(parameters.links)}
        self.now = 0
        self.packets: dict[str, dict[int, Packet]] = {side: {} for side in SIDES}
        self.queues: dict[tuple[str, int], deque[Packet]] = {(s, n): deque() for s in SIDES for n in (DMA, STORES)}
        self.order: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        self.done: dict[tuple[str, int, int], int] = Counter()
        self.landing: dict[str, list[list[tuple[int, int, int, int]]]] = {
            side: [[] for _ in range(parameters.slot_banks)] for side in SIDES
        }
        self.epoch = dict.fromkeys(SIDES, random.randrange(1, 256))
        self.events: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """What wires have taken, by side, port and name, as in `events`."""
        self.said: dict[tuple[str, int], tuple[int, int]] = {}
        """When each port's last state message was, and what it said."""
        self.said_again: Counter[str] = Counter()
        """Messages that say the same again before it is time to."""
        self.blocks: Counter[str] = Counter()
        self.discarded: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        """Packets that have arrived whole, by side and port of the receiver, as in `events`."""
        self.heard: dict[tuple[str, int], set[int]] = {}
        """Notices but 0 that ports have heard."""
        self.sent_log: list[tuple[int, str, int, int]] = []
        self.keep_log = False
        self.closings: list[tuple[int, str, int]] = []
        self.next_number = dict.fromkeys(SIDES, 0)
        self.stop_sources: set[str] = set()
        self.filling: Counter[str] = Counter()
        """Packets that sources work on."""
        self.waits_for_slot: set[tuple[str, int]] = set()
        self.give_up: set[tuple[str, int]] = set()
        """Sources that wait for a slot, and those that shall no longer."""
        self.arrival_delay = 30
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        stop = stalls(stall)
        self.memory_stands = False
        self.sinks = {
            s: [
                StreamSink(dut, f"{s}_requests__{c}", dut.clk, lambda: self.memory_stands or stop())
                for c in range(parameters.channels)
            ]
            for s in SIDES
        }
        self.faults = {s: StreamSink(dut, f"{s}_faults", dut.clk) for s in SIDES}

    def _wire(self, bits: int) -> LossyWire:
        return LossyWire(bits, self.latency, self.weather)

    async def reset(self, retry: int | None = None, dead: int = 4000) -> None:
        """Reset, program ranges and sends, arm; the handshakes then begin."""
        dut = self.dut
        dut.ranges.value = 0
        self.choose_ranks()
        slow = 4 * (self.latency + self.weather.late)
        self.timers = pack(LinkTimers, silence=slow // 2 + 10, retry=retry or slow + 400, dead=dead)
        for side, other in SIDES.items():
            for name in (
                "reset",
                "sends",
                "packets",
                "close",
                "arrivals",
                "tx_ready",
                "rx_valid",
                "rx",
                "notice",
                "window",
                "give_up",
            ):
                self.signal(side, name).value = 0
            for n in range(2):
                self.signal(side, f"banks__{n}").value = 0
            self.signal(side, "tx_messages").value = 0
            self.signal(side, "timers").value = self.timers
            self.signal(side, "rank").value = self.ranks[side]
            self.knows(side, self.ranks[other])
            self.signal(side, "epoch").value = self.epoch[side]
            self.signal(side, "armed").value = 1
        dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.choose_ranges()
        await self.program_ranges()
        await self.program()
        cocotb.start_soon(self._run())
        observe(watch_lane_pair, dut, self.parameters)

    def packet(
        self, side: str, source: int, sends: list[int] | None = None, length: int | None = None, va: int | None = None
    ) -> Packet:
        """Queue a random packet of `sends` (consecutive numbers), of a `va` that leads into ranges if none is given."""
        if sends is None:
            count = random.choice([1, 1, 1, 2, min(4, self.parameters.sends)])
            first = random.randrange(self.parameters.sends)
            sends = [(first + n) % self.parameters.sends for n in range(count)]
        length = length or random.choice([1, 8, random.randint(1, 8)])
        self.next_number[side] += 1
        packet = Packet(
            number=self.next_number[side],
            source=source,
            va=self.address(side, sends, length) if va is None else va,
            wf=random.getrandbits(3),
            mask=random.choice([0xFFFFFFFF, random.getrandbits(32)]),
            epoch=self.epoch[side],
            mark=random.getrandbits(1),
            sectors=[random.getrandbits(256) for _ in range(length)],
            sends=sends,
            bank=random.randrange(self.parameters.slot_banks - 1) if source == DMA else self.parameters.slot_banks - 1,
        )
        self.packets[side][packet.number] = packet
        self.queues[side, source].append(packet)
        return packet

    async def _run(self) -> None:
        for side in SIDES:
            for source in (DMA, STORES):
                cocotb.start_soon(self._source(side, source))
            cocotb.start_soon(self._land(side))
        offered: dict[tuple[str, int], int] = {}
        flit = flit_layout(self.parameters)
        flit_bits, last = flit.size, flit["last"].offset
        message_bits = message_layout(self.parameters).size
        while True:
            await RisingEdge(self.dut.clk)
            self.now += 1
            for side in SIDES:
                valid = words = messages = ready = 0
                for port in range(self.parameters.links):
                    word = self.flits[SIDES[side], port].take(self.now)
                    if word is not None:
                        valid |= 1 << port
                        words |= word << port * flit_bits
                    state = self.states[side, port].take(self.now)
                    if state is not None:
                        messages |= (state << 1 | 1) << port * message_bits
                    stands = (side, port) in self.standing or (self.now + port) % self.pace
                    if not stands and not self.ready[side]():
                        ready |= 1 << port
                self.signal(side, "rx_valid").value = valid
                self.signal(side, "rx").value = words
                self.signal(side, "tx_messages").value = messages
                self.signal(side, "tx_ready").value = ready
            await ReadOnly()
            for side in SIDES:
                in_reset = int(self.signal(side, "reset").value)
                valid = int(self.signal(side, "tx_valid").value)
                ready = int(self.signal(side, "tx_ready").value)
                words = int(self.signal(side, "tx").value) if valid else 0
                messages = int(self.signal(side, "rx_messages").value)
                for port in range(self.parameters.links):
                    word = words >> port * flit_bits & (1 << flit_bits) - 1
                    if in_reset:
                        offered.pop((side, port), None)
                        self.said.pop((side, port), None)
                        continue
                    if (side, port) in offered:
                        assert valid >> port & 1 and offered[side, port] == word, f"{side} {port}: offer changed"
                    offered.pop((side, port), None)
                    if valid >> port & 1:
                        if ready >> port & 1:
                            self.flits[side, port].put(self.now, word)
                            self.sent[f"{side}{port}.sent_flits"] += 1
                            self.sent[f"{side}{port}.sent_packets"] += word >> last & 1
                            if self.keep_log:
                                self.sent_log.append((self.now, side, port, word))
                        else:
                            offered[side, port] = word
                    message = messages >> port * message_bits & (1 << message_bits) - 1
                    if message & 1:
                        self.states[SIDES[side], port].put(self.now, message >> 1)
                        before, same = self.said.get((side, port), (-self.parameters.link_repeat, message))
                        early = self.now - before <= self.parameters.link_repeat
                        self.said_again[f"{side}{port}"] += message == same and early
                        idle = int(self.signal(side, "idle").value)
                        assert message == same or not idle, f"{side} {port}: idle with something new to say"
                        self.said[side, port] = self.now, message
                self._watch(side)

    def _watch(self, side: str) -> None:
        happened = int(self.signal(side, "events").value)
        size = LinkEvents.size
        for port in range(self.parameters.links):
            bits = happened >> port * size & (1 << size) - 1
            for name, value in unpack(LinkEvents, bits).items() if bits else ():
                self.events[f"{side}{port}.{name}"] += value
                self.events[name] += value
            heard = int(self.signal(side, "heard").value) >> 8 * port & 0xFF
            self.heard.setdefault((side, port), set()).update({heard} - {0})
        empty, idle = (int(self.signal(side, name).value) for name in ("empty", "idle"))
        assert empty or not idle, f"{side} says that it is idle"
        self.blocks[side] += int(self.signal(side, "block_sent").value)
        self.discarded[side] += int(self.signal(side, "discarded").value)
        for sink in self.sinks[side]:
            while sink.received:
                self._arrives(SIDES[side], side, unpack(self.messages.memory_request, sink.received.popleft()))

    def _arrives(self, sender: str, receiver: str, request: dict[str, int]) -> None:
        number, send = request["wg"] & (1 << IDS) - 1, request["wg"] >> IDS
        packet = self.packets[sender].get(number)
        assert packet and send in packet.sends, f"{receiver}: nobody sent {request}"
        place = packet.arrived.get(send, 0)
        assert place < len(packet.sectors), f"{receiver}: packet {number} arrives again"
        entry = self.sends[sender][send]
        last = place == len(packet.sectors) - 1
        control = unpack(SendControl, entry.control)
        va = (packet.va + entry.offset + place) % (1 << self.parameters.va_sector_bits)
        known = self.place_of(va)
        reach = unpack(Control, self.reach[known].control)
        expected = {name: control[name] for name in ("access", "alu", "dtype", "traffic_class")} | {
            "va": va,
            "wf": packet.wf,
            "epoch": packet.epoch,
            "mask": packet.mask if last else 0xFFFFFFFF,
            "data": packet.sectors[place],
            "range": known,
            "first_touch": reach["first_touch"],
            "tracked": reach["tracked"],
        }
        assert {name: request[name] for name in expected} == expected, f"{receiver}: packet {number} place {place}"
        assert packet.epoch == self.epoch[receiver], f"{receiver}: a write of epoch {packet.epoch}"
        packet.arrived[send] = place + 1
        if last:
            key = (sender, entry.port, packet.source)
            due = self.order[key][self.done[key]]
            assert due == (number, send), f"{receiver}: {(number, send)} arrives in the place of {due}"
            self.done[key] += 1
            self.delivered[f"{receiver}{entry.port}"] += 1

    def _count(self, sends: int) -> int:
        """What is written for a number of sends: 0 acts as 1, and any that is too high as all there are."""
        if sends == self.parameters.sends:
            return random.randrange(sends, 1 << Control["sends"].width)
        return random.randrange(2) if sends == 1 else sends

    async def _source(self, side: str, source: int) -> None:
        """Fill slots as the DMA engine does (data later, closed with the last read) or as merged stores."""
        layout = packet_layout(self.parameters)
        queue = self.queues[side, source]
        stall = stalls(self.stall)
        while True:
            while not queue or side in self.stop_sources:
                await RisingEdge(self.dut.clk)
            packet = queue.popleft()
            self.filling[side] += 1
            fields = {
                "va": packet.va,
                "wg": packet.number,
                "wf": packet.wf,
                "epoch": packet.epoch,
                "length": len(packet.sectors) - 1,
                "mask": packet.mask,
                "first": packet.sends[0],
                "count": self._count(len(packet.sends)),
                "mark": packet.mark,
            }
            self._set(side, "packets", source, layout.size, pack(layout, **fields))
            self.signal(side, f"banks__{source}").value = packet.bank if source == DMA else 0
            await RisingEdge(self.dut.clk)
            # What comes of the new `first` and `count` holds a cycle later.
            await RisingEdge(self.dut.clk)
            self.waits_for_slot.add((side, source))
            while (side, source) not in self.give_up:
                await ReadOnly()
                room = int(self.signal(side, "room").value) >> source & 1
                slot = int(self.signal(side, "slots").value) >> source * self.parameters.slot_bits
                packet.slot = slot & (1 << self.parameters.slot_bits) - 1
                await RisingEdge(self.dut.clk)
                if room and not stall():
                    break
            self.waits_for_slot.remove((side, source))
            if (side, source) in self.give_up:
                self.give_up.remove((side, source))
                self.filling[side] -= 1
                del self.packets[side][packet.number]
                continue
            for index, sector in enumerate(packet.sectors):
                late = random.randint(0, self.arrival_delay) if source == DMA else 0
                self.landing[side][packet.bank].append((self.now + late, index, packet.slot, sector))
                if source == STORES:
                    while self.landing[side][packet.bank]:
                        await RisingEdge(self.dut.clk)
                elif index < len(packet.sectors) - 1:
                    await RisingEdge(self.dut.clk)
            for send in packet.sends:
                self.order.setdefault((side, self.sends[side][send].port, source), []).append((packet.number, send))
            self._set(side, "close", source, 1, 1)
            await ReadOnly()
            self.closings.append((self.now, side, packet.number))
            await RisingEdge(self.dut.clk)
            self._set(side, "close", source, 1, 0)
            # Whoever wakes at this edge still reads `empty` as it was before the slot was taken.
            await RisingEdge(self.dut.clk)
            self.filling[side] -= 1

    def _set(self, side: str, name: str, place: int, bits: int, value: int) -> None:
        """Set one element of a vector of which several tasks drive parts."""
        key = (side, name)
        vectors = self.__dict__.setdefault("_vectors", {})
        vectors[key] = vectors.get(key, 0) & ~((1 << bits) - 1 << place * bits) | value << place * bits
        self.signal(side, name).value = vectors[key]

    async def _land(self, side: str) -> None:
        """Bring sectors to the slots, at most one a cycle and bank."""
        layout = arrival_layout(self.parameters)
        size = layout.size
        while True:
            await RisingEdge(self.dut.clk)
            for bank, waiting in enumerate(self.landing[side]):
                due = [item for item in waiting if item[0] <= self.now]
                bits = 0
                if due:
                    item = random.choice(due)
                    waiting.remove(item)
                    bits = pack(layout, valid=1, index=item[1], slot=item[2], data=item[3])
                self._set(side, "arrivals", bank, size, bits)

    def undelivered(self, side: str) -> list[tuple[int, int]]:
        """(packet, send) of `side` that have not arrived whole."""
        return [
            (packet.number, send)
            for packet in self.packets[side].values()
            for send in packet.sends
            if packet.arrived.get(send, 0) < len(packet.sectors)
        ]

    def is_empty(self, side: str) -> bool:
        """Nothing waits at `side`, for a slot or in one."""
        waits = any(self.queues[side, source] for source in (DMA, STORES)) or any(self.landing[side])
        waits = waits or self.filling[side] > 0
        return not waits and bool(int(self.signal(side, "empty").value))

    async def emptied(self, sides: Iterable[str], limit: int, otherwise: str) -> None:
        """Wait until `sides` are empty, at most so many cycles; `otherwise` is what the failure says."""
        start = self.now
        while not all(self.is_empty(side) for side in sides):
            assert self.now < start + limit, otherwise
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            await RisingEdge(self.dut.clk)

    async def finish(self, limit: int = 60000, sides: tuple[str, ...] = ("a", "b")) -> None:
        """Wait until everything has arrived and every slot is free."""
        start = self.now
        while any(self.undelivered(side) or not self.is_empty(side) for side in sides):
            assert self.now < start + limit, {side: self.undelivered(side)[:5] for side in sides}
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            await RisingEdge(self.dut.clk)

    def now_of(self, side: str, port: int) -> dict[str, int]:
        """What a port says in this cycle."""
        happened = int(self.signal(side, "events").value) >> port * LinkEvents.size
        return unpack(LinkEvents, happened & (1 << LinkEvents.size) - 1)

    async def finish_and_count(self) -> None:
        """Wait until everything has arrived, and all is idle; compare what was counted, of ports in their first session
        of which no packet was refused."""
        await self.finish()
        start = self.now
        while not all(int(self.signal(side, "idle").value) for side in SIDES):
            assert self.now < start + 100, "not idle, though everything has arrived"
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            await RisingEdge(self.dut.clk)
        for side, other in SIDES.items():
            for port in range(self.parameters.links):
                count = self.delivered[f"{other}{port}"]
                assert self.events[f"{other}{port}.received_packets"] == self.events[f"{side}{port}.left"] == count
                assert not self.now_of(other, port)["writing"]
                for name in ("sent_flits", "sent_packets"):
                    assert self.events[f"{side}{port}.{name}"] == self.sent[f"{side}{port}.{name}"], name

    async def finish_sends(self, wanted: Callable[[Packet, int], bool], limit: int = 20000) -> None:
        """Wait until all sends that are `wanted` have arrived, whatever the others do."""
        start = self.now
        while True:
            missing = [
                (side, number, send)
                for side in SIDES
                for number, send in self.undelivered(side)
                if wanted(self.packets[side][number], send)
            ]
            if not missing:
                return
            assert self.now < start + limit, f"has not arrived: {missing[:5]}"
            await RisingEdge(self.dut.clk)

    async def reset_one(self, side: str) -> None:
        """Reset `side` alone, and wait until the first port of the other one has noticed."""
        noticed = f"{SIDES[side]}0.cut"
        cuts = self.events[noticed]
        self.signal(side, "reset").value = 1
        # As the register file's own reset does: nothing of this epoch is taken any more, so nothing of it may be
        # written a second time.
        self.signal(side, "armed").value = 0
        await ClockCycles(self.dut.clk, random.randint(1, 30))
        self.signal(side, "reset").value = 0
        await self.program_ranges()
        await self.write_sends(side)
        limit = self.now + 40000
        while self.events[noticed] == cuts:
            assert self.now < limit, "the session did not end"
            await RisingEdge(self.dut.clk)

    async def stop(self, sides: Iterable[str]) -> None:
        """The sources of `sides` begin no more packets; those begun are closed and whole."""
        for side in sides:
            self.stop_sources.add(side)
        while any(self.filling[side] or any(self.landing[side]) for side in sides):
            for side in sides:
                for source in (DMA, STORES):
                    if (side, source) in self.waits_for_slot:
                        self.give_up.add((side, source))
            await RisingEdge(self.dut.clk)

    def forget(self, side: str) -> None:
        """Packets of `side` that have not arrived never will; none may."""
        for source in (DMA, STORES):
            self.queues[side, source].clear()
        self.packets[side].clear()
        for key in list(self.order):
            if key[0] == side:
                self.order[key].clear()
                self.done[key] = 0

    async def next_epoch(self, wait_up: bool = True) -> None:
        """Discard the epoch on both sides, wait for the end of it, arm the next one."""
        await self.stop(SIDES)
        for side in SIDES:
            for source in (DMA, STORES):
                self.queues[side, source].clear()
            self.signal(side, "armed").value = 0
        await self.emptied(SIDES, 20000, "the epoch does not come to its end")
        # Writes that are accepted are still on their way.
        await ClockCycles(self.dut.clk, 400)
        number = epoch_after(self.epoch["a"])
        for side in SIDES:
            self.forget(side)
            self.epoch[side] = number
            self.signal(side, "epoch").value = self.epoch[side]
            self.signal(side, "armed").value = 1
            if wait_up:
                await self.up(side)
        self.stop_sources.clear()

    def drop_queued(self, side: str) -> None:
        """Packets that wait for their source are not sent after all."""
        for source in (DMA, STORES):
            while self.queues[side, source]:
                del self.packets[side][self.queues[side, source].popleft().number]

    async def up(self, side: str, ports: list[int] | None = None, limit: int = 20000) -> int:
        """Wait until ports of `side` are in a session; returns the cycles it took."""
        start = self.now
        while True:
            await ReadOnly()
            states = [self.now_of(side, port)["up"] for port in ports or range(self.parameters.links)]
            await RisingEdge(self.dut.clk)
            if all(states):
                return self.now - start
            assert self.now < start + limit, f"{side}: no session"

    async def all_up(self) -> None:
        """Wait until all ports of both sides are in sessions."""
        for side in SIDES:
            await self.up(side)
