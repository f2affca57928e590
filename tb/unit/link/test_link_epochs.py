"""Ends of an epoch on a link, and neighbours that do not keep to the rules: what waits is discarded, what arrives is
whole, nothing is taken for a later epoch, and nothing that a port is told harms another."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module, Signal
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.link.egress import DMA, STORES
from hw.link.lane import LinkLane
from hw.link.parameters import LinkParameters
from hw.link.port_sender import PortSender, PortState
from hw.link.wire import FlitKind, flit_layout, header_layout, message_layout, state_layout
from hw.messages import Fault
from tb.drivers.lane_bench import LaneBench, epoch_after
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.lane_tables import IDS
from tb.drivers.lossy_wire import LossyWire, Weather
from tb.drivers.payload import pack, unpack
from tb.golden.flit_crc import flit_crc
from tb.runner import caught, simulate
from tb.unit.link.test_link_lane import SIZES as LANE_SIZES

SIZES = {
    "two": LANE_SIZES["two"],
    "four_channels": LinkParameters(
        links=2, ranges=4, channels=4, dma_packets=4, store_packets=4, link_receive_packets=2, link_repeat=16
    ),
}
QUICK_AND_WIDE = ["two", pytest.param("four_channels", marks=pytest.mark.wide)]
CLEAR = Weather()
STORM = Weather(drop=0.02, damage=0.03, double=0.02, delay=0.03, late=40)
PACKETS = 30
CRC_BITS = 24


@cache
def effects(bits: int) -> tuple[int, list[int]]:
    """The CRC of no message bits, and what each of `bits` changes of it: it is linear."""
    none = flit_crc(0, bits)
    return none, [flit_crc(1 << place, bits) ^ none for place in range(bits)]


def sealed(word: int, bits: int) -> int:
    """A word of the wire with the CRC that belongs to the rest of it."""
    body = word & (1 << bits - CRC_BITS) - 1
    crc, changes = effects(bits - CRC_BITS)
    for place, change in enumerate(changes):
        crc ^= change if body >> place & 1 else 0
    return body | crc << bits - CRC_BITS


class ForgingWire(LossyWire):
    """A wire behind a neighbour that lies: `forge` says what it sends instead of a word."""

    def __init__(self, wire: LossyWire, forge: Callable[[int], int]):
        super().__init__(wire.bits, wire.latency, wire.weather)
        self.forge = forge

    def put(self, now: int, word: int) -> None:
        super().put(now, self.forge(word))


class HalfWay(LossyWire):
    """A wire behind a neighbour that sends the header of a packet, and the rest only when it is told to."""

    def __init__(self, wire: LossyWire, kind: Callable[[int], FlitKind]):
        super().__init__(wire.bits, wire.latency, wire.weather)
        self.kind = kind
        self.kept: list[int] | None = None

    def put(self, now: int, word: int) -> None:
        if self.kept is not None:
            self.kept.append(word)
            return
        super().put(now, word)
        if self.kind(word) == FlitKind.HEADER:
            self.kept = []

    def go_on(self, now: int) -> None:
        """Send what was kept."""
        kept, self.kept = self.kept or [], None
        self.kind = lambda word: FlitKind.DATA
        for number, word in enumerate(kept):
            self.put(now + number, word)


class AlwaysArmed(LinkLane):
    """The wrong variant: arrivals do not hear that their epoch has ended."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for port in range(self._parameters.links):
            m.d.comb += m.submodules[f"ingress_{port}"].armed.eq(1)
        return m


class LeftWhenSent(LinkLane):
    """The wrong variant: everything has left when it was closed."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.all_left.eq(1)
        return m


class BelievesAll(PortSender):
    """The wrong variant: packets that were never sent may be acknowledged."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.sync += m.submodules.queue.acknowledge.eq(self.message.valid & self.up)
        return m


class EndsAtOnce(PortSender):
    """The wrong variant: a session whose peer takes packets back ends in the middle of an epoch."""

    def _session(self, m: Module, state: Signal, session: Signal, takes_back: Signal) -> None:
        super()._session(m, state, session, takes_back)
        with m.If(takes_back & self.up):
            m.d.comb += self.cut.eq(1)
            m.d.sync += state.eq(PortState.LISTENING)


