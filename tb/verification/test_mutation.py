"""Mutation testing itself: faults are made and noticed, a harmless one is proven so, the score counts as it says."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext

import cocotb
import pytest
from amaranth import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge, Timer

import tb.runner
from hw.export.verilog import to_rtlil
from sim.errors import UsageError
from tb.mutation import campaign, equivalence, fork_server
from tb.mutation.blocks import BLOCKS, Block
from tb.mutation.campaign import MutantResult
from tb.mutation.equivalence import is_equivalent, lead_nowhere
from tb.mutation.execution import Attempt, Trial, kill, prepared
from tb.mutation.fork_server import STARVED, STOPPED, stopped_outcome
from tb.mutation.jobs import SimulationJob, run_apart
from tb.mutation.netlist import ROOT, Mutant, apply_mutants, list_mutants
from tb.mutation.outcomes import keep_outcome, netlist_digest, read_outcomes
from tb.mutation.processes import in_processes
from tb.mutation.summary import Reason, read_reasons, record_scores, score, summarize, write
from tb.runner import Simulation, simulate


class Limiter(wiring.Component):
    """`output` is the last `value`, at most 200. The comparison is also made a second time, to no effect."""

    value: In(8)
    output: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        above = Signal()
        m.d.comb += above.eq(self.value > 200)
        m.d.sync += self.output.eq(Mux(above, 200, Mux(above & (self.value < 100), 7, self.value)))
        return m


class Complement(wiring.Component):
    """`output` is the complement of `highest`."""

    highest: In(8)
    output: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.output.eq(~self.highest)
        return m


class Peak(wiring.Component):
    """`output` is the complement of the highest `value` since reset: a register without a port, named like a port of
    the submodule that reads it, keeps that."""

    value: In(8)
    output: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        highest = Signal(8)
        m.submodules.complement = complement = Complement()
        m.d.comb += [complement.highest.eq(highest), self.output.eq(complement.output)]
        with m.If(self.value > highest):
            m.d.sync += highest.eq(self.value)
        return m


class Half(wiring.Component):
    """`output` is the complement of the low half of the last `value`; of the other half, kept too, nobody reads more
    than a counter of its own."""

    value: In(8)
    output: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.complement = complement = Complement()
        last, count = Signal(8), Signal(4)
        m.d.sync += [last.eq(self.value), count.eq(count + complement.output[4:])]
        m.d.comb += [complement.highest.eq(last), self.output.eq(complement.output)]
        return m


class Delayed(wiring.Component):
    """`output` is what `value` was eight cycles ago, out of a memory with one port of each kind."""

    value: In(4)
    output: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.values = values = memory.Memory(shape=4, depth=8, init=[])
        write, read = values.write_port(), values.read_port(domain="comb")
        place = Signal(3)
        m.d.sync += place.eq(place + 1)
        m.d.comb += [write.addr.eq(place), write.data.eq(self.value), write.en.eq(1)]
        m.d.comb += [read.addr.eq(place), self.output.eq(read.data)]
        return m


class Fifth(wiring.Component):
    """`output` is the fifth word of a memory, every fifth cycle, else 0; `value` would be written in a state
    that is not reached."""

    value: In(4)
    output: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=4, depth=8, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        place, last = Signal(3), Signal()
        m.d.comb += [write.en.eq(place.all()), write.addr.eq(place), write.data.eq(self.value)]
        m.d.comb += [last.eq(place == 4), read.addr.eq(place), self.output.eq(Mux(last, read.data, 0))]
        m.d.sync += place.eq(Mux(last, 0, place + 1))
        return m


class Table(wiring.Component):
    """`output` is word `place` of a table that nobody writes, if that is the last; else 0."""

    place: In(2)
    output: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=4, depth=4, init=[1, 3, 9, 15])
        read = words.read_port(domain="comb")
        m.d.comb += [read.addr.eq(self.place), self.output.eq(Mux(self.place == 3, read.data, 0))]
        return m


@cocotb.test()
async def values_are_limited(dut):
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    for value in range(256):
        dut.value.value = value
        await RisingEdge(dut.clk)
        await Timer(1, unit="ps")
        assert int(dut.output.value) == min(value, 200)


@cocotb.test()
async def peak_can_be_set(dut):
    Clock(dut.clk, 1, unit="ns").start()
    dut.value.value = 0
    for start in (0x00, 0xFF, 0x5A, 0xA5):
        dut.highest.value = start
        for _ in range(2):
            await RisingEdge(dut.clk)
            await Timer(1, unit="ps")
            assert int(dut.output.value) == start ^ 0xFF


@cocotb.test()
async def waits_for_a_value_that_never_comes(dut):
    Clock(dut.clk, 1, unit="ns").start()
    while True:
        await RisingEdge(dut.clk)
        await ReadOnly()
        if int(dut.output.value) == 201:
            return


RTLIL = to_rtlil(Limiter(), "limiter", sources=True)


NO_MUTANTS = apply_mutants(RTLIL, "limiter", [])


def job(testcase: str, name: str = "limiter") -> SimulationJob:
    return SimulationJob("test", "netlist", name, Simulation(name, __name__, testcase, 1, {}, []), ())


def test_every_mutant_is_noticed_or_proven_equivalent():
    mutants = list_mutants(RTLIL, "limiter", ("tb/verification/test_mutation.py",), 20, 1)
    assert len(mutants) == 20 and all(mutant.sources for mutant in mutants)
    with prepared([job("values_are_limited")], apply_mutants(RTLIL, "limiter", mutants)) as trials:
        noticed = {mutant.number: kill(trials, mutant.number).killed for mutant in mutants}
    proven = {mutant.number: is_equivalent(RTLIL, mutant) for mutant in mutants}
    assert sum(noticed.values()) >= 10 and sum(proven.values()) >= 1
    assert not any(noticed[number] and proven[number] for number in noticed), "a proof that a simulation refutes"
    assert all(noticed[number] or proven[number] for number in noticed)


@pytest.mark.wide
def test_several_mutants_at_a_time_end_as_one_after_the_other_does(tmp_path):
    mutants = list_mutants(RTLIL, "limiter", ("tb/verification/test_mutation.py",), 12, 1)
    found = []
    for processes in (1, 3):
        results = tmp_path / f"{processes}.jsonl"
        said: list[str] = []
        jobs = [job("values_are_limited")]
        tried = campaign._run_netlist("limiter", RTLIL, [*jobs], mutants, results, said.append, processes)
        found.append({result.number: (result.outcome, result.test, result.by) for result in tried})
        assert f"limiter: mutant {list(found[-1])[-1]}, 12 of 12" == said[-1]
        assert len(results.read_text().splitlines()) == 12
    assert found[0] == found[1] and len(found[0]) == 12


def test_what_goes_wrong_in_a_process_ends_all(monkeypatch):
    def works(part):
        for item in part:
            if item == 5:
                raise ValueError("five")
            if item == 7:
                os._exit(3)
            yield item * item

    assert sorted(in_processes(works, range(5), 2)) == [0, 1, 4, 9, 16] == list(in_processes(works, range(5), 1))
    with pytest.raises(ValueError, match="five"):
        list(in_processes(works, [4, 5], 2))
    monkeypatch.setattr("tb.mutation.processes._LOOK_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="before its time"):
        list(in_processes(works, [6, 7], 2))


def test_what_nobody_reads_is_known_through_modules_and_registers():
    rtlil = to_rtlil(Half(), "half", sources=True)
    mutants = list_mutants(rtlil, "half", ("tb/verification/test_mutation.py",), 200, 1)
    unread = lead_nowhere(rtlil, "half", mutants)
    bits = {mutant.number: mutant.place.split(".")[-1].rstrip("]").split("[") for mutant in mutants}
    halves = {number: int(bit) // 4 for number, (wire, bit) in bits.items() if wire in ("last", "highest", "value")}
    assert set(halves.values()) == {0, 1}
    assert all((number in unread) == half for number, half in halves.items())
    counted = {number for number, (wire, _) in bits.items() if wire == "count"}
    assert counted and counted <= unread and len(unread) < len(mutants)


def test_a_fault_is_equivalent_if_no_state_shows_it_that_is_reached_with_any_content_of_memories():
    rtlil = to_rtlil(Fifth(), "fifth", sources=True)
    (compared,) = re.findall(r"cell \$eq (\S+)", rtlil)

    def proven(mode: str, cell: str, port: str, bit: int) -> bool:
        command = f"mutate -mode {mode} -module fifth -cell {cell} -port {port} -portbit {bit}"
        return is_equivalent(rtlil, Mutant(1, command, ()))

    # 5 and 6, which would be taken for 4, never come; nor does 7, in which a word would be written.
    assert proven("const0", compared, "A", 0) and proven("const0", compared, "A", 1)
    assert proven("const0", "words", "WR_EN", 2)
    # 0 is taken for 4, which words that begin with zeros would hide; a word is written, or read wrong.
    assert not proven("const1", compared, "A", 2)
    assert not proven("const1", "words", "WR_EN", 2) and not proven("inv", "words", "RD_DATA", 2)


def test_what_is_in_a_memory_that_nobody_writes_is_known_to_the_proofs():
    rtlil = to_rtlil(Table(), "table", sources=True)
    (compared,) = re.findall(r"cell \$eq (\S+)", rtlil)

    def proven(mode: str, cell: str, port: str) -> bool:
        command = f"mutate -mode {mode} -module table -cell {cell} -port {port} -portbit 0"
        return is_equivalent(rtlil, Mutant(1, command, ()))

    # The last word is odd; 2 would be taken for 3.
    assert proven("const1", "words", "RD_DATA") and not proven("const0", "words", "RD_DATA")
    assert not proven("const1", compared, "A")


def test_a_proof_that_is_cut_off_proves_nothing_and_leaves_no_files(monkeypatch, tmp_path):
    def cut_off(*_: object) -> bool:
        tempfile.mkdtemp()
        os.kill(os.getpid(), signal.SIGXCPU)
        return True

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for proof in ("_module_is_equal", "_design_is_equal", "_module_is_equal_with_memories", "outputs_are_equal"):
        monkeypatch.setattr(equivalence, proof, cut_off)
    assert not is_equivalent(RTLIL, Mutant(1, "", ()))
    assert not list(tmp_path.iterdir())


def test_a_register_can_be_set_where_mutants_stand_behind_it():
    rtlil = to_rtlil(Peak(), "peak", sources=True)
    listed = list_mutants(rtlil, "peak", ("tb/verification/test_mutation.py",), 80, 1)
    mutants = [mutant for mutant in listed if " -port Q " in mutant.command and mutant.mode in ("const0", "inv")]
    assert len(mutants) > 1
    with prepared([job("peak_can_be_set", "peak")], apply_mutants(rtlil, "peak", mutants)) as trials:
        assert all(kill(trials, mutant.number).killed for mutant in mutants)


def test_a_job_that_does_not_end_is_stopped():
    endless = job("waits_for_a_value_that_never_comes")
    with endless.ready(endless.build(NO_MUTANTS)) as run:
        assert run(0, 2)[0] == STOPPED
        assert run(0, 1)[0] == STOPPED


def test_a_run_that_gets_no_processor_is_no_result(monkeypatch):
    monkeypatch.setattr(fork_server, "WALL_FACTOR", 0.01)
    assert run_apart(lambda: time.sleep(60), 1)[0] == STARVED
    starved = Trial(job("values_are_limited"), lambda mutant, limit: (STARVED, 0.1), 1, 1)
    with pytest.raises(RuntimeError, match="too busy"):
        kill([starved], 1)
    assert stopped_outcome(signal.SIGXCPU, 4.1, 5) == STOPPED
    assert stopped_outcome(signal.SIGKILL, 4.1, 5) == STARVED


def test_a_job_that_fails_without_mutant_is_refused():
    with pytest.raises(RuntimeError, match="right design"), prepared([job("is_not_there")], NO_MUTANTS):
        pass


def test_a_survivor_is_tried_again_when_a_test_has_changed_but_its_proof_is_not(tmp_path, monkeypatch):
    proofs, killers = [], [False, True]
    monkeypatch.setattr(campaign, "prepared", lambda jobs, text: nullcontext([]))
    monkeypatch.setattr(campaign, "kill", lambda trials, number: Attempt("test", killers.pop(0), ""))
    monkeypatch.setattr(campaign, "is_equivalent", lambda rtlil, mutant: proofs.append(mutant.number))
    [mutant] = list_mutants(RTLIL, "limiter", ("tb/verification/test_mutation.py",), 1, 1)
    for tests, outcome in (("old", "survived"), ("old", "survived"), ("new", "killed"), ("newer", "killed")):
        monkeypatch.setattr(campaign, "digest_of_folders", lambda *folders, tests=tests, **apart: tests)
        results = campaign._run_netlist("b", RTLIL, [job("x")], [mutant], tmp_path / "results.jsonl", str.strip)
        assert [result.outcome for result in results] == [outcome]
    assert proofs == [mutant.number] and not killers


def test_chosen_mutants_are_tried_whatever_is_known_and_nothing_is_kept(tmp_path, monkeypatch):
    tried = []

    def killed(trials: object, number: int) -> Attempt:
        tried.append(number)
        return Attempt("test", True, "")

    monkeypatch.setattr(campaign, "BUILD", tmp_path)
    monkeypatch.setattr(campaign, "record", lambda block, seed: tmp_path)
    monkeypatch.setattr(campaign, "read_jobs", lambda folder: {"n": [job("x")]})
    monkeypatch.setattr(campaign, "prepared", lambda jobs, text: nullcontext([]))
    monkeypatch.setattr(campaign, "kill", killed)
    (tmp_path / "n.il").write_text(RTLIL)
    block = Block(("tb/verification/test_mutation.py",), ())
    for _ in range(2):
        found = list(campaign.run_block("limiter", block, 1, 12, only=(3,)))
        assert [(result.number, result.outcome) for result in found] == [(3, "killed")]
    assert tried == [3, 3]
    with pytest.raises(UsageError, match="--number must be 1 to 12; got 13"):
        list(campaign.run_block("limiter", block, 1, 12, only=(3, 13)))
    assert not list((tmp_path / "mutation" / "results").iterdir())


def test_a_run_goes_on_where_that_of_another_checkout_was(tmp_path, monkeypatch):
    path, tried = tmp_path / "outcomes.json", []
    mutants = list_mutants(RTLIL, "limiter", ("tb/verification/test_mutation.py",), 4, 1)
    netlist = netlist_digest(RTLIL)
    assert (
        netlist
        == netlist_digest(RTLIL.replace(str(ROOT), "/another"))
        != netlist_digest(RTLIL.replace("POLARITY 1", "POLARITY 0"))
    )
    for mutant, outcome in zip(mutants, ("killed", "equivalent", "survived"), strict=False):
        assert str(ROOT) in mutant.command
        keep_outcome("limiter", netlist, mutant.command.replace(str(ROOT), "/another"), outcome, path)
    keep_outcome("alu", "another", mutants[3].command, "killed", path)
    known = read_outcomes("limiter", netlist, mutants, path)
    assert known == dict(zip((m.number for m in mutants), ("killed", "equivalent", "survived"), strict=False))
    assert not read_outcomes("limiter", "changed", mutants, path) and not read_outcomes("link", netlist, mutants, path)

    def killed(trials: object, number: int) -> Attempt:
        tried.append(number)
        return Attempt("test", True, "")

    monkeypatch.setattr(campaign, "read_outcomes", lambda block, netlist, of: read_outcomes(block, netlist, of, path))
    monkeypatch.setattr(campaign, "prepared", lambda jobs, text: nullcontext([]))
    monkeypatch.setattr(campaign, "kill", killed)
    results = tmp_path / "results.jsonl"
    campaign._take_over("limiter", netlist, mutants, results)
    found = list(campaign._run_netlist("limiter", RTLIL, [job("x")], mutants, results, str.strip))
    assert tried == [mutants[2].number, mutants[3].number]
    assert sorted(result.outcome for result in found) == ["equivalent", "killed", "killed", "killed"]
    keep_outcome("limiter", "changed", mutants[0].command, "survived", path)
    assert not read_outcomes("limiter", netlist, mutants, path)


@pytest.mark.parametrize("options", [["--block=alu", "--record"], ["--block=alu", "--block=secded"], []])
def test_chosen_mutants_are_of_one_block_and_not_recorded(options):
    command = [sys.executable, "-m", "tb.mutation", "--number=3", *options]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr.strip()) == (2, "--number takes one --block, and no --record")


def test_the_same_seed_lists_the_same_mutants():
    def commands(seed: int) -> list[str]:
        return [mutant.command for mutant in list_mutants(RTLIL, "limiter", ("tb/verification/",), 12, seed)]

    assert commands(5) == commands(5) != commands(6)


def test_a_memory_has_faults_in_its_ports_and_none_in_a_reset_that_it_has_not():
    rtlil = to_rtlil(Delayed(), "delayed", sources=True)
    mutants = list_mutants(rtlil, "delayed", ["tb/verification/test_mutation.py", "lib/memory.py"], 200, seed=1)
    ports = {mutant.command.split("-port ")[1].split()[0] for mutant in mutants}
    assert {"RD_ADDR", "WR_DATA"} <= ports
    assert "mutant_select mutant_select" in apply_mutants(rtlil, "delayed", mutants)


def test_only_cells_of_the_chosen_sources_are_mutated():
    assert list_mutants(RTLIL, "limiter", ("hw/tracker/",), 20, 1) == []


def result(number: int, outcome: str, place: str = "limiter.above[0]") -> MutantResult:
    return MutantResult("limiter", "n", number, "inv", place, ("hw/limiter.py:3",), "mutate", outcome)


def test_summary(tmp_path):
    results = [result(1, "killed"), result(2, "survived"), result(3, "equivalent"), result(4, "survived", "other")]
    assert score(results) == 33.33
    assert score(results[2:3]) is None
    found = summarize(results, [Reason("limiter", r"above\[", "never above")])
    assert found["total"] == {"mutants": 4, "killed": 1, "survived": 2, "equivalent": 1, "score": 33.33}
    assert [survivor["reason"] for survivor in found["survivors"]] == ["never above", None]
    write(results, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["blocks"]["limiter"]["killed"] == 1
    assert 'failures="2"' in (tmp_path / "junit.xml").read_text()


def test_recorded_scores_of_other_blocks_stay(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"blocks": {"other": {"killed": 5}, "limiter": {"killed": 9}}}))
    record_scores([result(1, "killed"), result(2, "survived")], path)
    blocks = json.loads(path.read_text())["blocks"]
    assert blocks["other"] == {"killed": 5}
    assert (blocks["limiter"]["killed"], blocks["limiter"]["score"]) == (1, 50.0)
    assert len(blocks["limiter"]["date"]) == 10


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_has_its_files_and_tests(name):
    block = BLOCKS[name]
    files = [test for test in block.tests if not test.startswith("-")]
    assert files and block.sources
    for path in (*files, *block.sources):
        assert (ROOT / path).is_file(), path


def test_every_reason_is_of_a_block_and_says_something():
    for reason in read_reasons():
        assert reason.block in BLOCKS and len(reason.reason) > 20


def test_a_passing_simulation_is_observed(monkeypatch):
    seen = []
    monkeypatch.setattr(tb.runner, "observers", [lambda *what: seen.append(what)])
    simulate(Limiter(), "limiter", __name__, "values_are_limited", seed=3)
    assert [(what[1].testcase, what[1].seed) for what in seen] == [("values_are_limited", 3)]


def test_a_place_names_module_signal_and_bit():
    command = "mutate -mode inv -module m -cell $3 -port Y -portbit 4 -wire total -wirebit 2 -src /x.py:3"
    assert Mutant(1, command, ()).place == "m.total[2]"
    assert Mutant(1, command.replace(" -wire total -wirebit 2", ""), ()).place == "m.$3.Y[4]"
