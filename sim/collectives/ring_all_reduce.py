"""Ring all-reduce: a ring reduce-scatter whose last chunk goes on into a ring all-gather, by DMA as all others do.

Chunk c is reduced on its way from rank c + 1 to rank c, and gathered on its way from there to rank c - 1. With Q pieces
the output is cut into Q arrays of N chunks that are reduced and gathered one after another. A split-K GEMM stores S
addends of each tile (T3 section 7.7). A residual is added to the own chunk by a kernel, before it is gathered (7.6).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Send, Via, check_counts
from sim.golden import reduced


@lru_cache
def ring_all_reduce(
    gpus: int,
    pieces: int = 1,
    splits: int = 1,
    residual: bool = False,
    dtype: str = "fp16",
    op: str = "add",
    first_touch: bool = True,
) -> Program:
    """The program: chunk q * N + c is chunk c of piece q."""
    check_counts(pieces=pieces, splits=splits)

    def regions(rank: int) -> Iterator[Region]:
        up = (rank + 1) % gpus
        for chunk in range(pieces * gpus):
            owner, gather = chunk % gpus, Send(up, "gathered", chunk)
            onward = Send(up, "output", chunk, Access.UPDATE)
            if owner == (rank - 1) % gpus:
                yield Region("output", chunk, Access.UPDATE, sends=(onward,), via=Via.STORE)
                continue
            updates = splits + (splits if owner == (rank - 2) % gpus else 1) + (residual and owner == rank)
            yield Region("output", chunk, Access.UPDATE, updates, sends=(gather if owner == rank else onward,))
        for chunk in range(pieces * gpus):
            if chunk % gpus != rank:
                sends = () if chunk % gpus == up else (Send(up, "gathered", chunk),)
                yield Region("gathered", chunk, updates=1, sends=sends)

    def kernels(rank: int) -> Iterator[Kernel]:
        order = (q * gpus + (rank - step) % gpus for q in range(pieces) for step in range(1, gpus + 1))
        yield Kernel("gemm", tuple(Part("output", chunk) for chunk in order), splits)
        if residual:
            yield Kernel("residual", tuple(Part("output", q * gpus + rank) for q in range(pieces)))

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        return reduced.ring_all_reduce(inputs, dtype, op, pieces, splits, residual, zeroing=not first_touch)

    return Program(
        name="ring-all-reduce",
        gpus=gpus,
        arrays=(
            Array("output", pieces * gpus, dtype, op, first_touch, pieces=pieces),
            Array("gathered", pieces * gpus, dtype, traffic="ag", pieces=pieces),
        ),
        regions=regions,
        kernels=lambda rank: tuple(kernels(rank)),
        result=lambda rank: tuple(
            Part("output" if chunk % gpus == rank else "gathered", chunk) for chunk in range(pieces * gpus)
        ),
        golden=golden,
        closed_form=lambda rank: closed_forms.ring_all_reduce(gpus, pieces, splits, residual),
    )
