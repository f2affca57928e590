"""Proof of the parity beside a memory: what it says is what happened to the words that were used."""

from amaranth import Array, Cat, Signal, Value

from hw.primitives.memory_watch import PART, MemoryWatch
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

WORDS = 2
WIDTH = PART + 1
"""Two parts, of which the second has one bit."""


def _check(b: Bench, late: int, part: int = PART) -> None:
    """A memory beside it, of which any bits of any read are turned."""
    m = b.m
    dut = MemoryWatch(WIDTH, WORDS, late=[late], part=part)
    block = b.block(dut, stuck={"parts": 0})
    b.free(dut.written, dut.write_address, dut.word, dut.used[0], dut.address[0])
    words = Array(Signal(WIDTH, name=f"word_{number}") for number in range(WORDS))
    known = Signal(WORDS)
    with m.If(dut.written):
        m.d.sync += [words[dut.write_address].eq(dut.word), known.bit_select(dut.write_address, 1).eq(1)]
    turns = b.any_seq(WIDTH, "turns")
    b.assume(implies(dut.used[0], known.bit_select(dut.address[0], 1)))
    used: list[Value] = [dut.used[0]]
    """Of which the word is to come in so many cycles, is there, and was."""
    read: Value = words[dut.address[0]]
    for cycle in range(late):
        used.append(b.past(used[-1], f"used_{cycle}"))
        read = b.past(read, f"read_{cycle}")
    m.d.comb += dut.read[0].eq(read ^ turns)
    used.append(b.past(used[-1], "compared"))
    told = b.past(used[-2] & turns.xor(), "told_first")
    b.claim(dut.wrong == b.past(told, "told"))
    b.claim(dut.busy == (dut.wrong | Cat(used[1:]).any()))

    # The parities are those of the words a cycle ago.
    for number in range(WORDS):
        before, was_known = b.past(words[number], f"before_{number}"), b.past(known[number], f"was_known_{number}")
        b.invariant(implies(was_known, block.word("parities", number) == before.xor()))
    b.cover(dut.wrong & b.past(dut.wrong, "wrong_before"))
    b.cover(used[-2] & ~turns.xor() & turns.any() & known.all())


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


@proof(
    block="memory_watch",
    claim="the same of words that come two cycles later, and are not summed up as they come",
    scope="2 words of 9 bits, any bits of any read turned",
    bug="parts stuck at 0: what is written has no parity",
    bug_depth=8,
    cover_depth=10,
    engine="pdr",
    depth=0,
)
def memory_watch_of_late_words(b: Bench) -> None:
    _check(b, late=2, part=1)
