"""Programs on a ring whose chunks do not simply follow one another, on one node that stands for all, on the RTL:
against eight real nodes, on a slice of machine PAPER."""

from functools import cache
from statistics import fmean
from typing import Any

import pytest

from sim.experiments.catalogue import collective
from sim.experiments.check import Checked
from sim.experiments.experiment import simulate
from sim.experiments.run import Outcome
from sim.report.t3.record import PAPER, SETTINGS

WAYS: dict[str, tuple[str, tuple[int, int, int], str, dict[str, Any]]] = {
    "pieces": ("ring-all-reduce", (2048, 1024, 512), "columns", {"pieces": 2}),
    "halves": ("ring-reduce-scatter-both", (4096, 2048, 1024), "interleaved", {}),
}
"""A program, its shape, the order of its tiles, and what is chosen of it."""
QUICK_AND_WIDE = [pytest.param(way, marks=pytest.mark.wide if way == "pieces" else ()) for way in WAYS]


@cache
def run(way: str, mode: str) -> tuple[Outcome, Checked]:
    name, shape, order, choices = WAYS[way]
    asked = collective(
        name,
        8,
        "paced",
        machine=PAPER,
        shape=shape,
        mode=mode,
        choices=choices,
        tile_order=order,
        settings=SETTINGS,
    )
    return simulate(asked)


def ends(outcome: Outcome) -> float:
    """When a rank is done, in the mean."""
    return fmean(max(status["done_cycles"], status["gemm_cycles"]) for status in outcome.ranks)


@pytest.mark.parametrize("mode", ["mirrored", "ring"])
@pytest.mark.parametrize("way", QUICK_AND_WIDE)
def test_every_sector_and_element_is_right(way: str, mode: str) -> None:
    outcome, checked = run(way, mode)
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms
    assert len(outcome.ranks) == (1 if mode == "mirrored" else 8)


@pytest.mark.parametrize("way", QUICK_AND_WIDE)
def test_one_mirrored_node_takes_as_long_as_each_of_eight(way: str) -> None:
    """As their mean: each of a ring both ways is held up by two neighbours, and the slowest takes 1.2 % longer."""
    (mirrored, _), (ring, _) = (run(way, mode) for mode in ("mirrored", "ring"))
    assert ends(mirrored) == pytest.approx(ends(ring), rel=0.01)
    for name in ("tracker_triggers", "sectors_rs_read", "sectors_rs_update"):
        assert {status["registers"][name] for status in ring.ranks} == {mirrored.ranks[0]["registers"][name]}
