"""What the parts of the section share: records, and the figures of runs by the points that they came from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sim.experiments.catalogue import collective, layer
from sim.experiments.outcomes import Outcome
from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.workloads.machines import machine
from sim.workloads.table import WORKLOADS, Workload

PAPER = "paper"
SETTINGS = (("ranges", 64), ("trigger_blocks", 8192))
"""What four pieces of an output on eight GPUs need, so that one build serves all programs on a ring."""
WORK: Mapping[str, Workload] = {work.name: work for work in WORKLOADS}

Record = dict[str, Any]
Outcomes = Mapping[Spec, Outcome]


@dataclass(frozen=True)
class Part:
    """A question of the section: the `points` that it needs, `records` of those that have a result."""

    points: Callable[[], list[Spec]]
    records: Callable[[Outcomes], list[Record]]


def record(
    point: str,
    cycles: int | None,
    ours: Mapping[str, float],
    published: Mapping[str, float] | None = None,
    real: Mapping[str, float] | None = None,
    **others: Any,
) -> Record:
    """A record of the summary: what was simulated, in cycles where one run is meant, beside what the paper and what
    real GPUs say, by the same names."""
    return {
        "point": point,
        **others,
        "cycles": cycles,
        "ours": dict(ours),
        "published": dict(published or {}),
        "real": dict(real or {}),
    }


def result_of(outcomes: Outcomes, spec: Spec) -> Result | None:
    """The result of `spec`, None without one."""
    outcome = outcomes.get(spec)
    return outcome.result if outcome else None


def cycles_of(outcomes: Outcomes, spec: Spec) -> int | None:
    """How long `spec` took, None without a result."""
    result = result_of(outcomes, spec)
    return result["cycles"] if result else None


def named(workload: str, variant: str, name: str, **fields: Any) -> Spec:
    """A sub-layer of Table 2 at full size, as a point of this section."""
    return replace(layer(workload, variant, **fields), name=name)


def program(which: str, workload: str, name: str, *, wiring: str = "ring", **fields: Any) -> Spec:
    """Collective `which` of a sub-layer of Table 2 on machine PAPER: one node that stands for all, with data. A depth
    whose slice is no whole number (T-NLG's OP and IP at TP 16) is the next that is one."""
    work = WORK[workload]
    side = machine(PAPER).side
    shape = (work.m, work.n, -(-work.k // side) * side)
    plain: dict[str, Any] = {"shape": shape, "mode": "mirrored", "tile_order": "columns"}
    policy = fields.pop("policy", "paced")
    fields |= {"machine": PAPER, "settings": SETTINGS, "name": name}
    return collective(which, work.tp, policy, wiring=wiring, **plain | fields)


def wire_cycles(work: Workload, chunks: float) -> float:
    """Cycles in which a link of machine PAPER carries so many chunks of the output of `work`."""
    here = machine(PAPER)
    return here.cycles(work.m * work.n * 2 / work.tp * chunks / here.link_gb_per_s / 1000)
