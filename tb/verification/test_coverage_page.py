"""The coverage page: figures of merged runs, results of other commands, what is missing, and its looks in a browser."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cocotb_coverage.coverage import CoverageDB, CoverPoint

pytest.importorskip("jinja2", reason="needs the packages of the extra [coverage]")

from tb.coverage_page.__main__ import write_page
from tb.coverage_page.blocks import read_blocks
from tb.coverage_page.inputs import Figure, read_proofs, read_testplan
from tb.coverage_page.page import unmeasured
from tb.coverage_runs import COVERAGE, read_counts

ROOT = Path(__file__).parent.parent.parent
FILE = "hw/memory_controller/arbiter.py"
DESIGN = """(* src = "/somewhere/hw/memory_controller/arbiter.py:31" *)
module arbiter(clk, take);
  (* src = "/somewhere/hw/memory_controller/arbiter.py:43" *)
  output [1:0] take;
  (* src = "/elsewhere/site-packages/amaranth/lib/stream.py:49" *)
  wire valid;
  assign _1_ = valid & (* src = "/somewhere/hw/memory_controller/arbiter.py:60" *) _2_;
endmodule
"""
PLACE = "\x01f\x02arbiter.sv\x01l\x02{}\x01n\x024\x01t\x02{}\x01page\x02v_{}/arbiter\x01o\x02{}\x01h\x02TOP.arbiter"
KEYS = [
    PLACE.format(4, "toggle", "toggle", "take[0]:0->1"),
    PLACE.format(4, "toggle", "toggle", "take[0]:1->0"),
    PLACE.format(6, "toggle", "toggle", "valid:0->1"),
    PLACE.format(7, "expr", "expr", "(valid==1 && _2_==1) => 1"),
]
SOURCE = (ROOT / FILE).read_text().splitlines()
LIMITED, FREE = (
    next(number for number, line in enumerate(SOURCE, 1) if f"below.eq({value})" in line)
    for value in ("self.occupancy < limit", "1")
)
"""Two statements, each in an arm of its own."""
POINTS = [[["branch", FILE, line - 1, ""], ["statement", FILE, line, ""]] for line in (LIMITED, FREE)]


def add_run(build: Path, test: str, bits: str, counts: list[int]) -> None:
    """A run of one design as the test runner leaves it."""
    design = build / "coverage" / "designs" / "d"
    design.mkdir(parents=True, exist_ok=True)
    (design / "points.json").write_text(json.dumps(POINTS))
    (design / "design.sv").write_text(DESIGN)
    (design / "keys.txt").write_text("\n".join(KEYS) + "\n")
    runs = build / "coverage" / "runs"
    runs.mkdir(exist_ok=True)
    (runs / f"{test}.json").write_text(json.dumps({"design": "d", "test": test, "bits": bits, "keys": "keys.txt"}))
    np.save(runs / f"{test}.npy", np.array(counts, dtype=np.uint64))


def fill(build: Path) -> None:
    """Everything that the page can show."""
    add_run(build, "one", "10", [0, 1, 0, 3])
    add_run(build, "two", "10", [4, 0, 0, 0])
    (build / "coverage" / "junit.xml").write_text(
        '<testsuites><testsuite><testcase classname="tb.unit.memory_controller.test_arbiter" name="good" time="1.5"/>'
        '<testcase classname="tb.unit.memory_controller.test_arbiter" name="bad" time="1"><failure/></testcase>'
        '<testcase classname="tb.simulation.test_cli" name="good" time="1"/></testsuite></testsuites>'
    )
    (build / "formal").mkdir()
    proof = {"name": "exclusive", "block": "arbiter", "status": "proved", "scope": "unbounded", "depth": 3}
    (build / "formal" / "summary.json").write_text(json.dumps([proof | {"claim": "one stream at most"}]))
    (build / "mutation").mkdir()
    blocks = {"arbiter": {"killed": 19, "survived": 1, "equivalent": 4}}
    (build / "mutation" / "summary.json").write_text(json.dumps({"blocks": blocks}))
    (build / "faults").mkdir()
    (build / "faults" / "summary.json").write_text(json.dumps(campaign()))


def injected(injections: int, silent: int, **others: object) -> dict[str, object]:
    """How injections ended, as a campaign writes it."""
    counts = {"masked": injections - silent, "corrected": 0, "detected": 0, "silent": silent, "hang": 0}
    bad = {"share": silent / injections, "low": 0.0, "high": 0.25}
    return {"injections": injections, **counts, "silent_or_hang": bad, **others}


def campaign() -> dict[str, object]:
    """A summary.json of a campaign of faults."""
    return {
        "confidence": 0.99,
        "command": "t3rtl faults",
        "commit": "abc",
        "seed": 1,
        "classes": {
            "control": injected(40, 8, title="a bit of a control flip-flop", protected=False),
            "flit_bit": injected(20, 0, title="a bit of a flit on a link", protected=True),
        },
        "blocks": {"control": {"dma": injected(30, 8), "tracker": injected(10, 0)}, "flit_bit": {}},
        "worst": [{"variable": "node.dma.walk", "class": "control", "injections": 9, "silent": 8, "hang": 0}],
    }


def page(build: Path, exclusions: str = "") -> dict:
    """Write the page for `build`; returns summary.json."""
    path = build / "exclusions.toml"
    path.write_text(exclusions)
    assert write_page(build, path, build / "scores.json") == 0
    return json.loads((build / "coverage" / "summary.json").read_text())


def test_figures_of_merged_runs(tmp_path):
    fill(tmp_path)
    arbiter = page(tmp_path)["blocks"]["arbiter"]
    assert arbiter["statement"] == {"done": 1, "total": 2, "percent": 50.0}
    assert arbiter["branch"] == {"done": 1, "total": 2, "percent": 50.0}
    # One edge came in the first run and the other in the second; `valid` never moved.
    assert arbiter["toggle"] == {"done": 2, "total": 3, "percent": 66.66}
    assert arbiter["expression"] == {"done": 1, "total": 1, "percent": 100.0}
    assert arbiter["tests"] == {"done": 1, "total": 2, "percent": 50.0}
    assert arbiter["mutation"] == {"done": 19, "total": 20, "percent": 95.0}
    assert [proof["status"] for proof in arbiter["proofs"]] == ["proved"]
    assert f"DA:{FREE},0" in (tmp_path / "coverage" / "source.info").read_text()


def test_an_exclusion_leaves_the_count(tmp_path):
    fill(tmp_path)
    line = SOURCE[FREE - 1].strip()
    entry = f"[[exclusion]]\nfile = '{FILE}'\ntext = '''{line}'''\nreason = 'shown in this test'\n"
    summary = page(tmp_path, entry)
    assert summary["blocks"]["arbiter"]["statement"]["percent"] == 100.0
    assert summary["exclusions"][0]["reason"] == "shown in this test"
    assert summary["excluded"] == {"statement": {"done": 1, "total": 2, "percent": 50.0}}
    assert [entry["points"] for entry in summary["exclusion_entries"]] == [1]
    assert "statement: 1 of 2 points (50.00 %)" in (tmp_path / "coverage" / "index.html").read_text()
    stale = tmp_path / "stale.toml"
    stale.write_text(entry.replace(line, "no such line"))
    assert write_page(tmp_path, stale) == 1


def test_a_figure_below_its_goal_fails_when_asked(tmp_path, capsys):
    fill(tmp_path)
    empty = tmp_path / "exclusions.toml"
    empty.write_text("")
    assert write_page(tmp_path, empty, tmp_path / "scores.json", goals=True) == 1
    errors = capsys.readouterr().err
    assert "statement is below its goal of 99.0 %" in errors and "mutation" not in errors
    assert write_page(tmp_path, empty, tmp_path / "scores.json") == 0


def test_what_was_not_run_is_not_counted_as_passed(tmp_path):
    summary = page(tmp_path)
    for part in (summary["total"], *summary["blocks"].values()):
        for name in ("statement", "branch", "fsm_arc", "toggle", "expression", "functional", "mutation", "tests"):
            assert part[name] is None
        assert part["proofs"] is None
    text = (tmp_path / "coverage" / "index.html").read_text()
    assert "not measured" in text
    assert "100 %</td>" not in text


def test_a_recorded_mutation_score_stands_where_none_was_measured(tmp_path):
    record = {"blocks": {name: {"killed": 8, "survived": 2, "date": "2026-01-02"} for name in ("arbiter", "coalescer")}}
    (tmp_path / "scores.json").write_text(json.dumps(record))
    summary = page(tmp_path)
    assert summary["blocks"]["arbiter"]["mutation"]["percent"] == 80.0
    assert summary["mutation_recorded"] == {"arbiter": "2026-01-02", "coalescer": "2026-01-02"}
    assert "earlier runs (they take hours): arbiter 2026-01-02" in (tmp_path / "coverage" / "index.html").read_text()
    fill(tmp_path)
    summary = page(tmp_path)
    assert summary["blocks"]["arbiter"]["mutation"]["percent"] == 95.0
    assert summary["mutation_recorded"] == {"coalescer": "2026-01-02"}


def test_a_campaign_of_faults_is_shown(tmp_path):
    assert page(tmp_path)["faults"] is None
    assert "Not run: <code>make faults</code>" in (tmp_path / "coverage" / "index.html").read_text()
    fill(tmp_path)
    counted = {"injections": 40, "masked": 32, "corrected": 0, "detected": 0, "silent": 8, "hang": 0}
    assert page(tmp_path)["faults"]["control"] == counted
    text = (tmp_path / "coverage" / "index.html").read_text()
    assert 'class="silent" style="width:20.000%"' in text and "20.00 %" in text
    assert "node.dma.walk" in text and "a bit of a flit on a link" in text and "tracker" in text
    assert '<td class="good">0.00 %' in text, "what is protected has let nothing through"
    (tmp_path / "faults" / "summary.json").write_text('{"classes": {"control": {}}}')
    assert page(tmp_path)["faults"] is None


def test_unreadable_inputs_are_not_run(tmp_path):
    fill(tmp_path)
    for name in ("coverage/junit.xml", "formal/summary.json", "mutation/summary.json"):
        (tmp_path / name).write_text("{ broken")
    arbiter = page(tmp_path)["blocks"]["arbiter"]
    assert (arbiter["tests"], arbiter["proofs"], arbiter["mutation"]) == (None, None, None)
    (tmp_path / "proofs.json").write_text(
        '{"proofs": [{"name": "p", "block": "link", "status": "failed", "depth": 9}]}'
    )
    assert [(proof.status, proof.depth) for proof in read_proofs(tmp_path / "proofs.json") or ()] == [("failed", 9)]
    (tmp_path / "plan.toml").write_text(
        '[[requirement]]\nid = "R1"\ntests = ["tb/unit/memory_controller/test_arbiter.py"]\n'
    )
    assert read_testplan(tmp_path / "plan.toml") == [
        {"id": "R1", "tests": ["tb/unit/memory_controller/test_arbiter.py"]}
    ]


@pytest.fixture
def no_cover_points():
    """The process's cover points out of the way: the plan of the project is among them when its tests ran before."""
    coverage = CoverageDB()
    kept = dict(coverage)
    coverage.clear()
    yield coverage
    coverage.clear()
    coverage.update(kept)


