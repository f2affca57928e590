"""Times that are programmed are kept to in each of their bits; sessions come around, and are given up."""

import random
from collections.abc import Iterator
from itertools import pairwise

import cocotb
import pytest
from amaranth import Module
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge

from hw.link.egress import DMA, STORES
from hw.link.lane import LinkLane
from hw.link.port_sender import TIMER_BITS, LinkTimers
from hw.link.wire import SESSION_BITS, message_layout, state_layout
from tb.drivers.lane_bench import LaneBench
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.lossy_wire import LossyWire, Weather
from tb.drivers.payload import pack, unpack
from tb.runner import caught
from tb.unit.link.test_link_epochs import ForgingWire, sealed
from tb.unit.link.test_link_lane import SIZES, bench_of, run

LONG = 1 << TIMER_BITS - 1
AWHILE = 44
"""Cycles: more than two state messages are apart, and fewer than the shortest time of :func:`long_times`."""
PATTERNS = (0b0101010101, 0b1010101010)
"""Times that are waited for: together each bit of them in both states."""
LONGEST_WAIT = 1 << 12
"""Of :func:`long_times` the one that is waited for too where that is the only count."""


def long_times() -> Iterator[int]:
    """Times of which nothing may come for a while: one for each bit above."""
    return (1 << bit for bit in range(AWHILE.bit_length(), TIMER_BITS))


class Times:
    """A pair of lanes whose timers are programmed anew, and when it was that something happened at each port."""

    def __init__(self, bench: LaneBench):
        self.bench = bench
        self.ports = [(side, port) for side in SIDES for port in range(bench.parameters.links)]
        self.times = {"silence": 20, "retry": 1000, "dead": LONG}

    def program(self, **times: int) -> None:
        self.times |= times
        for side in SIDES:
            self.bench.signal(side, "timers").value = pack(LinkTimers, **self.times)

    def cut(self, wires: dict, is_cut: bool = True) -> None:
        """Nothing arrives on `wires` any more, or all does again."""
        for wire in wires.values():
            wire.weather = Weather(cut=is_cut)

    def count(self, event: str) -> dict[tuple[str, int], int]:
        """How often it has happened, by port."""
        return {(side, port): self.bench.events[f"{side}{port}.{event}"] for side, port in self.ports}

    async def next_of(self, event: str, limit: int) -> dict[tuple[str, int], int]:
        """When it next happens, by port."""
        before, start = self.count(event), self.bench.now
        found: dict[tuple[str, int], int] = {}
        while len(found) < len(self.ports):
            assert self.bench.now < start + limit, f"no {event} at {set(self.ports) - set(found)}"
            await RisingEdge(self.bench.dut.clk)
            for key, number in self.count(event).items():
                if number > before[key]:
                    found.setdefault(key, self.bench.now)
        return found

    async def none_of(self, event: str) -> None:
        """It does not happen for a while."""
        before = self.count(event)
        await ClockCycles(self.bench.dut.clk, AWHILE)
        assert self.count(event) == before, f"{event} after less than {self.times}"

    async def reset(self, *sides: str) -> int:
        """Reset `sides`; returns when that ends."""
        for side in sides:
            self.bench.signal(side, "reset").value = 1
        await ClockCycles(self.bench.dut.clk, 3)
        for side in sides:
            self.bench.signal(side, "reset").value = 0
        return self.bench.now

    def flits(self, key: tuple[str, int]) -> list[int]:
        """When the wire has taken one of a port, since the log began."""
        return [now for now, side, port, _ in self.bench.sent_log if (side, port) == key]

    def says(self, side: str) -> set[int]:
        """Ports of `side` that send a state message in this cycle."""
        messages = int(self.bench.signal(side, "rx_messages").value)
        size = message_layout(self.bench.parameters).size
        return {port for port in range(self.bench.parameters.links) if messages >> size * port & 1}

    async def speaks(self, side: str) -> int:
        """When the ports of `side` first send a state message, all in one cycle."""
        start = self.bench.now
        while not self.says(side):
            assert self.bench.now < start + 2 * max(PATTERNS), f"{side} says nothing"
            await RisingEdge(self.bench.dut.clk)
        assert len(self.says(side)) == self.bench.parameters.links, f"a port of {side} speaks before the others"
        return self.bench.now


@cocotb.test()
async def times_are_as_programmed(dut):
    """`dead`, `retry` and `silence`: what is due after each comes when it should, and not long before, whichever bit
    the time has."""
    bench = bench_of(dut)
    await bench.reset()
    times = Times(bench)
    times.program()
    await bench.all_up()
    await _dead(times)
    await _retry(times)
    await _opens(times)
    await _silence(times)


