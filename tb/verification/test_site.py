"""The documentation site: built without a warning, from the sources, nothing fetched, no link into nothing."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("furo", reason="needs the packages of the extra [docs]")
pytest.importorskip("myst_parser", reason="needs the packages of the extra [docs]")
pytest.importorskip("sphinx", reason="needs the packages of the extra [docs]")
pytest.importorskip("wavedrom", reason="needs the packages of the extra [docs]")

from hw.blocks import BLOCKS
from hw.config import PRESETS
from hw.registers.map import register_map
from sim.errors import MachineError
from sim.experiments.results import FIGURES
from tb.site import block_pages, build, copied, handshakes, reference
from tb.site.docstrings import with_blank_lines
from tb.verification.test_testplan import REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


class Links(HTMLParser):
    """What a page shows and fetches: `fetched` when it is viewed, `led` to when it is clicked, its `names`, `title`."""

    def __init__(self, text: str):
        super().__init__()
        self.fetched: list[str] = []
        self.led: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found["id"]} if "id" in found else set()
        for name in ("src", "srcset", "data"):
            if name in found and tag != "a":
                self.fetched.append(found[name])
        if (
            tag == "link"
            and "href" in found
            and found.get("rel") not in ("index", "search", "next", "prev", "canonical")
        ):
            self.fetched.append(found["href"])
        if tag == "a" and "href" in found:
            self.led.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("docs")).parent


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path.read_text()) for path in site.rglob("*.html")}


def test_all_pages_are_there(site: Path, pages: dict[Path, Links]) -> None:
    names = {str(path.relative_to(site)) for path in pages}
    assert {page.replace(".md", ".html") for page in copied.COPIED.values()} <= names
    assert {f"reference/blocks/{name}.html" for name, block in BLOCKS.items() if block.make} <= names
    assert len([name for name in names if name.startswith("tutorial/")]) == 8


def fetched_from_elsewhere(site: Path, pages: dict[Path, Links]) -> list[tuple[str, str]]:
    """(file, what it fetches) where that is no file of the site."""
    found = []
    for path, page in pages.items():
        for target in page.fetched:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not (path.parent / unquote(parts.path)).resolve().is_file():
                found.append((path.name, target))
    for path in [*site.rglob("*.css"), *site.rglob("*.js")]:
        found += [
            (path.name, url)
            for url in re.findall(r"(?:@import|url\()\s*['\"]?((?:https?:)?//[^'\")]*)", path.read_text())
        ]
    return found


def leading_nowhere(pages: dict[Path, Links]) -> list[tuple[str, str]]:
    """(page, link) for each link to a page, or a place on one, that there is not."""
    found = []
    for path, page in pages.items():
        for target in page.led:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            names = pages[goal].names if goal in pages else set()
            if not goal.is_file() or (parts.fragment and goal in pages and unquote(parts.fragment) not in names):
                found.append((path.name, target))
    return found


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    assert fetched_from_elsewhere(site, pages) == []


def test_every_link_leads_somewhere(pages: dict[Path, Links]) -> None:
    assert leading_nowhere(pages) == []


def test_what_is_wrong_with_links_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    far, nowhere = ["https://far.example/x.js", "none.png"], ["none.html", "#none", "page.html#none"]
    page.write_text(
        f'<h1 id="here"></h1><script src="{far[0]}"></script><img src="{far[1]}"><a href="#here"></a>'
        + "".join(f'<a href="{target}"></a>' for target in nowhere)
    )
    (tmp_path / "style.css").write_text('@import "//far.example/y.css"; a { background: url(near.png) }')
    pages = {page: Links(page.read_text())}
    assert fetched_from_elsewhere(tmp_path, pages) == [
        *(("page.html", target) for target in far),
        ("style.css", "//far.example/y.css"),
    ]
    assert leading_nowhere(pages) == [("page.html", target) for target in nowhere]


def test_pages_hold_what_the_sources_hold(site: Path) -> None:
    text = {
        name: (site / f"{name}.html").read_text() for name in ("decisions", "reference/results", "reference/testplan")
    }
    for number in re.findall(r"^\*\*(\d+)\. ", (ROOT / "hw" / "DECISIONS.md").read_text(), re.MULTILINE):
        assert f"{number}. " in text["decisions"]
    assert all(name in text["reference/results"] for name in FIGURES)
    assert all(f">{entry['id']}" in text["reference/testplan"] for entry in REQUIREMENTS)
    registers = (site / "reference" / "registers.html").read_text()
    assert all(register.name in registers for register in register_map(PRESETS["paper"]))
    api = (site / "reference" / "python.html").read_text()
    assert "run_experiment" in api and "class:" not in api


def test_a_warning_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that nothing leads to, and a link to a page that there is not."""

    def few(folder: Path, root: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "conf.py").write_text('project = "x"\nextensions = ["myst_parser"]\n')
        (folder / "index.md").write_text("# Title\n\n[x](/nowhere.md)\n")

    monkeypatch.setattr(build, "sources", few)
    with pytest.raises(MachineError, match="nowhere"):
        build.build(tmp_path)