def test_functional_coverage_of_several_processes_is_merged(tmp_path, no_cover_points):
    folder = tmp_path / "coverage" / "functional"
    folder.mkdir(parents=True)
    for number in (1, 2):

        @CoverPoint(f"arbiter.policy_{tmp_path.name}", xf=lambda value: value, bins=[1, 2, 3])
        def sample(value: int) -> None:
            """Count a value."""

        sample(number)
        no_cover_points.export_to_xml(str(folder / f"{number}.xml"))
        no_cover_points.clear()
    arbiter = page(tmp_path)["blocks"]["arbiter"]
    assert arbiter["functional"] == {"done": 2, "total": 3, "percent": 66.66}


def test_counts_of_verilator(tmp_path):
    path = tmp_path / "coverage.dat"
    path.write_text("# SystemC::Coverage-3\nC 'a 1'h0' 7\nC 'b' 0\n")
    keys, counts = read_counts(path)
    assert (keys, counts.tolist()) == (["a 1'h0", "b"], [7, 0])


def test_hardware_that_no_run_has_elaborated_is_not_measured():
    text = """
def elaborate(self, platform):
    m.d.comb += self.o.eq(1)
    with m.If(self.i):
        m.d.sync += [
            self.a.eq(1),
            self.b.eq(2),
        ]
    m.d.sync += self.c.eq(3)
    total += 1
"""
    assert unmeasured(text, {3, 6}) == [9]
    assert unmeasured(text, {3, 6, 9}) == []
    assert unmeasured(text, set()) == [3, 5, 9]


def test_a_percentage_of_100_means_all():
    assert Figure(99_999, 100_000).percent == 99.99
    assert Figure(3, 3).percent == 100
    assert Figure(0, 0).percent is None


def test_each_hardware_file_belongs_to_one_block():
    blocks = read_blocks()
    for file in (ROOT / "hw").rglob("*.py"):
        if "Module()" in file.read_text():
            name = str(file.relative_to(ROOT))
            assert sum(block.has_file(name) for block in blocks) == 1, name


def test_the_page_in_a_browser(tmp_path):
    """Headless Chromium draws the overview; the picture is kept in build/coverage/screenshot.png."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    fill(tmp_path)
    page(tmp_path)
    picture = tmp_path / "page.png"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path}/b",
    ]
    command += ["--window-size=1400,1000", f"--screenshot={picture}", f"file://{tmp_path}/coverage/index.html"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    image = picture.read_bytes()
    assert struct.unpack(">II", image[16:24]) == (1400, 1000)
    # An empty page of this size takes about 6 kB.
    assert len(image) > 40_000
    COVERAGE.mkdir(parents=True, exist_ok=True)
    shutil.copy(picture, COVERAGE / "screenshot.png")
