"""Two link lanes over wires that lose, damage, double and delay: everything arrives exactly once, in order, bit for
bit."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.link import egress, lane
from hw.link.egress import DMA, STORES, Egress
from hw.link.lane import LinkLane
from hw.link.parameters import LinkParameters
from hw.link.port_receiver import PortReceiver
from hw.link.port_sender import LinkTimers
from hw.link.turns import Turns
from hw.link.wire import FlitKind, flit_layout, header_layout, state_layout
from hw.memory_window import WindowCheck
from hw.messages import Fault
from hw.send_table import SendControl
from tb.drivers.lane_bench import LaneBench, Packet
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.lane_tables import IDS
from tb.drivers.lossy_wire import LossyWire, Weather
from tb.drivers.payload import pack, unpack
from tb.drivers.wrong_blocks import FreesEarly
from tb.runner import caught, simulate

# Sequence numbers are as short as they may be where traffic is long enough for them to come around.
SIZES = {
    "two": LinkParameters(
        links=2,
        dma_packets=8,
        store_packets=8,
        link_receive_packets=8,
        link_output_flits=3,
        link_repeat=16,
        link_sequence_bits=7,
    ),
    "tiny": LinkParameters(
        links=2,
        ranges=4,
        dma_packets=1,
        store_packets=1,
        link_receive_packets=1,
        link_output_flits=1,
        link_repeat=16,
        link_sequence_bits=4,
    ),
    "one": LinkParameters(
        links=1,
        ranges=4,
        dma_packets=4,
        store_packets=4,
        link_receive_packets=4,
        link_repeat=16,
        link_sequence_bits=5,
    ),
    "seven": LinkParameters(
        links=7, ranges=8, dma_packets=24, store_packets=24, link_receive_packets=4, link_repeat=16
    ),
    "fifteen": LinkParameters(links=15, dma_packets=48, store_packets=48, link_receive_packets=4, link_repeat=16),
    "unprotected": LinkParameters(links=2, dma_packets=8, store_packets=8, link_repeat=16, protection="none"),
}
CLEAR = Weather()
STORM = Weather(drop=0.02, damage=0.03, double=0.02, delay=0.03, late=40)


@cache
def pair(size: str) -> LanePair:
    return LanePair(SIZES[size])


def bench_of(dut) -> LaneBench:
    weather = Weather(**json.loads(os.environ.get("WEATHER", "{}")))
    latency, stall = int(os.environ.get("LATENCY", "20")), float(os.environ.get("STALL", "0"))
    return LaneBench(dut, SIZES[os.environ["SIZE"]], latency, weather, stall)


def run(
    size: str,
    case: str,
    weather: Weather = CLEAR,
    latency: int = 20,
    stall: float = 0,
    component=None,
    seed=None,
    module: str = __name__,
) -> None:
    """`case` of `module` on lanes of `size`, or on `component`."""
    environment = {"SIZE": size, "WEATHER": json.dumps(vars(weather)), "LATENCY": str(latency), "STALL": str(stall)}
    simulate(component or pair(size), "lane_pair", module, case, seed=seed, environment=environment)


def over(wires: list[int]) -> Callable[[Packet, int], bool]:
    """Whether a send goes over one of `wires`."""
    return lambda packet, send: send in wires


@cocotb.test()
async def traffic(dut):
    """Random packets of both sources, both ways, several sends each; nothing is lost, doubled or out of order."""
    bench = bench_of(dut)
    await bench.reset()
    # With one slot each packet waits for the acknowledgement of the one before.
    packets = 60 if bench.parameters.dma_packets > 1 else 15
    for _ in range(2):
        for _ in range(packets):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish_and_count()
    marks = {side: sum(p.mark * len(p.sends) for p in bench.packets[side].values()) for side in SIDES}
    assert bench.blocks == marks
    assert not any(sink.received for sink in bench.faults.values())
    happened = sum((wire.happened for wire in (*bench.flits.values(), *bench.states.values())), start=Counter())
    dut._log.info(f"{bench.now} cycles, {dict(happened)}, {bench.events['again']} times again")
    if bench.weather.damage:
        assert bench.events["again"] and happened["damaged"] and happened["dropped"]
    else:
        assert not bench.events["again"]
        assert not bench.said_again.total(), "a state message that says nothing new"
    assert bench.events["damaged"] <= happened["damaged"], "what was clean was refused"
    assert not bench.events["cut"]


@pytest.mark.parametrize(
    ("size", "weather", "stall"),
    [
        ("two", CLEAR, 20),
        ("two", STORM, 10),
        pytest.param("tiny", STORM, 10, marks=pytest.mark.wide),
        pytest.param("one", STORM, 0, marks=pytest.mark.slow),
        pytest.param("unprotected", CLEAR, 10, marks=pytest.mark.wide),
        pytest.param("seven", STORM, 10, marks=pytest.mark.slow),
        pytest.param("fifteen", STORM, 10, marks=pytest.mark.slow),
    ],
)
def test_traffic(size, weather, stall):
    run(size, "traffic", weather, stall=stall)


@cocotb.test()
async def every_bit_of_what_is_on_a_wire_is_checked(dut):
    """A flit or a state message with one wrong bit, whichever it is, of its check too: each is damaged, nothing else
    is, and everything arrives all the same."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.program(list(range(bench.parameters.links)))
    await bench.all_up()
    turned = 0
    # One kind after the other: a port counts what is damaged in the same cycle, a flit and a message, once.
    for wires in (bench.states, bench.flits):
        bits = wires["a", 0].bits
        left = random.sample(range(bits), bits)
        while left:
            for (side, port), wire in wires.items():
                if left:
                    wire.turned = 1 << left.pop()
                    turned += 1
                bench.packet(side, random.choice([DMA, STORES]), [port], length=1)
            while any(wire.turned for wire in wires.values()):
                await RisingEdge(dut.clk)
            await ClockCycles(dut.clk, bench.latency + 5)
            assert bench.events["damaged"] == turned
    await bench.finish_and_count()
    assert bench.events["damaged"] == turned


