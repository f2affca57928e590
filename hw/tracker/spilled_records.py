"""Check bits of the counters that a Tracker bank keeps in the backing store, with protection of memories.

They are in the reserved bits of a record, above the clear number, and are of everything below them. Where no record was
written anything may lie: only what has the bank's clear number, but for two bits at the most, can have been one
(hw/DECISIONS.md 76).
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data

from ..primitives.count_ones import count_ones
from ..primitives.secded import check_bits, check_width, is_lost, syndrome, wrong_bits
from .count_stage import GENERATION_BITS


def checked_width(record: data.View) -> int:
    """How many bits of a `record` are used, its check bits above them not counted."""
    return len(record.as_value()) - len(record.reserved) + GENERATION_BITS


def with_check_bits(record: data.View) -> Value:
    """The bits of `record` that are used, and above them their check bits."""
    word = record.as_value()[: checked_width(record)]
    return Cat(word, check_bits(word))


@dataclass(frozen=True)
class CheckedAnswer:
    """An answer of the backing store, 3 cycles after it came, without its wrong bit.

    `put_right`: it had one. A record that is lost is none in `answer`; `lost`: the answer of the next cycle is one that
    was lost.
    """

    answer: data.View
    put_right: Signal
    lost: Value


def check_answer(m: Module, given: data.View, clears: Signal) -> CheckedAnswer:
    """What is meant by `given`, an answer of the backing store to a bank whose clear number is `clears`."""
    bits = checked_width(given.record)
    checks = check_width(bits)
    came = Signal.like(given)
    seen = Signal.like(given)
    answer = Signal.like(given)
    wrong = Signal(checks)
    differing = [Signal(4, name=f"differing_{part}") for part in range(GENERATION_BITS // 8)]
    put_right = Signal()
    word = came.record.as_value()
    m.d.sync += [
        came.eq(given),
        seen.eq(came),
        wrong.eq(syndrome(word[:bits], word[bits : bits + checks])),
        *(
            count.eq(count_ones((came.record.reserved ^ clears)[8 * part : 8 * part + 8]))
            for part, count in enumerate(differing)
        ),
    ]
    lost = Signal()
    m.d.comb += lost.eq(is_lost(wrong, bits))
    m.d.sync += [
        answer.eq(seen),
        answer.record.as_value().eq(seen.record.as_value()[:bits] ^ wrong_bits(wrong, bits)),
    ]
    with m.If(lost):
        m.d.sync += answer.record.present.eq(0)
    m.d.sync += put_right.eq(seen.valid & wrong.any() & ~lost)
    return CheckedAnswer(answer, put_right, seen.valid & lost & (sum(differing[1:], differing[0]) <= 2))
