"""Proof that counters left in the backing store do not outlive a clear of their bank, and are good until then."""

from unittest.mock import patch

from amaranth import Signal, Value

from hw.config import Configuration
from hw.tracker import pipeline
from hw.tracker.bank import FIRST_GENERATION, TrackerBank
from hw.tracker.count_stage import GENERATION_BITS
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof
from tb.formal.tracker_parts import SpecifiedGeometry, SpecifiedTriggers, WatchedTile


@proof(
    block="tracker_bank",
    claim="a counter evicted before a clear is never taken for one of the epoch after it, even when evicted while "
    "the bank finishes what was under way at `clear`; until the clear it is taken",
    scope="4 sets x 1 way; any eviction, epoch and traffic, `clear` at any time; fewer than 2**32 clears; geometry and "
    "trigger table by their specification",
    bug="clears stuck at its first value: records of an earlier epoch of the same number are counted again",
    bug_depth=16,
    cover_depth=24,
    depth=1,
)
def tracker_clear_separates(b: Bench) -> None:
    m = b.m
    config = Configuration(tracker_sets=4, tracker_ways=1, tracker_mshrs=2, trigger_blocks=16)
    tile = WatchedTile(config)
    for signal in (tile.wg, tile.wf, tile.place, tile.threshold, tile.missing):
        value = Value.cast(signal)
        m.d.comb += value.eq(b.any_const(len(value), "tile"))
    dut = TrackerBank(config, 0)
    with (
        patch.object(pipeline, "TileGeometry", lambda c: SpecifiedGeometry(c, tile)),
        patch.object(pipeline, "TriggerTable", lambda c: SpecifiedTriggers(c, tile)),
    ):
        block = b.open_block(dut, stuck={"clears": FIRST_GENERATION})
    count, mshrs = block.component("count"), block.component("mshrs")
    clear = block.signal("begin_clear")

    # One arbitrary eviction, and whether the bank was cleared since.
    kept, written, cleared = Signal(GENERATION_BITS), Signal(), Signal()
    with m.If(b.any_seq(1, "choose") & count.eviction & ~written):
        m.d.sync += [written.eq(1), kept.eq(count.spill_request.record.reserved), cleared.eq(clear)]
    with m.Elif(written & clear):
        m.d.sync += cleared.eq(1)
    clears = Signal(GENERATION_BITS)
    m.d.sync += clears.eq(clears + clear)
    b.assume(clears != 2**GENERATION_BITS - 1)
    answer = dut.spill_response
    same = written & answer.valid & (answer.record.reserved[:GENERATION_BITS] == kept)
    b.claim(implies(same & cleared, ~mshrs.response_present))
    good = answer.record.present & (answer.record.epoch == dut.epoch)
    b.claim(implies(same & ~cleared & good, mshrs.response_present))

    age = (kept - FIRST_GENERATION)[:GENERATION_BITS]
    if not b.seeded:
        b.invariant(block.signal("clears") == (clears + FIRST_GENERATION)[:GENERATION_BITS])
    b.invariant(implies(written, age <= clears))
    b.invariant(implies(written & cleared, age < clears))
    b.invariant(implies(written & ~cleared, age == clears))
    b.cover(count.eviction & block.state("clear", "FINISH"))
    b.cover(written & cleared & answer.valid & (age == 0) & (clears == 1))
