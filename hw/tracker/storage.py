"""Counters of one Tracker bank: a set-associative memory and, beside it, how many counters of each set are spilled.

Source: T3 section 4.2.1, Fig 9 (256 sets x 8 ways x 76 bits = 19 KB over all banks).
"""

from amaranth import Const, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

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


class CounterStorage(wiring.Component):
    """Sets of counters, read whole and written by way.

    Ports: `read_enable`, `read_set`: the set to read in cycle c; `entries`, `spilled`: its content in cycle c + 2,
    including every write before that cycle, but not one in it; `held`: the same without the last of these writes,
    which put `latest` in ways `latest_ways` (for what has no time to wait for `entries`). `write_set`; `write_ways`:
    the ways that take `write_entry`; `write_spilled`: the set's number of spilled counters becomes `spilled_value`.
    `clear` starts what empties every set (one a cycle; also after reset); `cleared` is low until it is done,
    nothing else may write meanwhile. Without tags no counter is ever spilled: `spilled` is 0.

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
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sets = sets = Memory(shape=data.ArrayLayout(self._entry, self._ways), depth=self._sets, init=[])
        spilled_counts: Value = Const(0, self._spilled_bits)
        if self._spills:
            m.submodules.spills = spills = Memory(shape=unsigned(self._spilled_bits), depth=self._sets, init=[])
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
        m.d.sync += [
            entering.set.eq(self.write_set),
            entering.ways.eq(self.write_ways),
            entering.entry.eq(self.write_entry),
            entering.spills.eq(self.write_spilled),
            entering.spilled.eq(self.spilled_value),
            entered.eq(entering),
        ]
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
                spill_write.data.eq(Mux(clearing, 0, entering.spilled)),
                spill_write.en.eq(entering.spills | clearing),
            ]
        with m.If(~clearing):
            for way in range(self._ways):
                m.d.comb += set_write.data[way].eq(entering.entry)

        # What the memory gives, brought up to date with what entered it since: the newest write last. A read is one
        # cycle on its way out of the memory, then one in `held`.
        reading = Signal(range(self._sets))
        entered_is_read = Signal()
        entering_is_read = Signal()
        entering_is_held = Signal()
        held_entries = Signal.like(self.entries)
        held_spilled = Signal(self._spilled_bits)
        m.d.sync += [
            reading.eq(self.read_set),
            entered_is_read.eq(entering.set == self.read_set),
            entering_is_read.eq(self.write_set == self.read_set),
            entering_is_held.eq(self.write_set == reading),
        ]
        read_entries, read_spilled = set_read.data, spilled_counts
        for write, same in ((entered, entered_is_read), (entering, entering_is_read)):
            read_entries, read_spilled = self._merge(m, write, same, read_entries, read_spilled)
        m.d.sync += [held_entries.eq(read_entries), held_spilled.eq(read_spilled)]
        entries, spilled = self._merge(m, entering, entering_is_held, held_entries, held_spilled)
        m.d.comb += [
            self.entries.eq(entries),
            self.spilled.eq(spilled),
            self.held.eq(held_entries),
            self.latest.eq(entering.entry),
            self.latest_ways.eq(entering.ways & entering_is_held.replicate(self._ways)),
        ]
        return m

    def _merge(
        self, m: Module, write: data.View, same: Signal, entries: data.View, spilled: Value
    ) -> tuple[data.View, Value]:
        """`entries` and `spilled` of a set with `write` done to them, if it is to the `same` set."""
        merged = Signal.like(self.entries)
        for way in range(self._ways):
            m.d.comb += merged[way].eq(Mux(same & write.ways[way], write.entry.as_value(), entries[way].as_value()))
        return merged, Mux(same & write.spills, write.spilled, spilled)
