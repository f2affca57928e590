"""The runner reports what goes wrong: failed tests, RTL assertions, tests that do not exist; and its seeds repeat."""

import random
import re

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.hdl import Assert
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from sim.errors import SimulationError
from tb.runner import simulate


class Guarded(wiring.Component):
    """Adds one a cycle; asserts in RTL that `bad` is never high."""

    bad: In(1)
    count: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        seen = Signal()
        m.d.sync += [self.count.eq(self.count + 1), seen.eq(self.bad)]
        m.d.comb += Assert(~seen)
        return m


async def start(dut):
    Clock(dut.clk, 1, unit="ns").start()
    dut.bad.value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


@cocotb.test()
async def counts(dut):
    await start(dut)
    await ClockCycles(dut.clk, 5)
    assert int(dut.count.value) > 0


@cocotb.test()
async def compares_wrongly(dut):
    await start(dut)
    assert int(dut.bad.value) == 1, "deliberately wrong"


@cocotb.test()
async def breaks_the_assertion(dut):
    await start(dut)
    dut.bad.value = 1
    await ClockCycles(dut.clk, 5)


@cocotb.test()
async def draws_a_number(dut):
    await start(dut)
    raise AssertionError(f"drew {random.getrandbits(32)}.")


def run(testcase: str, seed: int | None = None) -> None:
    simulate(Guarded(), "guarded", __name__, testcase, seed=seed)


def failure(testcase: str, seed: int | None = None) -> str:
    with pytest.raises(SimulationError) as caught:
        run(testcase, seed)
    return str(caught.value)


def test_a_good_run_is_silent():
    run("counts")


def test_a_failed_test_is_an_error():
    message = failure("compares_wrongly")
    assert "1 of 1 tests failed" in message
    assert "deliberately wrong" in message


def test_a_failed_build_is_an_error(tmp_path):
    source = tmp_path / "broken.sv"
    source.write_text("module broken(; endmodule\n")
    with pytest.raises(SimulationError, match=r"(?s)could not be built.*syntax error"):
        simulate(Guarded(), "guarded", __name__, "counts", sources=[source])


def test_a_failed_rtl_assertion_is_an_error():
    assert "ssert" in failure("breaks_the_assertion")


def test_a_run_without_tests_is_an_error():
    failure("is_not_there")


def test_the_printed_seed_repeats_the_run(monkeypatch):
    message = failure("draws_a_number")
    seed = re.search(r"repeat with: T3_SEED=(\d+) pytest '(\S+)'", message)
    assert seed and seed[2].endswith("test_the_printed_seed_repeats_the_run")
    drawn = re.search(r"drew \d+\.", message)
    assert drawn
    monkeypatch.setenv("T3_SEED", seed[1])
    assert drawn[0] in failure("draws_a_number")
    assert drawn[0] not in failure("draws_a_number", seed=int(seed[1]) + 1)
