"""Thresholds, blocks and edges of outputs of any shape, up to as many columns as the trigger table has blocks."""

import random
from unittest.mock import patch

import cocotb
from amaranth.hdl import Value

from hw.config import Configuration
from hw.tracker.tile_geometry import partial_products
from hw.tracker.tracker import Tracker
from tb.drivers.tracker_bench import next_epoch
from tb.golden.tracker import GoldenTracker, TiledRange
from tb.runner import caught
from tb.unit.tracker.test_tracker import SMALL, begin, run

OUTPUTS = 60


def random_output(config: Configuration) -> TiledRange:
    """A ragged output, in half of the cases with one block per WG; thresholds up to what a counter can hold."""
    wfs = random.randint(1, 8)
    block_wfs = random.choice([wfs, random.randint(1, wfs)])
    block_shift = (-(-wfs // block_wfs) - 1).bit_length()
    if random.random() < 0.3:
        block_shift = random.randint(block_shift, 3)
    places = config.trigger_blocks >> block_shift
    across = random.choice([1, 1 << random.randrange(9), config.trigger_blocks // 2 - 1, random.randint(1, 500)])
    across = min(across, places)
    down = random.randint(1, min(places // across, 40))
    height = random.randint(1, 4)
    updates = random.randint(1, 2)
    largest = ((1 << config.count_bits) - 1) // (2 * height * updates)
    columns = random.choice([largest, random.randint(1, largest), 1 << random.randrange(largest.bit_length())])
    return TiledRange(
        index=random.randrange(config.ranges),
        first_wg=random.randrange((1 << config.wg_bits) - across * down),
        rows=down * wfs * height - random.randrange(wfs * height),
        columns=across * columns - random.randrange(columns),
        tile_rows=wfs * height,
        tile_columns=columns,
        wfs=wfs,
        block_wfs=block_wfs,
        updates=updates,
        dma=random.random() < 0.8,
        launch=random.random() < 0.8,
        block_base=random.randrange(config.trigger_blocks - (across * down << block_shift) + 1),
        block_shift=block_shift,
    )


def telling(area: TiledRange) -> list[int]:
    """Workgroups at the edges of `area`, some inside, and those just outside of it."""
    first, across, last = area.first_wg, area.tiles_across, area.first_wg + area.workgroups - 1
    edges = {first, first + across - 1, first + across, last - across, last - across + 1, last - 1, last}
    inside = {random.randrange(first, last + 1) for _ in range(6)}
    return sorted(wg for wg in edges | inside | {first - 1, last + 1} if wg in range(1 << 16))


@cocotb.test()
async def outputs_of_any_shape(dut):
    bench = await begin(dut, memory_latency=5)
    config, epoch = bench.config, 1
    for _ in range(OUTPUTS):
        area = random_output(config)
        await bench.program([area])
        golden = GoldenTracker({area.index: area}, epoch)
        for wg in telling(area):
            for wf in range(min(8, area.wfs + 1)):
                va = random.getrandbits(config.va_sector_bits)
                size = area.threshold(wg, wf) or 2
                golden.access(area.index, wg, wf, epoch, va, size)
                bench.commit(0, area.index, wg, wf, epoch, va, size)
        await bench.settle()
        assert sorted(bench.received_blocks()) == sorted(golden.blocks), area
        assert sorted(bench.received_launches()) == sorted(golden.launches), area
        assert sorted(bench.received_faults()) == sorted(golden.faults), area
        bench.forget()
        epoch = next_epoch(epoch)
        await bench.clear(epoch)
        await bench.settle()
        bench.forget()


def short_products(index: Value, inverse: Value) -> list[tuple[Value, int]]:
    """What is wrong from the 256th WG of a range on."""
    return partial_products(index, inverse)[:-2]


def test_outputs_of_any_shape():
    run("outputs_of_any_shape", {"config": SMALL}, module=__name__)


def test_a_wrong_column_is_caught():
    with (
        patch("hw.tracker.tile_geometry.partial_products", short_products),
        caught("area"),
    ):
        run("outputs_of_any_shape", {"config": SMALL}, Tracker, __name__)
