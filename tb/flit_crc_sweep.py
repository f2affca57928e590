"""`python -m tb.flit_crc_sweep`: enumerates which wrong bits of a flit and of a state message the CRC always finds.

A pattern of wrong bits is missed exactly when the syndromes of its bits add up to 0, whatever the flit says, since the
code is linear. So all patterns of up to five bits are tried, as pairs against triples: with a table of all 2^24
syndromes that is some ten million sums for a flit, not the 2 * 10^10 patterns. Bursts are tried by the rank of their
syndromes.
"""

from typing import Annotated

import numpy as np
import typer

from hw.config import PRESETS
from hw.link.wire import flit_layout, state_layout
from tb.golden.flit_crc import syndromes

CRC_BITS = 24


def missed_weight(effects: list[int]) -> int | None:
    """The smallest number of wrong bits, up to five, of which some pattern is missed; None when there is none."""
    single = np.array(effects, dtype=np.uint32)
    first, second = np.triu_indices(len(single), 1)
    pairs = single[first] ^ single[second]
    seen = np.zeros(1 << CRC_BITS, dtype=np.uint8)
    if (single == 0).any():
        return 1
    seen[single] = 1
    if len(np.unique(single)) != len(single):
        return 2
    if seen[pairs].any():
        return 3
    if len(np.unique(pairs)) != len(pairs):
        return 4
    seen[pairs] = 1
    # The third bit is behind the other two, so every triple is met once. A triple that equals a pair with a bit in
    # common would be two bits that equal a single one, which was ruled out.
    for third in range(2, len(single)):
        until = third * (third - 1) // 2
        earlier = np.flatnonzero(second < third)
        assert len(earlier) == until
        if seen[pairs[earlier] ^ single[third]].any():
            return 5
    return None


def finds_all_bursts(effects: list[int], length: int) -> bool:
    """Whether no pattern within `length` consecutive bits is missed: their syndromes are linearly independent."""
    for start in range(len(effects) - length + 1):
        basis: list[int] = []
        for effect in effects[start : start + length]:
            for vector in basis:
                effect = min(effect, effect ^ vector)
            if not effect:
                return False
            basis.append(effect)
    return True


def finds_odd(effects: list[int]) -> bool:
    """Whether every odd number of wrong bits is found: some sum of CRC bits is 1 for each syndrome."""
    # x + 1 divides the polynomial: the sum of a syndrome's bits is then the same for all of them.
    return all(bin(effect).count("1") % 2 for effect in effects)


def word_lengths() -> dict[str, int]:
    """Bits of each word on the wire that carries the CRC, CRC included; the same for all presets' widths."""
    found: dict[str, int] = {}
    for config in PRESETS.values():
        found |= {"flit": flit_layout(config).size, "state message": state_layout(config).size}
    return found


def main(bits: Annotated[list[int] | None, typer.Option(help="Words of this many bits instead.")] = None) -> None:
    """Exit code 1 when a pattern of at most five bits, an odd number of bits or a burst of at most 24 bits is
    missed."""
    missed = False
    for name, length in word_lengths().items() if not bits else [(f"{n} bits", n) for n in bits]:
        effects = syndromes(length)
        weight = missed_weight(effects)
        bursts = finds_all_bursts(effects, CRC_BITS)
        odd = finds_odd(effects)
        found = "none of 1 to 5 bits" if weight is None else f"a pattern of {weight} bits"
        print(f"{name} ({length} bits): {found} missed; every odd number found: {odd}; bursts to 24 found: {bursts}")
        missed = missed or weight is not None or not bursts or not odd
    if missed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
