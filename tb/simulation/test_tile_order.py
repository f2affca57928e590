"""Tiles are dispatched in the order that reuses input panels most, each once, whatever the order."""

import numpy as np
import pytest

from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.workloads.sublayer import SubLayer
from sim.workloads.table import WORKLOADS
from sim.workloads.tile_order import Dispatch, gemm_fetches, panels, tuned_fetches, tuned_order

LAYERS = [SubLayer(work.m, work.n, work.k, work.tp) for work in WORKLOADS]
SLOTS = 80


def chunks(layer: SubLayer) -> tuple[int, ...]:
    """The order in which rank 0 takes its chunks."""
    return ring_reduce_scatter(layer.gpus).gemm(0).chunks


def blocks_read(layer: SubLayer, order: Dispatch, through_cache: bool = True) -> int:
    fetches = gemm_fetches(layer, chunks(layer), SLOTS, through_cache, order)
    return int(fetches.a.sum() + fetches.b.sum())


def test_columns_are_taken_downwards_and_their_direction_alternates() -> None:
    layer = SubLayer(1024, 384, 64, 4)
    order = Dispatch.down_columns(layer)
    assert order.chunk.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    # A chunk has two rows of three tiles, numbered row by row.
    assert order.tile[:6].tolist() == [0, 3, 1, 4, 2, 5]
    assert order.tile[6:12].tolist() == [2, 5, 1, 4, 0, 3]


@pytest.mark.parametrize("layer", LAYERS[::3], ids=str)
@pytest.mark.parametrize("choose", [Dispatch.along_rows, Dispatch.down_columns])
def test_every_order_takes_every_tile_once_and_chunk_after_chunk(layer: SubLayer, choose) -> None:
    order = choose(layer)
    wg = order.chunk * layer.workgroups + order.tile
    assert sorted(wg.tolist()) == list(range(layer.gpus * layer.workgroups))
    assert (np.diff(order.chunk) >= 0).all()


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_tuned_order_reads_least(layer: SubLayer) -> None:
    chosen = blocks_read(layer, tuned_order(layer, chunks(layer), SLOTS))
    assert chosen == min(blocks_read(layer, choose(layer)) for choose in (Dispatch.along_rows, Dispatch.down_columns))
    # At least every block once; less than five times, which the order along rows alone would not keep to.
    _, row, column = panels(layer, chunks(layer), tuned_order(layer, chunks(layer), SLOTS))
    once = (len(set(row.tolist())) + len(set(column.tolist()))) * layer.steps
    assert once <= chosen < 5 * once
    fetches = tuned_fetches(layer, chunks(layer), SLOTS, True)
    assert chosen == fetches.a.sum() + fetches.b.sum()


def test_rows_are_not_always_best() -> None:
    layer = SubLayer(8192, 4256, 2128, 8)
    assert blocks_read(layer, Dispatch.along_rows(layer)) > 3 * blocks_read(
        layer, tuned_order(layer, chunks(layer), SLOTS)
    )


def test_chunks_of_a_part_of_a_row_are_nearly_square() -> None:
    layer = SubLayer(2048, 12288, 1536, 32)
    assert (layer.tiling.tiles_down, layer.tiling.tiles_across) == (8, 6)
    # Chunks of one row of tiles would read all of B, 96 panels, for each of the 16 rows.
    assert blocks_read(layer, tuned_order(layer, chunks(layer), SLOTS)) < 16 * 96 * layer.steps / 5