class GoesOn(PortSender):
    """The wrong variant: a session whose peer takes packets back never ends."""

    def _session(self, m: Module, state: Signal, session: Signal, takes_back: Signal) -> None:
        super()._session(m, state, session, Signal())


class EpochBench(LaneBench):
    """A pair whose sides are armed one by one, and whose epochs end before everything is sent."""

    @classmethod
    def of(cls, dut) -> "EpochBench":
        weather = Weather(**json.loads(os.environ["WEATHER"]))
        return cls(dut, SIZES[os.environ["SIZE"]], 20, weather, stall=20)

    def arm(self, *sides: str) -> None:
        """The next epoch at both sides, armed at `sides`."""
        ahead = self.epoch["b"] != self.epoch["a"]
        number = self.epoch["b"] if ahead else epoch_after(self.epoch["a"])
        for side in SIDES:
            self.forget(side)
            self.epoch[side] = number
            self.signal(side, "epoch").value = number
            self.signal(side, "armed").value = int(side in sides)
        self.stop_sources.clear()
        self.discarded.clear()

    async def drain(self, limit: int) -> int:
        """Disarm `a`; what was closed leaves or is discarded within `limit` cycles. Returns the sends closed."""
        self.dut.a_armed.value = 0
        await self.stop(["a"])
        self.drop_queued("a")
        await self.emptied(["a"], limit, "the epoch does not come to its end")
        await ClockCycles(self.dut.clk, 100)
        return sum(len(packet.sends) for packet in self.packets["a"].values())

    def arrived(self) -> int:
        """Sends of `a` that have arrived, each whole."""
        counts = [(packet, count) for packet in self.packets["a"].values() for count in packet.arrived.values()]
        assert all(count == len(packet.sectors) for packet, count in counts), "a part of a packet was written"
        return len(counts)

    def refused(self) -> list[dict[str, int]]:
        """Faults at `b` since the last time."""
        faults = [unpack(self.messages.fault_record, bits) for bits in self.faults["b"].received]
        self.faults["b"].received.clear()
        return faults


@cocotb.test()
async def an_ended_epoch_is_discarded(dut):
    """Packets that wait for a grant, a credit or their turn are discarded when their epoch ends; what was begun arrives
    whole. The next epoch finds nothing in its way, and no credit missing."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    for reason in ("silent", "full", "busy", "busy") * 2:
        bench.arm(*(("a",) if reason == "silent" else ("a", "b")))
        bench.memory_stands = reason == "full"
        for number in range(PACKETS):
            bench.packet("a", number % 2)
        await ClockCycles(dut.clk, random.randrange(40, 300) if reason == "busy" else 800)
        if reason == "silent":
            # A grant that comes late, of an epoch that has ended here, opens nothing.
            dut.b_armed.value = 1
            await ClockCycles(dut.clk, random.randrange(bench.latency))
        due = await bench.drain(20000 if bench.weather.drop else 600)
        bench.memory_stands = False
        await ClockCycles(dut.clk, 400)
        sent, gone = bench.arrived(), bench.discarded["a"]
        assert sent + gone == due, f"{reason}: {sent} sent and {gone} discarded of {due}"
        assert gone or reason == "busy"
        assert reason != "silent" or not sent
        bench.arm(*SIDES)
        for side in SIDES:
            for _ in range(3 * bench.parameters.link_receive_packets):
                bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish()
        dut.b_armed.value = 0
    assert not any(sink.received for sink in bench.faults.values())


@cocotb.test()
async def a_packet_cannot_outlive_its_epoch(dut):
    """The receiver is disarmed, and at times armed anew, while packets of the old epoch arrive: wherever they are, also
    between header and last sector, nothing of them is written after that; each is written, refused with a fault, or
    discarded."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    outcomes: Counter[str] = Counter()
    for turn in range(int(os.environ["ROUNDS"])):
        bench.arm(*SIDES)
        # In every third round more wait than can be on their way when the grant is withdrawn: some must be discarded.
        for number in range(4 if turn % 3 else PACKETS):
            bench.packet("a", number % 2)
        await ClockCycles(dut.clk, random.randrange(60, 160))
        dut.b_armed.value = 0
        # A packet accepted in the cycle in which `armed` falls is on its way to memory.
        await ClockCycles(dut.clk, 60 + 20 * bench.parameters.link_receive_packets)
        written = bench.arrived()
        if random.random() < 0.5:
            bench.epoch["b"] = epoch_after(bench.epoch["b"])
            dut.b_epoch.value = bench.epoch["b"]
            dut.b_armed.value = 1
        due = await bench.drain(20000)
        assert bench.arrived() == written, "a sector of an ended epoch was written"
        faults = bench.refused()
        assert all(fault["fault"] == Fault.EPOCH.value for fault in faults)
        assert written + len(faults) + bench.discarded["a"] == due
        outcomes.update(written=written, refused=len(faults), discarded=bench.discarded["a"])
    assert all(outcomes[name] for name in ("written", "refused", "discarded")), outcomes
    bench.arm(*SIDES)
    for _ in range(6 * bench.parameters.link_receive_packets):
        bench.packet("a", random.choice([DMA, STORES]))
    await bench.finish()