def test_every_bit_of_what_is_on_a_wire_is_checked():
    run("two", "every_bit_of_what_is_on_a_wire_is_checked")


class EchoingWire(LossyWire):
    """A wire that says the header of the packet before once more, behind a sector in the middle of each packet."""

    flit = flit_layout(SIZES["two"])
    headers: tuple[int, ...] = ()

    def put(self, now: int, word: int) -> None:
        super().put(now, word)
        flit = unpack(self.flit, word)
        if flit["kind"] == FlitKind.HEADER.value:
            self.headers = (*self.headers[-1:], word)
        elif flit["kind"] == FlitKind.DATA.value and flit["place"] == 3 and not flit["last"] and len(self.headers) == 2:
            self.happened["echoed"] += 1
            super().put(now, self.headers[0])


@cocotb.test()
async def an_old_header_costs_nothing(dut):
    """Amid a packet comes the header of the one before once more: neither is sent again."""
    bench = bench_of(dut)
    bench.flits = {key: EchoingWire(wire.bits, wire.latency, wire.weather) for key, wire in bench.flits.items()}
    await bench.reset()
    for _ in range(40):
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]), length=random.choice([4, 5, 8]))
    await bench.finish_and_count()
    assert all(wire.happened["echoed"] > 5 for wire in bench.flits.values())
    assert not bench.events["again"] and not bench.events["damaged"]


def test_an_old_header_costs_nothing():
    run("two", "an_old_header_costs_nothing")


@cocotb.test()
async def what_is_missing_is_asked_for_at_once(dut):
    """A flit of a packet is damaged: when the next one has come, two cycles later, the peer is told."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.program(list(range(bench.parameters.links)))
    await bench.all_up()

    def attempt() -> int:
        _, message = bench.said[SIDES[side], port]
        return unpack(state_layout(bench.parameters), message >> 1)["attempt"]

    took = set()
    for _ in range(20):
        side, port = random.choice(list(bench.flits))
        wire = bench.flits[side, port]
        place = wire.number + random.randint(1, 7)
        for _ in range(2):
            bench.packet(side, DMA, [port], length=8)
        while wire.number < place:
            await RisingEdge(dut.clk)
        wire.turned = 1 << 100
        before, damaged = attempt(), bench.events["damaged"]
        while bench.events["damaged"] == damaged:
            await RisingEdge(dut.clk)
        since = bench.now
        while attempt() == before:
            await RisingEdge(dut.clk)
        took.add(bench.now - since)
        await bench.finish()
    assert took == {2}, took


def test_what_is_missing_is_asked_for_at_once():
    run("two", "what_is_missing_is_asked_for_at_once")


@cocotb.test()
async def sources_take_turns(dut):
    """Of a packet of blocks and one of stores that are both closed, sends are issued one of each in turn."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.program([0])
    await bench.all_up()
    bench.keep_log = True
    both = 0
    of_flits, of_headers = flit_layout(bench.parameters), header_layout(bench.parameters)
    for _ in range(40):
        bench.sent_log.clear()
        await ClockCycles(dut.clk, random.randint(1, 4))
        sends = list(range(bench.parameters.sends))
        source_of = {bench.packet("a", source, sends, length=1).number: source for source in (DMA, STORES)}
        await bench.finish()
        flits = [unpack(of_flits, word) for *_, word in bench.sent_log]
        headers = [flit["data"] for flit in flits if flit["kind"] == FlitKind.HEADER.value]
        numbers = [unpack(of_headers, header)["wg"] % (1 << IDS) for header in headers]
        order = [source_of[number] for number in numbers]
        begun = max(order.index(DMA), order.index(STORES))
        over = len(order) - max(order[::-1].index(DMA), order[::-1].index(STORES))
        turns = order[begun:over]
        assert all(first != second for first, second in pairwise(turns)), order
        both += len(turns) > 1
    assert both > 5


