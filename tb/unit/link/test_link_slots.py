"""Who may have a slot of a lane: what the lane says is compared with the rule, which is counted out here by hand. And
what is sent to a peer: as much as it has buffers for, which are counted here too."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Mux
from amaranth.hdl import Value
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.link import send_routes
from hw.link.egress import DMA, STORES
from hw.link.parameters import LinkParameters
from hw.link.send_routes import existing_sends
from hw.link.wire import packet_layout
from tb.drivers.lane_bench import LaneBench, Packet
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.payload import pack
from tb.runner import caught
from tb.unit.link.test_link_lane import SIZES, NoSharesOfSlots, bench_of, run

SLOTS = 8
"""Of each bank of the lanes that are tested."""
OWN = 2
"""Of them, for each port alone."""
SHARED = SLOTS - OWN * SIZES["two"].links


@dataclass
class Bank:
    """What is taken of one bank: the packets in its slots, by slot; the sends of them that are not over, by packet, as
    ports; those charged to the slots that are shared."""

    packets: dict[int, Packet] = field(default_factory=dict)
    left: dict[int, list[int]] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)

    def has_own(self, ports: list[int]) -> bool:
        """Whether no two sends go through one port, and each port has a slot of its own left."""
        used = Counter(
            port
            for packet in self.packets.values()
            if packet.number not in self.shared
            for port in self.left[packet.number]
        )
        return len(set(ports)) == len(ports) and all(used[port] < OWN for port in ports)

    def has_room(self, ports: list[int]) -> bool:
        """Whether a packet may have a slot whose sends go through `ports`."""
        used = sum(len(self.left[number]) for number in self.shared)
        return self.has_own(ports) or not used or used + len(ports) <= SHARED

    def take(self, packet: Packet, ports: list[int]) -> None:
        """`packet` has its slot."""
        if not self.has_own(ports):
            self.shared.add(packet.number)
        self.packets[packet.slot] = packet
        self.left[packet.number] = list(ports)

    def release(self, port: int) -> None:
        """All sends through `port` are over."""
        for slot, packet in list(self.packets.items()):
            ports = self.left[packet.number] = [other for other in self.left[packet.number] if other != port]
            if not ports:
                del self.packets[slot]
                self.shared.discard(packet.number)


class Slots:
    """The banks of both lanes, by side and source, beside the bench that fills them."""

    def __init__(self, bench: LaneBench):
        self.bench = bench
        self.banks = {(side, source): Bank() for side in SIDES for source in (DMA, STORES)}

    def ports(self, side: str, first: int, count: int) -> list[int]:
        """Of `count` sends from `first` on, as a lane takes them: one at least, and all at the most."""
        sends = self.bench.sends[side]
        return [sends[(first + n) % len(sends)].port for n in range(min(max(count, 1), len(sends)))]

    async def probe(self, times: int) -> None:
        """Ask so many times for slots for any sends."""
        counts = [0, 1, 1, 2, 2, 3, 4, 5, (1 << packet_layout(self.bench.parameters)["count"].width) - 1]
        for _ in range(times):
            await self.ask(
                {key: (random.randrange(self.bench.parameters.sends), random.choice(counts)) for key in self.banks}
            )

    async def probe_each(self) -> None:
        """Ask for slots for each send, and for each two that follow each other."""
        for count in (1, 2):
            for first in range(self.bench.parameters.sends):
                await self.ask(dict.fromkeys(self.banks, (first, count)))

    async def ask(self, sends: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Ask for slots for some sends of each source, first and number: there is room when the rule says so, and what
        is offered is free."""
        bench = self.bench
        layout = packet_layout(bench.parameters)
        expected = {}
        for (side, source), (first, count) in sends.items():
            bench._set(side, "packets", source, layout.size, pack(layout, first=first, count=count))
            expected[side, source] = self.banks[side, source].has_room(self.ports(side, first, count))
        await RisingEdge(bench.dut.clk)
        await RisingEdge(bench.dut.clk)
        await ReadOnly()
        for (side, source), room in expected.items():
            bank, asked = self.banks[side, source], sends[side, source]
            said = int(bench.signal(side, "room").value) >> source & 1
            assert said == room, f"{side} {source}: room is {said} for sends {asked} beside {bank.left}"
            slot = int(bench.signal(side, "slots").value) >> source * bench.parameters.slot_bits
            slot &= (1 << bench.parameters.slot_bits) - 1
            assert not room or (slot < SLOTS and slot not in bank.packets), f"{side} {source}: slot {slot} is in use"
        for side in SIDES:
            used = any(bank.packets for (of, _), bank in self.banks.items() if of == side)
            assert int(bench.signal(side, "empty").value) == (not used)
        await RisingEdge(bench.dut.clk)

    async def fill(self, wanted: Callable[[Bank, list[int]], bool], largest: int = 6) -> None:
        """A packet of each source for which there is room: of any up to so many sends, of whose bank and ports is
        `wanted`."""
        bench = self.bench
        begun = []
        for (side, source), bank in self.banks.items():
            every = [(first, count) for first in range(bench.parameters.sends) for count in range(1, largest + 1)]
            random.shuffle(every)
            for first, count in every:
                ports = self.ports(side, first, count)
                if bank.has_room(ports) and wanted(bank, ports):
                    sends = [(first + n) % bench.parameters.sends for n in range(count)]
                    begun.append((bank, bench.packet(side, source, sends, length=1), ports))
                    break
        start = bench.now
        while any(bench.queues.values()) or any(bench.filling.values()) or any(any(bench.landing[s]) for s in SIDES):
            assert bench.now < start + 200, "a source does not get the slot that is free for it"
            await RisingEdge(bench.dut.clk)
        for bank, packet, ports in begun:
            bank.take(packet, ports)

    async def fill_shared(self) -> None:
        """A packet of each source that no port has a slot of its own for."""
        await self.fill(lambda bank, ports: not bank.has_own(ports), SHARED)

    async def fill_own(self, port: int) -> None:
        """A packet of each source to `port` alone."""
        await self.fill(lambda _, ports: ports == [port], 1)

    async def go(self, port: int) -> None:
        """Let the wires of `port` take all that they are given, until it has arrived and is acknowledged."""
        bench = self.bench
        for side in SIDES:
            bench.standing.discard((side, port))
        await bench.finish_sends(lambda packet, send: bench.sends["a"][send].port == port)
        await ClockCycles(bench.dut.clk, 60)
        for bank in self.banks.values():
            bank.release(port)


