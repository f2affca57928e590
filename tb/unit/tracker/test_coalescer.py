"""The coalescer loses no byte, keeps runs together and costs no cycle."""

import random
from functools import cache, partial

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import preset
from hw.messages import Messages
from hw.tracker.coalescer import Coalescer
from tb.drivers import payload
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.runner import caught, simulate

coalescer = cache(Coalescer)

CONFIG = preset("paper", count_bits=8)
LAYOUT = Messages(CONFIG).commit
pack, unpack = partial(payload.pack, LAYOUT), partial(payload.unpack, LAYOUT)


async def start(dut, source_stalls: int, sink_stalls: int) -> tuple[StreamSource, StreamSink]:
    Clock(dut.clk, 1, unit="ns").start()
    # What would merge often stands on the port after it was taken.
    source = StreamSource(
        dut, "commits", dut.clk, stalls(source_stalls), idle=lambda last: last ^ random.getrandbits(1)
    )
    sink = StreamSink(dut, "messages", dut.clk, stalls(sink_stalls))
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    return source, sink


@cocotb.test()
async def sums_are_kept(dut):
    source, sink = await start(dut, 20, random.choice((10, 50, 90)))
    sent = []
    names = ("range", "wg", "wf", "epoch")
    key = {name: random.getrandbits(LAYOUT[name].width) for name in names}
    va = random.getrandbits(43)
    for _ in range(3000):
        if random.random() < 0.3:
            # The next WF tile differs in one bit, so that every bit of the key matters once.
            name = random.choice(names)
            key = {**key, name: key[name] ^ 1 << random.randrange(LAYOUT[name].width)}
        # So with addresses, or only their highest bits would decide which is lower.
        va = va ^ 1 << random.randrange(43) if random.random() < 0.8 else random.getrandbits(43)
        sent.append({**key, "va": va, "bytes": random.choice((32, 32, 2, 127, 255))})
        source.queue.append(pack(**sent[-1]))
    await source.drain()
    for _ in range(200):
        await RisingEdge(dut.clk)
    # Every message is the sum and the minimum of the next few commits of its key.
    position = 0
    for value in sink.received:
        message = unpack(value)
        total, lowest = 0, 1 << 43
        while total < message["bytes"]:
            item = sent[position]
            assert all(item[name] == message[name] for name in key)
            total, lowest, position = total + item["bytes"], min(lowest, item["va"]), position + 1
        assert (total, lowest) == (message["bytes"], message["va"])
    assert position == len(sent)
    assert len(sink.received) < len(sent)


@cocotb.test()
async def idle_costs_nothing(dut):
    source, sink = await start(dut, 0, 0)
    await RisingEdge(dut.clk)
    for number in range(50):
        source.queue.append(pack(wg=1, va=number, bytes=2))
    for _ in range(60):
        await RisingEdge(dut.clk)
        await ReadOnly()
        assert int(dut.messages__valid.value) == int(dut.commits__valid.value)
        if int(dut.messages__valid.value):
            assert int(dut.messages__payload.value) == int(dut.commits__payload.value)
    assert len(sink.received) == 50


@cocotb.test()
async def runs_are_gathered(dut):
    """While no message is taken, a commit is offered, a run is gathered a commit a cycle, and a commit waits behind."""
    source, sink = await start(dut, 0, 0)
    sink.stall = lambda: True
    for pause in (0, 1, 5):
        runs = (1, random.randint(1, 20), 1)
        for run, length in enumerate(runs):
            source.queue.extend(pack(wg=run, bytes=2) for _ in range(length))
            before = source.taken
            for _ in range(length + 1):
                await RisingEdge(dut.clk)
            await ReadOnly()
            assert source.taken - before == length, "not a commit a cycle"
            for _ in range(pause):
                await RisingEdge(dut.clk)
        source.queue.append(pack(wg=9, bytes=2))
        for _ in range(20):
            await RisingEdge(dut.clk)
        assert source.queue, "a fourth run is taken"
        sink.stall = lambda: False
        await source.drain()
        for _ in range(10):
            await RisingEdge(dut.clk)
        assert sum(unpack(message)["bytes"] for message in sink.received) == 2 * (sum(runs) + 1)
        sink.received.clear()
        sink.stall = lambda: True


@pytest.mark.parametrize("test", ["sums_are_kept", "idle_costs_nothing", "runs_are_gathered"])
def test_coalescer(test):
    simulate(coalescer(CONFIG), "coalescer", __name__, test)


class ForgetfulCoalescer(Coalescer):
    """Takes a commit it has no place for."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.commits.ready.eq(1)
        return m


def test_a_lost_commit_is_caught():
    with caught("assert"):
        simulate(ForgetfulCoalescer(CONFIG), "coalescer", __name__, "sums_are_kept")
