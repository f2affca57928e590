"""A ring of GPUs end to end: the recorded NCCL reduction, seeded bugs, the Tracker's overflow, skew, trigger latency.

The hardware of a test is built once and kept: the right design, which `make sim` builds as well, and one with all
seeded bugs, of which a run chooses.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.config import preset
from sim.collectives.interpret import interpret
from sim.collectives.program import Traffic
from sim.experiments.array_model import ArrayWork, array_job, array_work
from sim.experiments.catalogue import arrays, shape
from sim.experiments.check import Checked, check
from sim.experiments.experiment import run_experiment, run_with_output, simulate
from sim.experiments.job import program_of
from sim.experiments.regression import quiet
from sim.experiments.results import Result
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec
from sim.experiments.user_arrays import chunk_elements
from sim.golden.ring import ring_reduce_scatter
from sim.host.tiling import Tiling

RECORDING = Path(__file__).parent.parent / "data" / "nccl_ring_rs_n4.npz"
PRESET = "paper"
TRACKER_ENTRIES = 2048
TRIGGER_LATENCY_LIMIT = 16
"""Cycles from last commit to first DMA read when the controller is idle."""


def run(spec: Spec) -> Result:
    """`spec` on the RTL, without the simulator's output."""
    with quiet():
        return run_experiment(spec)


def outcome_of(spec: Spec, work: ArrayWork | None = None) -> tuple[Outcome, Checked]:
    """What the simulation of `spec` returns, and what is wrong with it."""
    with quiet():
        return simulate(spec, work)


