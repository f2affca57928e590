"""DMA trigger table of one Tracker bank: which WF tiles of each block are complete, and which blocks are ready.

A block is 1 to 8 WF tiles of one WG. The access that completes the last of them makes the block ready, with no
processor involved; the block carries range, wg and wf on to the destination's Tracker. Source: T3 section 4.2.2.
"""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from .parameters import TrackerParameters
from .ready_queue import ReadyQueue
from .tile_geometry import MAX_WFS, bank_block_bits, block_place


def completion(config: TrackerParameters) -> data.StructLayout:
    """A WF tile of `place` is complete; `va` is its lowest address."""
    return data.StructLayout(
        {
            "place": block_place(config),
            "range": unsigned(config.range_bits),
            "wg": unsigned(config.wg_bits),
            "va": unsigned(config.va_sector_bits),
            "right": unsigned(1),
        }
    )


class TriggerTable(wiring.Component):
    """`trigger_blocks / tracker_banks` entries: done mask and lowest address of a block.

    Ports: `lookup` with `lookup_index`; two cycles later `done` is the entry's mask, every earlier completion
    included, and `complete` with `completion` (same entry) may mark a WF tile. One lookup and one completion a cycle.
    The block that becomes complete is offered on `blocks` (when `dma` is set) and on `launches` (when `launch` is
    set) 2 cycles after `complete`. `doubled`: a WF tile was completed that was complete already (it changes nothing);
    it cannot happen in the Tracker, which asks first. `clear` starts a sweep that empties table and queues, one entry
    a cycle, as reset does; `cleared` is low until it is done. `waiting`: a ready block was not taken yet, or a
    completion is being entered.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        messages = Messages(config)
        index_bits = bank_block_bits(config)
        super().__init__(
            {
                "lookup": In(1),
                "lookup_index": In(index_bits),
                "done": Out(MAX_WFS),
                "complete": In(1),
                "completion": In(completion(config)),
                "blocks": Out(stream.Signature(messages.ready_block)),
                "launches": Out(stream.Signature(messages.launch_event)),
                "doubled": Out(1),
                "waiting": Out(1),
                "clear": In(1),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        index_bits = bank_block_bits(config)
        depth = 1 << index_bits
        entry = data.StructLayout({"done": unsigned(MAX_WFS), "va": unsigned(config.va_sector_bits)})
        m.submodules.entries = entries = Memory(shape=entry, depth=depth, init=[])
        write = entries.write_port()
        read = entries.read_port()

        sweeping = Signal(init=1)
        swept = Signal(index_bits)
        m.d.comb += self.cleared.eq(~sweeping)
        with m.If(sweeping):
            m.d.sync += swept.eq(swept + 1)
            with m.If(swept == depth - 1):
                m.d.sync += sweeping.eq(0)
        with m.Elif(self.clear):
            m.d.sync += sweeping.eq(1)

        # The entry as the completions before it leave it: one is being marked, one was written in the cycle before. The
        # memory may return anything for an address that is written in the same cycle.
        marking = Signal()
        written = Signal()
        marked = Signal(completion(config))
        before = Signal(entry)
        after = Signal(entry)
        written_index = Signal(index_bits)
        written_entry = Signal(entry)
        read_index = Signal(index_bits)
        captured = Signal(entry)
        marked_is_captured = Signal()
        current = Signal(entry)
        m.d.comb += [read.en.eq(self.lookup), read.addr.eq(self.lookup_index), self.done.eq(current.done)]
        m.d.sync += [
            marking.eq(self.complete),
            written.eq(marking),
            read_index.eq(self.lookup_index),
            marked_is_captured.eq(self.completion.place.index == read_index),
        ]
        with m.If(marking):
            m.d.sync += [written_index.eq(marked.place.index), written_entry.eq(after)]
        with m.If(marking & (marked.place.index == read_index)):
            m.d.sync += captured.eq(after)
        with m.Elif(written & (written_index == read_index)):
            m.d.sync += captured.eq(written_entry)
        with m.Else():
            m.d.sync += captured.eq(read.data)
        with m.If(marking & marked_is_captured):
            m.d.comb += current.eq(after)
        with m.Else():
            m.d.comb += current.eq(captured)
        # Whether a tile is complete comes late: what is marked is taken in every cycle, and used if it is.
        m.d.sync += [marked.eq(self.completion), before.eq(current)]

        # Mark the tile and see whether its block is complete.
        bit = Signal(MAX_WFS)
        again = Signal()
        ready = Signal()
        m.d.comb += [
            bit.eq(1 << marked.place.position),
            again.eq((before.done & bit).any()),
            after.done.eq(before.done | bit),
            after.va.eq(Mux(before.done.any() & (before.va < marked.va), before.va, marked.va)),
            ready.eq(marking & ~again & (after.done == marked.place.needed)),
            self.doubled.eq(marking & again),
            write.en.eq(marking | sweeping),
            write.addr.eq(Mux(sweeping, swept, marked.place.index)),
        ]
        with m.If(~sweeping):
            m.d.comb += write.data.eq(after)

        messages = Messages(config)
        m.submodules.blocks = blocks = ReadyQueue(messages.ready_block, depth)
        m.submodules.launches = launches = ReadyQueue(messages.launch_event, depth)
        wiring.connect(m, blocks.output, wiring.flipped(self.blocks))
        wiring.connect(m, launches.output, wiring.flipped(self.launches))
        block = blocks.item
        m.d.comb += [
            block.range.eq(marked.range),
            block.wg.eq(marked.wg),
            block.wf.eq(marked.place.first_wf),
            block.va.eq(after.va),
            block.bottom.eq(marked.place.bottom),
            block.right.eq(marked.right),
            blocks.push.eq(ready & marked.place.dma),
            blocks.clear.eq(self.clear),
            launches.item.range.eq(marked.range),
            launches.item.wg.eq(marked.wg),
            launches.item.wf.eq(marked.place.first_wf),
            launches.push.eq(ready & marked.place.launch),
            launches.clear.eq(self.clear),
            self.waiting.eq(blocks.waiting | launches.waiting | marking),
        ]
        return m
