"""All-gather into a GEMM with a link to every GPU (T3 section 7.2): each rank's chunk of A is read once, goes to all
others, and launches the workgroups that read it there.

The GEMM takes the own chunk first, then that of the next rank, and so on, so that ranks are shifted against each other;
its workgroups wait for a whole chunk of A (coarse gates), or for its tile row that they read (fine gates).
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send
from sim.golden import gather


@lru_cache
def direct_all_gather_gemm(gpus: int, fine: bool = False, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        everyone = tuple(Send((rank - step) % gpus, "a", rank) for step in range(1, gpus))
        for chunk in range(gpus):
            own = chunk == rank
            yield Region("a", chunk, updates=1, sends=everyone if own else (), launch=True, doorbell=own)
        for chunk in range(gpus):
            yield Region("output", chunk)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        order = [(rank + step) % gpus for step in range(gpus)]
        gates = {Part("output", chunk): (Part("a", chunk),) for chunk in order}
        return (Kernel("gemm", tuple(gates), gates=gates, fine=fine),)

    return Program(
        name="direct-all-gather-gemm",
        gpus=gpus,
        arrays=(Array("a", gpus, dtype, traffic="ag"), Array("output", gpus, dtype, traffic="gemm")),
        regions=regions,
        kernels=kernels,
        lies=lambda rank: (Part("a", rank),),
        result=lambda rank: tuple(Part("a", chunk) for chunk in range(gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_forms.direct_all_gather_gemm(gpus),
    )
