"""Parities of the parts of a word: what of a long parity fits into one cycle beside something else."""

from amaranth import Cat
from amaranth.hdl import Value


def partial_parities(word: Value, part: int) -> Value:
    """Of each `part` bits of `word`, from the bottom; the last part may have fewer."""
    return Cat(word[low : low + part].xor() for low in range(0, len(word), part))
