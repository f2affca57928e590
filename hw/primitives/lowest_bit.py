"""The lowest set bit of a vector: where it is, what lies below it, and whose turn comes after it."""

from amaranth import Cat, Module, Mux, Signal, Value

GROUP = 16
"""Bits among which the lowest is found by a carry chain; of more, the lowest of each group, and the first group."""


def lowest(vector: Value) -> Value:
    """One-hot of the lowest set bit."""
    return (vector & -vector)[: len(vector)]


def below_lowest(vector: Value) -> Value:
    """Ones below the lowest set bit (all ones if there is none)."""
    return ((vector - 1) & ~vector)[: len(vector)]


def above(one_hot: Value) -> Value:
    """Ones above the set bit, also beyond the width of `one_hot`: among whom :func:`rotating` looks first the next
    time."""
    return ~(one_hot | (one_hot - 1))


def rotating(vector: Value, preferred: Value) -> Value:
    """One-hot of the lowest set bit among those of `preferred`, or of all if none is there."""
    first = vector & preferred
    return Mux(first.any(), lowest(first), lowest(vector))


def encode(one_hot: Value) -> Value:
    """Number of the set bit."""
    width = max(1, (len(one_hot) - 1).bit_length())
    return Cat(
        Cat(bit for position, bit in enumerate(one_hot) if position >> k & 1).any() if len(one_hot) > 1 else 0
        for k in range(width)
    )


def groups(vector: Value) -> list[Value]:
    """`vector` in pieces of GROUP bits."""
    return [vector[start : start + GROUP] for start in range(0, len(vector), GROUP)]


class GroupedLowest:
    """Lowest set bit of a long `vector`: in each group (`local`, one-hot), and the `first` group with any (one-hot)."""

    def __init__(self, m: Module, vector: Value, name: str):
        self._vector = vector
        self.local = Signal(len(vector), name=f"{name}_local")
        occupied = Cat(group.any() for group in groups(vector))
        self._occupied = Signal(len(occupied), name=f"{name}_occupied")
        self.first = Signal(len(occupied), name=f"{name}_first")
        m.d.comb += [
            self.local.eq(Cat(lowest(group) for group in groups(vector))),
            self._occupied.eq(occupied),
            self.first.eq(lowest(self._occupied)),
        ]

    def below(self) -> Value:
        """Ones below it (all ones if there is none)."""
        reached = below_lowest(self._occupied) | self.first
        return Cat(
            below_lowest(group) & reached[place].replicate(len(group))
            for place, group in enumerate(groups(self._vector))
        )

    def of(self, plane: Value) -> Value:
        """Its bit of `plane`."""
        return (Cat(group.any() for group in groups(plane & self.local)) & self.first).any()
