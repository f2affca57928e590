"""The last-level cache model leaves the reads that can be counted by hand."""

import numpy as np
import pytest

from sim.workloads.last_level_cache import Fetches, input_fetches

BLOCK = 16


def fetches(rows: int, columns: int, steps: int, slots: int, capacity_blocks: int, tile_blocks: int = 0) -> Fetches:
    """Fetches of a GEMM of `rows` x `columns` tiles, taken row by row, with blocks of 16 bytes."""
    tile = np.arange(rows * columns)
    return input_fetches(
        tile // columns,
        tile % columns,
        np.full(len(tile), BLOCK),
        steps=steps,
        slots=slots,
        a_bytes=BLOCK,
        tile_bytes=tile_blocks * BLOCK,
        capacity=capacity_blocks * BLOCK,
    )


def test_each_block_is_fetched_once_when_all_fit() -> None:
    found = fetches(rows=6, columns=4, steps=3, slots=5, capacity_blocks=1000)
    assert found.a.sum() == 6 * 3
    assert found.b.sum() == 4 * 3


def test_an_operand_that_does_not_fit_is_fetched_by_every_stage() -> None:
    # A stage is a row of 4 tiles and touches 4 + 1 blocks a step, 25 in all; least recently used, none of B survives.
    found = fetches(rows=6, columns=4, steps=5, slots=4, capacity_blocks=20)
    assert found.b.sum() == 6 * 4 * 5
    assert found.a.sum() == 6 * 5


def test_output_tiles_push_inputs_out() -> None:
    assert fetches(6, 4, 5, 4, capacity_blocks=30).b.sum() == 4 * 5
    assert fetches(6, 4, 5, 4, capacity_blocks=30, tile_blocks=8).b.sum() > 4 * 5


@pytest.mark.parametrize("slots", [3, 8, 24])
def test_who_waits_waits_for_one_that_fetches_in_the_same_stage(slots: int) -> None:
    found = fetches(rows=6, columns=4, steps=3, slots=slots, capacity_blocks=9)
    number = np.arange(24)
    for fetch, wait in ((found.a, found.wait_a), (found.b, found.wait_b)):
        for step in range(3):
            others = wait[:, step] != number
            assert fetch[wait[others, step], step].all()
            assert (wait[:, step] // slots == number // slots).all()


def test_sharers_take_turns() -> None:
    found = fetches(rows=1, columns=4, steps=4, slots=4, capacity_blocks=100)
    assert (found.a.sum(axis=1) == 1).all()
