"""Campaigns of faults without a simulator: names, samples, outcomes, intervals, what is kept, what is summed up."""

import json
import math
from pathlib import Path

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.export.verilog import to_systemverilog
from sim.errors import UsageError
from sim.faults.campaign import (
    Finished,
    Options,
    Store,
    command,
    lets_through,
    parse,
    plan,
    protected,
    shared_out,
    shares,
    unprotected,
)
from sim.faults.injections import ABORT, CLASSES, LINK_CLASSES, Injection, Sent, Space
from sim.faults.outcomes import (
    CORRECTED,
    DETECTED,
    HANG,
    MASKED,
    OUTCOMES,
    SILENT,
    Facts,
    interval,
    margin,
    outcome,
    sample_size,
)
from sim.faults.places import CONTROL, CSR, DATA, MEMORY, PROTECTED, Variable, block_of, kind_of
from sim.faults.reference import counts_corrections, reference_spec
from sim.faults.summary import counted, failures, summarize, table, worst
from sim.simulator.public_state import control_file, members_header, with_own_state, with_touches

BARE = (("protection", "none"),)
NODE = "gpu_shell.gpu.node"
RIGHT = Facts(True, True, False, 0, 0, 0, 0, 0, 9000, 0, 0)


def facts(**fields: int) -> Facts:
    return Facts(**{**RIGHT.to_json(), **fields})


def space() -> Space:
    sent = [
        Sent(gpu, 0, kind, bits, tuple(range(110 + gpu, 900, 10)))
        for gpu in range(2)
        for kind, bits in (("flits", 308), ("messages", 75))
    ]
    state = {
        PROTECTED: [Variable(f"{NODE}.tracker.bank_0.storage.sets", 42, 16)],
        MEMORY: [Variable(f"{NODE}.tracker.bank_0.storage.entries", 40, 16)],
        CONTROL: [Variable(f"{NODE}.state.armed", 1, 1), Variable(f"{NODE}.lane_0.dma.walk", 90, 1)],
        DATA: [Variable(f"{NODE}.links.egress.held", 308, 1)],
        CSR: [Variable(f"{NODE}.registers.watchdog", 32, 1)],
    }
    return Space(2, ((100, 500), (520, 1000)), state, sent, {(0, 0): (1, 0), (1, 0): (0, 0)})


@pytest.mark.parametrize(
    ("found", "aborted", "expected"),
    [
        (facts(), False, MASKED),
        (facts(converged=500), False, MASKED),
        (facts(corrected=2), False, CORRECTED),
        (facts(corrected=2, wrong_sectors=1), False, SILENT),
        (facts(wrong_registers=1), False, SILENT),
        (facts(harmed=1), False, SILENT),
        (facts(finished=0), False, HANG),
        (facts(finished=0, wrong_sectors=3), False, HANG),
        (facts(finished=0, reported=1), False, DETECTED),
        (facts(wrong_sectors=3, reported=8), False, DETECTED),
        (facts(reported=1), True, DETECTED),
        (facts(), True, MASKED),
        (facts(reported=1, finished=0), True, HANG),
        (facts(reported=1, wrong_sectors=1), True, SILENT),
    ],
)
def test_outcomes(found: Facts, aborted: bool, expected: str) -> None:
    assert outcome(found, aborted) == expected


def test_facts_are_read_in_the_order_in_which_they_are_printed() -> None:
    assert Facts.of_line("1 0 1 2 3 4 5 6 7 8 -9\n") == Facts(True, False, True, 2, 3, 4, 5, 6, 7, 8, -9)


def test_intervals() -> None:
    """Wilson's, against the roots of the quadratic that defines it: (p - x/n)^2 = z^2 p(1-p)/n."""
    assert interval(0, 0) == (0.0, 1.0)
    for count, total in ((1, 10), (3, 10), (9, 10), (7, 50_000)):
        low, high = interval(count, total, 0.95)
        z, share = 1.959963984540054, count / total
        for bound in (low, high):
            assert math.isclose((bound - share) ** 2, z * z * bound * (1 - bound) / total, rel_tol=1e-6)
        assert low < share < high
    # Of none in n: what makes n without one as unlikely as that, (1 - p)^n = 1 - confidence.
    assert math.isclose((1 - interval(0, 50, 0.99)[1]) ** 50, 0.01)
    assert interval(50, 50, 0.99) == (1 - interval(0, 50, 0.99)[1], 1.0)
    assert interval(0, 4_610_000)[1] < 1e-6


