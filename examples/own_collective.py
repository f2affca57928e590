"""A collective of one's own: every GPU's array goes to the next GPU of the ring, each store as soon as it is made."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.collectives.interpret import interpret
from sim.collectives.known import known_as
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send, Traffic, Via
from sim.experiments.catalogue import collective
from sim.experiments.experiment import run_experiment


def shift(gpus: int) -> Program:
    """Chunk c of the array is what rank c ends with: the kernel of rank c - 1 stores it, and keeps none of it."""

    def regions(rank: int) -> Iterator[Region]:
        after = (rank + 1) % gpus
        yield Region("shifted", rank, updates=1)
        yield Region("shifted", after, sends=(Send(after, "shifted", after),), via=Via.STORE)

    def golden(inputs: Any) -> np.ndarray:
        return np.roll(np.asarray(inputs), 1, axis=0)

    return Program(
        name="shift",
        gpus=gpus,
        arrays=(Array("shifted", gpus, "fp16"),),
        regions=regions,
        kernels=lambda rank: (Kernel("gemm", (Part("shifted", (rank + 1) % gpus),)),),
        result=lambda rank: (Part("shifted", rank),),
        golden=golden,
        closed_form=lambda rank: {"shifted": Traffic(arriving_stores=1, egress=1, triggers=1)},
    )


if __name__ == "__main__":
    program = shift(4)
    inputs = np.arange(4 * 1024, dtype=np.uint16).reshape(4, 1024)
    outcome = interpret(program, inputs, rng=np.random.default_rng(1))
    assert np.array_equal(outcome.result, program.golden(inputs))
    assert all(outcome.moved[rank] == program.closed_form(rank) for rank in range(4))
    with known_as("shift", shift):
        result = run_experiment(collective("shift", gpus=4, shape=(256, 64, 0), tile=(16, 64)))
    assert result["passed"], result["errors"]
    print(f"shift: as its golden says, in any order, and on the RTL in {result['cycles']:,} cycles")
