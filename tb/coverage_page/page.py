"""The static HTML page: an overview, a page per block, a page per source file."""

import ast
import html
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from tb.coverage_page.blocks import Block
from tb.coverage_page.inputs import OUTCOMES, Figure
from tb.coverage_page.summary import GOALS, Results, Row
from tb.functional_coverage.group import read_unreachable
from tb.source_coverage.exclusions import Exclusion
from tb.source_coverage.points import Point

COLUMNS = (
    ("tests", "Tests"),
    ("functional", "Functional"),
    ("statement", "Statement"),
    ("branch", "Branch"),
    ("fsm_arc", "FSM arc"),
    ("toggle", "Toggle"),
    ("expression", "Expression"),
    ("proofs", "Proofs"),
    ("mutation", "Mutation"),
)
SHOWN_BITS = 12
"""Missing toggles or expressions that a source line lists one by one."""


def _percent(figure: Figure | None) -> str:
    if figure is None:
        return "not measured"
    if figure.percent is None:
        return "none"
    return "100 %" if figure.done == figure.total else f"{figure.percent:.2f} %"


def _cell(row: Row, name: str) -> dict[str, Any]:
    """What a cell of the overview shows: text, fine print, a share for the bar and a class for its colour."""
    if name == "proofs":
        if row.proofs is None:
            return {"text": "not measured", "kind": "absent"}
        if not row.proofs:
            return {"text": "none", "kind": "none"}
        proved = sum(proof.status in ("proved", "passed", "pass") for proof in row.proofs)
        kind = "good" if proved == len(row.proofs) else "bad"
        return {
            "text": f"{proved} / {len(row.proofs)}",
            "fine": "proved",
            "share": 100 * proved / len(row.proofs),
            "kind": kind,
        }
    figure = row.figures.get(name)
    if figure is None or figure.percent is None:
        return {"text": _percent(figure), "kind": "absent" if figure is None else "none"}
    met = row.met(name)
    kind = "plain" if met is None else "good" if met else "bad" if figure.percent < GOALS[name] - 5 else "close"
    return {
        "text": _percent(figure),
        "fine": f"{figure.done:,} / {figure.total:,}",
        "share": figure.percent,
        "kind": kind,
    }


def _summarized(points: Sequence[Point]) -> list[str]:
    """Labels of points on one line, bits of one signal drawn together: `va[33..42]`."""
    signals: dict[str, set[int | None]] = defaultdict(set)
    for point in points:
        name, _, bit = point.label.split(":")[0].partition("[")
        signals[name].add(int(bit.rstrip("]")) if bit.rstrip("]").isdigit() else None)
    answer = []
    for name, bits in signals.items():
        numbers = sorted(bit for bit in bits if bit is not None)
        ranges: list[list[int]] = []
        for number in numbers:
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        text = ", ".join(str(low) if low == high else f"{high}..{low}" for low, high in ranges)
        answer.append(f"{name}[{text}]" if text else name)
    return answer


def _annotation(points: Sequence[tuple[Point, bool]], excluded: Sequence[tuple[Point, Exclusion]]) -> dict[str, Any]:
    """A source line's colour and remarks."""
    source = [(point, value) for point, value in points if point.kind not in ("toggle", "expression")]
    notes = []
    for kind, word in (("statement", "statement"), ("branch", "branch"), ("state", "state"), ("arc", "arc")):
        missed = [point for point, value in source if point.kind == kind and not value]
        notes += [f"{word} not covered" + (f": {point.label}" if point.label else "") for point in missed]
    missed_toggles = _summarized([point for point, value in points if point.kind == "toggle" and not value])
    missed_terms = [point.label for point, value in points if point.kind == "expression" and not value]
    fine = []
    for word, labels in (("does not toggle", missed_toggles), ("never", missed_terms)):
        if labels:
            more = f" and {len(labels) - SHOWN_BITS} more" if len(labels) > SHOWN_BITS else ""
            fine.append(f"{word}: {'; '.join(labels[:SHOWN_BITS])}{more}")
    reasons = Counter(f"excluded ({point.kind}): {entry.reason}" for point, entry in excluded)
    kind = ""
    if source:
        covered = sum(value for _, value in source)
        kind = "hit" if covered == len(source) else "miss" if covered == 0 else "part"
    elif any(point.kind not in ("toggle", "expression") for point, _ in excluded):
        kind = "out"
    return {"kind": kind, "notes": notes, "fine": fine, "reasons": list(reasons)}


