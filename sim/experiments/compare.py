"""Compares two files of results figure by figure, wall time aside: of `make sim`, a sweep, a point, or a report.

Reads files of results (:mod:`sim.experiments.results`), those of schema 1 (a list of scenarios or of points, or one
point), and the summary of a report. Runs are compared under their names; two files of one run each are compared
whatever was run, and their settings too. A figure that only one of the two has is listed, but is no difference.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.errors import UsageError
from sim.experiments.spec_values import MACHINE

WALL_TIME = ("seconds", "simulate_seconds", "total_seconds", "kilocycles_per_second", "kilocycles_per_processor_second")
"""Figures that no two runs share, whole groups of them too."""
ABOUT = ("spec", "point", "shape", "options", "errors", "complaints", "sources", "broken")
"""What is no figure: what was run, where it came from, sentences."""
IDENTITY = ("name", "gpus", "shape", "dtype", "op", "policy", "threshold", "preset")
"""Fields of a scenario of schema 1 that are in the spec of schema 2."""
READING = ("prefetch", "reads_under_way", "workgroups_per_unit", "communication_units", "communication_bandwidth")
"""Fields of a full-size spec that are named where they are not machine PAPER's."""
RENAMED = {
    "occupancy_window": "timeline.window",
    "occupancy_over_time": "timeline.occupancy",
    "link_utilisation": "link_utilisation_by_gpu",
    "tracker_accesses": "totals.tracker_accesses",
    "tracker_hits": "totals.tracker_hits",
    "tracker_evictions": "totals.tracker_evictions",
    "tracker_live_peak": "tracker.peak_occupancy",
    "trigger_latency_peak": "trigger_latency",
    "held_compute_cycles": "totals.held_compute",
    "held_communication_cycles": "totals.held_communication",
}
"""Figure of a scenario of schema 1 -> its name in schema 2."""
LISTS = {
    "sub_layers": ("machine", "workload"),
    "recorded": ("workload",),
    "agreement": ("compared", "workload", "ratio"),
    "closed_forms": ("tp",),
    "failed": (),
}
"""Lists of a report's summary, and what tells their entries apart."""

Figures = dict[str, Any]
"""Name of a figure, its parts joined by dots, -> value."""

Runs = dict[str, tuple[Figures, Figures]]
"""Name of a run -> its figures, and its settings. A report has one run, without a name."""


@dataclass(frozen=True)
class Comparison:
    """`settings`: (where, value, other value) of what was run that differs; `different`: the same of figures, the
    greatest ratio first, lists behind all numbers; `agreeing`: (where, value) of figures that agree; `only`: (where,
    "first" or "second") of those that one file has."""

    settings: list[tuple[str, Any, Any]] = field(default_factory=list)
    different: list[tuple[str, Any, Any]] = field(default_factory=list)
    agreeing: list[tuple[str, Any]] = field(default_factory=list)
    only: list[tuple[str, str]] = field(default_factory=list)

    @property
    def equal(self) -> int:
        """How many figures agree."""
        return len(self.agreeing)


def compare(first: Path, second: Path) -> Comparison:
    """What differs between two files. Raises :class:`UsageError` when one of them is none that can be compared."""
    found = Comparison()
    one, other = _runs_in(first), _runs_in(second)
    if len(one) == len(other) == 1:
        ((_, one_settings),), ((_, other_settings),) = one.values(), other.values()
        for name in one_settings:
            # Of schema 1, not all are known.
            if name in other_settings and one_settings[name] != other_settings[name]:
                found.settings.append((name, one_settings[name], other_settings[name]))
        if found.settings:
            one, other = ({"": run} for runs in (one, other) for run in runs.values())
    _compare_figures(_together(one), _together(other), found)
    found.different.sort(key=_rank)
    return found


