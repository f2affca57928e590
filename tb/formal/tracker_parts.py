"""What a Tracker bank is proved against: specifications of the two blocks beside its pipeline.

They keep the interface and the latency of the block they stand for, say for one arbitrary WF tile what the block would,
and for every other tile anything at all.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assume

from hw.config import Configuration
from hw.tracker.tile_geometry import TileGeometry, block_place
from hw.tracker.trigger_table import TriggerTable


class WatchedTile:
    """The tile: wg and wf name it; place in the trigger table, threshold in bytes, and whether it exists are fixed."""

    def __init__(self, config: Configuration):
        self.wg = Signal(config.wg_bits)
        self.wf = Signal(config.wf_bits)
        self.place = Signal(block_place(config))
        self.threshold = Signal(config.count_bits)
        self.missing = Signal()
        self.complete = Signal()
        """The tile reached its threshold, as the trigger table would have it."""

    def named(self, wg: Signal, wf: Signal) -> Signal:
        """`wg`, `wf` name this tile."""
        return (wg == self.wg) & (wf == self.wf)


class SpecifiedGeometry(TileGeometry):
    """Stands for :class:`TileGeometry`: what it says of the watched tile never changes; no other tile has its place."""

    def __init__(self, config: Configuration, tile: WatchedTile):
        super().__init__(config)
        self._tile = tile

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tile = self._tile
        here_2 = Signal()
        here_3 = Signal()
        here_4 = Signal()
        m.d.sync += [here_2.eq(tile.named(self.wg, self.wf)), here_3.eq(here_2), here_4.eq(here_3)]
        place = Signal.like(self.place)
        threshold = Signal.like(tile.threshold)
        m.d.comb += self.index.eq(place.index)
        m.d.sync += [self.place.eq(place), self.remaining.eq(threshold - self.bytes)]
        with m.If(here_3):
            m.d.comb += [place.eq(tile.place), threshold.eq(tile.threshold)]
        with m.Else():
            m.d.comb += [place.as_value().eq(AnySeq(len(place.as_value()))), threshold.eq(AnySeq(len(threshold)))]
            same = (place.index == tile.place.index) & (place.position == tile.place.position)
            m.d.comb += Assume(~same)
        m.d.comb += self.missing.eq(Mux(here_4, tile.missing, AnySeq(1)))
        m.d.comb += self.right.eq(AnySeq(1))
        return m


class SpecifiedTriggers(TriggerTable):
    """Stands for :class:`TriggerTable`: knows whether the watched tile is done, all completions before included."""

    def __init__(self, config: Configuration, tile: WatchedTile):
        super().__init__(config)
        self._tile = tile

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place = self._tile.place
        here = Signal()
        looked_up_entry = Signal()
        at_entry = Signal()
        given = self.completion.place
        m.d.comb += here.eq(self.complete & (given.index == place.index) & (given.position == place.position))
        with m.If(here):
            m.d.sync += self._tile.complete.eq(1)
        m.d.sync += [looked_up_entry.eq(self.lookup_index == place.index), at_entry.eq(looked_up_entry)]
        others = AnySeq(len(self.done))
        mask = Mux(at_entry, 1 << place.position, 0)[: len(self.done)]
        m.d.comb += [
            self.done.eq((others & ~mask) | (mask & self._tile.complete.replicate(len(self.done)))),
            self.cleared.eq(AnySeq(1)),
            self.waiting.eq(AnySeq(1)),
            Cat(self.blocks.valid, self.launches.valid).eq(AnySeq(2)),
        ]
        return m