def test_sample_sizes() -> None:
    """Leveugle et al., DATE 2009, table 1: 95 %, margin 5 %, of an endless population 384.2; of 1,000 ones 278."""
    assert sample_size(10**15, 0.05, 0.95) in (384, 385)
    assert sample_size(1000, 0.05, 0.95) == 278
    for population, injections in ((1000, 278), (10**9, 16_000)):
        reached = margin(population, injections, 0.95)
        assert sample_size(population, reached, 0.95) in (injections, injections + 1)
    assert margin(100, 100) == 0.0 and margin(100, 0) == 1.0


@pytest.mark.parametrize(
    ("name", "bits", "words", "block", "kind"),
    [
        (f"{NODE}.tracker.bank_0.storage.entries", 40, 16, "tracker", MEMORY),
        (f"{NODE}.lane_0.controller_0.dram_queue.valid", 8, 1, "controller", CONTROL),
        (f"{NODE}.drained", 1, 1, "node", CONTROL),
        (f"{NODE}.lane_3.links.egress.buffer_0.held_0", 308, 1, "links", DATA),
        ("gpu_shell.gpu.hbm_0.alu.add.next_format", 3, 1, "near_bank", DATA),
        ("gpu_shell.gpu.hbm_0.unit_2.flight_1", 3, 1, "near_bank", CONTROL),
        (f"{NODE}.registers.watchdog", 32, 1, "registers", CSR),
        (f"{NODE}.registers.total_cycles", 48, 1, "registers", CSR),
        (f"{NODE}.registers.range_table", 32, 512, "registers", MEMORY),
        (f"{NODE}.registers.access_state", 3, 1, "registers", CONTROL),
    ],
)
def test_places(name: str, bits: int, words: int, block: str, kind: str) -> None:
    from sim.experiments.hardware import configuration

    assert block_of(name) == block
    assert kind_of(Variable(name, bits, words), configuration("paper")) == kind


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        ("tracker.bank_1.storage.sets", True),
        ("tracker.bank_0.triggers.blocks.items", True),
        ("lane_0.links.egress.bank_1.sectors", True),
        ("lane_1.controller_2.payload_store.write_data_memory", True),
        ("lane_0.controller_0.payload_store.slots", True),
        ("lane_0.controller_3.admission.compute_queue.marks", True),
        ("lane_0.controller_3.admission.compute_queue.marks_watch.parities", True),
        ("lane_0.links.egress.bank_1.packets", True),
        ("lane_0.address_map_0.sends$1.words.control$14", True),
        ("lane_0.links.egress.bank_1.ports", False),
        ("registers.range_table", False),
    ],
)
def test_memories_are_protected_where_the_build_protects_them(name: str, protected: bool) -> None:
    from sim.experiments.hardware import configuration

    memory = Variable(f"{NODE}.{name}", 40, 16)
    assert kind_of(memory, configuration("paper", {"protection": "all"})) == (PROTECTED if protected else MEMORY)
    assert kind_of(memory, configuration("paper")) == MEMORY


@pytest.mark.parametrize(
    "name", ["gpu_shell.gpu.gemm.active", "gpu_shell.gpu.hbm_0.array.sectors", "gpu_shell.gpu.timing_checker_0.rule"]
)
def test_the_environment_is_no_place(name: str) -> None:
    assert block_of(name) is None


