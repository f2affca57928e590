"""A grid of full-size specs: every combination of the values that were given for their fields."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.errors import UsageError
from sim.experiments.catalogue import layer, matching, own, trace_file
from sim.experiments.spec import Spec

KINDS: dict[str, type] = {
    "workload": str,
    "variant": str,
    "link_bandwidth": float,
    "compute_units": int,
    "channels": int,
    "mode": str,
    "starvation_limit": int,
    "tracker_ways": int,
    "seed": int,
    "trace": str,
    "shape": tuple,
    "tile_order": str,
    "prefetch": int,
    "reads_under_way": int,
    "workgroups_per_unit": int,
    "communication_units": int,
    "communication_bandwidth": float,
}
"""What can be varied: names of :mod:`sim.experiments.catalogue`, shapes as MxNxKxTP, and fields of a full-size spec."""
FIELDS = tuple(KINDS)


def grid(varied: Sequence[str]) -> list[Spec]:
    """Specs of the grid that texts `field=a,b,c` span, in the order given, the last field varying fastest.

    Fields not named are machine PAPER's; `workload` takes patterns, unless `shape` is varied: then it is a name of
    one's own. Bad input raises :class:`sim.errors.UsageError`.
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
    if "trace" in axes and "shape" not in axes:
        raise UsageError("a trace needs a shape: vary shape too, MxNxKxTP")
    for trace in axes.get("trace", ()):
        trace_file(trace)
    if "workload" in axes and "shape" not in axes:
        axes["workload"] = matching(axes["workload"])
    return specs(axes)


def specs(axes: Mapping[str, Sequence[Any]]) -> list[Spec]:
    """Every combination of the values of `axes`, without repetitions. `workload` has to be among them, or `shape`,
    M, N, K and TP, of which `workload` then is a name."""
    if not {"workload", "shape"} & set(axes):
        raise UsageError("the grid needs values for workload, patterns of the names `t3rtl list` shows, or for shape")
    combinations = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    return list(dict.fromkeys(_spec(**fields) for fields in combinations))


def _spec(workload: str = "", shape: tuple[int, ...] = (), **fields: Any) -> Spec:
    return own(shape[:3], shape[3], name=workload, **fields) if shape else layer(workload, **fields)  # type: ignore[arg-type]


def _value(name: str, text: str) -> Any:
    """`text` as a value of field `name`; a shape is written MxNxKxTP."""
    kind = KINDS[name]
    if kind is tuple:
        if not re.fullmatch(r"\d+(x\d+){3}", text):
            raise UsageError(f"field shape takes MxNxKxTP, four whole numbers; got {text!r}")
        return tuple(map(int, text.split("x")))
    try:
        return kind(text)
    except ValueError:
        word = {int: "whole numbers", float: "numbers"}[kind]
        raise UsageError(f"field {name} takes {word}; got {text!r}") from None
