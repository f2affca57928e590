"""Two link units joined by link models: routing, credits, epochs, checks, and the writes that arrive."""

import os
import random
from functools import cache
from math import ceil

import cocotb
import pytest
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.config import preset
from hw.link.link_unit import LinkUnit
from hw.link.transmitter import Transmitter
from hw.messages import Fault
from sim.errors import SimulationError
from tb.drivers.link_pair import RANGES, SIDES, LinkPair, PairBench
from tb.drivers.payload import unpack
from tb.runner import simulate

link_pair = cache(LinkPair)

SIZES = {
    "paper": preset("paper", ranges=RANGES, link_latency=40, link_bandwidth=1024),
    "tiny": preset("tiny", ranges=RANGES, link_latency=5, link_bandwidth=300),
    "four_channels": preset("quad", ranges=RANGES, link_latency=30, link_bandwidth=200),
    "one_link": preset("paper", links=1, link_latency=7, link_bandwidth=500),
    "tiny_four_channels": preset("tiny", channels=4, ranges=RANGES, link_latency=1, link_bandwidth=100),
}


@cocotb.test()
async def random_traffic(dut):
    """Both directions, both sources, refused packets among them, stalls everywhere, routes fixed or changing."""
    config = SIZES[os.environ["SIZE"]]
    stall, changing = float(os.environ["STALL"]), config.links == 2 and os.environ["ROUTE"] == "changing"
    bench = PairBench(dut, config, stall)
    await bench.reset()
    refusals = [None] * 6 + [Fault.OUTSIDE, Fault.OUTSIDE, Fault.DESTINATION]
    for _ in range(3):
        bench.choose_ranks()
        for side in SIDES:
            getattr(dut, f"{side}_route").value = random.getrandbits(64)
        for _ in range(10):
            for side in SIDES:
                for kind in ("dma", "store"):
                    bench.packet(side, kind, random.choice(refusals))
        task = cocotb.start_soon(bench.finish())
        stalled = 0
        while not task.done():
            await RisingEdge(dut.clk)
            # A link stands for a cycle, or for longer than a port's clock runs on.
            if not stalled and random.random() * 300 < stall:
                stalled = random.choice([1, 1, random.randint(2, 12)])
            dut.stall.value = int(stalled > 0)
            stalled = max(stalled - 1, 0)
            if changing:
                for side in SIDES:
                    getattr(dut, f"{side}_route").value = random.getrandbits(64)
        task.result()
    bench.check(ordered=not changing)


