"""Ends of an epoch on a link: what waits is discarded, what was begun arrives whole, nothing is taken for a later
epoch."""

import os
import random
from functools import cache

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import preset
from hw.messages import Fault
from tb.drivers.link_pair import RANGES, SIDES, LinkPair, PairBench
from tb.drivers.payload import unpack
from tb.runner import simulate

SIZES = {
    "paper": preset("paper", ranges=RANGES, link_latency=40, link_bandwidth=1024, link_receive_packets=4),
    "tiny_four_channels": preset("tiny", channels=4, ranges=RANGES, link_latency=1, link_bandwidth=256),
}
PACKETS = 12
FLITS = 9
"""Most flits of a packet."""

link_pair = cache(LinkPair)


class EpochBench(PairBench):
    """A pair whose side `a` sends in epochs that end before everything is sent."""

    def tell(self, side: str, **values: int) -> None:
        for name, value in values.items():
            getattr(self.dut, f"{side}_{name}").value = value

    async def call(self, *sides: str) -> None:
        """Arm the next epoch at `sides`."""
        self.epoch = self.epoch % 255 + 1
        for side in sides:
            self.tell(side, epoch=self.epoch, armed=1, arm=1)
        await RisingEdge(self.dut.clk)
        for side in sides:
            self.tell(side, arm=0)

    def flits_waiting(self) -> int:
        return sum(len(source.queue) for source in self.sources.values())

    def writes(self, side: str, epoch: int) -> tuple[list, list]:
        """Writes of an epoch that arrived, and those that were to, in order of their values."""

        def of(requests: list) -> list:
            return sorted(sorted(request.items()) for request in requests if request["epoch"] == epoch)

        return of(self.received(side)), of(self.expected[side])

    def check_ended(self, epoch: int) -> int:
        """What arrived at `b` of `epoch` are whole packets, each once; returns how many."""
        arrived, due = self.writes("b", epoch)
        packets = {dict(request)["wg"] for request in arrived}
        assert arrived == [request for request in due if dict(request)["wg"] in packets]
        return len(packets)


@cocotb.test()
async def an_ended_epoch_is_discarded(dut):
    """Packets that wait for a grant, for a credit, or their turn are discarded whole when their epoch ends, a flit a
    cycle and source; what was begun is sent to its end. The next epoch finds nothing in its way, and no credit
    missing."""
    config = SIZES[os.environ["SIZE"]]
    stopped = [False]
    bench = EpochBench(dut, config, memory_stall=lambda: stopped[0])
    await bench.reset(armed=False)
    for reason in ("silent", "full", "busy", "busy") * int(os.environ["ROUNDS"]):
        bench.fix_routes()
        await bench.call(*(("a",) if reason == "silent" else ("a", "b")))
        stopped[0] = reason == "full"
        before = bench.counted("a")
        for number in range(PACKETS):
            bench.packet("a", ("dma", "store")[number % 2])
        if reason == "busy":
            await ClockCycles(dut.clk, config.link_latency + random.randrange(1, 60))
        else:
            await ClockCycles(dut.clk, 2 * config.link_latency + 40 * FLITS)
        if reason == "silent":
            # A grant that comes late, of an epoch that has ended here, opens nothing.
            bench.tell("b", epoch=bench.epoch, armed=1, arm=1)
            await RisingEdge(dut.clk)
            bench.tell("b", arm=0)
            await ClockCycles(dut.clk, random.randrange(config.link_latency))
        bench.tell("a", armed=0)
        await ClockCycles(dut.clk, (PACKETS + 2) * FLITS)
        assert not bench.flits_waiting(), f"{bench.flits_waiting()} flits wait on ({reason})"
        stopped[0] = False
        ended = bench.epoch
        await bench.finish()
        counts = bench.counted("a")
        sent, gone = (counts[name] - before[name] for name in ("sent_packets", "discarded_packets"))
        assert sent + gone == PACKETS, (reason, sent, gone)
        assert bench.check_ended(ended) == sent
        assert sent == {"silent": 0, "full": config.link_receive_packets}.get(reason, sent)
        await bench.call(*SIDES)
        for side in SIDES:
            for _ in range(2 * config.link_receive_packets + 3):
                bench.packet(side, random.choice(["dma", "store"]))
        await bench.finish()
        for side in SIDES:
            arrived, due = bench.writes(side, bench.epoch)
            assert arrived == due
            bench.tell(side, armed=0)
    assert not any(bench.faults[side].received for side in SIDES)


@cocotb.test()
async def a_packet_cannot_outlive_its_epoch(dut):
    """The receiver is disarmed, and at times armed anew, while packets of the old epoch arrive: whatever their place on
    the way, nothing of them is written after that, each gives its credit back, and those refused are reported."""
    config = SIZES[os.environ["SIZE"]]
    bench = EpochBench(dut, config)
    await bench.reset(armed=False)
    for _ in range(int(os.environ["ROUNDS"])):
        bench.fix_routes()
        await bench.call(*SIDES)
        for number in range(4):
            bench.packet("a", ("dma", "store")[number % 2])
        await ClockCycles(dut.clk, 2 * config.link_latency + random.randrange(4, 60))
        bench.tell("b", armed=0)
        ended = bench.epoch
        # A packet accepted in the cycle in which `armed` falls is on its way to memory a few cycles later.
        await ClockCycles(dut.clk, 4 + 8 * config.link_receive_packets)
        written = len(bench.received("b"))
        if random.random() < 0.5:
            bench.epoch = bench.epoch % 255 + 1
            bench.tell("b", epoch=bench.epoch, armed=1)
        await bench.finish()
        assert len(bench.received("b")) == written, "a sector of an ended epoch was written"
        accepted = bench.check_ended(ended)
        faults = [unpack(bench.messages.fault_record, bits) for bits in bench.faults["b"].received]
        assert len(faults) <= 4 - accepted
        assert bool(faults) == (accepted < 4)
        assert all(fault["fault"] == Fault.EPOCH.value for fault in faults)
        bench.faults["b"].received.clear()
        bench.tell("a", armed=0)
        bench.tell("b", armed=0)


CASES = {"an_ended_epoch_is_discarded": 3, "a_packet_cannot_outlive_its_epoch": 40}
"""Rounds of each case; the quick tests do a third of them."""


def run(size: str, case: str, rounds: int) -> None:
    environment = {"SIZE": size, "ROUNDS": str(rounds)}
    simulate(link_pair(SIZES[size]), "link_pair", __name__, case, environment=environment)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_link_epochs(size, case):
    run(size, case, -(-CASES[case] // 3))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_link_epochs_at_length(size, case):
    run(size, case, CASES[case])
