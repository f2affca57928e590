"""The DMA engine reads exactly the sectors of each block and packs them for the peer."""

import os
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module, Signal
from amaranth.hdl import Value
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.dma import engine
from hw.dma.engine import DmaEngine
from hw.dma.packet_reader import PacketReader
from hw.geometry import CHANNEL_SECTOR_BITS
from hw.messages import Access, Fault
from hw.range_table import Control, Grouping, Word
from tb.drivers.dma_bench import DmaBench
from tb.drivers.payload import pack, unpack
from tb.drivers.wrong_blocks import RoutesOfTheFirst
from tb.golden.packets import Tile, block_rows
from tb.runner import caught, simulate
from tb.unit.dma.engines import SIZES, ForgetsRaggedRows, design


def random_tile() -> Tile:
    wfs = random.choice([8, random.randint(1, 8)])
    bottom_wfs = random.randint(1, wfs)
    return Tile(
        wfs=wfs,
        block_wfs=random.choice([wfs, random.randint(1, wfs)]),
        rows_full=random.randint(2, 5),
        rows_partial=random.randint(1, 2),
        bottom_wfs=bottom_wfs,
        bottom_full=random.choice([bottom_wfs, bottom_wfs - 1]),
        bytes_body=random.choice([32, 256, 2, 258, 30, random.randint(1, 700)]),
        bytes_right=random.choice([2, 32, 64, random.randint(1, 256)]),
        pitch=random.choice([16, 24, 133, 1 << 20, random.randint(1, 1 << 31)]),
        wf_stride=random.choice([256, 999, random.randint(1, 1 << 31)]),
    )


LARGE = Tile(8, 8, 8, 4, 8, 8, 700, 256, 1 << 20, 1 << 25)
"""WF tiles of 1,408 sectors in all."""


@cocotb.test()
async def random_blocks(dut):
    """Blocks of random ragged tiles through random memory latency and stalls."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, float(os.environ["STALL"]), int(os.environ["LATENCY"]))
    await bench.reset()
    bench.lead([random.randrange(config.links) for _ in range(config.sends)])
    for index in range(config.ranges):
        await bench.program(index, random_tile(), random.choice([0, 8, random.getrandbits(43)]))
    blocks: list[tuple[int, ...]] = []
    for number in range(30):
        if number in (10, 20):
            await bench.finish(number)
            bench.check(blocks)
            blocks = []
            bench.forget()
            bench.call(~bench.epoch & 0xFF)
        index = random.randrange(config.ranges)
        tile = bench.controls[index][0]
        bottom = random.random() < 0.5
        wfs = tile.bottom_wfs if bottom else tile.wfs
        wf = random.randrange((wfs + tile.block_wfs - 1) // tile.block_wfs) * tile.block_wfs
        va = random.getrandbits(32) | random.getrandbits(10) << 32
        blocks.append((index, random.getrandbits(16), wf, va, int(bottom), random.getrandbits(1)))
        bench.block(*blocks[-1])
    await bench.finish(30)
    bench.check(blocks)
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    await ReadOnly()
    await RisingEdge(dut.clk)
    assert int(dut.sent_blocks.value) == 0


@cocotb.test()
async def a_block_is_left_where_it_leaves_its_range(dut):
    """Ranges that end, or begin, anywhere near the block: the rows before the first one that is not inside are sent,
    and nothing else is read; a fault for each block says where. Ranges that are not valid, that are not in the memory
    of this node, and rows beyond the end of the address space."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 20, 12)
    await bench.reset()
    end = 1 << config.va_sector_bits
    channel = 1 << CHANNEL_SECTOR_BITS + config.channel_bits
    outcomes: Counter[str] = Counter()
    bench.lead(random.choices(range(config.links), k=config.sends))
    for _ in range(200):
        tile = replace(
            random_tile(),
            pitch=random.choice([1, 16, 133, 1 << random.randrange(32), 1 << random.randrange(24, 32)]),
            wf_stride=random.choice([64, 999, 1 << random.randrange(6, 32)]),
        )
        va = random.choice([random.randrange(end), end - random.randrange(1, 1 << 14), channel - random.randrange(99)])
        bottom, right = random.getrandbits(1), random.getrandbits(1)
        tiles, rows = [], []
        for wf, sectors in block_rows(tile, va, 0, bool(bottom), bool(right)):
            tiles.append(wf)
            rows.append([sector for sector, _ in sectors])
        expected_rows: list[list[int]] = []
        near = random.choice([rows[0][0], random.choice(rows)[0]])
        turned = 1 << random.randrange(config.va_sector_bits)
        base = random.choice([0, 0, 0, va, va ^ turned, max(va - random.randrange(50), 0), min(va + 1, end - 1)])
        behind = near + len(rows[0])
        limit = random.choice([end - 1, end - 1, end - 1, near, near + 1, behind, behind ^ turned, behind - 1]) % end
        window = random.choice([0, 0, random.getrandbits(2) | 1 << 31, base >> channel.bit_length() - 1 | 1 << 31])
        # Bits above those that addresses have say nothing.
        beyond = random.getrandbits(31 - bench.config.window_bits) << bench.config.window_bits
        dut.window.value = window | beyond
        index, wg = random.randrange(config.ranges), random.getrandbits(16)
        # A row of no bytes has one sector as well.
        sizes = ("bytes_body", "bytes_right")
        none = {name: 0 for name in sizes if getattr(tile, name) == 32 and random.getrandbits(1)}
        await bench.program(index, replace(tile, **none), bounds=(base, limit))
        valid = random.random() < 0.9
        if not valid:
            await bench.write(index, Word.CONTROL, pack(Control, first_send=bench.sends[index], sends=1))
        in_memory = all(
            not window >> 31 or bound // channel == window & ~(1 << 31) for bound in (base, (limit - 1) % end)
        )
        for row in rows:
            if not valid or not in_memory or row[0] < base or row[0] + len(row) > limit:
                break
            expected_rows.append(row)
        bench.block(index, wg, 0, va, bottom, right)
        quiet = 0
        while quiet < 40:
            await RisingEdge(dut.clk)
            quiet = 0 if bench.blocks.queue or not int(dut.idle.value) or bench.open else quiet + 1
        read = sorted(va for va, *_ in bench.reads)
        assert read == sorted(va for row in expected_rows for va in row if bench.is_here(va)), (tile, va, base, limit)
        whole = len(expected_rows) == len(rows)
        faults = [unpack(bench.messages.fault_record, bits) for bits in bench.faults.received]
        assert len(faults) == (not whole), (faults, whole)
        for fault in faults:
            assert (fault["fault"], fault["access"]) == (Fault.OUTSIDE.value, Access.READ.value)
            assert fault["va"] == rows[len(expected_rows)][0] % end
            assert (fault["wg"], fault["wf"]) == (wg, tiles[len(expected_rows)])
        outcomes["whole" if whole else "cut" if expected_rows else "none"] += 1
        bench.faults.received.clear()
        bench.forget()
    assert min(outcomes[name] for name in ("whole", "cut", "none")) > 2, outcomes