async def _dead(times: Times) -> None:
    """A session ends when nothing was heard for so long."""
    bench = times.bench
    heard: dict[tuple[str, int], int] = {}
    size = message_layout(bench.parameters).size

    async def listen() -> None:
        while True:
            await RisingEdge(bench.dut.clk)
            for side, port in times.ports:
                if int(bench.signal(side, "tx_messages").value) >> size * port & 1:
                    heard[side, port] = bench.now

    listening = cocotb.start_soon(listen())
    for dead in long_times():
        times.program(dead=dead)
        await times.none_of("cut")
    slack = set()
    for dead in PATTERNS:
        times.program(dead=dead)
        times.cut(bench.states)
        over = await times.next_of("cut", 2 * max(PATTERNS))
        slack |= {over[key] - heard[key] - dead for key in times.ports}
        times.cut(bench.states, False)
        times.program(dead=LONG)
        await bench.all_up()
    listening.cancel()
    assert len(slack) == 1 and 0 <= min(slack) <= 4, f"dead after so many cycles more: {slack}"


async def _retry(times: Times) -> None:
    """What is not acknowledged is sent again after so long."""
    bench = times.bench
    await bench.program(list(range(bench.parameters.links)))
    await ClockCycles(bench.dut.clk, AWHILE)
    times.cut(bench.states)
    for side, port in times.ports:
        bench.packet(side, random.choice([DMA, STORES]), [port])
    await times.next_of("again", 1200)
    for retry in long_times():
        times.program(retry=1)
        await times.next_of("again", 4)
        times.program(retry=retry)
        await ClockCycles(bench.dut.clk, 2)
        await times.none_of("again")
    slack = set()
    for retry in PATTERNS:
        times.program(retry=1)
        await times.next_of("again", 4)
        times.program(retry=retry)
        await ClockCycles(bench.dut.clk, 2)
        first = await times.next_of("again", 2 * max(PATTERNS))
        second = await times.next_of("again", 2 * max(PATTERNS))
        slack |= {second[key] - first[key] - retry for key in times.ports}
    assert len(slack) == 1 and 0 <= min(slack) <= 4, f"again after so many cycles more: {slack}"
    times.cut(bench.states, False)
    times.program(retry=1000)
    await bench.finish()


