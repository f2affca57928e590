"""Golden model of the CRC of a flit, bit by bit, and the syndromes of single wrong bits."""

POLYNOMIAL = "1010111010110110111001011"
"""Coefficients of x^24 to x^0: 1 5D6DCB."""


def flit_crc(message: int, bits: int) -> int:
    """Remainder of the division of `bits` message bits, least significant first, with 24 ones added to the first 24
    bits (initial value FFFFFF); bit 0 of the result is the coefficient of x^23."""
    dividend = [message >> place & 1 for place in range(bits)] + [0] * 24
    for place in range(24):
        dividend[place] ^= 1
    for place in range(bits):
        if dividend[place]:
            for offset, coefficient in enumerate(POLYNOMIAL):
                dividend[place + offset] ^= int(coefficient)
    return sum(bit << place for place, bit in enumerate(dividend[bits:]))


def syndromes(word_bits: int) -> list[int]:
    """What a single wrong bit at each place of a word (message, then CRC) makes of the remainder."""
    polynomial = int(POLYNOMIAL, 2)
    effects = []
    effect = 1
    for _ in range(word_bits):
        effects.append(effect)
        effect <<= 1
        if effect >> 24:
            effect ^= polynomial
    return effects[::-1]