@cocotb.test()
async def a_walk_ends_with_its_epoch(dut):
    """Disarmed at any cycle, the engine takes no block, ends its walk with the packet that it began, and hands out what
    it read under the epoch in which its block was taken; the next epoch's blocks are sent whole under their own."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 20, 12)
    await bench.reset()
    bench.lead(random.choices(range(config.links), k=config.sends))
    for index in range(config.ranges):
        await bench.program(index, random.choice([random_tile(), LARGE]))
    # Of each port a packet that is begun; of each channel what waits for it, at most.
    most = 8 * config.links + 4 * config.lane_channels
    for _ in range(12):
        ended = bench.epoch
        for _ in range(6):
            index = random.randrange(config.ranges)
            bench.block(index, random.getrandbits(16), 0, random.getrandbits(40), 0, 0)
        for _ in range(random.randrange(150)):
            await RisingEdge(dut.clk)
        dut.armed.value = 0
        read = len(bench.reads)
        bench.lapse(random.getrandbits(config.epoch_bits))
        # A read offered, 8 of a packet, twice as many places of buffers: each within what the bench makes it wait.
        for _ in range(400 + 150 * config.dma_packets):
            await RisingEdge(dut.clk)
        assert int(dut.idle.value) and len(bench.reads) <= read + most, "the walk goes on without its epoch"
        bench.blocks.drop()
        assert not bench.open, "a packet is not whole"
        assert all(packet.attributes["epoch"] == ended for packet in bench.packets)
        assert sum(len(packet.sectors) for packet in bench.packets) == len(bench.reads)
        taken = len(bench.blocks.queue)
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        bench.forget()
        bench.call(ended + 1 & 0xFF)
        dut.armed.value = 1
        # What was offered stays offered in this bench: it is the new epoch's first block.
        queued = [unpack(bench.messages.ready_block, bits) for bits in bench.blocks.queue]
        blocks = [tuple(block[name] for name in ("range", "wg", "wf", "va", "bottom", "right")) for block in queued]
        bench.recount(blocks)
        for _ in range(3):
            blocks.append((random.randrange(config.ranges), random.getrandbits(16), 0, random.getrandbits(40), 0, 0))
            bench.block(*blocks[-1])
        await bench.finish(3 + taken)
        bench.check(blocks)
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        bench.forget()


@cocotb.test()
async def a_full_engine_ends_with_its_epoch(dut):
    """Disarmed when every place for blocks is taken and one more is offered, the engine lets go of those, takes no
    other, and is idle though one is offered all the while."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 12)
    await bench.reset()
    await bench.program(0, LARGE)
    for _ in range(config.dma_blocks + 8):
        bench.block(0, random.getrandbits(16), 0, random.getrandbits(40), 0, 0)
    await ClockCycles(dut.clk, config.dma_blocks + 40)
    dut.armed.value = 0
    await RisingEdge(dut.clk)
    offered = len(bench.blocks.queue)
    assert offered > 1, "the engine takes all"
    while not int(dut.idle.value):
        await RisingEdge(dut.clk)
        assert bench.cycle < 1000 + 300 * config.dma_packets, "an engine whose epoch is over is never idle"
    await ClockCycles(dut.clk, 40)
    assert int(dut.idle.value) and int(dut.blocks__valid.value) and len(bench.blocks.queue) == offered


