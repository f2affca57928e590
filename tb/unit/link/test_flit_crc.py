"""The CRC of a flit against a division bit by bit, and what it finds, enumerated."""

import random

import cocotb
import pytest
from amaranth import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from hw.link.flit_crc import flit_crc, flit_is_clean
from tb.flit_crc_sweep import finds_all_bursts, finds_odd, missed_weight, word_lengths
from tb.golden.flit_crc import flit_crc as golden_crc
from tb.golden.flit_crc import syndromes
from tb.runner import caught, simulate

BITS = 308
MESSAGE = BITS - 24


class Checker(wiring.Component):
    """`crc` of `message`, and whether `flit` is clean; `left_out`: message bits the CRC does not cover."""

    def __init__(self, left_out: int = 0):
        self._left_out = left_out
        super().__init__({"message": In(MESSAGE), "crc": Out(24), "flit": In(BITS), "clean": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.crc.eq(flit_crc(self.message & Const((1 << MESSAGE) - 1 - self._left_out, MESSAGE))),
            self.clean.eq(flit_is_clean(self.flit)),
        ]
        return m


@cocotb.test()
async def crc_agrees_and_finds(dut):
    """Random messages and single bits; words with no, one to five, an odd number of wrong bits, or a burst."""
    for number in range(400):
        message = random.getrandbits(MESSAGE) if number % 2 else 1 << random.randrange(MESSAGE)
        crc = golden_crc(message, MESSAGE)
        word = message | crc << MESSAGE
        weight = random.choice([0, 1, 2, 3, 4, 5, 2 * random.randrange(3, 100) + 1])
        wrong = sum(1 << place for place in random.sample(range(BITS), weight))
        if number % 5 == 0:
            wrong = (random.getrandbits(24) | 1) << random.randrange(BITS - 23)
        dut.message.value, dut.flit.value = message, word ^ wrong
        await Timer(1, "ns")
        assert int(dut.crc.value) == crc
        assert int(dut.clean.value) == (wrong == 0)


def test_crc_agrees_and_finds():
    simulate(Checker(), "flit_checker", __name__, "crc_agrees_and_finds")


@pytest.mark.wide
def test_a_bit_left_out_of_the_crc_is_caught():
    with caught():
        simulate(Checker(1 << 100), "flit_checker", __name__, "crc_agrees_and_finds")


def test_nothing_up_to_five_bits_no_odd_number_and_no_burst_is_missed():
    """Enumerated, for a flit and a state message."""
    assert word_lengths()["flit"] == BITS
    for length in set(word_lengths().values()):
        effects = syndromes(length)
        assert missed_weight(effects) is None
        assert finds_odd(effects)
        assert finds_all_bursts(effects, 24)


def test_the_enumeration_finds_what_is_missed():
    """Words beyond the code's reach, and effects with sums planted in them."""
    assert missed_weight(syndromes(2100)) == 4
    effects = syndromes(60)
    for weight in (1, 2, 3, 4, 5):
        planted = list(effects)
        planted[-1] = 0
        for place in random.Random(weight).sample(range(59), weight - 1):
            planted[-1] ^= planted[place]
        assert missed_weight(planted) == weight
    assert not finds_all_bursts([*effects[:20], effects[3] ^ effects[7], *effects[20:]], 24)
    assert not finds_odd([*effects, 3])
