"""Ring reduce-scatter both ways at once: of each chunk one half travels up the ring, the other one down.

Chunk 2c of the output is the half of chunk c that goes to the next rank, 2c + 1 the one that goes to the previous one;
each half is the ring reduce-scatter of that direction. The GEMM takes the halves in turn, so that both links are busy
from the first chunk on.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Send, Via
from sim.golden import ring

WAYS = (1, -1)


@lru_cache
def ring_reduce_scatter_both(gpus: int, dtype: str = "fp16", op: str = "add", first_touch: bool = True) -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            for half, way in enumerate(WAYS):
                place = 2 * chunk + half
                onward = (Send((rank + way) % gpus, "output", place, Access.UPDATE),)
                if chunk == rank:
                    yield Region("output", place, Access.UPDATE, updates=2)
                elif chunk == (rank - way) % gpus:
                    yield Region("output", place, Access.UPDATE, sends=onward, via=Via.STORE)
                else:
                    yield Region("output", place, Access.UPDATE, updates=2, sends=onward)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        order = (
            2 * ((rank - way * step) % gpus) + half for step in range(1, gpus + 1) for half, way in enumerate(WAYS)
        )
        return (Kernel("gemm", tuple(Part("output", place) for place in order)),)

    def golden(inputs: np.ndarray) -> np.ndarray:
        halves = np.asarray(inputs).reshape(gpus, gpus, 2, -1)
        return np.concatenate(
            [
                ring.ring_reduce_scatter(halves[:, :, half], dtype, op, way, zeroing=not first_touch)
                for half, way in enumerate(WAYS)
            ],
            axis=1,
        )

    return Program(
        name="ring-reduce-scatter-both",
        gpus=gpus,
        arrays=(Array("output", 2 * gpus, dtype, op, first_touch, together=2),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: (Part("output", 2 * rank), Part("output", 2 * rank + 1)),
        golden=golden,
        closed_form=lambda rank: closed_forms.ring_reduce_scatter_both(gpus),
    )
