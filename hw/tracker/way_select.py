"""Stage 4 of a Tracker bank: which way of its set an operation hits or may take.

The operation before it is in stage 5 and decides late in the cycle what it does to the set: nothing, write a counter in
the way it found, or take that counter out. All three outcomes are worked out meanwhile; the decision only selects.
Source: T3 section 4.2.1, Fig 9.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.tracker.fetch_buffers import counter, one_of, tile_key
from hw.tracker.storage import ENTRY_EPOCH_BITS, entry_layout

LFSR_TAPS = 0xB400


class WaySelect(wiring.Component):
    """Ports: `valid`, an operation is here; its `key`; `key_before`, that of the operation in stage 5; `epoch`;
    `entries`, `spilled_now`: the set without what stage 5 does in this cycle; `way_before` (one-hot), the way stage 5
    found; `writes`: it writes `written` there; `writes_spilled`: the set's number of spilled counters becomes
    `spilled_written`.

    Out: `hit`; `full`: no way is free; `way` (one-hot) to write; `entry` of a hit, zero on a miss; `victim`, what a
    miss in a full set evicts; `spilled`. Latency 0 cycles; the victim's way changes with every `valid`.
    """

    def __init__(self, config: Configuration):
        self._config = config
        entry = entry_layout(config)
        super().__init__(
            {
                "valid": In(1),
                "key": In(tile_key(config)),
                "key_before": In(tile_key(config)),
                "epoch": In(ENTRY_EPOCH_BITS),
                "entries": In(data.ArrayLayout(entry, config.tracker_ways)),
                "spilled_now": In(config.tag_bits + 1),
                "way_before": In(config.tracker_ways),
                "writes": In(1),
                "written": In(entry),
                "writes_spilled": In(1),
                "spilled_written": In(config.tag_bits + 1),
                "hit": Out(1),
                "full": Out(1),
                "way": Out(unsigned(config.tracker_ways)),
                "entry": Out(counter(config)),
                "victim": Out(entry),
                "spilled": Out(config.tag_bits + 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        ways, high = config.tracker_ways, config.set_bits
        way_bits = (ways - 1).bit_length()
        lfsr = Signal(16, init=1)
        with m.If(self.valid):
            m.d.sync += lfsr.eq((lfsr >> 1) ^ Mux(lfsr[0], LFSR_TAPS, 0))
        victim = Signal(ways)
        m.d.comb += victim.eq(1 << lfsr[:way_bits])

        same_set = Signal()
        same_tile = Signal()
        m.d.comb += [
            same_set.eq(self.key.wg[:high] == self.key_before.wg[:high]),
            same_tile.eq((self.key.wg == self.key_before.wg) & (self.key.wf == self.key_before.wf)),
        ]
        tag = Cat(self.key.wf, self.key.wg[high:])
        used = Signal(ways)
        hits = Signal(ways)
        counters = []
        for way in range(ways):
            entry = self.entries[way]
            counters.append(Cat(entry.count, entry.va))
            m.d.comb += [
                used[way].eq(entry.valid & (entry.epoch == self.epoch)),
                hits[way].eq(used[way] & (entry.tag == tag)),
            ]

        before = self.way_before
        left = self._choose(hits, used, victim)
        filled = self._choose(hits & ~before | before & same_tile.replicate(ways), used | before, victim)
        emptied = self._choose(hits & ~before, used & ~before, victim)
        changed = Signal()
        kept = Signal()
        m.d.comb += [changed.eq(same_set & self.writes), kept.eq(self.written.valid)]
        # On the way to the same tile's next access the counter itself passes straight on.
        resident = Signal(counter(config))
        other = Signal(counter(config))
        m.d.comb += [resident.eq(one_of(hits, counters)), other.eq(one_of(hits & ~before, counters))]
        written = self.written
        evicted = self.entries[lfsr[:way_bits]] if ways > 1 else self.entries[0]
        with m.If(changed):
            m.d.comb += [
                Cat(self.hit, self.full, self.way).eq(Mux(kept, filled, emptied)),
                self.entry.eq(Mux(same_tile, Mux(kept, Cat(written.count, written.va), 0), other)),
            ]
        with m.Else():
            m.d.comb += [Cat(self.hit, self.full, self.way).eq(left), self.entry.eq(resident)]
        m.d.comb += [
            self.victim.eq(Mux(changed & (victim & before).any(), written, evicted)),
            self.spilled.eq(Mux(same_set & self.writes_spilled, self.spilled_written, self.spilled_now)),
        ]
        return m

    @staticmethod
    def _choose(hits: Value, used: Value, victim: Value) -> Value:
        """Hit, full, and the way: the one hit, else the lowest free one, else the victim's."""
        free = ~used & (used + 1)
        return Cat(hits.any(), used.all(), Mux(hits.any(), hits, Mux(used.all(), victim, free)[: len(hits)]))
