"""A broadcast beside a GEMM whose C is reduced lazily (Uncut-GEMMs): C = A B + C without C being fetched first, since
each store adds to what lies in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Traffic
from sim.golden.arithmetic import reduce

NAME = "c"


def beside_lazy_gemm(program: Program) -> Program:
    """`program`, whose results all lie in its first array, and on every rank a GEMM that adds to a C as large."""
    data = program.arrays[0]
    parts = tuple(Part(NAME, chunk) for chunk in range(data.chunks))

    def regions(rank: int) -> Iterator[Region]:
        yield from program.regions(rank)
        yield from (Region(NAME, part.chunk, Access.UPDATE) for part in parts)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        fetched, reduced = [], []
        for rank, given in enumerate(inputs):
            pieces = np.asarray(given).reshape(2 * len(parts) + len(program.lies(rank)), -1)
            product, lay = pieces[: len(parts)], pieces[-len(parts) :]
            fetched.append(pieces[len(parts) : -len(parts)].ravel())
            reduced.append(reduce("add", data.dtype, lay.ravel(), product.ravel()))
        return np.concatenate([program.golden(fetched), np.stack(reduced)], axis=1)

    return replace(
        program,
        arrays=(*program.arrays, Array(NAME, data.chunks, data.dtype, first_touch=False, traffic="gemm")),
        regions=regions,
        kernels=lambda rank: (*program.kernels(rank), Kernel("gemm", parts)),
        lies=lambda rank: (*program.lies(rank), *parts),
        result=lambda rank: (*program.result(rank), *parts),
        golden=golden,
        closed_form=lambda rank: {**program.closed_form(rank), NAME: Traffic(local_updates=data.chunks)},
    )
