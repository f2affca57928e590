"""The pipeline of a Tracker bank: it takes one operation a cycle and never stalls inside.

Stages: 0 accept; 1 range words; 2 trigger index, set address, partial products of the divisibility test; 3 set out of
the memory, threshold minus bytes; 4 way select; 5 add, compare; then the trigger table marks the tile and the storage
writes back. Stage 4 works out what it will find for each of the three things that stage 5 may do to the same set (leave
it, write a counter, take one out) and only then selects, so accesses to one set follow each other at full rate.

With protection of memories the check bits of a set are looked at beside its tags, in stage 4. An operation whose set
is not as it was written changes nothing: from stage 5 it goes back to stage 0, until the set is mended
(hw/DECISIONS.md 72). The order of messages, and of a message and a fill, makes no difference to a counter.
"""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data

from .count_stage import CountStage, operation, selection
from .direct_select import DirectSelect
from .mshr import MshrFile
from .parameters import ENTRY_EPOCH_BITS, TrackerParameters
from .storage import CounterStorage
from .tile_geometry import TileGeometry, bank_bits
from .trigger_table import TriggerTable
from .way_select import WaySelect


class Pipeline:
    """The parts of bank number `bank` in the order in which an operation meets them, and what is on its way through
    them.

    `stage_valid`: bit n, an operation is in stage n; `operations`, by stage; `found`: what stage 4 found, for stage 5.
    `again`: what is in stage 5 met a set that is wrong, it goes around once more; `reads_itself`: the storage is read
    for no operation (both with protection of memories only).
    """

    def __init__(self, m: Module, config: TrackerParameters, bank: int):
        self._config = config
        m.submodules.geometry = self.geometry = TileGeometry(config)
        m.submodules.storage = self.storage = CounterStorage(config)
        m.submodules.mshrs = self.buffers = MshrFile(config)
        m.submodules.triggers = self.triggers = TriggerTable(config)
        m.submodules.count = self.count = CountStage(config, bank)
        m.submodules.ways = self.ways = WaySelect(config) if config.tracker_tags else DirectSelect(config)
        self.stage_valid = Signal(6)
        incoming = Signal(operation(config))
        self.operations = [incoming, *(Signal(operation(config), name=f"stage_{number}") for number in range(1, 6))]
        self.found = Signal(selection(config))
        self.again = Signal()
        self.reads_itself = Signal()

    def set_of(self, operation: data.View) -> Value:
        """The set of this bank in which the counter of `operation` is."""
        return operation.key.wg[bank_bits(self._config) : self._config.set_bits]

    def advance(self, m: Module, accept: Signal) -> None:
        """Each operation goes on by a stage; stage 0 has one that comes with `accept`, or one that met a wrong set."""
        m.d.sync += self.stage_valid[1:].eq(self.stage_valid)
        m.d.comb += self.stage_valid[0].eq(accept | self.again)
        for number in range(5):
            with m.If(self.stage_valid[number]):
                m.d.sync += self.operations[number + 1].eq(self.operations[number])
        with m.If(self.again):
            m.d.comb += self.operations[0].eq(self.operations[5])

    def look_up(self, m: Module, ranges: data.View) -> None:
        """Stages 1 to 3: the range's words, the set's address, the set out of the memory."""
        geometry, storage, triggers = self.geometry, self.storage, self.triggers
        _, stage_1, stage_2, stage_3, *_ = self.operations
        m.d.comb += [
            geometry.ranges.eq(ranges),
            geometry.range.eq(stage_1.key.range),
            geometry.wg.eq(stage_1.key.wg),
            geometry.wf.eq(stage_1.key.wf),
            geometry.bytes.eq(stage_3.amount.count),
            storage.read_enable.eq(self.stage_valid[2] | self.reads_itself),
            storage.read_set.eq(self.set_of(stage_2)),
            triggers.lookup.eq(self.stage_valid[3]),
            triggers.lookup_index.eq(geometry.index),
        ]

    def select_way(self, m: Module, epoch: Signal) -> None:
        """Stage 4: way select."""
        geometry, storage, buffers = self.geometry, self.storage, self.buffers
        ways, count, found = self.ways, self.count, self.found
        *_, stage_3, stage_4, _ = self.operations
        m.d.comb += [
            buffers.lookup.eq(stage_4.key),
            buffers.same_tile.eq(ways.same_tile),
            ways.key_next.eq(stage_3.key),
            ways.valid.eq(self.stage_valid[4]),
            ways.key.eq(stage_4.key),
            ways.epoch.eq(epoch[:ENTRY_EPOCH_BITS]),
            ways.entries.eq(storage.entries),
            ways.held.eq(storage.held),
            ways.latest.eq(storage.latest),
            ways.latest_ways.eq(storage.latest_ways),
            ways.spilled_now.eq(storage.spilled),
            ways.gathered.eq(buffers.gathered),
            ways.way_before.eq(found.way),
            ways.writes.eq(count.allocation | count.hit),
            ways.keeps.eq(count.keeps),
            ways.drops.eq(count.drops),
            ways.value.eq(count.value),
            ways.written.eq(count.write_entry),
            ways.writes_spilled.eq(count.write_spilled),
            ways.spilled_written.eq(count.spilled_value),
        ]
        missing: Value = geometry.missing
        if not self._config.tracker_tags:
            missing = missing | stage_4.key.wg[self._config.set_bits :].any()
        with m.If(self.stage_valid[4]):
            m.d.sync += [
                found.place.eq(geometry.place),
                found.right.eq(geometry.right),
                found.missing.eq(missing),
                found.remaining.eq(geometry.remaining),
                found.matches.eq(Mux(stage_4.fill, stage_4.buffer, buffers.matches)),
                found.matched.eq(stage_4.fill | buffers.matched),
                *(
                    found[name].eq(getattr(ways, name))
                    for name in ("hit", "full", "way", "before", "victim", "spilled")
                ),
            ]

    def count_access(self, m: Module, epoch: Signal) -> None:
        """Stage 5: count, write back, mark."""
        storage, buffers, triggers = self.storage, self.buffers, self.triggers
        count, found = self.count, self.found
        stage_5 = self.operations[5]
        m.d.comb += [
            count.valid.eq(self.stage_valid[5]),
            count.operation.eq(stage_5),
            count.selection.eq(found),
            count.done.eq(triggers.done),
            count.epoch.eq(epoch),
            count.allocated.eq(buffers.allocated),
            storage.write_set.eq(self.set_of(stage_5)),
            storage.write_ways.eq(count.write_ways),
            storage.write_entry.eq(count.write_entry),
            storage.write_spilled.eq(count.write_spilled),
            storage.spilled_value.eq(count.spilled_value),
            buffers.select.eq(found.matches),
            buffers.update.eq(count.update),
            buffers.free.eq(count.free),
            buffers.allocate.eq(count.fetch),
            buffers.key.eq(stage_5.key),
            buffers.value.eq(count.value),
            triggers.complete.eq(count.complete),
            triggers.completion.place.eq(found.place),
            triggers.completion.range.eq(stage_5.key.range),
            triggers.completion.wg.eq(stage_5.key.wg),
            triggers.completion.va.eq(count.value.va),
            triggers.completion.right.eq(found.right),
        ]