def test_a_link_to_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("`[code](none)` and [this](hw/none.md)")
    with pytest.raises(copied.BrokenLink, match=r"README\.md links to hw/none\.md"):
        copied.page_text(tmp_path, "README.md")


def test_links_of_documents_lead_to_their_pages(tmp_path: Path) -> None:
    (tmp_path / "hw").mkdir()
    for name in ("DECISIONS.md", "node.py", "path.svg"):
        (tmp_path / "hw" / name).touch()
    (tmp_path / "README.md").write_text("[d](hw/DECISIONS.md#epochs) [n](hw/node.py) ![p](hw/path.svg) <https://a.b>")
    text = copied.page_text(tmp_path, "README.md")
    assert text == "[d](/decisions.md#epochs) `n` ![p](/figures/path.svg) <https://a.b>"
    assert copied.figures_of(tmp_path, "README.md") == [tmp_path / "hw" / "path.svg"]


def test_lists_of_docstrings_stand_between_blank_lines() -> None:
    lines = ["Ports:", "- `a`: one,", "  more;", "- `b`: two.", "End."]
    assert with_blank_lines(lines) == ["Ports:", "", "- `a`: one,", "  more;", "- `b`: two.", "", "End."]


def test_diagrams_show_what_the_blocks_do() -> None:
    """Waves of the run, against the contracts of the blocks."""
    drawn = {name: diagram.make() for name, diagram in handshakes.DIAGRAMS.items()}
    rows = {
        name: {row.name: [cycle[at] for cycle in found.seen] for at, row in enumerate(found.rows)}
        for name, found in drawn.items()
    }
    queue = rows["stream"]
    moved = {
        side: [
            payload
            for valid, ready, payload in zip(*(queue[f"{side}.{part}"] for part in ("valid", "ready", "payload")))
            if valid and ready
        ]
        for side in "io"
    }
    assert len(moved["o"]) > 6 and moved["i"][: len(moved["o"])] == moved["o"]
    assert 0 in queue["i.ready"]
    commits, launches = rows["tracker"]["commits.valid"], rows["tracker"]["launches.valid"]
    assert commits.count(1) == 2 and launches.index(1) == max(at for at, valid in enumerate(commits) if valid) + 7
    dram, timing = rows["dram"], PRESETS["tiny"].timing
    activate, write, read = (
        dram[f"{bus}.command"].index(name) for bus, name in (("row", "ACT"), ("column", "WR"), ("column", "RD"))
    )
    assert write - activate == timing.rcd_wr and dram["write_data.data"].index("DA7A") == write + timing.wl
    assert read - write >= timing.wtr
    assert rows["registers"]["rdata"][rows["registers"]["rvalid"].index(1)] == "5"


def test_waves_are_those_of_wavedrom() -> None:
    recording = handshakes.Recording([handshakes.Row("bit", None), handshakes.Row("bus", None, str)])
    recording.seen = [[0, ""], [0, "A"], [1, "A"], [0, "B"]]
    lines = recording.wavedrom()["signal"]
    assert [line["wave"] for line in lines] == ["p...", "0.10", "x=.="]
    assert lines[2]["data"] == ["A", "B"]
    assert handshakes.svg(recording).startswith("<svg")


def test_outcomes_stand_beside_the_testplan(tmp_path: Path) -> None:
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "testplan.toml").write_text((ROOT / "tb" / "testplan.toml").read_text())
    assert "`make coverage` has not been run" in reference.testplan_page(tmp_path)
    junit = tmp_path / "build" / "coverage" / "junit.xml"
    junit.parent.mkdir(parents=True)
    cases = '<testcase classname="tb.simulation.test_host" name="test_negative_offsets_wrap"/>'
    cases += (
        '<testcase classname="tb.simulation.test_host" name="test_words_describe_every_tile[1]"><failure/></testcase>'
    )
    junit.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    lines = reference.testplan_page(tmp_path).splitlines()
    assert "- test `tb/simulation/test_host.py::test_negative_offsets_wrap`: 1 passed" in lines
    assert "- test `tb/simulation/test_host.py::test_words_describe_every_tile`: 1 failed" in lines
    assert "- test `tb/simulation/test_host.py::test_range_is_invalid_while_it_is_written`: **not run**" in lines
    assert "- test `tb/unit/test_address_map.py::every_access_goes_where_the_rules_say`: **not run**" in lines


def test_a_block_shows_its_ports_and_its_cost() -> None:
    text = dict(block_pages.pages(ROOT))["tracker"]
    assert "| `commits__0__payload` | in | 91 | [commit_t](/reference/structs.md#commit-t) |" in text
    measured = json.loads((ROOT / "hw/synthesis/figures.json").read_text())["paper"]["tracker"]
    assert f"| paper | {measured['cells']:,} | {measured['gate_equivalents']:,} | {measured['memory_bits']:,} |" in text


def test_the_command_says_where_the_page_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tb.site", "--help"]
    assert "--out" in subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
