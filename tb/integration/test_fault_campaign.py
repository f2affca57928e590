"""Campaigns of faults on the simulator: all state of a node is found and can be changed, outcomes that are known are
told as what they are, what is protected lets nothing through, and a run with the same seed is the same."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from amaranth.lib import wiring
from pyosys import libyosys

from hw.export.verilog import run_pass, to_rtlil
from hw.near_bank import Alu, BankGroupUnit
from hw.node import Node
from sim.errors import SimulationError
from sim.faults import campaign, reference
from sim.faults.campaign import Finished, Options, Store, plan, protected, run_all, run_now, wrong_controls
from sim.faults.injections import CLASSES, FLITS, LINK_CLASSES, Injection, Space
from sim.faults.outcomes import CORRECTED, DETECTED, HANG, MASKED, SILENT, Facts
from sim.faults.places import KINDS, MEMORY, PROTECTED
from sim.faults.reference import Setup
from sim.faults.server import Prepared, build, explore

FLIP_FLOPS = ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce", "$adff")
UNITS = 4
"""Near-bank units of a channel."""


@dataclass(frozen=True)
class Ready:
    """A campaign's run, built and explored."""

    setup: Setup
    model: Path
    prepared: Prepared

    @property
    def space(self) -> Space:
        return self.prepared.space


USUAL = Options()


@cache
def ready(options: Options = USUAL) -> Ready:
    setup = options.setup()
    model = build(setup)
    return Ready(setup, model, explore(setup, model))