def test_sources_take_turns():
    run("two", "sources_take_turns")


@cocotb.test()
async def a_port_that_stands_holds_up_no_other(dut):
    """One port's wire takes nothing for long: single sends through the others all arrive meanwhile; packets to all
    ports go on through the others until the slots are used up; in the end the port has everything too."""
    bench = bench_of(dut)
    links = bench.parameters.links
    await bench.reset(retry=600, dead=1 << 22)
    await bench.program(list(range(links)))
    await bench.all_up()
    stands = random.randrange(links)
    everywhere = list(range(min(links, bench.parameters.sends)))
    others = [port for port in everywhere if port != stands]
    for side in SIDES:
        bench.standing.add((side, stands))
        # As many as the shared slots and its own can hold of this port, with room for no more.
        for _ in range(6 * bench.parameters.dma_packets):
            bench.packet(side, DMA, [stands], length=1)
    await ClockCycles(dut.clk, 600)
    assert all(bench.queues[side, DMA] for side in SIDES), "the port that stands should have used up its slots"
    # As the walker does: it takes the next packet of a port that may have a slot.
    await bench.stop(SIDES)
    for side in SIDES:
        bench.drop_queued(side)
    bench.stop_sources.clear()
    for side in SIDES:
        for _ in range(30):
            bench.packet(side, random.choice([DMA, STORES]), [random.choice(others)])
    await bench.finish_sends(lambda packet, send: send != stands)
    assert all(any(send == stands for _, send in bench.undelivered(side)) for side in SIDES)
    bench.standing.clear()
    await bench.finish()
    for side in SIDES:
        bench.standing.add((side, stands))
        for _ in range(bench.parameters.own_slots(0)):
            bench.packet(side, DMA, everywhere)
    await bench.finish_sends(lambda packet, send: send != stands)
    assert all(any(send == stands for _, send in bench.undelivered(side)) for side in SIDES)
    bench.standing.clear()
    await bench.finish()