@cocotb.test()
async def slots_are_given_out_by_the_rule(dut):
    """While wires stand slots fill up, then one port's sends leave, then the others', with sends through any ports:
    at all times there is room for a packet when the rule says so, and no slot is offered that is in use."""
    bench = bench_of(dut)
    await bench.reset(retry=1 << 20, dead=1 << 22)
    await bench.all_up()
    links = bench.parameters.links
    every = bench.parameters.sends
    some = [random.randrange(links) for _ in range(every)]
    for stands, turn in product(range(links), range(links)):
        # In the end each send has gone through each port.
        await bench.program([(port + turn) % links for port in some])
        # Slots are taken and given back in the same cycle here, in all ways; afterwards all are free, and counted so.
        for _ in range(80):
            for side in SIDES:
                for source in (DMA, STORES):
                    bench.packet(side, source, length=1)
        await bench.finish()
        slots = Slots(bench)
        bench.standing.update((side, port) for side in SIDES for port in range(links))
        # All that ports share is used, and what one has for itself.
        for _ in range(SHARED):
            await slots.probe(2)
            await slots.fill_shared()
        for _ in range(OWN):
            await slots.fill_own(stands)
        for _ in range(SHARED):
            await slots.fill_shared()
        await slots.probe_each()
        for _ in range(4):
            await slots.probe(4)
            await slots.fill(lambda _, ports: True)
        first = random.randrange(links)
        await slots.go(first)
        bench.standing.update((side, first) for side in SIDES)
        for _ in range(4):
            await slots.probe(4)
            await slots.fill(lambda _, ports: True)
        # What was given back of the shared slots is used again, and what the port has for itself.
        for _ in range(SHARED):
            await slots.fill_shared()
        for _ in range(OWN):
            await slots.fill_own(first)
        await slots.probe_each()
        for port in random.sample(range(links), links):
            await slots.go(port)
            await slots.probe(4)
        # A packet may have more sends than there are shared slots, when none of these is used; whichever slot it has.
        for _ in range(SLOTS):
            bench.standing.update((side, port) for side in SIDES for port in range(links))
            await slots.fill(lambda _, ports: len(ports) == every, every)
            await slots.probe(2)
            for port in [*range(links)] * OWN:
                await slots.fill_own(port)
            await slots.probe_each()
            for port in random.sample(range(links), links):
                await slots.go(port)
        await bench.finish()


