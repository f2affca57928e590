"""DMA engine: turns ready blocks into reads of their sectors and packets for its peers (T3 section 4.2.2).

A block is 1..8 WF tiles; a tile is rows of bytes at a pitch. The engine says what a block is (:mod:`hw.dma.transfer`),
has it walked (:class:`hw.dma.walker.Walker`), and reads a sector a cycle, only while it has a packet slot for the data,
so egress never blocks a read that was issued.
"""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..geometry import SECTOR_BYTES
from ..link.parameters import LinkParameters
from ..link.slot_source import PacketSource
from ..link.wire import arrival_layout
from ..messages import Access, Messages, Source
from ..range_table import RangeTable, RangeWrite, Word
from ..send_table import SendControls, SendWrite
from .events import DmaEvents
from .transfer import ROW_SECTORS_BITS, TILES_BITS
from .walker import Walker

_WORDS = [
    Word.CONTROL,
    Word.GROUPING,
    Word.BLOCKS,
    Word.ROWS,
    Word.ROW_BYTES,
    Word.PITCH,
    Word.WF_STRIDE,
]


@dataclass(frozen=True)
class DmaParameters(LinkParameters):
    """Of the DMA engine: it reads from `channels` memory channels into `dma_packets` packet slots of each."""


class DmaEngine(wiring.Component):
    """Reads the WF tiles of ready blocks into packet slots, from where they go to all sends of their range.

    Ports: `ranges`, `sends`: programming buses; `armed`, `epoch`: the armed epoch, which a block keeps from the cycle
    in which it is taken; `blocks`, taken only while armed; `reads`, `returns`: per channel, a read's `id` is {slot,
    place}; data of `source` DMA goes on to `arrivals` in the same cycle; `slots`: packets of up to 8 sectors that never
    cross an 8-sector boundary of the source, in the order of the reads, closed with their last read; `events`; `idle`:
    no block waits or is walked; `block_sent`: a send of a block has left, counted in `sent_blocks` since `clear`;
    `wake`: see :mod:`hw.primitives.clock_enable`.

    While not armed, a block that waits is dropped, and one being walked ends with the packet that was begun, after 8
    reads at most; what is in slots has the epoch in which it was read.

    A row, tile or byte count of 0 in the range table acts as 1. Latency: `blocks.valid` to the first read 2 cycles when
    idle. Rate: one read a cycle without bubbles between packets, rows, tiles, and blocks of more than one sector.
    """

    def __init__(self, config: DmaParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "sends": In(SendWrite),
                "armed": In(1),
                "epoch": In(messages.epoch),
                "clear": In(1),
                "blocks": In(stream.Signature(messages.ready_block)),
                "reads": Out(stream.Signature(messages.memory_request)).array(config.channels),
                "returns": In(messages.read_return).array(config.channels),
                "slots": Out(PacketSource(config)),
                "arrivals": Out(arrival_layout(config)).array(config.channels),
                "block_sent": In(1),
                "events": Out(DmaEvents),
                "idle": Out(1),
                "wake": Out(1),
                "sent_blocks": Out(20),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        m.submodules.table = table = RangeTable(config, _WORDS)
        m.submodules.sends = sends = SendControls(config)
        m.submodules.walker = walker = Walker(config)

        waiting_block = Signal(messages.ready_block)
        waiting_epoch = Signal(messages.epoch)
        block_waits = Signal()
        transfer = walker.transfers.payload
        m.d.comb += [
            table.write.eq(self.ranges),
            table.index.eq(waiting_block.range),
            sends.write.eq(self.sends),
            sends.index.eq(table.control.first_send),
            transfer.label.traffic_class.eq(sends.control.traffic_class),
            self.blocks.ready.eq(~block_waits & self.armed),
            walker.transfers.valid.eq(block_waits & self.armed),
            transfer.label.epoch.eq(waiting_epoch),
            walker.stop.eq(~self.armed),
        ]
        with m.If((walker.transfers.valid & walker.transfers.ready) | ~self.armed):
            m.d.sync += block_waits.eq(0)
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += [
                block_waits.eq(1),
                waiting_block.eq(self.blocks.payload),
                waiting_epoch.eq(self.epoch),
            ]
        self._describe(m, transfer, waiting_block, table)
        step = self._read(m, walker)

        for channel in range(config.channels):
            back, arrival = self.returns[channel], self.arrivals[channel]
            m.d.comb += [
                arrival.valid.eq(back.valid & (back.source == Source.DMA)),
                arrival.index.eq(back.id[:3]),
                arrival.slot.eq(back.id[3:]),
                arrival.data.eq(back.data),
            ]
        m.d.comb += [
            self.idle.eq(~block_waits & ~walker.sectors.valid),
            self.wake.eq(
                self.blocks.valid
                | Cat(port.valid for port in self.returns).any()
                | self.ranges.valid
                | self.sends.valid
                | self.clear
                | self.block_sent
                | ~self.idle
            ),
            self.events.busy.eq(~self.idle),
            self.events.reads.eq(step),
            self.events.packets.eq(self.slots.close),
            self.events.blocks.eq(step & walker.sectors.payload.end),
            self.events.waiting.eq(walker.sectors.valid & ~self.slots.room),
        ]
        with m.If(self.clear):
            m.d.sync += self.sent_blocks.eq(0)
        with m.Elif(self.block_sent):
            m.d.sync += self.sent_blocks.eq(self.sent_blocks + 1)
        return m

    def _describe(self, m: Module, transfer: data.View, block: data.View, table: RangeTable) -> None:
        """The transfer that `block` is, by its range's words."""
        row_bytes = Signal(16)
        row_sectors = Signal(ROW_SECTORS_BITS)
        wfs = Signal(TILES_BITS)
        present = Signal(TILES_BITS)
        geometry, label = transfer.geometry, transfer.label
        m.d.comb += [
            row_bytes.eq(Mux(block.right, table.row_bytes.right, table.row_bytes.body)),
            row_sectors.eq((row_bytes + SECTOR_BYTES - 1) >> SECTOR_BYTES.bit_length() - 1),
            wfs.eq(Mux(block.bottom, table.blocks.bottom_wfs, table.grouping.wfs)),
            present.eq(wfs - block.wf),
            transfer.va.eq(block.va),
            transfer.tile.eq(block.wf),
            transfer.tiles.eq(Mux(present < table.grouping.block_wfs, present, table.grouping.block_wfs)),
            geometry.row_sectors.eq(row_sectors),
            geometry.last_bytes.eq(row_bytes[:5]),
            geometry.rows.eq(table.rows.full),
            geometry.pitch.eq(table.pitch),
            geometry.stride.eq(table.wf_stride),
            geometry.ragged.eq(block.bottom),
            geometry.ragged_tile.eq(table.blocks.bottom_full),
            geometry.ragged_rows.eq(table.rows.partial),
            label.range.eq(block.range),
            label.wg.eq(block.wg),
            label.first.eq(table.control.first_send),
            label.count.eq(table.control.sends),
        ]

    def _read(self, m: Module, walker: Walker) -> Signal:
        """Read the sector of the walker; with the last one of a packet, close its slot. Returns "one is issued"."""
        config, slots = self._config, self.slots
        sector, label = walker.sectors.payload, walker.label
        channel = Signal(config.channel_bits)
        step = Signal()
        request = Signal(self._messages.memory_request)
        m.d.comb += [
            channel.eq(sector.va[3 : 3 + config.channel_bits]),
            request.access.eq(Access.READ),
            request.traffic_class.eq(label.traffic_class),
            request.source.eq(Source.DMA),
            request.id.eq(Cat(sector.place, slots.slot)),
            request.range.eq(label.range),
            request.wg.eq(label.wg),
            request.wf.eq(sector.tile),
            request.epoch.eq(label.epoch),
            request.va.eq(sector.va),
            request.mask.eq(Const(0xFFFFFFFF, 32)),
            step.eq(walker.sectors.valid & walker.sectors.ready),
        ]
        for number in range(config.channels):
            m.d.comb += [
                self.reads[number].valid.eq(walker.sectors.valid & slots.room & (channel == number)),
                self.reads[number].payload.eq(request),
            ]
            with m.If(channel == number):
                m.d.comb += walker.sectors.ready.eq(slots.room & self.reads[number].ready)

        packet = slots.packet
        m.d.comb += [
            slots.bank.eq(channel),
            slots.close.eq(step & sector.packet_end),
            packet.va.eq(sector.va - sector.place),
            packet.wf.eq(sector.tile),
            packet.length.eq(sector.place),
            packet.mask.eq(sector.mask),
            packet.mark.eq(sector.end),
            *(packet[name].eq(label[name]) for name in ("wg", "epoch", "first", "count")),
        ]
        with m.If(walker.transfers.valid & walker.transfers.ready):
            coming = walker.transfers.payload.label
            m.d.comb += [slots.upcoming.first.eq(coming.first), slots.upcoming.count.eq(coming.count)]
        with m.Else():
            m.d.comb += [slots.upcoming.first.eq(label.first), slots.upcoming.count.eq(label.count)]
        return step