def bits_of(component: wiring.Component) -> tuple[int, int]:
    """Bits of flip-flops and of memories, as yosys counts them in the netlist; a memory whose output is registered has
    flip-flops too."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "design.il"
        source.write_text(to_rtlil(component, "top"))
        design = libyosys.Design()
        for command in (f"read_rtlil {source}", "delete w:* s:0 %i", "proc -nomux -norom", "flatten"):
            run_pass(design, command)
        top = design.top_module()
        flip_flops = 0
        for cell in top.cells_.values():
            kind, width = cell.type.str(), libyosys.IdString("\\WIDTH")
            registered = kind == "$memrd_v2" and cell.getParam(libyosys.IdString("\\CLK_ENABLE")).as_bool()
            if kind in FLIP_FLOPS or registered:
                flip_flops += cell.getParam(width).as_int()
        return flip_flops, sum(memory.width * memory.size for memory in top.memories.values())


def test_all_state_is_found_and_keeps_what_it_is_changed_to() -> None:
    """As many bits as the netlist has, with the ALU that the units share here; no variable is a copy of another, which
    would not matter."""
    config = ready().setup.config
    node, unit, alu = bits_of(Node(config)), bits_of(BankGroupUnit(config, own_alu=False)), bits_of(Alu())
    found = [item for kind in KINDS for item in ready().space.state[kind]]
    memories = sum(item.size for item in found if item.words > 1)
    assert memories == node[1] + UNITS * unit[1] + alu[1]
    assert sum(item.size for item in found) - memories == node[0] + UNITS * unit[0] + alu[0]
    assert ready().prepared.copies == ()


def led_to(design: libyosys.Design, folder: Path, wires: str) -> set[str]:
    """Flip-flops and memories of a flat design that logic behind `wires` leads to, and outputs."""
    stores = " ".join(f"t:{kind}" for kind in (*FLIP_FLOPS, "$memrd_v2", "$memwr_v2"))
    for command in (
        f"select -set behind {wires} %coe*",
        f"select -set next @behind %co1 {stores} {'%u ' * (len(FLIP_FLOPS) + 1)} %i",
        f"select -write {folder / 'wires'} @next %co1:+[Q,DATA] w:* %i @behind o:* %i %u",
        f"select -write {folder / 'memories'} @next t:$memwr_v2 %i",
    ):
        run_pass(design, command)
    lines = [*(folder / "wires").read_text().splitlines(), *(folder / "memories").read_text().splitlines()]
    return {line.removeprefix("top/") for line in lines}


def test_what_only_records_leads_to_reads_alone(tmp_path: Path) -> None:
    """Counters and the place of an error lead to themselves and to what a read answers, in the netlist of the node; a
    setting leads elsewhere."""
    config = ready().setup.config
    (tmp_path / "design.il").write_text(to_rtlil(Node(config), "top"))
    design = libyosys.Design()
    for command in (f"read_rtlil {tmp_path / 'design.il'}", "proc -norom", "flatten"):
        run_pass(design, command)
    node = f"{reference.GPU}.node."
    plan_lines = [line.split() for line in ready().setup.plan]
    named = {words[1].removeprefix(node) for words in plan_lines if words[0] == "recorded" and len(words) == 2}
    recorded = {name for name in named if not name.startswith(reference.GPU)}
    assert len(recorded) > 50
    found = led_to(design, tmp_path, f"{' '.join(f'w:{name}' for name in recorded)} {'%u ' * (len(recorded) - 1)}")
    assert found == recorded | {"registers.answer", "registers._high"}
    assert not led_to(design, tmp_path, "w:registers.starvation_limit") <= found


def test_outcomes_that_are_known() -> None:
    assert wrong_controls(USUAL, ready().space) == []


def test_a_campaign_that_compares_no_results_is_noticed() -> None:
    """The seeded fault of the campaign itself: what is silent would be called masked."""
    (sentence,) = wrong_controls(Options(compare=False), ready().space)
    assert sentence == "the campaign itself is wrong: a flipped bit of the result is masked, not silent"


def test_without_a_watchdog_a_cut_wire_hangs() -> None:
    assert wrong_controls(Options(watchdog=0), ready().space) == []


def flip(cycle: int, name: str, bit: int, word: int = 0, gpu: int = 1) -> Finished:
    text = f"{cycle} flip {gpu} gpu_shell.gpu.node.{name} {word} {bit}"
    return run_now(USUAL, [Injection(text, "control")])[0]


def test_a_flipped_bit_acts_where_it_is() -> None:
    """Registers by name, with what each is for."""
    middle = sum(ready().space.spans[0]) // 2
    assert flip(middle, "registers.starvation_limit", 3).facts.wrong_registers == 1
    assert flip(middle, "registers.total_refreshes", 40).facts.wrong_registers == 1
    assert flip(middle, "registers._status", 0).outcome == DETECTED, "the interrupt of a fault"
    assert flip(middle, "state.armed", 0).outcome == DETECTED, "stores are refused, or nothing moves any more"
    late = ready().space.spans[1][1] - 2
    assert flip(late, "registers.range_table.words", 31, 511).outcome == MASKED, "no word of a range"
    assert flip(middle, "lane_0.address_map_0.match.base_0", 30).outcome == DETECTED, "as addresses are compared"
    assert flip(middle, "tracker.totals.total_0", 3).outcome == DETECTED, "as it is compared"
    assert flip(middle, "registers.answer", 5).outcome == MASKED, "the next read writes it"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Injection], list[Finished]]:
    """A campaign of some injections of each class."""
    folder = tmp_path_factory.mktemp("faults")
    listed = plan(ready().space, dict.fromkeys(CLASSES, 6), seed=11)
    return folder, listed, list(run_all(USUAL, listed, Store(folder, USUAL), processes=2))


def test_nothing_gets_through_what_is_protected(small: tuple[Path, list[Injection], list[Finished]]) -> None:
    _, listed, results = small
    assert sorted(item.injection.text for item in results) == sorted(item.text for item in listed)
    for item in results:
        assert item.facts.fired or item.injection.name not in LINK_CLASSES or len(item.injection.text.split()) > 8
        if item.injection.name in protected(USUAL):
            assert not item.failed, campaign.command(USUAL, item.injection)
    assert {item.outcome for item in results} >= {MASKED, CORRECTED, DETECTED, SILENT}


def test_the_same_seed_gives_the_same_whoever_runs_it(small: tuple[Path, list[Injection], list[Finished]]) -> None:
    """One by one in processes of their own, the other way round."""
    _, listed, results = small
    before = {item.injection.text: item.facts for item in results}
    for injection in listed[::-13]:
        assert run_now(USUAL, [injection])[0].facts == before[injection.text]


def without_what_is_skipped(facts: Facts) -> Facts:
    """All that tells of an outcome: not when a run was seen to go on as without the fault."""
    return replace(facts, converged=0, end=0)


def test_what_is_not_simulated_is_known(small: tuple[Path, list[Injection], list[Finished]]) -> None:
    """The same injections, with all GPUs simulated in all cycles to the end. The more of them in one campaign, the more
    go on as one before them did."""
    _, listed, results = small
    whole = {item.injection.text: item.facts for item in run_now(Options(shorten=False), listed)}
    assert not any(facts.converged for facts in whole.values())
    for item in results:
        assert without_what_is_skipped(item.facts) == without_what_is_skipped(whole[item.injection.text])


def test_many_errors_of_one_flit_end_as_each_alone() -> None:
    """Their runs come to the same states."""
    wire = next(item for item in ready().space.sent if item.kind == FLITS and item.cycles)
    line = f"{wire.cycles[len(wire.cycles) // 3]} wire {wire.gpu} {wire.port} {FLITS}"
    drawn = [Injection(f"{line} damage 0 {bit}", "flit_bit") for bit in range(0, wire.bits, 60)]
    together = run_now(USUAL, drawn)
    assert [item.facts for item in together] == [run_now(USUAL, [injection])[0].facts for injection in drawn]


def test_state_that_acts_but_is_said_only_to_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault of what is skipped: a setting is taken for a counter, and a flipped bit of it for nothing."""
    name = f"{reference.REGISTERS}.watchdog"
    injection = Injection(f"{sum(ready().space.spans[0]) // 2} flip 1 {name} 0 3", "csr")
    (right,) = run_now(Options(shorten=False), [injection])
    assert right.outcome == SILENT
    monkeypatch.setattr(reference, "RECORDED", (*reference.RECORDED, name))
    (wrong,) = run_now(USUAL, [injection])
    assert wrong.outcome == MASKED


