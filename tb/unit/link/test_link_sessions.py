"""What opens a session of a link port, and what does not; words that come late change nothing in one."""

import random
from typing import TypeVar
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import connect, flipped
from cocotb.triggers import ClockCycles, RisingEdge

from hw.link.egress import DMA, STORES
from hw.link.port_receiver import PortReceiver
from hw.link.port_sender import LinkTimers, PortSender
from hw.link.wire import SESSION_BITS, FlitKind, flit_layout, state_layout
from tb.drivers.lane_bench import LaneBench
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.lossy_wire import LossyWire
from tb.drivers.payload import pack, unpack
from tb.runner import caught
from tb.unit.link.test_link_epochs import sealed
from tb.unit.link.test_link_lane import SIZES, bench_of, run

SESSIONS = 1 << SESSION_BITS
AnyPort = TypeVar("AnyPort", PortReceiver, PortSender)


def around(right: AnyPort, wrong: AnyPort) -> tuple[Module, AnyPort]:
    """A module for a wrong variant: the `right` port behind its own, of which inputs can be driven otherwise."""
    m = Module()
    m.submodules.right = right
    connect(m, flipped(wrong), right)
    return m, right


async def all_opened(bench: LaneBench) -> dict[tuple[str, int], dict[str, int]]:
    """Out of reset, with every port in a session: the OPEN flit of each, by side and port."""
    bench.keep_log = True
    await bench.reset()
    await bench.all_up()
    bench.keep_log = False
    said = {(side, port): unpack(flit_layout(bench.parameters), word) for _, side, port, word in bench.sent_log}
    assert len(said) == 2 * bench.parameters.links
    return said


class OpensAnySession(PortReceiver):
    """The wrong variant: takes an OPEN of any session for one of the next."""

    def elaborate(self, platform: object) -> Module:
        m, right = around(PortReceiver(self._parameters), self)
        session = self.flit.session
        opens = (self.flit.kind == FlitKind.OPEN) & (session != 0)
        m.d.comb += right.flit.session.eq(Mux(opens, right.message.state.session + 1, session))
        return m


@cocotb.test()
async def late_opens_begin_nothing(dut):
    """Clean OPEN flits of the session that is, and of any but the next, come in mid-traffic: nothing is taken back, and
    no session ends."""
    bench = bench_of(dut)
    flit = flit_layout(bench.parameters)
    said = await all_opened(bench)
    for _ in range(8):
        for side in SIDES:
            for _ in range(10):
                bench.packet(side, random.choice([DMA, STORES]))
        for _ in range(4):
            await ClockCycles(dut.clk, random.randint(5, 40))
            for (side, port), opened in said.items():
                own = opened["session"]
                others = [session for session in range(SESSIONS) if session != own % (SESSIONS - 1) + 1]
                late = dict(opened, session=random.choice([own, own, random.choice(others)]))
                if random.random() < 0.5:
                    late["sequence_number"] = random.getrandbits(flit["sequence_number"].width)
                bench.flits[SIDES[side], port].put(bench.now, sealed(pack(flit, **late), flit.size))
        await bench.finish(limit=4000)
    assert not bench.events["cut"] and not bench.events["again"]


def test_late_opens_begin_nothing():
    run("two", "late_opens_begin_nothing", module=__name__)


@pytest.mark.wide
def test_a_receiver_that_opens_any_session_is_caught():
    stands = caught(r"self\.now < start \+ limit")
    with patch("hw.link.port_ingress.PortReceiver", OpensAnySession), stands:
        run("two", "late_opens_begin_nothing", module=__name__, component=LanePair(SIZES["two"]))


class Closed(LossyWire):
    """A wire that carries what a test puts on it, and, while `passes`, what the port says; `said` is its last word."""

    def __init__(self, wire: LossyWire):
        super().__init__(wire.bits, wire.latency, wire.weather)
        self.passes = True
        self.said = 0

    def put(self, now: int, word: int) -> None:
        self.said = word
        if self.passes:
            super().put(now, word)

    def forge(self, now: int, word: int) -> None:
        """`word` comes, with its CRC."""
        super().put(now, sealed(word, self.bits))


class OpensBySession(PortReceiver):
    """The wrong variant: a flit of any kind opens a session."""

    def elaborate(self, platform: object) -> Module:
        m, right = around(PortReceiver(self._parameters), self)
        with m.If(self.message.state.session == 0):
            m.d.comb += right.flit.kind.eq(FlitKind.OPEN)
        return m


