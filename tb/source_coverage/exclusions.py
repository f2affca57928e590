"""Argued exceptions from coverage: points that no test can reach, or that need none, each with its reason.

An entry names lines by what they say and not by their number, so that it survives edits above it:

    [[exclusion]]
    file = "hw/timer.py"
    text = "with m.Default():"       # part of the source line
    kinds = ["branch"]               # optional; all kinds without it
    label = 'high\\[1[0-5]\\].*'      # optional; regular expression that the point's label must match in full
    reason = "the enumeration has no other value"
"""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tb.source_coverage.points import Point, SourceCoverage

FIELDS = {"file", "text", "kinds", "label", "reason"}


@dataclass(frozen=True)
class Exclusion:
    """One entry; empty `kinds` means any kind, empty `label` any label."""

    file: str
    text: str
    reason: str
    kinds: tuple[str, ...] = ()
    label: str = ""

    def applies(self, point: Point, line: str) -> bool:
        """Whether `point`, on a source line that reads `line`, is meant."""
        return (
            point.file == self.file
            and self.text in line
            and (not self.kinds or point.kind in self.kinds)
            and (not self.label or re.fullmatch(self.label, point.label) is not None)
        )


@dataclass(frozen=True)
class Excluded:
    """What the entries took out: point -> entry; and what is wrong with the entries, one sentence each."""

    points: dict[Point, Exclusion]
    complaints: list[str]


def read_exclusions(path: Path) -> list[Exclusion]:
    """The entries of a file. Raises ValueError for an entry without file, text or reason, or with an unknown field."""
    answer = []
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("exclusion", []), 1):
        unknown = sorted(set(entry) - FIELDS)
        missing = sorted(name for name in ("file", "text", "reason") if not str(entry.get(name, "")).strip())
        if unknown or missing:
            raise ValueError(f"{path}, exclusion {number}: missing {missing}, unknown {unknown}")
        answer.append(Exclusion(**entry | {"kinds": tuple(entry.get("kinds", ()))}))
    return answer


def exclude(coverage: SourceCoverage, entries: Sequence[Exclusion], lines: Callable[[str], Sequence[str]]) -> Excluded:
    """Apply `entries` to `coverage`; `lines` gives the text of a source file, line by line.

    An entry that matches no point of `coverage`, or one that a run has covered, is a complaint.
    """
    points: dict[Point, Exclusion] = {}
    complaints = []
    for entry in entries:
        text = lines(entry.file)
        matched = [
            point
            for point in coverage.covered
            if point.file == entry.file and entry.applies(point, text[point.line - 1])
        ]
        where = f"the exclusion of {entry.text!r} in {entry.file}"
        if not matched:
            complaints.append(f"{where} matches nothing that is measured")
        for point in matched:
            if coverage.covered[point]:
                what = f"{point.kind} {point.label}".strip()
                complaints.append(f"{where} excludes the {what} of line {point.line}, which was covered")
            else:
                points[point] = entry
    return Excluded(points, complaints)
