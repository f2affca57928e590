"""DMA engine: turns ready blocks into reads of their sectors and link packets to the neighbour (T3 section 4.2.2).

A block is 1..8 WF tiles; a tile is rows of bytes at a pitch. The engine walks tiles, rows and sectors, one read a
cycle, and only while a packet buffer is open for the data, so egress never blocks a read that was issued.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import SECTOR_BYTES, Configuration
from ..events import DmaEvents
from ..link.packet_buffer import PacketBuffer, slot_bits
from ..messages import Access, Messages, Source
from ..range_table import Control, RangeTable, RangeWrite, Word

SECTORS_BITS = 12
"""Width of the number of sectors in a row (ROW_BYTES is 16 bits)."""

_WORDS = [
    Word.CONTROL,
    Word.OFFSET_LOW,
    Word.OFFSET_HIGH,
    Word.GROUPING,
    Word.BLOCKS,
    Word.ROWS,
    Word.ROW_BYTES,
    Word.PITCH,
    Word.WF_STRIDE,
]


class DmaEngine(wiring.Component):
    """Reads the WF tiles of ready blocks and sends them to the peer of their range.

    Ports: `ranges`: programming bus; `armed`, `epoch`: the armed epoch, which a block keeps from the cycle in which it
    is taken; `rank`: goes into the headers; `blocks`, taken only while armed; `reads`, `returns`: per channel,
    a read's `id` is {buffer, place}; data of `source` DMA is taken at once; `packets`: header flit (`check` 0) and data
    flits, packets of up to 8 sectors that never cross an 8-sector boundary of the source, in the order of the reads;
    `events`; `idle`; `sent_blocks`: blocks whose last flit has left since `clear`.

    While not armed, a block that waits is dropped, and one being walked ends with the packet that was begun, after 8
    reads at most; what is in the packet buffers leaves under the epoch in which it was read.

    A row, tile or byte count of 0 in the range table acts as 1. Latency: `blocks.valid` to the first read 2 cycles when
    idle; last data to header flit 1 cycle. Rate: one read a cycle without bubbles between packets, rows, tiles, and
    blocks of more than one sector.
    """

    def __init__(self, config: Configuration):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "armed": In(1),
                "epoch": In(messages.epoch),
                "rank": In(6),
                "clear": In(1),
                "blocks": In(stream.Signature(messages.ready_block)),
                "reads": Out(stream.Signature(messages.memory_request)).array(config.channels),
                "returns": In(messages.read_return).array(config.channels),
                "packets": Out(stream.Signature(messages.link_flit)),
                "events": Out(DmaEvents),
                "idle": Out(1),
                "sent_blocks": Out(20),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        packets = config.dma_packets
        m.submodules.buffer = buffer = PacketBuffer(config, packets, config.channels)
        connect(m, buffer.packets, flipped(self.packets))

        m.submodules.table = table = RangeTable(config, _WORDS)
        waiting_block = Signal(messages.ready_block)
        waiting_epoch = Signal(messages.epoch)
        block_waits = Signal()
        walk = Signal(self._walk_layout())
        walking = Signal()
        load = Signal()
        step = Signal()
        block_end = Signal()

        m.d.comb += [
            table.write.eq(self.ranges),
            table.index.eq(waiting_block.range),
            self.blocks.ready.eq(~block_waits & self.armed),
            load.eq(block_waits & self.armed & (~walking | (step & block_end))),
        ]
        with m.If(load | ~self.armed):
            m.d.sync += block_waits.eq(0)
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += [
                block_waits.eq(1),
                waiting_block.eq(self.blocks.payload),
                waiting_epoch.eq(self.epoch),
            ]

        self._walk(m, walk, walking, step, block_end)
        with m.If(load):
            self._load(m, walk, waiting_block, table)
            m.d.sync += [walking.eq(1), walk.epoch.eq(waiting_epoch)]
        with m.Elif(step & (block_end | (buffer.closing.valid & ~self.armed))):
            m.d.sync += walking.eq(0)
        self._read(m, walk, walking, step, block_end, buffer)

        for channel in range(config.channels):
            back, arrival = self.returns[channel], buffer.arrivals[channel]
            m.d.comb += [
                arrival.valid.eq(back.valid & (back.source == Source.DMA)),
                arrival.index.eq(back.id[:3]),
                arrival.slot.eq(back.id[3 : 3 + slot_bits(packets)]),
                arrival.data.eq(back.data),
            ]

        block_sent = Signal()
        m.d.comb += [
            block_sent.eq(buffer.sent & buffer.sent_mark),
            self.idle.eq(~block_waits & ~walking & buffer.empty),
            self.events.busy.eq(~self.idle),
            self.events.reads.eq(step),
            self.events.packets.eq(buffer.sent),
            self.events.blocks.eq(block_sent),
            self.events.waiting.eq(walking & ~buffer.room),
        ]
        with m.If(self.clear):
            m.d.sync += self.sent_blocks.eq(0)
        with m.Elif(block_sent):
            m.d.sync += self.sent_blocks.eq(self.sent_blocks + 1)
        return m

    def _walk_layout(self) -> data.StructLayout:
        """State of the walk: where it is, and the geometry of the block as read from the range table."""
        messages = self._messages
        return data.StructLayout(
            {
                "va": messages.va,
                "place": unsigned(3),
                "sectors_left": unsigned(SECTORS_BITS),
                "row_va": messages.va,
                "rows_left": unsigned(16),
                "tile_va": messages.va,
                "tiles_left": unsigned(4),
                "wf": messages.wf,
                "range": unsigned(self._config.range_bits),
                "wg": messages.wg,
                "epoch": messages.epoch,
                "bottom": unsigned(1),
                "bottom_full": unsigned(4),
                "rows_full": unsigned(16),
                "rows_partial": unsigned(16),
                "row_sectors": unsigned(SECTORS_BITS),
                "last_bytes": unsigned(5),
                "pitch": unsigned(32),
                "wf_stride": unsigned(32),
                "offset": messages.va,
                "control": Control,
            }
        )

    def _load(self, m: Module, walk: data.View, block: data.View, table: RangeTable) -> None:
        """Start the walk of `block`: geometry from the range table."""
        row_bytes = Signal(16)
        row_sectors = Signal(SECTORS_BITS)
        wfs = Signal(4)
        present = Signal(4)
        m.d.comb += [
            row_bytes.eq(Mux(block.right, table.row_bytes.right, table.row_bytes.body)),
            row_sectors.eq((row_bytes + SECTOR_BYTES - 1) >> SECTOR_BYTES.bit_length() - 1),
            wfs.eq(Mux(block.bottom, table.blocks.bottom_wfs, table.grouping.wfs)),
            present.eq(wfs - block.wf),
        ]
        m.d.sync += [
            walk.va.eq(block.va),
            walk.place.eq(0),
            walk.sectors_left.eq(row_sectors),
            walk.row_va.eq(block.va),
            walk.rows_left.eq(
                Mux(block.bottom & (table.blocks.bottom_full == block.wf), table.rows.partial, table.rows.full)
            ),
            walk.tile_va.eq(block.va),
            walk.tiles_left.eq(Mux(present < table.grouping.block_wfs, present, table.grouping.block_wfs)),
            walk.wf.eq(block.wf),
            walk.range.eq(block.range),
            walk.wg.eq(block.wg),
            walk.bottom.eq(block.bottom),
            walk.bottom_full.eq(table.blocks.bottom_full),
            walk.rows_full.eq(table.rows.full),
            walk.rows_partial.eq(table.rows.partial),
            walk.row_sectors.eq(row_sectors),
            walk.last_bytes.eq(row_bytes[:5]),
            walk.pitch.eq(table.pitch),
            walk.wf_stride.eq(table.wf_stride),
            walk.offset.eq(Cat(table.offset_low, table.offset_high)),
            walk.control.eq(table.control),
        ]

    def _walk(self, m: Module, walk: data.View, walking: Signal, step: Signal, block_end: Signal) -> None:
        """Move to the next sector of the block: along the row, to the next row, to the next WF tile."""
        row_end = Signal()
        tile_end = Signal()
        next_row = Signal(self._config.va_sector_bits)
        next_tile = Signal(self._config.va_sector_bits)
        next_wf = Signal(4)
        m.d.comb += [
            row_end.eq(walk.sectors_left[1:] == 0),
            tile_end.eq(row_end & (walk.rows_left[1:] == 0)),
            block_end.eq(tile_end & (walk.tiles_left[1:] == 0)),
            next_row.eq(walk.row_va + walk.pitch),
            next_tile.eq(walk.tile_va + walk.wf_stride),
            next_wf.eq(walk.wf + 1),
        ]
        with m.If(step):
            with m.If(row_end):
                m.d.sync += [walk.sectors_left.eq(walk.row_sectors), walk.place.eq(0)]
                with m.If(tile_end):
                    m.d.sync += [
                        walk.va.eq(next_tile),
                        walk.row_va.eq(next_tile),
                        walk.tile_va.eq(next_tile),
                        walk.rows_left.eq(
                            Mux(walk.bottom & (walk.bottom_full == next_wf), walk.rows_partial, walk.rows_full)
                        ),
                        walk.tiles_left.eq(walk.tiles_left - 1),
                        walk.wf.eq(next_wf),
                    ]
                with m.Else():
                    m.d.sync += [
                        walk.va.eq(next_row),
                        walk.row_va.eq(next_row),
                        walk.rows_left.eq(walk.rows_left - 1),
                    ]
            with m.Else():
                m.d.sync += [
                    walk.va.eq(walk.va + 1),
                    walk.sectors_left.eq(walk.sectors_left - 1),
                    walk.place.eq(Mux(walk.va[:3] == 7, 0, walk.place + 1)),
                ]

    def _read(
        self, m: Module, walk: data.View, walking: Signal, step: Signal, block_end: Signal, buffer: PacketBuffer
    ) -> None:
        """Issue the read of the walk's sector; with the last sector of a packet, close its buffer."""
        config = self._config
        channel = Signal(config.channel_bits)
        request = Signal(self._messages.memory_request)
        m.d.comb += [
            channel.eq(walk.va[3 : 3 + config.channel_bits]),
            request.access.eq(Access.READ),
            request.phase.eq(walk.control.phase),
            request.source.eq(Source.DMA),
            request.id.eq(Cat(walk.place, buffer.slot)),
            request.range.eq(walk.range),
            request.wg.eq(walk.wg),
            request.wf.eq(walk.wf),
            request.epoch.eq(walk.epoch),
            request.va.eq(walk.va),
            request.mask.eq(Const(0xFFFFFFFF, 32)),
        ]
        for number in range(config.channels):
            m.d.comb += [
                self.reads[number].valid.eq(walking & buffer.room & (channel == number)),
                self.reads[number].payload.eq(request),
            ]
            with m.If(channel == number):
                m.d.comb += step.eq(walking & buffer.room & self.reads[number].ready)

        row_end = Signal()
        header = buffer.closing.header
        m.d.comb += [
            row_end.eq(walk.sectors_left[1:] == 0),
            buffer.closing.valid.eq(step & (row_end | (walk.va[:3] == 7))),
            buffer.closing.mark.eq(block_end),
            buffer.closing.bank.eq(channel),
            header.va.eq(walk.va - walk.place + walk.offset),
            header.wg.eq(walk.wg),
            header.wf.eq(walk.wf),
            header.access.eq(walk.control.remote_access),
            header.alu.eq(walk.control.alu),
            header.dtype.eq(walk.control.dtype),
            header.phase.eq(walk.control.phase),
            header.epoch.eq(walk.epoch),
            header.length.eq(walk.place),
            header.source.eq(self.rank),
            header.destination.eq(walk.control.peer),
        ]
        with m.If(row_end & (walk.last_bytes != 0)):
            m.d.comb += header.mask.eq((Const(1, 32) << walk.last_bytes) - 1)
        with m.Else():
            m.d.comb += header.mask.eq(Const(0xFFFFFFFF, 32))
