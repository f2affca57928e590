"""Which input blocks of a tiled GEMM come from memory: a last-level cache with least-recently-used replacement.

A block is the part of one operand panel (the rows or columns of one tile) that one step needs. The workgroups of a
stage, as many as there are slots, go through the steps together, as they do on a GPU where they wait for the same
blocks. Of the workgroups that share a block that is not in the cache, another one fetches it in each step, and the
others wait for it.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

LLC_BYTES = 16 << 20
"""Machine PAPER (T3 Table 1)."""


@dataclass(frozen=True)
class Fetches:
    """For every workgroup (in dispatch order) and step: `a`, `b`: it fetches this operand's block; `wait_a`, `wait_b`:
    the workgroup that fetches it, itself when nobody does. All of shape (workgroups, steps)."""

    a: np.ndarray
    b: np.ndarray
    wait_a: np.ndarray
    wait_b: np.ndarray


class _Cache:
    def __init__(self, capacity: int):
        self._capacity = capacity
        self._used = 0
        self._blocks: OrderedDict[object, int] = OrderedDict()

    def touch(self, block: object, size: int) -> bool:
        """Use `block`, of `size` bytes; whether it was there."""
        if block in self._blocks:
            self._blocks.move_to_end(block)
            return True
        self._blocks[block] = size
        self._used += size
        while self._used > self._capacity:
            self._used -= self._blocks.popitem(last=False)[1]
        return False


def input_fetches(
    a_panel: np.ndarray,
    b_panel: np.ndarray,
    b_bytes: np.ndarray,
    *,
    steps: int,
    slots: int,
    a_bytes: int,
    tile_bytes: int = 0,
    capacity: int = LLC_BYTES,
) -> Fetches:
    """What each workgroup fetches, workgroups in dispatch order.

    `a_panel`, `b_panel`: number of the panels a workgroup multiplies; `b_bytes`: size of a block of its B panel, all A
    blocks have `a_bytes`. With `tile_bytes` the output goes through the cache too and takes that room per workgroup;
    near-memory updates go past it (T3 section 6.2).
    """
    count = len(a_panel)
    cache = _Cache(capacity)
    fetch = {name: np.zeros((count, steps), bool) for name in "ab"}
    wait = {name: np.repeat(np.arange(count)[:, None], steps, axis=1) for name in "ab"}
    for first in range(0, count, slots):
        stage = range(first, min(first + slots, count))
        blocks: dict[tuple[str, int], tuple[np.ndarray, int, list[int]]] = {}
        for name, panels in (("a", a_panel), ("b", b_panel)):
            here = panels[stage.start : stage.stop]
            for panel in dict.fromkeys(here.tolist()):
                sharers = stage.start + np.flatnonzero(here == panel)
                blocks[name, panel] = sharers, a_bytes if name == "a" else int(b_bytes[sharers[0]]), []
        for step in range(steps):
            for (name, panel), (_, size, missed) in blocks.items():
                if not cache.touch((name, panel, step), size):
                    missed.append(step)
        for (name, _), (sharers, _, missed) in blocks.items():
            missing = np.array(missed, int)
            chosen = sharers[missing % len(sharers)]
            fetch[name][chosen, missing] = True
            wait[name][sharers[:, None], missing[None, :]] = chosen[None, :]
        if tile_bytes:
            for workgroup in stage:
                cache.touch(("tile", workgroup), tile_bytes)
    return Fetches(fetch["a"], fetch["b"], wait["a"], wait["b"])