class StaysAtFour(PortSender):
    """The wrong variant: asks for the same session again when the peer is in session 4."""

    def elaborate(self, platform: object) -> Module:
        m, right = around(PortSender(self._parameters), self)
        with m.If(self.message.state.session == 4):
            m.d.comb += right.message.state.session.eq(0)
        return m


@cocotb.test()
async def an_open_of_the_next_session_begins_one(dut):
    """While nothing of `a` comes to `b`: whatever session `b` is said to be in, `a` asks for the one after it; and no
    clean flit of a packet begins a session, whichever it belongs to. Then the two find one another."""
    bench = bench_of(dut)
    flit, state, ports = flit_layout(bench.parameters), state_layout(bench.parameters), range(bench.parameters.links)
    there = [Closed(bench.flits["a", port]) for port in ports]
    back = [Closed(bench.states["a", port]) for port in ports]
    for port in ports:
        bench.flits["a", port], bench.states["a", port] = there[port], back[port]
        there[port].passes = False
    again = 12
    await bench.reset(retry=again, dead=1 << 20)
    while not all(wire.said for wire in there):
        await RisingEdge(dut.clk)
    for wire in back:
        wire.passes = False
    await ClockCycles(dut.clk, bench.latency + again)

    asked = [unpack(flit, wire.said)["session"] for wire in there]
    for session in random.sample(range(SESSIONS), SESSIONS):
        for port in ports:
            # That the peer is in the session that it is asked for would be the end of asking.
            if session != asked[port]:
                back[port].forge(bench.now, pack(state, **unpack(state, back[port].said) | {"session": session}))
                asked[port] = session % (SESSIONS - 1) + 1 if session else asked[port]
        await ClockCycles(dut.clk, bench.latency + 2 * again)
        for port in ports:
            found = unpack(flit, there[port].said)
            assert found["kind"] == FlitKind.OPEN.value and found["session"] == asked[port], "asked for another session"

    for _ in range(16):
        for port in ports:
            packet = {"kind": random.choice([FlitKind.DATA, FlitKind.HEADER]).value, "last": random.getrandbits(1)}
            found = unpack(flit, there[port].said) | packet | {"session": random.randrange(1, SESSIONS)}
            there[port].forge(bench.now, pack(flit, **found))
        await ClockCycles(dut.clk, 2 * bench.latency)
        assert not any(unpack(state, wire.said)["session"] for wire in back), "a session without an OPEN"

    for wire in (*there, *back):
        wire.passes = True
    # Longer than a round trip, which is what is waited for from now on.
    times = unpack(LinkTimers, bench.timers) | {"retry": 20 * bench.latency}
    for side in SIDES:
        bench.signal(side, "timers").value = pack(LinkTimers, **times)
    await bench.all_up()
    for side in SIDES:
        for _ in range(10):
            bench.packet(side, random.choice([DMA, STORES]))
    await bench.finish()


def test_an_open_of_the_next_session_begins_one():
    run("two", "an_open_of_the_next_session_begins_one", module=__name__)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("block", "wrong", "said"),
    [
        ("hw.link.port_ingress.PortReceiver", OpensBySession, "a session without an OPEN"),
        ("hw.link.egress.PortSender", StaysAtFour, "asked for another session"),
    ],
)
def test_what_opens_another_session_is_caught(block, wrong, said):
    with patch(block, wrong), caught(said):
        run("two", "an_open_of_the_next_session_begins_one", module=__name__, component=LanePair(SIZES["two"]))


class HearsAnySession(PortSender):
    """The wrong variant: what a message of another session says counts too."""

    def elaborate(self, platform: object) -> Module:
        m, right = around(PortSender(self._parameters), self)
        with m.If(self.up & (self.message.state.session != 0)):
            m.d.comb += right.message.state.session.eq(right.flit.session)
        return m


@cocotb.test()
async def messages_of_other_sessions_say_nothing(dut):
    """In mid-traffic clean messages of other sessions come, with anything in them: nothing is taken for acknowledged,
    sent again or heard because of them."""
    bench = bench_of(dut)
    state = state_layout(bench.parameters)
    wires = {key: Closed(wire) for key, wire in bench.states.items()}
    bench.states.update(wires)
    own = {key: flit["session"] for key, flit in (await all_opened(bench)).items()}
    for _ in range(8):
        for side in SIDES:
            for _ in range(10):
                bench.packet(side, random.choice([DMA, STORES]))
        for _ in range(12):
            await ClockCycles(dut.clk, random.randint(5, 20))
            for key, wire in wires.items():
                said = unpack(state, random.getrandbits(state.size))
                said["session"] = random.choice([session for session in range(1, SESSIONS) if session != own[key]])
                wire.forge(bench.now, pack(state, **said))
        await bench.finish(limit=4000)
    assert not bench.events["cut"] and not bench.events["again"] and not any(bench.heard.values())


