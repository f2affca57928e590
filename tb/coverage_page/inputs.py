"""Results that other commands leave in build/: tests, functional coverage, proofs, mutants, and the testplan.

Each reader returns None when its file is missing or cannot be understood, which the page shows as "not measured".
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cocotb_coverage.coverage import merge_coverage


@dataclass(frozen=True)
class Test:
    """One test of a JUnit file: `file` it is in, `name`, `outcome` (passed, failed, skipped), seconds."""

    file: str
    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Figure:
    """`done` of `total`."""

    done: int
    total: int

    @property
    def percent(self) -> float | None:
        """Rounded down to two digits, so that 100 means all; None without any."""
        return int(10000 * self.done / self.total) / 100 if self.total else None

    def as_json(self) -> dict[str, float | None]:
        """For summary.json."""
        return {"done": self.done, "total": self.total, "percent": self.percent}


@dataclass(frozen=True)
class Proof:
    """A property of a block, how it was shown and how far (`depth` in cycles; `scope` says bounded or not)."""

    block: str
    name: str
    status: str
    scope: str
    depth: int
    text: str


@dataclass(frozen=True)
class CoverPoint:
    """A cover point or cross: its `name` from the top, its bins met and all, the bins missing."""

    name: str
    bins: Figure
    missing: tuple[str, ...]


def read_tests(path: Path) -> list[Test] | None:
    """The tests of a JUnit file of pytest."""
    root = _xml(path)
    if root is None:
        return None
    answer = []
    for case in root.iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        module = case.get("classname", "")
        file = "/".join(module.split(".")) + ".py"
        answer.append(Test(file, case.get("name", ""), outcome, float(case.get("time", 0))))
    return answer


def _xml(path: Path) -> ElementTree.Element | None:
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None


def merge_functional(folder: Path, merged: Path) -> list[CoverPoint] | None:
    """Merge the cocotb-coverage files in `folder` into `merged`; returns the cover points and crosses."""
    files = [str(file) for file in sorted(folder.glob("*.xml")) if _xml(file) is not None]
    if not files:
        return None
    merge_coverage(lambda text: None, str(merged), *files)
    root = _xml(merged)
    answer = []
    for element in root.iter() if root is not None else ():
        bins = [child for child in element if "bin" in child.attrib]
        if not bins:
            continue
        needed = int(element.get("at_least", 1))
        missing = tuple(child.attrib["bin"] for child in bins if int(child.get("hits", 0)) < needed)
        name = element.get("abs_name", element.tag).removeprefix("top.")
        answer.append(CoverPoint(name, Figure(len(bins) - len(missing), len(bins)), missing))
    return answer


def read_proofs(path: Path) -> list[Proof] | None:
    """The proofs of build/formal/summary.json: a list of objects, or one under the key `proofs`."""
    found = _json(path)
    rows = found.get("proofs") if isinstance(found, dict) else found
    if isinstance(rows, dict):
        rows = [{"name": name, **row} for name, row in rows.items() if isinstance(row, dict)]
    if not isinstance(rows, list):
        return None
    return [
        Proof(
            str(row.get("block", "")),
            str(row.get("name", "")),
            str(row.get("status", "unknown")),
            str(row.get("scope", "")),
            int(row.get("depth") or 0),
            str(row.get("claim", "")),
        )
        for row in rows
        if isinstance(row, dict)
    ]


def read_mutation(path: Path) -> dict[str, Figure] | None:
    """Block -> killed of those not proven equivalent, from build/mutation/summary.json."""
    found = _json(path)
    blocks = found.get("blocks") if isinstance(found, dict) else None
    if not isinstance(blocks, dict):
        return None
    return {
        name: Figure(int(row.get("killed", 0)), int(row.get("killed", 0)) + int(row.get("survived", 0)))
        for name, row in blocks.items()
        if isinstance(row, dict)
    }


@dataclass(frozen=True)
class Injected:
    """How injections of faults into one class, or a block of it, ended: `shares` in percent by outcome, the share that
    was silent or hung with its interval, in percent; `protected`: none of them may be."""

    name: str
    title: str
    injections: int
    counts: Mapping[str, int]
    bad: float
    low: float
    high: float
    protected: bool = False

    @property
    def shares(self) -> dict[str, float]:
        """Percent of each outcome."""
        return {name: 100 * count / max(self.injections, 1) for name, count in self.counts.items()}

    @property
    def kind(self) -> str:
        """How the page colours it."""
        wrong = self.counts["silent"] + self.counts["hang"]
        return "plain" if not self.protected else "bad" if wrong else "good"


@dataclass(frozen=True)
class FaultCampaign:
    """A campaign of faults: by `classes`, by `blocks` of each, the `worst` registers; `confidence` of the intervals, in
    percent, and where it comes from."""

    classes: tuple[Injected, ...]
    blocks: tuple[tuple[str, tuple[Injected, ...]], ...]
    worst: tuple[Mapping[str, Any], ...]
    confidence: float
    command: str
    commit: str
    seed: int


OUTCOMES = ("masked", "corrected", "detected", "silent", "hang")
"""Of an injection, as build/faults/summary.json counts them."""


def read_faults(path: Path) -> FaultCampaign | None:
    """The campaign of build/faults/summary.json."""
    found = _json(path)
    try:
        return FaultCampaign(
            tuple(_injected(name, row) for name, row in found["classes"].items()),
            tuple((name, tuple(_injected(*row) for row in rows.items())) for name, rows in found["blocks"].items()),
            tuple(found["worst"]),
            100 * found["confidence"],
            str(found["command"]),
            str(found["commit"]),
            int(found["seed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _injected(name: str, row: Mapping[str, Any]) -> Injected:
    bad = row["silent_or_hang"]
    return Injected(
        name,
        str(row.get("title", name)),
        int(row["injections"]),
        {outcome: int(row[outcome]) for outcome in OUTCOMES},
        100 * float(bad["share"]),
        100 * float(bad["low"]),
        100 * float(bad["high"]),
        bool(row.get("protected", False)),
    )


def read_recorded(path: Path) -> dict[str, str]:
    """Block -> day of its last full mutation run, from tb/mutation/scores.json; empty when there is none."""
    found = _json(path)
    blocks = found.get("blocks") if isinstance(found, dict) else None
    return {name: str(row.get("date", "")) for name, row in blocks.items()} if isinstance(blocks, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def read_testplan(path: Path) -> list[Mapping[str, Any]] | None:
    """Entries of the testplan: each table of its first array of tables."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return None
    for value in content.values():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            return value
    return [{"id": key, **value} for key, value in content.items() if isinstance(value, dict)] or None


def total(figures: Iterable[Figure]) -> Figure:
    """The sum."""
    listed = list(figures)
    return Figure(sum(figure.done for figure in listed), sum(figure.total for figure in listed))
