"""Stage 5 of a Tracker bank: add an access to its counter and decide what follows. Combinational, no state.

Source: T3 section 4.2.1; overflow and accesses past the threshold: hw/DECISIONS.md 1, 4 and 5.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Fault, Messages
from .mshr import counter, tile_key
from .parameters import ENTRY_EPOCH_BITS, TrackerParameters
from .storage import entry_layout
from .tile_geometry import MAX_WFS, bank_bits, block_place

GENERATION_BITS = 32
"""Width of the number of sweeps since reset, kept in the reserved bits of a spilled record."""


def operation(config: TrackerParameters) -> data.StructLayout:
    """What moves through the stages: a message, or a fill from MSHR `buffer` (one-hot; `present`: its home held
    a counter). `stale`: the message is of another epoch."""
    return data.StructLayout(
        {
            "key": tile_key(config),
            "amount": counter(config),
            "fill": unsigned(1),
            "buffer": unsigned(config.tracker_mshrs),
            "present": unsigned(1),
            "stale": unsigned(1),
        }
    )


def selection(config: TrackerParameters) -> data.StructLayout:
    """What stage 4 found for the operation: geometry of the tile (`remaining` = threshold minus amount), the `way` it
    hit or may take, the `victim` should the set be `full`, the MSHR that `matches` (one-hot; a fill's own;
    `matched`: any), the counter `before` (zero on a miss), and how many counters of the set are `spilled`."""
    return data.StructLayout(
        {
            "place": block_place(config),
            "right": unsigned(1),
            "missing": unsigned(1),
            "remaining": signed(config.count_bits + 1),
            "hit": unsigned(1),
            "full": unsigned(1),
            "way": unsigned(config.tracker_ways),
            "before": counter(config),
            "victim": entry_layout(config),
            "matches": unsigned(config.tracker_mshrs),
            "matched": unsigned(1),
            "spilled": unsigned(config.tag_bits + 1),
        }
    )


class CountStage(wiring.Component):
    """Ports: `valid`, `operation`, `selection`, `done` (mask of the tile's block), `epoch`, `generation`, `allocated`
    (the MSHR a fetch would take).

    Out: `write_ways`, `write_entry`, `write_spilled`, `spilled_value` to the storage; `update`, `free`, `fetch` and
    `value` to the MSHRs; `keeps`: `value` is the tile's counter from now on, in its entry or in a MSHR;
    `drops`: it has none any more; `spill` with `spill_request`; `complete`: the WF tile reached its threshold;
    `refused` with `fault`; `hit`, `allocation`, `eviction` for the counters. Latency 0 cycles.
    """

    def __init__(self, config: TrackerParameters, bank: int):
        self._config = config
        self._bank = bank
        super().__init__(
            {
                "valid": In(1),
                "operation": In(operation(config)),
                "selection": In(selection(config)),
                "done": In(MAX_WFS),
                "epoch": In(config.epoch_bits),
                "generation": In(GENERATION_BITS),
                "allocated": In(range(config.tracker_mshrs)),
                "write_ways": Out(config.tracker_ways),
                "write_entry": Out(entry_layout(config)),
                "write_spilled": Out(1),
                "spilled_value": Out(config.tag_bits + 1),
                "update": Out(1),
                "free": Out(1),
                "fetch": Out(1),
                "value": Out(counter(config)),
                "keeps": Out(1),
                "drops": Out(1),
                "spill": Out(1),
                "spill_request": Out(Messages(config).spill_request),
                "complete": Out(1),
                "refused": Out(1),
                "fault": Out(Fault),
                "hit": Out(1),
                "allocation": Out(1),
                "eviction": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        high = config.set_bits
        now, found = self.operation, self.selection

        matched, before = found.matched, found.before
        past = Signal()
        reached = Signal()
        lower = Signal()
        total = Signal(config.count_bits)
        m.d.comb += [
            past.eq(before.count > found.remaining),
            reached.eq(before.count == found.remaining),
            lower.eq((matched | found.hit) & (before.va < now.amount.va)),
            self.value.va.eq(Mux(lower, before.va, now.amount.va)),
            total.eq(before.count + now.amount.count),
            self.value.count.eq(Mux(past, now.amount.count, total)),
        ]

        message = Signal()
        sound = Signal()
        already_done = Signal()
        miss = Signal()
        spilled = Signal()
        m.d.comb += [
            message.eq(self.valid & ~now.fill),
            already_done.eq((self.done >> found.place.position) & 1),
            sound.eq(message & ~now.stale & ~found.missing & ~already_done & ~past),
            miss.eq(~found.hit & ~matched),
            spilled.eq(found.spilled != 0),
        ]
        with m.If(message & now.stale):
            m.d.comb += [self.refused.eq(1), self.fault.eq(Fault.EPOCH)]
        with m.Elif(message & found.missing):
            m.d.comb += [self.refused.eq(1), self.fault.eq(Fault.TILE)]
        with m.Elif((message & already_done) | (self.valid & past)):
            m.d.comb += [self.refused.eq(1), self.fault.eq(Fault.PAST_THRESHOLD)]

        returning = Signal()
        m.d.comb += [
            returning.eq(self.valid & now.fill),
            self.free.eq(returning),
            self.update.eq(sound & matched),
            self.fetch.eq(sound & miss & spilled),
            self.hit.eq(sound & found.hit),
            self.complete.eq(reached & (returning | (sound & (found.hit | (miss & ~spilled))))),
            self.allocation.eq(~reached & (returning | (sound & miss & ~spilled))),
            self.eviction.eq(self.allocation & found.full),
            self.keeps.eq(self.allocation | (self.hit & ~reached) | self.update | self.fetch),
            self.drops.eq(reached & (self.hit | returning)),
        ]
        m.d.comb += [
            self.write_ways.eq(found.way & (self.allocation | self.hit).replicate(config.tracker_ways)),
            self.write_entry.valid.eq(~reached),
            self.write_entry.tag.eq(Cat(now.key.wf, now.key.wg[high:])),
            self.write_entry.epoch.eq(self.epoch[:ENTRY_EPOCH_BITS]),
            self.write_entry.va.eq(self.value.va),
            self.write_entry.count.eq(self.value.count),
            self.write_spilled.eq(self.eviction | (returning & now.present)),
            self.spilled_value.eq(found.spilled + self.eviction - (returning & now.present)),
        ]

        # At most one spill request: a fetch allocates no entry, so it evicts nothing.
        request = self.spill_request
        key_wg = Cat(now.key.wg[:high], found.victim.tag[config.wf_bits :])
        record = request.record
        m.d.comb += [self.spill.eq(self.eviction | self.fetch), request.write.eq(self.eviction)]
        with m.If(self.eviction):
            m.d.comb += [
                request.index.eq(Cat(found.victim.tag[: config.wf_bits], key_wg)),
                record.present.eq(1),
                record.epoch.eq(self.epoch),
                record.count.eq(found.victim.count),
                record.va.eq(found.victim.va),
                record.reserved.eq(self.generation),
            ]
        with m.Else():
            tag = self.allocated
            mshr_bits = (config.tracker_mshrs - 1).bit_length()
            m.d.comb += [
                request.index.eq(Cat(now.key.wf, now.key.wg)),
                request.tag.eq(Cat(tag[:mshr_bits], Const(self._bank, max(bank_bits(config), 1)))),
            ]
        return m
