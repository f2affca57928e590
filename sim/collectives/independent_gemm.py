"""Any collective beside a GEMM that has nothing to do with it (ConCCL): one more kernel, which stores an array that
nobody sends, on compute units of its own or on those that the kernels of the collective leave."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sim.collectives.program import Array, Kernel, Part, Program, Region, Sharing, Traffic

NAME = "independent"


@lru_cache
def beside_independent_gemm(program: Program, elements: int = 0, sharing: Sharing = Sharing.OWN) -> Program:
    """`program` and, on every rank, a GEMM with an output of as many chunks as there are GPUs, each of `elements`
    numbers (0: as many as a chunk of the program). `sharing`: on whose compute units the kernels of the program run."""

    def regions(rank: int) -> Iterator[Region]:
        yield from program.regions(rank)
        yield from (Region(NAME, chunk) for chunk in range(program.gpus))

    def kernels(rank: int) -> tuple[Kernel, ...]:
        others = (replace(kernel, sharing=sharing) for kernel in program.kernels(rank))
        chunks = ((rank + step) % program.gpus for step in range(program.gpus))
        return (*others, Kernel(NAME, tuple(Part(NAME, chunk) for chunk in chunks)))

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        kept = []
        for rank, given in enumerate(inputs):
            # Its data stands between what the other kernels store and what lies in memory.
            lying = len(program.lies(rank))
            stored = sum(len(kernel.parts) * kernel.splits for kernel in program.kernels(rank) if not kernel.gates)
            flat = np.asarray(given).ravel()
            own = program.gpus * (elements or flat.size // (stored + program.gpus + lying))
            before = (flat.size - own) // (stored + lying) * stored
            kept.append(np.concatenate([flat[:before], flat[before + own :]]))
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
