"""All-gather into a GEMM on a ring (T3 section 7.2): the chunks of A that arrive launch the workgroups that read them.

Each rank's chunk of A lies in its memory, and a doorbell starts its way up the ring. The GEMM takes the chunks of its
output in the order in which those of A arrive, beginning with the own; its workgroups wait for a whole chunk of A
(coarse gates), or for its tile row that they read (fine gates).
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send
from sim.golden import gather


@lru_cache
def ring_all_gather_gemm(gpus: int, fine: bool = False, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        up = (rank + 1) % gpus
        for chunk in range(gpus):
            sends = () if chunk == up else (Send(up, "a", chunk),)
            yield Region("a", chunk, updates=1, sends=sends, launch=True, doorbell=chunk == rank)
        for chunk in range(gpus):
            yield Region("output", chunk)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        order = [(rank - step) % gpus for step in range(gpus)]
        gates = {Part("output", chunk): (Part("a", chunk),) for chunk in order}
        return (Kernel("gemm", tuple(gates), gates=gates, fine=fine),)

    return Program(
        name="ring-all-gather-gemm",
        gpus=gpus,
        arrays=(Array("a", gpus, dtype, traffic="ag"), Array("output", gpus, dtype, traffic="gemm")),
        regions=regions,
        kernels=kernels,
        lies=lambda rank: (Part("a", rank),),
        result=lambda rank: tuple(Part("a", chunk) for chunk in range(gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_forms.ring_all_gather_gemm(gpus),
    )