def test_a_sample_is_drawn_by_its_seed_and_goes_on() -> None:
    for name in CLASSES:
        count = min(200, space().population(name))
        drawn = space().draw(name, count, 7)
        assert drawn == space().draw(name, count, 7), "the same seed draws the same"
        assert len({item.text for item in drawn}) == count
        if name != ABORT:
            assert space().draw(name, count // 2, 7) == drawn[: count // 2]
        if count == 200:
            assert space().draw(name, count, 8) != drawn
        assert {item.name for item in drawn} == {name}
        assert all(100 <= item.cycle < 1000 for item in drawn)


def test_every_bit_is_as_likely_as_any_other() -> None:
    """Of two variables of 1 and 90 bits, the first is hit in a ninety-first of the draws."""
    drawn = space().draw(CONTROL, 20_000, 1)
    share = sum(".state.armed" in item.text for item in drawn) / len(drawn)
    assert abs(share - 1 / 91) < 4 * math.sqrt(1 / 91 / len(drawn))
    assert {item.block for item in drawn} == {"state", "dma"}
    bits = {int(item.text.split()[-1]) for item in drawn if ".dma.walk" in item.text}
    assert bits == set(range(90))


def test_aborts_are_in_every_cycle_on_every_gpu() -> None:
    drawn = space().draw(ABORT, 10**6, 1)
    assert len(drawn) == space().population(ABORT) == 2 * (400 - 8)
    assert {item.cycle for item in drawn} == set(range(108, 500))


def test_a_second_error_is_on_the_same_link() -> None:
    drawn = space().draw("error_during_replay", 200, 1)
    back = [item.text.split() for item in drawn if " and " in item.text]
    assert 50 < len(back) < 150
    for words in back:
        assert words[words.index("and") + 1] != words[2], "messages come from the other GPU"
    assert all(item.text.count(" damage ") >= 1 for item in drawn)


def test_injections_in_all_are_shared_out() -> None:
    """As many of each class, and instead of what a class has not, more of the others."""
    few = space().population(ABORT)
    assert shared_out(space(), (PROTECTED, CONTROL), 20) == {PROTECTED: 10, CONTROL: 10}
    assert shared_out(space(), (ABORT, CONTROL), 3 * few) == {ABORT: few, CONTROL: 2 * few}
    all_of_them = sum(map(space().population, CLASSES))
    assert sum(shared_out(space(), CLASSES, 2 * all_of_them).values()) == all_of_them


def test_a_build_without_protection_is_seen_to_fail() -> None:
    bare = unprotected(Options(gpus=4))
    assert bare.settings == BARE and bare.gpus == 4
    wrong, nothing, stopped = facts(wrong_sectors=1), facts(), facts(reported=1)

    def through(name: str, *found: Facts) -> bool:
        return lets_through([Finished(Injection("9 nothing", name), item) for item in found])[name]

    assert through(MEMORY, nothing, wrong) and through("flit_bit", wrong, nothing)
    assert not through(MEMORY, nothing, stopped) and not through("flit_bit", nothing)
    assert through("flit_dropped", stopped) and not through("flit_dropped", nothing)


def test_shares_lie_close_together_and_hold_everything_once() -> None:
    listed = plan(space(), {MEMORY: 100, ABORT: 60}, 3)
    parts = shares(listed, 33)
    assert sorted(item.text for part in parts for item in part) == sorted(item.text for item in listed)
    cycles = [item.cycle for part in parts for item in part]
    assert cycles == sorted(cycles)


def test_what_is_finished_is_kept(tmp_path: Path) -> None:
    """A line that was cut off, as by a full disk, is run again; other options or sources begin anew."""
    store = Store(tmp_path, Options())
    done = [Finished(item, facts(corrected=number)) for number, item in enumerate(plan(space(), {MEMORY: 3}, 1))]
    for item in done:
        store.add(item)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:-20])
    assert Store(tmp_path, Options()).load() == {item.injection.text: item for item in done[:2]}
    assert Store(tmp_path, Options(watchdog=0)).load() == {}
    store.add(done[2])
    assert Store(tmp_path, Options()).load() == {item.injection.text: item for item in done}


def test_a_command_repeats_an_injection() -> None:
    (injection,) = plan(space(), {"error_during_replay": 1}, 5)
    text = command(Options(gpus=4, watchdog=0, settings=BARE), injection)
    assert text.startswith("t3rtl faults --gpus 4 --set protection=none --watchdog 0 --replay 'error_during_replay ")
    again = parse(text.partition("--replay '")[2].removesuffix("'"))
    assert (again.name, again.text) == (injection.name, injection.text)
    mesh = command(Options(gpus=4, topology="mesh"), injection)
    assert mesh.startswith("t3rtl faults --gpus 4 --topology mesh --replay ")


@pytest.mark.parametrize(
    "text", ["", "memory", "memory x flip", "memory 9 hit 0", "memory 9 flip 0 a", "wires 9 abort 0"]
)
def test_what_is_no_injection_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--replay"):
        parse(text)


def made(name: str, text: str, block: str = "", **fields: int) -> Finished:
    return Finished(Injection(text, name, block), facts(**fields))


