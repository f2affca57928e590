"""Direct all-reduce: every store goes to the owner of its chunk, whose sum is read once and sent to all others.

A residual is added to the own chunk by a kernel, before it is gathered (T3 section 7.6). `copied`, no GEMM computes
what is stored: a kernel on `units` compute units reads it from memory.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Does, Kernel, Part, Program, ProgramError, Region, Send, Via
from sim.golden import reduced


@lru_cache
def direct_all_reduce(
    gpus: int,
    residual: bool = False,
    copied: bool = False,
    units: int = 0,
    dtype: str = "fp16",
    op: str = "add",
    first_touch: bool = True,
) -> Program:
    """The program."""
    if units and not copied:
        raise ProgramError("units is of a kernel that copies, and direct-all-reduce has one with copied only")

    def regions(rank: int) -> Iterator[Region]:
        others = [(rank + step) % gpus for step in range(1, gpus)]
        for chunk in range(gpus):
            if chunk == rank:
                everyone = tuple(Send(peer, "gathered", rank) for peer in others)
                yield Region("output", chunk, Access.UPDATE, updates=gpus + residual, sends=everyone)
            else:
                owner = Send(chunk, "output", chunk, Access.UPDATE)
                yield Region("output", chunk, Access.UPDATE, sends=(owner,), via=Via.STORE)
        for chunk in range(gpus):
            if chunk != rank:
                yield Region("gathered", chunk, updates=1)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        parts = tuple(Part("output", (rank + step) % gpus) for step in range(1, gpus + 1))
        stores = Kernel("copy", parts, does=Does.COPY, units=units) if copied else Kernel("gemm", parts)
        return (stores, Kernel("residual", (Part("output", rank),))) if residual else (stores,)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        return reduced.direct_all_reduce(inputs, dtype, op, residual, zeroing=not first_touch)

    return Program(
        name="direct-all-reduce",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, op, first_touch), Array("gathered", gpus, dtype, traffic="ag")),
        regions=regions,
        kernels=kernels,
        result=lambda rank: tuple(Part("output" if chunk == rank else "gathered", chunk) for chunk in range(gpus)),
        golden=golden,
        closed_form=lambda rank: closed_forms.direct_all_reduce(gpus, residual),
    )
