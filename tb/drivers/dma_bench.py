"""The DMA engine with a memory of random latency, sources of blocks and the golden model of its packets."""

import random
from collections import Counter
from dataclasses import dataclass, field

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration
from hw.dma.events import DmaEvents
from hw.link.wire import arrival_layout, packet_layout, routes_layout
from hw.messages import Access, Messages, Source
from hw.range_table import Blocks, Control, Grouping, RangeWrite, RowBytes, Rows, Word
from hw.send_table import SendControl, SendWord, SendWrite
from tb.drivers.payload import no_write, pack, unpack
from tb.drivers.slot_double import closing_layout, freed_layout
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_dma
from tb.golden.packets import Tile, block_rows, packet_routes, row_packets

WAITING = 1 << DmaEvents["waiting"].offset
LATE = 150
"""Cycles per channel: time enough to fill all slots."""


@dataclass
class SlotPacket:
    """A closed packet: its bank and slot, and its sectors when they have all arrived."""

    slot: tuple[int, int]
    attributes: dict[str, int]
    sectors: list[int] = field(default_factory=list)


class DmaBench:
    """The engine with a memory of random latency behind it and the golden model of its packets beside it."""

    def __init__(self, dut, config: Configuration, stall: float, latency: int):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        self.closing, self.freed = closing_layout(config), freed_layout(config)
        self.attributes, self.routes = packet_layout(config), routes_layout(config)
        self.arrival = arrival_layout(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        self.latency = latency
        self.late: int | None = None
        """Sectors of this id, which is a place in a packet buffer, take LATE cycles per channel more."""
        self.memory: dict[int, int] = {}
        self.reads: list[tuple[int, ...]] = []
        self.read_cycles: list[int] = []
        self.waiting_cycles: list[int] = []
        self.closed_cycles: list[int] = []
        self.arrived: dict[tuple[int, int, int], int] = {}
        """Sectors by bank, slot and place."""
        self.block_cycles: list[int] = []
        self.cycle = 0
        self.controls: dict[int, tuple[Tile, int, int]] = {}
        self.sends = random.sample(range(config.sends), config.sends)
        """The send of each range."""
        self.lane = random.randrange(config.lanes)
        if config.lanes > 1:
            dut.lane.value = self.lane
        self.more_sent = 0
        """How often blocks without a sector in this lane count as sent, beyond once each."""
        dut.ranges.value = 0
        dut.sends.value = 0
        dut.window.value = 0
        self.ports = [0] * config.sends
        """The port of each send."""
        self.lead(self.ports)
        dut.standing.value = 0
        dut.clear.value = 0
        dut.armed.value = 1
        self.dut.freed.value = 0
        self.dut.block_sent.value = 0
        self.call(random.getrandbits(config.epoch_bits))
        self.event_cycles: Counter[int] = Counter()
        """Cycles by what the engine did in them."""
        self.faults = StreamSink(dut, "faults", dut.clk, stalls(stall))
        self.blocks = StreamSource(dut, "blocks", dut.clk, stalls(stall))
        self.packets: list[SlotPacket] = []
        self.open: list[SlotPacket] = []
        """Closed packets whose slots are not free again, in the order of their closing."""
        self.stall = stalls(stall)
        self.sinks = [StreamSink(dut, f"reads__{c}", dut.clk, stalls(stall)) for c in range(config.lane_channels)]
        for channel in range(config.lane_channels):
            getattr(dut, f"returns__{channel}").value = 0

    def is_here(self, va: int) -> bool:
        """Whether a sector is in the lane of this engine."""
        return (va >> 3) // self.config.lane_channels % self.config.lanes == self.lane

    def lead(self, ports: list[int]):
        """Sends leave by these ports; to be said before ranges are programmed."""
        self.ports = ports
        for number, port in enumerate(ports):
            getattr(self.dut, f"port_of__{number}").value = port

    def call(self, epoch: int):
        """The epoch of blocks from now on."""
        self.epoch = epoch
        self.dut.epoch.value = epoch

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
        for channel in range(self.config.lane_channels):
            cocotb.start_soon(self._serve(channel))

    async def _count(self):
        while True:
            await ReadOnly()
            if any(int(getattr(self.dut, f"reads__{c}__valid").value) for c in range(self.config.lane_channels)):
                self.read_cycles.append(self.cycle)
            if int(self.dut.blocks__valid.value):
                self.block_cycles.append(self.cycle)
            closed = unpack(self.closing, int(self.dut.closed.value))
            if closed["valid"]:
                attributes = unpack(self.attributes, closed["packet"])
                announced = unpack(self.routes, int(self.dut.announced.value))
                routes = packet_routes(attributes["first"], attributes["count"], self.ports)
                assert announced == routes, "a slot was had for other sends"
                self.open.append(SlotPacket((closed["bank"], closed["slot"]), attributes))
                self.packets.append(self.open[-1])
                self.closed_cycles.append(self.cycle)
            self._arrivals()
            events = int(self.dut.events.value)
            self.event_cycles[events] += 1
            if events & WAITING:
                self.waiting_cycles.append(self.cycle)
            assert events & 1 != int(self.dut.idle.value)
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            self._free()

    def _arrivals(self):
        """Sectors that come to their places; of the slot that is being filled, too."""
        for channel in range(self.config.lane_channels):
            arrival = unpack(self.arrival, int(getattr(self.dut, f"arrivals__{channel}").value))
            if arrival["valid"]:
                place = (channel, arrival["slot"], arrival["index"])
                assert place not in self.arrived, f"two sectors for {place}"
                self.arrived[place] = arrival["data"]

    def _free(self):
        """Give back the slot of the oldest packet that is whole, and its block if it ends one."""
        freed = sent = 0
        if self.open and not self.stall():
            packet = self.open[0]
            places = [(*packet.slot, number) for number in range(packet.attributes["length"] + 1)]
            if all(place in self.arrived for place in places):
                packet.sectors = [self.arrived.pop(place) for place in places]
                self.open.pop(0)
                bank, slot = packet.slot
                freed = pack(self.freed, valid=1, bank=bank, slot=slot)
                sent = packet.attributes["mark"]
        self.dut.freed.value = freed
        self.dut.block_sent.value = int(sent)

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
                assert self.is_here(va) and (va >> 3) % self.config.lane_channels == channel
                self.reads.append(tuple(request[name] for name in ("va", "range", "wg", "wf", "traffic_class")))
                late = LATE * self.config.lane_channels if request["id"] == self.late else 0
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
        self.dut.ranges.value = no_write(RangeWrite)

    async def write_send(self, number: int, word: SendWord, value: int):
        self.dut.sends.value = pack(SendWrite, valid=1, index=number, word=word.value, data=value)
        await RisingEdge(self.dut.clk)
        self.dut.sends.value = no_write(SendWrite)

    async def program(
        self, index: int, tile: Tile, offset: int = 8, bounds: tuple[int, int] | None = None, count: int = 0
    ):
        """Range `index`, from and to sectors `bounds` (of the whole address space), and its first send, which no other
        range has, and `count` sends in all, 0: any number."""
        base, limit = bounds or (0, (1 << self.config.va_sector_bits) - 1)
        traffic_class = random.getrandbits(2)
        send = self.sends[index]
        count = count or random.randint(1, self.config.sends)
        send_values = {
            SendWord.CONTROL: pack(SendControl, traffic_class=traffic_class, reserved=random.getrandbits(2))
            | random.getrandbits(6),
            SendWord.OFFSET_LOW: offset & 0xFFFFFFFF,
            SendWord.OFFSET_HIGH: offset >> 32,
        }
        for send_word, value in send_values.items():
            await self.write_send(send, send_word, value)
        values = {
            Word.CONTROL: pack(
                Control,
                valid=1,
                access=random.randrange(3),
                alu=random.getrandbits(2),
                dtype=random.getrandbits(2),
                first_send=send,
                sends=count,
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
            Word.BASE_LOW: base & 0xFFFFFFFF,
            Word.BASE_HIGH: base >> 32,
            Word.LIMIT_LOW: limit & 0xFFFFFFFF,
            Word.LIMIT_HIGH: limit >> 32,
        }
        self.controls[index] = (tile, count, traffic_class)
        for word, value in values.items():
            await self.write(index, word, value)

    def packets_of(self, tile: Tile, va: int, wf: int, bottom: int, right: int) -> list[tuple[int, list]]:
        """The packets of a block in this lane: WF tile, and (address, mask) of each sector."""
        packets = [
            (tile_wf, packet)
            for tile_wf, sectors in block_rows(tile, va, wf, bool(bottom), bool(right))
            for packet in row_packets(sectors)
        ]
        return [(tile_wf, packet) for tile_wf, packet in packets if self.is_here(packet[0][0])]

    def _counts(self, index, wg, wf, va, bottom, right) -> int:
        """How often a block counts as sent beyond once, because nothing of it is in this lane; a block of a range that
        was not programmed is for a reset to lose."""
        if index not in self.controls:
            return 0
        tile, count, _ = self.controls[index]
        return 0 if self.packets_of(tile, va, wf, bottom, right) else count - 1

    def recount(self, blocks):
        """Of all blocks so far only these count as sent."""
        self.more_sent = sum(self._counts(*block) for block in blocks)

    def block(self, index, wg, wf, va, bottom, right):
        self.more_sent += self._counts(index, wg, wf, va, bottom, right)
        self.blocks.queue.append(
            pack(self.messages.ready_block, range=index, wg=wg, wf=wf, va=va, bottom=bottom, right=right)
        )

    def _something_comes(self) -> bool:
        returned = (int(getattr(self.dut, f"returns__{channel}").value) for channel in range(self.config.lane_channels))
        return bool(int(self.dut.block_sent.value)) or any(
            unpack(self.messages.read_return, port)["valid"] for port in returned
        )

    async def finish(self, blocks: int, limit: int = 200000):
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            if (
                not self.blocks.queue
                and int(self.dut.idle.value)
                and int(self.dut.sent_blocks.value) == blocks + self.more_sent
            ):
                await RisingEdge(self.dut.clk)
                await RisingEdge(self.dut.clk)
                assert not int(self.dut.wake.value) or self._something_comes(), "awake with nothing to do"
                return
        raise AssertionError(f"not finished: {int(self.dut.sent_blocks.value)} of {blocks} blocks sent")

    def check(self, expected_blocks):
        """`expected_blocks`: (index, wg, wf, va, bottom, right) in order; those of a port come in theirs."""
        packets = {port: [p for p in self.packets if self.ports[p.attributes["first"]] == port] for port in self.ports}
        expected_reads: Counter[tuple[int, ...]] = Counter()
        for index, wg, wf, va, bottom, right in expected_blocks:
            tile, count, traffic_class = self.controls[index]
            expected = self.packets_of(tile, va, wf, bottom, right)
            for place, (tile_wf, packet) in enumerate(expected):
                expected_reads.update((address, index, wg, tile_wf, traffic_class) for address, _ in packet)
                sent = packets[self.ports[self.sends[index]]].pop(0)
                assert sent.attributes == {
                    "va": packet[0][0],
                    "wg": wg,
                    "wf": tile_wf,
                    "epoch": self.epoch,
                    "length": len(packet) - 1,
                    "mask": packet[-1][1],
                    "first": self.sends[index],
                    "count": count,
                    "mark": int(place == len(expected) - 1),
                }
                for number, (address, _) in enumerate(packet):
                    assert sent.sectors[number] == self.memory[address], f"data of sector {address:#x}"
        assert not any(packets.values()), "packets too many"
        assert Counter(self.reads) == expected_reads
        counted: Counter[str] = Counter()
        for events, cycles in self.event_cycles.items():
            event = unpack(DmaEvents, events)
            counted.update({name: value * cycles for name, value in event.items()})
            assert event["busy"] or not (event["reads"] or event["packets"] or event["waiting"])
            assert not (event["reads"] and event["waiting"])
        seen = {"reads": len(self.reads), "packets": len(self.packets), "blocks": len(expected_blocks)}
        assert {name: counted[name] for name in seen} == seen

    def empty_slots(self):
        """Reset has given back all slots."""
        self.open.clear()
        self.arrived.clear()

    def forget(self):
        """Begin anew with what was read, sent and counted."""
        self.reads.clear()
        self.packets.clear()
        self.event_cycles.clear()
        self.read_cycles.clear()
        self.waiting_cycles.clear()