@cocotb.test()
async def half_a_packet_waits_for_its_number(dut):
    """A header arrives, the receiver is disarmed, its ranges are others, it is armed with a number that is the same
    again, then the data comes: the packet was judged by ranges that are gone, and is refused."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    layout = flit_layout(bench.parameters)
    port = bench.sends["a"][0].port
    wire = HalfWay(bench.flits["a", port], lambda word: FlitKind(unpack(layout, word)["kind"]))
    bench.flits["a", port] = wire
    packet = bench.packet("a", STORES, [0], length=random.randint(1, 8))
    while not wire.kept or len(wire.kept) < len(packet.sectors) or wire.under_way:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, random.randint(4, 50))
    dut.b_armed.value = 0
    await ClockCycles(dut.clk, random.choice([1, 2, 50]))
    await bench.program_ranges(valid=False)
    await ClockCycles(dut.clk, 1)
    dut.b_armed.value = 1
    await ClockCycles(dut.clk, random.choice([1, 2, 50]))
    wire.go_on(bench.now)
    await ClockCycles(dut.clk, 100)
    assert bench.arrived() == 0, "a packet was written that ranges of another epoch have let in"
    assert [fault["fault"] for fault in bench.refused()] == [Fault.EPOCH.value]


@cocotb.test()
async def a_neighbour_lies(dut):
    """Headers that say another length, rank, source or epoch than they should, in flits that are clean: each such
    packet is refused whole, with its fault; all others arrive."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    flit, header = flit_layout(bench.parameters), header_layout(bench.parameters)
    kinds = {
        "length": Fault.CRC,
        "destination": Fault.DESTINATION,
        "source": Fault.SOURCE,
        "epoch": Fault.EPOCH,
    }
    lies: dict[int, tuple[str, int] | None] = {}

    def forge(word: int) -> int:
        fields = unpack(flit, word)
        if fields["kind"] != FlitKind.HEADER.value:
            return word
        said = unpack(header, fields["data"])
        if said["wg"] not in lies:
            name = random.choice(list(kinds))
            wrong = said[name] ^ random.randrange(1, 1 << header[name].width)
            lies[said["wg"]] = (name, wrong) if random.random() < 0.3 else None
            if lies[said["wg"]]:
                number, send = said["wg"] & (1 << IDS) - 1, said["wg"] >> IDS
                packet = bench.packets["a"][number]
                packet.sends = [other for other in packet.sends if other != send]
                bench.order["a", bench.sends["a"][send].port, packet.source].remove((number, send))
        lie = lies[said["wg"]]
        if not lie:
            return word
        fields["data"] = pack(header, **(said | {lie[0]: lie[1]}))
        return sealed(pack(flit, **fields), flit.size)

    for port in range(bench.parameters.links):
        bench.flits["a", port] = ForgingWire(bench.flits["a", port], forge)
    for _ in range(60):
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]))
    await bench.finish()
    await ClockCycles(dut.clk, 50)
    expected = Counter(kinds[lie[0]].value for lie in lies.values() if lie)
    assert len(expected) == len(kinds)
    assert Counter(fault["fault"] for fault in bench.refused()) == expected


