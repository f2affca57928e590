"""Proofs of the coalescers: merging commits on their way to the Tracker neither loses nor invents a byte."""

from collections.abc import Callable

from amaranth import Cat, Module, Signal
from amaranth.lib.data import View

from hw.config import Configuration
from hw.messages import Messages
from hw.tracker.coalescer import Coalescer
from hw.tracker.merging import Merger
from tb.formal.bench import Bench, Block, implies
from tb.formal.proof import proof

SUM_BITS = 24


def _of_tile(m: Module, key: dict[str, Signal]) -> Callable[[View], Signal]:
    """What tells whether a commit or a message is of the tile `key`."""

    def ours(payload: View) -> Signal:
        same = Signal()
        m.d.comb += same.eq(1)
        for name, value in key.items():
            with m.If(payload[name] != value):
                m.d.comb += same.eq(0)
        return same

    return ours


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
    ours = _of_tile(m, key)

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

    names = ("offered", "gathered", "landed")
    offered, gathered, _ = places = [block.view(name, commit.shape()) for name in names]
    valid = [block.signal(f"{name}_valid") for name in names]
    mine = [is_valid & ours(place) for is_valid, place in zip(valid, places, strict=True)]
    b.invariant(implies(valid[1] | valid[2], valid[0]))
    b.invariant(held == sum(place.bytes * own for place, own in zip(places, mine, strict=True))[:SUM_BITS])
    for place, own in zip(places, mine, strict=True):
        b.invariant(implies(own, place.va >= lowest))
    at = Cat(own & (place.va == lowest) for place, own in zip(places, mine, strict=True))
    b.invariant(implies(at_lowest, at.any()))
    b.invariant(implies(stalled, valid[0] & (offered.as_value() == offered_before)))
    b.cover(out & (message.bytes == 96) & b.past(b.past(waiting, "waited_1"), "waited_2"))
    b.cover((held > 32) & Cat(mine).all() & (gathered.bytes > 32))


@proof(
    block="coalescer",
    claim="of what two streams of commits bring, for any WF tile, epoch and range: the bytes of the messages are those "
    "of the commits taken in less those still held; a message starts at the lowest address of its commits; an offer "
    "stays until it is taken, and whatever is held is offered",
    scope="full size, a queue of 3; any commits",
    bug="both stuck at 1: what comes together is added up, whatever it counts for",
    bug_depth=8,
    cover_depth=10,
    depth=1,
)
def merger_conserves(b: Bench) -> None:
    m = b.m
    depth = 3
    dut = Merger(Configuration(), depth)
    block = b.open_block(dut, stuck={"both": 1})
    message = dut.messages.payload
    key = {name: b.any_const(len(message[name]), f"key_{name}") for name in ("range", "wg", "wf", "epoch")}
    lowest = b.any_const(len(message.va), "lowest")
    ours = _of_tile(m, key)

    out = Signal()
    m.d.comb += out.eq(dut.messages.valid & dut.messages.ready & ours(message))
    into = []
    for number, port in enumerate(dut.inputs):
        taken = Signal(name=f"into_{number}")
        m.d.comb += taken.eq(port.valid & port.ready & ours(port.payload))
        b.assume(implies(taken, port.payload.va >= lowest))
        into.append((taken, port.payload))
    held = Signal(SUM_BITS)
    """Bytes of the tile taken in and not yet passed on."""
    m.d.sync += held.eq(held + sum(commit.bytes * taken for taken, commit in into) - message.bytes * out)
    at_lowest = Signal()
    """Some of them belong to the lowest address."""
    brings = Signal()
    m.d.comb += brings.eq(Cat(taken & (commit.va == lowest) for taken, commit in into).any())
    several = several_at_lowest(b, block, depth, ours, lowest)
    with m.If(brings):
        m.d.sync += at_lowest.eq(1)
    with m.Elif(out & (message.va == lowest) & ~several):
        m.d.sync += at_lowest.eq(0)

    b.claim(implies(out, (message.bytes <= held) & (message.va >= lowest)))
    b.claim(implies(~dut.messages.valid, (held == 0) & ~at_lowest))
    b.claim_offers_stay(dut.messages)
    level = block.signal("level")
    entries = [block.view(f"entry_{number}", message.shape()) for number in range(depth)]
    mine = [(level > number) & ours(entry) for number, entry in enumerate(entries)]
    tail = block.signal("tail")
    for number, entry in enumerate(entries):
        # Proved by `merger_knows_its_last`.
        b.assume(implies(level == number + 1, tail == entry.as_value()))
    b.invariant(level <= depth)
    b.invariant(held == sum(entry.bytes * own for entry, own in zip(entries, mine, strict=True))[:SUM_BITS])
    for entry, own in zip(entries, mine, strict=True):
        b.invariant(implies(own, entry.va >= lowest))
    b.invariant(
        implies(at_lowest, Cat(own & (entry.va == lowest) for entry, own in zip(entries, mine, strict=True)).any())
    )
    b.cover(out & (message.bytes == 96))
    b.cover((level == depth) & mine[0] & mine[2] & ~mine[1])


def several_at_lowest(b: Bench, block: Block, depth: int, ours: Callable[[View], Signal], lowest: Signal) -> Signal:
    """Whether a message behind the first one of the queue starts at the lowest address, too."""
    level = block.signal("level")
    first = block.view("entry_0", Messages(Configuration()).commit)
    behind = []
    for number in range(1, depth):
        entry = block.view(f"entry_{number}", first.shape())
        behind.append((level > number) & ours(entry) & (entry.va == lowest))
    found = Signal()
    b.m.d.comb += found.eq(Cat(behind).any())
    return found


@proof(
    block="coalescer",
    claim="what a merger takes for the last commit of its queue is the last one",
    scope="full size, a queue of 3; any commits",
    bug="tail stuck at 0",
    bug_depth=6,
    cover_depth=8,
    depth=1,
)
def merger_knows_its_last(b: Bench) -> None:
    depth = 3
    dut = Merger(Configuration(), depth)
    block = b.open_block(dut, stuck={"tail": 0})
    level, tail = block.signal("level"), block.signal("tail")
    for number in range(depth):
        entry = block.view(f"entry_{number}", dut.messages.payload.shape())
        b.claim(implies(level == number + 1, tail == entry.as_value()))
    b.invariant(level <= depth)
    b.cover(level == depth)
