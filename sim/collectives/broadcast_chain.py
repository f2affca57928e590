"""Broadcast along a chain: what lies in the memory of the root goes from rank to rank, each piece as soon as it came.

With P pieces the last of k destinations has everything after 1 + (k - 1) / P times what one transfer takes. With
`gemm` every rank computes beside it, as Uncut-GEMMs do with the tiles they have (:mod:`sim.collectives.lazy_gemm`).
"""

from functools import lru_cache

from sim.collectives.broadcast import broadcast
from sim.collectives.lazy_gemm import beside_lazy_gemm
from sim.collectives.program import Program


@lru_cache
def broadcast_chain(gpus: int, pieces: int = 1, root: int = 0, dtype: str = "fp16", gemm: bool = False) -> Program:
    """The program."""

    def children(rank: int) -> list[int]:
        following = (rank + 1) % gpus
        return [] if following == root else [following]

    chain = broadcast("broadcast-chain", gpus, children, pieces, root, dtype)
    return beside_lazy_gemm(chain) if gemm else chain
