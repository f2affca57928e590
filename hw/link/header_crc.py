"""Check of a link header: CRC-16/CCITT-FALSE in one cycle.

Polynomial x^16 + x^12 + x^5 + 1 (1021), initial value FFFF, not reflected, no final inversion. The message is every bit
of :attr:`hw.messages.Messages.link_header` below `crc`, the least significant bit of the layout first.
"""

from amaranth.hdl import Cat, Const, Value

from ..messages import HEADER_CRC_BITS, Messages

_POLYNOMIAL = 0x1021
_INITIAL = 0xFFFF


def _shift(check: int, bit: int) -> int:
    out = (check >> 15) ^ bit
    return ((check << 1) & 0xFFFF) ^ (_POLYNOMIAL if out else 0)


def crc_taps(bits: int) -> tuple[int, list[int]]:
    """The check as a linear map: its value for an all-zero message, and per check bit the message bits it is the parity
    of."""
    constant = _INITIAL
    for _ in range(bits):
        constant = _shift(constant, 0)
    taps = [0] * HEADER_CRC_BITS
    effect = _POLYNOMIAL
    for position in reversed(range(bits)):
        for output in range(HEADER_CRC_BITS):
            taps[output] |= (effect >> output & 1) << position
        effect = _shift(effect, 0)
    return constant, taps


def header_bits(messages: Messages) -> int:
    """Bits of a header that the check covers: all below the `crc` field, which is the last one."""
    field = messages.link_header["crc"]
    assert field.offset + field.width == messages.link_header.size
    return field.offset


def header_crc(message: Value) -> Value:
    """The 16-bit check of `message` (the covered bits of a header)."""
    constant, taps = crc_taps(len(message))
    parities = [(message & Const(tap, len(message))).xor() for tap in taps]
    return Cat(~parity if constant >> place & 1 else parity for place, parity in enumerate(parities))