@cocotb.test()
async def every_port_is_busy(dut):
    """Memory that always takes, and wires that together take nearly a flit a cycle of packets to all ports, or half as
    much, which is what the bench can fill slots for, of packets to one port each, in turn: every wire is busy at least
    95 % of the time; so is every other wire while one takes nothing and its port has all slots that it may have."""
    bench = bench_of(dut)
    links = bench.parameters.links
    await bench.reset(retry=4000, dead=1 << 22)
    await bench.program(list(range(links)))
    await bench.all_up()
    bench.keep_log = True
    stands = random.randrange(links)
    for case in ("one", "all", "others")[: 2 if links == 1 else 3]:
        wires = [port for port in range(links) if (case, port) != ("others", stands)]
        bench.pace = (1 if case == "all" else 2) * (links + 1)
        if case == "others":
            for side in SIDES:
                bench.standing.add((side, stands))
                for _ in range(bench.parameters.dma_packets + 2):
                    bench.packet(side, DMA, [stands], length=8)
                    bench.packet(side, STORES, [stands], length=8)
            await ClockCycles(dut.clk, 100 * bench.parameters.dma_packets)
            await bench.stop(SIDES)
            for side in SIDES:
                assert bench.queues[side, DMA], "the port that stands should have used up its slots"
                bench.drop_queued(side)
            bench.stop_sources.clear()
        rounds = max(8, 56 // links)
        for number in range(rounds):
            for side in SIDES:
                sends = [wires] if case == "all" else [[port] for port in wires]
                for place, ports in enumerate(sends):
                    bench.packet(side, (number + place) % 2, ports, length=8)
        bench.sent_log.clear()
        await bench.finish_sends(over(wires))
        for side in SIDES:
            for port in wires:
                times = [now for now, of, on, _ in bench.sent_log if (of, on) == (side, port)]
                assert len(times) == rounds * 9
                # From when all ports have something to send to when the first has sent everything.
                busy = (len(times) - 9) * bench.pace / (times[-1] - times[9] + bench.pace)
                assert busy >= 0.95, f"{side} port {port}, packets to {case}: busy {busy:.0%}"
    bench.standing.clear()
    bench.pace = 1
    await bench.finish()


SLOW_SIZES = [pytest.param(size, marks=pytest.mark.slow) for size in ("two", "fifteen")]


@cocotb.test()
async def ports_that_always_ask_have_turns_alike(dut):
    """Two wires that each take a flit a cycle, twice what is read, and packets for one port of each source: as long as
    both have some to send, no port gets more than two packets ahead."""
    bench = bench_of(dut)
    await bench.reset(retry=4000, dead=1 << 22)
    await bench.program([0, 1])
    await bench.all_up()
    bench.keep_log = True
    packets = 24
    firsts = set()
    for number in range(packets):
        for side in SIDES:
            queued = bench.packet(side, DMA, [0], length=8), bench.packet(side, STORES, [1], length=8)
            if number == 0:
                firsts |= {(side, packet.number) for packet in queued}
    bench.sent_log.clear()
    await bench.finish_sends(over([0, 1]))
    sent: Counter[tuple[str, int]] = Counter()
    # A source's first packet may be later than the other's; closings are in the order of time.
    both_ask = {
        side: closed + bench.arrival_delay for closed, side, number in bench.closings if (side, number) in firsts
    }
    ahead: dict[str, int] = {}
    for now, side, port, _ in bench.sent_log:
        sent[side, port] += 1
        lead = sent[side, 0] - sent[side, 1]
        if now >= both_ask[side] and max(sent[side, 0], sent[side, 1]) < packets * 9:
            assert abs(lead - ahead.setdefault(side, lead)) <= 18, f"{side}: {dict(sent)}"
    assert all(sent[side, port] == packets * 9 for side in SIDES for port in (0, 1))
    await bench.finish()


@cocotb.test()
async def a_port_that_begins_to_ask_is_next(dut):
    """While one port sends a flit in every cycle, the other's packets come to its wire as soon as they would if it were
    alone, each time."""
    bench = bench_of(dut)
    await bench.reset(retry=4000, dead=1 << 22)
    await bench.program([0, 1])
    await bench.all_up()
    bench.keep_log = True
    bench.arrival_delay = 0
    slots = bench.parameters.dma_packets - bench.parameters.own_slots(0)
    for turn in range(16):
        streams = turn % 2
        # Its slots are filled while its wire stands, so that nothing is issued later but what is looked at.
        bench.standing.add(("a", streams))
        for _ in range(slots):
            bench.packet("a", DMA, [streams], length=8)
        while bench.queues["a", DMA] or bench.filling["a"]:
            await RisingEdge(dut.clk)
        await ClockCycles(dut.clk, 4 * slots)
        bench.closings.clear()
        bench.sent_log.clear()
        bench.standing.clear()
        for _ in range(3):
            await ClockCycles(dut.clk, random.randint(1, 8))
            bench.packet("a", STORES, [1 - streams], length=1)
        await bench.finish()
        headers = [now for now, side, port, _ in bench.sent_log if (side, port) == ("a", 1 - streams)][::2]
        stream = [now for now, side, port, _ in bench.sent_log if (side, port) == ("a", streams)]
        assert stream[0] < headers[0] and headers[-1] < stream[-1]
        assert headers == [closed + 5 for closed, *_ in bench.closings], "the other port had two turns in a row"


@pytest.mark.parametrize("size", ["one", pytest.param("seven", marks=pytest.mark.wide), *SLOW_SIZES])
def test_every_port_is_busy(size):
    run(size, "every_port_is_busy", latency=5)


class NoSharesOfSlots(LinkParameters):
    """The wrong variant: a port that stands may have all slots."""

    def own_slots(self, bank: int) -> int:
        return 0


@pytest.mark.wide
def test_a_port_that_may_have_all_slots_is_caught():
    with caught("has not arrived"):
        run("two", "every_port_is_busy", latency=5, component=LanePair(NoSharesOfSlots(**vars(SIZES["two"]))))


class FreesMulticastsEarly(LinkLane):
    """The wrong variant: the slot of a packet is free when the first of its sends is over."""

    def _egress(self) -> Egress:
        return EgressThatFreesEarly(self._parameters)


class EgressThatFreesEarly(Egress):
    """The egress of that lane."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(egress, "SlotBank", FreesEarly):
            return super().elaborate(platform)


class RefusesCleanMessages(LinkLane):
    """The wrong variant: what a receiver says is taken for damaged while an odd number of its buffers is in use."""

    def elaborate(self, platform: object) -> Module:
        said = state_layout(self._parameters)
        first, second = said["expected"].offset, said["freed"].offset
        right = lane.flit_is_clean
        with patch.object(lane, "flit_is_clean", lambda word: right(word) & (word[first] == word[second])):
            return super().elaborate(platform)


def all_kinds_of_traffic(component: LanePair) -> None:
    for seed in range(12):
        run("two", "traffic", STORM, stall=10, component=component, seed=seed)


@pytest.mark.wide
def test_a_multicast_that_frees_its_slot_early_is_caught():
    """It is seen when the slot is filled anew before a send of it that was lost comes again, which not all traffic
    brings about."""
    with caught("tests failed"):
        all_kinds_of_traffic(LanePair(SIZES["two"], FreesMulticastsEarly))


@pytest.mark.wide
def test_refused_messages_that_are_clean_are_caught():
    with caught("what was clean was refused"):
        run("two", "traffic", stall=20, component=LanePair(SIZES["two"], RefusesCleanMessages))


@cocotb.test()
async def one_side_is_reset(dut):
    """`b` is reset in mid-traffic: `a` notices, discards, and with the next epoch everything goes on both ways."""
    bench = bench_of(dut)
    await bench.reset()
    for _ in range(3):
        for _ in range(40):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]))
        while len(bench.undelivered("a")) + len(bench.undelivered("b")) > random.randint(20, 120):
            await RisingEdge(dut.clk)
        await bench.stop(SIDES)
        await bench.reset_one("b")
        await bench.next_epoch()
        for side in SIDES:
            bench.packet(side, DMA)
        await bench.finish()


@cocotb.test()
async def an_epoch_is_given_up(dut):
    """Discard in mid-traffic comes to its end in bounded time; what had not arrived never does; the next epoch runs."""
    bench = bench_of(dut)
    await bench.reset()
    for _ in range(4):
        for _ in range(40):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]))
        goal = random.randint(10, 120)
        while len(bench.undelivered("a")) + len(bench.undelivered("b")) > goal:
            await RisingEdge(dut.clk)
        if random.random() < 0.5:
            # The peers' grants end first, or the packets under way are refused, or neither.
            for side in SIDES:
                bench.signal(side, "armed").value = 0
        await bench.next_epoch()
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish()


@cocotb.test()
async def a_dead_link_is_noticed_and_comes_back(dut):
    """A peer that never answers is reported in the programmed time, also from the start; the other ports go on; its
    queue is discarded; when the wire is whole again a session begins and the next epoch runs."""
    bench = bench_of(dut)
    links = bench.parameters.links
    broken = random.randrange(links)
    dead = 1500

    def cut(broken_now: bool) -> None:
        for wires in (bench.flits, bench.states):
            for side in SIDES:
                wires[side, broken].weather = Weather(cut=True) if broken_now else bench.weather

    from_start = random.random() < 0.5
    cut(from_start)
    await bench.reset(dead=dead)
    others = [port for port in range(links) if port != broken] or [broken]
    await bench.program([broken, *others])
    if not from_start:
        await bench.up("a")
        for _ in range(10):
            bench.packet("a", DMA, [0])
        await ClockCycles(dut.clk, 100)
        cut(True)
    start = bench.now
    while not bench.events[f"a{broken}.dead"]:
        assert bench.now < start + dead + 300, "a dead link is not noticed"
        await RisingEdge(dut.clk)
    assert from_start or bench.now > start + dead - 200
    assert bench.events[f"a{broken}.cut"] == (not from_start)
    bench.packet("a", DMA, [0])
    if links > 1:
        for _ in range(20):
            bench.packet("a", STORES, [1])
        await bench.finish_sends(lambda packet, send: packet.source == STORES)
    await bench.next_epoch(wait_up=False)
    cut(False)
    await bench.all_up()
    for _ in range(20):
        for side in SIDES:
            bench.packet(side, DMA)
    await bench.finish()


@cocotb.test()
async def nothing_is_sent_without_grant(dut):
    """Packets wait for the grant of their own epoch, and go when it comes, also when messages are lost."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.all_up()
    for sender, receiver in (*SIDES.items(), *SIDES.items()):
        bench.signal(receiver, "armed").value = 0
        await ClockCycles(dut.clk, 300)
        before, waited = bench.events["sent_packets"], bench.events["no_grant"]
        bench.packet(sender, DMA)
        await ClockCycles(dut.clk, 600)
        assert bench.events["sent_packets"] == before and bench.events["no_grant"] > waited
        bench.signal(receiver, "epoch").value = bench.epoch[sender] ^ 1 << random.randrange(8)
        bench.signal(receiver, "armed").value = 1
        await ClockCycles(dut.clk, 600)
        waited = bench.events["no_grant"]
        await ClockCycles(dut.clk, 4)
        assert bench.events["sent_packets"] == before and bench.events["no_grant"] > waited
        bench.signal(receiver, "epoch").value = bench.epoch[receiver]
        await bench.finish()


@cocotb.test()
async def notices_are_heard(dut):
    """What a node tells its peers is heard at every port of theirs while it is told, and nothing else is."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.all_up()
    for _ in range(12):
        told = {side: random.choice([0, 1 << random.randrange(8), random.randrange(1, 256)]) for side in SIDES}
        for side in SIDES:
            bench.packet(side, random.choice([DMA, STORES]))
            bench.signal(side, "notice").value = told[side]
        # Until what was told before has been heard for the last time, and this for the first.
        await ClockCycles(dut.clk, 2 * (bench.latency + bench.weather.late + bench.parameters.link_repeat))
        bench.heard.clear()
        await ClockCycles(dut.clk, bench.parameters.link_repeat * (20 if bench.weather.drop else 3))
        for side, other in SIDES.items():
            for port in range(bench.parameters.links):
                assert bench.heard[other, port] == {told[side]} - {0}
    await bench.finish()
    assert bench.weather.drop or not bench.said_again.total(), "a state message that says nothing new"


@cocotb.test()
async def latency_and_rate(dut):
    """A whole packet's header is on the wire five cycles after its close, or six, of the DMA engine, but not before the
    fifth after its last sector; then a flit a cycle, through one port or all, packets of one sector among them."""
    bench = bench_of(dut)
    links = bench.parameters.links
    await bench.reset(dead=1 << 22)
    await bench.program(list(range(links)))
    await bench.all_up()
    bench.keep_log = True
    bench.arrival_delay = 0
    for _ in range(5):
        await ClockCycles(dut.clk, 150)
        bench.sent_log.clear()
        bench.packet("a", STORES, [0])
        await bench.finish()
        closed = bench.closings[-1][0]
        assert bench.sent_log[0][0] - closed == 5
    arrived: dict[str, int] = {}

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            arrived.update({side: bench.now for side in SIDES if int(bench.signal(side, "arrivals").value) & 1})

    watching = cocotb.start_soon(watch())
    bench.arrival_delay = 40
    for _ in range(24):
        bench.sent_log.clear()
        bench.closings.clear()
        for side in SIDES:
            bench.packet(side, DMA, [0])
        await bench.finish()
        for now, side, _ in bench.closings:
            first = next(when for when, of, *_ in bench.sent_log if of == side)
            assert first == max(now + 6, arrived[side] + 5), (
                f"{side}: closed {now}, whole {arrived[side]}, sent {first}"
            )
    watching.cancel()
    bench.arrival_delay = 0
    for ports in ([0], list(range(links))):
        for _ in range(20):
            bench.packet("a", DMA, [random.choice(ports)], length=8)
        # The slots are filled while the wires stand: the sources take longer than the wire.
        for port in range(links):
            bench.standing.add(("a", port))
        await ClockCycles(dut.clk, 600)
        bench.sent_log.clear()
        bench.standing.clear()
        await bench.finish()
        times = [entry[0] for entry in bench.sent_log]
        run_length = bench.parameters.dma_packets * 9 // 2
        assert times[run_length] - times[0] <= run_length + 1, "bubbles"


def refusal(bench: LaneBench, packet: Packet, send: int) -> tuple[int, int, int, int]:
    """What a fault says of a send of `packet` of `a`: wg, wf, va, access."""
    entry = bench.sends["a"][send]
    va = (packet.va + entry.offset) % (1 << bench.parameters.va_sector_bits)
    return packet.number | send << IDS, packet.wf, va, unpack(SendControl, entry.control)["access"]


async def refused(bench: LaneBench) -> list[dict[str, int]]:
    """Faults of `b` since the last time, when everything that `a` has sent was refused or has arrived."""
    await bench.emptied(["a"], 60000, "something has neither arrived nor been refused")
    await ClockCycles(bench.dut.clk, 50)
    faults = [unpack(bench.messages.fault_record, bits) for bits in bench.faults["b"].received]
    bench.faults["b"].received.clear()
    return faults


def crossing(bench: LaneBench) -> Packet:
    """A packet of `a` whose last sectors, or all but the first, are in another range of `b` than its first."""
    length = random.randint(2, 8)
    send = random.randrange(bench.parameters.sends)
    edge = random.choice([known.first for known in bench.reach.values() if known.first])
    va = edge - random.choice([1, length - 1]) - bench.sends["a"][send].offset
    top = 1 << bench.parameters.va_sector_bits
    return bench.packet("a", random.choice([DMA, STORES]), [send], length, va % top)


@cocotb.test()
async def refused_packets_harm_nothing(dut):
    """Packets from or for another rank, to no range, or from one range to the next: each is refused once with its
    fault, however often it was sent; their buffers come back and the next packets are written."""
    bench = bench_of(dut)
    await bench.reset()
    for kind in random.sample(("peer", "rank", "range", "range", "edge"), 5):
        await ClockCycles(dut.clk, 400)
        if kind == "range":
            await bench.program_ranges(valid=False)
        elif kind != "edge":
            wrong = bench.ranks["a" if kind == "peer" else "b"] ^ 1 << random.randrange(6)
            if kind == "peer":
                bench.knows("b", wrong)
            else:
                bench.signal("b", "rank").value = wrong
        expected = []
        for _ in range(2 * bench.parameters.link_receive_packets):
            packet = crossing(bench) if kind == "edge" else bench.packet("a", random.choice([DMA, STORES]))
            expected += [refusal(bench, packet, send) for send in packet.sends]
        await ClockCycles(dut.clk, 10)
        faults = await refused(bench)
        fault = {"range": Fault.OUTSIDE, "edge": Fault.OUTSIDE, "rank": Fault.DESTINATION, "peer": Fault.SOURCE}[kind]
        assert all(record["fault"] == fault.value and record["link"] == 1 for record in faults)
        assert sorted((record["wg"], record["wf"], record["va"], record["access"]) for record in faults) == sorted(
            expected
        )
        bench.forget("a")
        bench.knows("b", bench.ranks["a"])
        bench.signal("b", "rank").value = bench.ranks["b"]
        await bench.program_ranges()
        for side in SIDES:
            for _ in range(5):
                bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish()
        assert not any(sink.received for sink in bench.faults.values())


@cocotb.test()
async def programmed_anew(dut):
    """Epochs of other numbers, ranks, ranges, sends, times and notices, one after another without a reset: each is as
    if it were the first; a window that is not checked refuses nothing, whatever it is."""
    bench = bench_of(dut)
    await bench.reset()
    least = unpack(LinkTimers, bench.timers)
    for _ in range(12):
        bench.choose_ranks()
        bench.choose_ranges()
        for side, other in SIDES.items():
            bench.signal(side, "rank").value = bench.ranks[side]
            bench.knows(side, bench.ranks[other])
            times = {name: random.randrange(least[name], 1 << 24) for name in ("retry", "dead")}
            bench.signal(side, "timers").value = pack(LinkTimers, silence=least["silence"], **times)
            bench.signal(side, "window").value = pack(WindowCheck, high=random.getrandbits(31), checked=0)
            bench.signal(side, "notice").value = random.getrandbits(8)
        await bench.program_ranges()
        await bench.program()
        # So many that numbers of packets go far on every port.
        for send in random.choices(range(bench.parameters.sends), k=24 * bench.parameters.links):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]), [send], length=random.choice([1, 1, 8]))
        await bench.finish_and_count()
        assert not any(sink.received for sink in bench.faults.values())
        await bench.next_epoch()


@cocotb.test()
async def only_the_window_is_written(dut):
    """Packets to the memory that the receiver has are written, those to any other that differs in one bit of the
    address, or to both, are refused; without a check all are written."""
    bench = bench_of(dut)
    await bench.reset()
    await bench.all_up()
    parameters = bench.parameters
    top, low = 1 << parameters.va_sector_bits, parameters.va_sector_bits - parameters.window_bits
    for bit in (*range(parameters.window_bits), None, None, "both", "both", "unchecked"):
        sends = [random.randrange(parameters.sends)]
        offset = bench.sends["a"][sends[0]].offset
        length = random.randint(2, 8)
        va = bench.address("a", sends, length)
        if bit == "both":
            # From the last sectors of one memory to the first of the next, in one range.
            edges = [edge for edge in range(1 << low, top - 8, 1 << low) if not bench.goes_over(edge - 1, 9)]
            va = (random.choice(edges) - random.randint(1, length - 1) - offset) % top
        own = (va + offset) % top >> low
        high = own ^ (1 << bit if isinstance(bit, int) else bit == "unchecked")
        if bit == "both":
            high += random.getrandbits(1)
        dut.b_window.value = pack(WindowCheck, high=high, checked=bit != "unchecked")
        await ClockCycles(dut.clk, 4)
        packet = bench.packet("a", random.choice([DMA, STORES]), sends, length, va)
        await ClockCycles(dut.clk, 10)
        if bit is None or bit == "unchecked":
            await bench.finish()
            assert not bench.faults["b"].received, f"refused in its own memory, {high:#x}"
            continue
        faults = await refused(bench)
        said = [(record["wg"], record["wf"], record["va"], record["access"]) for record in faults]
        assert said == [refusal(bench, packet, sends[0])] and faults[0]["fault"] == Fault.OUTSIDE.value
        assert not packet.arrived
        bench.forget("a")


def test_only_the_window_is_written():
    run("two", "only_the_window_is_written")


def test_ports_that_always_ask_have_turns_alike():
    run("two", "ports_that_always_ask_have_turns_alike", latency=5)


class FirstOfAll(Turns):
    """The lowest that asks always has the turn."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.has.eq(self.asks & -self.asks)
        return m


def test_a_port_that_begins_to_ask_is_next():
    run("two", "a_port_that_begins_to_ask_is_next", latency=5)


@pytest.mark.wide
@pytest.mark.parametrize("case", ["ports_that_always_ask_have_turns_alike", "a_port_that_begins_to_ask_is_next"])
def test_a_turn_for_the_first_of_all_is_caught(case):
    with patch.object(egress, "Turns", FirstOfAll), caught("assert"):
        run("two", case, latency=5, component=LanePair(SIZES["two"]))


SEVEN = pytest.param("seven", CLEAR, marks=pytest.mark.wide)


@pytest.mark.parametrize(("size", "weather"), [("two", CLEAR), ("two", STORM), SEVEN])
def test_refused_packets_harm_nothing(size, weather):
    run(size, "refused_packets_harm_nothing", weather)


@pytest.mark.parametrize(("size", "weather"), [("two", CLEAR), SEVEN])
def test_programmed_anew(size, weather):
    run(size, "programmed_anew", weather)


@pytest.mark.parametrize(("size", "weather"), [pytest.param("seven", CLEAR, marks=pytest.mark.slow), ("two", STORM)])
def test_a_port_that_stands_holds_up_no_other(size, weather):
    run(size, "a_port_that_stands_holds_up_no_other", weather)


@pytest.mark.parametrize(
    ("size", "weather"), [("two", CLEAR), pytest.param("tiny", STORM, marks=pytest.mark.slow), SEVEN]
)
def test_one_side_is_reset(size, weather):
    run(size, "one_side_is_reset", weather)


@pytest.mark.parametrize(("size", "weather"), [("two", STORM), pytest.param("tiny", CLEAR, marks=pytest.mark.slow)])
def test_an_epoch_is_given_up(size, weather):
    run(size, "an_epoch_is_given_up", weather)


@pytest.mark.parametrize("size", ["two", pytest.param("one", marks=pytest.mark.slow)])
def test_a_dead_link_is_noticed_and_comes_back(size):
    run(size, "a_dead_link_is_noticed_and_comes_back")


@pytest.mark.parametrize(("size", "weather"), [("two", CLEAR), ("two", STORM), SEVEN])
def test_notices_are_heard(size, weather):
    run(size, "notices_are_heard", weather)


class SpeaksOften(PortReceiver):
    """The wrong variant: a port sends its state for every flit."""

    def _say(self, m, deaf, session, expected, freed, attempt, changed) -> None:
        super()._say(m, deaf, session, expected, freed, attempt, changed | self.valid)


@pytest.mark.wide
def test_a_port_that_says_the_same_again_is_caught():
    often = patch("hw.link.port_ingress.PortReceiver", SpeaksOften)
    with often, caught("says nothing new"):
        run("two", "traffic", component=LanePair(SIZES["two"]))


class SaysWrong(LinkLane):
    """The wrong variants: what a lane says of itself at port 0, or of all, is a constant."""

    def __init__(self, parameters: LinkParameters, output: str):
        super().__init__(parameters)
        self._output = output

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        own = {"idle": self.idle, "heard": self.heard[0]}
        said = own[self._output] if self._output in own else self.events[0][self._output]
        m.d.comb += said.eq(self._output == "idle")
        return m


@pytest.mark.wide
@pytest.mark.parametrize(
    ("output", "case", "error"),
    [
        ("idle", "traffic", "says that it is idle"),
        ("received_packets", "traffic", "assert"),
        ("sent_flits", "traffic", "sent_flits"),
        ("sent_packets", "traffic", "sent_packets"),
        ("left", "traffic", "assert"),
        ("heard", "notices_are_heard", "assert set"),
    ],
)
def test_a_lane_that_says_what_is_not_so_is_caught(output, case, error):
    with caught(error):
        run("two", case, component=LanePair(SIZES["two"], partial(SaysWrong, output=output)))


@pytest.mark.parametrize("weather", [CLEAR, STORM])
def test_nothing_is_sent_without_grant(weather):
    run("two", "nothing_is_sent_without_grant", weather)


def test_latency_and_rate():
    run("two", "latency_and_rate")


@pytest.mark.wide
def test_a_lossy_wire_without_protection_is_caught():
    """The control: the same wires, flits without CRC and replay."""
    with caught():
        run("unprotected", "traffic", STORM)
