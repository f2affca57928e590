"""Uncut-GEMMs beside this hardware: routes by estimated time of arrival, C that is reduced lazily, what is compared."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

from sim.collectives.check import check, check_alike
from sim.collectives.fetch_plan import plan
from sim.collectives.known import program
from sim.collectives.program import Part
from sim.experiments import program_check
from sim.experiments.job import program_of
from sim.experiments.program_model import ProgramWork, node_of, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.experiments.sweep import Outcome
from sim.golden.arithmetic import to_float64
from sim.report import uncut
from sim.report.evaluation import Evaluation
from sim.report.page import Run, write_report
from sim.report.plan import needed_points
from tb.drivers import point_double


@pytest.fixture(scope="module")
def outcomes() -> dict[Spec, Outcome]:
    return {point: Outcome(point, point_double.analytic(point)) for point in needed_points(["uncut"])}


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_chunks_of_every_rank_go_round_a_ring(gpus: int) -> None:
    """No link is idle, none carries two chunks at a time: the least that is possible."""
    routes = plan(tuple(range(gpus)), gpus, 8)
    assert routes.end == gpus - 1
    for rank in range(gpus):
        assert routes.order(rank) == [(rank - step) % gpus for step in range(gpus)]
        for chunk in range(gpus):
            following = (rank + 1) % gpus
            assert routes.peers(rank, chunk) == ([] if following == chunk else [following])


@pytest.mark.parametrize(("destinations", "pieces"), [(1, 1), (3, 4), (7, 8), (7, 64)])
def test_what_one_rank_has_goes_along_a_chain_in_pieces(destinations: int, pieces: int) -> None:
    routes = plan((0,), destinations + 1, pieces)
    assert routes.end == pytest.approx(1 + (destinations - 1) / pieces)
    assert [(hop.sender, hop.receiver) for hop in routes.hops] == [(rank, rank + 1) for rank in range(destinations)]


def test_in_one_piece_a_tree_is_planned() -> None:
    """A chain of whole transfers would take seven of them; each rank that has it sends it on instead."""
    assert plan((0,), 8, 1).end == 3


def test_no_rank_sends_or_takes_in_two_things_at_a_time() -> None:
    routes = plan((0, 0, 1, 5, 5, 5, 2, 7), 8, 4)
    for end in ("sender", "receiver"):
        for rank in range(8):
            times = sorted(hop.arrives for hop in routes.hops if getattr(hop, end) == rank)
            assert all(later - sooner > 1 - 1e-9 for sooner, later in pairwise(times))
    assert len(routes.arrivals) == 64


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_the_program_is_right_and_alike_on_all_ranks(gpus: int) -> None:
    made = program("fetched-gemm", gpus)
    check(made)
    check_alike(made)


def small() -> ProgramWork:
    """A slice small enough to look at."""
    return program_work(replace(uncut.spread(4), shape=(64, 32, 16), tile=(8, 8), wfs=8))


def test_c_is_what_lay_there_and_the_product() -> None:
    work = small()
    golden = to_float64("fp32", program_check.golden(work)).reshape(4, 16, 32)
    for chunk in range(4):
        part = Part("c", chunk)
        lay, product = work.given[0].lies[part], work.outputs[0][0, part]
        np.testing.assert_allclose(golden[chunk], to_float64("fp32", lay) + to_float64("fp32", product), rtol=1e-6)
    # Without what lay there it is another.
    assert not np.allclose(golden[0], to_float64("fp32", work.outputs[0][0, Part("c", 0)]), rtol=1e-3)


def test_one_build_serves_all_points() -> None:
    found = {node_of(point, program_of(point), tilings_of(point, program_of(point))) for point in uncut.points()}
    assert len(found) == 1


def test_tiles_are_those_that_fill_the_last_round_best() -> None:
    for gpus, tile in uncut.TILES.items():

        def rounds(rows: int, columns: int, share: int = uncut.SIDE // gpus) -> float:
            """Of 108 compute units, in workgroups of the machine's tile."""
            return -(-(uncut.SIDE // rows) * (share // columns) // 108) * rows * columns / 128**2

        assert rounds(*tile) <= min(rounds(128, 128), rounds(128, 64), rounds(64, 64)) * 1.001


def test_records_are_over_one_gpu(outcomes: dict[Spec, Outcome]) -> None:
    records = {record["point"]: record for record in uncut.records(outcomes)}
    # By the double one GPU takes 8,000 cycles, and so many of them 1,010 for each.
    assert records["uncut/gpus-4"]["ours"]["speedup"] == pytest.approx(8000 / 4040)
    assert records["uncut/gpus-4"]["published"] == {"speedup": 3.5}
    assert records["uncut/gpus-8/coarse"]["ours"]["speedup"] == pytest.approx(8000 / 8160)
    assert records["uncut/fetch/k7/p16"]["published"]["over_one"] == 1 + 6 / 16
    assert records[uncut.nodes()[0].name]["ours"] == {"over_mirrored": 1.0}
    assert "published speedup 3.500" in uncut.line(records["uncut/gpus-4"])


def test_compute_units_are_idle_beside_what_workgroups_take(outcomes: dict[Spec, Outcome]) -> None:
    spec = uncut.spread(8)
    result = outcomes[spec].result
    assert result is not None
    long = {spec: Outcome(spec, result | {"cycles": 2_000_000})}
    ours = next(record["ours"] for record in uncut.records(outcomes | long) if record["point"] == spec.name)
    # 2 x 8192 x 1024 x (1024 + 110) operations at 17.2 TFLOP/s are 1.1 ms, in cycles of 1.31 ns.
    assert ours["idle"] == pytest.approx(1 - 1.1061e-3 / (2_000_000 * 1.3128e-9), abs=0.002)


def test_points_without_what_they_are_compared_with_have_no_record(outcomes: dict[Spec, Outcome]) -> None:
    gone = (uncut.alone(), uncut.chain(*uncut.CHAINS[0]), uncut.nodes()[1])
    assert uncut.records({spec: outcome for spec, outcome in outcomes.items() if spec not in gone}) == []


def test_the_report_has_a_section_and_a_table(outcomes: dict[Spec, Outcome], tmp_path: Path) -> None:
    write_report(tmp_path, Evaluation(outcomes), Run("0123", len(outcomes), 0.0))
    assert (tmp_path / "uncut.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"point", "ours", "published", "real"} <= set(summary["systems"]["uncut"][0])
    assert "| gpus-8 |" in (tmp_path / "results.md").read_text()
