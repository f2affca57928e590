"""JAX's collective matmul (Pallas) beside this hardware: a ring all-gather of A into a GEMM on H100.

Source of what is published: docs.jax.dev, "Collective matrix multiplication": M = 1024 a shard, K = N = 4096, FP16,
about 43 us alone. Its lower bound adds 6 us for the fences of every round, which this hardware does not need; so times
are compared with D GEMMs alone, which is the harder bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.workloads.machines import machine

MACHINE = "h100"
SHARD, COLUMNS, DEPTH = 1024, 4096, 4096
ALONE_US = 43
FENCE_US = 6
GATES = {"coarse": False, "fine": True}
"""A workgroup waits for a whole shard, as in Pallas, or for its tile row of it."""
WIRING = "ring-one-way"
"""On NVLink's switch a GPU has all its bandwidth for one neighbour."""


@dataclass(frozen=True)
class Published:
    """Microseconds of the kernel, and of NCCL's all-gather followed by cuBLAS."""

    kernel: float
    reference: float


PUBLISHED = {2: Published(102, 147), 4: Published(212, 290), 8: Published(436, 565)}
"""By number of devices."""


def overlapped(gpus: int, gates: str) -> Spec:
    """The all-gather into the GEMM on `gpus` GPUs."""
    return collective(
        "ring-all-gather-gemm",
        gpus,
        wiring=WIRING,
        choices={"fine": GATES[gates]},
        machine=MACHINE,
        shape=(SHARD * gpus, COLUMNS, DEPTH),
        name=f"pallas/d{gpus}/{gates}",
    )


def alone(shards: int = 1) -> Spec:
    """The GEMM of so many shards, all there before it begins, and no communication."""
    return collective(
        "gemm-alone",
        2,
        wiring=WIRING,
        choices={"chunks": shards},
        machine=MACHINE,
        shape=(SHARD * shards, COLUMNS, DEPTH),
        name=f"pallas/alone/{shards}",
    )


def points() -> list[Spec]:
    """All that the section needs."""
    return [
        *(alone(shards) for shards in (1, *PUBLISHED)),
        *(overlapped(gpus, gates) for gpus in PUBLISHED for gates in GATES),
    ]


def records(outcomes: Mapping[Spec, Outcome]) -> list[dict[str, Any]]:
    """A record of each point that has a result: `cycles`, and `ours`: over D GEMMs alone as simulated (`over_alone`),
    over D times the 43 us that are published (`over_published_alone`), and over one GEMM of all shards that were there
    before (`over_ungated`). Beside it `published`, and `real`: NCCL and cuBLAS, one after the other."""

    def cycles(spec: Spec) -> int | None:
        outcome = outcomes.get(spec)
        return outcome.result["cycles"] if outcome and outcome.result else None

    found = []
    for gpus, gates in product(PUBLISHED, GATES):
        spec = overlapped(gpus, gates)
        taken, one, all_there = cycles(spec), cycles(alone()), cycles(alone(gpus))
        if taken is None or one is None:
            continue
        stated, gemms = PUBLISHED[gpus], gpus * ALONE_US
        bound = gemms + FENCE_US * (gpus - 1)
        found.append(
            {
                "point": spec.name,
                "gpus": gpus,
                "gates": gates,
                "cycles": taken,
                "alone_cycles": one,
                "ours": {
                    "over_alone": taken / (gpus * one),
                    "over_published_alone": taken / machine(MACHINE).cycles(gemms),
                    "over_ungated": None if all_there is None else taken / all_there,
                },
                "published": {"over_alone": stated.kernel / gemms, "over_bound": stated.kernel / bound},
                "real": {"over_alone": stated.reference / gemms, "over_bound": stated.reference / bound},
            }
        )
    return found


def line(record: Mapping[str, Any]) -> str:
    """A record as the command says it."""
    return (
        f"{record['point']:<20} {record['ours']['over_alone']:.3f} of its GEMMs alone; published "
        f"{record['published']['over_alone']:.3f}"
    )
