"""The stream arbiter: nothing lost or reordered within an input, fair, payload stable until taken."""

import os

import cocotb
import pytest
from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import unsigned
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly

from hw.primitives.stream_arbiter import StreamArbiter
from tb.drivers.stream import Stall, StreamSink, StreamSource, never, stalls
from tb.runner import caught, simulate

PAYLOADS = 400


class FirstComesFirst(StreamArbiter):
    """Deliberately wrong: the lowest input always wins, even over a payload already offered."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.inputs[0].valid):
            m.d.comb += [self.output.payload.eq(self.inputs[0].payload), self.inputs[0].ready.eq(self.output.ready)]
        for before, port in zip(self.inputs, self.inputs[1:]):
            with m.Elif(port.valid & ~before.valid):
                m.d.comb += [self.output.payload.eq(port.payload), port.ready.eq(self.output.ready)]
        valids = Signal(len(self.inputs))
        m.d.comb += [valids.eq(Cat(port.valid for port in self.inputs)), self.output.valid.eq(valids.any())]
        # A design without a register would have no port `clk`.
        unused = Signal()
        m.d.sync += unused.eq(self.output.valid)
        return m


async def merge(dut, inputs: int, source_stall: Stall) -> list[int]:
    """What comes out when every input is given PAYLOADS words {input, number}."""
    sources = [StreamSource(dut, f"inputs__{index}", dut.clk, source_stall) for index in range(inputs)]
    sink = StreamSink(dut, "output", dut.clk, stalls(50))
    for index, source in enumerate(sources):
        source.queue.extend(index << 12 | number for number in range(PAYLOADS))
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    for source in sources:
        await source.drain()
    await ClockCycles(dut.clk, 2)
    return list(sink.received)


@cocotb.test()
async def nothing_is_lost(dut):
    inputs = int(os.environ["T3_INPUTS"])
    received = await merge(dut, inputs, stalls(40))
    for index in range(inputs):
        assert [word & 0xFFF for word in received if word >> 12 == index] == list(range(PAYLOADS))


@cocotb.test()
async def every_input_gets_its_share(dut):
    inputs = int(os.environ["T3_INPUTS"])
    first = [word >> 12 for word in await merge(dut, inputs, never)][: inputs * PAYLOADS // 2]
    for start in range(len(first) - inputs + 1):
        assert len(set(first[start : start + inputs])) == inputs, f"unfair from transfer {start}"


@cocotb.test()
async def an_idle_arbiter_keeps_nobody(dut):
    """While nothing is offered the output may wait as long as it likes: whoever comes first then is let through."""
    inputs = int(os.environ["T3_INPUTS"])
    Clock(dut.clk, 1, unit="ns").start()
    ports = [
        [getattr(dut, f"inputs__{index}__{name}") for name in ("valid", "payload", "ready")] for index in range(inputs)
    ]
    for index, (valid, payload, _) in enumerate(ports):
        valid.value, payload.value = 0, 1000 + index
    dut.output__ready.value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    for index in [*range(inputs), *reversed(range(inputs))]:
        await ClockCycles(dut.clk, 3)
        ports[index][0].value = 1
        await ClockCycles(dut.clk, 3)
        assert (int(dut.output__valid.value), int(dut.output__payload.value)) == (1, 1000 + index)
        dut.output__ready.value = 1
        await ReadOnly()
        assert [int(ready.value) for _, _, ready in ports] == [int(other == index) for other in range(inputs)]
        await ClockCycles(dut.clk, 1)
        ports[index][0].value = 0
        dut.output__ready.value = 0


class Sticky(StreamArbiter):
    """Deliberately wrong: while the output waits the choice stands, even if nothing is offered."""

    def _stands(self) -> Value:
        return ~self.output.ready


def run(testcase: str, inputs: int, kind: type[StreamArbiter] = StreamArbiter) -> None:
    simulate(kind(unsigned(16), inputs), "arbiter", __name__, testcase, environment={"T3_INPUTS": str(inputs)})


@pytest.mark.parametrize("inputs", [2, 3])
def test_nothing_is_lost(inputs):
    run("nothing_is_lost", inputs)


def test_every_input_gets_its_share():
    run("every_input_gets_its_share", 3)


@pytest.mark.parametrize("inputs", [2, 3])
def test_an_idle_arbiter_keeps_nobody(inputs):
    run("an_idle_arbiter_keeps_nobody", inputs)


def test_a_sticky_arbiter_is_caught():
    with caught("an_idle_arbiter_keeps_nobody"):
        run("an_idle_arbiter_keeps_nobody", 3, Sticky)


def test_a_greedy_arbiter_is_caught():
    with caught("unfair"):
        run("every_input_gets_its_share", 3, FirstComesFirst)


def test_an_arbiter_that_changes_its_mind_is_caught():
    with caught("payload changed"):
        run("nothing_is_lost", 3, FirstComesFirst)
