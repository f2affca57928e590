"""How well a GEMM hides its memory's latency, and what that makes of the paper's order of policies.

The paper has T3 (round robin) at a geomean of 1.20, T3-MCA at 1.30 and ideal overlap at 1.35; here round robin comes
as near to the ideal as MCA. Tolerance is a parameter: steps that a workgroup reads ahead, reads that it has under way,
and workgroups that share a compute unit.
"""

from dataclasses import asdict, dataclass
from itertools import product

from sim.experiments.spec import Spec
from sim.report import metrics
from sim.report.t3.record import Outcomes, Part, Record, named, record, result_of

LAYERS = ("t-nlg/fc-2/tp8", "t-nlg/op/tp8")
"""GEMM longer than reduce-scatter, and shorter."""
VARIANTS = ("sequential", "t3", "t3-mca", "t3-paced")
PUBLISHED = {"t3": 1.20, "t3-mca": 1.30, metrics.IDEAL: 1.35}
"""Geomeans over the sixteen sub-layers of TP 8 and 16, paper section 6.1."""


@dataclass(frozen=True)
class Reading:
    """How a GEMM's workgroups read, in which order, and how many work: fields of a spec of full-size kernels."""

    prefetch: int = 1
    reads_under_way: int = 0
    workgroups_per_unit: int = 1
    tile_order: str = "tuned"
    compute_units: int = 80

    @property
    def name(self) -> str:
        """What is not machine PAPER's."""
        usual = asdict(Reading())
        changed = [
            f"{field.replace('_', '-')}-{value}" for field, value in asdict(self).items() if value != usual[field]
        ]
        return "-".join(changed) or "as-elsewhere"


READINGS = (
    Reading(),
    Reading(prefetch=2),
    Reading(reads_under_way=8),
    Reading(prefetch=0),
    Reading(tile_order="rows"),
    Reading(prefetch=0, tile_order="rows"),
    Reading(prefetch=0, tile_order="rows", compute_units=112),
)


def point(workload: str, reading: Reading) -> str:
    """What the record of a sub-layer is called."""
    return f"t3/tolerance/{reading.name}/{workload}"


def run(workload: str, variant: str, reading: Reading) -> Spec:
    """A sub-layer whose GEMM reads so."""
    return named(workload, variant, f"{point(workload, reading)}/{variant}", **asdict(reading))


def points() -> list[Spec]:
    """All that the question needs."""
    return [run(workload, variant, reading) for reading, workload, variant in product(READINGS, LAYERS, VARIANTS)]


def records(outcomes: Outcomes) -> list[Record]:
    """A record of each way to read on each sub-layer. `ours`: speedups over the Sequential that reads in the same way;
    `gemm_longer`, by how much its GEMM is longer than the paper's machine has it; `gemm_slower_...`, by how much it
    gets slower under each policy. `published`: the paper's geomeans, over sixteen sub-layers."""
    found = []
    for reading, workload in product(READINGS, LAYERS):
        runs = {name: result_of(outcomes, run(workload, name, reading)) for name in VARIANTS}
        there = {name: result for name, result in runs.items() if result is not None}
        if len(there) < len(VARIANTS):
            continue
        turn = there.pop("sequential")
        spans = (turn[f"{phase}_cycles"] for phase in ("gemm", "rs", "ag"))
        ours = {name: turn["cycles"] / result["cycles"] for name, result in there.items()}
        ours[metrics.IDEAL] = metrics.ideal_speedup(*spans)
        ours["gemm_longer"] = turn["gemm_cycles"] / turn["analytic_gemm_cycles"] - 1
        for name, result in there.items():
            ours[f"gemm_slower_{name}"] = result["gemm_cycles"] / turn["gemm_cycles"] - 1
        found.append(record(point(workload, reading), turn["cycles"], ours, PUBLISHED, reading=asdict(reading)))
    return found


PART = Part(points, records)
