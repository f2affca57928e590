"""The coverage of all runs: that of the Amaranth source merged by OR, toggles and expressions by adding counts."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from tb.source_coverage.points import Point, PointMap, SourceCoverage

_SOURCE = re.compile(r'src = "([^"]+):(\d+)"')
_MODULE = re.compile(r"^module (\w+)")
_PLACE = re.compile("\x01l\x02(\\d+)\x01.*\x01page\x02v_(\\w+)/([^\x01]*)\x01o\x02([^\x01]*)")
_ESCAPED = re.compile(r"__0([0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"\$\d+")
_TOOL_NAME = re.compile(r"\b_\d+_\b|\bnet\b")
_WIRE = re.compile(r"_\d+_|net")
_EDGE = re.compile(r"(.*?)(?:\[(\d+)\])?:([01]->[01])")


@dataclass
class Measured:
    """Everything measured: `source`, and `counts`: points of kind toggle or expression -> how often they were met."""

    source: SourceCoverage = field(default_factory=SourceCoverage)
    counts: dict[Point, int] = field(default_factory=lambda: defaultdict(int))
    runs: int = 0
    tests: set[str] = field(default_factory=set)

    def all_points(self) -> SourceCoverage:
        """Points of every kind; one with a count is covered."""
        counted = SourceCoverage({point: count > 0 for point, count in self.counts.items()})
        counted.merge(self.source)
        return counted


class _Locations:
    """For the lines of a generated SystemVerilog file: the Python line they come from."""

    def __init__(self, text: str):
        self.of_line: dict[int, tuple[str, int]] = {}
        self.of_module: dict[str, tuple[str, int]] = {}
        above: tuple[str, int] | None = None
        module: tuple[str, int] | None = None
        for number, line in enumerate(text.splitlines(), 1):
            found = _SOURCE.search(line)
            here = (_relative(found[1]), int(found[2])) if found else None
            if start := _MODULE.match(line):
                module = above or ("", 0)
                self.of_module[start[1]] = module
            place = here or above
            if place and place[0]:
                self.of_line[number] = place
            # An attribute on a line of its own belongs to the next line that is not about Verilator's settings.
            if here and line.lstrip().startswith("(*") and line.rstrip().endswith("*)"):
                above = here
            elif not line.lstrip().startswith(("/*", "(*")):
                above = None


@cache
def _relative(file: str) -> str:
    """`file` from the project's folder `hw` on, wherever that was when the design was built; empty for any other."""
    match = re.search(r"/(hw/(?:\w+/)*\w+\.py)$", file)
    return match[1] if match and "/site-packages/" not in file else ""


def _plain(name: str) -> str:
    """A name as in the design, without the numbers that tools append."""
    return _NUMBER.sub("", _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name))


def _split_vectors(keys: list[str]) -> set[tuple[str, str]]:
    """(Module, signal) of packed signals whose fields are there as signals of their own: `payload` if `payload.va`."""
    answer = set()
    for key in keys:
        match = _PLACE.search(key)
        if match and match[2] == "toggle" and "." in (name := _plain(match[4])):
            answer |= {(match[3], name[: dot.start()]) for dot in re.finditer(r"\.", name)}
    return answer


def _counted_points(keys: list[str], locations: _Locations) -> Iterator[tuple[int, Point]]:
    """(Position in the counts, point) of each key that belongs to a line of `hw`."""
    split = _split_vectors(keys)
    for index, key in enumerate(keys):
        match = _PLACE.search(key)
        if not match:
            continue
        line, kind, page, comment = int(match[1]), match[2], match[3], _plain(match[4])
        if page not in locations.of_module:
            continue  # a module of another file
        module = locations.of_module[page]
        place = locations.of_line.get(line)
        if kind == "toggle":
            # A port of a library's interface counts for the module that has it.
            if module[0] and place and place[0] != module[0]:
                place = module
            place = place or module
            edge = _EDGE.fullmatch(comment)
            if not place or not place[0] or edge is None or _WIRE.fullmatch(edge[1]):
                continue
            if (page, edge[1]) in split:
                continue
            yield index, Point("toggle", *place, comment)
        elif kind == "expr" and place and place[0]:
            yield index, Point("expression", *place, _TOOL_NAME.sub("_", comment))


def read_runs(coverage: Path) -> Measured:
    """Merge the runs below folder `coverage` (build/coverage). Without any, the result is empty."""
    measured = Measured()
    sums: dict[tuple[str, str], np.ndarray] = {}
    bits: dict[str, np.ndarray] = {}
    for file in sorted((coverage / "runs").glob("*.json")):
        entry = json.loads(file.read_text())
        measured.runs += 1
        measured.tests.add(entry["test"])
        design = entry["design"]
        if "bits" in entry:
            word = np.frombuffer(entry["bits"].encode(), dtype=np.uint8) == ord("1")
            bits[design] = bits[design] | word if design in bits else word
        if "keys" in entry:
            counts = np.load(file.with_suffix(".npy"))
            key = design, entry["keys"]
            sums[key] = sums[key] + counts if key in sums else counts
    for design, word in bits.items():
        measured.source.add(PointMap.read(coverage / "designs" / design / "points.json"), word)
    for (design, keys), counts in sums.items():
        folder = coverage / "designs" / design
        locations = _Locations((folder / "design.sv").read_text())
        values = counts.tolist()
        for index, point in _counted_points((folder / keys).read_text().splitlines(), locations):
            measured.counts[point] += values[index]
    return measured
