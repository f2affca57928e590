"""Proofs of the check bits of memories: what a code corrects and finds, and that check bits keep up with their word."""

from unittest.mock import patch

from amaranth import Cat, Mux, Signal, Value

from hw.config import Configuration
from hw.primitives.secded import Corrector, check_bits, check_width
from hw.tracker import storage as storage_module
from hw.tracker.storage import entry_layout
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

WIDTHS = (8, 12)
"""Of the words that are any: a block's done mask, the number of a set's spilled counters."""
WIDE = (43, 76, 101)
"""Of those that are 0: an address, a counter, a record of the backing store. A parity is linear, so what errors do to a
word of zeros they do to any; a solver does not see that, and would try all words."""


@proof(
    block="secded",
    claim="a word with one wrong bit, of its own or of its check bits, comes back as it was and is told as wrong; one "
    "with two is told as lost; one with none is left alone",
    scope=f"any word of {' and '.join(map(str, WIDTHS))} bits, 0 of {', '.join(map(str, WIDE))} (the code is linear); "
    "any places",
    bug="found stuck at 0: no word is wrong",
    bug_depth=2,
    cover_depth=2,
    depth=1,
)
def secded_corrects_one_and_finds_two(b: Bench) -> None:
    m = b.m
    for width in WIDTHS + WIDE:
        dut = Corrector(width)
        b.block(dut, f"dut_{width}", stuck={"found": 0})
        bits = width + check_width(width)
        word = b.any_seq(width, f"word_{width}") if width in WIDTHS else Signal(width, name=f"word_{width}")
        first, second = (b.any_seq(range(bits), f"{name}_{width}") for name in ("first", "second"))
        errors = b.any_seq(2, f"errors_{width}")
        b.assume((first < bits) & (second < bits) & (first != second) & (errors < 3))
        flipped = Signal(bits, name=f"flipped_{width}")
        m.d.comb += [
            flipped.eq(Mux(errors != 0, 1 << first, 0) ^ Mux(errors == 2, 1 << second, 0)),
            dut.word.eq(word ^ flipped[:width]),
            dut.check.eq(check_bits(word) ^ flipped[width:]),
        ]
        b.claim(dut.wrong == (errors != 0))
        b.claim(dut.lost == (errors == 2))
        b.claim(implies(errors < 2, dut.corrected == word))
        b.cover((errors == 1) & (first == width))
        b.cover((errors == 2) & (first == 0) & (second == bits - 1))


@proof(
    block="tracker_bank",
    claim="whatever is written, by the pipeline or by what mends it, a set that is read has the check bits of its "
    "words: without an upset nothing is ever wrong",
    scope="4 sets x 2 ways, any writes and reads after reset, none in a clear; check bits are the word itself, which "
    "any function of it follows from",
    bug="entry_check stuck at 0: an update that is passed on past the memory leaves its check bits behind",
    bug_depth=14,
    cover_depth=14,
)
def check_bits_follow_their_memory(b: Bench) -> None:
    config = Configuration(tracker_sets=4, tracker_ways=2, trigger_blocks=16, protection="all")
    with (
        patch.object(storage_module, "check_width", lambda width: width),
        patch.object(storage_module, "check_bits", lambda word: word),
        patch.object(storage_module, "syndrome", lambda word, check: word ^ check),
    ):
        dut = storage_module.CounterStorage(config)
        block = b.open_block(dut, stuck={"entry_check": 0})
    writes = dut.write_ways.any() | dut.write_spilled | dut.mend.valid
    b.assume(implies(dut.clear | ~dut.cleared, ~writes))
    b.assume(~dut.mend.upset)
    watched = b.any_const(range(config.tracker_sets), "set")
    entry_bits, spilled_bits = entry_layout(config).size, config.tag_bits + 1

    def agree(word: Value, width: int) -> Value:
        return Cat(
            word[low : low + width] == word[low + width : low + 2 * width] for low in range(0, len(word), 2 * width)
        ).all()

    def same(ways: Value, spilled: Value) -> Value:
        return agree(ways, entry_bits) & agree(spilled, spilled_bits)

    read = dut.read_enable & dut.cleared & (dut.read_set == watched)
    read_1 = b.past(read, "read_before")
    read_2 = b.past(read_1 & dut.cleared, "read_two_before")
    b.claim(implies(read_2 & dut.cleared, ~dut.wrong.any()))

    clearing, index = block.signal("clearing"), block.signal("clear_index")
    entered = block.view("entered", storage_module.write_layout(config))
    b.invariant(
        implies(~clearing | (index > watched), same(block.word("sets", watched), block.word("spills", watched)))
    )
    b.invariant(implies(~clearing, index == 0))
    b.invariant(block.signal("entry_check") == entered.entry.as_value())
    b.invariant(block.signal("spilled_check") == entered.spilled)
    b.invariant(~block.signal("upset"))
    entering = block.view("entering", storage_module.write_layout(config))
    b.invariant(implies(clearing, ~entering.ways.any() & ~entering.spills))
    b.invariant(implies(read_1, same(block.read_data("sets"), block.read_data("spills"))))
    b.invariant(implies(read_2, same(block.signal("held_entries"), block.signal("held_spilled"))))
    b.cover(read_2 & dut.entries[0].valid & dut.entries[1].valid)
    b.cover(read_2 & b.past(dut.mend.valid & (dut.mend.set == watched), "mended"))