def test_what_is_finished_does_not_run_again(
    small: tuple[Path, list[Injection], list[Finished]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, listed, results = small
    asked: list[Injection] = []

    def noted(setup: Setup, model: Path, injections: list[Injection]) -> Iterator[tuple[Injection, object]]:
        asked.extend(injections)
        return iter(())

    monkeypatch.setattr(campaign, "run_injections", noted)
    more = plan(ready().space, dict.fromkeys(CLASSES, 7), seed=11)
    again = list(run_all(USUAL, more, Store(folder, USUAL), processes=1))
    assert {item.injection.text for item in again} == {item.text for item in listed}
    assert {item.text for item in asked} == {item.text for item in more} - {item.text for item in listed}
    assert len(again) == len(results)


@pytest.mark.slow
def test_memories_without_protection_let_faults_through() -> None:
    """The control: the same memories without check bits and parity, of which an injection names no other thing."""
    without = Options(settings=(("protection", "links"),))
    assert PROTECTED not in protected(without)
    assert not ready(without).space.state[PROTECTED]
    places = {variable.name.rpartition(".")[0] for variable in ready().space.state[PROTECTED]}
    same = [item for item in ready(without).space.state[MEMORY] if item.name.rpartition(".")[0] in places]
    assert same
    space = replace(ready(without).space, state={MEMORY: same})
    outcomes = [item.outcome for item in run_now(without, plan(space, {MEMORY: 200}, seed=1))]
    assert SILENT in outcomes


@pytest.mark.slow
def test_links_without_protection_let_faults_through() -> None:
    """The control."""
    without = Options(settings=(("protection", "none"),))
    assert protected(without) == ()
    drawn = plan(ready(without).space, {"flit_bit": 20, "flit_dropped": 6}, seed=1)
    outcomes = [item.outcome for item in run_now(without, drawn)]
    assert outcomes.count(SILENT) + outcomes.count(HANG) + outcomes.count(DETECTED) > len(outcomes) // 2
    assert SILENT in outcomes


def test_an_injection_that_no_run_reaches_is_an_error() -> None:
    late = ready().space.spans[1][1] + 10_000
    with pytest.raises(SimulationError, match="was never reached"):
        run_now(USUAL, [Injection(f"{late} nothing", campaign.CONTROL)])


def test_a_name_that_there_is_not_is_an_error() -> None:
    with pytest.raises(SimulationError):
        flip(5000, "registers.nothing", 0)


@pytest.mark.slow
def test_a_ring_of_two_is_a_campaign_too() -> None:
    two = Options(gpus=2)
    drawn = plan(ready(two).space, {"abort": 4, "flit_bit": 4}, seed=2)
    assert not any(item.failed for item in run_now(two, drawn))
    assert replace(two, gpus=3) == USUAL


@pytest.mark.slow
def test_a_mesh_of_four_is_a_campaign_too() -> None:
    """Numbers of ports have two bits, one number is that of no port, and a packet has three sends."""
    mesh = Options(gpus=4, topology="mesh")
    setup, space = ready(mesh).setup, ready(mesh).space
    assert setup.config.links == 3 and {wire.port for wire in space.sent} == {0, 1, 2}
    drawn = plan(space, {"protected_memory": 40, "flit_bit": 8, "message_dropped": 8, "abort": 8}, seed=3)
    assert not any(item.failed for item in run_now(mesh, drawn))


@pytest.mark.slow
def test_a_port_that_there_is_not_is_told() -> None:
    """A bit that is wrong in the port of a send may make it one that no GPU of the mesh has: its parity tells."""
    mesh = Options(gpus=4, topology="mesh")
    space = ready(mesh).space
    (place,) = [item for item in space.state["protected_memory"] if item.name.endswith(".kept_ports")]
    cycles = [start + 40 for start, _ in space.spans]
    flips = [
        Injection(f"{cycle} flip 1 {place.name} 0 {bit}", "protected_memory", "")
        for cycle in cycles
        for bit in range(place.bits)
    ]
    assert place.bits >= 2 * mesh.config.sends
    outcomes = [item.outcome for item in run_now(mesh, flips)]
    assert set(outcomes) <= {MASKED, DETECTED, CORRECTED} and DETECTED in outcomes
