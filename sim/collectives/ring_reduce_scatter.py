"""Ring reduce-scatter: each GPU's kernel stores a whole array, and GPU r ends with the sum of all chunks r.

The sum of chunk c starts on rank c + 1, travels up the ring and ends on rank c; direction -1 mirrors it. On every rank
it meets that rank's own chunk: two updates per element, one local and one arriving. Chunk r - 1, whose sum starts on
rank r, goes straight to the neighbour and never enters this memory (T3 section 4.1, Figs 10-12).
"""

from collections.abc import Iterator
from functools import lru_cache, partial

from sim.collectives import closed_forms
from sim.collectives.program import Access, Array, Kernel, Part, Program, ProgramError, Region, Send, Traffic, Via
from sim.golden import ring


@lru_cache
def ring_reduce_scatter(
    gpus: int, direction: int = 1, dtype: str = "fp16", op: str = "add", first_touch: bool = True
) -> Program:
    """The program. `direction` +1 sends to the next rank, as NCCL does, -1 to the previous one."""
    if direction not in (1, -1):
        raise ProgramError(f"direction must be +1 or -1, got {direction}")

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            onward = (Send((rank + direction) % gpus, "output", chunk, Access.UPDATE),)
            if chunk == rank:
                yield Region("output", chunk, Access.UPDATE, updates=2)
            elif chunk == (rank - direction) % gpus:
                yield Region("output", chunk, Access.UPDATE, sends=onward, via=Via.STORE)
            else:
                yield Region("output", chunk, Access.UPDATE, updates=2, sends=onward)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        order = ((rank - direction * step) % gpus for step in range(1, gpus + 1))
        return (Kernel("gemm", tuple(Part("output", chunk) for chunk in order)),)

    n = gpus
    return Program(
        name="ring-reduce-scatter",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, op, first_touch, traffic="rs"),),
        regions=regions,
        kernels=kernels,
        result=lambda rank: (Part("output", rank),),
        golden=partial(ring.ring_reduce_scatter, dtype=dtype, op=op, direction=direction, zeroing=not first_touch),
        closed_form=lambda rank: closed_forms.ring_reduce_scatter(n),
        closed_forms={
            # The GEMM stores N chunks; a kernel then adds what came to its own chunk N - 1 times, and stores the last.
            "kernels": Traffic(reads=2 * n - 1, local_stores=n + 1, arriving_stores=n - 1, egress=n - 1),
            # A kernel, without the GEMM, whose stores the neighbour's memory adds to its own chunk.
            "near-memory kernel": Traffic(reads=n - 1, arriving_updates=n - 1, egress=n - 1),
        },
    )
