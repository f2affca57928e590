"""DMA engine: turns ready blocks into reads of their sectors and packets for its peers (T3 section 4.2.2).

A block is 1..8 WF tiles; a tile is rows of bytes at a pitch. Blocks wait by the port that they leave through first. The
engine says what a block is (:mod:`hw.dma.transfer`), the walker of its port walks it (:class:`hw.dma.walker.Walker`),
and walkers take turns at the reads (:class:`hw.dma.packet_reader.PacketReader`), one sector a cycle and only while
there is a packet slot for the data, so egress never blocks a read that was issued.
"""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from ..geometry import SECTOR_BYTES
from ..link.parameters import LinkParameters
from ..link.send_routes import SendRoutes
from ..link.slot_source import PacketSource
from ..link.wire import arrival_layout, sends_layout
from ..memory_window import WindowCheck, ends_in_window, in_window
from ..messages import Access, Fault, Messages, Source
from ..parameters import between
from ..primitives.queue import Queue
from ..primitives.round_robin import next_in_turn
from ..range_table import Blocks, Control, Grouping, RangeTable, RowBytes, Word, range_write
from ..send_table import SendControls, send_write
from ..word_table import kept_parity, mask_of
from .events import DmaEvents
from .lane_walker import LaneWalker
from .packet_reader import PacketReader, read_layout
from .transfer import ROW_SECTORS_BITS, TILES_BITS
from .walker import Walker

_WORDS = [
    Word.GROUPING,
    Word.BLOCKS,
    Word.ROWS,
    Word.ROW_BYTES,
    Word.PITCH,
    Word.WF_STRIDE,
]
_READ = {
    Word.GROUPING: mask_of(Grouping, "wfs", "block_wfs"),
    Word.BLOCKS: mask_of(Blocks, "bottom_wfs", "bottom_full"),
    # Sectors are counted as the word is written.
    Word.ROW_BYTES: 0x1F << 16 | 0x1F,
}
SKIPPED_BITS = 10
"""Width of the sends of all blocks that end at once without a sector: at most 63 for each of 15 ports."""
_FOUND = [Word.CONTROL, Word.BASE_LOW, Word.BASE_HIGH, Word.LIMIT_LOW, Word.LIMIT_HIGH]


@dataclass(frozen=True)
class DmaParameters(LinkParameters):
    """Of the DMA engine: it reads from `channels` memory channels into `dma_packets` packet slots of each; `dma_blocks`
    ready blocks wait for each port."""

    dma_blocks: int = between(4, 1, 64)


