"""The documentation site, the report and the coverage page as Chromium shows them on a telephone and on a laptop."""

import importlib.util
from pathlib import Path

import pytest

from tb.drivers.browser import DESKTOP, PHONE, Looked, browser, look

pytestmark = [
    pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable"),
    pytest.mark.skipif(browser() is None, reason="there is no browser (Debian: apt-get install chromium)"),
]
GOOD = '<!doctype html><meta name="viewport" content="width=device-width"><title>t</title><h1>h</h1><p>text</p>'


def seen_on(folder: Path, page: str) -> Looked:
    (folder / "index.html").write_text(page)
    return look(folder, ["index.html"])


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "furo", "myst_parser", "wavedrom")),
    reason="the packages of extra [docs] are not installed (make docs installs them)",
)
def test_the_site_on_a_telephone_and_a_laptop(tmp_path: Path) -> None:
    from tb.site.build import build

    folder = build(tmp_path).parent
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    looked = look(folder, pages)
    assert len(looked.views) == 2 * len(pages) > 60
    assert looked.errors() == []
    # The search page has no heading before something was looked for.
    assert [view.page for view in looked.views if not view.heading and view.page != "/search.html"] == []
    # Pictures and style sheets were fetched, not only named.
    index = next(view for view in looked.views if view.page == "/index.html" and view.width == PHONE)
    assert any("traffic_over_time.png" in url for url in index.fetched)
    assert any("furo.css" in url for url in index.fetched)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jinja2", "matplotlib", "distributed")),
    reason="the packages of extra [report] are not installed (make figures installs them)",
)
def test_the_report_on_a_telephone_and_a_laptop(tmp_path: Path) -> None:
    from sim.experiments.outcomes import Outcome
    from sim.report.evaluation import Evaluation
    from sim.report.page import Run, write_report
    from sim.report.plan import SECTIONS, needed_points
    from tb.drivers import point_double

    points = needed_points(SECTIONS, ["t-nlg/*"])
    outcomes = {point: Outcome(point, point_double.analytic(point)) for point in points}
    write_report(tmp_path, Evaluation(outcomes), Run("0", len(points), 1.0))
    assert look(tmp_path, ["index.html"]).errors() == []


@pytest.mark.skipif(importlib.util.find_spec("jinja2") is None, reason="make coverage installs its packages")
def test_the_coverage_page_on_a_telephone_and_a_laptop(tmp_path: Path) -> None:
    from tb.coverage_page.__main__ import write_page

    (tmp_path / "exclusions.toml").touch()
    write_page(tmp_path, tmp_path / "exclusions.toml", tmp_path / "scores.json")
    folder = tmp_path / "coverage"
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    assert "index.html" in pages
    assert look(folder, pages).errors() == []


def test_a_good_page_has_no_error(tmp_path: Path) -> None:
    looked = seen_on(tmp_path, GOOD)
    assert looked.errors() == []
    assert [(view.width, view.title, view.heading) for view in looked.views] == [(PHONE, "t", "h"), (DESKTOP, "t", "h")]


@pytest.mark.parametrize(
    ("page", "errors"),
    [
        (GOOD + '<div style="width: 600px">wide</div>', ["needs 6"]),
        (GOOD + '<div style="width: 1400px">wide</div>', ["needs 14", "needs 14"]),
        (GOOD.replace("<title>t</title>", ""), ["has no title", "has no title"]),
        (GOOD + '<link rel="stylesheet" href="none.css">', ["/none.css is missing"]),
        (GOOD + '<img src="none.png">', ["/none.png is missing", "does not show", "does not show"]),
        (GOOD + '<script src="http://localhost:9/far.js"></script>', ["fetches http://localhost:9/far.js"] * 2),
        ("<!doctype html><title>t</title>", ["is empty", "is empty"]),
    ],
)
def test_what_is_wrong_with_a_page_is_seen(tmp_path: Path, page: str, errors: list[str]) -> None:
    found = seen_on(tmp_path, page).errors()
    assert len(found) == len(errors)
    assert all(part in sentence for part, sentence in zip(errors, found, strict=True)), found


def test_a_page_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    assert "/none.html is missing" in look(tmp_path, ["none.html"]).errors()
