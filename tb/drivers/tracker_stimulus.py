"""Ranges of random geometry, and the accesses that complete their tiles in a random order."""

import random
from collections import deque

from hw.config import SECTOR_BYTES, Configuration
from tb.golden.tracker import TiledRange


def random_ranges(config: Configuration, tiles: int, action: str) -> list[TiledRange]:
    """Ranges of random geometry with about `tiles` WF tiles in all, wg and blocks on multiples of the banks.

    They take two sectors or more in the mean, or few would be in work at a time. `action`: complete blocks start the
    DMA (`dma`), an event (`launch`) or, from range to range, either or `both`.
    """
    while True:
        result = _drawn_ranges(config, tiles, action)
        thresholds = [area.threshold(*tile) for area in result for tile in area.tiles()]
        if len(thresholds) >= tiles // 2 and sum(thresholds) >= 2 * SECTOR_BYTES * len(thresholds):
            return result


def _drawn_ranges(config: Configuration, tiles: int, action: str) -> list[TiledRange]:
    """As :func:`random_ranges`; fewer tiles when the places of workgroups or blocks run out."""
    result: list[TiledRange] = []
    indices = random.sample(range(config.ranges), config.ranges)
    # Without tags only the first WGs have places.
    places = (1 << config.wg_bits) // config.tracker_banks - 500 if config.tracker_tags else 4
    wg = config.tracker_banks * random.randrange(places)
    block = config.tracker_banks * random.randrange(config.trigger_blocks // config.tracker_banks // 4)
    total = 0
    while total < tiles and len(result) < config.ranges:
        wfs = random.randint(1, 8)
        block_wfs = random.randint(1, wfs)
        shift = (-(-wfs // block_wfs) - 1).bit_length()
        tile_rows = wfs * random.randint(1, 3)
        columns = random.choice((8, 16, 24, 24, random.randrange(100, 10000)))
        wanted = max(1, (tiles - total) // wfs // random.choice((1, 2)))
        across = random.randint(1, min(wanted, 12))
        down = max(1, wanted // across)
        area = TiledRange(
            index=indices[len(result)],
            first_wg=wg,
            rows=down * tile_rows - random.randrange(tile_rows),
            columns=across * columns - random.randrange(columns),
            tile_rows=tile_rows,
            tile_columns=columns,
            wfs=wfs,
            block_wfs=block_wfs,
            updates=random.choice((1, 2)),
            dma=action == "dma" or (action == "both" and (not result or random.random() < 0.7)),
            launch=action == "launch" or (action == "both" and (not result or random.random() < 0.4)),
            block_base=block,
            block_shift=shift,
        )
        size = -(-area.workgroups // config.tracker_banks) * config.tracker_banks
        if wg + size > 1 << config.wg_bits or block + (size << shift) > config.trigger_blocks:
            break
        result.append(area)
        wg, block, total = wg + size, block + (size << shift), total + len(area.tiles())
    return result


def many_tiles(config: Configuration) -> list[TiledRange]:
    """Two ragged ranges of 6,340 WF tiles together, three times what the paper's Tracker holds; those of the second are
    as large as its counters can count."""
    shape = {"tile_rows": 8, "wfs": 8, "block_wfs": 8, "updates": 1, "block_shift": 0}
    width = 65_000
    low = random.randrange(1 << 14)
    first = TiledRange(
        index=0, first_wg=low, rows=8 * 20, columns=32 * 20 - 14, tile_columns=32, dma=True, launch=False, **shape
    )
    second = TiledRange(
        index=config.ranges - 1,
        first_wg=0xFE00 - low,
        rows=8 * 20 - 3,
        columns=width * 20,
        tile_columns=width,
        dma=True,
        launch=True,
        block_base=400,
        **shape,
    )
    return [first, second]


def accesses(area: TiledRange, va_bits: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each tile the (va, bytes) that fill it up to its threshold; large tiles take merged accesses. Some lie at the
    end of the addresses, where only what stands for no address at all is higher."""
    result = {}
    for wg, wf in area.tiles():
        left = area.threshold(wg, wf)
        end = (1 << va_bits) - 64
        base = end if random.random() < 0.1 else random.randrange(end)
        items = []
        wide = left > 400
        while left:
            size = min(left, random.choice((32, 32, 32, 16, 2, 7)))
            if wide:
                size = random.randrange(-(-left // 2), left + 1)
            items.append((base + random.randrange(64), size))
            left -= size
        result[wg, wf] = items
    return result


def interleave(areas: list[TiledRange], spread: int, va_bits: int) -> list[tuple[int, int, int, int, int]]:
    """All accesses of all tiles, at places in `va_bits`, about `spread` tiles in work at a time, with runs; if `spread`
    is 0, every tile is begun before any is continued."""
    waiting: deque[list[tuple[int, int, int, int, int]]] = deque()
    for area in areas:
        for (wg, wf), items in accesses(area, va_bits).items():
            waiting.append([(area.index, wg, wf, va, size) for va, size in items])
    random.shuffle(waiting)
    if not spread:
        begun = [items.pop() for items in waiting]
        rest = [item for items in waiting for item in items]
        random.shuffle(rest)
        return begun + rest
    result: list[tuple[int, int, int, int, int]] = []
    active: list[list[tuple[int, int, int, int, int]]] = []
    while waiting or active:
        while waiting and len(active) < spread:
            active.append(waiting.popleft())
        chosen = random.choice(active)
        for _ in range(random.randint(1, 3)):
            if chosen:
                result.append(chosen.pop())
        if not chosen:
            active.remove(chosen)
    return result
