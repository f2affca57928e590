"""Coverage of Amaranth source: designs small enough to know by eye what a stimulus covers."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import cocotb
import numpy as np
import pytest
from amaranth import EnableInserter, Module, Signal, Value
from amaranth.hdl import ClockDomain, Fragment
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from sim.errors import SimulationError
from tb import coverage_runs
from tb.runner import simulate
from tb.source_coverage.instrument import IMPLICIT_ELSE, instrument
from tb.source_coverage.lcov import lcov_info
from tb.source_coverage.points import Point, PointMap, SourceCoverage, read_bits

HERE = Path(__file__)
SOURCE = HERE.read_text().splitlines()


def line_of(mark: str) -> int:
    """The line of this file that ends in the comment `mark`."""
    (line,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith(f"# {mark}")]
    return line


class Limiter(wiring.Component):
    """Follows `value` up to 9, synchronously; tells at once when it is more."""

    value: In(4)
    limited: Out(4)
    high: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.value < 10):  # low arm
            m.d.sync += self.limited.eq(self.value)  # follow
        with m.Else():  # high arm
            m.d.comb += self.high.eq(1)  # tell
            m.d.sync += self.limited.eq(9)  # limit
        with m.If(self.value == 15):  # only if
            m.d.sync += self.limited.eq(0)  # drop
        return m


class Light(wiring.Component):
    """A traffic light. Nobody can ever ask for the way back from YELLOW to GREEN."""

    step: In(1)
    state: Out(2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        never = Signal()
        with m.FSM():
            with m.State("RED"):  # red
                with m.If(self.step):
                    m.next = "GREEN"  # red to green
            with m.State("GREEN"):  # green
                m.d.comb += self.state.eq(1)
                with m.If(self.step):
                    m.next = "RED"  # overruled
                    m.next = "YELLOW"  # green to yellow
            with m.State("YELLOW"):  # yellow
                m.d.comb += self.state.eq(2)
                with m.If(never):
                    m.next = "GREEN"  # dead
                with m.Elif(self.step):
                    m.next = "RED"  # yellow to red
        return m


class Pair(wiring.Component):
    """Two limiters, one of which sees small numbers only and one large ones only."""

    value: In(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.small = small = Limiter()
        m.submodules.large = large = Limiter()
        m.d.comb += [small.value.eq(self.value[:3]), large.value.eq(self.value | 10)]
        return m


class Kind(enum.Enum, shape=2):
    """Three of four codes."""

    ONE = 0
    TWO = 1
    THREE = 2


class Nested(wiring.Component):
    """A Switch in a Switch in an If."""

    go: In(1)
    kind: In(Kind)
    inner: In(2)
    chosen: Out(4)
    last: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.last.eq(self.chosen)
        with m.If(self.go):
            with m.Switch(self.kind):  # kinds
                with m.Case(Kind.ONE):
                    with m.Switch(self.inner):  # inner
                        with m.Case(0, 1):  # inner low
                            m.d.comb += self.chosen.eq(1)
                        with m.Case(2):  # inner 2
                            m.d.comb += self.chosen.eq(2)
                with m.Case(Kind.TWO):
                    m.d.comb += self.chosen.eq(3)
                with m.Case(Kind.THREE):
                    m.d.comb += self.chosen.eq(4)
        return m


class Wired(wiring.Component):
    """Statements that a function of Amaranth makes: of a view, of a connection."""

    go: In(1)
    taken: Out(data.StructLayout({"low": 2, "high": 2}))
    source: In(stream.Signature(4))
    sink: Out(stream.Signature(4))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = SyncFIFOBuffered(width=4, depth=2)
        wiring.connect(m, wiring.flipped(self.source), queue.w_stream)  # connection in
        wiring.connect(m, wiring.flipped(self.sink), queue.r_stream)
        with m.If(self.go):
            m.d.sync += self.taken.eq(self.source.payload)  # view
        return m


def measure(component: wiring.Component, stimulus: Iterable[dict[str, int]]) -> SourceCoverage:
    """Coverage of `component` after one cycle for each of `stimulus` (name of a port -> value)."""
    fragment, points, seen = instrument(component, [HERE])
    simulator = Simulator(fragment)
    simulator.add_clock(1e-6)
    coverage = SourceCoverage()

    async def bench(ctx) -> None:
        for values in stimulus:
            for name, value in values.items():
                ctx.set(getattr(component, name), value)
            await ctx.tick()
        word = ctx.get(seen)
        coverage.add(points, np.array([word >> bit & 1 for bit in range(len(points.bits))], dtype=bool))

    simulator.add_testbench(bench)
    simulator.run()
    return coverage


def missing(coverage: SourceCoverage, kind: str) -> set[tuple[int, str]]:
    """Line and label of what was not covered."""
    return {(point.line, point.label) for point in coverage.missing() if point.kind == kind}


def test_an_else_that_no_value_takes():
    coverage = measure(Limiter(), [{"value": value} for value in range(10)])
    assert missing(coverage, "statement") == {(line_of(mark), "") for mark in ("tell", "limit", "drop")}
    assert missing(coverage, "branch") == {(line_of("high arm"), ""), (line_of("only if"), "")}
    assert coverage.count("statement") == (1, 4)
    assert coverage.count("branch") == (2, 4)


def test_an_if_without_else_has_two_branches():
    coverage = measure(Limiter(), [{"value": 15}])
    assert missing(coverage, "branch") == {(line_of("low arm"), ""), (line_of("only if"), IMPLICIT_ELSE)}
    assert missing(coverage, "statement") == {(line_of("follow"), "")}


def test_combinational_and_synchronous_statements():
    coverage = measure(Limiter(), [{"value": 3}, {"value": 12}, {"value": 15}])
    assert not list(coverage.missing())


def test_a_dead_arc_and_an_overruled_one():
    coverage = measure(Light(), [{"step": 1}] * 4)
    assert missing(coverage, "arc") == {
        (line_of("dead"), "fsm: YELLOW -> GREEN"),
        (line_of("overruled"), "fsm: GREEN -> RED"),
    }
    assert coverage.count("arc") == (3, 5)
    assert coverage.count("state") == (3, 3)
    # The overruled statement was executed all the same.
    assert missing(coverage, "statement") == {(line_of("dead"), "")}


def test_a_state_never_entered():
    coverage = measure(Light(), [{"step": 1}, {"step": 0}])
    assert missing(coverage, "state") == {(line_of("yellow"), "fsm: YELLOW")}


def test_two_instances_count_as_one_source():
    stimulus = [{"value": 5}, {"value": 2}]
    merged = measure(Pair(), stimulus)
    assert missing(merged, "statement") == set()
    assert missing(merged, "branch") == set()
    for instance in ("small", "large"):
        values = [{"value": each["value"] & 7 if instance == "small" else each["value"] | 10} for each in stimulus]
        assert list(measure(Limiter(), values).missing()), instance


def test_nested_switches():
    stimulus = [{"go": 1, "kind": 0, "inner": 0}, {"kind": 1}, {"go": 0, "kind": 2, "inner": 2}]
    coverage = measure(Nested(), stimulus)
    lines = {line for line, _ in missing(coverage, "branch")}
    assert line_of("inner 2") in lines
    assert line_of("inner low") not in lines
    # A value 3 of `inner` has no arm of its own; the enumeration has all of its.
    assert (line_of("inner"), IMPLICIT_ELSE) in missing(coverage, "branch")
    assert Point("branch", str(HERE), line_of("kinds"), IMPLICIT_ELSE) not in coverage.covered


def test_statements_that_the_library_makes_count_where_it_is_called():
    coverage = measure(Wired(), [{}, {}])
    assert missing(coverage, "statement") == {(line_of("view"), "")}
    assert coverage.covered[Point("statement", str(HERE), line_of("connection in"))]
    # What is inside the library's own FIFO does not count at all.
    assert coverage.count("statement") == (2, 3)


def test_an_inserted_enable_holds_back_what_it_stops():
    enable = Signal()
    limiter = Limiter()
    coverage = measure(EnableInserter(enable)(limiter), [{}, {}])
    assert (line_of("follow"), "") in missing(coverage, "statement")


def test_an_fsm_keeps_its_states_and_arcs_behind_an_enable():
    enable = Signal(init=1)
    coverage = measure(EnableInserter(enable)(Light()), [{"step": 1}] * 4)
    assert coverage.count("arc") == (3, 5)
    assert coverage.count("state") == (3, 3)
    assert not any(label == IMPLICIT_ELSE and line < line_of("red") for line, label in missing(coverage, "branch"))


def test_nothing_counts_in_reset():
    class Held(wiring.Component):
        """Counts whenever it is not reset."""

        count: Out(4)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.sync += self.count.eq(self.count + 1)  # counting
            return m

    fragment, points, seen = instrument(Held(), [HERE])
    fragment.add_domains(domain := ClockDomain("sync"))
    simulator = Simulator(fragment)
    simulator.add_clock(1e-6)

    async def bench(ctx) -> None:
        ctx.set(domain.rst, 1)
        for _ in range(3):
            await ctx.tick()
        assert ctx.get(seen) == 0
        ctx.set(domain.rst, 0)
        await ctx.tick()
        assert ctx.get(seen) == (1 << len(points.bits)) - 1

    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("make", [Limiter, Light, Nested])
def test_instrumentation_changes_no_port(make: Callable[[], wiring.Component]):
    """The same random stimulus gives the same outputs in every cycle, with and without instrumentation."""

    def outputs(instrumented: bool) -> list[tuple[int, ...]]:
        component = make()
        fragment = Fragment.get(component, None)
        if instrumented:
            instrument(fragment, [HERE])
        simulator = Simulator(fragment)
        simulator.add_clock(1e-6)
        members = component.signature.members
        answer = []
        choice = random.Random(7)

        async def bench(ctx) -> None:
            for _ in range(500):
                for name, member in members.items():
                    if member.flow == In:
                        port = Value.cast(getattr(component, name))
                        ctx.set(port, choice.randrange(3 if name == "kind" else 1 << len(port)))
                answer.append(tuple(ctx.get(getattr(component, n)) for n, m in members.items() if m.flow == Out))
                await ctx.tick()

        simulator.add_testbench(bench)
        simulator.run()
        return answer

    assert outputs(True) == outputs(False)
    assert len(set(outputs(True))) > 1


@cocotb.test()
async def one_cycle_each(dut):
    for values in (3, 12):
        dut.value.value = values
        if values == 3:
            Clock(dut.clk, 1, unit="ns").start()
            dut.rst.value = 1
            await ClockCycles(dut.clk, 2)
            dut.rst.value = 0
        await ClockCycles(dut.clk, 2)


@pytest.mark.parametrize("kind", ["source", "1"])
def test_a_simulation_leaves_its_coverage(monkeypatch, tmp_path, kind: str):
    """Through Verilator and the test runner: the file of a run says what the two values cover."""
    monkeypatch.setenv("T3_COVERAGE", kind)
    monkeypatch.setattr(coverage_runs, "COVERAGE", tmp_path)
    monkeypatch.setattr(coverage_runs, "RTL", HERE)
    simulate(Limiter(), "limiter", __name__, "one_cycle_each")
    (record,) = (tmp_path / "runs").glob("*.json")
    entry = json.loads(record.read_text())
    assert entry["test"].endswith(f"test_a_simulation_leaves_its_coverage[{kind}]")
    coverage = SourceCoverage()
    points = PointMap.read(tmp_path / "designs" / entry["design"] / "points.json")
    coverage.add(points, np.array([bit == "1" for bit in entry["bits"]]))
    assert missing(coverage, "statement") == {(line_of("drop"), "")}
    assert ("keys" in entry) == (kind == "1")


def test_a_build_knows_whether_its_design_was_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(coverage_runs, "COVERAGE", tmp_path / "coverage")
    assert coverage_runs.can_record(tmp_path)
    coverage_runs.CoverageBuild("text", (), (HERE,), "[]").save(tmp_path)
    assert coverage_runs.can_record(tmp_path)
    shutil.rmtree(tmp_path / "coverage")
    assert not coverage_runs.can_record(tmp_path)


def test_a_run_that_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("T3_COVERAGE", "source")
    monkeypatch.setattr(coverage_runs, "COVERAGE", tmp_path)
    monkeypatch.setattr(coverage_runs, "RTL", HERE)
    with pytest.raises(SimulationError):
        simulate(Limiter(), "limiter", __name__, "no_such_test")
    assert not (tmp_path / "runs").exists()


def test_merging_is_or():
    points = PointMap([[Point("statement", "a.py", 1)], [Point("statement", "a.py", 2)]])
    total = SourceCoverage()
    for bits in ([True, False], [False, False], [False, True]):
        total.add(points, np.array(bits))
    assert total.count("statement") == (2, 2)
    with pytest.raises(ValueError, match="3 coverage bits for a design with 2"):
        total.add(points, np.array([True] * 3))


def test_a_damaged_file_of_bits_is_refused(tmp_path):
    path = tmp_path / "source_coverage.txt"
    path.write_text("0110\n1000\n")
    assert read_bits(path).tolist() == [True, True, True, False]
    for text in ("", "01\n010\n", "01x\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a list of coverage bits"):
            read_bits(path)


def test_lcov_lists_lines_and_branches():
    coverage = measure(Limiter(), [{"value": 3}])
    text = lcov_info(coverage, "unit").replace(str(HERE), "this.py")
    follow, tell = line_of("follow"), line_of("tell")
    assert f"DA:{follow},1\n" in text
    assert f"DA:{tell},0\n" in text
    assert f"BRDA:{line_of('high arm')},0,0,0\n" in text
    assert text.startswith("TN:unit\nSF:this.py\n")
    assert text.endswith("LF:4\nLH:1\nBRF:4\nBRH:2\nend_of_record\n")
