"""Broadcast along a binary tree: each rank reads once what came to it, and sends it to two others.

The rank d after the root sends to those 2d + 1 and 2d + 2 after it, as far as there are any.
"""

from functools import lru_cache

from sim.collectives.broadcast import broadcast
from sim.collectives.program import Program


@lru_cache
def broadcast_tree(gpus: int, pieces: int = 1, root: int = 0, dtype: str = "fp16") -> Program:
    """The program."""

    def children(rank: int) -> list[int]:
        first = 2 * ((rank - root) % gpus) + 1
        return [(root + child) % gpus for child in (first, first + 1) if child < gpus]

    return broadcast("broadcast-tree", gpus, children, pieces, root, dtype)
