"""The report: its formulas by hand, what it computes from points, and the page."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("jinja2", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

import sim.experiments.experiment
import sim.report.page
from sim.cli.main import command_line
from sim.errors import UsageError
from sim.experiments.outcomes import Outcome
from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.experiments.sweep import Simulate
from sim.experiments.variants import VARIANTS
from sim.report import front_page, metrics
from sim.report.charts import CHARTS
from sim.report.evaluation import Evaluation
from sim.report.page import Run, beside, described, numbers_of, read_figures, write_report
from sim.report.plan import (
    FIG_17_LAYER,
    LARGE_LAYERS,
    LINK_150,
    PAPER,
    RING_LAYERS,
    SECTIONS,
    TWICE_CUS,
    needed_points,
)
from sim.report.style import KINDS
from sim.report.systems import SYSTEMS
from sim.report.timelines import bandwidth
from sim.workloads.table import MAIN_LAYERS
from tb.drivers import point_double

ROOT = Path(__file__).resolve().parents[2]
ALL = len(VARIANTS)
"""Points of a sub-layer in the section `layers`."""


def evaluated(simulate: Simulate, points: list[Spec]) -> Evaluation:
    return Evaluation({point: Outcome(point, simulate(point)) for point in points})


def changed(figures: dict, simulate: Simulate = point_double.analytic) -> Simulate:
    """`simulate`, but the result of a point whose variant is a key of `figures` is updated by its value."""
    return lambda point: simulate(point) | figures.get(point.variant.name, {})


@pytest.fixture(scope="module")
def complete() -> Evaluation:
    return evaluated(point_double.analytic, needed_points())


def test_formulas_give_what_was_worked_out_by_hand() -> None:
    # GEMM 100, RS 60, AG 40: Sequential 200, ideal 140. Another RS of 120 is longer than the GEMM: 160.
    assert metrics.ideal_cycles(100, 60, 40) == 140
    assert metrics.ideal_speedup(100, 60, 40) == 200 / 140
    assert metrics.ideal_speedup(100, 60, 40, overlapped_rs=120) == 200 / 160
    # Twice 1.25 of an ideal 1.5 is half of what there is to gain.
    assert metrics.percent_of_ideal(1.25, 1.5) == 50
    assert metrics.percent_of_ideal(1.0, 1.0) is None
    # 150 in all, 100 of them GEMM: of the 100 cycles of communication half remain.
    assert metrics.overlap_efficiency(150, 200, 100) == 0.5
    assert metrics.overlap_efficiency(200, 200, 100) == 0
    assert metrics.geomean([2, 8]) == pytest.approx(4)
    assert metrics.geomean([]) is None
    assert metrics.relative_difference(102, 100) == pytest.approx(0.02)
    assert metrics.relative_difference(0, 0) == 0
    assert metrics.relative_difference(1, 0) == 1
    assert metrics.total_sectors({"gemm": {"read": 1, "store": 2}, "rs": {"read": 4}}) == 7
    assert metrics.total_sectors({"gemm": {"read": 1, "store": 2}, "rs": {"read": 4}}, without="gemm") == 4


def test_figures_of_a_sub_layer_follow_from_its_runs() -> None:
    simulate = changed(
        {
            "sequential": {"cycles": 200, "gemm_cycles": 100, "rs_cycles": 60, "ag_cycles": 40},
            "t3": {"cycles": 160, "gemm_cycles": 130},
            "t3-mca": {"cycles": 150, "gemm_cycles": 110},
            "t3-mca-5": {"cycles": 155},
            "t3-mca-10": {"cycles": 148},
            "t3-mca-30": {"cycles": 152},
            "t3-mca-none": {"cycles": 170},
            "rs-nmc": {"cycles": 120, "rs_cycles": 120},
        }
    )
    evaluation = evaluated(simulate, [PAPER.spec("t-nlg/op/tp8", name) for name in VARIANTS])
    layer = evaluation.layer(PAPER, "t-nlg/op/tp8")
    assert layer["speedup"]["t3"] == 200 / 160
    assert layer["speedup"][metrics.IDEAL] == 200 / 140
    assert layer["speedup"][metrics.IDEAL_NMC] == 200 / 160
    assert layer["percent_of_ideal"]["t3-mca"] == pytest.approx(100 * (200 / 150 - 1) / (200 / 140 - 1))
    assert layer["overlap_efficiency"]["t3-mca"] == 0.5
    assert layer["gemm_slowdown"] == pytest.approx(layer["gemm_slowdown"] | {"t3": 0.3, "t3-mca": 0.1})
    assert layer["threshold"] == {"chosen": "10", "best": "10", "loss": pytest.approx(150 / 148 - 1)}
    assert layer["rs_reads_saved"] == 2.5
    gemm, rs, _ = point_double.spans(PAPER.spec("t-nlg/op/tp8", "t3"))
    assert layer["calibration"] == {
        "gemm_cycles": gemm,
        "gemm_deviation": 100 / gemm - 1,
        "rs_cycles": rs,
        "rs_deviation": 60 / rs - 1,
    }
    assert layer["output_writes_saved"] == pytest.approx(16 / 14)
    assert evaluation.headline(PAPER)["threshold_loss_maximum"] == pytest.approx(150 / 148 - 1)


def test_headline_is_geomean_and_maximum_over_the_sub_layers_there_are() -> None:
    cycles = {"mega-gpt-2/op/tp8": 100, "t-nlg/op/tp8": 400}

    def simulate(point: Spec) -> Result:
        taken = 800 if point.variant.name == "sequential" else cycles[point.name]
        return point_double.analytic(point) | {"cycles": taken}

    points = [PAPER.spec(workload, name) for workload in cycles for name in ("sequential", "t3")]
    headline = evaluated(simulate, points).headline(PAPER)
    assert headline["sub_layers"] == 2
    assert headline["speedup_geomean"]["t3"] == pytest.approx(4)
    assert headline["speedup_maximum"]["t3"] == 8
    assert "t3-mca" not in headline["speedup_geomean"]
    layers = [evaluated(simulate, points).layer(PAPER, workload) for workload in cycles]
    kept = [layer["dram_accesses"]["t3"] / layer["dram_accesses"]["sequential"] for layer in layers]
    assert headline["dram_reduction"]["geomean"] == pytest.approx(1 - (kept[0] * kept[1]) ** 0.5)
    assert headline["dram_reduction"]["maximum"] == pytest.approx(1 - min(kept))


def test_savings_of_dram_accesses_stay_below_what_the_closed_forms_allow(complete: Evaluation) -> None:
    # Chunks at N = 8 without inputs: 16 + 15 (+ 14 of the all-gather) in Sequential, 14 + 6 (+ 14) in T3.
    headline = complete.headline(PAPER, [name for name in MAIN_LAYERS if name.endswith("tp8")])
    assert 0.2 < headline["dram_reduction"]["maximum"] < 11 / 45
    assert 0.3 < headline["dram_reduction_without_ag"]["maximum"] < 11 / 31


def test_calibrated_machine_has_the_published_ideal_overlap(complete: Evaluation) -> None:
    headline = complete.headline(PAPER)
    assert headline["sub_layers"] == 16
    assert headline["speedup_geomean"][metrics.IDEAL] == pytest.approx(1.351, abs=0.002)
    assert headline["speedup_maximum"][metrics.IDEAL] == pytest.approx(1.490, abs=0.005)


def test_agreement_is_two_percent_in_every_ratio() -> None:
    points = needed_points(["ring"])
    rows = evaluated(point_double.analytic, points).agreements()
    assert {row["workload"] for row in rows} == set(RING_LAYERS)
    assert len({row["ratio"] for row in rows}) >= 7
    assert all(row["agrees"] for row in rows)

    def slower_ring(point: Spec) -> Result:
        result = point_double.analytic(point)
        if point.mode == "ring" and point.variant.name == "t3":
            result["cycles"] = round(1.03 * result["cycles"])
        return result

    apart = [row for row in evaluated(slower_ring, points).agreements() if not row["agrees"]]
    assert {row["ratio"] for row in apart} >= {"speedup t3"}
    assert {row["workload"] for row in apart} == set(RING_LAYERS)


def test_counter_that_misses_its_closed_form_is_counted() -> None:
    off = {"closed_forms": {"rs_read": {"expected": 1, "counted": 2, "matches": False}}}
    points = needed_points(["layers"], only=["t-nlg/op/*"])
    rows = evaluated(changed({"t3": off}), points).closed_forms()
    assert [(row["tp"], row["points"], row["counters"]) for row in rows] == [(tp, ALL, ALL) for tp in (8, 16)]
    assert [[item["counter"] for item in row["off"]] for row in rows] == [["rs_read"], ["rs_read"]]


def test_the_whole_gpu_is_compared_with_one_channel() -> None:
    points = needed_points(["whole-gpu", "layers"], only=["t-nlg/fc-2/tp8"])
    rows = evaluated(point_double.analytic, points).agreements()
    assert {(row["compared"], row["workload"]) for row in rows} == {("S = 32, S = 1", "t-nlg/fc-2/tp8")}
    assert not {point for point in needed_points() if point.channels == 32}


def test_report_needs_every_configuration_of_every_sub_layer_on_both_links() -> None:
    points = set(needed_points())
    for machine in (PAPER, LINK_150):
        assert {machine.spec(work, name) for work in MAIN_LAYERS for name in VARIANTS} <= points
    assert {TWICE_CUS.spec(work, "t3-mca") for work in MAIN_LAYERS} <= points
    assert {PAPER.spec(work, "t3-mca") for work in LARGE_LAYERS} <= points
    assert len(needed_points()) == len(points)
    assert {point.name for point in needed_points(only=["T-NLG/FC-?/tp8"])} == {"t-nlg/fc-1/tp8", "t-nlg/fc-2/tp8"}
    with pytest.raises(UsageError, match=f"section must be one of {', '.join(SECTIONS)}, whole-gpu; got 'all'"):
        needed_points(["all"])


def test_traffic_is_scaled_from_the_slice_to_the_gpu() -> None:
    # 128 sectors of 32 bytes in 256 ns are 16 GB/s in one of 32 channels.
    timeline = {"window": 256, "occupancy": [1.0, 1.0], "rs_store": [128, 0], "rs_update": [128, 64], "rs_read": [1, 1]}
    drawn = {kind.label: bandwidth(timeline, kind) for kind in KINDS}
    assert drawn["RS stores and updates"] == [1024, 256]
    assert drawn["RS reads"] == [4, 4]
    assert drawn["AG reads"] == [0, 0]


@pytest.fixture(scope="module")
def whole_report(complete: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on all points."""
    folder = tmp_path_factory.mktemp("whole")
    write_report(folder, complete, Run("0123", len(complete.outcomes), 12.0))
    return folder


