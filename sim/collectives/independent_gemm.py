"""Any collective beside a GEMM that has nothing to do with it (ConCCL): one more kernel, on slots of its own, which
stores an array that nobody sends."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sim.collectives.program import Array, Kernel, Part, Program, Region, Traffic

NAME = "independent"


@lru_cache
def beside_independent_gemm(program: Program) -> Program:
    """`program` and, on every rank, a GEMM with an output of as many chunks as there are GPUs."""
    chunks = range(program.gpus)

    def regions(rank: int) -> Iterator[Region]:
        yield from program.regions(rank)
        yield from (Region(NAME, chunk) for chunk in chunks)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (*program.kernels(rank), Kernel(NAME, tuple(Part(NAME, chunk) for chunk in chunks)))

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        kept = []
        for rank, given in enumerate(inputs):
            # Its data stands between what the other kernels store and what lies in memory, in chunks as large as those.
            lying = len(program.lies(rank))
            stored = sum(len(kernel.parts) * kernel.splits for kernel in program.kernels(rank) if not kernel.gates)
            pieces = np.asarray(given).reshape(stored + program.gpus + lying, -1)
            kept.append(np.concatenate([pieces[:stored], pieces[stored + program.gpus :]]).ravel())
        return program.golden(kept)

    return replace(
        program,
        name=f"{program.name} beside a GEMM",
        arrays=(*program.arrays, Array(NAME, program.gpus, program.arrays[0].dtype, traffic="gemm")),
        regions=regions,
        kernels=kernels,
        golden=golden,
        closed_form=lambda rank: {**program.closed_form(rank), NAME: Traffic(local_stores=program.gpus)},
    )