def test_a_summary_counts_by_class_and_block_and_names_the_worst() -> None:
    armed, walk = f"{NODE}.state.armed", f"{NODE}.lane_0.dma.walk"
    results = [
        made(CONTROL, f"200 flip 0 {armed} 0 0", "state", wrong_sectors=1),
        made(CONTROL, f"201 flip 0 {armed} 0 0", "state", finished=0),
        made(CONTROL, f"202 flip 0 {walk} 0 3", "dma", wrong_registers=1),
        made(CONTROL, f"203 flip 0 {walk} 0 3", "dma"),
        made("flit_bit", "210 wire 0 0 flits damage 0 3", "links", corrected=1),
        made("flit_bit", "220 wire 0 0 flits damage 0 3", "links", finished=0),
        made(ABORT, "230 abort 1", reported=1, late=1, drained=77),
    ]
    found = summarize(Options(), space(), results)
    control = found["classes"][CONTROL]
    assert [control[name] for name in ("injections", *OUTCOMES)] == [4, 1, 0, 0, 2, 1]
    assert control["wrong_result"] == 1 and not control["protected"]
    assert found["blocks"][CONTROL]["dma"]["silent"] == 1
    assert [row["variable"] for row in found["worst"]] == [armed, walk]
    assert [row["variable"] for row in worst(results, 1)] == [armed]
    assert [item["class"] for item in found["failures"]] == ["flit_bit", ABORT]
    assert "--replay 'flit_bit 220 wire 0 0 flits damage 0 3'" in found["failures"][0]["command"]
    assert found["longest_abort_cycles"] == 77
    assert failures(Options(settings=BARE), results) == []
    assert json.loads(json.dumps(found)) == found
    assert len(table(found["classes"])) == 1 + 3
    assert found["classes"]["flit_bit"]["protected"] and set(LINK_CLASSES) < set(CLASSES)


def test_what_is_injected_in_full_is_known() -> None:
    results = [made("flit_dropped", f"{cycle} wire 0 0 flits drop 0 0", wrong_sectors=cycle == 1) for cycle in range(4)]
    assert counted(results, 4)["silent_or_hang"] == {"share": 0.25, "low": 0.25, "high": 0.25}
    sample = counted(results, 5)["silent_or_hang"]
    assert sample["low"] < 0.25 < sample["high"]


def test_worst_places_are_of_each_class() -> None:
    csr = [made("csr", f"1 flip 0 {NODE}.registers.total_{number} 0 0", wrong_registers=1) for number in range(9)]
    walk = made(CONTROL, f"2 flip 0 {NODE}.lane_0.dma.walk 0 3", wrong_sectors=1)
    assert [row["class"] for row in worst([*csr, walk], 2)] == [CONTROL, "csr", "csr"]


def test_the_control_has_links_without_protection() -> None:
    assert ("protection", "none") in reference_spec(settings=BARE).settings
    assert ("protection", "none") not in reference_spec().settings
    assert reference_spec(settings=(("dma_packets", 3),)).settings.count(("dma_packets", 3)) == 1
    assert protected(Options(settings=BARE)) == ()


def test_what_was_not_corrected_is_no_correction() -> None:
    assert counts_corrections("link0_replays") and counts_corrections("memory_corrected")
    assert not counts_corrections("memory_uncorrected") and not counts_corrections("link0_sent_flits")


class Counts(wiring.Component):
    """A block with state of every sort: a port, a name that is escaped, a memory."""

    def __init__(self) -> None:
        super().__init__({"step": In(4), "total": Out(8), "end": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(shape=8, depth=4, init=[])
        write, read = table.write_port(), table.read_port()
        inner = Signal(5)
        m.d.comb += [write.addr.eq(inner), write.data.eq(self.total), write.en.eq(1), read.addr.eq(inner)]
        m.d.sync += [inner.eq(inner + self.step), self.total.eq(read.data + inner), self.end.eq(self.total[0])]
        return m


def test_state_is_named_and_no_port() -> None:
    text = with_own_state(to_systemverilog(Counts(), "counts"))
    lines = control_file(text, (("other", "thing"),)).splitlines()
    names = {line.split('"')[3] for line in lines if '"counts"' in line}
    assert names == {"inner", "total__state", "end__state", "table", "_0_"}, "the last is the memory's output register"
    assert lines[-1] == 'public_flat_rd -module "other" -var "thing"'
    assert "output [7:0] total;" in text and "assign total = total__state;" in text
    assert text == with_own_state(text), "once is enough"


def test_memories_tell_when_they_are_used_and_all_variables_where_they_lie() -> None:
    root = """#include "verilated.h"
        CData/*0:0*/ top__DOT__busy;
        VlWide<9>/*287:0*/ top__DOT__held;
    VlUnpacked<VlWide<9>/*287:0*/, 8> top__DOT__words;
    VlUnpacked<QData/*63:0*/, 1> __VactTriggered;
"""
    told = with_touches(root)
    assert '#include "verilated.h"\n#include "touched.h"' in told
    assert "    Touched<VlWide<9>/*287:0*/, 8> top__DOT__words;" in told
    assert "    VlUnpacked<QData/*63:0*/, 1> __VactTriggered;" in told, "no memory of the design"
    header = members_header("Vtop", told)
    for name in ("top__DOT__busy", "top__DOT__held", "top__DOT__words", "__VactTriggered"):
        assert f'{{"{name}", offsetof(Vtop___024root, {name}), sizeof(Vtop___024root::{name})}},' in header