def unmeasured(text: str, measured: set[int]) -> list[int]:
    """Lines of a source `text` that make hardware, none of whose lines is `measured`: no run has elaborated them, so
    that a share of what was measured says nothing of them."""
    answer = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Attribute):
            continue
        inner = node.target.value
        if isinstance(inner, ast.Attribute) and inner.attr == "d" and isinstance(inner.value, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if inner.value.id == "m" and not measured & set(lines):
                answer.append(node.lineno)
    return sorted(answer)


class PageWriter:
    """Writes `results` below `folder`; `root` is where the source files are."""

    def __init__(self, results: Results, blocks: Sequence[Block], folder: Path, root: Path, commit: str):
        self._results = results
        self._blocks = blocks
        self._folder = folder
        self._root = root
        self._templates = Environment(
            loader=PackageLoader("tb.coverage_page"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["page"] = _page_of
        self._templates.filters["exclusions"] = _by_entry
        self._shared = {"commit": commit, "columns": COLUMNS, "cell": _cell, "percent": _percent, "goals": GOALS}
        self._shared["outcomes"] = OUTCOMES

    def write(self) -> Path:
        """Write all pages; returns the overview."""
        results = self._results
        (self._folder / "blocks").mkdir(parents=True, exist_ok=True)
        (self._folder / "source").mkdir(parents=True, exist_ok=True)
        files = results.counted.files()
        by_file: dict[str, dict[int, list[tuple[Point, bool]]]] = defaultdict(lambda: defaultdict(list))
        for point, value in sorted(results.counted.covered.items()):
            by_file[point.file][point.line].append((point, value))
        for row in results.rows:
            own = [file for file in files if self._owner(file) == row.key]
            self._render(
                "block.html",
                f"blocks/{row.key}.html",
                "../",
                row=row,
                files=self._file_rows(own),
                plan=self._plan(row),
                argued=[entry for entry in read_unreachable() if self._block(row).goes_by(entry.group.split(".")[0])],
                no_functional=self._block(row).no_functional,
            )
        for file in files:
            self._render(
                "source.html",
                f"source/{_page_of(file)}",
                "../",
                file=file,
                lines=self._lines(file, by_file[file]),
                owner=self._owner(file),
            )
        return self._render("index.html", "index.html", "", results=results, other=self._other_tests())

    def _block(self, row: Row) -> Block:
        return next(block for block in self._blocks if block.key == row.key)

    def _owner(self, file: str) -> str:
        return next((block.key for block in self._blocks if block.has_file(file)), "")

    def _render(self, template: str, name: str, up: str, **values: Any) -> Path:
        target = self._folder / name
        target.write_text(self._templates.get_template(f"{template}.j2").render(up=up, **self._shared, **values))
        return target

    def _file_rows(self, files: Sequence[str]) -> list[dict[str, Any]]:
        answer = []
        for file in files:
            coverage = self._results.counted.of_files([file])
            missing = [point for point in coverage.missing() if point.kind not in ("toggle", "expression")]
            kinds = ("statement", "branch", "arc", "toggle", "expression")
            lacking = self._unmeasured(file)
            answer.append(
                {
                    "file": file,
                    "page": _page_of(file),
                    "figures": [Figure(*coverage.count(kind)) for kind in kinds],
                    "missing": missing,
                    "unmeasured": lacking,
                }
            )
        return answer

    def _unmeasured(self, file: str) -> list[int]:
        points = (*self._results.counted.covered, *self._results.excluded.points)
        source = {point.line for point in points if point.file == file and point.kind == "statement"}
        return unmeasured((self._root / file).read_text(), source)

    def _plan(self, row: Row) -> list[dict[str, Any]]:
        """Entries of the testplan that name tests of this block."""
        block = self._block(row)
        answer = []
        for entry in self._results.testplan or ():
            tests = [str(test) for test in entry.get("tests", ())]
            if any(block.has_test(test.split("::")[0]) for test in tests):
                shown = [*tests, *map(str, entry.get("cover", ())), *map(str, entry.get("properties", ()))]
                answer.append({"name": entry.get("id", ""), "text": entry.get("requirement", ""), "shown_by": shown})
        return answer

    def _other_tests(self) -> dict[str, Counter[str]]:
        answer: dict[str, Counter[str]] = defaultdict(Counter)
        for test in self._results.other_tests:
            answer[test.file][test.outcome] += 1
        return dict(sorted(answer.items()))

    def _lines(self, file: str, points: dict[int, list[tuple[Point, bool]]]) -> list[dict[str, Any]]:
        excluded: dict[int, list[tuple[Point, Exclusion]]] = defaultdict(list)
        for point, entry in self._results.excluded.points.items():
            if point.file == file:
                excluded[point.line].append((point, entry))
        text = (self._root / file).read_text().splitlines()
        lines = [
            {"number": number, "text": line, **_annotation(points.get(number, []), excluded.get(number, []))}
            for number, line in enumerate(text, 1)
        ]
        for number in self._unmeasured(file):
            lines[number - 1]["notes"] = ["not measured: no run has elaborated it", *lines[number - 1]["notes"]]
        return lines


def _by_entry(points: dict[Point, Exclusion]) -> list[tuple[Exclusion, list[Point]]]:
    """Each exclusion with its points."""
    answer: dict[Exclusion, list[Point]] = defaultdict(list)
    for point, entry in sorted(points.items(), key=lambda item: item[0]):
        answer[entry].append(point)
    return list(answer.items())


def _page_of(file: str) -> str:
    return html.escape(file.replace("/", "-")) + ".html"
