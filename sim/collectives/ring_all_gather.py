"""Ring all-gather: each GPU's kernel stores chunk r of an array, and every GPU ends with all chunks.

Chunk c starts on rank c and travels up the ring to rank c - 1, which keeps it; every rank on its way stores it and
sends it on.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send, Traffic
from sim.golden import gather


@lru_cache
def ring_all_gather(gpus: int, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        onward = (rank + 1) % gpus
        for chunk in range(gpus):
            sends = () if chunk == onward else (Send(onward, "gathered", chunk),)
            yield Region("gathered", chunk, updates=1, sends=sends)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (Kernel("gemm", (Part("gathered", rank),)),)

    n = gpus
    return Program(
        name="ring-all-gather",
        gpus=gpus,
        arrays=(Array("gathered", gpus, dtype, traffic="ag"),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: tuple(Part("gathered", chunk) for chunk in range(gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_forms.ring_all_gather(n),
        closed_forms={
            # A kernel that reads chunks which are in memory already and stores them to the neighbour.
            "kernels": Traffic(reads=n - 1, arriving_stores=n - 1, egress=n - 1),
        },
    )
