"""The DMA engine walks tiles of any geometry, at every edge of the output."""

import os
import random
from dataclasses import replace
from itertools import product

import cocotb
import pytest
from hypothesis import strategies

from tb.drivers.dma_bench import DmaBench
from tb.drivers.property import holds_for_all
from tb.golden.packets import Tile
from tb.runner import caught, simulate
from tb.unit.dma.engines import SIZES, ForgetsRaggedRows, design


@cocotb.test()
async def every_size_at_every_edge(dut):
    """Blocks of 1 to 8 WF tiles inside and at the edges of the output, one at a time, with buffers to spare or one."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 3)
    await bench.reset()
    blocks = []
    for size in (1, 2, 5, 8):
        await bench.program(1, Tile(8, size, 2, 1, 8, 7, 64, 32, 64, 256))
        for bottom, right in product((0, 1), repeat=2):
            # Two of each: a block is seen to be over when the next one comes.
            for wf in (0, random.randrange(-(-8 // size)) * size):
                blocks.append((1, random.getrandbits(16), wf, random.getrandbits(32), bottom, right))
                bench.block(*blocks[-1])
                await bench.finish(len(blocks))
                bench.check(blocks[-1:])
                bench.forget()


@cocotb.test()
async def any_sector_may_come_last(dut):
    """A packet waits for each of its sectors; a walk that has to wait for a buffer says so."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 3)
    await bench.reset()
    slots = config.channels * config.dma_packets
    await bench.program(1, Tile(8, 1, 2 * slots, 1, 8, 8, 256, 256, 8, 256))
    for number, late in enumerate(random.sample(range(8 * config.dma_packets), 64), start=1):
        bench.late = late
        block = (1, random.getrandbits(16), 0, random.getrandbits(32) * 8, 0, 0)
        bench.block(*block)
        await bench.finish(number)
        bench.check([block])
        assert bench.waiting_cycles
        cycles = range(bench.read_cycles[0], bench.read_cycles[-1] + 1)
        assert sorted(bench.read_cycles + bench.waiting_cycles) == list(cycles)
        bench.forget()