@cocotb.test()
async def reset_ends_any_walk(dut):
    """Blocks of geometries as large as the words can say, or invalid, are left by a reset; the next one is right."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 3)
    await bench.reset()
    for _ in range(12):
        words = {word: random.getrandbits(32) for word in Word}
        for flip in (0, 0xFFFFFFFF, 0):
            for word, value in words.items():
                await bench.write(1, word, value ^ flip)
            grouping = unpack(Grouping, words[Word.GROUPING] ^ flip) | {"block_wfs": random.randint(1, 8)}
            await bench.write(1, Word.GROUPING, pack(Grouping, **grouping))
            bench.block(1, random.getrandbits(16), random.getrandbits(3), random.getrandbits(43), 1, flip & 1)
            for _ in range(30):
                await RisingEdge(dut.clk)
            dut.rst.value = 1
            for _ in range(12):
                await RisingEdge(dut.clk)
            dut.rst.value = 0
            bench.empty_slots()
            await ReadOnly()
            assert int(dut.idle.value) and not int(dut.sent_blocks.value)
            await RisingEdge(dut.clk)
    bench.blocks.queue.clear()
    bench.forget()
    await bench.program(1, random_tile())
    bench.block(1, 7, 0, 1000, 0, 0)
    await bench.finish(1)
    bench.check([(1, 7, 0, 1000, 0, 0)])


@cocotb.test()
async def rate_and_latency(dut):
    """A 128-sector WF tile: first read 2 cycles after the block, then one read a cycle, a packet every 8; 2 cycles to
    the next block of the port."""
    bench = DmaBench(dut, SIZES["many_packets"], 0, 3)
    await bench.reset()
    tile = Tile(8, 1, 16, 16, 8, 8, 256, 256, 64, 16 * 64)
    await bench.program(0, tile)
    for _ in range(5):
        await RisingEdge(dut.clk)
    bench.read_cycles.clear()
    blocks = [(0, 7, wf, 0x1000 + wf * tile.wf_stride, 0, 0) for wf in range(4)]
    for block in blocks:
        bench.block(*block)
    await bench.finish(len(blocks))
    bench.check(blocks)
    dut._log.info(f"first read {bench.read_cycles[0] - bench.block_cycles[0]} cycles after the block")
    assert bench.read_cycles[0] - bench.block_cycles[0] == 2
    apart = [late - early for early, late in pairwise(bench.read_cycles)]
    assert apart == [3 if number % 128 == 127 else 1 for number in range(len(blocks) * 128 - 1)]
    assert [late - early for early, late in pairwise(bench.closed_cycles)] == ([8] * 15 + [10]) * 3 + [8] * 15


@cocotb.test()
async def a_block_begins_at_once(dut):
    """Whatever its port, the first read of a block is 2 cycles after it, if nothing else is walked."""
    config = SIZES["paper"]
    bench = DmaBench(dut, config, 0, 3)
    await bench.reset()
    bench.lead([send % config.links for send in range(config.sends)])
    blocks = []
    for index in range(config.ranges):
        await bench.program(index, Tile(1, 1, 1, 1, 1, 1, 32, 32, 16, 16))
        blocks.append((index, 7, 0, random.getrandbits(40), 0, 0))
        bench.block(*blocks[-1])
        await bench.finish(len(blocks))
        assert bench.read_cycles[-1] - bench.block_cycles[-1] == 2
    bench.check(blocks)


@cocotb.test()
async def tall_tiles_and_long_rows(dut):
    """As many rows as a tile of a skinny GEMM has, and rows longer than any kernel's, by the walker of each port.

    An odd number of either: a bit that is inverted in every step is then wrong in the end."""
    config = SIZES["paper"]
    bench = DmaBench(dut, config, 0, 9)
    await bench.reset()
    tiles = [(601, 32), (1, 1501 * 32)] * config.links
    ports = [0] * config.sends
    for index, send in enumerate(bench.sends[: len(tiles)]):
        ports[send] = index // 2
    bench.lead(ports)
    blocks = []
    for index, (rows, row_bytes) in enumerate(tiles):
        await bench.program(index, Tile(1, 1, rows, 1, 1, 1, row_bytes, 32, 4096, 1 << 20))
        blocks.append((index, 5, 0, random.getrandbits(40), 0, 0))
        bench.block(*blocks[-1])
    await bench.finish(len(blocks))
    bench.check(blocks)


@cocotb.test()
async def every_send_is_counted(dut):
    """As many as there are cycles, if one leaves in each, through more than any short run comes to."""
    DmaBench(dut, SIZES["paper"], 0, 3)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    dut.block_sent.value = 1
    await ClockCycles(dut.clk, 3)
    cycles = int(dut.sent_blocks.value)
    for bit in range(4, 18):
        await ClockCycles(dut.clk, (1 << bit) - cycles)
        cycles = 1 << bit
        assert int(dut.sent_blocks.value) == cycles


@cocotb.test()
async def a_port_that_stands_holds_up_no_other(dut):
    """There is no slot for the packets of one port: as many of its blocks as may wait hold up no block of another; when
    there are slots again, they are sent in their order."""
    config = SIZES[os.environ["SIZE"]]
    bench = DmaBench(dut, config, 0, 9)
    await bench.reset()
    bench.lead([send % config.links for send in range(config.sends)])
    for index in range(config.ranges):
        await bench.program(index, random_tile(), count=1)
    sent = 0
    for _ in range(6):
        stands = random.randrange(config.links)
        dut.standing.value = 1 << stands
        chosen = random.sample(range(config.ranges), config.ranges) * 2
        standing = [index for index in chosen if bench.ports[bench.sends[index]] == stands]
        # One is walked, others wait; more would stand before the blocks of other ports.
        for index in standing[config.dma_blocks + 1 :]:
            chosen.remove(index)
        blocks = [(index, random.getrandbits(16), 0, random.getrandbits(40), 0, 0) for index in chosen]
        for block in blocks:
            bench.block(*block)
        others = sum(bench.ports[bench.sends[index]] != stands for index in chosen)
        for _ in range(20000):
            await RisingEdge(dut.clk)
            if int(dut.sent_blocks.value) == sent + others:
                break
        else:
            raise AssertionError("a port waits for another")
        assert all(bench.ports[packet.attributes["first"]] != stands for packet in bench.packets)
        dut.standing.value = 0
        sent += len(blocks)
        await bench.finish(sent)
        bench.check(blocks)
        bench.forget()


class WaitsForASlot(DmaEngine):
    """A wrong engine, whose walkers keep the turn until they have a slot."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(engine, "PacketReader", KeepsTheTurn):
            return super().elaborate(platform)


