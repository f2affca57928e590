"""All-to-all by the stores of a GEMM (T3 section 7.1): what belongs to another GPU goes there as it is computed.

Rank r stores chunk c of its output into chunk r of what rank c receives; its own chunk stays where it is. `copied`, no
GEMM computes it: a communication kernel on `units` compute units reads it from memory, as libraries do; `alike`: it
reads one chunk for all, as for an all-gather, of which this is then the traffic.
"""

from collections.abc import Iterator
from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Does, Kernel, Part, Program, ProgramError, Region, Send, Via
from sim.golden import gather


@lru_cache
def all_to_all(gpus: int, copied: bool = False, units: int = 0, alike: bool = False, dtype: str = "fp16") -> Program:
    """The program."""
    if alike and not copied:
        raise ProgramError("alike is what a kernel copies, and all-to-all has one that does with copied only")
    if units and not copied:
        raise ProgramError("units is of a kernel that copies, and all-to-all has one with copied only")

    def regions(rank: int) -> Iterator[Region]:
        for chunk in range(gpus):
            if chunk == rank:
                yield Region("output", chunk, updates=1)
            else:
                yield Region("output", chunk, sends=(Send(chunk, "received", rank),), via=Via.STORE)
        for chunk in range(gpus):
            if chunk != rank:
                yield Region("received", chunk, updates=1)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        parts = tuple(Part("output", (rank + step) % gpus) for step in range(1, gpus + 1))
        copies = Kernel("copy", parts, does=Does.COPY, units=units, alike=alike)
        return (copies if copied else Kernel("gemm", parts),)

    return Program(
        name="all-to-all",
        gpus=gpus,
        arrays=(Array("output", gpus, dtype, traffic="ag"), Array("received", gpus, dtype, traffic="ag")),
        regions=regions,
        kernels=kernels,
        result=lambda rank: tuple(Part("output" if chunk == rank else "received", chunk) for chunk in range(gpus)),
        golden=gather.all_to_all,
        closed_form=lambda rank: closed_forms.all_to_all(gpus),
    )
