"""All-to-all of data that lies in memory: doorbells make the DMA engine read and send it, and no kernel runs.

Rank r sends chunk c of its output into chunk r of what rank c receives; its own chunk stays where it is. Doorbells are
rung for the next rank first, so that no two send to the same rank at once.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Part, Program, Region, Send
from sim.golden import gather


@lru_cache
def all_to_all_dma(gpus: int, dtype: str = "fp16") -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        for chunk in ((rank + step) % gpus for step in range(1, gpus)):
            yield Region("output", chunk, updates=1, sends=(Send(chunk, "received", rank),), doorbell=True)
        for chunk in range(gpus):
            if chunk != rank:
                yield Region("received", chunk, updates=1)

    return Program(
        name="all-to-all-dma",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, traffic="ag"), Array("received", gpus, dtype, traffic="ag")),
        regions=regions,
        kernels=lambda rank: (),
        lies=lambda rank: tuple(Part("output", chunk) for chunk in range(gpus)),
        result=lambda rank: tuple(Part("output" if chunk == rank else "received", chunk) for chunk in range(gpus)),
        golden=gather.all_to_all,
        closed_form=lambda rank: closed_forms.all_to_all_dma(gpus),
    )
