"""The doorbell: makes WF tiles complete whose data lies in memory already, with no access at all.

Software rings it for some workgroups of a range. It walks their WF tiles and commits each tile's threshold, so all that
follows (trigger, DMA, launch, done) is the Tracker's. Only the range being walked is kept here: its words are read out
of the register file when it is rung. The last tile column is found by the divisibility test described at
:data:`hw.range_table.Ragged`, whose product grows by the inverse from one workgroup to the next.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..counters import total
from ..geometry import SECTOR_BITS
from ..messages import Access, Fault, Messages
from ..range_table import Blocks, Control, Grouping, Ragged, RangeWrite, RowBytes, Word, Workgroups
from .parameters import TrackerParameters

DOORBELL_COUNTERS = (total("doorbell_tiles", "WF tiles committed by the doorbell", lambda tile: tile),)
"""Of `tile`."""

_NUMBER_BITS = 17
"""Width of how many workgroups of a range come before another one."""


def entry_layout(config: TrackerParameters) -> data.StructLayout:
    """What is kept of the range's words, under their names; but `base`, which are two."""
    return data.StructLayout(
        {
            "control": Control,
            "base": unsigned(64),
            "workgroups": Workgroups,
            "ragged": Ragged,
            "grouping": Grouping,
            "blocks": Blocks,
            "row_bytes": RowBytes,
            "wf_stride": unsigned(32),
            **{f"threshold_{place}": unsigned(config.count_bits) for place in ("body", "right", "bottom", "corner")},
        }
    )


def walk_layout(config: TrackerParameters) -> data.StructLayout:
    """Where the walk is: `number` workgroups come before `wg`, `product` is (`number` + 1) times the inverse; `tile_va`
    is its first tile, `row_va` that of the first workgroup of its row. `right`, `bottom`: it is in the last column, the
    last row; it has `tiles` tiles, and stands at `wf` with address `va`."""
    messages = Messages(config)
    return data.StructLayout(
        {
            "number": unsigned(_NUMBER_BITS),
            "wg": messages.wg,
            "product": unsigned(16),
            "row_va": messages.va,
            "tile_va": messages.va,
            "right": unsigned(1),
            "bottom": unsigned(1),
            "tiles": unsigned(4),
            "wf": messages.wf,
            "va": messages.va,
        }
    )


