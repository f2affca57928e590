"""ConCCL beside this hardware: its points, how GEMM and a kernel that copies share compute units, what is compared."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

from sim.collectives.check import check, check_alike
from sim.collectives.independent_gemm import beside_independent_gemm
from sim.collectives.known import program
from sim.collectives.program import Part, ProgramError, Sharing
from sim.errors import UsageError
from sim.experiments.catalogue import collective
from sim.experiments.job import program_of
from sim.experiments.outcomes import Outcome
from sim.experiments.program_model import ProgramWork, node_of, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.models import plan_layout
from sim.report import conccl
from sim.report.evaluation import Evaluation
from sim.report.page import Run, write_report
from sim.report.plan import needed_points
from sim.workloads.machines import machine, recorded_concurrency
from tb.drivers import point_double


@pytest.fixture(scope="module")
def outcomes() -> dict[Spec, Outcome]:
    return {point: Outcome(point, point_double.analytic(point)) for point in needed_points(["conccl"])}


def small(strategy: str, operation: str = "a2a") -> ProgramWork:
    """A pair small enough to look at."""
    spec = conccl.both("cb1", operation, strategy)
    fields = {"shape": (8 * 32, 128, 0), "gemm_shape": (8 * 64, 1024, 32)}
    return program_work(Spec(**{**{name: getattr(spec, name) for name in spec.__dataclass_fields__}, **fields}))


def test_points_are_pairs_of_gemms_and_communication() -> None:
    points = needed_points(["conccl"])
    pairs = len(list(conccl.pairs()))
    assert len(points) == len(set(points)) == len(conccl.GEMMS) + 2 + pairs * (2 + len(conccl.STRATEGIES))
    assert {point.machine for point in points} == {"mi300x"}
    assert {point.topology for point in points} == {"mesh"}
    for gemm in conccl.GEMMS.values():
        assert gemm.mib % gemm.scale == 0
        # A chunk that is sent is whole tiles, as is what it stands for.
        assert gemm.rows % (conccl.GPUS * conccl.TILE[0]) == 0


def test_a_gemm_and_what_is_sent_take_the_same_time_or_nearly() -> None:
    for gemm in conccl.GEMMS.values():
        sent_us = gemm.mib * 2**20 / conccl.GPUS / (machine("mi300x").link_gb_per_s * 1000)
        assert 0.4 < sent_us / machine("mi300x").gemm_us(*gemm.shape) < 2


def test_two_builds_of_the_machine_serve_all_points() -> None:
    """Small blocks take more entries of the trigger table."""
    small, other = (
        {
            node_of(point, program_of(point), tilings_of(point, program_of(point))).trigger_blocks
            for point in conccl.points()
            if bool(point.dma_block) == few
        }
        for few in (True, False)
    )
    assert small == {4096, 8192}
    assert other == {4096}


@pytest.mark.parametrize("operation", conccl.OPERATIONS)
@pytest.mark.parametrize("strategy", ["priority", "paced"])
def test_pairs_are_alike_on_all_ranks(operation: str, strategy: str) -> None:
    made = program_of(conccl.both("cb1", operation, strategy))
    check(made)
    check_alike(made)


@pytest.mark.parametrize("name", ["all-to-all-dma", "all-to-all", "direct-all-gather"])
def test_the_golden_of_a_pair_leaves_the_gemm_out(name: str) -> None:
    """Chunks of the GEMM are larger than those of what is sent; they stand between what is stored and what lies."""
    options = {"all-to-all": {"copied": True}, "direct-all-gather": {"lying": True}}.get(name, {})
    plain = program(name, 3, **options)
    rng = np.random.default_rng(1)
    chunks = 1 if name == "direct-all-gather" else 3
    sent = [rng.integers(0, 9, chunks * 4) for _ in range(3)]
    stored = chunks * 4 if plain.kernels(0) else 0
    gemm = rng.integers(10, 19, 3 * 10)
    pair = beside_independent_gemm(plain, 10, Sharing.OWN)
    both = [np.concatenate([data[:stored], gemm, data[stored:]]) for data in sent]
    np.testing.assert_array_equal(pair.golden(both), plain.golden(sent))


def test_a_chunk_that_lies_in_memory_is_sent_by_its_doorbell() -> None:
    made = program("direct-all-gather", 4, lying=True)
    check(made)
    assert not made.kernels(1)
    assert made.lies(1) == (Part("gathered", 1),)
    assert [region.chunk for region in made.regions(1) if region.doorbell] == [1]


def test_a_kernel_that_gathers_reads_one_chunk_for_all() -> None:
    (copy, _), (alike, _) = small("priority").kernels[0], small("priority", "ag").kernels[0]
    assert copy.reads == 8 * alike.reads
    assert np.count_nonzero(alike.workgroups["a_sectors"]) == alike.count / 8
    with pytest.raises(ProgramError, match="with copied only"):
        program("all-to-all", 8, alike=True)


def test_a_kernel_that_copies_stores_to_all_peers_in_turns() -> None:
    copy, gemm = small("priority").kernels[0]
    port, remote = (np.asarray(copy.workgroups[name]) for name in ("port", "remote"))
    assert port[remote == 1][:7].tolist() == list(range(7))
    # The GEMM goes along the rows of its tiles, which have their numbers.
    assert (np.diff(np.asarray(gemm.workgroups["wg"])[:8]) == 1).all()


def test_blocks_of_an_all_to_all_are_small_where_each_has_one_receiver() -> None:
    blocks = {point.name: point.dma_block for point in conccl.points()}
    assert blocks["conccl/cb1/a2a/mca"] == blocks["conccl/cb1/a2a/memory"] == conccl.BLOCK
    assert {blocks[f"conccl/cb1/{name}"] for name in ("ag/mca", "a2a/priority", "a2a/kernel", "gemm")} == {0}


def test_a_compute_unit_copies_at_the_rate_of_the_table() -> None:
    copy, _ = small("priority").kernels[0]
    (cycles,) = set(np.asarray(copy.workgroups["step_cycles"]).tolist())
    mi300x = machine("mi300x")
    # A tile of 4 KiB in a slice of 2 of 128 channels is 256 KiB of the GPU.
    assert cycles * mi300x.cycle_ns == pytest.approx(256 * 1024 / mi300x.copy_gb_per_s, rel=0.001)
    # So 48 units are a little faster than seven links.
    assert 1 < conccl.UNITS * mi300x.copy_gb_per_s / (7 * mi300x.link_gb_per_s) < 1.1


@pytest.mark.parametrize(
    ("strategy", "sharing", "slots"),
    [
        ("side-by-side", plan_layout.Sharing.FOLLOWS, 304),
        ("priority", plan_layout.Sharing.PRECEDES, 304),
        ("partitioned", plan_layout.Sharing.OWN, 304 - 48),
    ],
)
def test_kernels_share_compute_units(strategy: str, sharing: plan_layout.Sharing, slots: int) -> None:
    spec = conccl.both("cb1", "ag", strategy)
    copy, gemm = program_work(spec).kernels[0]
    assert copy.kernel["slots"] == conccl.UNITS
    assert gemm.kernel["slots"] == slots
    assert copy.kernel["sharing"] == sharing.value
    assert gemm.kernel["sharing"] == plan_layout.Sharing.OWN.value
    assert gemm.kernel["beside"]


def test_percent_of_ideal_is_over_the_pair_in_turn(outcomes: dict[Spec, Outcome]) -> None:
    records = {record["point"]: record for record in conccl.records(outcomes)}
    # By the double the GEMM takes 8,000 cycles, a kernel that copies 500, and the pair 8,080, or 100 more by kernels.
    ours = records["conccl/cb1/ag/paced"]["ours"]
    assert ours["ideal"] == pytest.approx(8500 / 8000)
    assert ours["speedup"] == pytest.approx(8500 / 8080)
    assert ours["percent_of_ideal"] == pytest.approx(100 * (8500 / 8080 - 1) / (8500 / 8000 - 1))
    assert ours["bound"] == 8000
    assert records["conccl/cb1/ag/priority"]["ours"]["speedup"] == pytest.approx(8500 / 8180)


def test_dram_traffic_is_a_bound_too(outcomes: dict[Spec, Outcome]) -> None:
    spec = conccl.both("mb1", "a2a", "paced")
    result = outcomes[spec].result
    assert result is not None
    heavy = result | {"dram_sectors": {"gemm": {"read": 10_000, "write": 6_100}}}
    records = {record["point"]: record for record in conccl.records(outcomes | {spec: Outcome(spec, heavy)})}
    ours = records[spec.name]["ours"]
    # Two channels, a sector a cycle.
    assert ours["bound"] == 8050
    assert ours["dram_share"] == pytest.approx(8050 / 8080)


def test_records_hold_ours_published_and_real(outcomes: dict[Spec, Outcome]) -> None:
    records = {record["point"]: record for record in conccl.records(outcomes)}
    pairs = len(list(conccl.pairs()))
    assert len(records) == pairs * len(conccl.STRATEGIES) + 1
    stated = {name: records[f"conccl/cb1/ag/{name}"]["published"]["percent_of_ideal"] for name in conccl.STRATEGIES}
    assert stated["side-by-side"] < stated["partitioned"] < stated["priority"] < stated["mca"] == 66
    assert records[conccl.nodes()[0].name]["ours"]["over_mirrored"] == 1
    assert "published 66 %" in conccl.line(records["conccl/cb1/ag/mca"])
    assert "of one node that stands for all" in conccl.line(records[conccl.nodes()[0].name])


def test_what_was_recorded_on_h200_is_worse_by_kernels() -> None:
    kernels, engines = (
        {name: recorded_concurrency(how, name) for name in conccl.OPERATIONS} for how in ("nccl", "dma")
    )
    assert kernels == pytest.approx({"ag": 38.7, "a2a": 26.5}, abs=0.1)
    assert engines == pytest.approx({"ag": 49.2, "a2a": 70.4}, abs=0.1)


def test_pairs_without_their_parts_have_no_record(outcomes: dict[Spec, Outcome]) -> None:
    gone = conccl.alone("cb1", "a2a", copied=True)
    kept = {spec: outcome for spec, outcome in outcomes.items() if spec != gone}
    assert not [record for record in conccl.records(kept) if record["point"].startswith("conccl/cb1/a2a")]


PAIR = {"machine": "mi300x", "shape": (8192, 1024, 0), "tile": (128, 1024), "wiring": "mesh"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sharing": "priority"}, "sharing is of an independent GEMM"),
        ({"gemm_shape": (2048, 2048, 2048)}, "gemm-shape is of an independent GEMM"),
        ({"independent": True, "sharing": "both"}, "sharing must be one of own, partitioned"),
        ({"independent": True, "gemm_shape": (2048, 2048)}, "gemm-shape must be M, N and K"),
        ({"independent": True, "gemm_shape": (2044, 2048, 2048)}, "gemm-shape must be multiples of 8"),
        ({"independent": True, "gemm_shape": (2088, 2048, 2048)}, r"gemm-shape M must be a multiple of gpus \(8\)"),
        ({"independent": True, "gemm_shape": (0, 2048, 2048)}, "gemm-shape M must be a whole number from 1"),
    ],
)
def test_what_a_pair_cannot_be_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        collective("all-to-all-dma", 8, **PAIR | fields)


def test_a_machine_runs_no_second_gemm() -> None:
    two = collective("ring-all-gather-gemm", 8, independent=True, machine="h100", shape=(1024, 4096, 4096))
    with pytest.raises(UsageError, match="a machine is for programs with one GEMM"):
        program_work(two)


def test_the_report_has_a_section_and_a_table(outcomes: dict[Spec, Outcome], tmp_path: Path) -> None:
    write_report(tmp_path, Evaluation(outcomes), Run("0123", len(outcomes), 0.0))
    assert (tmp_path / "conccl.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"point", "ours", "published", "real"} <= set(summary["systems"]["conccl"][0])
    assert "| cb1/a2a/paced |" in (tmp_path / "results.md").read_text()
