"""Exclusions from coverage: an entry takes out what it names, and one that is stale or wrong is reported."""

from pathlib import Path
from typing import Any

import pytest

from tb.source_coverage.exclusions import Exclusion, exclude, read_exclusions
from tb.source_coverage.points import Point, SourceCoverage

ROOT = Path(__file__).parent.parent.parent
EXCLUSIONS = ROOT / "tb" / "coverage_page" / "exclusions.toml"
LINES = ["with m.If(a):", "    m.d.comb += b.eq(1)", "with m.Default():"]
ARM = Point("branch", "hw/x.py", 1)
STATEMENT = Point("statement", "hw/x.py", 2)
DEFAULT = Point("branch", "hw/x.py", 3)
BITS = [Point("toggle", "hw/x.py", 2, f"va[{bit}]:0->1") for bit in (9, 10, 11)]
COVERAGE = SourceCoverage({ARM: True, STATEMENT: True, DEFAULT: False, **dict.fromkeys(BITS, False)})


def errors(**entry: Any) -> list[str]:
    """What is wrong with an exclusion with these fields."""
    return exclude(COVERAGE, [Exclusion(file="hw/x.py", reason="why", **entry)], lambda file: LINES).errors


def test_an_entry_takes_out_what_it_names():
    entries = [
        Exclusion("hw/x.py", "m.Default()", "no other value"),
        Exclusion("hw/x.py", "b.eq", "addresses end at bit 10", ("toggle",), r"va\[1\d\].*"),
    ]
    excluded = exclude(COVERAGE, entries, lambda file: LINES)
    assert excluded.errors == []
    assert set(excluded.points) == {DEFAULT, *BITS[1:]}
    assert COVERAGE.without(excluded.points).count("branch") == (1, 1)
    assert COVERAGE.without(excluded.points).count("toggle") == (0, 1)


def test_an_entry_may_name_signals_of_several_files():
    entry = Exclusion("hw/*.py", "", "addresses end at bit 10", ("toggle",), r"va\[1\d\].*")
    other = Point("toggle", "hw/y.py", 1, "va[12]:0->1")
    coverage = SourceCoverage(COVERAGE.covered | {other: False, Point("toggle", "tb/y.py", 1, "va[12]:0->1"): False})
    excluded = exclude(coverage, [entry], lambda file: LINES)
    assert excluded.errors == []
    assert set(excluded.points) == {other, *BITS[1:]}
    covered = SourceCoverage(coverage.covered | {other: True})
    assert "excludes the toggle va[12]:0->1" in exclude(covered, [entry], lambda file: LINES).errors[0]


def test_an_entry_that_matches_nothing_is_reported():
    assert "matches nothing that is measured" in errors(text="m.Case(")[0]
    assert "matches nothing that is measured" in errors(text="m.Default", kinds=("arc",))[0]


def test_an_entry_for_something_covered_is_reported():
    assert "excludes the branch of line 1, which was covered" in errors(text="m.If(a)")[0]


def test_an_entry_needs_a_reason(tmp_path):
    path = tmp_path / "exclusions.toml"
    wrong = (
        'file = "a"\ntext = "b"\nreason = " "',
        'file = "a"\ntext = "b"\nreason = "c"\nlines = [1]',
        'file = "a"\nreason = "c"\nkinds = ["toggle"]',
    )
    for text in wrong:
        path.write_text(f"[[exclusion]]\n{text}\n")
        with pytest.raises(ValueError, match="exclusion 1"):
            read_exclusions(path)


def test_each_exclusion_of_the_project_names_a_line_that_exists():
    for entry in read_exclusions(EXCLUSIONS):
        lines = [line for file in ROOT.glob(entry.file) for line in file.read_text().splitlines()]
        assert any(entry.text in line for line in lines), entry
