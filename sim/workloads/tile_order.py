"""In which order a GEMM's tiles are given to slots, and what the last-level cache then leaves of the reads.

Chunks come in the order in which the collective wants them (T3 section 4.1); a wg names the output tile, so the order
within a chunk is free, and a GEMM library chooses it so that input panels are reused: along the rows of tiles while a
chunk row's B panels stay in the cache; else down the columns, alternating their direction from chunk to chunk, so that
the B panels in use last are the next chunk's first. The choice is the order that reads less on a GPU whose outputs go
through the cache; T3, whose outputs go past it, runs the same kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sim.workloads.last_level_cache import Fetches, input_fetches
from sim.workloads.sublayer import ELEMENT_BYTES, STEP_DEPTH, TILE, SubLayer


@dataclass(frozen=True)
class Dispatch:
    """Order in which tiles of the output are given to slots: `chunk` counts in the order in which the rank takes its
    chunks, `tile` is the number in the chunk, row by row."""

    chunk: np.ndarray
    tile: np.ndarray

    @staticmethod
    def along_rows(layer: SubLayer) -> "Dispatch":
        """Chunk after chunk, tiles row by row."""
        number = np.arange(layer.gpus * layer.workgroups)
        return Dispatch(number // layer.workgroups, number % layer.workgroups)

    @staticmethod
    def down_columns(layer: SubLayer) -> "Dispatch":
        """Chunk after chunk, tiles column by column, from left to right and from right to left in turns."""
        rows = Dispatch.along_rows(layer)
        column, row = np.divmod(rows.tile, layer.tiling.tiles_down)
        across = layer.tiling.tiles_across
        return Dispatch(rows.chunk, row * across + np.where(rows.chunk % 2, across - 1 - column, column))


def panels(layer: SubLayer, chunks: Sequence[int], order: Dispatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chunk, A panel and B panel of each workgroup of a rank that takes its chunks in the order `chunks`."""
    chunk = np.asarray(chunks)[order.chunk]
    across = layer.tiling.tiles_across
    row = chunk // layer.split * layer.tiling.tiles_down + order.tile // across
    column = chunk % layer.split * across + order.tile % across
    return chunk, row, column


def gemm_fetches(layer: SubLayer, chunks: Sequence[int], slots: int, through_cache: bool, order: Dispatch) -> Fetches:
    """What the last-level cache leaves of the reads of a rank that takes its chunks in the order `chunks`."""
    _, row, column = panels(layer, chunks, order)
    right = layer.n % TILE
    last = order.tile % layer.tiling.tiles_across == layer.tiling.tiles_across - 1
    width = np.where(last & (right != 0) & (layer.split == 1), right, TILE)
    return input_fetches(
        row,
        column,
        width * STEP_DEPTH * ELEMENT_BYTES,
        steps=layer.steps,
        slots=slots,
        a_bytes=TILE * STEP_DEPTH * ELEMENT_BYTES,
        tile_bytes=TILE * TILE * ELEMENT_BYTES if through_cache else 0,
    )


@lru_cache(maxsize=4)
def tuned_order(layer: SubLayer, chunks: tuple[int, ...], slots: int) -> Dispatch:
    """The order a GEMM library would choose (see above)."""
    orders = Dispatch.along_rows(layer), Dispatch.down_columns(layer)

    def blocks_read(order: Dispatch) -> int:
        fetches = gemm_fetches(layer, chunks, slots, True, order)
        return int(fetches.a.sum() + fetches.b.sum())

    return min(orders, key=blocks_read)


@lru_cache(maxsize=4)
def tuned_fetches(layer: SubLayer, chunks: tuple[int, ...], slots: int, through_cache: bool) -> Fetches:
    """:func:`gemm_fetches` in the order of :func:`tuned_order`."""
    return gemm_fetches(layer, chunks, slots, through_cache, tuned_order(layer, chunks, slots))