class Doorbell(wiring.Component):
    """Walks workgroups of a range, and commits every WF tile of theirs once.

    Ports: `entry`: after a ring the words of its range, CONTROL first and WF_TOTAL last, WORKGROUPS not right before
    that; with CONTROL `first` and `count`, the workgroups, both kept for a cycle after the last word; `armed`, `epoch`;
    `commits`: a tile's threshold at its lowest address; `faults`; `busy`; `tile`: a commit was taken; `wake`: see
    :mod:`hw.primitives.clock_enable`.

    Refused, with a record of the first workgroup: a ring while another one is walked (BUSY, that one goes on), while
    not armed (NOT_ARMED), of a range that is not valid or not tracked, or of workgroups it does not have (TILE); a
    record that meets an untaken one is dropped. The walk ends when the node is disarmed, after the commit on offer; all
    of its commits have the epoch in which it began. Counts of 0 act as 1, but for `count`. Latency: last word to first
    commit 3 cycles, one per WF tile of a workgroup, and one per workgroup of the range before `first`. Rate: a
    workgroup of n tiles takes n + 1 cycles.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        messages = Messages(config)
        super().__init__(
            {
                "entry": In(RangeWrite),
                "first": In(16),
                "count": In(16),
                "armed": In(1),
                "epoch": In(messages.epoch),
                "commits": Out(stream.Signature(messages.commit)),
                "faults": Out(stream.Signature(messages.fault_record)),
                "busy": Out(1),
                "tile": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        kept = Signal(entry_layout(config))
        walk = Signal(walk_layout(config))
        index = Signal(config.range_bits)
        epoch = Signal(config.epoch_bits)
        count = Signal(16)
        before = Signal(signed(_NUMBER_BITS))
        end = Signal(signed(_NUMBER_BITS + 1))
        row_stride = Signal(config.va_sector_bits)
        strides_left = Signal(4)

        rung = Signal()
        counted = Signal()
        begin = Signal()
        enter = Signal()
        advance = Signal()
        refused = Signal()
        fault = Signal(Fault)
        last = Signal()
        last_tile = Signal()
        before_first = Signal()
        commit = self.commits.payload
        m.d.comb += [
            rung.eq(self.entry.valid & (self.entry.word == Word.CONTROL)),
            last.eq(walk.number + 1 == end),
            last_tile.eq((walk.wf + 1 >= walk.tiles) | walk.wf.all()),
            before_first.eq(walk.number < before),
            commit.range.eq(index),
            commit.epoch.eq(epoch),
            commit.wg.eq(walk.wg),
            commit.wf.eq(walk.wf),
            commit.va.eq(walk.va),
            commit.bytes.eq(self._threshold(kept, walk)),
            self.tile.eq(self.commits.valid & self.commits.ready),
        ]
        with m.FSM(name="doorbell") as walker:
            with m.State("IDLE"):
                self._keep(m, kept)
                m.d.sync += [index.eq(self.entry.index), before.eq(self.first), count.eq(self.count)]
                with m.If(rung):
                    m.next = "LOAD"
            with m.State("LOAD"):
                self._keep(m, kept)
                m.d.sync += [epoch.eq(self.epoch), end.eq(before + count), row_stride.eq(0)]
                # A cycle late, since the word comes from a memory: it is not among the last two.
                m.d.sync += counted.eq(self.entry.valid & (self.entry.word == Word.WORKGROUPS))
                with m.If(counted):
                    m.d.sync += before.eq(before - kept.workgroups.base)
                with m.If(self.entry.valid & (self.entry.word == Word.WF_TOTAL)):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += begin.eq(1)
                m.d.sync += strides_left.eq(kept.grouping.wfs)
                m.next = "IDLE"
                unknown = ~kept.control.valid | ~kept.control.tracked
                with m.If(~self.armed):
                    m.d.comb += [refused.eq(1), fault.eq(Fault.NOT_ARMED)]
                with m.Elif(unknown | (before < 0) | (end > kept.workgroups.count)):
                    m.d.comb += [refused.eq(1), fault.eq(Fault.TILE)]
                with m.Elif(count != 0):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += [row_stride.eq(row_stride + kept.wf_stride), strides_left.eq(strides_left - 1)]
                with m.If(strides_left[1:] == 0):
                    m.next = "ENTER"
            with m.State("ENTER"):
                m.d.comb += [enter.eq(1), advance.eq(before_first)]
                with m.If(~self.armed):
                    m.next = "IDLE"
                with m.Elif(~before_first):
                    m.next = "COMMIT"
            with m.State("COMMIT"):
                m.d.comb += self.commits.valid.eq(1)
                with m.If(self.commits.ready):
                    m.d.comb += advance.eq(last_tile)
                    m.d.sync += [walk.wf.eq(walk.wf + 1), walk.va.eq(walk.va + kept.wf_stride)]
                    with m.If(~self.armed | (last & last_tile)):
                        m.next = "IDLE"
                    with m.Elif(last_tile):
                        m.next = "ENTER"
        idle = walker.ongoing("IDLE")
        m.d.comb += [
            self.busy.eq(~idle | rung),
            self.wake.eq(self.busy | self.entry.valid | self.faults.valid),
        ]
        with m.If(rung & ~idle):
            m.d.comb += [refused.eq(1), fault.eq(Fault.BUSY)]
        self._move(m, kept, walk, begin, enter, advance, row_stride)
        self._record(m, refused, fault)
        return m

    def _keep(self, m: Module, kept: data.View) -> None:
        """Take in the word that is on `entry`."""
        places = {Word.BASE_LOW: kept.base[:32], Word.BASE_HIGH: kept.base[32:]}
        with m.If(self.entry.valid), m.Switch(self.entry.word):
            for word in Word:
                name = word.name.lower()
                if word in places or name in kept.shape().members:
                    with m.Case(word.value):
                        m.d.sync += Value.cast(places.get(word, getattr(kept, name, None))).eq(self.entry.data)

    @staticmethod
    def _threshold(kept: data.View, walk: data.View) -> Value:
        """Threshold of the tile at which the walk stands."""
        ragged = walk.bottom & (walk.wf == kept.blocks.bottom_full)
        return Mux(
            ragged,
            Mux(walk.right, kept.threshold_corner, kept.threshold_bottom),
            Mux(walk.right, kept.threshold_right, kept.threshold_body),
        )

    def _move(
        self,
        m: Module,
        kept: data.View,
        walk: data.View,
        begin: Signal,
        enter: Signal,
        advance: Signal,
        row_stride: Signal,
    ) -> None:
        """Stand before the first workgroup of the range (`begin`), on the first tile of a workgroup (`enter`), before
        the next one (`advance`)."""
        rotated = Signal(16)
        right = Signal()
        next_row = Signal(self._config.va_sector_bits)
        m.d.comb += [
            rotated.eq(Cat(walk.product, walk.product) >> kept.grouping.shift),
            right.eq(walk.right),
            next_row.eq(walk.row_va + row_stride),
        ]
        with m.If(enter):
            bottom = walk.number >= kept.ragged.bottom
            m.d.comb += right.eq(rotated <= kept.grouping.limit)
            m.d.sync += [
                walk.right.eq(right),
                walk.bottom.eq(bottom),
                walk.tiles.eq(Mux(bottom, kept.blocks.bottom_wfs, kept.grouping.wfs)),
                walk.wf.eq(0),
                walk.va.eq(walk.tile_va),
            ]
        with m.If(begin):
            m.d.sync += [
                walk.number.eq(0),
                walk.wg.eq(kept.workgroups.base),
                walk.product.eq(kept.ragged.inverse),
                walk.row_va.eq(kept.base),
                walk.tile_va.eq(kept.base),
            ]
        with m.Elif(advance):
            m.d.sync += [
                walk.number.eq(walk.number + 1),
                walk.wg.eq(walk.wg + 1),
                walk.product.eq(walk.product + kept.ragged.inverse),
                walk.tile_va.eq(walk.tile_va + (kept.row_bytes.body >> SECTOR_BITS)),
            ]
            with m.If(right):
                m.d.sync += [walk.row_va.eq(next_row), walk.tile_va.eq(next_row)]

    def _record(self, m: Module, refused: Signal, fault: Signal) -> None:
        """Leave a record of a ring that is refused. One that waits is kept."""
        record = self.faults.payload
        with m.If(~self.faults.valid | self.faults.ready):
            m.d.sync += [
                self.faults.valid.eq(refused),
                record.fault.eq(fault),
                record.access.eq(Access.UPDATE),
                record.wg.eq(self.first),
            ]