def test_messages_of_other_sessions_say_nothing():
    run("two", "messages_of_other_sessions_say_nothing", module=__name__)


@pytest.mark.wide
def test_a_sender_that_hears_any_session_is_caught():
    with patch("hw.link.egress.PortSender", HearsAnySession), caught(r"self\.now < start \+ limit"):
        run("two", "messages_of_other_sessions_say_nothing", module=__name__, component=LanePair(SIZES["two"]))


class Remembered(LossyWire):
    """A wire of state messages of which the last that said each `freed` is kept; while `silent`, nothing new comes."""

    def __init__(self, wire: LossyWire, layout):
        super().__init__(wire.bits, wire.latency, wire.weather)
        self.layout = layout
        self.words: dict[int, int] = {}
        self.silent = False

    def put(self, now: int, word: int) -> None:
        if not self.silent:
            freed = unpack(self.layout, word)["freed"]
            self.words.pop(freed, None)
            self.words[freed] = word
            super().put(now, word)

    def come_late(self, now: int, ago: int) -> None:
        """A word comes again that was said so many packets ago."""
        super().put(now, list(self.words.values())[-1 - ago])


class TakesCreditBack(PortSender):
    """The wrong variant: the last message counts, whatever was said before."""

    def _messages(self, m: Module, queue, session, attempt, takes_back):
        limit, granted, epoch = super()._messages(m, queue, session, attempt, takes_back)
        believed = Signal.like(limit)
        with m.If(~self.up):
            m.d.sync += believed.eq(queue.first + self._parameters.link_receive_packets)
        with m.Elif(self.message.valid):
            m.d.sync += believed.eq(self.message.state.freed + self._parameters.link_receive_packets)
        return believed, granted, epoch


@cocotb.test()
async def late_messages_take_nothing_back(dut):
    """A message comes again that was said up to some tens of packets before, and then none for long: as many packets
    leave as the peer has buffers, and nothing is sent again."""
    bench = bench_of(dut)
    ports, buffers = range(bench.parameters.links), bench.parameters.link_receive_packets
    wires = [Remembered(bench.states["a", port], state_layout(bench.parameters)) for port in ports]
    bench.states.update({("a", port): wire for port, wire in zip(ports, wires, strict=True)})
    await bench.reset(retry=1 << 20, dead=1 << 22)
    await bench.all_up()
    await bench.program(list(ports))

    def send(port: int, count: int) -> None:
        for number in range(count):
            bench.packet("a", (DMA, STORES)[number % 2], [port], length=1)

    async def rest() -> None:
        await bench.finish()
        await ClockCycles(dut.clk, 2 * bench.parameters.link_repeat + bench.latency)

    for _ in range(2):
        # The first message of all is none of a hundred packets ago.
        for wire in wires:
            wire.words.clear()
        for port in ports:
            send(port, 66)
        await rest()
    for turn in range(48):
        port = turn % len(ports)
        # Of so many as are under way at most, all buffers are free again when they have arrived.
        send(port, random.randint(1, buffers))
        await rest()
        wires[port].silent = True
        wires[port].come_late(bench.now, random.randint(1, 1 << random.randrange(7)))
        await ClockCycles(dut.clk, 2 * bench.latency)
        before = bench.events[f"a{port}.left"]
        # Not more than the slots that one port may have while nothing is acknowledged.
        send(port, buffers + 2)
        await ClockCycles(dut.clk, 40 * buffers)
        left = bench.events[f"a{port}.left"] - before
        assert left == buffers, f"{left} packets left, for {buffers} buffers"
        wires[port].silent = False
        await rest()
    assert not bench.events["cut"] and not bench.events["again"]


def test_late_messages_take_nothing_back():
    run("two", "late_messages_take_nothing_back", latency=4, module=__name__)


@pytest.mark.wide
def test_a_sender_that_takes_credit_back_is_caught():
    with patch("hw.link.egress.PortSender", TakesCreditBack), caught("packets left"):
        run("two", "late_messages_take_nothing_back", latency=4, module=__name__, component=LanePair(SIZES["two"]))
