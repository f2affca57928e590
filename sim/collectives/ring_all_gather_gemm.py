"""All-gather into a GEMM on a ring (T3 section 7.2): the chunks of A that arrive launch the workgroups that read them.

Each chunk of A goes up the ring. The GEMM takes the chunks of its output in the order in which those of A arrive,
beginning with the own. Not `shifted`, all ranks take them in the order of their numbers (FLUX, Figure 7).
"""

from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.all_gather_gemm import all_gather_gemm
from sim.collectives.program import Program


@lru_cache
def ring_all_gather_gemm(gpus: int, fine: bool = False, shifted: bool = True, dtype: str = "fp16") -> Program:
    """The program."""

    def peers(rank: int, chunk: int) -> list[int]:
        up = (rank + 1) % gpus
        return [] if chunk == up else [up]

    def order(rank: int) -> list[int]:
        return [(rank - step) % gpus for step in range(gpus)] if shifted else list(range(gpus))

    closed_form = closed_forms.ring_all_gather_gemm(gpus)
    return all_gather_gemm("ring-all-gather-gemm", gpus, peers, order, closed_form, fine, dtype)
