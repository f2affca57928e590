"""The protocol checker around every design: it finds the streams, lets good ones pass and stops bad ones."""

import os

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from sim.errors import SimulationError
from tb.drivers.stream import StreamSink, stalls
from tb.drivers.stream_checker import checked, stream_ports
from tb.runner import simulate

WORDS = stream.Signature(8)


class Counting(wiring.Component):
    """Offers 0, 1, 2, ... on `words`; `fault` "valid": gives up in every eighth cycle, "payload": counts on anyway."""

    words: Out(WORDS)
    unused: In(WORDS).array(2)

    def __init__(self, fault: str = ""):
        self._fault = fault
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cycle = Signal(3)
        m.d.sync += cycle.eq(cycle + 1)
        m.d.comb += self.words.valid.eq((cycle != 0) | (self._fault != "valid"))
        with m.If(self.words.ready | (self._fault == "payload")):
            m.d.sync += self.words.payload.eq(self.words.payload + 1)
        return m


class WithoutStreams(wiring.Component):
    """One plain port."""

    flag: In(1)


async def start(dut):
    Clock(dut.clk, 1, unit="ns").start()
    for index in range(2):
        getattr(dut, f"unused__{index}__valid").value = 0
    dut.words__ready.value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0


@cocotb.test()
async def words_are_taken_with_stalls(dut):
    await start(dut)
    if "T3_SINK" in os.environ:
        StreamSink(dut, "words", dut.clk, stalls(60))
    await ClockCycles(dut.clk, 100)


@cocotb.test()
async def a_driver_that_withdraws_its_offer(dut):
    await start(dut)
    dut.unused__1__valid.value = 1
    await ClockCycles(dut.clk, 2)
    dut.unused__1__valid.value = 0
    await ClockCycles(dut.clk, 5)


def run(fault: str, testcase: str = "words_are_taken_with_stalls", **environment: str) -> None:
    simulate(Counting(fault), "counting", __name__, testcase, environment=environment)


def test_streams_in_arrays_are_found():
    assert [name for name, _ in stream_ports(Counting())] == ["words", "unused__0", "unused__1"]
    plain = WithoutStreams()
    assert checked(plain) is plain


def test_a_good_stream_passes():
    run("", T3_SINK="1")


@pytest.mark.parametrize(("fault", "message"), [("valid", "valid fell"), ("payload", "payload changed")])
def test_a_bad_stream_stops_the_simulation(fault, message):
    with pytest.raises(SimulationError, match=f"stream words: .*{message}"):
        run(fault)


def test_a_bad_driver_stops_the_simulation():
    with pytest.raises(SimulationError, match="stream unused__1: valid fell"):
        run("", "a_driver_that_withdraws_its_offer")
