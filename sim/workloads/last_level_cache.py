"""Which input blocks of a tiled GEMM come from memory: a last-level cache with least-recently-used replacement.

A block is the part of one operand panel (the rows or columns of one tile) that one step needs. The workgroups of a
stage, as many as there are slots, go through the steps together, as they do on a GPU where they wait for the same
blocks. Of the workgroups that share a block that is not in the cache, another one fetches it in each step, and the
others wait for it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def _stages(count: int, slots: int, starts: Sequence[int]) -> Iterator[range]:
    """The workgroups of each stage: at most `slots`, and none of two of those that begin at `starts`."""
    for start, end in pairwise([*(starts or [0]), count]):
        for first in range(start, end, slots):
            yield range(first, min(first + slots, end))


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
    stages: Sequence[int] = (),
) -> Fetches:
    """What each workgroup fetches, workgroups in dispatch order.

    `a_panel`, `b_panel`: number of the panels a workgroup multiplies; `b_bytes`: size of a block of its B panel, all A
    blocks have `a_bytes`. With `tile_bytes` the output goes through the cache too and takes that room per workgroup;
    near-memory updates go past it (T3 section 6.2).

    `stages`: first workgroups of stages that may begin apart from each other, since those of each wait for data of
    their own. What they share is then fetched by the first of them in dispatch order, for which all others wait, so
    that no workgroup waits for a later one.
    """
    count = len(a_panel)
    cache = _Cache(capacity)
    fetch = {name: np.zeros((count, steps), bool) for name in "ab"}
    wait = {name: np.repeat(np.arange(count)[:, None], steps, axis=1) for name in "ab"}
    fetcher: dict[tuple[str, int, int], int] = {}
    for stage in _stages(count, slots, stages):
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
        for (name, panel), (sharers, _, missed) in blocks.items():
            missing = np.array(missed, int)
            chosen = np.full(len(missing), sharers[0]) if stages else sharers[missing % len(sharers)]
            fetch[name][chosen, missing] = True
            wait[name][sharers[:, None], missing[None, :]] = chosen[None, :]
            if stages:
                fetcher |= {(name, panel, step): int(sharers[0]) for step in missed}
                wait[name][sharers] = [fetcher[name, panel, step] for step in range(steps)]
        if tile_bytes:
            for workgroup in stage:
                cache.touch(("tile", workgroup), tile_bytes)
    return Fetches(fetch["a"], fetch["b"], wait["a"], wait["b"])