@cocotb.test()
async def every_free_buffer_is_used(dut):
    """Memory takes a few writes and stands again: each time the link comes to rest a packet more has been sent than
    were written for each buffer of the peer, and none beyond those."""
    bench = bench_of(dut)
    await bench.reset(retry=1 << 20, dead=1 << 22)
    await bench.all_up()
    links, buffers = bench.parameters.links, bench.parameters.link_receive_packets
    await bench.program(list(range(links)))
    due = 3 * buffers
    for port in range(links):
        bench.memory_stands = True
        for _ in range(due):
            for side in SIDES:
                bench.packet(side, random.choice([DMA, STORES]), [port], length=random.randint(1, 3))
        while any(bench.undelivered(side) for side in SIDES):
            await ClockCycles(dut.clk, 150)
            for side, other in SIDES.items():
                left, written = bench.events[f"{side}{port}.left"], bench.delivered[f"{other}{port}"]
                # The writes of the next packets may be on their way, and its buffer free.
                assert min(due, written + buffers) <= left <= written + buffers + 2, f"{left} sent, {written} written"
                said = bench.now_of(side, port)
                assert (said["no_credit"], said["no_grant"]) == (left < due, 0), f"{side}{port} says {said}"
            bench.memory_stands = False
            await ClockCycles(dut.clk, random.randint(1, 12))
            bench.memory_stands = True
        bench.memory_stands = False
        await bench.finish()


@cocotb.test()
async def a_slot_waits_for_the_sends_of_its_packet_only(dut):
    """One send goes through one port, all others through the other: of packets up to that send, or from behind it on,
    of all sends but that one, of one less, or of any number of them, the slot is free again when these are over. A
    packet that counted for a send more would keep its slot for ever."""
    bench = bench_of(dut)
    await bench.reset(retry=1 << 20, dead=1 << 22)
    await bench.all_up()
    every = bench.parameters.sends
    for alone in range(every):
        port = random.randrange(2)
        await bench.program([port if number == alone else 1 - port for number in range(every)])
        for side, source in product(SIDES, (DMA, STORES)):
            for count in (every - 1, every - 2, random.randrange(1, every - 2)):
                first = random.choice([alone - count, alone + 1])
                bench.packet(side, source, [(first + n) % every for n in range(count)], length=1)
        await bench.finish(limit=5000)


@pytest.mark.parametrize(
    "case",
    [
        "slots_are_given_out_by_the_rule",
        "every_free_buffer_is_used",
        "a_slot_waits_for_the_sends_of_its_packet_only",
    ],
)
def test_slots_and_buffers(case):
    run("two", case, latency=4, module=__name__)


@pytest.mark.wide
def test_a_slot_that_waits_for_one_send_more_is_caught():
    """14 sends are taken for 15."""

    def one_more(parameters: LinkParameters, count: Value) -> Value:
        known = existing_sends(parameters, count)
        return Mux(known == 14, 15, known)

    lanes = LanePair(SIZES["two"])
    with patch.object(send_routes, "existing_sends", one_more), caught(r"AssertionError: \{'a': \["):
        run("two", "a_slot_waits_for_the_sends_of_its_packet_only", latency=4, component=lanes, module=__name__)


def test_slots_given_out_by_another_rule_are_caught():
    lanes = LanePair(NoSharesOfSlots(**vars(SIZES["two"])))
    with caught("room is 1 for sends"):
        run("two", "slots_are_given_out_by_the_rule", latency=4, component=lanes, module=__name__)
