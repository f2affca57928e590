"""Proof that counters left at home do not outlive the sweep of their Tracker bank, and are good until then."""

from unittest.mock import patch

from amaranth import Signal, Value

from hw.config import Configuration
from hw.tracker import bank as bank_module
from hw.tracker.bank import FIRST_GENERATION, TrackerBank
from hw.tracker.count_stage import GENERATION_BITS
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof
from tb.formal.tracker_parts import SpecifiedGeometry, SpecifiedTriggers, WatchedTile


@proof(
    block="tracker_bank",
    claim="a counter evicted before a sweep is never taken for one of the epoch after it, even when evicted while "
    "the bank finishes what was under way at `clear`; until the sweep it is taken",
    scope="4 sets x 1 way; any eviction, epoch and traffic, `clear` at any time; fewer than 2**32 sweeps; geometry and "
    "trigger table by their specification",
    bug="sweeps stuck at its first value: records of an earlier epoch of the same number are counted again",
    bug_depth=16,
    cover_depth=24,
    depth=1,
)
def tracker_sweep_separates(b: Bench) -> None:
    m = b.m
    config = Configuration(tracker_sets=4, tracker_ways=1, tracker_mshrs=2, trigger_blocks=16)
    tile = WatchedTile(config)
    for signal in (tile.wg, tile.wf, tile.place, tile.threshold, tile.missing):
        value = Value.cast(signal)
        m.d.comb += value.eq(b.any_const(len(value), "tile"))
    dut = TrackerBank(config, 0)
    with (
        patch.object(bank_module, "TileGeometry", lambda c: SpecifiedGeometry(c, tile)),
        patch.object(bank_module, "TriggerTable", lambda c: SpecifiedTriggers(c, tile)),
    ):
        block = b.open_block(dut, stuck={"sweeps": FIRST_GENERATION})
    count, fetches = block.component("count"), block.component("mshrs")
    sweep = block.signal("sweep")

    # One arbitrary eviction, and whether the bank was swept since.
    kept, written, swept = Signal(GENERATION_BITS), Signal(), Signal()
    with m.If(b.any_seq(1, "choose") & count.eviction & ~written):
        m.d.sync += [written.eq(1), kept.eq(count.spill_request.record.reserved), swept.eq(sweep)]
    with m.Elif(written & sweep):
        m.d.sync += swept.eq(1)
    sweeps = Signal(GENERATION_BITS)
    m.d.sync += sweeps.eq(sweeps + sweep)
    b.assume(sweeps != 2**GENERATION_BITS - 1)
    answer = dut.spill_response
    same = written & answer.valid & (answer.record.reserved[:GENERATION_BITS] == kept)
    b.claim(implies(same & swept, ~fetches.response_present))
    good = answer.record.present & (answer.record.epoch == dut.epoch)
    b.claim(implies(same & ~swept & good, fetches.response_present))

    age = (kept - FIRST_GENERATION)[:GENERATION_BITS]
    if not b.seeded:
        b.invariant(block.signal("sweeps") == (sweeps + FIRST_GENERATION)[:GENERATION_BITS])
    b.invariant(implies(written, age <= sweeps))
    b.invariant(implies(written & swept, age < sweeps))
    b.invariant(implies(written & ~swept, age == sweeps))
    b.cover(count.eviction & block.state("sweep", "FINISH"))
    b.cover(written & swept & answer.valid & (age == 0) & (sweeps == 1))
