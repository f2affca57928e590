"""Plans of kernels move what the closed forms say, in every shape of Table 2, and their files hold what was planned."""

import numpy as np
import pytest

from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.errors import UsageError
from sim.host.address_space import ARRAY_BASE
from sim.models.plan_layout import KERNELS, Kernel, Workgroup
from sim.workloads.calibration import analytic_cycles
from sim.workloads.kernel_plans import (
    Communication,
    GemmTimes,
    KernelPlan,
    all_gather_kernel,
    gemm_kernel,
    near_memory_reduce_scatter_kernel,
    plan_texts,
    reduce_scatter_kernel,
)
from sim.workloads.sublayer import SubLayer
from sim.workloads.table import WORKLOADS

LAYERS = [SubLayer(work.m, work.n, work.k, work.tp, channels) for work in WORKLOADS for channels in (1, 4)]


def column(plan: KernelPlan, name: str) -> np.ndarray:
    """A field of all workgroups."""
    return np.broadcast_to(np.asarray(plan.workgroups[name]), (plan.count,))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_chunks_hold_the_slice_of_the_output(layer: SubLayer) -> None:
    whole_gpu = layer.m * layer.n * 2 // 32
    assert layer.gpus * layer.chunk_sectors == whole_gpu * layer.channels // 32
    assert layer.tiling.workgroups * layer.gpus == layer.m // 128 * -(-layer.n // 128)


@pytest.mark.parametrize("layer", LAYERS[::5], ids=str)
def test_a_gemm_stores_every_sector_once(layer: SubLayer) -> None:
    plan = gemm_kernel(layer, ring_reduce_scatter(layer.gpus), 3, 80, GemmTimes(100, 10), overlapped=True)
    tiling = layer.tiling
    start, sectors = column(plan, "store_va") - ARRAY_BASE, column(plan, "row_sectors")
    row = np.arange(tiling.tile_rows) * tiling.pitch_sectors
    count = np.zeros(layer.gpus * tiling.sectors, int)
    for width in np.unique(sectors):
        first = start[sectors == width]
        np.add.at(count, (first[:, None, None] + row[:, None] + np.arange(width)).ravel(), 1)
    used = count.reshape(-1, tiling.pitch_sectors)[:, : layer.chunk_sectors // tiling.rows]
    assert (used == 1).all()
    assert count.sum() == used.sum()
    remote = column(plan, "remote").astype(bool)
    assert (column(plan, "wg")[remote] // layer.workgroups == 2).all()
    assert remote.sum() == layer.workgroups


@pytest.mark.parametrize("layer", LAYERS[::5], ids=str)
def test_communication_kernels_move_what_the_closed_forms_say(layer: SubLayer) -> None:
    gpus, chunk = layer.gpus, layer.chunk_sectors
    program = ring_reduce_scatter(gpus)
    reduction = reduce_scatter_kernel(layer, program, 1, Communication(80))
    near_memory = near_memory_reduce_scatter_kernel(layer, program, 1, Communication(80))
    gather = all_gather_kernel(layer, ring_all_gather(gpus), 1, Communication(80), after_done=False, received=5)
    assert [plan.reads for plan in (reduction, near_memory, gather)] == [
        (2 * gpus - 1) * chunk,
        (gpus - 1) * chunk,
        (gpus - 1) * chunk,
    ]
    for plan in (reduction, near_memory, gather):
        sent = column(plan, "row_sectors") * column(plan, "remote")
        assert sent.sum() == (gpus - 1) * chunk
    assert column(reduction, "row_sectors").sum() == gpus * chunk
    assert gather.kernel["arrive"] == 5 + (gpus - 1) * chunk
    # A piece waits for itself in the step before, and the last one for all that comes but the last step's.
    waits = column(gather, "wait")
    assert (waits[: gather.count // (gpus - 1)] == 0).all()
    assert waits[-1] == 5 + (gpus - 2) * chunk


def test_a_plan_file_holds_the_fields() -> None:
    layer = SubLayer(512, 256, 192, 4)
    plan = gemm_kernel(layer, ring_reduce_scatter(4), 2, 3, GemmTimes(100, np.arange(8)), overlapped=False)
    gather = all_gather_kernel(layer, ring_all_gather(4), 2, Communication(5), after_done=True, received=77)
    texts = plan_texts(0, [plan, gather])
    lines = [int(line, 16) for line in texts["plan0.hex"].split()]
    assert len(lines) == KERNELS + plan.count + gather.count
    second = Kernel.from_bits(lines[1] & (1 << Kernel.size) - 1)
    assert int(second.first) == KERNELS + plan.count
    assert int(second.arrive) == 77 + 3 * layer.chunk_sectors
    for number in range(plan.count):
        record = Workgroup.from_bits(lines[KERNELS + number] & (1 << Workgroup.size) - 1)
        assert int(record.lead_cycles) == number
        for name in ("a_va", "b_va", "store_va", "wg", "b_last"):
            assert int(record[name]) == column(plan, name)[number]
    assert len(texts["steps0.hex"].split()) == plan.count * layer.steps


def test_a_value_that_does_not_fit_is_refused() -> None:
    plan = gemm_kernel(
        SubLayer(512, 256, 192, 4), ring_reduce_scatter(4), 2, 3, GemmTimes(1 << 20, 0), overlapped=False
    )
    with pytest.raises(ValueError, match="step_cycles of a workgroup must be below"):
        plan_texts(0, [plan])


@pytest.mark.parametrize(("m", "n", "gpus"), [(1000, 256, 4), (384, 256, 4), (512, 200, 8)])
def test_a_shape_that_does_not_come_out_even_is_refused(m: int, n: int, gpus: int) -> None:
    with pytest.raises(UsageError):
        SubLayer(m, n, 64, gpus)


def test_the_analytic_model_gives_the_published_ideal_overlap() -> None:
    """Geomean 1.351 and maximum 1.490 over the sub-layers of TP 8 and 16."""
    speedups = []
    for work in WORKLOADS:
        if work.tp <= 16:
            gemm = analytic_cycles(SubLayer(work.m, work.n, work.k, work.tp), 80)
            ring = (work.tp - 1) / work.tp * work.m * work.n * 2 / 75
            speedups.append((gemm + 2 * ring) / (max(gemm, ring) + ring))
    assert np.exp(np.log(speedups).mean()) == pytest.approx(1.351, abs=0.002)
    assert max(speedups) == pytest.approx(1.490, abs=0.002)
