"""All-gather into a GEMM, whichever way the chunks of A take (T3 section 7.2): those that are there launch the
workgroups that read them.

Each rank's chunk of A lies in its memory, and a doorbell sends it on its way. Workgroups of the GEMM wait for a whole
chunk of A (coarse gates), or for its tile row that they read (fine gates). Where tile rows of A lie in slices of the
depth, a workgroup begins with the first slice of its own, and goes on as the others arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from sim.collectives.program import Array, Kernel, Part, Program, Region, Send, Traffic, check_counts
from sim.golden import gather


def all_gather_gemm(
    name: str,
    gpus: int,
    peers: Callable[[int, int], Iterable[int]],
    order: Callable[[int], Iterable[int]],
    closed_form: Mapping[str, Traffic],
    fine: bool,
    dtype: str,
    slices: int = 1,
) -> Program:
    """The program. `peers`(rank, chunk) get the chunk of A from the rank; `order`(rank): the chunks as the GEMM takes
    them; `closed_form` is that of every rank; `slices` of each tile row of A."""
    check_counts(slices=slices)

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            sends = tuple(Send(peer, "a", chunk) for peer in peers(rank, chunk))
            yield Region("a", chunk, updates=1, sends=sends, launch=True, doorbell=chunk == rank)
        for chunk in range(gpus):
            yield Region("output", chunk)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        gates = {Part("output", chunk): (Part("a", chunk),) for chunk in order(rank)}
        return (Kernel("gemm", tuple(gates), gates=gates, fine=fine, slices=slices),)

    return Program(
        name=name,
        gpus=gpus,
        arrays=(Array("a", gpus, dtype, traffic="ag"), Array("output", gpus, dtype, traffic="gemm")),
        regions=regions,
        kernels=kernels,
        lies=lambda rank: (Part("a", rank),),
        result=lambda rank: tuple(Part("a", chunk) for chunk in range(gpus)),
        golden=gather.all_gather,
        closed_form=lambda rank: closed_form,
    )