async def _opens(times: Times) -> None:
    """A session that is not answered is asked for again after so long."""
    bench = times.bench
    times.cut(bench.flits)
    bench.keep_log = True
    slack = set()
    for retry in (*long_times(), *PATTERNS):
        is_waited_for = retry in (*PATTERNS, LONGEST_WAIT)
        times.program(retry=retry)
        await times.reset(*SIDES)
        bench.sent_log.clear()
        waited = 5 * retry // 2 if is_waited_for else AWHILE
        await ClockCycles(bench.dut.clk, times.times["silence"] + AWHILE // 2 + waited)
        for key in times.ports:
            asked = times.flits(key)
            assert len(asked) == (3 if is_waited_for else 1), f"{key} asks at {asked}, retry {retry}"
            slack |= {later - now - retry for now, later in pairwise(asked)}
    assert len(slack) == 1 and 0 <= min(slack) <= 4, f"asks again after so many cycles more: {slack}"
    bench.keep_log = False
    times.cut(bench.flits, False)


class Insistent(LossyWire):
    """A wire that says its last word in every cycle until the next one comes."""

    def __init__(self, wire: LossyWire):
        super().__init__(wire.bits, wire.latency, wire.weather)
        self.last: int | None = None

    def take(self, now: int) -> int | None:
        word = super().take(now)
        self.last = self.last if word is None else word
        return self.last


async def _silence(times: Times) -> None:
    """After a reset a port neither speaks nor hears for so long."""
    bench = times.bench
    times.program(retry=1000, silence=20)
    await times.reset(*SIDES)
    # Whenever a port begins to hear, there is something to hear.
    bench.states.update({key: Insistent(wire) for key, wire in bench.states.items()})
    await bench.all_up()
    bench.keep_log = True
    slack, deaf = set(), set()
    for side in SIDES:
        keys = [key for key in times.ports if key[0] == side]
        for silence in (*long_times(), *PATTERNS):
            times.program(silence=silence)
            began = await times.reset(side)
            bench.sent_log.clear()
            if silence in PATTERNS:
                slack.add(await times.speaks(side) - began - silence)
                await ClockCycles(bench.dut.clk, 10)
                deaf |= {times.flits(key)[0] - began - silence for key in keys}
            else:
                for _ in range(AWHILE):
                    assert not times.says(side), f"{side} speaks, silence {silence}"
                    await RisingEdge(bench.dut.clk)
                assert not any(times.flits(key) for key in keys), f"{side} sends, silence {silence}"
        times.program(silence=20)
        await bench.all_up()
    bench.keep_log = False
    assert len(slack) == 1 and 0 <= min(slack) <= 4, f"speaks after so many cycles more: {slack}"
    # A lane sends one flit a cycle, and all its ports answer at once.
    first, last = min(deaf), max(deaf)
    assert 0 <= first == last - bench.parameters.links + 1 <= 7, (
        f"answers what it hears after so many cycles more: {deaf}"
    )


class Said(ForgingWire):
    """The state messages of a port: which session they last said, and `instead`, the one that they say for none."""

    def __init__(self, wire: LossyWire, layout: data.StructLayout):
        super().__init__(wire, self._hears)
        self.layout = layout
        self.session = 0
        self.instead = 0

    def _hears(self, word: int) -> int:
        fields = unpack(self.layout, word)
        self.session = fields["session"]
        if self.session or not self.instead:
            return word
        return sealed(pack(self.layout, **(fields | {"session": self.instead})), self.layout.size)


@cocotb.test()
async def sessions_come_around(dut):
    """The session after each is the next one, 1 after the last, whichever side was reset, and whichever the peer was in
    when it began; after that packets go both ways."""
    bench = bench_of(dut)
    await bench.reset()
    times = Times(bench)
    times.program()
    layout = state_layout(bench.parameters)
    wires = {key: Said(bench.states[key], layout) for key in times.ports}
    bench.states.update(wires)
    for bit in range(1, SESSION_BITS + 1):
        for sides in (("a", "b", "a"), ("b", "a", "b")):
            session = (1 << bit) - 2
            for wire in wires.values():
                wire.instead = session
            await times.reset(*SIDES)
            await bench.all_up()
            for wire in wires.values():
                wire.instead = 0
            for side in (None, *sides):
                if side:
                    # The one before has to be old enough.
                    await ClockCycles(dut.clk, 2 * times.times["silence"])
                    await times.reset(side)
                    await ClockCycles(dut.clk, times.times["silence"])
                    await bench.all_up()
                session = session % 255 + 1
                await ClockCycles(dut.clk, bench.latency + bench.parameters.link_repeat)
                found = {key: wire.session for key, wire in wires.items()}
                assert set(found.values()) == {session}, f"in sessions {found} instead of {session}"
        await bench.program_ranges()
        for side in SIDES:
            await bench.write_sends(side)
            bench.packet(side, random.choice([DMA, STORES]))
        await bench.finish()


@cocotb.test()
async def a_session_is_given_up(dut):
    """When it is to be given up, a session ends if anything is in its queue and goes on if not; in the one after it the
    next epoch runs."""
    bench = bench_of(dut)
    await bench.reset()
    times = Times(bench)
    times.program()
    await bench.all_up()
    await bench.program(list(range(bench.parameters.links)))
    for side, port in (*times.ports, *times.ports):
        bench.standing.update(times.ports)
        await ClockCycles(dut.clk, times.times["silence"] + AWHILE)
        bench.packet(side, random.choice([DMA, STORES]), [port])
        await ClockCycles(dut.clk, 2 * AWHILE)
        before = times.count("cut")
        for one in SIDES:
            bench.signal(one, "give_up").value = 1
        await RisingEdge(dut.clk)
        for one in SIDES:
            bench.signal(one, "give_up").value = 0
        await ClockCycles(dut.clk, 4)
        ended = {key for key, number in times.count("cut").items() if number > before[key]}
        assert ended == {(side, port)}, f"sessions of {ended} ended, of {(side, port)} something is in the queue"
        bench.standing.clear()
        await bench.next_epoch()
        for one in SIDES:
            bench.packet(one, random.choice([DMA, STORES]))
        await bench.finish()


@pytest.mark.parametrize("case", ["times_are_as_programmed", "sessions_come_around", "a_session_is_given_up"])
def test_times_and_sessions(case):
    run("two", case, latency=4, module=__name__)


class ShortTimes(LinkLane):
    """The wrong variant: the highest bit but one of times is not looked at."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for name in LinkTimers.members:
            m.d.comb += m.submodules.egress.timers[name][-2].eq(0)
        return m


@pytest.mark.wide
def test_times_without_a_bit_are_caught():
    with caught("cut after less than"):
        run(
            "two",
            "times_are_as_programmed",
            latency=4,
            component=LanePair(SIZES["two"], ShortTimes),
            module=__name__,
        )