def test_page_holds_every_figure_and_stands_alone(whole_report: Path) -> None:
    page = (whole_report / "index.html").read_text()
    assert [figure["name"] for figure in read_figures()] == list(CHARTS)
    for name in CHARTS:
        assert (whole_report / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f'id="{name}"' in page
    assert page.count('src="data:image/png;base64,') == len(CHARTS)
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "none failed" in page
    assert "No chart" not in page
    summary = json.loads((whole_report / "summary.json").read_text())
    assert summary["headline"]["paper"]["speedup_geomean"]["t3"] > 1
    layer = next(item for item in summary["sub_layers"] if item["workload"] == FIG_17_LAYER)
    for key in ("cycles", "speedup", "percent_of_ideal", "overlap_efficiency", "dram_sectors", "tp"):
        assert layer[key]
    assert len(summary["sub_layers"]) == 16 + 12 + 16 + 16
    tables = (whole_report / "results.md").read_text().splitlines()
    cells = [line.count("|") for line in tables if line.startswith("| t-nlg/fc-2/tp8 |")]
    assert len(cells) == 3
    assert len(set(cells)) == 1
    assert "| T3-MCA, geomean | 1.300 |" in "\n".join(tables)
    assert any(line.startswith("| N nodes, mirrored node | t-nlg/op/tp8 |") for line in tables)


def test_page_gives_the_reason_where_ours_differs_or_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = evaluated(changed({"t3": {"cycles": 10**9}}), needed_points(["layers"]))
    write_report(tmp_path, evaluation, Run("0123", len(evaluation.outcomes), 0.0))
    page, tables = ((tmp_path / name).read_text() for name in ("index.html", "results.md"))
    command = next(figure for figure in read_figures() if figure["name"] == "speedups")["found"][0]["command"]
    assert f"<code>{command}</code>" in page
    assert f"Shown by `{command}`." in tables
    assert page.count("No chart: the points it needs") >= 4

    figures = [{key: value for key, value in figure.items() if key != "found"} for figure in read_figures()]
    monkeypatch.setattr(sim.report.page, "read_figures", lambda: figures)
    write_report(tmp_path, evaluation, Run("0123", len(evaluation.outcomes), 0.0))
    assert "No experiment has shown the reason yet." in (tmp_path / "index.html").read_text()


def test_recorded_results_say_what_the_page_says() -> None:
    """What was found, and what a system's section is about, in the results that are kept and in those that are made."""
    recorded = (ROOT / "sim" / "report" / "RESULTS.md").read_text()
    notes = [note for figure in read_figures() for note in figure.get("found", [])]
    missing = [note["text"] for note in notes if f"{note['text']} Shown by `{note['command']}`." not in recorded]
    assert not missing and notes
    systems = [figure for figure in read_figures() if figure["name"].split("-")[0] in SYSTEMS]
    assert {figure["name"].split("-")[0] for figure in systems} == set(SYSTEMS)
    assert not [figure["text"] for figure in systems if figure["text"] not in recorded]


def test_some_sub_layers_are_not_compared_with_the_papers_sixteen(whole_report: Path, tmp_path: Path) -> None:
    evaluation = evaluated(point_double.analytic, needed_points(["layers"], only=["t-nlg/*/tp8"]))
    write_report(tmp_path, evaluation, Run("0123", len(evaluation.outcomes), 0.0))
    some, whole = ((folder / "index.html").read_text() for folder in (tmp_path, whole_report))
    assert "4 of 16 sub-layers: means over them are not compared" in some
    assert "paper: 20 %, at most 39 %" in whole
    assert "paper: 20 %, at most 39 %" not in some
    assert "means over them are not compared" not in whole
    # No conclusion without what it is drawn from.
    reasons = next(figure for figure in read_figures() if figure["name"] == "speedups")["found"]
    for note in reasons:
        assert f"<code>{note['command']}</code>" in whole
        assert note["command"] not in some
    stated = [item for figure in read_figures() for item in figure.get("paper", [])]
    rows = [row for figure in described(evaluation, evaluation.summary()) for row in figure["paper"]]
    assert all(row["ours"] is None for row, item in zip(rows, stated, strict=True) if item["ours"][0] == "headline")


def test_every_number_of_the_paper_finds_ours(complete: Evaluation) -> None:
    numbers = numbers_of(complete, complete.summary())
    rows = [row for figure in read_figures() for row in beside(figure.get("paper", []), numbers)]
    assert len(rows) >= 16
    assert [row["says"] for row in rows if row["ours"] is None] == []


def run_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulate: Simulate, *options: str) -> int:
    monkeypatch.setattr(sim.experiments.experiment, "run_experiment", simulate)
    folders = ["--store", str(tmp_path / "points"), "--out", str(tmp_path / "figures")]
    return command_line(["report", "--only", "t-nlg/op/tp8", "--section", "layers", *folders, *options])


