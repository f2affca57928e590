"""Programs on a machine of the published systems, on the RTL: an all-gather into a GEMM on a slice of H100.

A quarter of every side of JAX's GEMM, so that it takes seconds; the report runs it whole.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sim.experiments.catalogue import collective
from sim.experiments.check import Checked
from sim.experiments.experiment import simulate, work_of
from sim.experiments.program_model import ProgramWork
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec
from sim.workloads.machines import machine

SHAPE = (1024, 1024, 1024)


def gathered(gates: str = "fine", trace: str = "") -> Spec:
    return collective(
        "ring-all-gather-gemm",
        2,
        wiring="ring-one-way",
        machine="h100",
        shape=SHAPE,
        choices={"fine": gates == "fine"},
        trace=trace,
    )


def recorded(folder: Path, workgroups: int, every: int, lasts: int) -> str:
    """A trace of so many workgroups, of which one begins `every` so many ns and each takes `lasts` ns, the last ones of
    dispatch first."""
    begin = every * np.arange(workgroups)
    rows = np.stack([np.arange(workgroups)[::-1], np.arange(workgroups), begin, begin + lasts], axis=1)
    np.savez(folder / "recorded.npz", gemm=rows)
    return f"{folder / 'recorded.npz'}:gemm"


@cache
def run(spec: Spec) -> tuple[ProgramWork, Outcome, Checked]:
    work = work_of(spec)
    assert isinstance(work, ProgramWork)
    return work, *simulate(spec, work)


@pytest.mark.parametrize("gates", [pytest.param("coarse", marks=pytest.mark.wide), "fine"])
def test_every_sector_and_element_is_right(gates: str) -> None:
    work, outcome, checked = run(gathered(gates))
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert {"gemm_read", "gathered_read", "launches"} <= set(checked.closed_forms)
    assert all(form["matches"] for form in checked.closed_forms.values())
    # A is 1,024 x 1,024 in FP16, a 64th of it: read from memory once, however many workgroups share it.
    for kernels, status in zip(work.kernels, outcome.ranks, strict=True):
        assert kernels[0].gathered_reads == 1024
        assert sum(seen["reads"] for seen in status["gathered"]) == 1024


def test_a_gemm_alone_takes_the_models_time_and_its_last_stores() -> None:
    spec = collective("gemm-alone", 2, wiring="ring-one-way", machine="h100", shape=(512, 1024, 1024))
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    (plan,) = work.kernels[0]
    workgroup = plan.workgroups["lead_cycles"] + plan.kernel["steps"] * plan.workgroups["step_cycles"]
    stored = plan.count * 32
    for status in outcome.ranks:
        assert workgroup + stored <= status["gemm_cycles"] <= workgroup + 2 * stored + 2000


def test_a_recorded_gemm_begins_and_computes_as_it_did(tmp_path: Path) -> None:
    shape = (512, 1024, 1024)
    every, lasts = 1000, 40_000
    plain = work_of(collective("gemm-alone", 2, wiring="ring-one-way", machine="h100", shape=shape))
    assert isinstance(plain, ProgramWork)
    (of_model,) = plain.kernels[0]
    trace = recorded(tmp_path, of_model.count, every, lasts)
    spec = collective("gemm-alone", 2, wiring="ring-one-way", machine="h100", shape=shape, trace=trace)
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    (plan,) = work.kernels[0]
    cycle_ns = machine("h100").cycle_ns
    assert np.array_equal(plan.workgroups["not_before"], [round(every * n / cycle_ns) for n in range(plan.count)])
    assert np.array_equal(plan.workgroups["store_va"], np.flip(of_model.workgroups["store_va"]))
    last = (every * (plan.count - 1) + lasts) / cycle_ns
    for status in outcome.ranks:
        # A step may be a cycle shorter; before the first its operands are read, after the last its tile is stored.
        assert last - plan.kernel["steps"] <= status["gemm_cycles"] <= last + 1500


def test_a_recorded_gemm_waits_for_what_it_gathers(tmp_path: Path) -> None:
    plain = work_of(gathered())
    assert isinstance(plain, ProgramWork)
    spec = gathered(trace=recorded(tmp_path, plain.kernels[0][0].count, 10, 5000))
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values())
    # The chunk of the peer, whose workgroups the trace begins with, is not there before it has come over the link.
    assert all(sum(seen["reads"] for seen in status["gathered"]) == 1024 for status in outcome.ranks)
    assert all(kernels[0].waits for kernels in work.kernels)


def test_reads_before_the_data_is_there_are_caught_though_the_cache_serves_most() -> None:
    spec = gathered()
    work = work_of(spec)
    assert isinstance(work, ProgramWork)
    ungated = tuple(tuple(replace(plan, waits=()) for plan in plans) for plans in work.kernels)
    _, checked = simulate(spec, replace(work, kernels=ungated))
    assert any("that are not what their owners wrote, the first in a[" in error for error in checked.errors)