def _compare_figures(one: Figures, other: Figures, found: Comparison) -> None:
    for name in dict.fromkeys((*one, *other)):
        if name not in one or name not in other:
            # A figure that does not apply may be left out.
            if one.get(name, other.get(name)) is not None:
                found.only.append((name, "first" if name in one else "second"))
        elif one[name] == other[name]:
            found.agreeing.append((name, one[name]))
        else:
            found.different.append((name, one[name], other[name]))


def _rank(difference: tuple[str, Any, Any]) -> tuple[bool, float]:
    _, one, other = difference
    return isinstance(one, list) or isinstance(other, list), -ratio(one, other)


def ratio(one: Any, other: Any) -> float:
    """How many times as large the larger of two figures is; infinite if one is 0, or they are no two numbers of one
    sign."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)):
        return math.inf
    return max(one / other, other / one) if one * other > 0 else math.inf


def _together(runs: Runs) -> Figures:
    """The figures of all runs, under the name of each if it has one."""
    return {
        f"{name}: {key}" if name else key: value
        for name, (figures, _) in runs.items()
        for key, value in figures.items()
    }


def _runs_in(path: Path) -> Runs:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON") from error
    found: Runs = {}
    try:
        if isinstance(content, Mapping) and "headline" in content:
            return {"": (dict(_leaves(content)), {})}
        for name, figures, settings in _runs(content, path):
            if name in found:
                raise UsageError(f"{path} has two results called {name}")
            found[name] = figures, settings
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no file of results, or a damaged one") from error
    return found


def _runs(content: Any, path: Path) -> Iterator[tuple[str, Figures, Figures]]:
    """(Name, figures, settings) of every result."""
    if isinstance(content, Mapping):
        content = content.get("results", [content.get("result", content)])
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise UsageError(f"{path} is no file of results")
    for entry in content:
        if not isinstance(entry, Mapping):
            raise UsageError(f"{path} is no file of results")
        if "spec" in entry:
            yield _spec_name(entry["spec"]), dict(_leaves(entry)), dict(_leaves(entry["spec"], without=()))
        elif "point" in entry:
            figures = entry.get("result", entry) or {}
            yield _point_name(entry["point"]), dict(_leaves(figures)), dict(_leaves(entry["point"], without=()))
        elif "name" in entry:
            settings = {name: entry[name] for name in IDENTITY if name in entry}
            yield entry["name"], dict(_renamed(entry)), settings
        else:
            raise UsageError(f"{path} is no file of results")


def _point_name(point: Mapping[str, Any]) -> str:
    fields = ("workload", "configuration", "link_bandwidth", "compute_units", "channels", "mode", "starvation_limit")
    known = " ".join(str(point[name]) for name in (*fields, "tracker_ways", "seed", "tile_order"))
    # Files that were written before there were other ways to read lack these.
    reading = (f"{name}={point[name]}" for name in READING if point.get(name) not in (None, MACHINE[name]))
    return " ".join([known, *reading])


def _spec_name(spec: Mapping[str, Any]) -> str:
    if spec["compute"] == "array":
        return str(spec["name"])
    return _point_name({**spec, "workload": spec["name"], "configuration": spec["variant"]["name"]})


def _renamed(scenario: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Figures of a scenario of schema 1 under the names of schema 2."""
    for name, value in _leaves({key: value for key, value in scenario.items() if key not in IDENTITY}):
        if name.startswith("sectors."):
            yield f"totals.sectors_{name.removeprefix('sectors.')}", value
        else:
            yield RENAMED.get(name, name), value


def _leaves(
    value: Mapping[str, Any], prefix: str = "", without: Sequence[str] = (*WALL_TIME, *ABOUT)
) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if name in without:
            continue
        path = prefix + name
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{path}.", without)
        elif path in LISTS:
            for number, entry in enumerate(item):
                told = " ".join(str(entry[key]) for key in LISTS[path]) or str(number)
                yield from _leaves(entry, f"{path}[{told}].", without)
        else:
            yield path, item
