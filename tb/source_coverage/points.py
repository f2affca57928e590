"""What the coverage bits of a design stand for, and the sum over runs and designs, by source line."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("statement", "branch", "state", "arc")


@dataclass(frozen=True, order=True)
class Point:
    """Something to cover: a statement, the arm of a branch, a state or a transition of an FSM.

    `label` tells points of one kind on one line apart: the arm that is not written down, the states of an arc.
    """

    kind: str
    file: str
    line: int
    label: str = ""


@dataclass(frozen=True)
class PointMap:
    """`bits[i]` lists the points that bit i of a design's coverage vector stands for; a 1 covers all of them."""

    bits: list[list[Point]]

    def as_json(self, root: Path) -> str:
        """The map as JSON text, one bit a line, file names relative to `root`."""
        lines = [
            json.dumps(
                [[p.kind, str(Path(p.file).resolve().relative_to(root)), p.line, p.label] for p in dict.fromkeys(bit)]
            )
            for bit in self.bits
        ]
        return "[\n" + ",\n".join(lines) + "\n]\n"

    @staticmethod
    def read(path: Path) -> "PointMap":
        """The map in a file with what :meth:`as_json` made; file names stay relative."""
        return PointMap([[Point(*point) for point in bit] for bit in json.loads(path.read_text())])


def read_bits(path: Path) -> np.ndarray:
    """The OR of the lines of a `source_coverage.txt`: one boolean per bit.

    Raises ValueError when the lines are not of one length or hold anything but 0 and 1.
    """
    lines = path.read_text().split()
    if not lines or any(len(line) != len(lines[0]) or set(line) - {"0", "1"} for line in lines):
        raise ValueError(f"{path} is not a list of coverage bits")
    rows = np.array([np.frombuffer(line.encode(), dtype=np.uint8) for line in lines]) == ord("1")
    return rows.any(axis=0)


@dataclass
class SourceCoverage:
    """Every point met so far, and whether a run covered it: merging is OR."""

    covered: dict[Point, bool] = field(default_factory=dict)

    def add(self, points: PointMap, bits: np.ndarray) -> None:
        """Take in a run's `bits` of the design with `points`. Raises ValueError when the numbers differ."""
        if len(bits) != len(points.bits):
            raise ValueError(f"{len(bits)} coverage bits for a design with {len(points.bits)}")
        for bit, value in zip(points.bits, bits.tolist(), strict=True):
            for point in bit:
                self.covered[point] = self.covered.get(point, False) or value

    def merge(self, other: "SourceCoverage") -> None:
        """Take in everything `other` has."""
        for point, value in other.covered.items():
            self.covered[point] = self.covered.get(point, False) or value

    def without(self, points: Iterable[Point]) -> "SourceCoverage":
        """The same with `points` taken out of the count."""
        dropped = set(points)
        return SourceCoverage({point: value for point, value in self.covered.items() if point not in dropped})

    def of_files(self, files: Iterable[str]) -> "SourceCoverage":
        """Only the points of `files`."""
        chosen = set(files)
        return SourceCoverage({point: value for point, value in self.covered.items() if point.file in chosen})

    def files(self) -> list[str]:
        """Source files with points, in order."""
        return sorted({point.file for point in self.covered})

    def count(self, kind: str) -> tuple[int, int]:
        """(Covered, all) points of `kind`."""
        values = [value for point, value in self.covered.items() if point.kind == kind]
        return sum(values), len(values)

    def missing(self) -> Iterator[Point]:
        """Points that no run covered, in order of file and line."""
        missing = (point for point, value in self.covered.items() if not value)
        yield from sorted(missing, key=lambda point: (point.file, point.line, point.kind, point.label))

    def by_line(self, file: str) -> Mapping[int, list[tuple[Point, bool]]]:
        """Line -> points of `file` on it."""
        lines: dict[int, list[tuple[Point, bool]]] = defaultdict(list)
        for point, value in sorted(self.covered.items()):
            if point.file == file:
                lines[point.line].append((point, value))
        return lines

    def as_json(self) -> Any:
        """A form for json.dump: file -> list of [kind, line, label, covered]."""
        answer: dict[str, list[Any]] = defaultdict(list)
        for point, value in sorted(self.covered.items()):
            answer[point.file].append([point.kind, point.line, point.label, value])
        return answer