def test_report_resumes_and_draws_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_report(tmp_path, monkeypatch, point_double.breaking) == 3
    shown = capsys.readouterr()
    assert f"{ALL - 1} of {ALL} points pass, 1 failed, 0 run before" in shown.out
    assert "t-nlg/op/tp8 t3-mca: OSError: no space left on device" in shown.err
    page = (tmp_path / "figures" / "index.html").read_text()
    assert "OSError: no space left on device" in page
    assert "(no result)" in page

    assert run_report(tmp_path, monkeypatch, point_double.never, "--no-run") == 0
    assert f"{ALL - 1} of {ALL} points pass, 0 failed, {ALL - 1} run before" in capsys.readouterr().out
    assert "1 not run" in (tmp_path / "figures" / "index.html").read_text()

    assert run_report(tmp_path, monkeypatch, point_double.analytic) == 0
    shown = capsys.readouterr()
    assert f"{ALL} of {ALL} points pass, 0 failed, {ALL - 1} run before" in shown.out
    assert re.search(r"^t3-mca +geomean 1\.\d{3}, maximum", shown.out, re.MULTILINE)


def test_wrong_result_shows_up_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_report(tmp_path, monkeypatch, point_double.wrong) == 1
    assert "t-nlg/op/tp8 t3: rank 0 moved a sector too many" in capsys.readouterr().err
    page = (tmp_path / "figures" / "index.html").read_text()
    assert "rank 0 moved a sector too many" in page
    assert "Failed points" in page
    summary = json.loads((tmp_path / "figures" / "summary.json").read_text())
    assert [item["spec"]["variant"]["name"] for item in summary["failed"]] == ["t3"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "gpt-5/*"], "no sub-layer of these sections matches gpt-5/*"),
        (["--section", "all"], "section must be one of layers, link-150"),
        (["--processes", "0"], "processes must be from 1 to 256, got 0"),
        (["--out", __file__], f"{__file__} is not a folder"),
    ],
)
def test_what_no_report_can_be_made_of_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["report", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"t3rtl: {said}")
    assert error.count("\n") == 1


def test_the_figure_of_the_front_page_is_equal_for_equal_runs(tmp_path):
    points = [PAPER.spec(FIG_17_LAYER, name) for name in front_page.SHOWN]
    for name in ("first.png", "second.png"):
        front_page.draw(evaluated(point_double.analytic, points), tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("first.png", "second.png"))
    assert first == second and first.startswith(b"\x89PNG")
    others = [PAPER.spec(LARGE_LAYERS[0], name) for name in front_page.SHOWN]
    with pytest.raises(AssertionError):
        front_page.draw(evaluated(point_double.analytic, others), tmp_path / "none.png")
    assert front_page.FIGURE.read_bytes().startswith(b"\x89PNG")
    assert f"({front_page.FIGURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
