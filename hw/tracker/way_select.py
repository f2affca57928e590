"""Stage 4 of a Tracker bank: which way of its set an operation hits or may take.

The operation before it is in stage 5 and decides late in the cycle what it does to the set: nothing, write a counter in
the way it found, or take that counter out. All three outcomes are worked out meanwhile; the decision only selects. So
it is with the counter that goes on to stage 5: that of the set, that of a MSHR, or what stage 5 makes of it.
Source: T3 section 4.2.1, Fig 9.

What stage 5 does, and where this stage then finds its own counter (W: the way that stage 5 found; `written.valid` tells
a counter written from one taken out):

=======================  ==================  ==============================  ========================================
stage 5                  its tile is         `hit`, `full`, `way`: the set   `before`
=======================  ==================  ==============================  ========================================
another set, or nothing  any                 as it is (`left`)               `resident`: in the set, or gathered
writes a counter in W    the same            W is the hit (`filled`)         `value` (`passed`)
writes a counter in W    another             W is in use, no hit (`filled`)  `other`: as resident, but not from W
takes the one in W out   the same            W is free (`emptied`)           0 (`gone`)
takes the one in W out   another             W is free (`emptied`)           `other`: as resident, but not from W
updates a MSHR           the same            as it is (`left`)               `value` (`passed`)
completes from a buffer  the same            as it is (`left`)               0 (`gone`)
=======================  ==================  ==============================  ========================================

The victim's way follows the LFSR; a miss in a full set whose victim is W evicts what stage 5 writes there.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .mshr import counter, one_of, tile_key
from .parameters import ENTRY_EPOCH_BITS, TrackerParameters
from .storage import entry_layout

LFSR_TAPS = 0xB400
"""x^16 + x^14 + x^13 + x^11 + 1, primitive: 65,535 operations until the ways of victims repeat."""


class WaySelect(wiring.Component):
    """Ports: `key_next`, of the operation in stage 3; `valid`, an operation is here; its `key`; `epoch`; `entries`,
    `spilled_now`: the set without what stage 5 does in this cycle; `held`, `latest`, `latest_ways`: what `entries` is
    made of (see :class:`CounterStorage`), compared while it is made; `gathered`: of a MSHR that has the key,
    zero if none has. From stage 5: `way_before` (one-hot), the way it found; `writes`: it writes `written` there;
    `keeps`: the tile has counter `value` from now on, here or in a MSHR; `drops`: it has none any more;
    `writes_spilled`: the set's number of spilled counters becomes `spilled_written`.

    Out: `same_tile`: stage 5 has the same WF tile; `hit`; `full`: no way is free; `way` (one-hot) to write; `before`:
    the tile's counter, zero if it has none; `victim`, what a miss in a full set evicts; `spilled`. Latency 0 cycles;
    the victim's way changes with every `valid`.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        entry = entry_layout(config)
        super().__init__(
            {
                "key_next": In(tile_key(config)),
                "valid": In(1),
                "key": In(tile_key(config)),
                "epoch": In(ENTRY_EPOCH_BITS),
                "entries": In(data.ArrayLayout(entry, config.tracker_ways)),
                "held": In(data.ArrayLayout(entry, config.tracker_ways)),
                "latest": In(entry),
                "latest_ways": In(config.tracker_ways),
                "spilled_now": In(config.tag_bits + 1),
                "gathered": In(counter(config)),
                "way_before": In(config.tracker_ways),
                "writes": In(1),
                "keeps": In(1),
                "drops": In(1),
                "value": In(counter(config)),
                "written": In(entry),
                "writes_spilled": In(1),
                "spilled_written": In(config.tag_bits + 1),
                "same_tile": Out(1),
                "hit": Out(1),
                "full": Out(1),
                "way": Out(unsigned(config.tracker_ways)),
                "before": Out(counter(config)),
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

        # Compared a cycle ahead: when an operation comes here, the one that was here goes to stage 5.
        same_set = Signal()
        same_tile = self.same_tile
        m.d.sync += [
            same_set.eq(self.key_next.wg[:high] == self.key.wg[:high]),
            same_tile.eq((self.key_next.wg == self.key.wg) & (self.key_next.wf == self.key.wf)),
        ]
        tag = Cat(self.key.wf, self.key.wg[high:])

        def state(entry: data.View) -> Value:
            """The counter is in use; it is that of the tile."""
            in_use = entry.valid & (entry.epoch == self.epoch)
            return Cat(in_use, in_use & (entry.tag == tag))

        used = Signal(ways)
        hits = Signal(ways)
        latest = Signal(2)
        m.d.comb += latest.eq(state(self.latest))
        for way in range(ways):
            m.d.comb += Cat(used[way], hits[way]).eq(Mux(self.latest_ways[way], latest, state(self.held[way])))
        counters = [Cat(self.entries[way].count, self.entries[way].va) for way in range(ways)]

        before = self.way_before
        left = self._choose(hits, used, victim)
        filled = self._choose(hits & ~before | before & same_tile.replicate(ways), used | before, victim)
        emptied = self._choose(hits & ~before, used & ~before, victim)
        changed = Signal()
        kept = Signal()
        m.d.comb += [changed.eq(same_set & self.writes), kept.eq(self.written.valid)]
        # A counter is in the set or in a buffer, never in both. One that stage 5 replaces is not found any more.
        resident = Signal(counter(config))
        other = Signal(counter(config))
        gathered = self.gathered.as_value()
        m.d.comb += [
            resident.as_value().eq(one_of(hits, counters) | gathered),
            other.as_value().eq(one_of(hits & ~before, counters) | gathered),
        ]
        replaced = Signal()
        passed = Signal()
        gone = Signal()
        m.d.comb += [
            passed.eq(same_tile & self.keeps),
            gone.eq(same_tile & self.drops),
            replaced.eq(changed & ~same_tile),
            self.before.as_value().eq(
                one_of(
                    Cat(~(passed | gone | replaced), replaced, passed),
                    [resident.as_value(), other.as_value(), self.value.as_value()],
                )
            ),
        ]
        written = self.written
        evicted = self.entries[lfsr[:way_bits]] if ways > 1 else self.entries[0]
        with m.If(changed):
            m.d.comb += Cat(self.hit, self.full, self.way).eq(Mux(kept, filled, emptied))
        with m.Else():
            m.d.comb += Cat(self.hit, self.full, self.way).eq(left)
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
