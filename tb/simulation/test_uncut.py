"""Uncut-GEMMs beside this hardware: routes by estimated time of arrival, C that is reduced lazily, what is compared."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

from sim.collectives.check import check, check_alike, check_links
from sim.collectives.fetch_plan import Host, plan
from sim.collectives.known import program
from sim.collectives.program import Part, ProgramError
from sim.experiments import program_check
from sim.experiments.job import program_of
from sim.experiments.outcomes import Outcome
from sim.experiments.program_model import ProgramWork, node_of, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.golden.arithmetic import to_float64
from sim.report import uncut
from sim.report.evaluation import Evaluation
from sim.report.page import Run, write_report
from sim.report.plan import needed_points
from sim.topologies.known import topology
from sim.workloads.machines import machine
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


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 15])
def test_from_a_host_every_chunk_crosses_one_slow_link_and_goes_round_a_ring(gpus: int) -> None:
    """Each link of the host carries one chunk, all at a time; what comes in slowly goes on piece by piece."""
    routes = plan((gpus,) * gpus, gpus, 8, Host(gpus, 25, ring=True))
    slow = [hop for hop in routes.hops if hop.sender == gpus]
    assert sorted((hop.chunk, hop.receiver) for hop in slow) == [(rank, rank) for rank in range(gpus)]
    assert {hop.arrives for hop in slow} == {25}
    for rank in range(gpus):
        for chunk in range(gpus):
            following = (rank + 1) % gpus
            assert routes.peers(rank, chunk) == ([] if following == chunk else [following])
            # A piece later at each hop, the first as well as the last one.
            hops = (rank - chunk) % gpus
            assert routes.expected(rank, chunk, 1) == pytest.approx(25 + hops / 8)
            assert routes.expected(rank, chunk, 0.5) == pytest.approx(12.5 + hops / 8)


def test_where_all_links_are_alike_a_rank_that_has_it_sends_to_all_that_it_reaches() -> None:
    """Without a ring the ranks are earlier by what another hop would take."""
    routes = plan((4,) * 4, 4, 8, Host(4, 25))
    assert len([hop for hop in routes.hops if hop.sender == 4]) == 4
    assert all(hop.sender in (4, hop.chunk) for hop in routes.hops)
    assert routes.end < plan((4,) * 4, 4, 8, Host(4, 25, ring=True)).end


@pytest.mark.parametrize("times", [10, 25, 1000])
def test_routes_from_a_host_that_is_slower_than_the_whole_ring_are_the_same(times: float) -> None:
    routes, others = (plan((8,) * 8, 8, 8, Host(8, slow, ring=True)) for slow in (times, 25.0))
    assert sorted(hop[1:] for hop in routes.hops) == sorted(hop[1:] for hop in others.hops)


@pytest.mark.parametrize("how", ["", "spread", "straight"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 15])
def test_the_program_of_a_host_is_right_and_has_its_links(gpus: int, how: str) -> None:
    made = program("hosted-gemm", gpus + 1, **({how: True} if how else {}))
    check(made)
    check_links(made, topology("hosted-mesh" if how == "spread" else "hosted-ring", gpus + 1))
    with pytest.raises(ProgramError, match="one rank of hosted-gemm cannot stand for all"):
        check_alike(made)
    assert made.kernels(gpus) == () and made.lies(0) == ()


def test_tiles_are_taken_in_the_order_in_which_their_operands_come() -> None:
    """A square of what has come, a row of each chunk of A and a column of B larger each time."""
    gpus, side = 4, 8
    (gemm,) = program("hosted-gemm", gpus + 1).kernels(1)
    assert gemm.order is not None
    tiles = list(gemm.order(gpus * side, side))
    assert sorted(tiles) == list(range(gpus * side * side))
    for come in range(1, side + 1):
        first = {divmod(tile, side) for tile in tiles[: gpus * come * come]}
        assert first == {(row, column) for row in range(gpus * side) for column in range(come) if row % side < come}
    (gemm,) = program("hosted-gemm", gpus + 1, straight=True).kernels(1)
    assert gemm.order is not None
    # All of B is there with the first of four chunks of A, of which the other rows come one by one.
    assert list(gemm.order(gpus * side, side))[side * side :] == list(range(side * side, gpus * side * side))


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
    points = [(point, program_of(point)) for point in uncut.points()]
    on_host = [point for point, _ in uncut.on_host()]
    found = {node_of(point, made, tilings_of(point, made)) for point, made in points if point not in on_host}
    assert len(found) == 1
    # A host has a port for each of the GPUs, and a trigger table of a size that its tiles and rings decide.
    hosted = {node_of(point, made, tilings_of(point, made)) for point, made in points if point in on_host}
    sizes = [(2, 8192), (2, 32768), (4, 65536), (8, 32768), (8, 65536)]
    assert sorted((config.links, config.trigger_blocks) for config in hosted) == sizes
    assert len({replace(config, trigger_blocks=32768) for config in hosted}) == 3


@pytest.mark.parametrize("side", uncut.ON_HOST)
def test_everything_takes_as_much_of_the_gemm_as_at_the_whole_depth(side: int) -> None:
    """8192 x 8192 x 8192 on eight GPUs: 268 MB of A and of B, an eighth over each link of 12 GB/s, and as much back;
    of twice the sides four times as much, under a GEMM that takes nearly eight times as long."""
    here = machine(uncut.MACHINE)
    gemm = here.workgroup_us(64, 64, side) * (side // 64) ** 2 / 8 / here.compute_units
    compute, of_a, of_b, back = uncut.host_times(uncut.hosted(8, side=side))
    for time in (of_a, of_b, back):
        assert time / compute == pytest.approx(side**2 * 4 / 8 / 12e9 / (gemm * 1e-6), rel=1e-3)
    assert uncut.host_times(uncut.hosted(8, straight=True))[1] == pytest.approx(
        8 * uncut.host_times(uncut.hosted(8))[1]
    )
    assert max(uncut.host_bandwidth(side)) < here.link_gb_per_s


@pytest.mark.parametrize("side", uncut.PUBLISHED)
def test_as_much_of_a_is_fetched_for_what_is_computed_as_of_whole_matrices(side: int) -> None:
    """Of a side S a GPU of N fetches (N - 1) / N of S rows of A for S x S / N elements of C: the same of fewer rows."""
    for gpus in uncut.PUBLISHED[side]:
        rows, columns, _ = uncut.spread(gpus, side=side).shape
        one = uncut.alone(side).shape
        assert rows / (rows * columns * gpus) == 8 / side
        assert (rows, columns * gpus) == one[:2]
        assert rows * columns * gpus == (uncut.SIDE // 8) ** 2


@pytest.mark.parametrize("spec", [spec for spec, _ in uncut.on_host()], ids=lambda spec: spec.name)
def test_no_order_of_transfers_is_better_than_the_bound(spec: Spec) -> None:
    """Step by step, the next byte always of what helps more: what is left to do when all has come."""
    compute, of_a, of_b, back = uncut.host_times(spec)
    steps = 20_000
    step, a, b, done = (of_a + of_b) / steps, 0.0, 0.0, 0.0
    for _ in range(steps):
        if a < of_a and (a <= b or b >= of_b):
            a += step
        else:
            b += step
        done = min(done + step / compute, min(1, a / of_a) * min(1, b / of_b))
    assert uncut.bound(spec) == pytest.approx(max(of_a + of_b + (1 - done) * compute, back), rel=2e-3)
    assert uncut.bound(spec) >= uncut.longest(spec)


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
    # With a host they are a rank more: 2,020 cycles on one GPU, and 5,050 on four.
    hosted = records["uncut/host/gpus-4"]
    assert hosted["ours"]["speedup"] == pytest.approx(2020 / 5050)
    assert hosted["published"] == {"speedup": 3.0}
    assert hosted["ours"]["over_bound"] == pytest.approx(5050 / uncut.bound(uncut.hosted(4)))
    assert records["uncut/32k/gpus-8"]["published"] == {"speedup": 7.8}
    assert records["uncut/host/16k/gpus-8"]["published"] == {"speedup": 5.3}
    assert records["uncut/host/gpus-4/straight"]["published"] == records["uncut/host/gpus-1"]["published"] == {}
    assert "speedup" not in records["uncut/host/gpus-1"]["ours"]


def test_compute_units_are_idle_beside_what_workgroups_take(outcomes: dict[Spec, Outcome]) -> None:
    spec = uncut.spread(8)
    result = outcomes[spec].result
    assert result is not None
    long = {spec: Outcome(spec, result | {"cycles": 2_000_000})}
    ours = next(record["ours"] for record in uncut.records(outcomes | long) if record["point"] == spec.name)
    # 2 x 8192 x 1024 x (1024 + 110) operations at 17.2 TFLOP/s are 1.1 ms, in cycles of 1.31 ns.
    assert ours["idle"] == pytest.approx(1 - 1.1061e-3 / (2_000_000 * 1.3128e-9), abs=0.002)


def test_points_without_what_they_are_compared_with_have_no_record(outcomes: dict[Spec, Outcome]) -> None:
    ones = [uncut.hosted(1, side=side) for side in uncut.ON_HOST] + [uncut.alone(side) for side in uncut.PUBLISHED]
    gone = (*ones, uncut.chain(*uncut.CHAINS[0]), uncut.nodes()[1])
    assert uncut.records({spec: outcome for spec, outcome in outcomes.items() if spec not in gone}) == []


def test_the_report_has_a_section_and_a_table(outcomes: dict[Spec, Outcome], tmp_path: Path) -> None:
    write_report(tmp_path, Evaluation(outcomes), Run("0123", len(outcomes), 0.0))
    assert (tmp_path / "uncut.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"point", "ours", "published", "real"} <= set(summary["systems"]["uncut"][0])
    assert "| gpus-8 |" in (tmp_path / "results.md").read_text()
    assert "| host/gpus-8 |" in (tmp_path / "results.md").read_text()
