"""Data of compute model `program`: what lies in the ranks' memories, and what their kernels store."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.collectives.check import check_alike
from sim.collectives.cut import Cut
from sim.collectives.inputs import Given, addends, given
from sim.collectives.program import Does, Part, Program
from sim.experiments.spec import Spec
from sim.golden.arithmetic import pattern_type, to_float64
from sim.golden.matmul import partial_products, patterns_of
from sim.host.tiling import Tiling


def random_inputs(
    spec: Spec, program: Program, rank: int, tilings: Mapping[str, Tiling], rng: np.random.Generator
) -> Any:
    """Inputs of a rank: products of random matrices for what kernels store, random numbers for what lies in memory."""
    pieces = []
    for kernel in program.kernels(rank):
        if not kernel.gates:
            depth = max(spec.multiplied[2] // kernel.splits, 1)
            for _ in range(kernel.splits):
                for part in sorted(kernel.parts):
                    tiling = tilings[part.array]
                    product = partial_products(1, tiling.rows, tiling.columns, depth, spec.dtype, rng)
                    pieces.append(product.ravel())
    for part in program.lies(rank):
        tiling = tilings[part.array]
        shape = tiling.rows * tiling.columns
        values = rng.integers(-128, 128, shape) if spec.dtype == "int32" else rng.standard_normal(shape)
        pieces.append(patterns_of(spec.dtype, values))
    return np.concatenate(pieces) if pieces else np.zeros(0, pattern_type(spec.dtype))


def alike_inputs(spec: Spec, program: Program, cuts: Mapping[str, Cut], first: np.ndarray) -> list[np.ndarray]:
    """Inputs by rank, of which `first` are those of rank 0: all the same, in chunks as much further on as the rank."""
    check_alike(program)
    pieces = given(program, 0, first, cuts)
    answer = []
    for rank in range(program.gpus):

        def held(part: Part, back: int = rank) -> Part:
            return Part(part.array, program.array(part.array).further(part.chunk, -back))

        stored = [
            pieces.stores[number, held(part), split].ravel()
            for number, kernel in enumerate(program.kernels(rank))
            if not kernel.gates
            for split in range(kernel.splits)
            for part in sorted(kernel.parts)
        ]
        lies = [pieces.lies[held(part)].ravel() for part in program.lies(rank)]
        answer.append(np.concatenate([*stored, *lies]) if stored or lies else first)
    return answer


def gated_outputs(
    spec: Spec,
    program: Program,
    rank: int,
    data: tuple[Sequence[np.ndarray], Sequence[Given], Mapping[str, Cut]],
    rng: np.random.Generator,
) -> dict[tuple[int, Part], np.ndarray]:
    """What kernels with gates store: the sum of the chunks that a part waits for, or the product of these, as their
    owners have them, and of the columns that it waits for, or else a matrix of the rank's own. `data`: inputs by rank,
    the same by chunk, and how they are cut."""
    found = {}
    for number, kernel in enumerate(program.kernels(rank)):
        if not kernel.gates:
            continue
        weights = rng.integers(-8, 8, (spec.shape[2], spec.shape[1])).astype(np.float64)
        for part in kernel.parts:
            chunks = _numbers(spec, awaited(program, rank, kernel.gates[part], *data))
            if kernel.slices > 1:
                chunks = [_rows_of(chunk, kernel.slices, data[2][part.array].tile_rows) for chunk in chunks]
            if kernel.column_gates:
                (columns,) = _numbers(spec, awaited(program, rank, kernel.column_gates[part], *data))
                weights = columns.T
            summed = kernel.does is Does.ADD
            made = np.sum(chunks, axis=0) if summed else np.concatenate(chunks) @ weights
            found[number, part] = patterns_of(spec.dtype, made)
    return found


def _rows_of(chunk: np.ndarray, slices: int, tile_rows: int) -> np.ndarray:
    """The rows of a chunk whose tile rows lie in slices of the columns, one below the other."""
    bands = np.split(chunk, len(chunk) // (slices * tile_rows))
    return np.vstack([np.hstack(np.split(band, slices)) for band in bands])


def _numbers(spec: Spec, chunks: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Bit patterns as what they stand for."""
    return [
        chunk.view(np.int32).astype(np.float64) if spec.dtype == "int32" else to_float64(spec.dtype, chunk)
        for chunk in chunks
    ]


def awaited(
    program: Program,
    rank: int,
    parts: Sequence[Part],
    inputs: Sequence[np.ndarray],
    pieces: Sequence[Given],
    cuts: Mapping[str, Cut],
) -> list[np.ndarray]:
    """What `parts` hold on `rank` when they are complete: what lies in an owner's memory, or what is stored there."""
    everywhere = {part: piece for of_rank in pieces for part, piece in of_rank.lies.items()}
    return [
        everywhere[part] if part in everywhere else addends(program, inputs, (), rank, part, cuts)[0] for part in parts
    ]
