"""Counters of one Tracker bank: a set-associative memory and, beside it, how many counters of each set are spilled.

Source: T3 section 4.2.1, Fig 9 (256 sets x 8 ways x 76 bits = 19 KB over all banks).
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..primitives.secded import check_bits, check_width, syndrome
from .parameters import ENTRY_EPOCH_BITS, TrackerParameters


def entry_layout(config: TrackerParameters) -> data.StructLayout:
    """One counter: 76 bits at the paper's size. `va` is the lowest address seen, `count` is in bytes."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "tag": unsigned(config.tag_bits),
            "epoch": unsigned(ENTRY_EPOCH_BITS),
            "va": unsigned(config.va_sector_bits),
            "count": unsigned(config.count_bits),
        }
    )


def write_layout(config: TrackerParameters) -> data.StructLayout:
    """A write to one set of a bank: `ways` take `entry`; with `spills` its number of spilled counters is `spilled`."""
    return data.StructLayout(
        {
            "set": unsigned((config.tracker_sets // config.tracker_banks - 1).bit_length()),
            "ways": unsigned(config.tracker_ways),
            "entry": entry_layout(config),
            "spills": unsigned(1),
            "spilled": unsigned(config.tag_bits + 1),
        }
    )


def mend_layout(config: TrackerParameters) -> data.StructLayout:
    """A word of a set written back: `entry` in the one of `ways`, or `spilled` if `spills`. `upset`: with the bits of
    `flips` turned, of word and check bits."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            **write_layout(config).members,
            "upset": unsigned(1),
            "flips": unsigned(stored_width(entry_layout(config).size)),
        }
    )


def stored_width(width: int) -> int:
    """Bits that a word of `width` bits takes with its check bits."""
    return width + check_width(width)


class CounterStorage(wiring.Component):
    """Sets of counters, read whole and written by way.

    Ports: `read_enable`, `read_set`: the set to read in cycle c; `entries`, `spilled`: its content in cycle c + 2,
    including every write before that cycle, but not one in it; `held`: the same without the last of these writes,
    which put `latest` in ways `latest_ways` (for what has no time to wait for `entries`). `write_set`; `write_ways`:
    the ways that take `write_entry`; `write_spilled`: the set's number of spilled counters becomes `spilled_value`.
    `clear` starts what empties every set (one a cycle; also after reset); `cleared` is low until it is done,
    nothing else may write meanwhile. Without tags no counter is ever spilled: `spilled` is 0.

    With protection of memories each counter has check bits, and so has a set's number of spilled ones. `wrong`, beside
    `entries`: the words read that are not as they were written, a bit per way, above them the number of spilled ones;
    `syndrome_ways`, `syndrome_spilled`: in what way, of `held` and of `spilled_held`. `settled`: no write enters the
    memory. `mend` writes a word back, in a cycle in which nothing else writes.

    A write passes a register before it reaches the memory, and data read passes one behind it: nothing but the memory
    itself stands in the cycle of its access. Reads meet the three writes under way by comparison of sets, a cycle
    ahead; the memories may return anything for an address that is written in the same cycle.
    """

    def __init__(self, config: TrackerParameters):
        self._sets = config.tracker_sets // config.tracker_banks
        self._ways = config.tracker_ways
        self._spills = config.tracker_tags
        self._entry = entry_layout(config)
        self._spilled_bits = config.tag_bits + 1
        set_shape = range(self._sets)
        self._write = write_layout(config)
        self._checked = config.protects_memories
        protected = {
            "wrong": Out(self._ways + 1),
            "syndrome_ways": Out(data.ArrayLayout(check_width(self._entry.size), self._ways)),
            "syndrome_spilled": Out(check_width(self._spilled_bits)),
            "spilled_held": Out(self._spilled_bits),
            "settled": Out(1),
            "mend": In(mend_layout(config)),
        }
        super().__init__(
            {
                "read_enable": In(1),
                "read_set": In(set_shape),
                "entries": Out(data.ArrayLayout(self._entry, self._ways)),
                "held": Out(data.ArrayLayout(self._entry, self._ways)),
                "latest": Out(self._entry),
                "latest_ways": Out(self._ways),
                "spilled": Out(self._spilled_bits),
                "write_set": In(set_shape),
                "write_ways": In(self._ways),
                "write_entry": In(self._entry),
                "write_spilled": In(1),
                "spilled_value": In(self._spilled_bits),
                "clear": In(1),
                "cleared": Out(1),
                **(protected if self._checked else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entry_bits, spilled_bits = self._entry.size, self._spilled_bits
        if self._checked:
            entry_bits, spilled_bits = stored_width(entry_bits), stored_width(spilled_bits)
        m.submodules.sets = sets = Memory(shape=data.ArrayLayout(entry_bits, self._ways), depth=self._sets, init=[])
        spilled_counts: Value = Const(0, spilled_bits)
        if self._spills:
            m.submodules.spills = spills = Memory(shape=unsigned(spilled_bits), depth=self._sets, init=[])
        set_write = sets.write_port(granularity=1)
        set_read = sets.read_port()
        if self._spills:
            spill_write = spills.write_port()
            spill_read = spills.read_port()
            spilled_counts = spill_read.data

        clearing = Signal(init=1)
        clear_index = Signal(range(self._sets))
        m.d.comb += self.cleared.eq(~clearing)
        with m.If(clearing):
            m.d.sync += clear_index.eq(clear_index + 1)
            with m.If(clear_index == self._sets - 1):
                m.d.sync += [clearing.eq(0), clear_index.eq(0)]
        with m.Elif(self.clear):
            m.d.sync += clearing.eq(1)

        # Two writes back: the one entering the memory, and the one that entered it in the cycle before.
        entering = Signal(self._write)
        entered = Signal(self._write)
        coming = Signal(self._write)
        m.d.comb += [
            coming.set.eq(self.write_set),
            coming.ways.eq(self.write_ways),
            coming.entry.eq(self.write_entry),
            coming.spills.eq(self.write_spilled),
            coming.spilled.eq(self.spilled_value),
        ]
        # As it is stored: with its check bits behind it.
        entry_word: Value = entering.entry.as_value()
        spilled_word: Value = entering.spilled
        stored_entry, stored_spilled = entry_word, spilled_word
        entered_words: tuple[Value, Value] = (entered.entry.as_value(), entered.spilled)
        if self._checked:
            with m.If(self.mend.valid):
                m.d.comb += [coming[name].eq(self.mend[name]) for name in self._write.members]
            entry_word, spilled_word = (
                Cat(entry_word, check_bits(entry_word)),
                Cat(spilled_word, check_bits(spilled_word)),
            )
            upset = Signal()
            m.d.sync += upset.eq(self.mend.valid & self.mend.upset)
            flips = self.mend.flips & upset.replicate(entry_bits)
            stored_entry, stored_spilled = entry_word ^ flips, spilled_word ^ flips[:spilled_bits]
            entry_check = Signal(entry_bits - self._entry.size)
            spilled_check = Signal(spilled_bits - self._spilled_bits)
            m.d.sync += [
                entry_check.eq(entry_word[self._entry.size :]),
                spilled_check.eq(spilled_word[self._spilled_bits :]),
            ]
            entered_words = (Cat(entered_words[0], entry_check), Cat(entered_words[1], spilled_check))
        m.d.sync += [entering.eq(coming), entered.eq(entering)]
        m.d.comb += [
            set_read.en.eq(self.read_enable),
            set_read.addr.eq(self.read_set),
            set_write.addr.eq(Mux(clearing, clear_index, entering.set)),
            set_write.en.eq(entering.ways | clearing.replicate(self._ways)),
        ]
        if self._spills:
            m.d.comb += [
                spill_read.en.eq(self.read_enable),
                spill_read.addr.eq(self.read_set),
                spill_write.addr.eq(Mux(clearing, clear_index, entering.set)),
                spill_write.data.eq(Mux(clearing, 0, stored_spilled)),
                spill_write.en.eq(entering.spills | clearing),
            ]
        with m.If(~clearing):
            for way in range(self._ways):
                m.d.comb += set_write.data[way].eq(stored_entry)

        # What the memory gives, brought up to date with what entered it since: the newest write last. A read is one
        # cycle on its way out of the memory, then one in `held`.
        reading = Signal(range(self._sets))
        entered_is_read = Signal()
        entering_is_read = Signal()
        entering_is_held = Signal()
        held_entries = Signal(data.ArrayLayout(entry_bits, self._ways))
        held_spilled = Signal(spilled_bits)
        m.d.sync += [
            reading.eq(self.read_set),
            entered_is_read.eq(entering.set == self.read_set),
            entering_is_read.eq(coming.set == self.read_set),
            entering_is_held.eq(coming.set == reading),
        ]
        read = [*set_read.data], spilled_counts
        read = self._merge(entered, entered_words, entered_is_read, *read)
        read = self._merge(entering, (entry_word, spilled_word), entering_is_read, *read)
        m.d.sync += [held_entries.as_value().eq(Cat(read[0])), held_spilled.eq(read[1])]
        held = [held_entries[way][: self._entry.size] for way in range(self._ways)], held_spilled[: self._spilled_bits]
        entries, spilled = self._merge(entering, (entering.entry.as_value(), entering.spilled), entering_is_held, *held)
        m.d.comb += [
            self.entries.as_value().eq(Cat(entries)),
            self.spilled.eq(spilled),
            self.held.as_value().eq(Cat(held[0])),
            self.latest.eq(entering.entry),
            self.latest_ways.eq(entering.ways & entering_is_held.replicate(self._ways)),
        ]
        if self._checked:
            width = self._entry.size
            m.d.comb += [
                *(
                    self.syndrome_ways[way].eq(syndrome(word[:width], word[width:]))
                    for way, word in enumerate(held_entries)
                ),
                self.wrong[: self._ways].eq(Cat(found.any() for found in self.syndrome_ways)),
                self.settled.eq(~entering.ways.any() & ~entering.spills),
            ]
            if self._spills:
                width = self._spilled_bits
                m.d.comb += [
                    self.syndrome_spilled.eq(syndrome(held_spilled[:width], held_spilled[width:])),
                    self.wrong[self._ways].eq(self.syndrome_spilled.any()),
                    self.spilled_held.eq(held_spilled),
                ]
        return m

    @staticmethod
    def _merge(
        write: data.View, words: tuple[Value, Value], same: Signal, entries: list[Value], spilled: Value
    ) -> tuple[list[Value], Value]:
        """`entries` and `spilled` of a set with `write` of `words` done to them, if it is to the `same` set."""
        merged = [Mux(same & write.ways[way], words[0], entry) for way, entry in enumerate(entries)]
        return merged, Mux(same & write.spills, words[1], spilled)
