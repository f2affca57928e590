"""Recorded traces: the shipped ones fit their shapes, and what is not a trace is refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest

from sim.collectives.program import Does
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.errors import UsageError
from sim.experiments.catalogue import collective, own
from sim.experiments.grid import grid
from sim.experiments.program_model import program_work
from sim.experiments.spec import Spec
from sim.experiments.spec_values import KERNELS, TRACE
from sim.workloads.kernel_plans import KernelPlan, gemm_kernel
from sim.workloads.machines import machine
from sim.workloads.recorded_trace import H200_TRACES, load_trace, shipped_traces
from sim.workloads.sublayer import SubLayer

LAYER = SubLayer(512, 256, 192, 4)
"""Eight workgroups of three steps."""
WORKGROUPS = LAYER.gpus * LAYER.workgroups
ROWS = np.array([[wg, wg % 3, 100 * (wg // 3), 100 * (wg // 3) + 90] for wg in range(8)])


def saved(folder: Path, **arrays: np.ndarray) -> str:
    """An npz file with these arrays."""
    np.savez(folder / "trace.npz", allow_pickle=False, **arrays)
    return str(folder / "trace.npz")


def test_workgroups_begin_and_take_as_long_as_they_did(tmp_path: Path) -> None:
    shuffled = np.random.default_rng(1).permutation(ROWS)
    trace = load_trace(saved(tmp_path, gemm=shuffled) + ":gemm", WORKGROUPS)
    assert trace.slots == 3
    times = trace.times(LAYER.steps)
    assert np.array_equal(times.not_before, np.sort(ROWS[:, 2]))
    assert np.array_equal(times.step_cycles, np.full(8, 30))
    program = ring_reduce_scatter(LAYER.gpus)
    plan = gemm_kernel(LAYER, program, 0, trace.slots, times, overlapped=True, order=trace.dispatch(LAYER))
    assert sorted(np.asarray(plan.workgroups["wg"]).tolist()) == list(range(8))


@pytest.mark.parametrize("key", sorted(shipped_traces()))
def test_every_shipped_trace_fits_its_shape(key: str) -> None:
    m, n, k, tp = shipped_traces()[key]
    trace = load_trace(f"{H200_TRACES}:{key}", tp * SubLayer(m, n, k, tp).workgroups)
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
        load_trace(saved(tmp_path, gemm=change(ROWS)), WORKGROUPS)


def test_a_file_of_several_needs_a_key(tmp_path: Path) -> None:
    file = saved(tmp_path, one=ROWS, two=ROWS)
    for name in (file, f"{file}:three"):
        with pytest.raises(UsageError, match="KEY one of one, two"):
            load_trace(name, WORKGROUPS)


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_text("not an archive")
    for name in ("none.npz", "broken.npz"):
        with pytest.raises(UsageError, match=r"does not exist|not a readable"):
            load_trace(str(tmp_path / name), WORKGROUPS)


@pytest.mark.parametrize("fields", [{"compute": TRACE}, {"compute": KERNELS, "trace": "x.npz"}, {"trace": "x.npz"}])
def test_a_trace_is_of_its_compute_model(fields: dict) -> None:
    with pytest.raises(UsageError):
        Spec(**fields)


def collective_of(trace: str, **fields) -> Spec:
    return collective("ring-all-gather-gemm", 2, **{"machine": "h100", "shape": (512, 256, 1024)} | fields, trace=trace)


def test_a_trace_of_a_program_is_of_a_machine_and_has_its_order(tmp_path: Path) -> None:
    file = saved(tmp_path, gemm=ROWS)
    for fields, reason in (
        ({"machine": "", "shape": (512, 256, 64)}, "needs a machine"),
        ({"tile_order": "columns"}, "tile-order is the trace's own"),
        ({"independent": True, "sharing": "partitioned", "choices": {"units": 16}}, "must not be partitioned"),
    ):
        with pytest.raises(UsageError, match=reason):
            collective_of(file, **fields)
    with pytest.raises(UsageError, match="does not exist"):
        collective_of(str(tmp_path / "none.npz"))


@pytest.mark.parametrize(
    ("name", "wiring", "fields"),
    [
        ("ring-reduce-scatter", "ring", {}),
        ("direct-reduce-scatter", "mesh", {}),
        ("split-k-reduce-scatter", "ring", {}),
        ("all-to-all-reduce-scatter", "mesh", {}),
        ("ring-all-reduce", "ring", {}),
        ("ring-all-gather-gemm", "ring", {"choices": {"fine": True}}),
        ("direct-all-gather-gemm", "mesh", {"choices": {"fine": True, "slices": 2}}),
        ("all-to-all-dma", "mesh", {"independent": True}),
        ("all-to-all", "mesh", {"independent": True, "choices": {"copied": True, "units": 16}}),
        ("fetched-gemm", "ring", {}),
        ("hosted-gemm", "hosted-mesh", {}),
    ],
)
def test_a_trace_drives_the_gemm_of_any_program(tmp_path: Path, name: str, wiring: str, fields: dict) -> None:
    """Of each system: the workgroups of the plan are the same, in the order and at the times of the trace."""

    def gemm(trace: str) -> KernelPlan:
        shape = (3072, 1024, 1024)
        work = program_work(collective(name, 4, wiring=wiring, shape=shape, machine="h800", trace=trace, **fields))
        kernels = zip(work.program.kernels(1), work.kernels[1], strict=True)
        return next(plan for kernel, plan in kernels if kernel.does is Does.MULTIPLY)

    plain = gemm("")
    order = np.random.default_rng(1).permutation(plain.count)
    begin = 100 * np.arange(plain.count)
    plan = gemm(saved(tmp_path, gemm=np.stack([order, order, begin, begin + 20_000], axis=1)))
    cycle_ns = machine("h800").cycle_ns
    assert np.array_equal(plan.workgroups["not_before"], np.round(begin / cycle_ns))
    lasts = plan.kernel["steps"] * np.asarray(plan.workgroups["step_cycles"])
    assert (abs(lasts - 20_000 / cycle_ns) <= plan.kernel["steps"] + 1).all()
    numbers, places = ([np.asarray(each.workgroups[name]) for each in (plain, plan)] for name in ("wg", "store_va"))
    sets = [set(zip(wg.tolist(), place.tolist(), strict=True)) for wg, place in zip(numbers, places, strict=True)]
    assert sets[0] == sets[1]
    assert not np.array_equal(numbers[0], numbers[1])
    assert len(plan.waits) == len(plain.waits)


def test_a_trace_of_a_program_without_a_gemm_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, gemm=ROWS)
    spec = collective("all-to-all-dma", 4, wiring="mesh", shape=(512, 512, 0), machine="h100", trace=file)
    with pytest.raises(UsageError, match="trace has no effect here: all-to-all-dma has no GEMM"):
        program_work(spec)


def test_a_trace_of_a_program_has_its_workgroups_and_fits_a_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one row for each of the 4 workgroups"):
        program_work(collective_of(saved(tmp_path, gemm=ROWS)))
    rows = np.array([[wg, wg, 10 * wg, (1 << 24) - 1] for wg in range(4)])
    with pytest.raises(UsageError, match=r"shorter than [0-9,]+ ns on machine h100"):
        program_work(collective_of(saved(tmp_path, gemm=rows)))
    rows[:, 3] = 1 << 22
    trace = load_trace(saved(tmp_path, gemm=rows), 4)
    assert np.max(trace.times(5).step_cycles) == (1 << 22) // 5
    with pytest.raises(UsageError, match="less than 1,048,576 cycles in each of their 4 steps"):
        trace.times(4)


def test_a_trace_begins_on_a_late_rank_when_that_is_armed(tmp_path: Path) -> None:
    rows = np.array([[wg, wg, 1000 * wg, 1000 * wg + 500] for wg in range(4)])
    late = collective_of(saved(tmp_path, gemm=rows), late_rank=1, late_cycles=5000)
    first, second = (np.asarray(kernels[0].workgroups["not_before"]) for kernels in program_work(late).kernels)
    assert len(set((second - first).tolist())) == 1
    assert second[0] > 5000 > first[0] == 0


def test_a_trace_comes_with_its_shape_and_order() -> None:
    with pytest.raises(UsageError, match="tp must be a whole number from 2 to 32"):
        own((128, 128, 64), 99, trace="x.npz")
    with pytest.raises(UsageError, match="tile-order is the trace's own"):
        own((512, 256, 192), 4, trace="x.npz", tile_order="rows")
    with pytest.raises(UsageError, match="a trace needs a shape"):
        grid(["workload=mine", "trace=x.npz"])
