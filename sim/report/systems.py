"""The published systems that the report sets beside this hardware: a section each, by its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.report import conccl, flux, pallas, t3, uncut

Record = Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """`points` that the section needs; `records` of those that have a result, each with `point`, `ours`, `published`
    and `real`; `line`: one of them as text; `table`: all of them, the first row the head, where the page has one."""

    points: Callable[[], list[Spec]]
    records: Callable[[Mapping[Spec, Outcome]], list[dict[str, Any]]]
    line: Callable[[Record], str]
    table: Callable[[list[dict[str, Any]]], list[list[str]]] | None = None


SYSTEMS: Mapping[str, System] = {
    "pallas": System(pallas.points, pallas.records, pallas.line),
    "flux": System(flux.points, flux.records, flux.line, flux.table),
    "conccl": System(conccl.points, conccl.records, conccl.line, conccl.table),
    "uncut": System(uncut.points, uncut.records, uncut.line, uncut.table),
    "t3": System(t3.points, t3.records, t3.line, t3.table),
}
