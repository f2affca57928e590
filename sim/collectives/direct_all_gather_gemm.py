"""All-gather into a GEMM with a link to every GPU (T3 section 7.2): each rank's chunk of A is read once, goes to all
others, and launches the workgroups that read it there.

The GEMM takes the own chunk first, then that of the next rank, and so on, so that ranks are shifted against each other.
All chunks arrive at a time. Where A lies in `slices` of the depth, workgroups of all of them can begin with the first.
"""

from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.all_gather_gemm import all_gather_gemm
from sim.collectives.program import Program


@lru_cache
def direct_all_gather_gemm(gpus: int, fine: bool = False, slices: int = 1, dtype: str = "fp16") -> Program:
    """The program."""

    def peers(rank: int, chunk: int) -> list[int]:
        return [(rank - step) % gpus for step in range(1, gpus)] if chunk == rank else []

    def order(rank: int) -> list[int]:
        return [(rank + step) % gpus for step in range(gpus)]

    closed_form = closed_forms.direct_all_gather_gemm(gpus)
    return all_gather_gemm("direct-all-gather-gemm", gpus, peers, order, closed_form, fine, dtype, slices)