@cocotb.test()
async def a_neighbour_floods(dut):
    """A neighbour that keeps a port's wire full of clean flits, of any kind, session and sequence, and of packets that
    come in their turn: nothing of them is written, and the other ports receive, and all ports send, as ever."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    await bench.program(list(range(bench.parameters.links)))
    flit, message = flit_layout(bench.parameters), message_layout(bench.parameters)
    wire = bench.flits["a", 0]
    stop = False

    async def flood() -> None:
        said = {"session": 0, "expected": 0}
        states = state_layout(bench.parameters)
        begun = False
        while not stop:
            await RisingEdge(dut.clk)
            heard = int(dut.b_rx_messages.value) & (1 << message.size) - 1
            if heard & 1:
                said = unpack(states, heard >> message["state"].offset)
            word = random.getrandbits(flit.size)
            if random.random() < 0.8:
                kind = FlitKind.DATA if begun else FlitKind.HEADER
                begun = not begun
                packet = {
                    "kind": kind,
                    "last": 1,
                    "place": 0,
                    "sequence_number": said["expected"],
                    "session": said["session"],
                }
                word = pack(flit, **packet, data=random.getrandbits(256))
            if len(wire.under_way) < wire.latency:
                wire.put(bench.now, sealed(word, flit.size))

    task = cocotb.start_soon(flood())
    others = list(range(1, bench.parameters.links))
    for _ in range(60):
        bench.packet("a", random.choice([DMA, STORES]), [random.choice(others)])
        bench.packet("b", random.choice([DMA, STORES]))
    await bench.finish()
    stop = True
    await task
    assert bench.refused()


@cocotb.test()
async def a_neighbour_takes_credits(dut):
    """A peer that believes in more buffers than there are sends packets for which there is no room: none of them is
    written over another, and in the end every packet has arrived once."""
    bench = EpochBench.of(dut)
    await bench.reset()
    state = state_layout(bench.parameters)

    def forge(word: int) -> int:
        fields = unpack(state, word)
        return sealed(pack(state, **(fields | {"freed": fields["expected"]})), state.size)

    for port in range(bench.parameters.links):
        bench.states["a", port] = ForgingWire(bench.states["a", port], forge)
    await bench.program([0])
    await bench.all_up()
    for _ in range(3):
        bench.memory_stands = True
        for _ in range(3 * bench.parameters.link_receive_packets):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]))
        received = bench.events["b0.received_packets"]
        await ClockCycles(dut.clk, 1500)
        assert bench.events["b0.received_packets"] - received == bench.parameters.link_receive_packets
        assert bench.events["a0.again"], "nothing was sent beyond the credits"
        bench.memory_stands = False
        await bench.finish()


@cocotb.test()
async def a_neighbour_says_anything(dut):
    """State messages of a port's neighbour are clean and say anything of its session: packets that it has not got are
    acknowledged, buffers are free that are not, other epochs are granted. All other ports, and what this one receives,
    go on as ever; nothing is written wrong. Given up with the epoch, the port is right again in the next, and so it is
    if it was told that all it has sent is there, and has nothing to give up."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.all_up()
    await bench.program(list(range(bench.parameters.links)))
    state = state_layout(bench.parameters)
    lies = True

    def forge(word: int) -> int:
        if not lies:
            return word
        true = unpack(state, word)
        said = unpack(state, random.getrandbits(state.size)) | {"session": true["session"]}
        for name in ("expected", "freed"):
            if random.random() < 0.7:
                said[name] = (true[name] + random.randrange(-4, 8)) % (1 << state[name].width)
        if random.random() < 0.5:
            said |= {"granted": 1, "epoch": bench.epoch["a"]}
        return sealed(pack(state, **said), state.size)

    bench.states["a", 0] = ForgingWire(bench.states["a", 0], forge)
    others = list(range(1, bench.parameters.links))
    # A source keeps to its order: it has a slot for one packet to a port that stands.
    for source in (DMA, STORES):
        bench.packet("a", source, [0])
    for _ in range(60):
        bench.packet("a", random.choice([DMA, STORES]), [random.choice(others)])
        bench.packet("b", random.choice([DMA, STORES]))
    await bench.finish_sends(lambda packet, send: bench.packets["a"].get(packet.number) is not packet or send != 0)
    for _ in range(20):
        bench.packet("a", random.choice([DMA, STORES]), [0])
    await ClockCycles(dut.clk, 2000)
    lies = False
    for _ in range(4):
        bench.packet("a", DMA, [0])
    await ClockCycles(dut.clk, 2000)
    assert bench.undelivered("a"), "no lie was believed"

    async def give_up() -> None:
        await ClockCycles(dut.clk, 2000)
        if not int(dut.a_armed.value):
            dut.a_give_up.value = 1
            await ClockCycles(dut.clk, 1)
            dut.a_give_up.value = 0

    cocotb.start_soon(give_up())
    await bench.next_epoch()
    assert bench.events["a0.cut"] == 1 and not bench.events["a1.cut"]
    for _ in range(20):
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]))
    await bench.finish()
    await ClockCycles(dut.clk, 100)
    for side in SIDES:
        assert int(bench.signal(side, "all_left").value), f"all of {side} has arrived, but not left"


