"""Recorded traces: the shipped ones fit their shapes, and what is not a trace is refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest

from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.errors import UsageError
from sim.experiments.catalogue import own
from sim.experiments.grid import grid
from sim.experiments.spec import Spec
from sim.experiments.spec_values import KERNELS, TRACE
from sim.workloads.kernel_plans import gemm_kernel
from sim.workloads.recorded_trace import H200_TRACES, load_trace, shipped_traces
from sim.workloads.sublayer import SubLayer

LAYER = SubLayer(512, 256, 192, 4)
"""Eight workgroups of three steps."""
ROWS = np.array([[wg, wg % 3, 100 * (wg // 3), 100 * (wg // 3) + 90] for wg in range(8)])


def saved(folder: Path, **arrays: np.ndarray) -> str:
    """An npz file with these arrays."""
    np.savez(folder / "trace.npz", allow_pickle=False, **arrays)
    return str(folder / "trace.npz")


def test_workgroups_begin_and_take_as_long_as_they_did(tmp_path: Path) -> None:
    shuffled = np.random.default_rng(1).permutation(ROWS)
    trace = load_trace(saved(tmp_path, gemm=shuffled) + ":gemm", LAYER)
    assert trace.slots == 3
    times = trace.times(LAYER)
    assert np.array_equal(times.not_before, np.sort(ROWS[:, 2]))
    assert np.array_equal(times.step_cycles, np.full(8, 30))
    program = ring_reduce_scatter(LAYER.gpus)
    plan = gemm_kernel(LAYER, program, 0, trace.slots, times, overlapped=True, order=trace.dispatch(LAYER))
    assert sorted(np.asarray(plan.workgroups["wg"]).tolist()) == list(range(8))


@pytest.mark.parametrize("key", sorted(shipped_traces()))
def test_every_shipped_trace_fits_its_shape(key: str) -> None:
    m, n, k, tp = shipped_traces()[key]
    trace = load_trace(f"{H200_TRACES}:{key}", SubLayer(m, n, k, tp))
    assert trace.slots in (132, 256)
    assert trace.begin[0] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows[:-1], "one row for each of the 8 workgroups"),
        (lambda rows: rows[:, :3], "rows of four whole numbers"),
        (lambda rows: rows.astype(float), "rows of four whole numbers"),
        (lambda rows: rows - [0, 0, 0, 95], "begin < store"),
    ],
)
def test_what_is_not_a_trace_is_refused(tmp_path: Path, change, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load_trace(saved(tmp_path, gemm=change(ROWS)), LAYER)


def test_a_file_of_several_needs_a_key(tmp_path: Path) -> None:
    file = saved(tmp_path, one=ROWS, two=ROWS)
    for name in (file, f"{file}:three"):
        with pytest.raises(UsageError, match="KEY one of one, two"):
            load_trace(name, LAYER)


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_text("not an archive")
    for name in ("none.npz", "broken.npz"):
        with pytest.raises(UsageError, match=r"does not exist|not a readable"):
            load_trace(str(tmp_path / name), LAYER)


@pytest.mark.parametrize("fields", [{"compute": TRACE}, {"compute": KERNELS, "trace": "x.npz"}, {"trace": "x.npz"}])
def test_a_trace_is_of_its_compute_model(fields: dict) -> None:
    with pytest.raises(UsageError):
        Spec(**fields)


def test_a_trace_comes_with_its_shape_and_order() -> None:
    with pytest.raises(UsageError, match="tp must be a whole number from 2 to 32"):
        own((128, 128, 64), 99, trace="x.npz")
    with pytest.raises(UsageError, match="tile-order is the trace's own"):
        own((512, 256, 192), 4, trace="x.npz", tile_order="rows")
    with pytest.raises(UsageError, match="a trace needs a shape"):
        grid(["workload=mine", "trace=x.npz"])