def reduced_by_the_ring(folder: Path, x: np.ndarray, dtype: str, **options: Any) -> tuple[Result, np.ndarray]:
    """Bit patterns `x` of shape (N, elements) through the RTL, as `t3rtl run arrays` does it."""
    np.savez(folder / "x.npz", x=x)
    with quiet():
        result, reduced = run_with_output(arrays(folder / "x.npz", dtype, **options))
    assert reduced is not None
    return result, chunk_elements(reduced, x.shape[1] // len(x))


def is_nan(bits: np.ndarray) -> np.ndarray:
    """Which FP16 bit patterns are NaNs."""
    return (bits & 0x7FFF) > 0x7C00


@pytest.mark.parametrize("content", ["normal", "wide", "bits"])
def test_recorded_nccl_reduction(content: str, tmp_path: Path) -> None:
    """What four H200s reduced with NCCL comes out of the RTL bit for bit; NaNs as NaNs."""
    recording = np.load(RECORDING)
    inputs, expected = (recording[f"fp16_{content}_sum_n4_{side}"].view(np.uint16) for side in ("in", "out"))
    result, reduced = reduced_by_the_ring(tmp_path, inputs, "fp16", preset=PRESET)
    assert result["errors"] == []
    nans = is_nan(expected)
    assert nans.any() == (content == "bits")
    np.testing.assert_array_equal(is_nan(reduced), nans)
    np.testing.assert_array_equal(reduced[~nans], expected[~nans])


BALANCED = shape(gpus=4, shape=(128, 128, 64), tile=(16, 64), preset=PRESET)

SEEDED_BUGS = {
    "no_first_touch": "elements differ",
    "dropped_update": "elements differ",
    "doubled_trigger": "recorded",
    "wrong_ring_order": "elements differ",
}


def overtaking(bug: str = "") -> tuple[Spec, ArrayWork]:
    """A run in which a DMA read can overtake the update that triggered it, if the update counts when it is queued.

    Rows are 256 sectors apart, so that each update opens a row of its own and the DRAM takes one in a dozen cycles. A
    WF tile gets its last row only after all others have got theirs, so that the update which triggers the first DMA
    blocks waits behind full queues while the DMA engine is idle. Communication goes first (starvation limit 1).
    """
    tiling = Tiling(rows=256, columns=16, tile_rows=32, tile_columns=16, wfs=8, pitch_sectors=256)
    partials = np.random.default_rng(1).standard_normal((3, 3 * tiling.rows, 16)).astype(np.float16)
    spec = shape(
        "compute-first",
        gpus=3,
        shape=(3 * 256, 16, 0),
        tile=(32, 16),
        dma_block=1,
        starvation_limit=1,
        alone=False,
        preset=PRESET,
        bug=bug,
    )
    return spec, ArrayWork(partials.view(np.uint16), tiling)


@pytest.mark.parametrize("bug", ["", pytest.param("count_at_enqueue", marks=pytest.mark.wide)])
def test_count_at_enqueue_fails(bug: str) -> None:
    """Counting an access when it is queued lets a DMA read overtake it; counting at the commit does not."""
    _, checked = outcome_of(*overtaking(bug))
    assert any("elements differ" in text for text in checked.errors) == bool(bug), checked.errors


def test_right_design_passes_what_the_bugs_fail() -> None:
    result = run(BALANCED)
    assert result["errors"] == []
    occupancy, window = result["timeline"]["occupancy"], result["timeline"]["window"]
    assert occupancy
    assert window
    assert (len(occupancy) - 1) * window < result["cycles"] < (len(occupancy) + 1) * window
    assert 0 < max(occupancy) <= preset(PRESET).dram_queue_depth


def test_zeros_are_there_after_the_gemm_alone() -> None:
    """The GEMM that is timed by itself stores into the memory that a collective without first-touch adds to."""
    result = run(replace(BALANCED, initial="zeroing", alone=True))
    assert result["errors"] == []
    assert result["gemm_alone_cycles"]


@pytest.mark.parametrize("direction", ["cw", "ccw"])
def test_counters_are_what_the_program_moves(direction: str) -> None:
    """Every counter of every rank that the closed form, and the interpretation of the program, have a number for."""
    spec = replace(BALANCED, direction=direction, alone=False)
    work = array_work(spec)
    outcome, _ = outcome_of(spec, work)
    tiling, program = work.tiling, program_of(spec)
    chunk = tiling.sectors
    assert tiling.columns * 2 == 32 * tiling.pitch_sectors, "every sector of a chunk holds data"
    counted = []
    for rank in outcome.ranks:
        registers = rank["registers"]
        flits, packets = (
            sum(registers[f"link{port}_sent_{kind}"] for port in range(2)) for kind in ("flits", "packets")
        )
        figures = {
            "reads": registers["dma_reads"] / chunk,
            "local_stores": registers["sectors_gemm_store"] / chunk,
            "local_updates": registers["sectors_gemm_update"] / chunk,
            "arriving_stores": registers["sectors_rs_store"] / chunk,
            "arriving_updates": registers["sectors_rs_update"] / chunk,
            "egress": (flits - packets) / chunk,
            "blocks": registers["dma_blocks"] / tiling.blocks(spec.wfs),
            "triggers": registers["tracker_triggers"] / tiling.wf_tiles,
        }
        counted.append(Traffic(**figures))
    assert set(counted) == {program.moves()}
    interpreted = interpret(program, work.partials.reshape(spec.gpus, -1))
    assert tuple(counted) == interpreted.traffic
    assert outcome.reduced is not None
    np.testing.assert_array_equal(interpreted.result, outcome.reduced.reshape(spec.gpus, -1))


@pytest.mark.parametrize("bug", SEEDED_BUGS)
def test_seeded_bug_fails(bug: str) -> None:
    """A fault in the design fails the run, and the error is the one expected of it."""
    result = run(replace(BALANCED, bug=bug))
    assert not result["passed"]
    assert any(SEEDED_BUGS[bug] in text for text in result["errors"]), result["errors"]


def test_more_live_wf_tiles_than_the_tracker_holds() -> None:
    """Over three times as many counters as entries: the result is right, each WF tile triggers exactly once."""
    spec = shape(gpus=3, shape=(3 * 200, 512, 0), tile=(8, 16), schedule="sweep", alone=False, preset=PRESET)
    tiling = spec.tiling()
    assert tiling.wf_tiles > 3 * TRACKER_ENTRIES
    outcome, checked = outcome_of(spec)
    assert checked.errors == ()
    for rank in outcome.ranks:
        registers = rank["registers"]
        # Rank by rank: the DMA-mapped chunk and the one that stays.
        assert registers["tracker_triggers"] == 2 * tiling.wf_tiles
        assert registers["dma_blocks"] == tiling.blocks(spec.wfs)
        assert registers["tracker_live_peak"] == TRACKER_ENTRIES
        assert registers["tracker_evictions"] > tiling.wf_tiles - TRACKER_ENTRIES
        assert registers["fault_count"] == 0


def test_a_rank_armed_late() -> None:
    """Neighbours that are ready wait for the grant of a rank armed 20,000 cycles after the GEMM has begun to store."""
    result = run(replace(BALANCED, alone=False, late_rank=2, late_cycles=20_000))
    assert result["errors"] == []
    assert result["cycles"] > 20_000


@pytest.mark.slow
def test_sixteen_gpus(tmp_path: Path) -> None:
    """The closed forms and every bit at N = 16, through a user's arrays; `make sim` runs 16 GPUs too."""
    x = np.random.default_rng(5).integers(0, 1 << 16, (16, 16 * 16 * 24), dtype=np.uint16)
    result, reduced = reduced_by_the_ring(tmp_path, x, "bf16", direction="ccw", preset="wide")
    assert result["errors"] == []
    np.testing.assert_array_equal(reduced, ring_reduce_scatter(x, "bf16", "add", direction=-1))


def test_trigger_latency() -> None:
    """Last commit to first DMA read with an idle controller: one block of one sector, its row open, no refresh due."""
    outcome, checked = outcome_of(shape(gpus=3, shape=(3, 16, 0), tile=(1, 16), wfs=1, alone=False, preset=PRESET))
    assert checked.errors == ()
    latencies = [rank["registers"]["trigger_latency_last"] for rank in outcome.ranks]
    assert all(0 < latency <= TRIGGER_LATENCY_LIMIT for latency in latencies), latencies


def test_a_wrong_element_and_a_wrong_counter_are_found() -> None:
    """The checkers of an array: other operands than the golden's, and a count that is one off."""
    spec = replace(BALANCED, alone=False)
    work = array_work(spec)
    with quiet():
        outcome, checked = simulate(spec, work)
    assert checked.errors == ()
    other = replace(work, partials=work.partials ^ np.uint16(0x8000))
    config = array_job(spec, work).build.config
    assert any("elements differ" in text for text in check(spec, other, config, outcome).errors)
    outcome.ranks[1]["registers"]["tracker_triggers"] += 1
    (error,) = check(spec, work, config, outcome).errors
    assert error.startswith("triggers is ")
