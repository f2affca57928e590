"""Figures per block and in total: what `summary.json` holds and the page's first table shows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tb.coverage_page.blocks import Block
from tb.coverage_page.inputs import (
    CoverPoint,
    FaultCampaign,
    Figure,
    Proof,
    Test,
    merge_functional,
    read_faults,
    read_mutation,
    read_proofs,
    read_recorded,
    read_testplan,
    read_tests,
    total,
)
from tb.coverage_page.measured import Measured
from tb.source_coverage.exclusions import Excluded
from tb.source_coverage.points import SourceCoverage

METRICS = {
    "statement": "statement",
    "branch": "branch",
    "fsm_state": "state",
    "fsm_arc": "arc",
    "toggle": "toggle",
    "expression": "expression",
}
"""Figure -> kind of point."""
GOALS = {"statement": 99.0, "branch": 99.0, "fsm_state": 100.0, "fsm_arc": 100.0, "toggle": 95.0, "functional": 100.0}
"""What each figure has to reach, in percent; mutation 95."""
GOALS |= {"mutation": 95.0, "tests": 100.0}


@dataclass
class Row:
    """A block's figures; None means not run."""

    key: str
    title: str
    figures: dict[str, Figure | None] = field(default_factory=dict)
    proofs: list[Proof] | None = None
    tests: list[Test] = field(default_factory=list)
    cover_points: list[CoverPoint] = field(default_factory=list)

    def met(self, name: str) -> bool | None:
        """Whether figure `name` reaches its goal; None without a figure or a goal."""
        figure = self.figures.get(name)
        if figure is None or figure.percent is None or name not in GOALS:
            return None
        return figure.percent >= GOALS[name]

    def as_json(self) -> dict[str, Any]:
        """Figures as {"done", "total", "percent"}, or null when not run."""
        return {
            "title": self.title,
            **{name: figure and figure.as_json() for name, figure in self.figures.items()},
            "proofs": None if self.proofs is None else [vars(proof) for proof in self.proofs],
        }


@dataclass
class Results:
    """Everything the page shows."""

    rows: list[Row]
    overall: Row
    counted: SourceCoverage
    excluded: Excluded
    testplan: Any
    other_tests: list[Test]
    runs: int
    recorded: dict[str, str]
    """Blocks whose mutation score is an earlier run's, and its day."""
    faults: FaultCampaign | None = None

    def excluded_shares(self) -> dict[str, Figure]:
        """Figure -> its excluded points of all that there would be, where there are any."""
        answer = {}
        for name, kind in METRICS.items():
            excluded = sum(point.kind == kind for point in self.excluded.points)
            if excluded:
                answer[name] = Figure(excluded, excluded + self.counted.count(kind)[1])
        return answer

    def as_json(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {
            "total": self.overall.as_json(),
            "blocks": {row.key: row.as_json() for row in self.rows},
            "goals": GOALS,
            "exclusions": [
                {
                    "file": point.file,
                    "line": point.line,
                    "kind": point.kind,
                    "label": point.label,
                    "reason": entry.reason,
                }
                for point, entry in self.excluded.points.items()
                if point.kind not in COUNTED
            ],
            "exclusion_entries": [
                {
                    "file": entry.file,
                    "text": entry.text,
                    "label": entry.label,
                    "points": points,
                    "reason": entry.reason,
                }
                for entry, points in Counter(self.excluded.points.values()).items()
            ],
            "excluded_points": len(self.excluded.points),
            "excluded": {name: figure.as_json() for name, figure in self.excluded_shares().items()},
            "exclusion_errors": self.excluded.errors,
            "simulation_runs": self.runs,
            "mutation_recorded": self.recorded,
            "faults": self.faults
            and {item.name: {"injections": item.injections, **item.counts} for item in self.faults.classes},
        }


COUNTED = ("toggle", "expression")
"""Kinds that the simulator counts; the others come from the instrumented source."""


def _figure(coverage: SourceCoverage, kind: str) -> Figure | None:
    """The figure of a block; None when none of its runs has measured anything of that sort."""
    ran = any((point.kind in COUNTED) == (kind in COUNTED) for point in coverage.covered)
    return Figure(*coverage.count(kind)) if ran else None


def results(
    blocks: Sequence[Block], measured: Measured, excluded: Excluded, build: Path, plan: Path, scores: Path
) -> Results:
    """Gather everything. `build`: the folder with coverage/, formal/, mutation/, faults/; `plan`: the testplan;
    `scores`: the mutation scores of earlier runs, for blocks of which `build` has none."""
    counted = measured.all_points().without(excluded.points)
    tests = read_tests(build / "coverage" / "junit.xml")
    points = merge_functional(build / "coverage" / "functional", build / "coverage" / "functional.xml")
    proofs = read_proofs(build / "formal" / "summary.json")
    mutation = read_mutation(build / "mutation" / "summary.json") or {}
    earlier = {name: day for name, day in read_recorded(scores).items() if name not in mutation}
    mutation |= {name: figure for name, figure in (read_mutation(scores) or {}).items() if name in earlier}
    rows = []
    for block in blocks:
        coverage = counted.of_files(file for file in counted.files() if block.has_file(file))
        row = Row(block.key, block.title)
        row.tests = [test for test in tests or () if block.has_test(test.file)]
        row.cover_points = [point for point in points or () if block.goes_by(point.name.split(".")[0])]
        row.proofs = None if proofs is None else [proof for proof in proofs if block.goes_by(proof.block)]
        row.figures["tests"] = None if tests is None else _passed(row.tests)
        row.figures["functional"] = None if points is None else total(point.bins for point in row.cover_points)
        for name, kind in METRICS.items():
            row.figures[name] = _figure(coverage, kind)
        killed = [figure for name, figure in mutation.items() if block.goes_by(name)]
        row.figures["mutation"] = total(killed) if killed else None
        rows.append(row)
    known = {test for row in rows for test in row.tests}
    others = [test for test in tests or () if test not in known]
    overall = Row("total", "Total")
    for name in rows[0].figures if rows else ():
        figures = [row.figures[name] for row in rows]
        present = [figure for figure in figures if figure is not None]
        overall.figures[name] = total(present) if present else None
    overall.figures["tests"] = None if tests is None else _passed(tests)
    overall.figures["functional"] = None if points is None else total(point.bins for point in points)
    overall.proofs = proofs
    faults = read_faults(build / "faults" / "summary.json")
    return Results(rows, overall, counted, excluded, read_testplan(plan), others, measured.runs, earlier, faults)


def _passed(tests: Sequence[Test]) -> Figure:
    return Figure(sum(test.outcome == "passed" for test in tests), sum(test.outcome != "skipped" for test in tests))
