"""Check bits of a word in a memory: one wrong bit is corrected, two are found.

An odd-weight-column code (M. Y. Hsiao, A class of optimal minimum odd-weight-column SEC-DED codes, IBM Journal of
Research and Development 14, 1970): each bit of the word has a column of its own, the check bits it counts in, of an odd
number of ones; a check bit's own column has one. A wrong bit leaves its column as the syndrome, two leave an even
number of ones, which is neither 0 nor a column. Columns have as few ones as there are enough of, spread evenly over the
check bits, so that no parity is deeper than it needs to be. A word of zeros has check bits of zeros.
"""

from functools import cache
from itertools import combinations
from math import comb

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def check_width(width: int) -> int:
    """How many check bits a word of `width` bits has."""
    bits = 4
    while sum(comb(bits, ones) for ones in range(3, bits + 1, 2)) < width:
        bits += 1
    return bits


@cache
def columns(width: int) -> tuple[int, ...]:
    """For every bit of a word of `width` bits, the check bits that it counts in."""
    bits = check_width(width)
    found: list[int] = []
    load = [0] * bits
    for ones in range(3, bits + 1, 2):
        left = list(combinations(range(bits), ones))
        while left and len(found) < width:
            chosen = min(left, key=lambda places: (sum(load[place] for place in places), places))
            left.remove(chosen)
            found.append(sum(1 << place for place in chosen))
            for place in chosen:
                load[place] += 1
    return tuple(found)


def check_bits(word: Value) -> Value:
    """The check bits of `word`: a parity each, the word's bits picked one by one (`hw/link/flit_crc.py` says why)."""
    taps = columns(len(word))
    return Cat(
        Cat(word[place] for place, column in enumerate(taps) if column >> check & 1).xor()
        for check in range(check_width(len(word)))
    )


def syndrome(word: Value, check: Value) -> Value:
    """Which parities of a word and its check bits are odd: none of a clean one."""
    taps = columns(len(word))
    return Cat(
        Cat(check[number], *(word[place] for place, column in enumerate(taps) if column >> number & 1)).xor()
        for number in range(len(check))
    )


def wrong_bits(found: Value, width: int) -> Value:
    """The bit of a word of `width` bits that syndrome `found` points at, one-hot; 0 if at none."""
    return Cat(found == column for column in columns(width))


def is_lost(found: Value, width: int) -> Value:
    """Whether syndrome `found` is that of no clean word and of no single wrong bit."""
    own = [found == 1 << number for number in range(check_width(width))]
    return found.any() & ~wrong_bits(found, width).any() & ~Cat(own).any()


class Corrector(wiring.Component):
    """The word meant by `word` of `width` bits and its `check` bits, as they were read.

    Ports: `corrected`: `word` with one wrong bit put right, if it is in the word; `wrong`: at least one bit is, of word
    or check; `lost`: more than one is, and `corrected` is not to be used (of three and more that is not always seen).
    Latency 0 cycles.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {
                "word": In(width),
                "check": In(check_width(width)),
                "corrected": Out(width),
                "wrong": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        found = Signal(len(self.check))
        m.d.comb += [
            found.eq(syndrome(self.word, self.check)),
            self.corrected.eq(self.word ^ wrong_bits(found, self._width)),
            self.wrong.eq(found.any()),
            self.lost.eq(is_lost(found, self._width)),
        ]
        return m