class KeepsTheTurn(PacketReader):
    """The reader of that engine."""

    def _stands(self, place: Value) -> Value:
        return Const(0)


@pytest.mark.parametrize("size", [pytest.param("paper", marks=pytest.mark.wide), "five_ports"])
def test_a_port_that_stands_holds_up_no_other(size):
    case = "a_port_that_stands_holds_up_no_other"
    simulate(design(size), "dma_engine", __name__, case, environment={"SIZE": size})


@pytest.mark.wide
def test_waiting_for_a_slot_is_caught():
    case = "a_port_that_stands_holds_up_no_other"
    with caught("a port waits for another"):
        simulate(design("five_ports", WaitsForASlot), "dma_engine", __name__, case, environment={"SIZE": "five_ports"})


def test_tall_tiles_and_long_rows():
    simulate(design("paper"), "dma_engine", __name__, "tall_tiles_and_long_rows")


def test_every_send_is_counted():
    simulate(design("paper"), "dma_engine", __name__, "every_send_is_counted")


def test_a_block_begins_at_once():
    simulate(design("paper"), "dma_engine", __name__, "a_block_begins_at_once")


@pytest.mark.wide
def test_routes_of_the_first_send_alone_are_caught():
    """A slot that is had for one send is not had for all of a packet."""
    environment = {"SIZE": "paper", "STALL": "0", "LATENCY": "5"}
    with patch("hw.dma.engine.SendRoutes", RoutesOfTheFirst), caught("other sends"):
        simulate(design("paper"), "dma_engine", __name__, "random_blocks", environment=environment)


