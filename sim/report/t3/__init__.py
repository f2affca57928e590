"""T3's own open questions beside the paper: all-reduce as one, how a GEMM tolerates latency, whole models.

Source of what is published: Pati et al., "T3: Transparent Tracking & Triggering for Fine-grained Overlap of Compute &
Collectives" (ASPLOS 2024), Figures 4, 6, 16 and 19.
"""

from collections.abc import Mapping
from typing import Any

from sim.experiments.spec import Spec
from sim.report.t3 import all_reduce, contention, decode, end_to_end, tolerance
from sim.report.t3.record import Outcomes, Record

PARTS = (all_reduce.PART, tolerance.PART, end_to_end.PART, contention.PART, decode.PART)


def points() -> list[Spec]:
    """All that the section needs."""
    return [point for part in PARTS for point in part.points()]


def records(outcomes: Outcomes) -> list[Record]:
    """The records of every part; what `ours` of each is, is said there."""
    return [record for part in PARTS for record in part.records(outcomes)]


def line(record: Mapping[str, Any]) -> str:
    """A record as the command says it."""
    said = [_listed(record["ours"])]
    said += [f"{source} {_listed(record[source])}" for source in ("published", "real") if record[source]]
    return f"{record['point']:<44} {'; '.join(said)}"


def table(found: list[Record]) -> list[list[str]]:
    """The records as a table, the first row its head."""
    rows = [["point", "cycles", "ours", "published", "real"]]
    for record in found:
        cycles = "" if record["cycles"] is None else f"{record['cycles']:,}"
        beside = [_listed(record[source]) for source in ("ours", "published", "real")]
        rows.append([record["point"].removeprefix("t3/"), cycles, *beside])
    return rows


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in values.items())
