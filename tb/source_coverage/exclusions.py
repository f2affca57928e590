"""Argued exceptions from coverage: points that no test can reach, or that need none, each with its reason.

An entry names lines by what they say, or signals by their name, and not by line number, so that it survives edits
above it:

    [[exclusion]]
    file = "hw/timer.py"             # or a pattern of files, as of fnmatch
    text = "with m.Default():"       # part of the source line; may be left out where there is a label
    kinds = ["branch"]               # optional; all kinds without it
    label = 'high\\[1[0-5]\\].*'      # optional; regular expression that the point's label must match in full
    reason = "the enumeration has no other value"
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
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
            (not self.kinds or point.kind in self.kinds)
            and self.text in line
            and (not self.label or re.fullmatch(self.label, point.label) is not None)
            and fnmatch(point.file, self.file)
        )


@dataclass(frozen=True)
class Excluded:
    """What the entries took out: point -> entry; and what is wrong with the entries, one sentence each."""

    points: dict[Point, Exclusion]
    errors: list[str]


def read_exclusions(path: Path) -> list[Exclusion]:
    """The entries of a file. Raises ValueError for an entry without file, reason and either text or label, or with an
    unknown field."""
    answer = []
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("exclusion", []), 1):
        unknown = sorted(set(entry) - FIELDS)
        missing = sorted(name for name in ("file", "reason") if not str(entry.get(name, "")).strip())
        missing += [] if entry.get("text") or entry.get("label") else ["text or label"]
        if unknown or missing:
            raise ValueError(f"{path}, exclusion {number}: missing {missing}, unknown {unknown}")
        answer.append(Exclusion(**{"text": ""} | entry | {"kinds": tuple(entry.get("kinds", ()))}))
    return answer


def exclude(coverage: SourceCoverage, entries: Sequence[Exclusion], lines: Callable[[str], Sequence[str]]) -> Excluded:
    """Apply `entries` to `coverage`; `lines` gives the text of a source file, line by line.

    An entry that matches no point of `coverage`, or one that a run has covered, is a error.
    """
    points: dict[Point, Exclusion] = {}
    errors = []
    by_file: dict[str, list[Point]] = defaultdict(list)
    for point in coverage.covered:
        by_file[point.file].append(point)
    texts = {file: lines(file) for file in by_file if any(fnmatch(file, entry.file) for entry in entries)}
    for entry in entries:
        matched = [
            point
            for file, text in texts.items()
            if fnmatch(file, entry.file)
            for point in by_file[file]
            if entry.applies(point, text[point.line - 1])
        ]
        where = f"the exclusion of {entry.text or entry.label!r} in {entry.file}"
        if not matched:
            errors.append(f"{where} matches nothing that is measured")
        for point in matched:
            if coverage.covered[point]:
                what = f"{point.kind} {point.label}".strip()
                errors.append(f"{where} excludes the {what} of line {point.line}, which was covered")
            else:
                points[point] = entry
    return Excluded(points, errors)
