"""Proof of the parity beside a memory: what it says is what happened to the words that were used."""

from amaranth import Array, Cat, Signal, Value

from hw.primitives.memory_watch import PART, MemoryWatch
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

WORDS = 2
WIDTH = PART + 1
"""Two parts, of which the second has one bit."""


def _check(b: Bench, late: int) -> None:
    """A memory beside it, of which any bits of any read are turned."""
    m = b.m
    dut = MemoryWatch(WIDTH, WORDS, late=[late])
    block = b.block(dut, stuck={"parts": 0})
    b.free(dut.written, dut.write_address, dut.word, dut.used[0], dut.address[0])
    words = Array(Signal(WIDTH, name=f"word_{number}") for number in range(WORDS))
    known = Signal(WORDS)
    with m.If(dut.written):
        m.d.sync += [words[dut.write_address].eq(dut.word), known.bit_select(dut.write_address, 1).eq(1)]
    turns = b.any_seq(WIDTH, "turns")
    read = words[dut.address[0]]
    used = Signal()
    odd = Signal()
    m.d.comb += used.eq(dut.used[0])
    b.assume(implies(used, known.bit_select(dut.address[0], 1)))
    used_since: Value
    if late:
        fetched = b.past(read, "fetched")
        m.d.comb += [dut.read[0].eq(fetched ^ turns), odd.eq(turns.xor())]
        used_before = b.past(used, "used_before")
        told = b.past(used_before & odd, "told_first")
        used_since = Cat(used_before, b.past(used_before, "compared"))
    else:
        m.d.comb += [dut.read[0].eq(read ^ turns), odd.eq(turns.xor())]
        told = b.past(used & odd, "told_first")
        used_since = b.past(used, "compared")
    b.claim(dut.wrong == b.past(told, "told"))
    b.claim(dut.busy == (dut.wrong | used_since.any()))

    # The parities are those of the words a cycle ago.
    for number in range(WORDS):
        before, was_known = b.past(words[number], f"before_{number}"), b.past(known[number], f"was_known_{number}")
        b.invariant(implies(was_known, block.word("parities", number) == before.xor()))
    b.cover(dut.wrong & b.past(dut.wrong, "wrong_before"))
    b.cover(b.past(used & ~odd & turns.any(), "even") & known.all())


@proof(
    block="memory_watch",
    claim="of a read of a word that was written, used 2 cycles ago, it tells whether an odd number of bits was turned, "
    "and of nothing else; it says how long it may still tell",
    scope="2 words of 9 bits, any bits of any read turned",
    bug="parts stuck at 0: what is written has no parity",
    bug_depth=6,
    cover_depth=8,
    engine="pdr",
    depth=0,
)
def memory_watch(b: Bench) -> None:
    _check(b, late=0)


@proof(
    block="memory_watch",
    claim="the same of a clocked read port, a cycle later",
    scope="2 words of 9 bits, any bits of any read turned",
    bug="parts stuck at 0: what is written has no parity",
    bug_depth=7,
    cover_depth=9,
    engine="pdr",
    depth=0,
)
def memory_watch_behind_a_clocked_port(b: Bench) -> None:
    _check(b, late=1)
