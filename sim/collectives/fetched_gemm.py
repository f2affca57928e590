"""C = A B + C with chunks of A fetched from where they lie, and C reduced lazily (Uncut-GEMMs).

Every rank has a chunk of A and all it needs of B. What it lacks of A comes along the routes of
:mod:`sim.collectives.fetch_plan`, each chunk passed on block by block as it arrives, and launches the workgroups that
read it. C lies where it is computed; the GEMM's stores are added to it there, so that nothing of it is ever fetched.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.fetch_plan import plan
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Send

PIECES = 8
"""In which a chunk is thought to travel when routes are planned; more change no route."""


@lru_cache
def fetched_gemm(gpus: int, fine: bool = True, dtype: str = "fp16") -> Program:
    """The program; `fine`: a workgroup waits for its tile row of A, not for a chunk."""
    chunks = range(gpus)
    routes = cache(lambda: plan(tuple(chunks), gpus, PIECES))

    def regions(rank: int) -> Iterator[Region]:
        for chunk in chunks:
            sends = tuple(Send(peer, "a", chunk) for peer in routes().peers(rank, chunk))
            yield Region("a", chunk, updates=1, sends=sends, launch=True, doorbell=chunk == rank)
        yield from (Region("c", chunk, Access.UPDATE) for chunk in chunks)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        gates = {Part("c", chunk): (Part("a", chunk),) for chunk in routes().order(rank)}
        return (Kernel("gemm", tuple(gates), gates=gates, fine=fine),)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Nothing that is moved stays: A is compared as it is read, C when it is computed."""
        return np.zeros((gpus, 0), np.asarray(inputs[0]).dtype)

    return Program(
        name="fetched-gemm",
        gpus=gpus,
        arrays=(
            Array("a", gpus, dtype, traffic="ag"),
            Array("c", gpus, dtype, first_touch=False, traffic="gemm"),
        ),
        regions=regions,
        kernels=kernels,
        lies=lambda rank: (Part("a", rank), *(Part("c", chunk) for chunk in chunks)),
        result=lambda rank: (),
        golden=golden,
        closed_form=lambda rank: closed_forms.fetched_gemm(gpus),
    )