@cocotb.test()
async def corrupted_headers_are_refused(dut):
    """Any header with flipped bits is dropped with a CRC fault, its credit comes back, the rest arrives."""
    config = SIZES[os.environ["SIZE"]]
    bench = PairBench(dut, config)
    await bench.reset()
    size = bench.messages.link_header.size
    for port in range(config.links):
        bench.fix_routes(port)
        for _ in range(60 // config.links):
            for side in SIDES:
                bench.packet(side, "dma")
        task = cocotb.start_soon(bench.finish())
        while not task.done():
            await RisingEdge(dut.clk)
            dut.flip.value = random.choice([0, 1 << random.randrange(size), 3 << random.randrange(size - 1)])
        task.result()

    def in_any_order(requests):
        return sorted(sorted(request.items()) for request in requests)

    for side, flipped in bench.flipped.items():
        faults = [unpack(bench.messages.fault_record, bits) for bits in bench.faults[side].received]
        assert flipped and len(faults) == flipped
        assert all(record["fault"] == Fault.CRC.value and record["link"] == 1 for record in faults)
        arrived = {request["wg"] for request in bench.received(side)}
        assert len(arrived) == 60 - flipped
        expected = [request for request in bench.expected[side] if request["wg"] in arrived]
        # Each channel has an order of its own, which random traffic checks.
        assert in_any_order(bench.received(side)) == in_any_order(expected)


@cocotb.test()
async def faults_that_wait_leave_the_first_and_the_last_of_each_port(dut):
    """While nobody takes faults: the first is kept, and of each port the last; the link goes on all the same."""
    config = SIZES[os.environ["SIZE"]]
    bench = PairBench(dut, config)
    bench.faults_wait = True
    await bench.reset()
    kept: dict[str, dict] = {side: {} for side in SIDES}
    first: dict[str, dict] = {}
    order = random.choice([(0, 1), (1, 0), (0, 1, 0), (1, 0, 1)]) if config.links == 2 else (0,)
    for port in order:
        for side, other in SIDES.items():
            getattr(dut, f"{side}_route").value = (1 << 64) - 1 if port else 0
            for _ in range(random.randint(1, 4)):
                bench.packet(side, "dma", random.choice([Fault.OUTSIDE, Fault.DESTINATION]))
                record = bench.expected_faults[other][-1]
                if first.setdefault(other, record) is not record:
                    kept[other][port] = record
            bench.packet(side, "store")
        await bench.finish()
    bench.faults_wait = False
    for _ in range(10):
        await RisingEdge(dut.clk)
    for side in SIDES:
        bench.expected_faults[side] = [first[side], *(kept[side][port] for port in sorted(kept[side]))]
        faults = [unpack(bench.messages.fault_record, bits) for bits in bench.faults[side].received]
        assert faults == bench.expected_faults[side]
    bench.check(ordered=False)


@cocotb.test()
async def wrong_length_is_refused(dut):
    """A packet with fewer or more data flits than its header says is dropped with a CRC fault."""
    config = SIZES[os.environ["SIZE"]]
    bench = PairBench(dut, config)
    await bench.reset()
    for port in range(config.links):
        bench.fix_routes(port)
        for side in SIDES:
            queue = bench.sources[side, "dma"].queue
            for length in (3, 5):
                bench.packet(side, "dma", Fault.CRC, length=4)
                flits = [queue.pop() for _ in range(5)][::-1]
                data = [flit & ~2 for flit in flits[1:]] + [0]
                data = data[:length]
                data[-1] |= 2
                queue.extend([flits[0], *data])
            for _ in range(4):
                bench.packet(side, "dma")
        await bench.finish()
    bench.check(ordered=True)


@cocotb.test()
async def nothing_is_sent_without_grant(dut):
    """Packets wait for a grant of their own epoch; a peer no longer armed refuses what comes."""
    config = SIZES[os.environ["SIZE"]]
    bench = PairBench(dut, config)
    await bench.reset(armed=False)
    bench.fix_routes(int(os.environ["PORT"]))

    def set_epoch(side: str, epoch: int, armed: bool = True) -> None:
        getattr(dut, f"{side}_epoch").value = epoch
        getattr(dut, f"{side}_armed").value = armed

    async def nothing_is_sent(sides: tuple[str, ...]) -> None:
        before = {side: bench.counted(side)["sent_flits"] for side in sides}
        await ClockCycles(dut.clk, 2 * config.link_latency)
        assert before == {side: bench.counted(side)["sent_flits"] for side in sides}
        assert all(int(getattr(dut, f"{side}_no_grant").value) == 1 for side in sides)

    # The epoch that a port's registers hold after reset is granted no more than others.
    bench.epoch = 0
    for side in SIDES:
        set_epoch(side, 0)
        bench.packet(side, "dma")
    await nothing_is_sent(("a", "b"))
    await bench.arm()
    await bench.finish()
    # Each side's next epoch is one that neither has granted before.
    for side, peer in SIDES.items():
        bench.epoch += random.randrange(1, 1 << config.epoch_bits - 1)
        set_epoch(side, bench.epoch)
        bench.packet(side, "dma")
        await nothing_is_sent((side,))
        for bit in range(config.epoch_bits):
            set_epoch(peer, bench.epoch ^ 1 << bit)
            await bench.arm()
            await nothing_is_sent((side,))
        set_epoch(peer, bench.epoch)
        await bench.arm()
        await bench.finish()
        assert bench.received(peer) == bench.expected[peer]
    assert int(dut.a_no_grant.value) == int(dut.b_no_grant.value) == 0
    for side, peer in SIDES.items():
        for change in (0, *(1 << bit for bit in random.sample(range(config.epoch_bits), 3))):
            set_epoch(peer, bench.epoch ^ change, armed=change != 0)
            bench.packet(side, "store", Fault.EPOCH)
            await bench.finish()
        set_epoch(peer, bench.epoch)
    bench.check(ordered=True)


@cocotb.test()
async def credits_limit_what_is_sent(dut):
    """While the receiver's memory stands, `link_receive_packets` packets are on their way to it, whatever the link
    carried before: each packet that was written, or refused, gave one credit back."""
    config = SIZES[os.environ["SIZE"]]
    stopped = [False]
    bench = PairBench(dut, config, memory_stall=lambda: stopped[0])
    await bench.reset()
    flit_cycles = ceil(32 / config.link_bytes_per_cycle)
    for port in range(config.links):
        bench.fix_routes(port)
        for _ in range(80):
            for side in SIDES:
                bench.packet(side, random.choice(["dma", "store"]), random.choice([None, Fault.DESTINATION]))
        await bench.finish()
        runs = (1, 5, 50)
        for _ in range(config.link_receive_packets + sum(runs) + 7):
            for side in SIDES:
                bench.packet(side, "store")
        for run in runs:
            stopped[0] = False
            await ClockCycles(dut.clk, run)
            stopped[0] = True
            await ClockCycles(dut.clk, 200 + 9 * config.link_receive_packets * flit_cycles)
            for side, other in SIDES.items():
                sent, refused = bench.counted(side)["sent_packets"], len(bench.faults[other].received)
                assert sent - bench.written_packets(other) - refused == config.link_receive_packets
                assert int(getattr(dut, f"{side}_no_credit").value) == 1
                assert int(getattr(dut, f"{side}_no_grant").value) == 0
        stopped[0] = False
        await bench.finish()
    bench.check(ordered=True)


@cocotb.test()
async def packets_leave_by_the_port_of_their_peer(dut):
    """Each of the 64 peers has a bit of its own in `route`; nothing is sent twice when a link stands."""
    config = SIZES[os.environ["SIZE"]]
    bench = PairBench(dut, config)
    await bench.reset()
    await ClockCycles(dut.clk, config.link_latency + 5)
    # The other side keeps its rank and refuses most of them.
    for number, peer in enumerate(random.sample(range(64), 64), start=1):
        bench.ranks["b"] = peer
        for port in range(config.links):
            dut.a_route.value = random.getrandbits(64) & ~(1 << peer) | port << peer
            for kind in ("dma", "store"):
                bench.packet("a", kind, length=1)
            await ClockCycles(dut.clk, random.randint(1, 8))
            dut.stall.value = 1
            await ClockCycles(dut.clk, 6)
            dut.stall.value = 0
            await ClockCycles(dut.clk, 12)
            assert bench.counted_at("a", port)["sent_packets"] == 2 * number
    await bench.finish()


@cocotb.test()
async def packets_take_turns_and_fill_the_link(dut):
    """Two sources of 8-sector packets share a 32 B/cycle link evenly and without a bubble."""
    config = SIZES["paper"]
    bench = PairBench(dut, config)
    await bench.reset()
    arrivals = []

    async def watch():
        cycle = 0
        while True:
            await ReadOnly()
            if int(dut.b_requests__0__valid.value):
                arrivals.append((cycle, int(dut.b_requests__0__payload.value)))
            await RisingEdge(dut.clk)
            cycle += 1

    cocotb.start_soon(watch())
    for _ in range(32):
        bench.packet("a", "dma", length=8)
        bench.packet("a", "store", length=8)
    await bench.finish()
    bench.check(ordered=True)
    headers = [unpack(bench.messages.link_header, flit >> 2)["wg"] % 2 for flit in bench.sent if flit & 1]
    assert headers[:40] in ([0, 1] * 20, [1, 0] * 20)
    span = arrivals[-1][0] - arrivals[0][0] + 1
    dut._log.info(f"{len(arrivals)} sectors of 64 packets in {span} cycles")
    assert span <= 64 * 9 + 2


class KeepsCredit(LinkUnit):
    """A wrong link unit whose sender never gives a credit away."""

    def _transmitter(self) -> Transmitter:
        return Transmitter(preset("paper", link_receive_packets=512))


@pytest.mark.parametrize(
    ("size", "stall", "route"),
    [
        ("paper", 30, "fixed"),
        ("paper", 0, "changing"),
        ("tiny_four_channels", 20, "changing"),
        pytest.param("tiny", 20, "changing", marks=pytest.mark.slow),
        pytest.param("four_channels", 20, "changing", marks=pytest.mark.slow),
        ("one_link", 10, "fixed"),
        ("tiny_four_channels", 0, "fixed"),
    ],
)
def test_random_traffic(size, stall, route):
    environment = {"SIZE": size, "STALL": str(stall), "ROUTE": route}
    simulate(link_pair(SIZES[size]), "link_pair", __name__, "random_traffic", environment=environment)


@pytest.mark.parametrize(
    ("size", "case"),
    [
        ("paper", "corrupted_headers_are_refused"),
        ("tiny_four_channels", "corrupted_headers_are_refused"),
        ("paper", "wrong_length_is_refused"),
        ("paper", "faults_that_wait_leave_the_first_and_the_last_of_each_port"),
        ("paper", "credits_limit_what_is_sent"),
        ("tiny_four_channels", "credits_limit_what_is_sent"),
        ("paper", "packets_take_turns_and_fill_the_link"),
        ("paper", "packets_leave_by_the_port_of_their_peer"),
    ],
)
def test_link_pair(size, case):
    simulate(link_pair(SIZES[size]), "link_pair", __name__, case, environment={"SIZE": size})


@pytest.mark.parametrize("port", [0, 1])
def test_nothing_is_sent_without_grant(port):
    environment = {"SIZE": "paper", "PORT": str(port)}
    simulate(link_pair(SIZES["paper"]), "link_pair", __name__, "nothing_is_sent_without_grant", environment=environment)


def test_wrong_credits_are_caught():
    pair = LinkPair(SIZES["paper"], KeepsCredit)
    with pytest.raises(SimulationError):
        simulate(pair, "link_pair", __name__, "credits_limit_what_is_sent", environment={"SIZE": "paper"})
