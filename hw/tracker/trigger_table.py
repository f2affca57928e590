"""DMA trigger table of one Tracker bank: which WF tiles of each block are complete, and which blocks are ready.

A block is 1 to 8 WF tiles of one WG. The access that completes the last of them makes the block ready, with no
processor involved; the block carries range, wg and wf on to the destination's Tracker. Source: T3 section 4.2.2.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..next_word_upset import NextWordUpset
from ..primitives.secded import check_bits, check_width, is_lost, syndrome, wrong_bits
from ..protection import MemoryReport, MemoryUpset, ProtectedMemory, turned_bits
from .parameters import TrackerParameters
from .protected_queue import ProtectedReadyQueue
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


MASK_CODE = MAX_WFS + check_width(MAX_WFS)
"""Bits of a done mask and its check bits."""


class TriggerTable(wiring.Component):
    """`trigger_blocks / tracker_banks` entries: done mask and lowest address of a block.

    Ports: `lookup` with `lookup_index`; two cycles later `done` is the entry's mask, every earlier completion
    included, and `complete` with `completion` (same entry) may mark a WF tile. One lookup and one completion a cycle.
    The block that becomes complete is offered on `blocks` (when `dma` is set) and on `launches` (when `launch` is
    set) 2 cycles after `complete`. `doubled`: a WF tile was completed that was complete already (it changes nothing);
    it cannot happen in the Tracker, which asks first. `clear` starts what empties table and queues, one entry
    a cycle, as reset does; `cleared` is low until it is done. `waiting`: a ready block was not taken yet, or a
    completion is being entered.

    With protection of memories the mask and the address of an entry have check bits each, and one wrong bit of either
    is put right before `done` and what is marked are made of them; of a mask that is lost every bit is set before
    anything is triggered by it; ready blocks and launches that wait have check bits too. `scrub` (pulse): look at the
    next entry in the next cycle without a lookup; `upset`, for what is stored here; `report`: an error was met, first
    by anybody, 4 cycles after its lookup, and the entry is written back when the port is free; `block_report`,
    `launch_report`: of what waited.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        messages = Messages(config)
        index_bits = bank_block_bits(config)
        protected = {
            "scrub": In(1),
            "upset": In(MemoryUpset),
            "report": Out(MemoryReport),
            "block_report": Out(MemoryReport),
            "launch_report": Out(MemoryReport),
        }
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
                **(protected if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        index_bits = bank_block_bits(config)
        depth = 1 << index_bits
        entry = data.StructLayout({"done": unsigned(MAX_WFS), "va": unsigned(config.va_sector_bits)})
        checked = config.protects_memories
        m.submodules.entries = entries = Memory(
            shape=unsigned(config.va_sector_bits + check_width(config.va_sector_bits) if checked else entry.size),
            depth=depth,
            init=[],
        )
        write = entries.write_port()
        read = entries.read_port()

        clearing = Signal(init=1)
        clear_index = Signal(index_bits)
        m.d.comb += self.cleared.eq(~clearing)
        with m.If(clearing):
            m.d.sync += clear_index.eq(clear_index + 1)
            with m.If(clear_index == depth - 1):
                m.d.sync += clearing.eq(0)
        with m.Elif(self.clear):
            m.d.sync += clearing.eq(1)

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
        repair = Signal()
        repaired_index = Signal(index_bits)
        write_index = Mux(repair, repaired_index, marked.place.index)
        meant = captured
        """What is captured, without its wrong bit."""
        read_entry = read.data
        before_done = before.done
        m.d.comb += [read.en.eq(self.lookup), read.addr.eq(self.lookup_index), self.done.eq(current.done)]
        m.d.sync += [
            marking.eq(self.complete),
            written.eq(marking | repair),
            read_index.eq(read.addr),
            marked_is_captured.eq(self.completion.place.index == read_index),
        ]
        if checked:
            # What is wrong of a mask must be known early: it is in a memory of its own, which is smaller.
            m.submodules.masks = masks = Memory(shape=unsigned(MASK_CODE), depth=depth, init=[])
            mask_write = masks.write_port()
            mask_read = masks.read_port()
            m.d.comb += [mask_write.en.eq(write.en), mask_write.addr.eq(write.addr)]
            m.d.comb += [mask_read.en.eq(read.en), mask_read.addr.eq(read.addr)]
            read_entry = Cat(mask_read.data[:MAX_WFS], read.data[: config.va_sector_bits])
            lost = Signal()
            before_done = before.done | lost.replicate(MAX_WFS)
        with m.If(marking | repair):
            m.d.sync += [
                written_index.eq(write_index),
                written_entry.eq(Mux(repair, Cat(before_done, before.va), after)),
            ]
        with m.If(marking & (marked.place.index == read_index)):
            m.d.sync += captured.eq(after)
        with m.Elif(written & (written_index == read_index)):
            m.d.sync += captured.eq(written_entry)
        with m.Else():
            m.d.sync += captured.eq(read_entry)
        if checked:
            kept = marking & (marked.place.index == read_index) | written & (written_index == read_index)
            meant = Signal(entry)
            mends, flips, mask_lost = self._mend(
                m, (mask_read, read), kept, captured, meant, marking, (repair, repaired_index)
            )
            m.d.sync += lost.eq(mask_lost & ~(marking & marked_is_captured))
        with m.If(marking & marked_is_captured):
            m.d.comb += current.eq(after)
        with m.Else():
            m.d.comb += current.eq(meant)
        # Whether a tile is complete comes late: what is marked is taken in every cycle, and used if it is.
        m.d.sync += [marked.eq(self.completion), before.eq(current)]

        # Mark the tile and see whether its block is complete.
        bit = Signal(MAX_WFS)
        again = Signal()
        ready = Signal()
        lower = Signal()
        m.d.comb += [
            lower.eq(before_done.any() & (before.va < marked.va)),
            bit.eq(1 << marked.place.position),
            again.eq((before_done & bit).any()),
            after.done.eq(before_done | bit),
            after.va.eq(Mux(lower, before.va, marked.va)),
            ready.eq(marking & ~again & (after.done == marked.place.needed)),
            self.doubled.eq(marking & again),
            write.en.eq(marking | clearing | repair),
            write.addr.eq(Mux(clearing, clear_index, write_index)),
        ]
        written_word: Value = after.as_value()
        if checked:
            # Of both addresses, while they are compared. Bits are turned of what is written back only.
            done = Mux(repair, before_done, after.done)
            stays = Cat(before.va, check_bits(before.va)) ^ flips[MASK_CODE:]
            written_word = Mux(lower | repair, stays, Cat(marked.va, check_bits(marked.va)))
            m.d.comb += write.en.eq(marking | clearing | mends)
            with m.If(~clearing):
                m.d.comb += mask_write.data.eq(Cat(done, check_bits(done)) ^ flips[:MASK_CODE])
        with m.If(~clearing):
            m.d.comb += write.data.eq(written_word)

        messages = Messages(config)
        make_queue = ProtectedReadyQueue if checked else ReadyQueue
        m.submodules.blocks = blocks = make_queue(messages.ready_block, depth)
        m.submodules.launches = launches = make_queue(messages.launch_event, depth)
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
        if checked:
            for queue, memory, report in (
                (blocks, ProtectedMemory.READY_BLOCKS, self.block_report),
                (launches, ProtectedMemory.READY_LAUNCHES, self.launch_report),
            ):
                turns = NextWordUpset(memory, len(queue.flips))
                m.submodules[f"upset_{memory.name.lower()}"] = turns
                m.d.comb += [
                    turns.upset.eq(self.upset),
                    turns.stored.eq(queue.stored),
                    queue.flips.eq(turns.flips),
                    report.eq(queue.report),
                ]
        return m

    def _mend(
        self,
        m: Module,
        ports: tuple[ReadPort, ReadPort],
        kept: Value,
        captured: data.View,
        meant: data.View,
        marking: Signal,
        repair: tuple[Signal, Signal],
    ) -> tuple[Value, Value, Value]:
        """Puts right what `ports` gave of masks and addresses, unless what is captured was `kept` outside of them.

        Reads words of its own when nobody else does, and has what was wrong written back (`repair` at an index: it
        could be, a cycle after `meant`, unless `marking`). Returns whether it is, which bits of it are to be turned,
        and whether the mask captured is lost."""
        mask_read, read = ports
        index_bits = len(self.lookup_index)
        va_bits = self._config.va_sector_bits
        mask_found = Signal(check_width(MAX_WFS))
        done_flips = Signal(MAX_WFS)
        va_check = Signal(check_width(va_bits))
        va_found = Signal(check_width(va_bits))
        read_before = Signal(2)
        """Bit n: something was looked up n + 1 cycles ago."""
        fresh = Signal()
        """What is captured comes out of the memory."""
        seen_index = Signal(index_bits)
        found = syndrome(mask_read.data[:MAX_WFS], mask_read.data[MAX_WFS:])
        m.d.sync += [
            read_before.eq(Cat(read.en, read_before)),
            fresh.eq(~kept),
            mask_found.eq(found),
            done_flips.eq(wrong_bits(found, MAX_WFS) & ~kept.replicate(MAX_WFS)),
            va_check.eq(read.data[va_bits:]),
        ]
        m.d.comb += [
            va_found.eq(syndrome(captured.va, va_check)),
            meant.done.eq(captured.done ^ done_flips),
            meant.va.eq(captured.va ^ (wrong_bits(va_found, va_bits) & fresh.replicate(va_bits))),
        ]
        # What it means is told a cycle later: `met` is what was found of `met_index`, if it came out of the memory.
        met = Signal(len(mask_found) + len(va_found))
        met_mask, met_va = met[: len(mask_found)], met[len(mask_found) :]
        wrong = Signal()
        lost = Signal()
        m.d.sync += met.eq(Cat(mask_found, va_found) & (read_before[1] & fresh).replicate(len(met)))
        m.d.comb += [
            wrong.eq(met.any()),
            lost.eq(is_lost(met_mask, MAX_WFS) | is_lost(met_va, va_bits)),
        ]

        # In the cycle after next a word of our own is here; it is written back in the one behind, if the port is free.
        suspected = Signal()
        suspect = Signal(index_bits)
        due = Signal()
        next_index = Signal(index_bits)
        turning = Signal()
        turned_index = Signal(index_bits)
        slots = Signal(3)
        slot_index = Signal(index_bits)
        slot_turns = Signal()
        reads = Signal()
        own_index = Signal(index_bits)
        m.d.comb += [
            reads.eq(~self.lookup & ~slots.any() & self.cleared & (suspected | turning | due)),
            own_index.eq(Mux(suspected, suspect, Mux(turning, turned_index, next_index))),
        ]
        with m.If(reads):
            m.d.comb += [read.en.eq(1), read.addr.eq(own_index)]
            m.d.sync += [slot_index.eq(own_index), slot_turns.eq(turning & ~suspected)]
        meant_index = Signal(index_bits)
        met_index = Signal(index_bits)
        m.d.sync += [
            slots.eq(Cat(reads, slots)),
            seen_index.eq(read.addr),
            meant_index.eq(seen_index),
            met_index.eq(meant_index),
        ]
        port_free, repaired_index = repair
        turns = Signal()
        mends = Signal()
        m.d.comb += [
            port_free.eq(slots[2] & ~marking & self.cleared),
            repaired_index.eq(slot_index),
            turns.eq(port_free & slot_turns & ~self.upset.valid),
            mends.eq(turns | (port_free & wrong)),
        ]
        with m.If(self.scrub):
            m.d.sync += due.eq(1)
        with m.If(slots[2] & (~wrong | mends)):
            with m.If(suspected & (suspect == slot_index)):
                m.d.sync += suspected.eq(0)
            with m.Elif(slot_turns):
                m.d.sync += turning.eq(~turns)
            with m.Elif(slot_index == next_index):
                m.d.sync += [due.eq(0), next_index.eq(next_index + 1)]
        known = Signal()
        m.d.comb += known.eq(suspected & (suspect == met_index))
        with m.If(wrong & ~suspected & ~mends):
            m.d.sync += [suspected.eq(1), suspect.eq(met_index)]
        with m.If(self.upset.valid):
            m.d.sync += turning.eq(self.upset.memory == ProtectedMemory.TRIGGERS)
            # What is read for the request before serves it no more.
            m.d.sync += slot_turns.eq(0)
            m.d.sync += [turned_index.eq(self.upset.address)]
        m.d.sync += [
            self.report.corrected.eq(wrong & ~lost & ~known),
            self.report.lost.eq(lost),
            self.report.address.eq(met_index),
        ]
        with m.If(self.clear | ~self.cleared):
            m.d.sync += [suspected.eq(0), due.eq(0)]
        flips = Mux(turns, turned_bits(self.upset), 0)
        return mends, flips[: len(mask_read.data) + len(read.data)], is_lost(mask_found, MAX_WFS) & fresh
