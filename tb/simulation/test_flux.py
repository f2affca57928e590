"""FLUX beside this hardware: its points, what a mirrored node of them is, and what is compared."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

from sim.collectives.check import check_alike
from sim.collectives.known import program
from sim.collectives.program import Part, ProgramError
from sim.errors import UsageError
from sim.experiments.catalogue import collective
from sim.experiments.job import program_of
from sim.experiments.outcomes import Outcome
from sim.experiments.program_model import node_of, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.report import flux
from sim.report.evaluation import Evaluation
from sim.report.page import Run, write_report
from sim.report.plan import needed_points
from sim.workloads.machines import machine
from tb.drivers import point_double


@pytest.fixture(scope="module")
def outcomes() -> dict[Spec, Outcome]:
    return {point: Outcome(point, point_double.analytic(point)) for point in needed_points(["flux"])}


def small(name: str, rows: int = 128, columns: int = 512, depth: int = 128, **fields: object) -> Spec:
    """A slice small enough to look at."""
    fields = {"wiring": "ideal-switch", "machine": "h800", "mode": "mirrored", "tile": (64, 128)} | fields
    return collective(name, 8, shape=(rows, columns, depth), **fields)  # type: ignore[arg-type]


def test_points_are_gpt_3_on_three_machines() -> None:
    points = needed_points(["flux"])
    assert len(points) == len(set(points)) == 2 * 2 * 3 * 6 + 3 * (2 + 3) + 1 + 3 * (3 * 6 + 5) + 1 + 6 + 6
    assert {point.machine for point in points} == {"a100-80-pcie", "a100-80", "h800"}
    multiplied = [point for point in points if point.shape[2]]
    assert {point.shape[1:] for point in multiplied} == {(6144 // 8, 12288 // 8), (12288 // 8, 6144 // 8)}
    assert {point.shape[0] * 8 for point in points} == set(flux.ROWS)
    assert {point.gpus for point in points} == {8}


def test_one_build_of_a_machine_serves_all_its_points_with_links_of_one_latency() -> None:
    for name in flux.PUBLISHED:
        found = {
            node_of(point, program_of(point), tilings_of(point, program_of(point)))
            for point in flux.points()
            if point.machine == name
        }
        latencies = {round(config.link_latency * machine(name).cycle_ns) for config in found}
        assert latencies == {500, *(flux.LATENCIES_NS if name == "h800" else ())}
        assert len(found) == len(latencies)
        config = found.pop()
        assert found == {replace(config, link_latency=other.link_latency) for other in found}
        assert config.links == 7
        assert config.link_bytes_per_cycle == pytest.approx(machine(name).link_bytes_per_cycle)


@pytest.mark.parametrize(
    "name",
    [
        "direct-reduce-scatter",
        "all-to-all-reduce-scatter",
        "ring-all-gather-gemm",
        "all-to-all",
        "direct-all-gather-gemm",
    ],
)
def test_programs_of_the_section_are_alike_on_all_ranks(name: str) -> None:
    check_alike(program(name, 8))


@pytest.mark.parametrize("name", ["direct-reduce-scatter", "all-to-all-reduce-scatter", "ring-all-gather-gemm"])
def test_the_naive_order_is_not_and_is_refused(name: str) -> None:
    with pytest.raises(ProgramError, match=r"one rank of .* cannot stand for all: rank 1 does not do what rank 0 does"):
        check_alike(program(name, 8, shifted=False))
    with pytest.raises(UsageError, match="cannot stand for all"):
        program_work(small(name, choices={"shifted": False}))


def test_a_mirrored_nodes_data_is_the_same_on_all_ranks_in_other_chunks() -> None:
    work = program_work(small("direct-reduce-scatter"))
    assert work.nodes == 1
    assert len(work.inputs) == 8
    for rank in (1, 5):
        for chunk in range(8):
            np.testing.assert_array_equal(
                work.given[rank].stores[0, Part("output", chunk), 0],
                work.given[0].stores[0, Part("output", (chunk - rank) % 8), 0],
            )
    assert not np.array_equal(work.inputs[0], work.inputs[1])


def test_a_users_arrays_are_not_mirrored() -> None:
    with pytest.raises(UsageError, match="mode must be ring with inputs"):
        collective("direct-reduce-scatter", 8, wiring="mesh", mode="mirrored", shape=(8, 64, 0), inputs="x.npz")


def test_a_copying_kernel_reads_what_it_stores_and_computes_nothing() -> None:
    work = program_work(small("all-to-all", depth=0, choices={"copied": True, "units": 4}))
    (plan,) = work.kernels[0]
    assert plan.kernel["slots"] == 4
    stored = np.sum(plan.workgroups["row_sectors"] * plan.workgroups["rows"])
    assert plan.reads == stored == 8 * work.laid["output"].tiling.sectors
    assert plan.workgroups["lead_cycles"] == plan.workgroups["step_cycles"] == 0


def test_an_adding_kernel_reads_every_received_sector_once() -> None:
    work = program_work(small("all-to-all-reduce-scatter", rows=1024))
    _, plan = work.kernels[0]
    received = work.laid["received"]
    assert plan.kernel["steps"] == 8
    read: list[int] = []
    places = np.stack([plan.workgroups[name] for name in ("a_va", "a_sectors")], axis=1)
    for first, sectors in places:
        for step in range(8):
            begin = int(first) + step * plan.kernel["a_stride"]
            read += range(begin, begin + int(sectors))
    assert sorted(read) == list(range(received.base, received.base + 8 * received.tiling.sectors))


def test_tiles_across_go_to_all_ranks_column_by_column() -> None:
    work = program_work(small("direct-reduce-scatter", rows=1024, tile_order="across"))
    (plan,) = work.kernels[0]
    laid = work.laid["output"]
    chunk, place = np.divmod(plan.workgroups["store_va"] - laid.base, laid.tiling.sectors)
    columns = place % laid.tiling.pitch_sectors
    assert (np.diff(columns) >= 0).all()
    assert set(chunk[columns == 0].tolist()) == set(range(8))


def test_workgroups_that_run_at_a_time_share_b_though_their_gates_differ() -> None:
    work = program_work(flux.overlapped("ag", "h800", 1024))
    (plan,) = work.kernels[0]
    a, b = 128 * 12288 * 2 // 8 // 8 // 32, 256 * 12288 * 2 // 8 // 8 // 32
    # 192 tiles are two rounds of 132 multiprocessors, each of which reads all 24 panels of B.
    assert plan.reads <= 2 * 24 * b + 10 * a


def test_a_gemm_in_slices_reads_each_when_its_gate_is_open() -> None:
    """Two tile rows to a chunk. All workgroups wait for the slices of their own row, each in as many steps."""
    work = program_work(flux.overlapped("ag-slices", "h800", 2048))
    (plan,) = work.kernels[0]
    laid, output, slices = work.laid["a"], work.laid["output"], flux.SLICES[2048]
    assert (laid.tiling.rows, laid.tiling.columns) == (slices * 2048 // 8 // 8, 12288 // 8 // slices)
    assert plan.kernel["slice_steps"] * slices == plan.kernel["steps"]
    panel = slices * laid.tiling.tile_rows * laid.tiling.pitch_sectors
    assert np.all(plan.workgroups["a_sectors"] * plan.kernel["steps"] == panel)
    assert np.all(plan.workgroups["a_last"] == plan.workgroups["a_sectors"])
    for first, store, gate in zip(*(plan.workgroups[name] for name in ("a_va", "store_va", "gate")), strict=True):
        chunk, row = divmod(int(store) - output.base, output.tiling.sectors)
        down = row // (output.tiling.tile_rows * output.tiling.pitch_sectors)
        assert work.gates[int(gate)] == (Part("a", chunk), down * slices)
        assert first == laid.chunk(chunk) + down * panel


def test_tiles_abreast_go_back_and_forth_through_what_arrives_together() -> None:
    """The own chunk with the first tile row of every other; then, from the last column back, their second rows."""
    work = program_work(flux.overlapped("ag-slices", "h800", 2048))
    (plan,) = work.kernels[0]
    tiling = work.laid["output"].tiling
    place = plan.workgroups["store_va"] - work.laid["output"].base
    chunk, place = np.divmod(place, tiling.sectors)
    down, across = np.divmod(place, tiling.tile_rows * tiling.pitch_sectors)
    across //= tiling.body_bytes // 32
    first = 9 * tiling.tiles_across
    assert set(zip(chunk[:first].tolist(), down[:first].tolist(), strict=True)) == {(0, 1), *((n, 0) for n in range(8))}
    assert (np.diff(across[:first]) >= 0).all()
    assert (down[first:] == 1).all()
    assert (np.diff(across[first:]) <= 0).all()


def test_banded_tiles_go_back_and_forth_through_eight_tile_rows() -> None:
    """Chunks have four tile rows, so that two are stored to at a time, the next rank's and the one behind it first."""
    work = program_work(flux.overlapped("rs-reduce", "h800", 4096))
    (plan,) = work.kernels[0]
    tiling = work.laid["output"].tiling
    chunk, place = np.divmod(plan.workgroups["store_va"] - work.laid["output"].base, tiling.sectors)
    across = place % tiling.pitch_sectors
    band = 8 * tiling.tiles_across
    for number, first in enumerate(range(0, len(chunk), band)):
        tiles = slice(first, first + band)
        assert set(chunk[tiles].tolist()) == {(2 * number + 1) % 8, (2 * number + 2) % 8}
        assert (np.diff(across[tiles]) * (-1) ** number >= 0).all()