@cocotb.test()
async def a_neighbour_takes_back(dut):
    """A port's neighbour says that packets have come which the wire has lost, and later that they have not. There is
    nothing to give up then; the session lasts as long as the epoch and ends with it, and the next epoch is as ever."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.program(list(range(bench.parameters.links)))
    await bench.all_up()
    flit, state = flit_layout(bench.parameters), state_layout(bench.parameters)
    lost: set[int] = set()
    lies = True

    def lose(word: int) -> int:
        fields = unpack(flit, word)
        if fields["last"]:
            lost.add(fields["sequence_number"])
        return word

    def forge(word: int) -> int:
        said = unpack(state, word)
        ahead = (said["expected"] + lies * len(lost)) % (1 << bench.parameters.link_sequence_bits)
        return sealed(pack(state, **(said | {"expected": ahead})), state.size)

    for _ in range(4):
        bench.packet("a", random.choice([DMA, STORES]), [0])
    await bench.finish(sides=("a",))
    honest = bench.flits["a", 0]
    bench.flits["a", 0] = ForgingWire(honest, lose)
    bench.flits["a", 0].weather = Weather(cut=True)
    bench.states["a", 0] = ForgingWire(bench.states["a", 0], forge)
    count = random.randint(1, bench.parameters.link_receive_packets)
    for _ in range(count):
        bench.packet("a", random.choice([DMA, STORES]), [0])
    await bench.emptied(["a"], 4000, "the lies were not believed")
    assert len(lost) == len(bench.undelivered("a")) == count
    lies, bench.flits["a", 0] = False, honest
    await ClockCycles(dut.clk, 2000)
    assert not bench.events["a0.cut"], "the session ended before the epoch"
    await bench.next_epoch()
    assert bench.events["a0.cut"] == 1, "the session outlived the epoch"
    for _ in range(20):
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]))
    await bench.finish()
    assert bench.events["a0.cut"] == 1 and not bench.events["a1.cut"]


@cocotb.test()
async def all_left_means_on_the_wire(dut):
    """Packets to one to all ports: `all_left` is high only when the last flit of each send of each packet that was
    closed has been on the wire, and it comes before the acknowledgements; each send of a block is counted once,
    however often it is sent."""
    bench = EpochBench.of(dut)
    await bench.reset()
    await bench.program(list(range(bench.parameters.links)))
    await bench.all_up()
    bench.keep_log = True
    flit, header = flit_layout(bench.parameters), header_layout(bench.parameters)
    on_wire: set[tuple[str, int, int]] = set()
    begun: dict[tuple[str, int, int], tuple[str, int, int]] = {}
    early = 0

    async def watch() -> None:
        nonlocal early
        seen = closed = 0
        due: set[tuple[str, int, int]] = set()
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            # What happened before this cycle.
            while seen < len(bench.sent_log) and bench.sent_log[seen][0] < bench.now:
                _, side, port, word = bench.sent_log[seen]
                seen += 1
                fields = unpack(flit, word)
                key = (side, port, fields["sequence_number"])
                if fields["kind"] == FlitKind.HEADER.value:
                    wg = unpack(header, fields["data"])["wg"]
                    begun[key] = (side, wg & (1 << IDS) - 1, wg >> IDS)
                elif fields["last"]:
                    on_wire.add(begun[key])
            while closed < len(bench.closings) and bench.closings[closed][0] < bench.now:
                _, side, number = bench.closings[closed]
                closed += 1
                due.update((side, number, send) for send in bench.packets[side][number].sends)
            for side in SIDES:
                if int(bench.signal(side, "all_left").value):
                    waiting = {sent for sent in due - on_wire if sent[0] == side}
                    assert not waiting, f"has not left: {sorted(waiting)[:5]}"
                    early += not int(bench.signal(side, "empty").value)

    cocotb.start_soon(watch())
    for _ in range(30):
        for side in SIDES:
            count = random.randint(1, bench.parameters.sends)
            bench.packet(side, random.choice([DMA, STORES]), list(range(count)))
        await ClockCycles(dut.clk, random.choice([10, 300]))
    await bench.finish()
    for side in SIDES:
        assert int(bench.signal(side, "all_left").value), f"all of {side} has arrived, but not left"
        assert bench.blocks[side] == sum(packet.mark * len(packet.sends) for packet in bench.packets[side].values())
    assert early, "the acknowledgements were never behind"
    assert bool(bench.events["again"]) == bool(bench.weather.drop)


@cache
def pair(size: str) -> LanePair:
    return LanePair(SIZES[size])


def run(
    case: str, size: str = "two", weather: Weather = CLEAR, rounds: int = 15, wrong: LanePair | None = None
) -> None:
    environment = {"SIZE": size, "WEATHER": json.dumps(vars(weather)), "ROUNDS": str(rounds)}
    simulate(wrong or pair(size), "lane_pair", __name__, case, environment=environment)


EPOCHS = ("an_ended_epoch_is_discarded", "a_packet_cannot_outlive_its_epoch")
NEIGHBOURS = (
    "a_neighbour_lies",
    "a_neighbour_floods",
    "a_neighbour_takes_credits",
    "a_neighbour_says_anything",
    "a_neighbour_takes_back",
)


@pytest.mark.parametrize("case", EPOCHS)
@pytest.mark.parametrize(
    ("size", "weather"), [("two", STORM), pytest.param("four_channels", CLEAR, marks=pytest.mark.wide)]
)
def test_link_epochs(case, size, weather):
    run(case, size, weather)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_no_packet_outlives_its_epoch_at_length(size):
    run("a_packet_cannot_outlive_its_epoch", size, rounds=60)


@pytest.mark.parametrize("size", QUICK_AND_WIDE)
def test_half_a_packet_is_of_no_later_epoch(size):
    run("half_a_packet_waits_for_its_number", size)


@pytest.mark.parametrize("case", NEIGHBOURS)
@pytest.mark.parametrize("size", QUICK_AND_WIDE)
def test_neighbours(case, size):
    run(case, size)


@pytest.mark.parametrize("weather", [CLEAR, STORM])
def test_all_left_means_on_the_wire(weather):
    run("all_left_means_on_the_wire", weather=weather)


@pytest.mark.wide
def test_a_receiver_that_outlives_its_epoch_is_caught():
    said = r"ended epoch|a part of a packet was written|'refused': 0|a write of epoch"
    with caught(said):
        # Few packets are half there when their epoch ends.
        run("a_packet_cannot_outlive_its_epoch", rounds=60, wrong=LanePair(SIZES["two"], AlwaysArmed))


@pytest.mark.wide
def test_half_a_packet_that_outlives_its_epoch_is_caught():
    with caught(r"ranges of another epoch have let in|packet 1 place 0"):
        run("half_a_packet_waits_for_its_number", wrong=LanePair(SIZES["two"], AlwaysArmed))


@pytest.mark.wide
def test_a_sender_that_believes_all_is_caught():
    with patch("hw.link.egress.PortSender", BelievesAll), caught():
        run("a_neighbour_says_anything", wrong=LanePair(SIZES["two"]))


@pytest.mark.wide
@pytest.mark.parametrize(
    ("wrong", "said"), [(EndsAtOnce, "the session ended before"), (GoesOn, "the session outlived the epoch")]
)
def test_a_session_that_ends_at_the_wrong_time_is_caught(wrong, said):
    with patch("hw.link.egress.PortSender", wrong), caught(said):
        run("a_neighbour_takes_back", wrong=LanePair(SIZES["two"]))


@pytest.mark.wide
def test_left_before_it_leaves_is_caught():
    with caught("has not left"):
        run("all_left_means_on_the_wire", wrong=LanePair(SIZES["two"], LeftWhenSent))
