"""Broadcast along any tree: what lies at the root goes from rank to rank, each piece as soon as it came."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.program import Array, Part, Program, ProgramError, Region, Send, Traffic, check_counts


def broadcast(
    name: str, gpus: int, children: Callable[[int], Sequence[int]], pieces: int, root: int, dtype: str
) -> Program:
    """The program in which a rank reads each of `pieces` once and sends it to its `children`."""
    check_counts(pieces=pieces)
    if not 0 <= root < gpus:
        raise ProgramError(f"root must be a rank from 0 to {gpus - 1}, got {root}")

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
        name=name,
        gpus=gpus,
        arrays=(Array("data", pieces, dtype, traffic="ag"),),
        regions=regions,
        kernels=lambda rank: (),
        lies=lambda rank: everything if rank == root else (),
        result=lambda rank: everything,
        golden=golden,
        closed_form=closed_form,
    )
