"""Check bits of words: every single and every double error of the widths in use, on random words."""

import random
from itertools import combinations

import cocotb
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from hw.primitives.secded import Corrector, check_bits, check_width, columns
from tb.golden.secded import encode, faults_of_code
from tb.runner import caught, simulate

WIDTH = 43
BITS = WIDTH + check_width(WIDTH)


class Pair(wiring.Component):
    """`check` of `word`, and the corrector of what was read. `deaf`: it takes no notice of this check bit."""

    def __init__(self, deaf: int | None = None):
        self._deaf = deaf
        super().__init__(
            {
                "word": In(WIDTH),
                "check": Out(check_width(WIDTH)),
                "read": In(BITS),
                "corrected": Out(WIDTH),
                "wrong": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.corrector = corrector = Corrector(WIDTH)
        m.d.comb += [
            self.check.eq(check_bits(self.word)),
            corrector.word.eq(self.read[:WIDTH]),
            corrector.check.eq(self.read[WIDTH:]),
            self.corrected.eq(corrector.corrected),
            self.wrong.eq(corrector.wrong),
            self.lost.eq(corrector.lost),
        ]
        if self._deaf is not None:
            m.d.comb += corrector.check[self._deaf].eq(0)
        return m


@cocotb.test()
async def errors_are_corrected_and_found(dut):
    """No error, every one, every two."""
    for wrong in [(), *combinations(range(BITS), 1), *combinations(range(BITS), 2)]:
        word = random.getrandbits(WIDTH)
        check = encode(word, columns(WIDTH))
        dut.word.value = word
        dut.read.value = (word | check << WIDTH) ^ sum(1 << place for place in wrong)
        await Timer(1, "ns")
        assert int(dut.check.value) == check
        assert (int(dut.wrong.value), int(dut.lost.value)) == (len(wrong) > 0, len(wrong) == 2)
        if len(wrong) < 2:
            assert int(dut.corrected.value) == word


def test_errors_are_corrected_and_found():
    simulate(Pair(), "secded", __name__, "errors_are_corrected_and_found")


def test_a_check_bit_that_is_not_looked_at_is_noticed():
    with caught():
        simulate(Pair(deaf=3), "secded", __name__, "errors_are_corrected_and_found")


@pytest.mark.parametrize("width", range(1, 140))
def test_every_width_has_a_code(width):
    assert faults_of_code(columns(width), check_width(width)) == []
    assert len(columns(width)) == width


def test_codes_are_as_short_and_as_even_as_they_can_be():
    assert [check_width(width) for width in (4, 8, 26, 43, 64, 76, 101, 120)] == [4, 5, 6, 7, 8, 8, 8, 8]
    for width in (43, 76):
        loads = [sum(column >> check & 1 for column in columns(width)) for check in range(check_width(width))]
        assert max(loads) - min(loads) <= 1


def test_a_wrong_code_is_noticed():
    """Seeded: an even column, one that is there twice, one too long."""
    assert faults_of_code((0b111, 0b11), 3) == ["column 11 has an even number of ones"]
    assert faults_of_code((0b111, 0b111), 3) == ["two columns are 111"]
    assert faults_of_code((0b10110,), 4) == ["column 10110 has more than 4 bits"]
