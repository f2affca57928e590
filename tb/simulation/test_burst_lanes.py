"""Generators of bursts side by side cut what one alone would cut, each channel's bursts in the same order."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.config import INTERLEAVE_SECTORS, preset
from sim.models.burst_lanes import BurstGenerator

CONFIG = preset("gpu")
PERIOD = 1e-9


@dataclass
class Tile:
    """A task of the generator and the kernel that it is of."""

    task: dict[str, int]
    kernel: dict[str, int] = field(default_factory=dict)

    def bursts(self) -> list[tuple[int, int, int]]:
        """First sector, sectors and WF tile of every burst."""
        task, kernel = self.task, self.kernel
        if not task["store"]:
            pieces = [(task["va"], task["count"], 0), (task["second_va"], task["second_count"], 0)]
        else:
            pieces = []
            for row in range(task["rows"]):
                wf, own = divmod(row, kernel["rows"])
                pieces.append((task["va"] + wf * kernel["wf_stride"] + own * kernel["pitch"], task["count"], wf))
        answer = []
        for va, count, wf in pieces:
            while count:
                taken = min(count, INTERLEAVE_SECTORS - va % INTERLEAVE_SECTORS)
                answer.append((va, taken, wf))
                va, count = va + taken, count - taken
        return answer


def read(random_: random.Random) -> Tile:
    second = random_.choice([0, random_.randrange(1, 600)])
    return Tile(
        {
            "store": 0,
            "va": random_.randrange(1 << 20),
            "count": random_.randrange(1, 1500),
            "second_va": random_.randrange(1 << 20),
            "second_count": second,
        }
    )


def store(random_: random.Random) -> Tile:
    rows = random_.randrange(1, 40)
    pitch = random_.choice([8 * random_.randrange(1, 50), random_.randrange(30, 300)])
    count = random_.choice([4, 4, random_.randrange(1, 30)])
    kernel = {"rows": rows, "pitch": pitch, "wf_stride": random_.choice([rows * pitch, 8 * random_.randrange(999)])}
    task = {"store": 1, "va": 4 * random_.randrange(1 << 18), "count": count, "rows": random_.randrange(1, 5 * rows)}
    return Tile(task, kernel)


def cut(
    number: int, of: int, tiles: list[Tile], random_: random.Random, stalls: bool
) -> tuple[list[list[tuple[int, ...]]], int]:
    """What generator `number` of so many makes of `tiles`, by channel, and how many cycles it takes."""
    generator = BurstGenerator(CONFIG, number, of)
    found: list[list[tuple[int, ...]]] = [[] for _ in range(CONFIG.channels)]
    cycles = 0

    async def bench(context: Any) -> None:
        nonlocal cycles
        for tile in tiles:
            for name, value in tile.kernel.items():
                context.set(generator.kernels[0][name], value)
            for name, value in tile.task.items():
                context.set(generator.tasks.payload[name], value)
            context.set(generator.tasks.valid, 1)
            await context.tick()
            context.set(generator.tasks.valid, 0)
            over = False
            while not over:
                for place, port in enumerate(generator.bursts):
                    context.set(port.ready, not stalls or random_.random() < 0.7)
                    if context.get(port.valid & port.ready):
                        burst = port.payload
                        made = tuple(context.get(value) for value in (burst.va, burst.left + 1, burst.wf))
                        found[place * of + number].append(made)
                over = bool(context.get(generator.tasks.ready))
                await context.tick()
                cycles += 1

    simulator = Simulator(generator)
    simulator.add_clock(PERIOD)
    simulator.add_testbench(bench)
    simulator.run()
    return found, cycles


@pytest.mark.parametrize("of", [1, 2, 8])
def test_generators_share_what_there_is(of: int, seed: int = 1) -> None:
    print(f"seed {seed}")
    random_ = random.Random(seed)
    tiles = [random_.choice([read, store])(random_) for _ in range(12)]
    expected: list[list[tuple[int, ...]]] = [[] for _ in range(CONFIG.channels)]
    for tile in tiles:
        for va, count, wf in tile.bursts():
            expected[va // INTERLEAVE_SECTORS % CONFIG.channels].append((va, count, wf % 16))
    found: list[list[tuple[int, ...]]] = [[] for _ in range(CONFIG.channels)]
    for number in range(of):
        for channel, own in enumerate(cut(number, of, tiles, random_, number % 2 == 0)[0]):
            found[channel] += own
    assert found == expected


def test_a_tile_of_the_whole_gpu_is_cut_by_eight_as_fast_as_its_channels_take_it() -> None:
    """256 rows of four sectors, an odd number of interleave units apart: 32 bursts for each of eight generators, and at
    most a cycle more for each of the eight WF tiles."""
    kernel = {"rows": 32, "pitch": 17 * INTERLEAVE_SECTORS, "wf_stride": 32 * 17 * INTERLEAVE_SECTORS}
    tile = Tile({"store": 1, "va": 36, "count": 4, "rows": 256}, kernel)
    for number in range(8):
        cycles = cut(number, 8, [tile], random.Random(1), False)[1]
        assert cycles <= 32 + 8
