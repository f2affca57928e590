"""A grid of points: every combination of the values that were given for the fields of a point."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from sim.experiment import Point
from sim.usage import UsageError
from sim.workloads import WORKLOADS

FIELDS = tuple(field.name for field in fields(Point))


def grid(varied: Sequence[str]) -> list[Point]:
    """Points of the grid that texts `field=a,b,c` span, in the order given, the last field varying fastest.

    Fields not named keep the defaults of :class:`sim.experiment.Point`; `workload` takes patterns. Bad input raises
    :class:`sim.usage.UsageError`.
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
        axes[name] = workloads(values) if name == "workload" else [_value(name, value) for value in values]
    return points(axes)


def points(axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination of the values of `axes`, without repetitions. `workload` has to be among them."""
    if "workload" not in axes:
        raise UsageError("the grid needs values for workload, patterns of the names `t3rtl list` shows")
    combinations = (dict(zip(axes, values)) for values in itertools.product(*axes.values()))
    return list(dict.fromkeys(Point(**fields) for fields in combinations))


def workloads(patterns: Sequence[str]) -> list[str]:
    """Names of Table 2's sub-layers that match the shell-like `patterns`, and trace files, in the order given."""
    chosen: list[str] = []
    for pattern in patterns:
        named = [work.name for work in WORKLOADS if fnmatchcase(work.name, pattern.lower())]
        if not named and Path(pattern).is_file():
            named = [pattern]
        if not named:
            raise UsageError(f"workload {pattern!r} matches none of those `t3rtl list` shows, and is no trace file")
        chosen += named
    return list(dict.fromkeys(chosen))


def _value(name: str, text: str) -> Any:
    """`text` as a value of field `name`; `none` where the field may be empty."""
    hint = get_type_hints(Point)[name]
    kinds = get_args(hint) or (hint,)
    if NoneType in kinds and text.lower() == "none":
        return None
    kind = next(kind for kind in kinds if kind is not NoneType)
    try:
        return kind(text)
    except ValueError:
        word = {int: "whole numbers", float: "numbers"}[kind]
        raise UsageError(f"field {name} takes {word}; got {text!r}") from None
