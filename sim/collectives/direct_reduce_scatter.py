"""Direct reduce-scatter (T3 section 7.1): every store of a GEMM goes to the memory of the GPU that owns its chunk.

Nothing is read again and nothing sent on. N addends meet in the owner's memory, in the order in which they arrive. Each
rank begins with the chunk of the next one, so that no two send to the same owner at once, and ends with its own. Not
`shifted`, all ranks take the chunks in the order of their numbers, and send to the same owner at once (FLUX, Figure 7).
"""

from collections.abc import Iterator
from functools import lru_cache, partial

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Send, Via
from sim.golden import total


@lru_cache
def direct_reduce_scatter(
    gpus: int, shifted: bool = True, dtype: str = "fp16", op: str = "add", first_touch: bool = True
) -> Program:
    """The program."""

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            if chunk == rank:
                yield Region("output", chunk, Access.UPDATE, updates=gpus)
            else:
                owner = Send(chunk, "output", chunk, Access.UPDATE)
                yield Region("output", chunk, Access.UPDATE, sends=(owner,), via=Via.STORE)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        return (
            Kernel(
                "gemm", tuple(Part("output", ((rank if shifted else -1) + step) % gpus) for step in range(1, gpus + 1))
            ),
        )

    return Program(
        name="direct-reduce-scatter",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, op, first_touch),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: (Part("output", rank),),
        golden=partial(total.direct_reduce_scatter, dtype=dtype, op=op, zeroing=not first_touch),
        closed_form=lambda rank: closed_forms.direct_reduce_scatter(gpus),
    )
