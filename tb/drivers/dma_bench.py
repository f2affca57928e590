"""The DMA engine with a memory of random latency, sources of blocks and the golden model of its packets."""

import random
from collections import Counter

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration
from hw.dma.events import DmaEvents
from hw.messages import Access, Messages, Source
from hw.range_table import Blocks, Control, Grouping, RangeWrite, RowBytes, Rows, Word
from hw.send_table import SendControl, SendWord, SendWrite
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, StreamSource, pauses
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_dma
from tb.golden.packets import Tile, block_rows, row_packets

WAITING = 1 << DmaEvents["waiting"].offset
LATE = 150
"""Cycles: time enough to fill all buffers, and to send a packet but for its last sector."""


class DmaBench:
    """The engine with a memory of random latency behind it and the golden model of its packets beside it."""

    def __init__(self, dut, config: Configuration, pause: float, latency: int):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.latency = latency
        self.late = None
        """Sectors of this id, which is a place in a packet buffer, take LATE cycles more."""
        self.memory = {}
        self.reads = []
        self.read_cycles = []
        self.waiting_cycles = []
        self.packet_cycles = []
        self.block_cycles = []
        self.cycle = 0
        self.controls = {}
        self.sends = random.sample(range(config.sends), config.sends)
        """The send of each range."""
        dut.ranges.value = 0
        dut.sends.value = 0
        dut.clear.value = 0
        dut.armed.value = 1
        self.call(random.getrandbits(config.epoch_bits), random.getrandbits(6))
        self.event_cycles = Counter()
        """Cycles by what the engine did in them."""
        self.blocks = StreamSource(dut, "blocks", dut.clk, pauses(pause))
        self.packets = StreamSink(dut, "packets", dut.clk, pauses(pause))
        self.sinks = [StreamSink(dut, f"reads__{c}", dut.clk, pauses(pause)) for c in range(config.channels)]
        for channel in range(config.channels):
            getattr(dut, f"returns__{channel}").value = 0

    def call(self, epoch: int, rank: int):
        """What the headers of packets from now on say of the collective and of their sender."""
        self.epoch, self.rank = epoch, rank
        self.dut.epoch.value, self.dut.rank.value = epoch, rank

    def lapse(self, epoch: int):
        """The epoch register holds something else, while packets still have the number of `epoch`."""
        self.dut.epoch.value = epoch

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
            events = int(self.dut.events.value)
            self.event_cycles[events] += 1
            if events & WAITING:
                self.waiting_cycles.append(self.cycle)
            assert events & 1 != int(self.dut.idle.value)
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
                assert request["tracked"] == request["first_touch"] == 0
                assert (request["epoch"], request["mask"]) == (self.epoch, 0xFFFFFFFF)
                va = request["va"]
                assert (va >> 3) % self.config.channels == channel
                self.reads.append(tuple(request[name] for name in ("va", "range", "wg", "wf", "phase")))
                late = LATE if request["id"] == self.late else 0
                pending.append((self.cycle + random.randint(1, self.latency) + late, request["id"], va))
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

    async def write_send(self, number: int, word: SendWord, value: int):
        self.dut.sends.value = pack(SendWrite, valid=1, index=number, word=word.value, data=value)
        await RisingEdge(self.dut.clk)
        self.dut.sends.value = 0

    async def program(self, index: int, tile: Tile, offset: int, peer: int):
        """Range `index`, and its send, which no other range has."""
        remote = random.randint(1, 2), random.getrandbits(2), random.getrandbits(2), random.getrandbits(2)
        wg_offset = random.choice((0, random.getrandbits(16)))
        send = self.sends[index]
        send_values = {
            SendWord.CONTROL: pack(
                SendControl,
                peer=peer,
                access=remote[0],
                alu=remote[1],
                dtype=remote[2],
                phase=remote[3],
                reserved=random.getrandbits(2),
                wg_offset=wg_offset,
            ),
            SendWord.OFFSET_LOW: offset & 0xFFFFFFFF,
            SendWord.OFFSET_HIGH: offset >> 32,
        }
        for word, value in send_values.items():
            await self.write_send(send, word, value)
        values = {
            Word.CONTROL: pack(
                Control,
                valid=1,
                access=random.randrange(3),
                alu=random.getrandbits(2),
                dtype=random.getrandbits(2),
                first_send=send,
                sends=random.getrandbits(6),
                reserved=random.getrandbits(8),
                first_touch=random.getrandbits(1),
                tracked=random.getrandbits(1),
                launch=random.getrandbits(1),
            ),
            Word.GROUPING: pack(Grouping, wfs=tile.wfs, block_wfs=tile.block_wfs),
            Word.BLOCKS: pack(Blocks, bottom_wfs=tile.bottom_wfs, bottom_full=tile.bottom_full),
            Word.ROWS: pack(Rows, full=tile.rows_full, partial=tile.rows_partial),
            Word.ROW_BYTES: pack(RowBytes, body=tile.bytes_body, right=tile.bytes_right),
            Word.PITCH: tile.pitch,
            Word.WF_STRIDE: tile.wf_stride,
        }
        self.controls[index] = (tile, offset, wg_offset, peer, remote)
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
            tile, offset, wg_offset, peer, (access, alu, dtype, phase) = self.controls[index]
            for tile_wf, sectors in block_rows(tile, va, wf, bottom, right):
                for packet in row_packets(sectors):
                    expected_reads.update((address, index, wg, tile_wf, phase) for address, _ in packet)
                    flit = unpack(layout, flits.pop(0))
                    assert flit["header"] == 1 and flit["last"] == 0
                    header = unpack(self.messages.link_header, flit["data"])
                    start = (packet[0][0] + offset) % (1 << self.config.va_sector_bits)
                    assert header == {
                        "va": start,
                        "wg": (wg + wg_offset) % (1 << self.config.wg_bits),
                        "wf": tile_wf,
                        "access": access,
                        "alu": alu,
                        "dtype": dtype,
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
        counted = Counter()
        for events, cycles in self.event_cycles.items():
            event = unpack(DmaEvents, events)
            counted.update({name: value * cycles for name, value in event.items()})
            assert event["busy"] or not (event["reads"] or event["packets"] or event["waiting"])
            assert not (event["reads"] and event["waiting"])
        headers = sum(flit & 1 for flit in self.packets.received)
        seen = {"reads": len(self.reads), "packets": headers, "blocks": len(expected_blocks)}
        assert {name: counted[name] for name in seen} == seen

    def forget(self):
        """Begin anew with what was read, sent and counted."""
        self.reads.clear()
        self.packets.received.clear()
        self.event_cycles.clear()
        self.read_cycles.clear()
        self.waiting_cycles.clear()
