"""Broadcast along a chain: what lies in the memory of the root goes from rank to rank, each piece as soon as it came.

With P pieces the last of k destinations has everything after 1 + (k - 1) / P times what one transfer takes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Array, Part, Program, ProgramError, Region, Send, Traffic


@lru_cache
def broadcast_chain(gpus: int, pieces: int = 1, root: int = 0, dtype: str = "fp16") -> Program:
    """The program."""
    if pieces < 1 or not 0 <= root < gpus:
        raise ProgramError(f"pieces must be at least 1 and the root a rank, got {pieces} and {root} of {gpus}")

    def last(rank: int) -> bool:
        return (rank + 1) % gpus == root

    def regions(rank: int) -> Iterator[Region]:
        for piece in range(pieces):
            sends = () if last(rank) else (Send((rank + 1) % gpus, "data", piece),)
            yield Region("data", piece, updates=1, sends=sends, doorbell=rank == root)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.tile(inputs[root], (gpus, 1))

    def closed_form(rank: int) -> dict[str, Traffic]:
        return closed_forms.broadcast(0 if last(rank) else 1, rank == root, pieces)

    everything = tuple(Part("data", piece) for piece in range(pieces))
    return Program(
        name="broadcast-chain",
        gpus=gpus,
        arrays=(Array("data", pieces, dtype, traffic="ag"),),
        regions=regions,
        kernels=lambda rank: (),
        lies=lambda rank: everything if rank == root else (),
        result=lambda rank: everything,
        golden=golden,
        closed_form=closed_form,
    )
