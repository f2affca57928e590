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
from ..primitives.secded import Corrector, check_bits, check_width, is_lost, syndrome, wrong_bits
from ..protection import MemoryReport, MemoryUpset, ProtectedMemory, turned_bits
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


def _apart(entry: data.StructLayout, word: Value) -> Value:
    """The done mask and the address in `word`, as it is stored, without their check bits."""
    if len(word) == entry.size:
        return word
    first = MAX_WFS + check_width(MAX_WFS)
    return Cat(word[:MAX_WFS], word[first : first + entry.size - MAX_WFS])


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
    is put right before `done` and what is marked are made of them; of a mask that is lost every bit is set, so that
    nothing is triggered; ready blocks and launches that wait have check bits too. `scrub` (pulse): look at the next
    entry in the next cycle without a lookup; `upset`, for what is stored here; `report`: an error was met, first by
    anybody, 3 cycles after its lookup, and the entry is written back when the port is free; `block_report`,
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
        stored = entry.size + (check_width(MAX_WFS) + check_width(config.va_sector_bits) if checked else 0)
        m.submodules.entries = entries = Memory(shape=unsigned(stored), depth=depth, init=[])
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
        m.d.comb += [read.en.eq(self.lookup), read.addr.eq(self.lookup_index), self.done.eq(current.done)]
        m.d.sync += [
            marking.eq(self.complete),
            written.eq(marking | repair),
            read_index.eq(read.addr),
            marked_is_captured.eq(self.completion.place.index == read_index),
        ]
        with m.If(marking | repair):
            m.d.sync += [written_index.eq(write_index), written_entry.eq(Mux(repair, before, after))]
        with m.If(marking & (marked.place.index == read_index)):
            m.d.sync += captured.eq(after)
        with m.Elif(written & (written_index == read_index)):
            m.d.sync += captured.eq(written_entry)
        with m.Else():
            m.d.sync += captured.eq(_apart(entry, read.data))
        if checked:
            kept = marking & (marked.place.index == read_index) | written & (written_index == read_index)
            meant = Signal(entry)
            flips = self._mend(m, read, kept, captured, meant, marking, (repair, repaired_index))
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
            lower.eq(before.done.any() & (before.va < marked.va)),
            bit.eq(1 << marked.place.position),
            again.eq((before.done & bit).any()),
            after.done.eq(before.done | bit),
            after.va.eq(Mux(lower, before.va, marked.va)),
            ready.eq(marking & ~again & (after.done == marked.place.needed)),
            self.doubled.eq(marking & again),
            write.en.eq(marking | clearing | repair),
            write.addr.eq(Mux(clearing, clear_index, write_index)),
        ]
        written_word: Value = after.as_value()
        if checked:
            # Of both addresses, while they are compared.
            va_check = Mux(lower | repair, check_bits(before.va), check_bits(marked.va))
            done, va = Mux(repair, before.done, after.done), Mux(repair, before.va, after.va)
            written_word = Cat(done, check_bits(done), va, va_check) ^ flips
        with m.If(~clearing):
            m.d.comb += write.data.eq(written_word)

        messages = Messages(config)
        m.submodules.blocks = blocks = ReadyQueue(messages.ready_block, depth, checked)
        m.submodules.launches = launches = ReadyQueue(messages.launch_event, depth, checked)
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
            other = Signal.like(block)
            m.d.comb += [other.eq(block), other.va.eq(before.va)]
            own = Signal.like(block)
            m.d.comb += [own.eq(block), own.va.eq(marked.va)]
            m.d.comb += [
                blocks.check.eq(Mux(lower, check_bits(other.as_value()), check_bits(own.as_value()))),
                launches.check.eq(check_bits(launches.item.as_value())),
            ]
            for queue, memory, report in (
                (blocks, ProtectedMemory.READY_BLOCKS, self.block_report),
                (launches, ProtectedMemory.READY_LAUNCHES, self.launch_report),
            ):
                self._turn_next(m, queue, memory)
                m.d.comb += report.eq(queue.report)
        return m

    def _mend(
        self,
        m: Module,
        read: ReadPort,
        kept: Value,
        captured: data.View,
        meant: data.View,
        marking: Signal,
        repair: tuple[Signal, Signal],
    ) -> Value:
        """Puts right what `read` gave, unless what is captured was `kept` outside of the memory; reads words of its own
        when nobody else does, and has what was wrong written back (`repair` at an index, a cycle after `meant`, unless
        `marking`); returns which bits of it are to be turned."""
        index_bits = len(self.lookup_index)
        va_bits, first = self._config.va_sector_bits, MAX_WFS + check_width(MAX_WFS)
        m.submodules.address = address = Corrector(va_bits)
        mask_syndrome = Signal(check_width(MAX_WFS))
        va_check = Signal(check_width(va_bits))
        read_before = Signal(2)
        """Bit n: something was looked up n + 1 cycles ago."""
        odd = Signal()
        """The mask and its check bits have an odd number of wrong bits: one, if it is not lost. Known early."""
        fresh = Signal()
        """What is captured comes out of the memory."""
        seen_index = Signal(index_bits)
        m.d.sync += [
            read_before.eq(Cat(read.en, read_before)),
            fresh.eq(~kept),
            mask_syndrome.eq(Mux(kept, 0, syndrome(read.data[:MAX_WFS], read.data[MAX_WFS:first]))),
            va_check.eq(read.data[first + va_bits :]),
            odd.eq(read.data[:first].xor()),
        ]
        mask_wrong = wrong_bits(mask_syndrome, MAX_WFS)
        mask_lost = Signal()
        wrong = Signal()
        lost = Signal()
        m.d.comb += [
            address.word.eq(captured.va),
            address.check.eq(va_check),
            mask_lost.eq(is_lost(mask_syndrome, MAX_WFS)),
            meant.done.eq((captured.done | (mask_syndrome.any() & ~odd).replicate(MAX_WFS)) ^ mask_wrong),
            meant.va.eq(Mux(fresh, address.corrected, captured.va)),
            wrong.eq(read_before[1] & fresh & (mask_syndrome.any() | address.wrong)),
            lost.eq(read_before[1] & fresh & (mask_lost | address.lost)),
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
        slot_wrong = Signal()
        reads = Signal()
        own_index = Signal(index_bits)
        m.d.comb += [
            reads.eq(~self.lookup & ~slots.any() & self.cleared & (suspected | turning | due)),
            own_index.eq(Mux(suspected, suspect, Mux(turning, turned_index, next_index))),
        ]
        with m.If(reads):
            m.d.comb += [read.en.eq(1), read.addr.eq(own_index)]
            m.d.sync += [slot_index.eq(own_index), slot_turns.eq(turning & ~suspected)]
        m.d.sync += [slots.eq(Cat(reads, slots)), slot_wrong.eq(wrong), seen_index.eq(read.addr)]
        met_index = Signal(index_bits)
        m.d.sync += met_index.eq(seen_index)
        port_free, index = repair
        m.d.comb += [
            port_free.eq(slots[2] & (slot_turns & ~self.upset.valid | slot_wrong) & ~marking & self.cleared),
            index.eq(slot_index),
        ]
        with m.If(self.scrub):
            m.d.sync += due.eq(1)
        with m.If(slots[2] & (~slot_wrong | port_free)):
            with m.If(suspected & (suspect == slot_index)):
                m.d.sync += suspected.eq(0)
            with m.Elif(slot_turns):
                m.d.sync += turning.eq(~port_free)
            with m.Elif(slot_index == next_index):
                m.d.sync += [due.eq(0), next_index.eq(next_index + 1)]
        known = Signal()
        m.d.comb += known.eq(suspected & (suspect == met_index))
        with m.If(wrong & ~suspected):
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
        return Mux(port_free & slot_turns, turned_bits(self.upset), 0)[: len(read.data)]

    def _turn_next(self, m: Module, queue: ReadyQueue, memory: ProtectedMemory) -> None:
        """A self test turns bits of what is written to `queue` next."""
        turning = Signal(name=f"turning_{memory.name.lower()}")
        with m.If(self.upset.valid):
            m.d.sync += turning.eq(self.upset.memory == memory)
        with m.Elif(queue.stored):
            m.d.sync += turning.eq(0)
        m.d.comb += queue.flips.eq(Mux(turning, turned_bits(self.upset), 0))