class DmaEngine(wiring.Component):
    """Reads the WF tiles of ready blocks into packet slots, from where they go to all sends of their range.

    Ports: `lane`: number of this lane if there are several, of whose channels it reads the sectors of a block;
    `ranges`, `sends`: programming buses; `window`: of this node's memory; `port_of`: port of each send; a range keeps
    that of its first send as of when its CONTROL is written; `armed`, `epoch`: the armed epoch, which a block keeps
    from the cycle in which it is taken; `blocks`, taken only while armed, `ready` depends on registers only; `reads`,
    `returns`: per channel, a read's `id` is {slot, place}; data of `source` DMA goes on to `arrivals` in the same
    cycle; `slots`: packets of up to 8 sectors that never cross an 8-sector boundary of the source, those of a port in
    the order of its blocks, closed with their last read; `events`; `idle`: no block or read waits or is walked;
    `block_sent`: a send of a block has left, counted in `sent_blocks` since `clear`; `faults`: a record OUTSIDE for
    each block that is not wholly in its range, or whose range is not valid or not wholly in the window: its rows up to
    the one that leaves the range are sent, none when that is the first; a record that meets an untaken one is dropped;
    `wake`: see :mod:`hw.primitives.clock_enable`; with protection of memories `tables_wrong`, a pulse: a word of a
    table that had a wrong bit was used for a block.

    While not armed, blocks that wait are dropped, and those being walked end with the packet that was begun, after 8
    reads of each port at most; what is in slots has the epoch in which it was read.

    In a lane of several, a block without sectors there counts as sent as often as it has sends. What is said of the
    latency and the rate is with :class:`hw.dma.lane_walker.LaneWalker` there.

    A row or tile count of 0 in the range table acts as 1, a row of 0 bytes is one sector. Latency: `blocks.valid` to
    the first read 2 cycles when idle. Rate: one read a cycle without bubbles between packets, rows and tiles of a port;
    two cycles between its blocks are left to other ports.
    """

    def __init__(self, config: DmaParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                **({"lane": In(config.lane_bits)} if config.lanes > 1 else {}),
                "ranges": In(range_write(config)),
                "sends": In(send_write(config)),
                "window": In(WindowCheck),
                "port_of": In(4).array(config.sends),
                "armed": In(1),
                "epoch": In(messages.epoch),
                "clear": In(1),
                "blocks": In(stream.Signature(messages.ready_block)),
                "reads": Out(stream.Signature(messages.memory_request)).array(config.lane_channels),
                "returns": In(messages.read_return).array(config.lane_channels),
                "slots": Out(PacketSource(config)),
                "arrivals": Out(arrival_layout(config)).array(config.lane_channels),
                "block_sent": In(1),
                "events": Out(DmaEvents),
                "faults": Out(stream.Signature(messages.fault_record)),
                "idle": Out(1),
                "wake": Out(1),
                "sent_blocks": Out(20),
                **({"tables_wrong": Out(1), "queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        wrong: list[Value] = []
        """What tables say of words that were used in the cycle before."""
        m.submodules.reader = reader = PacketReader(config)
        walkers = [LaneWalker(config) if config.lanes > 1 else Walker(config) for _ in range(config.links)]
        for number, walker in enumerate(walkers):
            m.submodules[f"walker_{number}"] = walker
            connect(m, walker.sectors, reader.sectors[number])
            m.d.comb += [reader.labels[number].eq(walker.label), walker.stop.eq(~self.armed)]
        connect(m, reader.slots, flipped(self.slots))
        reads = []
        for channel in range(config.lane_channels):
            reads.append(self._ask(m, channel, reader.reads[channel]))
            back, arrival = self.returns[channel], self.arrivals[channel]
            m.d.comb += [
                arrival.valid.eq(back.valid & (back.source == Source.DMA)),
                arrival.index.eq(back.id[:3]),
                arrival.slot.eq(back.id[3:]),
                arrival.data.eq(back.data),
            ]
        waiting, queues = self._take(m, walkers, reader, wrong)
        queues += reads
        absent, skipped = self._absent(m, walkers)
        walking = Signal()
        m.d.comb += [
            walking.eq(Cat(walker.walking for walker in walkers).any()),
            self.idle.eq(~waiting & ~walking & (Cat(queue.level for queue in reads) == 0)),
            self.wake.eq(
                self.blocks.valid
                | Cat(port.valid for port in self.returns).any()
                | self.ranges.valid
                | self.sends.valid
                | self.clear
                | self.block_sent
                | self.faults.valid
                | ~self.idle
                | Cat(wrong).any()
                | (Cat(queue.checking for queue in queues).any() if config.protects_memories else 0)
            ),
            self.events.busy.eq(~self.idle),
            self.events.reads.eq(reader.step),
            self.events.packets.eq(self.slots.close),
            self.events.blocks.eq(reader.block_ends + absent),
            self.events.waiting.eq(reader.waits),
        ]
        if config.protects_memories:
            m.d.comb += [
                self.tables_wrong.eq(Cat(wrong).any()),
                self.queues_wrong.eq(Cat(queue.wrong for queue in queues).any()),
            ]
        with m.If(self.clear):
            m.d.sync += self.sent_blocks.eq(0)
        with m.Elif(self.block_sent | (skipped != 0)):
            m.d.sync += self.sent_blocks.eq(self.sent_blocks + self.block_sent + skipped)
        return m

    def _ask(self, m: Module, channel: int, reads: stream.Interface) -> Queue:
        """Offer `channel` its reads. Whether it takes one is known late, and the walkers need not wait for that."""
        config, port = self._config, self.reads[channel]
        checked = config.protects_memories
        m.submodules[f"reads_{channel}"] = queue = Queue(read_layout(config), 2, bypass=True, checked=checked)
        connect(m, reads, queue.i)
        request = port.payload
        m.d.comb += [
            port.valid.eq(queue.o.valid),
            queue.o.ready.eq(port.ready),
            *(request[name].eq(queue.o.payload[name]) for name in queue.o.payload.shape().members),
            request.access.eq(Access.READ),
            request.source.eq(Source.DMA),
            request.mask.eq(Const(0xFFFFFFFF, 32)),
        ]
        return queue

    def _absent(self, m: Module, walkers: list[Walker | LaneWalker]) -> tuple[Value, Value]:
        """Blocks that turn out to have no sector in this lane, and the sends of those of the cycle before: they count
        as sent."""
        if self._config.lanes == 1:
            return Const(0, 0), Const(0, 0)
        skipped = Signal(SKIPPED_BITS)
        counts = [Mux(walker.label.count == 0, 1, walker.label.count) for walker in walkers]
        m.d.sync += skipped.eq(sum(Mux(walker.absent, count, 0) for walker, count in zip(walkers, counts, strict=True)))
        for walker in walkers:
            m.d.comb += walker.lane.eq(self.lane)
        return sum(walker.absent for walker in walkers), skipped

    def _take(
        self, m: Module, walkers: list[Walker | LaneWalker], reader: PacketReader, wrong: list[Value]
    ) -> tuple[Value, list[Queue]]:
        """Keep blocks by port, and give each to the walker of its port as soon as that has nothing to walk. Returns
        whether one waits, and the queues."""
        config, messages = self._config, self._messages
        kept = data.StructLayout({"block": messages.ready_block, "epoch": messages.epoch})
        # Whoever offers blocks need not wait for the port of one to be known.
        m.submodules.offered = offered = Queue(kept, 2, bypass=True, checked=config.protects_memories)
        m.d.comb += [
            offered.i.valid.eq(self.blocks.valid & self.armed),
            offered.i.payload.block.eq(self.blocks.payload),
            offered.i.payload.epoch.eq(self.epoch),
            self.blocks.ready.eq(offered.i.ready & self.armed),
        ]
        incoming = offered.o.payload
        port = self._port(m, offered.o, wrong)
        queues = []
        for number in range(config.links):
            m.submodules[f"queue_{number}"] = queue = Queue(kept, config.dma_blocks, checked=config.protects_memories)
            queues.append(queue)

        chosen = Signal(kept)
        chosen_valid = Signal()
        chosen_port = Signal(range(max(2, config.links)))
        free = Signal(config.links)
        """Walkers that have nothing to walk in the next cycle."""
        waiting = Signal(config.links)
        stored = Signal(config.links)
        next_port = Signal.like(chosen_port)
        straight = Signal()
        m.d.comb += [
            *(
                free[number].eq(~walker.walking & ~(chosen_valid & (chosen_port == number)))
                for number, walker in enumerate(walkers)
            ),
            stored.eq(Cat(queue.o.valid for queue in queues)),
            waiting.eq(stored & free),
            next_port.eq(chosen_port),
            # Nothing waits for a walker, so a block whose walker is free need not stand in a queue.
            straight.eq(~waiting.any() & (free & ~stored).bit_select(port, 1)),
        ]
        next_in_turn(m, "comb", next_port, waiting, chosen_port)
        with m.Switch(port):
            for number, queue in enumerate(queues):
                # A wrong bit may name a port that does not exist: the block is taken, so that it is told.
                with m.Case(number) if number < config.links - 1 else m.Default():
                    m.d.comb += [
                        offered.o.ready.eq(~self.armed | queue.i.ready),
                        queue.i.valid.eq(self.armed & offered.o.valid & ~straight),
                    ]
        upcoming = Signal(kept)
        m.d.sync += chosen.eq(upcoming)
        with m.Switch(next_port):
            for number, queue in enumerate(queues):
                with m.Case(number):
                    m.d.comb += [queue.o.ready.eq(waiting.any()), upcoming.eq(queue.o.payload)]
        for queue in queues:
            m.d.comb += queue.i.payload.eq(incoming)
            with m.If(~self.armed):
                m.d.comb += queue.o.ready.eq(1)
        with m.If(~waiting.any()):
            m.d.comb += upcoming.eq(incoming)
        chooses = Signal()
        m.d.comb += chooses.eq(self.armed & (waiting.any() | (straight & offered.o.valid)))
        m.d.sync += [
            chosen_valid.eq(chooses),
            chosen_port.eq(Mux(waiting.any(), next_port, port)),
        ]
        found = self._find(m, upcoming.block.range, chooses, wrong)
        self._walk(m, walkers, reader, chosen, chosen_valid, chosen_port, found, wrong)
        return Cat(offered.level != 0, stored, chosen_valid).any(), [offered, *queues]

    def _port(self, m: Module, offered: stream.Interface, wrong: list[Value]) -> Signal:
        """The port through which the block that is offered leaves first."""
        checked = self._config.protects_memories
        m.submodules.ports = ports = Memory(shape=unsigned(4 + checked), depth=self._config.ranges, init=[])
        write, read = ports.write_port(), ports.read_port(domain="comb")
        first = Control(self.ranges.data).first_send
        port = Signal(range(max(2, self._config.links)))
        m.d.comb += [
            write.addr.eq(self.ranges.index),
            write.en.eq(self.ranges.valid & (self.ranges.word == Word.CONTROL.value)),
            read.addr.eq(offered.payload.block.range),
        ]
        with m.Switch(first[: self._config.send_bits]):
            for send, leads in enumerate(self.port_of):
                with m.Case(send):
                    m.d.comb += write.data.eq(Cat(leads, kept_parity(self.ranges, leads)) if checked else leads)
        if checked:
            wrong.append(self._was_wrong(m, offered.valid & offered.ready & self.armed, read.data, "port"))
        if self._config.links > 1:
            m.d.comb += port.eq(read.data)
        return port

    @staticmethod
    def _was_wrong(m: Module, used: Value, word: Value, name: str) -> Value:
        """Whether `word`, with its parity, was `used` in the cycle before and had a wrong bit."""
        was_used = Signal(name=f"{name}_used")
        kept = Signal(len(word), name=f"{name}_kept")
        m.d.sync += [was_used.eq(used), kept.eq(word)]
        return was_used & kept.xor()

    def _walk(
        self,
        m: Module,
        walkers: list[Walker | LaneWalker],
        reader: PacketReader,
        chosen: data.View,
        chosen_valid: Signal,
        chosen_port: Signal,
        found: data.View,
        wrong: list[Value],
    ) -> None:
        """Describe the chosen block to the walker of its port, which takes it in this cycle."""
        m.submodules.table = table = RangeTable(self._config, _WORDS, _READ)
        m.submodules.sends = sends = SendControls(self._config, "traffic_class")
        m.submodules.routes = routes = SendRoutes(self._config)
        transfer = Signal(walkers[0].transfers.payload.shape())
        m.d.comb += [
            table.write.eq(self.ranges),
            table.index.eq(chosen.block.range),
            sends.write.eq(self.sends),
            sends.index.eq(found.first),
            transfer.label.traffic_class.eq(sends.control.traffic_class),
            transfer.label.epoch.eq(chosen.epoch),
            routes.sends.first.eq(found.first),
            routes.sends.count.eq(found.count),
            *(port.eq(known) for port, known in zip(routes.port_of, self.port_of, strict=True)),
            reader.coming.eq(routes.routes),
        ]
        if self._config.protects_memories:
            m.d.comb += [checked.used.eq(chosen_valid & self.armed) for checked in (table, sends)]
            wrong += [table.wrong, sends.wrong]
        inside = transfer.inside
        self._describe(m, transfer, chosen.block, table, found)
        for number, walker in enumerate(walkers):
            begins = Signal(name=f"begins_{number}")
            m.d.comb += [
                begins.eq(chosen_valid & (chosen_port == number) & self.armed),
                walker.transfers.valid.eq(begins),
                walker.transfers.payload.eq(transfer),
                reader.coming_valid[number].eq(begins),
            ]
        self._record(m, walkers, chosen, chosen_valid & self.armed & ~inside)

    def _record(self, m: Module, walkers: list[Walker | LaneWalker], chosen: data.View, refused: Value) -> None:
        """Leave a record of a block that leaves its range. One that waits is kept."""
        record = self.faults.payload
        with m.If(~self.faults.valid | self.faults.ready):
            m.d.sync += [
                self.faults.valid.eq(refused | Cat(walker.leaves for walker in walkers).any()),
                record.fault.eq(Fault.OUTSIDE),
                record.access.eq(Access.READ),
                record.va.eq(chosen.block.va),
                record.wg.eq(chosen.block.wg),
                record.wf.eq(chosen.block.wf),
            ]
            for walker in walkers:
                with m.If(walker.leaves):
                    m.d.sync += [
                        record.va.eq(walker.next_va),
                        record.wg.eq(walker.label.wg),
                        record.wf.eq(walker.next_tile),
                    ]

    def _describe(self, m: Module, transfer: data.View, block: data.View, table: RangeTable, found: data.View) -> None:
        """The transfer that `block` is, by its range's words."""
        row_bytes = Signal(16)
        row_sectors = Signal(ROW_SECTORS_BITS)
        wfs = Signal(TILES_BITS)
        present = Signal(TILES_BITS)
        geometry, label = transfer.geometry, transfer.label
        m.d.comb += [
            row_bytes.eq(Mux(block.right, table.row_bytes.right, table.row_bytes.body)),
            wfs.eq(Mux(block.bottom, table.blocks.bottom_wfs, table.grouping.wfs)),
            present.eq(wfs - block.wf),
            transfer.va.eq(block.va),
            transfer.tile.eq(block.wf),
            transfer.tiles.eq(Mux(present < table.grouping.block_wfs, present, table.grouping.block_wfs)),
            row_sectors.eq(Mux(block.right, found.right, found.body)),
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
            label.first.eq(found.first),
            label.count.eq(found.count),
        ]
        va_bits = self._config.va_sector_bits
        room, below = Signal(signed(va_bits + 2)), Signal(signed(va_bits + 1))
        m.d.comb += [
            room.eq(found.limit - block.va - row_sectors),
            below.eq(found.limit - row_sectors),
            transfer.last_row.eq(below),
            transfer.inside.eq(
                found.valid
                & (block.va >= found.base)
                & (room >= 0)
                & in_window(self._config, self.window, found.base)
                & ends_in_window(self._config, self.window, found.limit)
            ),
        ]

    def _find(self, m: Module, index: Value, used: Signal, wrong: list[Value]) -> data.View:
        """Of the range of the block that is chosen next, with `used`: whether it is valid, its sends, where it begins
        and ends, and the sectors in its rows (0 is 1): in registers, because reading and comparing do not fit into one
        cycle."""
        config = self._config
        checked = config.protects_memories
        rows = data.StructLayout({"body": ROW_SECTORS_BITS, "right": ROW_SECTORS_BITS, "parity": int(checked)})
        high = (1 << max(config.va_sector_bits - 32, 1)) - 1
        read_bits = {
            Word.CONTROL: mask_of(Control, "valid", "first_send", "sends"),
            Word.BASE_HIGH: high,
            Word.LIMIT_HIGH: high,
        }
        m.submodules.bounds = table = RangeTable(config, _FOUND, read_bits)
        m.submodules.row_sectors = kept = Memory(shape=rows, depth=config.ranges, init=[])
        write, read = kept.write_port(), kept.read_port(domain="comb")
        va = Messages(config).va
        # Counting sectors takes too long for what comes over the bus of a whole node in the same cycle.
        programmed = Signal(self.ranges.shape())
        said = RowBytes(programmed.data)
        found = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    **sends_layout(config).members,
                    "base": va,
                    "limit": va,
                    "body": ROW_SECTORS_BITS,
                    "right": ROW_SECTORS_BITS,
                }
            )
        )
        m.d.comb += [
            table.write.eq(self.ranges),
            table.index.eq(index),
            write.addr.eq(programmed.index),
            write.en.eq(programmed.valid & (programmed.word == Word.ROW_BYTES.value)),
            read.addr.eq(index),
        ]
        m.d.sync += [
            programmed.eq(self.ranges),
            found.valid.eq(table.control.valid),
            found.first.eq(table.control.first_send),
            found.count.eq(table.control.sends),
            found.base.eq(Cat(table.base_low, table.base_high)),
            found.limit.eq(Cat(table.limit_low, table.limit_high)),
        ]
        for name in ("body", "right"):
            m.d.comb += write.data[name].eq((said[name] + SECTOR_BYTES - 1) >> SECTOR_BYTES.bit_length() - 1)
            m.d.sync += found[name].eq(Mux(read.data[name] == 0, 1, read.data[name]))
        if checked:
            sectors = Cat(write.data.body, write.data.right)
            m.d.comb += [write.data.parity.eq(kept_parity(programmed, sectors)), table.used.eq(used)]
            wrong += [table.wrong, self._was_wrong(m, used, read.data.as_value(), "rows")]
        return found