@cocotb.test()
async def nothing_is_counted_as_one(dut):
    """Of a range that says 0 rows, WF tiles or bytes, blocks have one row, one WF tile, one sector."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 3)
    await bench.reset()
    some = Tile(4, 2, 3, 2, 4, 3, 100, 40, 64, 256)
    blocks = []
    names = ("wfs", "block_wfs", "rows_full", "rows_partial", "bottom_wfs", "bytes_body", "bytes_right")
    for name in names:
        await bench.program(1, replace(some, **{name: 0}))
        acts_as = replace(some, **{name: 32 if name.startswith("bytes") else 1})
        bench.controls[1] = (acts_as, *bench.controls[1][1:])
        for bottom, right in product((0, 1), repeat=2):
            # The tile with fewer rows is in the second block.
            wf = 2 if name == "rows_partial" else 0
            blocks.append((1, random.getrandbits(16), wf, random.getrandbits(32), bottom, right))
            bench.block(*blocks[-1])
            await bench.finish(len(blocks))
            bench.check(blocks[-1:])
            bench.forget()


def complements(bits):
    """Two random numbers of `bits` bits, each bit set in one of them."""
    some = random.randrange(1, (1 << bits) - 1)
    return some, some ^ (1 << bits) - 1


async def send_blocks_of(dut, tiles, edges):
    """Two blocks of each of `tiles`, with the (wf, bottom, right) of `edges`."""
    bench = DmaBench(dut, SIZES["paper"], 0, 3)
    await bench.reset()
    blocks = []
    for index, tile in enumerate(tiles):
        await bench.program(index, tile)
        blocks += [(index, 7, wf, random.getrandbits(32), bottom, right) for wf, bottom, right in edges]
    for block in blocks:
        bench.block(*block)
    await bench.finish(len(blocks))
    bench.check(blocks)


@cocotb.test()
async def tall_tiles(dut):
    """WF tiles of thousands of rows."""
    rows, others = complements(12)
    tiles = [Tile(8, 1, *pair, 8, 7, 32, 32, 3, 1 << 20) for pair in ((rows, others), (others, rows))]
    await send_blocks_of(dut, tiles, [(0, 1, 0), (7, 1, 0)])


@cocotb.test()
async def wide_tiles(dut):
    """WF tiles of one row of up to 64 KiB, of a power of two of sectors, too."""
    size, other = complements(16)
    powers = [1 << bit for bit in range(5, 16)]
    pairs = [(size, other), (other, size), *zip(powers, reversed(powers), strict=True)]
    tiles = [Tile(1, 1, 1, 1, 1, 1, *pair, 1 << 16, 1 << 20) for pair in pairs]
    await send_blocks_of(dut, tiles, [(0, 0, 0), (0, 0, 1)])


@strategies.composite
def tiles_with_blocks(draw):
    """A tile geometry and up to four of its blocks, as (wf, va, bottom, right)."""
    number = strategies.integers
    wfs = draw(number(1, 8))
    bottom_wfs = draw(number(1, wfs))
    tile = Tile(
        wfs=wfs,
        block_wfs=draw(number(1, wfs)),
        rows_full=draw(number(2, 4)),
        rows_partial=draw(number(1, 3)),
        bottom_wfs=bottom_wfs,
        bottom_full=draw(number(bottom_wfs - 1, bottom_wfs)),
        bytes_body=draw(number(1, 600)),
        bytes_right=draw(number(1, 600)),
        pitch=draw(number(1, (1 << 31) - 1)),
        wf_stride=draw(number(1, (1 << 31) - 1)),
    )
    blocks = []
    for _ in range(draw(number(1, 4))):
        bottom = draw(number(0, 1))
        last = ((bottom_wfs if bottom else wfs) - 1) // tile.block_wfs
        blocks.append(
            (draw(number(0, last)) * tile.block_wfs, draw(number(0, (1 << 40) - 1)), bottom, draw(number(0, 1)))
        )
    return tile, blocks


@cocotb.test()
async def any_geometry(dut):
    """Whatever the geometry, the reads and packets of its blocks are those of the golden."""
    bench = DmaBench(dut, SIZES["paper"], 0, 3)
    await bench.reset()
    sent = 0

    async def geometry_is_right(example) -> None:
        nonlocal sent
        tile, places = example
        bench.forget()
        await bench.program(1, tile)
        blocks = [(1, 7, *place) for place in places]
        for block in blocks:
            bench.block(*block)
        sent += len(blocks)
        await bench.finish(sent)
        bench.check(blocks)

    await holds_for_all(tiles_with_blocks(), geometry_is_right, int(os.environ.get("EXAMPLES", "50")))


@pytest.mark.parametrize("size", ["tiny", "paper", "many_packets"])
def test_every_size_at_every_edge(size):
    simulate(design(size), "dma_engine", __name__, "every_size_at_every_edge", environment={"SIZE": size})


@pytest.mark.parametrize("size", ["paper", "tiny"])
def test_nothing_is_counted_as_one(size):
    simulate(design(size), "dma_engine", __name__, "nothing_is_counted_as_one", environment={"SIZE": size})


@pytest.mark.parametrize("size", ["paper", pytest.param("four_channels", marks=pytest.mark.wide)])
def test_any_sector_may_come_last(size):
    simulate(design(size), "dma_engine", __name__, "any_sector_may_come_last", environment={"SIZE": size})


@pytest.mark.parametrize("test", ["tall_tiles", "wide_tiles"])
def test_large_tiles(test):
    simulate(design("paper"), "dma_engine", __name__, test)


def test_any_geometry():
    simulate(design("paper"), "dma_engine", __name__, "any_geometry")


def test_wrong_geometry_is_shrunk():
    """For an engine that forgets ragged rows, hypothesis finds the smallest tile in which there is one to forget."""
    with caught("Failing test case") as failure:
        simulate(
            design("paper", ForgetsRaggedRows),
            "dma_engine",
            __name__,
            "any_geometry",
            environment={"EXAMPLES": "2000"},
            seed=2,
        )
    smallest = ("wfs=2,", "rows_full=2,", "rows_partial=1,", "bytes_body=1,", "[(0, 0, 1, 0)]")
    assert all(part in str(failure.value) for part in smallest)
