"""CRC of a flit: CRC-24 in one cycle, filled in by the sender and tested by the receiver.

Polynomial x^24 + x^22 + x^20 + x^19 + x^18 + x^16 + x^14 + x^13 + x^11 + x^10 + x^8 + x^7 + x^6 + x^3 + x + 1 (5D6DCB,
the frame check of FlexRay), initial value FFFFFF, not reflected, no final inversion. The message is every bit below the
CRC, the least significant bit first; the CRC follows it, the coefficient of x^23 first, so that a burst on the wire
is a burst of the code.

Of a word of up to 2,048 bits the code has Hamming distance 6, so 1 to 5 wrong bits are always found; so is every odd
number of wrong bits, since the polynomial is a multiple of x + 1, and every burst of up to 24 bits. Of longer bursts
and of random words one in 2^24 is not. `python -m tb.flit_crc_sweep` enumerates all of it for the lengths used here.
"""

from functools import cache

from amaranth.hdl import Cat, Value

CRC_BITS = 24
POLYNOMIAL = 0x5D6DCB
_MASK = (1 << CRC_BITS) - 1
_INITIAL = _MASK


def _shift(crc: int, bit: int) -> int:
    out = crc >> (CRC_BITS - 1) ^ bit
    return (crc << 1) & _MASK ^ (POLYNOMIAL if out else 0)


@cache
def crc_taps(bits: int) -> tuple[int, tuple[int, ...]]:
    """The CRC of `bits` message bits as a linear map: its value for an all-zero message, and per CRC bit the
    message bits it is the parity of. CRC bit 0 is the first on the wire, the coefficient of x^23."""
    constant = _INITIAL
    for _ in range(bits):
        constant = _shift(constant, 0)
    taps = [0] * CRC_BITS
    effect = POLYNOMIAL
    for position in reversed(range(bits)):
        for output in range(CRC_BITS):
            taps[output] |= (effect >> (CRC_BITS - 1 - output) & 1) << position
        effect = _shift(effect, 0)
    return int(f"{constant:024b}"[::-1], 2), tuple(taps)


def _parity(word: Value, tap: int) -> Value:
    """Parity of the bits of `word` in `tap`. They are picked one by one: Verilator takes seven times as long over a
    word with a mask, which it builds anew piece by piece."""
    return Cat(word[place] for place in range(len(word)) if tap >> place & 1).xor()


def flit_crc(message: Value) -> Value:
    """The CRC of `message`, all bits of a flit below its CRC."""
    constant, taps = crc_taps(len(message))
    parities = [_parity(message, tap) for tap in taps]
    return Cat(~parity if constant >> place & 1 else parity for place, parity in enumerate(parities))


def flit_is_clean(flit: Value) -> Value:
    """Whether the top bits of `flit` are the CRC of those below. Latency 0 cycles."""
    bits = len(flit) - CRC_BITS
    constant, taps = crc_taps(bits)
    wrong = []
    for place, tap in enumerate(taps):
        # One parity over message and CRC bit: the comparison costs no level of its own.
        parity = _parity(flit, tap | 1 << (bits + place))
        wrong.append(~parity if constant >> place & 1 else parity)
    return ~Cat(wrong).any()
