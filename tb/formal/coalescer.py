"""Proof of the coalescer: merging commits on their way to the Tracker neither loses nor invents a byte."""

from amaranth import Signal
from amaranth.lib.data import View

from hw.config import Configuration
from hw.tracker.coalescer import Coalescer
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

SUM_BITS = 24


@proof(
    block="coalescer",
    claim="for any WF tile, epoch and range: the bytes of the messages are those of the commits taken in less those "
    "still held; a message holds no byte of another tile; it starts at the lowest address of its commits; an offer "
    "stays until it is taken, and whatever is held is offered",
    scope="full size; any commits",
    bug="mergeable stuck at 1: commits of different tiles are added up",
    bug_depth=8,
    cover_depth=10,
    depth=1,
)
def coalescer_conserves(b: Bench) -> None:
    m = b.m
    dut = Coalescer(Configuration())
    block = b.open_block(dut, stuck={"mergeable": 1})
    commit, message = dut.commits.payload, dut.messages.payload
    key = {name: b.any_const(len(commit[name]), f"key_{name}") for name in ("range", "wg", "wf", "epoch")}
    lowest = b.any_const(len(commit.va), "lowest")

    def ours(payload: View) -> Signal:
        same = Signal()
        m.d.comb += same.eq(1)
        for name, value in key.items():
            with m.If(payload[name] != value):
                m.d.comb += same.eq(0)
        return same

    into, out = Signal(), Signal()
    m.d.comb += into.eq(dut.commits.valid & dut.commits.ready & ours(commit))
    m.d.comb += out.eq(dut.messages.valid & dut.messages.ready & ours(message))
    b.assume(implies(into, commit.va >= lowest))
    held = Signal(SUM_BITS)
    """Bytes of the tile taken in and not yet passed on."""
    m.d.sync += held.eq(held + commit.bytes * into - message.bytes * out)
    at_lowest = Signal()
    """Some of them belong to the lowest address."""
    with m.If(into & (commit.va == lowest) & ~(out & (message.va == lowest))):
        m.d.sync += at_lowest.eq(1)
    with m.Elif(out & (message.va == lowest)):
        m.d.sync += at_lowest.eq(0)

    waiting = Signal()
    m.d.comb += waiting.eq(dut.messages.valid & ~dut.commits.valid)
    b.claim(implies(out, message.bytes <= held + commit.bytes * into))
    b.claim(implies(held != 0, dut.messages.valid))
    b.claim(implies(~dut.messages.valid, held == 0))
    b.claim(implies(out, message.va >= lowest))
    b.claim(implies(~dut.messages.valid, ~at_lowest))
    stalled, offered_before = b.claim_offers_stay(dut.messages)

    offered, gathered = (block.view(name, commit.shape()) for name in ("offered", "gathered"))
    offered_valid, gathered_valid = block.signal("offered_valid"), block.signal("gathered_valid")
    mine, also_mine = offered_valid & ours(offered), gathered_valid & ours(gathered)
    b.invariant(implies(gathered_valid, offered_valid))
    b.invariant(held == (offered.bytes * mine + gathered.bytes * also_mine)[:SUM_BITS])
    b.invariant(implies(mine, offered.va >= lowest) & implies(also_mine, gathered.va >= lowest))
    b.invariant(implies(at_lowest, mine & (offered.va == lowest) | also_mine & (gathered.va == lowest)))
    b.invariant(implies(stalled, offered_valid & (offered.as_value() == offered_before)))
    b.cover(out & (message.bytes == 96) & b.past(b.past(waiting, "waited_1"), "waited_2"))
    b.cover(gathered_valid & (held > 32) & mine & also_mine)
