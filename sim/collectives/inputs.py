"""A rank's inputs, cut into what each kernel stores and what lies in memory; and from them the addends that must meet
in a chunk, whatever their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.collectives.cut import Cut
from sim.collectives.program import Part, Program, ProgramError, Via
from sim.golden.arithmetic import pattern_type

Cuts = Mapping[str, Cut] | None


@dataclass(frozen=True)
class Given:
    """A rank's inputs by chunk, each of shape (rows, columns): `stores` by number of the kernel, part and split;
    `lies` by part."""

    stores: dict[tuple[int, Part, int], np.ndarray]
    lies: dict[Part, np.ndarray]


def given(program: Program, rank: int, inputs: np.ndarray, cuts: Cuts = None) -> Given:
    """The inputs of `rank` as :class:`Program` orders them. Without `cuts` all chunks are equal, and have one row.

    Raises :class:`ProgramError` when they are not as many elements as the chunks have.
    """
    stores = [
        (number, part, split)
        for number, kernel in enumerate(program.kernels(rank))
        if not kernel.gates
        for split in range(kernel.splits)
        for part in sorted(kernel.parts)
    ]
    lies = program.lies(rank)
    pieces = _pieces([part for _, part, _ in stores] + list(lies), np.asarray(inputs).ravel(), cuts)
    return Given(dict(zip(stores, pieces, strict=False)), dict(zip(lies, pieces[len(stores) :], strict=True)))


def _pieces(parts: Sequence[Part], flat: np.ndarray, cuts: Cuts) -> list[np.ndarray]:
    """`flat` as one chunk for each of `parts`."""
    if not parts:
        return []
    columns, rest = divmod(flat.size, len(parts))
    if cuts is None:
        shapes = [(1, columns)] * len(parts)
    else:
        shapes = [(cuts[part.array].rows, cuts[part.array].columns) for part in parts]
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    if ends[-1] != flat.size or (cuts is None and rest):
        raise ProgramError(f"{len(parts)} chunks have {ends[-1]} elements, the inputs {flat.size}")
    return [piece.reshape(shape) for piece, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]


def blank(program: Program) -> list[np.ndarray]:
    """Inputs of zeros, one element for each chunk."""
    kind = pattern_type(program.arrays[0].dtype)
    sizes = (
        sum(len(kernel.parts) * kernel.splits for kernel in program.kernels(rank) if not kernel.gates)
        + len(program.lies(rank))
        for rank in range(program.gpus)
    )
    return [np.zeros(size, kind) for size in sizes]


def addends(
    program: Program,
    inputs: Sequence[np.ndarray],
    memory: Sequence[Mapping[Part, np.ndarray]],
    rank: int,
    part: Part,
    cuts: Cuts = None,
) -> list[np.ndarray]:
    """The data of every access that `part` of `rank` must meet: of its own kernels, of kernels whose stores go there,
    and what other ranks' chunks held when they were complete, which `memory` says by rank."""

    def stored(sender: int, at: Part) -> list[np.ndarray]:
        stores = given(program, sender, inputs[sender], cuts).stores
        return [data for (_, stored_part, _), data in stores.items() if stored_part == at]

    found = stored(rank, part)
    for sender in range(program.gpus):
        for region in program.regions(sender):
            for send in region.sends:
                if (send.peer, send.part) == (rank, part):
                    held = stored(sender, region.part) if region.via is Via.STORE else [memory[sender][region.part]]
                    found += held
    return found