def test_a_gemm_alone_has_every_tile_that_it_has_beside_its_communication() -> None:
    for point in flux.overlapped_points():
        alone = flux.alones(flux.WAYS[point.way], point.machine, point.rows)
        assert point.spec.tile in {spec.tile for spec in alone}, point.spec.name


def test_overlap_is_over_the_gemm_alone(outcomes: dict[Spec, Outcome]) -> None:
    records = {record["point"]: record for record in flux.records(outcomes)}
    # By the double a GEMM takes 1,000 cycles a chunk, communication 500, and both at once 8 x 1,010.
    ours = records["flux/h800/ag/m8192"]["ours"]
    assert ours["overlap_efficiency"] == pytest.approx(1 - 80 / 500)
    assert ours["over_longer"] == pytest.approx(1.01)
    assert ours["gemm_is_longer"]
    assert records["flux/h800/ag/m4096/coarse"]["ours"]["ect_cycles"] == 8 * 1020 - 4000


def test_records_hold_ours_published_and_real(outcomes: dict[Spec, Outcome]) -> None:
    records = {record["point"]: record for record in flux.records(outcomes)}
    assert len(records) == 3 * (3 * 6 + 5) + 7 + 6
    assert records["flux/a100-80/rs-reduce/m1024"]["published"] == {"least": 0.36, "greatest": 0.96, "mean": 0.63}
    assert records["flux/h800/ag/m64"]["published"] == {"least": -1.65, "greatest": -0.82, "mean": None}
    assert records["flux/h800/ag/m2048"]["real"]["overlap_efficiency"] == pytest.approx(0.156, abs=0.001)
    assert records["flux/h800/rs-write/m2048"]["real"]["overlap_efficiency"] is None
    assert "published 37 to 93 %" in flux.line(records["flux/h800/ag/m2048"])


def test_points_without_a_pair_have_no_record(outcomes: dict[Spec, Outcome]) -> None:
    gone = flux.alone("ag", "h800", 1024)
    kept = {spec: outcome for spec, outcome in outcomes.items() if spec != gone}
    assert not [record for record in flux.records(kept) if record["point"].startswith("flux/h800/ag/m1024")]


def test_the_report_has_a_section_and_a_table(outcomes: dict[Spec, Outcome], tmp_path: Path) -> None:
    write_report(tmp_path, Evaluation(outcomes), Run("0123", len(outcomes), 0.0))
    assert (tmp_path / "flux.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"point", "ours", "published", "real"} <= set(summary["systems"]["flux"][0])
    assert "| h800/rs-write/m8192 |" in (tmp_path / "results.md").read_text()
    assert "<td>h800/rs-write/m8192</td>" in (tmp_path / "index.html").read_text()
