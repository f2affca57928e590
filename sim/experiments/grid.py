"""A grid of points: every combination of the values that were given for the fields of a point."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from sim.errors import UsageError
from sim.experiments.experiment import Point
from sim.workloads.recorded_trace import H200_TRACES, shipped_traces
from sim.workloads.table import WORKLOADS

FIELDS = tuple(field.name for field in fields(Point))


def grid(varied: Sequence[str]) -> list[Point]:
    """Points of the grid that texts `field=a,b,c` span, in the order given, the last field varying fastest.

    Fields not named keep the defaults of :class:`sim.experiments.experiment.Point`; `workload` takes patterns, unless
    `trace` is varied: then it is a name of one's own. Bad input raises :class:`sim.errors.UsageError`.
    """
    axes: dict[str, list[Any]] = {}
    for text in varied:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"vary takes FIELD=VALUE,VALUE,...; got {text!r}")
        if name not in FIELDS:
            raise UsageError(f"a point has no field {name!r}; its fields are {', '.join(FIELDS)}")
        if name in axes:
            raise UsageError(f"field {name} is varied twice")
        values = [value.strip() for value in listed.split(",")]
        if not all(values):
            raise UsageError(f"field {name} needs values, separated by commas; got {text!r}")
        axes[name] = [_value(name, value) for value in values]
    if "workload" in axes and "trace" not in axes:
        axes["workload"] = _workloads(axes["workload"])
    for trace in axes.get("trace", ()):
        trace_file(trace)
    return points(axes)


def points(axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination of the values of `axes`, without repetitions. `workload` has to be among them; of one that
    :func:`recorded` knows, trace and shape are filled in."""
    if "workload" not in axes:
        raise UsageError("the grid needs values for workload, patterns of the names `t3rtl list` shows")
    traces = recorded()
    combinations = (dict(zip(axes, values)) for values in itertools.product(*axes.values()))
    return list(dict.fromkeys(Point(**(traces.get(fields["workload"], {}) | fields)) for fields in combinations))


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """The GEMMs recorded on an H200 that come with the project: name -> fields `trace` and `shape` of a point."""
    return {f"h200/{key}": {"trace": f"{H200_TRACES}:{key}", "shape": shape} for key, shape in shipped_traces().items()}


def trace_file(trace: str) -> tuple[Path, str]:
    """File, and key in it, of the trace FILE.npz:KEY or FILE.npz. Raises :class:`UsageError` without such a file."""
    path, _, key = trace.partition(".npz:")
    file = Path(f"{path}.npz" if key else path)
    if not file.is_file():
        raise UsageError(f"trace {file} does not exist or is not a file")
    return file, key


def _workloads(patterns: Sequence[str]) -> list[str]:
    """Names of Table 2's sub-layers and of recorded GEMMs that match the shell-like `patterns`, in the order given."""
    chosen: list[str] = []
    for pattern in patterns:
        names = (*(work.name for work in WORKLOADS), *recorded())
        matching = [name for name in names if fnmatchcase(name, pattern.lower())]
        if not matching:
            raise UsageError(
                f"workload {pattern!r} matches none of those `t3rtl list` shows, nor a recorded one (h200/*)"
            )
        chosen += matching
    return list(dict.fromkeys(chosen))


def _value(name: str, text: str) -> Any:
    """`text` as a value of field `name`; a shape is written MxNxKxTP."""
    if name == "shape":
        if not re.fullmatch(r"\d+(x\d+){3}", text):
            raise UsageError(f"field shape takes MxNxKxTP, four whole numbers; got {text!r}")
        return tuple(map(int, text.split("x")))
    kind = get_type_hints(Point)[name]
    try:
        return kind(text)
    except ValueError:
        word = {int: "whole numbers", float: "numbers"}[kind]
        raise UsageError(f"field {name} takes {word}; got {text!r}") from None


def label(point: Any) -> str:
    """Short name of a point for people: its workload, its configuration, and whatever is not the default."""
    changed = [
        f"{field.name}={getattr(point, field.name)}"
        for field in fields(point)
        if field.name not in ("workload", "configuration") and getattr(point, field.name) != field.default
    ]
    return " ".join([point.workload, point.configuration, *changed])
