"""Programs on one node that stands for all, on the RTL: the ways of FLUX on a slice of H800, against eight real nodes.

A fraction of GPT-3's shapes, so that each takes seconds; the report runs them whole, one of them on eight nodes too.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sim.experiments.catalogue import collective
from sim.experiments.check import Checked
from sim.experiments.experiment import simulate, work_of
from sim.experiments.program_model import ProgramWork
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec

WAYS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any]]] = {
    "ag": ("ring-all-gather-gemm", (512, 768, 6144), {"fine": True}),
    "rs-reduce": ("direct-reduce-scatter", (512, 6144, 6144), {}),
    "rs-write": ("all-to-all-reduce-scatter", (512, 6144, 3072), {}),
    "copied": ("all-to-all", (1024, 6144, 0), {"copied": True, "units": 16}),
    "copied and added in memory": ("direct-all-reduce", (512, 6144, 0), {"copied": True, "units": 16}),
    "copied and added": ("all-to-all-reduce-scatter", (512, 6144, 0), {"copied": True}),
}
"""A program, its shape, and what is chosen of it. Copying, most of a run is the link's time. The last of eight nodes is
later than one by some hundred cycles, whatever the shape: less than a hundredth of these."""


def spec(way: str, mode: str = "mirrored") -> Spec:
    name, shape, choices = WAYS[way]
    order = "across" if way in ("rs-reduce", "rs-write") else "rows"
    return collective(
        name,
        8,
        "round-robin",
        wiring="ideal-switch",
        machine="h800",
        shape=shape,
        tile=(64, 256),
        mode=mode,
        choices=choices,
        tile_order=order,
    )


QUICK_AND_WIDE = [pytest.param(way, marks=() if way == "rs-reduce" else pytest.mark.wide) for way in WAYS]


@cache
def run(way: str, mode: str) -> tuple[ProgramWork, Outcome, Checked]:
    asked = spec(way, mode)
    work = work_of(asked)
    assert isinstance(work, ProgramWork)
    return work, *simulate(asked, work)


def cycles(outcome: Outcome) -> int:
    return max(max(status["done_cycles"], status["gemm_cycles"]) for status in outcome.ranks)


@pytest.mark.parametrize("mode", ["mirrored", "ring"])
@pytest.mark.parametrize("way", QUICK_AND_WIDE)
def test_every_sector_and_element_is_right(way: str, mode: str) -> None:
    work, outcome, checked = run(way, mode)
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert len(outcome.ranks) == work.nodes == (1 if mode == "mirrored" else 8)
    assert all(form["matches"] for form in checked.closed_forms.values())


@pytest.mark.parametrize("way", QUICK_AND_WIDE)
def test_one_mirrored_node_takes_as_long_as_each_of_eight(way: str) -> None:
    (_, one, _), (_, all_nodes, _) = (run(way, mode) for mode in ("mirrored", "ring"))
    assert cycles(one) == pytest.approx(cycles(all_nodes), rel=0.01)
    counted = [status["registers"] for status in all_nodes.ranks]
    for name in ("sectors_rs_update", "sectors_rs_store", "sectors_ag_store", "sectors_gemm_read", "tracker_triggers"):
        assert {registers[name] for registers in counted} == {one.ranks[0]["registers"][name]}


@pytest.mark.wide
@pytest.mark.parametrize("mode", ["mirrored", "ring"])
def test_a_sum_of_what_has_not_arrived_is_caught(mode: str) -> None:
    asked = spec("rs-write", mode)
    work = work_of(asked)
    assert isinstance(work, ProgramWork)
    ungated = tuple(tuple(replace(plan, waits=()) for plan in plans) for plans in work.kernels)
    _, checked = simulate(asked, replace(work, kernels=ungated))
    assert any("that are not what their owners wrote, the first in received[" in error for error in checked.errors)


def test_data_of_another_rank_than_the_mirrored_ones_is_caught() -> None:
    asked = spec("rs-reduce")
    work = work_of(asked)
    assert isinstance(work, ProgramWork)
    others = (work.inputs[0], *(inputs[::-1] for inputs in work.inputs[1:]))
    _, checked = simulate(asked, replace(work, inputs=others))
    assert any("of rank 0, sector" in error for error in checked.errors)


@pytest.mark.wide
def test_all_ranks_at_the_same_owner_take_longer() -> None:
    orders = {
        shifted: collective(
            "direct-reduce-scatter",
            8,
            "round-robin",
            wiring="ideal-switch",
            machine="h800",
            shape=(512, 6144, 768),
            tile=(64, 256),
            choices={"shifted": shifted},
        )
        for shifted in (True, False)
    }
    taken = {}
    for shifted, asked in orders.items():
        outcome, checked = simulate(asked)
        assert checked.errors == ()
        taken[shifted] = cycles(outcome)
    assert taken[False] > 1.1 * taken[True]
