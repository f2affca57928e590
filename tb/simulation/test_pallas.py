"""JAX's collective matmul beside this hardware: its points, what a slice of them is, and what is compared."""

import json
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

from sim.errors import UsageError
from sim.experiments.catalogue import collective
from sim.experiments.job import program_of
from sim.experiments.outcomes import Outcome
from sim.experiments.program_model import ProgramWork, node_of, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.report import pallas
from sim.report.evaluation import Evaluation
from sim.report.page import Run, write_report
from sim.report.plan import needed_points
from sim.workloads.machines import machine
from tb.drivers import point_double

SECTORS = 4096
"""Of a shard of A, and of its share of the output, in the slice; B has four times as many."""


@pytest.fixture(scope="module")
def outcomes() -> dict[Spec, Outcome]:
    return {point: Outcome(point, point_double.analytic(point)) for point in needed_points(["pallas"])}


@pytest.fixture(scope="module", params=["coarse", "fine"])
def work(request: pytest.FixtureRequest) -> ProgramWork:
    return program_work(pallas.overlapped(2, request.param))


def test_points_are_a_64th_of_the_gpu():
    points = needed_points(["pallas"])
    assert len(points) == 10
    assert {point.shape[1:] for point in points} == {(512, 512)}
    assert {point.tile for point in points} == {(16, 32)}
    assert {point.shape[0] for point in points} == {128, 256, 512, 1024}
    spec = pallas.overlapped(8, "fine")
    config = node_of(spec, program_of(spec), tilings_of(spec, program_of(spec)))
    assert config.channels == 1
    assert config.link_bytes_per_cycle == pytest.approx(machine("h100").link_bytes_per_cycle)
    assert config.link_latency == 818


def test_a_workgroup_takes_as_long_as_on_the_whole_gpu(work: ProgramWork):
    (plan,) = work.kernels[0]
    assert plan.count == 256
    assert plan.kernel["slots"] == machine("h100").compute_units
    busy = plan.workgroups["lead_cycles"] + plan.kernel["steps"] * plan.workgroups["step_cycles"]
    assert busy == pytest.approx(machine("h100").cycles(43.0), rel=0.002)


def test_the_cache_leaves_each_operand_to_be_read_once(work: ProgramWork):
    for kernels in work.kernels:
        (plan,) = kernels
        assert plan.gathered_reads == 2 * SECTORS
        assert plan.reads == plan.gathered_reads + 4 * SECTORS


def test_no_workgroup_waits_for_one_that_begins_later(work: ProgramWork):
    (plan,) = work.kernels[1]
    assert plan.steps is not None
    waits = plan.steps >> 2 & 0x3FFF, plan.steps >> 16
    for waited in waits:
        assert (waited <= range(plan.count)[-1]).all()
        assert all((row <= number).all() for number, row in enumerate(waited))


def test_without_room_for_b_every_tile_row_reads_it_again():
    spec = pallas.alone()
    (fits,) = program_work(spec).kernels[0]
    whole = collective("gemm-alone", 2, machine="a100-80", shape=(4096, 16384, 4096), choices={"chunks": 4})
    (spills,) = program_work(whole).kernels[0]
    assert fits.reads == 5 * SECTORS
    # B is 128 MiB, the cache 40: each chunk of 1,024 rows, three stages of 132 tiles, reads it.
    assert spills.reads > 4 * 16 * SECTORS


def test_ratios_are_over_gemms_alone(outcomes: dict[Spec, Outcome]):
    records = {record["point"]: record for record in pallas.records(outcomes)}
    assert len(records) == 6
    fine, coarse = records["pallas/d4/fine"], records["pallas/d4/coarse"]
    assert fine["ours"]["over_alone"] == pytest.approx(1.01)
    assert coarse["ours"]["over_ungated"] == pytest.approx(1.02)
    assert fine["published"] == {"over_alone": 212 / 172, "over_bound": 212 / 190}
    assert fine["real"]["over_alone"] == 290 / 172


def test_published_kernels_are_over_their_bound_as_stated(outcomes: dict[Spec, Outcome]):
    stated = {2: 1.109, 4: 1.116, 8: 1.130}
    for record in pallas.records(outcomes):
        assert record["published"]["over_bound"] == pytest.approx(stated[record["gpus"]], abs=0.001)


def test_points_without_a_result_have_no_record(outcomes: dict[Spec, Outcome]):
    kept = {spec: outcome for spec, outcome in outcomes.items() if spec != pallas.alone()}
    assert pallas.records(kept) == []
    kept = {spec: outcome for spec, outcome in outcomes.items() if spec != pallas.alone(2)}
    ungated = {record["gpus"]: record["ours"]["over_ungated"] for record in pallas.records(kept)}
    assert ungated[2] is None
    assert ungated[4] is not None


def test_the_report_has_a_section_of_its_own(outcomes: dict[Spec, Outcome], tmp_path: Path):
    write_report(tmp_path, Evaluation(outcomes), Run("0123", len(outcomes), 0.0))
    assert (tmp_path / "pallas.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"point", "ours", "published", "real"} <= set(summary["systems"]["pallas"][0])
    assert "Pallas' kernel" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"machine": "h300"}, "machine must be one of paper"),
        ({"machine": "h100", "shape": (1022, 4096, 4096)}, "shape must be multiples of 8"),
        ({"machine": "h100", "shape": (1024, 4096, 4096), "tile": (130, 256)}, "tile must be multiples of 8"),
        (
            {"machine": "h100", "shape": (1024, 4096, 4096), "settings": (("channels", 4),)},
            "channels is no setting with",
        ),
    ],
)
def test_what_a_machine_cannot_be_is_refused(fields: dict, message: str):
    with pytest.raises(UsageError, match=message):
        collective("ring-all-gather-gemm", 2, **fields)


def test_a_machine_has_no_more_compute_units_than_slots(monkeypatch: pytest.MonkeyPatch):
    (plan,) = program_work(collective("gemm-alone", 2, machine="mi300x", shape=(4096, 8192, 512))).kernels[0]
    assert plan.kernel["slots"] == 304
    monkeypatch.setattr("sim.experiments.spec_checks.MAX_SLOTS", 256)
    with pytest.raises(UsageError, match="machine mi300x has 304 compute units, 256 can be simulated"):
        collective("gemm-alone", 2, machine="mi300x", shape=(4096, 8192, 512))


def test_a_machine_runs_one_gemm():
    spec = collective(
        "ring-all-reduce", 4, machine="h100", shape=(4096, 2048, 512), choices={"residual": True}, wiring="ring"
    )
    with pytest.raises(UsageError, match="a machine is for programs with one GEMM, ring-all-reduce has 2"):
        program_work(spec)


def test_only_programs_have_a_machine():
    with pytest.raises(UsageError, match="machine is of compute model program only"):
        Spec(machine="h100")
