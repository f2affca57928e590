"""Ring all-gather both ways at once: of each chunk one half travels up the ring, the other one down.

Chunk 2c of the gathered array is the half of rank c's chunk that goes to the next rank, 2c + 1 the one that goes to the
previous one; each half is the ring all-gather of that direction.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send
from sim.collectives.ring_reduce_scatter_both import WAYS
from sim.golden import gather


@lru_cache
def ring_all_gather_both(gpus: int, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            for half, way in enumerate(WAYS):
                onward, place = (rank + way) % gpus, 2 * chunk + half
                sends = () if chunk == onward else (Send(onward, "gathered", place),)
                yield Region("gathered", place, updates=1, sends=sends)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (Kernel("gemm", tuple(Part("gathered", 2 * rank + half) for half in range(len(WAYS)))),)

    return Program(
        name="ring-all-gather-both",
        gpus=gpus,
        arrays=(Array("gathered", 2 * gpus, dtype, traffic="ag", together=2),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: tuple(Part("gathered", place) for place in range(2 * gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_forms.ring_all_gather_both(gpus),
    )
