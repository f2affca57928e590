"""Reduce-scatter by an all-to-all and a local sum: what FLUX calls the epilogue "write", and what communication kernels
do on a switch.

Rank r stores chunk c of its GEMM into chunk r of what rank c receives. A second kernel, on `units` compute units of its
own, adds up all that came, tile row by tile row as soon as it is there. `copied`, no GEMM computes what is stored: a
kernel reads it from memory. Not `shifted`, all ranks store to the same owner at once.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Does, Kernel, Part, Program, Region, Send, Via
from sim.golden import gather


@lru_cache
def all_to_all_reduce_scatter(
    gpus: int, copied: bool = False, shifted: bool = True, units: int = 16, dtype: str = "fp16"
) -> Program:
    """The program."""

    def place(rank: int, chunk: int) -> Part:
        return Part("received" if chunk == rank else "output", chunk)

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            if chunk != rank:
                yield Region("output", chunk, sends=(Send(chunk, "received", rank),), via=Via.STORE)
        for chunk in range(gpus):
            yield Region("received", chunk, updates=1, launch=True)
        yield Region("reduced", rank, updates=1)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        order = (((rank if shifted else -1) + step) % gpus for step in range(1, gpus + 1))
        parts = tuple(place(rank, chunk) for chunk in order)
        received = tuple(Part("received", chunk) for chunk in range(gpus))
        reduced = Part("reduced", rank)
        return (
            Kernel("copy", parts, does=Does.COPY, units=units) if copied else Kernel("gemm", parts),
            Kernel("sum", (reduced,), gates={reduced: received}, fine=True, does=Does.ADD, units=units),
        )

    return Program(
        name="all-to-all-reduce-scatter",
        gpus=gpus,
        arrays=tuple(Array(name, gpus, dtype, traffic="rs") for name in ("output", "received", "reduced")),
        regions=regions,
        kernels=kernels,
        result=lambda rank: tuple(Part("received", chunk) for chunk in range(gpus)),
        golden=gather.all_to_all_own_last,
        closed_form=lambda rank: closed_forms.all_to_all_reduce_scatter(gpus),
    )
