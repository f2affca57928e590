"""Counters of one Tracker bank: a set-associative memory and, beside it, how many counters of each set are spilled.

Source: T3 section 4.2.1, Fig 9 (256 sets x 8 ways x 76 bits = 19 KB over all banks).
"""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Configuration

ENTRY_EPOCH_BITS = 4


def entry_layout(config: Configuration) -> data.StructLayout:
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


class CounterStorage(wiring.Component):
    """Sets of counters, read whole and written by way.

    Ports: `read_enable`, `read_set`: the set to read; `entries`, `spilled`: its content in the next cycle and until the
    next read, including every write up to and in that very cycle. `write_set`; `write_ways`: the ways that take
    `write_entry`; `write_spilled`: the set's number of spilled counters becomes `spilled_value`. `clear` starts a sweep
    that empties every set (one a cycle; also after reset); `cleared` is low until it is done, nothing else may write
    meanwhile.
    """

    def __init__(self, config: Configuration):
        self._sets = config.tracker_sets // config.tracker_banks
        self._ways = config.tracker_ways
        self._entry = entry_layout(config)
        self._spilled_bits = config.tag_bits + 1
        set_shape = range(self._sets)
        super().__init__(
            {
                "read_enable": In(1),
                "read_set": In(set_shape),
                "entries": Out(data.ArrayLayout(self._entry, self._ways)),
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
        m.submodules.spills = spills = Memory(shape=unsigned(self._spilled_bits), depth=self._sets, init=[])
        set_write = sets.write_port(granularity=1)
        set_read = sets.read_port(transparent_for=[set_write])
        spill_write = spills.write_port()
        spill_read = spills.read_port(transparent_for=[spill_write])

        sweeping = Signal(init=1)
        swept = Signal(range(self._sets))
        m.d.comb += self.cleared.eq(~sweeping)
        with m.If(sweeping):
            m.d.sync += swept.eq(swept + 1)
            with m.If(swept == self._sets - 1):
                m.d.sync += [sweeping.eq(0), swept.eq(0)]
        with m.Elif(self.clear):
            m.d.sync += sweeping.eq(1)

        m.d.comb += [
            set_read.en.eq(self.read_enable),
            set_read.addr.eq(self.read_set),
            spill_read.en.eq(self.read_enable),
            spill_read.addr.eq(self.read_set),
            set_write.addr.eq(Mux(sweeping, swept, self.write_set)),
            set_write.en.eq(self.write_ways | sweeping.replicate(self._ways)),
            spill_write.addr.eq(Mux(sweeping, swept, self.write_set)),
            spill_write.data.eq(Mux(sweeping, 0, self.spilled_value)),
            spill_write.en.eq(self.write_spilled | sweeping),
        ]
        with m.If(~sweeping):
            for way in range(self._ways):
                m.d.comb += set_write.data[way].eq(self.write_entry)

        current = Signal(range(self._sets))
        with m.If(self.read_enable):
            m.d.sync += current.eq(self.read_set)
        same = Signal()
        m.d.comb += [same.eq(current == self.write_set), self.spilled.eq(spill_read.data)]
        with m.If(same & self.write_spilled):
            m.d.comb += self.spilled.eq(self.spilled_value)
        for way in range(self._ways):
            m.d.comb += self.entries[way].eq(set_read.data[way])
            with m.If(same & self.write_ways[way]):
                m.d.comb += self.entries[way].eq(self.write_entry)
        return m
