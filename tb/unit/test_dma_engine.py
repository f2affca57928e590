"""The DMA engine reads exactly the sectors of each block and packs them for the peer."""

import os
import random
from collections import Counter
from itertools import product

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from hypothesis import strategies

from hw.config import Configuration, preset
from hw.dma.engine import DmaEngine
from hw.messages import Access, Messages, Phase, Source
from hw.range_table import Blocks, Control, Grouping, RangeWrite, RowBytes, Rows, Word
from tb.drivers.payload import pack, unpack
from tb.drivers.property import holds_for_all
from tb.drivers.stream import StreamSink, StreamSource, pauses
from tb.drivers.stream_checker import checked
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_dma
from tb.golden.packets import Tile, block_rows, row_packets
from tb.runner import SimulationError, simulate

SIZES = {
    "paper": preset("paper"),
    "tiny": preset("tiny"),
    "four_channels": preset("quad", dma_packets=8),
    "tiny_four_channels": preset("tiny", channels=4),
    "many_packets": preset("paper", dma_packets=64),
}


class Bench:
    """The engine with a memory of random latency behind it and the golden model of its packets beside it."""

    def __init__(self, dut, config: Configuration, pause: float, latency: int):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.latency = latency
        self.memory = {}
        self.reads = []
        self.read_cycles = []
        self.packet_cycles = []
        self.block_cycles = []
        self.cycle = 0
        self.controls = {}
        dut.ranges.value = 0
        dut.clear.value = 0
        self.call(random.getrandbits(config.epoch_bits), random.getrandbits(6))
        self.blocks = StreamSource(dut, "blocks", dut.clk, pauses(pause))
        self.packets = StreamSink(dut, "packets", dut.clk, pauses(pause))
        self.sinks = [StreamSink(dut, f"reads__{c}", dut.clk, pauses(pause)) for c in range(config.channels)]
        for channel in range(config.channels):
            getattr(dut, f"returns__{channel}").value = 0

    def call(self, epoch: int, rank: int):
        """What the headers of packets from now on say of the collective and of their sender."""
        self.epoch, self.rank = epoch, rank
        self.dut.epoch.value, self.dut.rank.value = epoch, rank

    async def reset(self):
        self.dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        cocotb.start_soon(self._count())
        observe(watch_dma, self.dut, self.config)
        for channel in range(self.config.channels):
            cocotb.start_soon(self._serve(channel))

    async def _count(self):
        while True:
            await ReadOnly()
            if any(int(getattr(self.dut, f"reads__{c}__valid").value) for c in range(self.config.channels)):
                self.read_cycles.append(self.cycle)
            if int(self.dut.blocks__valid.value):
                self.block_cycles.append(self.cycle)
            if int(self.dut.packets__valid.value):
                self.packet_cycles.append(self.cycle)
            await RisingEdge(self.dut.clk)
            self.cycle += 1

    async def _serve(self, channel):
        """Answer the reads of a channel after a random time, in any order; other readers' data is mixed in."""
        pending = []
        sink, port = self.sinks[channel], getattr(self.dut, f"returns__{channel}")
        layout = self.messages.read_return
        while True:
            await RisingEdge(self.dut.clk)
            while sink.received:
                request = unpack(self.messages.memory_request, sink.received.popleft())
                assert request["access"] == Access.READ.value and request["source"] == Source.DMA.value
                assert request["tracked"] == 0 and request["phase"] in {phase for *_, phase in self.controls.values()}
                va = request["va"]
                assert (va >> 3) % self.config.channels == channel
                self.reads.append(va)
                pending.append((self.cycle + random.randint(1, self.latency), request["id"], va))
            due = [item for item in pending if item[0] <= self.cycle]
            if due:
                item = random.choice(due)
                pending.remove(item)
                word = self.memory.setdefault(item[2], random.getrandbits(256))
                port.value = pack(layout, valid=1, source=Source.DMA, id=item[1], data=word)
            elif random.random() < 0.3:
                port.value = pack(layout, valid=1, source=Source.SPILL, id=random.getrandbits(8), data=0)
            else:
                port.value = 0

    async def write(self, index: int, word: Word, value: int):
        self.dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=value)
        await RisingEdge(self.dut.clk)
        self.dut.ranges.value = 0

    async def program(self, index: int, tile: Tile, offset: int, peer: int):
        phase = random.choice(list(Phase))
        values = {
            Word.CONTROL: pack(
                Control,
                valid=1,
                remote_access=Access.UPDATE,
                alu=index % 4,
                dtype=(index + 1) % 4,
                phase=phase,
                peer=peer,
                reserved=random.getrandbits(10),
                first_touch=random.getrandbits(1),
                tracked=random.getrandbits(1),
                launch=random.getrandbits(1),
            ),
            Word.OFFSET_LOW: offset & 0xFFFFFFFF,
            Word.OFFSET_HIGH: offset >> 32,
            Word.GROUPING: pack(Grouping, wfs=tile.wfs, block_wfs=tile.block_wfs),
            Word.BLOCKS: pack(Blocks, bottom_wfs=tile.bottom_wfs, bottom_full=tile.bottom_full),
            Word.ROWS: pack(Rows, full=tile.rows_full, partial=tile.rows_partial),
            Word.ROW_BYTES: pack(RowBytes, body=tile.bytes_body, right=tile.bytes_right),
            Word.PITCH: tile.pitch,
            Word.WF_STRIDE: tile.wf_stride,
        }
        self.controls[index] = (tile, offset, peer, phase.value)
        for word, value in values.items():
            await self.write(index, word, value)

    def block(self, index, wg, wf, va, bottom, right):
        self.blocks.queue.append(
            pack(self.messages.ready_block, range=index, wg=wg, wf=wf, va=va, bottom=bottom, right=right)
        )

    async def finish(self, blocks: int, limit: int = 200000):
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            if not self.blocks.queue and int(self.dut.idle.value) and int(self.dut.sent_blocks.value) == blocks:
                await RisingEdge(self.dut.clk)
                await RisingEdge(self.dut.clk)
                return
        raise AssertionError(f"not finished: {int(self.dut.sent_blocks.value)} of {blocks} blocks sent")

    def check(self, expected_blocks):
        """`expected_blocks`: (index, wg, wf, va, bottom, right) in order."""
        flits = list(self.packets.received)
        layout = self.messages.link_flit
        expected_reads = Counter()
        for index, wg, wf, va, bottom, right in expected_blocks:
            tile, offset, peer, phase = self.controls[index]
            for tile_wf, sectors in block_rows(tile, va, wf, bottom, right):
                for packet in row_packets(sectors):
                    expected_reads.update(address for address, _ in packet)
                    flit = unpack(layout, flits.pop(0))
                    assert flit["header"] == 1 and flit["last"] == 0
                    header = unpack(self.messages.link_header, flit["data"])
                    start = (packet[0][0] + offset) % (1 << self.config.va_sector_bits)
                    assert header == {
                        "va": start,
                        "wg": wg,
                        "wf": tile_wf,
                        "access": Access.UPDATE.value,
                        "alu": index % 4,
                        "dtype": (index + 1) % 4,
                        "phase": phase,
                        "epoch": self.epoch,
                        "length": len(packet) - 1,
                        "mask": packet[-1][1],
                        "source": self.rank,
                        "destination": peer,
                        "check": 0,
                    }
                    for place, (address, _) in enumerate(packet):
                        flit = unpack(layout, flits.pop(0))
                        assert flit["header"] == 0 and flit["last"] == (place == len(packet) - 1)
                        assert flit["data"] == self.memory[address], f"data of sector {address:#x}"
        assert not flits, f"{len(flits)} flits too many"
        assert Counter(self.reads) == expected_reads


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


