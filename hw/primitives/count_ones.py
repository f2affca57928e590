"""How many bits of a word are one."""

from amaranth.hdl import Value


def count_ones(mask: Value) -> Value:
    """Number of ones of `mask`, as a tree of adders."""
    counts = list(mask)
    while len(counts) > 1:
        counts = [sum(counts[place + 1 : place + 2], counts[place]) for place in range(0, len(counts), 2)]
    return counts[0]
