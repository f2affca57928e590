"""Counters whose backing store is outside the slice: what goes there, and that it comes back."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from hw.config import preset
from hw.tracker.spill import SpillPort

CONFIG = preset("paper", far_backing_store=True)
RECORDS_PER_UNIT = 16
"""Records of 16 bytes in an interleave unit of 256 bytes."""


class Bench(wiring.Component):
    """A port with what it does in sight; the far side answers a fetch in the next cycle with count = index."""

    far: Out(1)
    near: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.port = self.port = port = SpillPort(CONFIG)
        request = port.far.request
        m.d.comb += [
            self.far.eq(request.valid),
            self.near.eq(port.memory[0].valid & port.memory[0].ready),
            port.memory[0].ready.eq(1),
            port.sectors.eq(1 << CONFIG.spill_sector_bits - 1),
        ]
        m.d.sync += [
            port.far.response.valid.eq(request.valid & ~request.request.write),
            port.far.response.tag.eq(request.request.tag),
            port.far.response.record.count.eq(request.request.index),
        ]
        return m


def test_only_the_channels_of_the_slice_keep_homes_in_its_memory() -> None:
    bench = Bench()
    simulator = Simulator(bench)
    simulator.add_clock(1e-9)
    near, far, answers = [], [], []

    async def requests(ctx) -> None:
        port = bench.port.requests
        await ctx.tick().repeat(3)
        for unit in range(64):
            ctx.set(port.payload.index, unit * RECORDS_PER_UNIT + 3)
            ctx.set(port.payload.tag, unit % CONFIG.spill_tags)
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)
            near.append(ctx.get(bench.near))
            far.append(ctx.get(bench.far))
        await ctx.tick().repeat(8)

    async def responses(ctx) -> None:
        async for _, _, valid, tag, record in ctx.tick().sample(
            bench.port.response.valid, bench.port.response.tag, bench.port.response.record
        ):
            if valid:
                answers.append((tag, record.count))

    simulator.add_testbench(requests)
    simulator.add_testbench(responses, background=True)
    simulator.run()
    # Unit 0 of every 32 lies in the one channel of the slice.
    assert [number for number, value in enumerate(near) if value] == [0, 32]
    assert [number for number, value in enumerate(far) if value] == [unit for unit in range(64) if unit % 32]
    expected = [(unit % CONFIG.spill_tags, unit * RECORDS_PER_UNIT + 3) for unit in range(64) if unit % 32]
    assert answers == expected