@pytest.mark.parametrize("size", [pytest.param("paper", marks=pytest.mark.wide), "tiny", "two_lanes"])
def test_a_walk_ends_with_its_epoch(size):
    environment = {"SIZE": size}
    simulate(design(size), "dma_engine", __name__, "a_walk_ends_with_its_epoch", environment=environment)


class TakesWhatIsOffered(DmaEngine):
    """A wrong engine, which keeps what is offered while it is not armed."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += m.submodules.offered.i.valid.eq(self.blocks.valid)
        return m


@pytest.mark.parametrize("size", ["paper", "tiny"])
def test_a_full_engine_ends_with_its_epoch(size):
    simulate(design(size), "dma_engine", __name__, "a_full_engine_ends_with_its_epoch", environment={"SIZE": size})


@pytest.mark.wide
def test_an_engine_that_takes_what_is_offered_is_caught():
    environment = {"SIZE": "tiny"}
    with caught("never idle"):
        simulate(
            design("tiny", TakesWhatIsOffered),
            "dma_engine",
            __name__,
            "a_full_engine_ends_with_its_epoch",
            environment=environment,
        )


@pytest.mark.parametrize(
    ("size", "stall", "latency"),
    [
        ("paper", 0, 1),
        ("paper", 30, 60),
        ("tiny", 20, 20),
        ("four_channels", 20, 60),
        pytest.param("tiny_four_channels", 0, 9, marks=pytest.mark.wide),
        pytest.param("many_packets", 10, 100, marks=pytest.mark.wide),
        ("five_ports", 20, 30),
        ("two_lanes", 20, 60),
        ("two_lanes", 0, 1),
        pytest.param("four_lanes", 10, 20, marks=pytest.mark.wide),
    ],
)
def test_random_blocks(size, stall, latency):
    simulate(
        design(size),
        "dma_engine",
        __name__,
        "random_blocks",
        environment={"SIZE": size, "STALL": str(stall), "LATENCY": str(latency)},
    )


@pytest.mark.parametrize("size", ["paper", "four_channels", pytest.param("two_lanes", marks=pytest.mark.wide)])
def test_a_block_that_leaves_its_range(size):
    case = "a_block_is_left_where_it_leaves_its_range"
    simulate(design(size), "dma_engine", __name__, case, environment={"SIZE": size})


class TrustsRows(DmaEngine):
    """A wrong engine, which looks where a block begins and no further."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for walker in range(self._config.links):
            m._named_submodules[f"walker_{walker}"][0].leaves = Signal()
        return m


@pytest.mark.wide
def test_an_engine_that_trusts_rows_is_caught():
    case = "a_block_is_left_where_it_leaves_its_range"
    with caught():
        simulate(design("paper", TrustsRows), "dma_engine", __name__, case, environment={"SIZE": "paper"})


def test_reset_ends_any_walk():
    simulate(
        design("many_packets"),
        "dma_engine",
        __name__,
        "reset_ends_any_walk",
        environment={"SIZE": "many_packets"},
    )


def test_rate_and_latency():
    simulate(design("many_packets"), "dma_engine", __name__, "rate_and_latency")


class WakesLate(DmaEngine):
    """A wrong engine that sleeps on when its ranges are programmed."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.wake.eq(self.blocks.valid | ~self.idle)
        return m


@pytest.mark.wide
def test_an_engine_that_wakes_late_is_caught():
    with caught():
        simulate(
            design("tiny", WakesLate),
            "dma_engine",
            __name__,
            "random_blocks",
            environment={"SIZE": "tiny", "STALL": "0", "LATENCY": "5"},
        )


def test_wrong_engine_is_caught():
    with caught():
        simulate(
            design("paper", ForgetsRaggedRows),
            "dma_engine",
            __name__,
            "random_blocks",
            seed=2,
            environment={"SIZE": "paper", "STALL": "0", "LATENCY": "5"},
        )