@cocotb.test()
async def random_blocks(dut):
    """Blocks of random ragged tiles through random memory latency and pauses."""
    config = SIZES[os.environ["SIZE"]]
    bench = Bench(dut, config, float(os.environ["PAUSE"]), int(os.environ["LATENCY"]))
    await bench.reset()
    for index in range(config.ranges):
        await bench.program(
            index, random_tile(), random.choice([0, 8, 3, random.getrandbits(43)]), random.getrandbits(6)
        )
    blocks = []
    for number in range(30):
        if number in (10, 20):
            await bench.finish(number)
            bench.check(blocks)
            blocks = []
            bench.reads.clear()
            bench.packets.received.clear()
            bench.call(~bench.epoch & 0xFF, ~bench.rank & 0x3F)
        index = random.randrange(config.ranges)
        tile = bench.controls[index][0]
        bottom = random.random() < 0.5
        wfs = tile.bottom_wfs if bottom else tile.wfs
        wf = random.randrange((wfs + tile.block_wfs - 1) // tile.block_wfs) * tile.block_wfs
        va = random.getrandbits(32) | random.getrandbits(11) << 32
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
async def reset_ends_any_walk(dut):
    """Blocks of geometries as large as the words can say, or invalid, are left by a reset; the next one is right."""
    config = SIZES[os.environ["SIZE"]]
    bench = Bench(dut, config, 0, 3)
    await bench.reset()
    bench.controls = {number: (None, 0, 0, phase.value) for number, phase in enumerate(Phase)}
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
            await ReadOnly()
            assert int(dut.idle.value) and not int(dut.sent_blocks.value)
            await RisingEdge(dut.clk)
    bench.blocks.queue.clear()
    bench.reads.clear()
    bench.packets.received.clear()
    await bench.program(1, random_tile(), 8, 2)
    bench.block(1, 7, 0, 1000, 0, 0)
    await bench.finish(1)
    bench.check([(1, 7, 0, 1000, 0, 0)])


@cocotb.test()
async def every_size_at_every_edge(dut):
    """Blocks of 1 to 8 WF tiles inside and at the edges of the output, one at a time, with buffers to spare or one."""
    config = SIZES[os.environ["SIZE"]]
    bench = Bench(dut, config, 0, 3)
    await bench.reset()
    blocks = []
    for size in (1, 2, 5, 8):
        await bench.program(1, Tile(8, size, 2, 1, 8, 7, 64, 32, 64, 256), 8, 2)
        for bottom, right in product((0, 1), repeat=2):
            # Two of each: a block is seen to be over when the next one comes.
            for wf in (0, random.randrange(-(-8 // size)) * size):
                blocks.append((1, random.getrandbits(16), wf, random.getrandbits(32), bottom, right))
                bench.block(*blocks[-1])
                await bench.finish(len(blocks))
                bench.check(blocks[-1:])
                bench.reads.clear()
                bench.packets.received.clear()


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
    bench = Bench(dut, SIZES["paper"], 0, 3)
    await bench.reset()
    sent = 0

    async def geometry_is_right(example) -> None:
        nonlocal sent
        tile, places = example
        bench.reads.clear()
        bench.packets.received.clear()
        await bench.program(1, tile, 8, 2)
        blocks = [(1, 7, *place) for place in places]
        for block in blocks:
            bench.block(*block)
        sent += len(blocks)
        await bench.finish(sent)
        bench.check(blocks)

    await holds_for_all(tiles_with_blocks(), geometry_is_right)


@cocotb.test()
async def rate_and_latency(dut):
    """A 128-sector WF tile: first read 2 cycles after the block, then one read a cycle, 9 cycles per packet out."""
    bench = Bench(dut, SIZES["many_packets"], 0, 3)
    await bench.reset()
    tile = Tile(8, 1, 16, 16, 8, 8, 256, 256, 64, 16 * 64)
    await bench.program(0, tile, 0, 1)
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
    # 32 buffers absorb the header flits of the first 256 sectors: so far there must not be one bubble.
    assert bench.read_cycles[255] - bench.read_cycles[0] == 255
    # One header and eight sectors per packet, without a bubble from the first flit to the last.
    assert len(bench.packet_cycles) == 64 * 9
    assert bench.packet_cycles[-1] - bench.packet_cycles[0] <= 64 * 9 + 4
    dut._log.info(f"packets: {bench.packet_cycles[-1] - bench.packet_cycles[0] + 1} cycles for {64 * 9} flits")


class ForgetsRaggedRows(DmaEngine):
    """A wrong engine that takes every WF tile of a bottom WG for a whole one."""

    def _walk(self, m: Module, walk, *rest) -> None:
        super()._walk(m, walk, *rest)
        with m.If(walk.bottom):
            m.d.sync += walk.bottom.eq(0)


@pytest.mark.parametrize(
    ("size", "pause", "latency"),
    [
        ("paper", 0, 1),
        ("paper", 30, 60),
        ("tiny", 20, 20),
        ("four_channels", 20, 60),
        ("tiny_four_channels", 0, 9),
        ("many_packets", 10, 100),
    ],
)
def test_random_blocks(size, pause, latency):
    simulate(
        checked(DmaEngine(SIZES[size])),
        "dma_engine",
        __name__,
        "random_blocks",
        environment={"SIZE": size, "PAUSE": str(pause), "LATENCY": str(latency)},
    )


def test_reset_ends_any_walk():
    simulate(
        DmaEngine(SIZES["many_packets"]),
        "dma_engine",
        __name__,
        "reset_ends_any_walk",
        environment={"SIZE": "many_packets"},
    )


@pytest.mark.parametrize("size", ["tiny", "many_packets"])
def test_every_size_at_every_edge(size):
    simulate(DmaEngine(SIZES[size]), "dma_engine", __name__, "every_size_at_every_edge", environment={"SIZE": size})


def test_rate_and_latency():
    simulate(DmaEngine(SIZES["many_packets"]), "dma_engine", __name__, "rate_and_latency")


def test_any_geometry():
    simulate(checked(DmaEngine(SIZES["paper"])), "dma_engine", __name__, "any_geometry")


def test_wrong_geometry_is_shrunk():
    """For an engine that forgets ragged rows, hypothesis finds the smallest tile in which there is one to forget."""
    with pytest.raises(SimulationError, match="Failing test case") as failure:
        simulate(ForgetsRaggedRows(SIZES["paper"]), "dma_engine", __name__, "any_geometry", seed=1)
    smallest = ("wfs=2,", "rows_full=2,", "rows_partial=1,", "bytes_body=1,", "[(0, 0, 1, 0)]")
    assert all(part in str(failure.value) for part in smallest)


def test_wrong_engine_is_caught():
    with pytest.raises(SimulationError):
        simulate(
            ForgetsRaggedRows(SIZES["paper"]),
            "dma_engine",
            __name__,
            "random_blocks",
            seed=1,
            environment={"SIZE": "paper", "PAUSE": "0", "LATENCY": "5"},
        )
