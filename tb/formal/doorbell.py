"""Proof of the doorbell: each tile that it is rung for is committed once, and no other.

With the Tracker's proof that a tile whose commits add up to its threshold triggers exactly once, so does each of these.
"""

from amaranth import Mux, Signal
from amaranth.hdl import Value

from hw.config import Configuration
from hw.range_table import Word
from hw.tracker.doorbell import Doorbell, entry_layout, walk_layout
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof


@proof(
    block="doorbell",
    claim="for any range and WF tile: from a ring to the end of its walk the tile is committed once if the range has "
    "it and its workgroup is among those that were asked for, else never, unless the node is disarmed, and then never "
    "twice; every commit has the epoch of the ring and the threshold of its tile's row; no commit is first offered "
    "unless the node was armed in the cycle before; an offer stays until it is taken",
    scope="full size; any words, but for 1 to 8 WF tiles in a workgroup and wg below 2**16",
    bug="last_tile stuck at 1: only the first tile of a workgroup is committed",
    bug_depth=40,
    cover_depth=40,
    depth=2,
)
def doorbell_exactly_once(b: Bench) -> None:
    m = b.m
    config = Configuration()
    dut = Doorbell(config)
    block = b.open_block(dut, stuck={"last_tile": 1})
    kept = block.view("kept", entry_layout(config))
    walk = block.view("walk", walk_layout(config))
    before, end, count = (block.signal(name) for name in ("before", "end", "count"))
    idle, load, check, measure, enter, commit = (
        block.state("doorbell", state) for state in ("IDLE", "LOAD", "CHECK", "MEASURE", "ENTER", "COMMIT")
    )
    walking = enter | commit

    def comes(word: Word) -> Value:
        return load & dut.entry.valid & (dut.entry.word == word)

    counted = b.past(comes(Word.WORKGROUPS), "counted_before")
    b.assume(implies(comes(Word.WF_TOTAL), ~counted))
    b.invariant(block.signal("counted") == counted)

    # What the words must say, from the last one on.
    wfs, bottom_wfs = kept.grouping.wfs, kept.blocks.bottom_wfs
    b.assume(implies(check | measure | walking, (wfs >= 1) & (wfs <= 8) & (bottom_wfs >= 1) & (bottom_wfs <= 8)))
    b.assume(implies(check | measure | walking, kept.workgroups.base + kept.workgroups.count <= 1 << 16))

    # Any tile, by its place in the range.
    place, wf = b.any_const(16, "place"), b.any_const(3, "wf")
    bottom = Signal()
    tiles = Signal(4)
    asked = Signal()
    ours = Signal()
    offered = dut.commits.payload
    m.d.comb += [
        bottom.eq(place >= kept.ragged.bottom),
        tiles.eq(Mux(bottom, bottom_wfs, wfs)),
        asked.eq((place >= before) & (place < end) & (wf < tiles)),
        ours.eq(dut.tile & (offered.wg == kept.workgroups.base + place) & (offered.wf == wf)),
    ]
    committed = Signal(2)
    """How often the tile was committed since the ring."""
    with m.If(check):
        m.d.sync += committed.eq(0)
    with m.Elif(ours & ~committed.all()):
        m.d.sync += committed.eq(committed + 1)

    was_walking = b.past(walking, "was_walking")
    was_armed = b.past(dut.armed, "was_armed")
    b.claim(implies(ours, (committed == 0) & asked))
    b.claim(implies(was_walking & was_armed & idle, committed == asked))
    b.claim(implies(~walking & ~idle & ~load & ~check, committed == 0))
    epoch = Signal(config.epoch_bits)
    with m.If(check):
        m.d.sync += epoch.eq(block.signal("epoch"))
    b.claim(implies(dut.commits.valid, offered.epoch == epoch))
    ragged = bottom & (wf == kept.blocks.bottom_full)
    plain, right = (
        Mux(ragged, kept.threshold_bottom, kept.threshold_body),
        Mux(ragged, kept.threshold_corner, kept.threshold_right),
    )
    b.claim(implies(ours, offered.bytes == Mux(walk.right, right, plain)))
    stalled, _ = b.claim_offers_stay(dut.commits)
    b.claim(implies(dut.commits.valid & ~stalled, was_armed))

    # Where the walk stands, and what is committed by then.
    passed = (place < walk.number) | (commit & (place == walk.number) & (wf < walk.wf))
    b.invariant(idle | load | check | measure | walking)
    b.invariant(implies(measure | walking, (before >= 0) & (end > before) & (end <= kept.workgroups.count)))
    b.invariant(implies(measure, (walk.number == 0) & (committed == 0) & (walk.wg == kept.workgroups.base)))
    b.invariant(implies(walking, walk.number < end))
    b.invariant(implies(walking, walk.wg == kept.workgroups.base + walk.number))
    b.invariant(implies(walking, committed == (asked & passed)))
    b.invariant(implies(commit, walk.number >= before))
    b.invariant(implies(commit, walk.bottom == (walk.number >= kept.ragged.bottom)))
    b.invariant(implies(commit, walk.tiles == Mux(walk.bottom, bottom_wfs, wfs)))
    b.invariant(implies(commit, walk.wf < walk.tiles))
    b.invariant(implies(check | measure | walking, end == before + count))
    b.invariant(implies(measure | walking, block.signal("epoch") == epoch))
    b.cover(was_walking & was_armed & idle & (committed == 1) & (place == 1) & (wf == 1))
    b.cover(dut.faults.valid & walking)
    b.cover(b.past(walking & ~dut.armed, "cut") & idle & (committed == 0) & asked)
