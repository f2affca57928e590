"""Stage 4 of a Tracker bank without tags: the tile's own place, {wg, wf}, and what stage 5 does to it meanwhile.

No other tile has that place, so nothing is compared but the operation in stage 5, nothing is evicted and nothing asked
for. Source: the alternative to T3 section 4.2.1 that hw/DECISIONS.md 36 measures.
"""

from amaranth import Cat, Module, Signal

from .mshr import one_of
from .way_select import WaySelect


class DirectSelect(WaySelect):
    """Ports and latency of :class:`WaySelect`. `way` is the wf; `full`, `victim` and `spilled` are 0.

    `same_tile`: stage 5 has the same place. A tile whose wg has none there is refused in stage 5, and so changes
    nothing.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        high = config.set_bits
        m.d.sync += self.same_tile.eq(
            (self.key_next.wg[:high] == self.key.wg[:high]) & (self.key_next.wf == self.key.wf)
        )
        m.d.comb += self.way.eq(1 << self.key.wf)

        found = Signal(config.tracker_ways)
        for way, entry in enumerate(self.entries):
            m.d.comb += found[way].eq(self.way[way] & entry.valid & (entry.epoch == self.epoch))
        counters = [Cat(entry.count, entry.va) for entry in self.entries]
        kept = Signal()
        changed = Signal()
        m.d.comb += [
            kept.eq(self.same_tile & self.keeps),
            changed.eq(self.same_tile & (self.keeps | self.drops)),
            self.hit.eq(kept | (found.any() & ~changed)),
            self.before.as_value().eq(one_of(Cat(~changed, kept), [one_of(found, counters), self.value.as_value()])),
        ]
        return m
