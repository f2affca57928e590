"""Direct all-gather: each GPU's kernel stores one chunk, which is read once and sent to all other GPUs.

`lying`: the chunk lies in memory, and a doorbell makes the DMA engine read and send it; no kernel runs.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region, Send
from sim.golden import gather


@lru_cache
def direct_all_gather(gpus: int, lying: bool = False, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        everyone = tuple(Send((rank + step) % gpus, "gathered", rank) for step in range(1, gpus))
        for chunk in range(gpus):
            own = chunk == rank
            yield Region("gathered", chunk, updates=1, sends=everyone if own else (), doorbell=own and lying)

    return Program(
        name="direct-all-gather",
        gpus=gpus,
        arrays=(Array("gathered", gpus, dtype, traffic="ag"),),
        regions=regions,
        kernels=lambda rank: () if lying else (Kernel("gemm", (Part("gathered", rank),)),),
        lies=lambda rank: (Part("gathered", rank),) if lying else (),
        result=lambda rank: tuple(Part("gathered", chunk) for chunk in range(gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_forms.direct_all_gather(gpus, lying),
    )
