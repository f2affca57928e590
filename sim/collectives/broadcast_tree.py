"""Broadcast along a binary tree: each rank reads once what came to it, and sends it to two others.

The rank d after the root sends to those 2d + 1 and 2d + 2 after it, as far as there are any.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Array, Part, Program, ProgramError, Region, Send, Traffic


@lru_cache
def broadcast_tree(gpus: int, pieces: int = 1, root: int = 0, dtype: str = "fp16") -> Program:
    """The program."""
    if pieces < 1 or not 0 <= root < gpus:
        raise ProgramError(f"pieces must be at least 1 and the root a rank, got {pieces} and {root} of {gpus}")

    def children(rank: int) -> list[int]:
        first = 2 * ((rank - root) % gpus) + 1
        return [(root + child) % gpus for child in (first, first + 1) if child < gpus]

    def regions(rank: int) -> Iterator[Region]:
        for piece in range(pieces):
            sends = tuple(Send(child, "data", piece) for child in children(rank))
            yield Region("data", piece, updates=1, sends=sends, doorbell=rank == root)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.tile(inputs[root], (gpus, 1))

    def closed_form(rank: int) -> dict[str, Traffic]:
        return closed_forms.broadcast(len(children(rank)), rank == root, pieces)

    everything = tuple(Part("data", piece) for piece in range(pieces))
    return Program(
        name="broadcast-tree",
        gpus=gpus,
        arrays=(Array("data", pieces, dtype, traffic="ag"),),
        regions=regions,
        kernels=lambda rank: (),
        lies=lambda rank: everything if rank == root else (),
        result=lambda rank: everything,
        golden=golden,
        closed_form=closed_form,
    )
