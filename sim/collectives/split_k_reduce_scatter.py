"""Ring reduce-scatter of a split-K GEMM (T3 section 7.7): each of S splits of the depth stores an addend of every tile.

The ring is that of ring-reduce-scatter. A chunk that the neighbour's GEMM stores straight into meets S of its addends,
the others one sum that comes by DMA; all meet S of this GPU's.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Send, Via, check_counts
from sim.golden import total


@lru_cache
def split_k_reduce_scatter(
    gpus: int, splits: int = 2, dtype: str = "fp16", op: str = "add", first_touch: bool = True
) -> Program:
    """The program."""
    check_counts(splits=splits)

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            onward = (Send((rank + 1) % gpus, "output", chunk, Access.UPDATE),)
            if chunk == (rank - 1) % gpus:
                yield Region("output", chunk, Access.UPDATE, sends=onward, via=Via.STORE)
                continue
            arriving = splits if chunk == (rank - 2) % gpus else 1
            yield Region(
                "output", chunk, Access.UPDATE, updates=splits + arriving, sends=() if chunk == rank else onward
            )

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (Kernel("gemm", tuple(Part("output", (rank - step) % gpus) for step in range(1, gpus + 1)), splits),)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        addends = np.asarray(inputs).reshape(gpus * splits, -1)
        return total.total(addends, dtype, op, not first_touch).reshape(gpus, -1)

    return Program(
        name="split-k-reduce-scatter",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, op, first_touch),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: (Part("output", rank),),
        golden=golden,
        closed_form=lambda rank: closed_forms.ring_reduce_scatter(gpus, splits),
    )
