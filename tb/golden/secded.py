"""Golden model of check bits: what is wrong with a word, from the columns of its code by hand."""

from itertools import combinations


def faults_of_code(columns: tuple[int, ...], checks: int) -> list[str]:
    """A sentence for each rule that columns of a code which corrects one bit and finds two do not keep: all columns,
    the check bits' too, are different, not 0, and have an odd number of ones."""
    every = [*columns, *(1 << place for place in range(checks))]
    wrong = [f"column {column:b} has an even number of ones" for column in every if column.bit_count() % 2 == 0]
    wrong += [f"column {column:b} has more than {checks} bits" for column in every if column >> checks]
    wrong += [f"two columns are {first:b}" for first, second in combinations(every, 2) if first == second]
    return wrong


def encode(word: int, columns: tuple[int, ...]) -> int:
    """The check bits of `word`: the sum of the columns of its ones."""
    check = 0
    for place, column in enumerate(columns):
        if word >> place & 1:
            check ^= column
    return check
