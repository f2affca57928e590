"""A sequence as a text: a seed, and its collectives with their aborts; and how sequences are chosen.

``17/ring-all-reduce:1@2.431@0.440/~all-to-all:0``: with seed 17 variant 1 of ring-all-reduce, which GPU 2 aborts 431
cycles after it was armed, and GPU 0 after 440; then variant 0 of all-to-all, which begins on each GPU by itself
(``~``), not when all have ended the one before. The seed says how long hosts pause, and what lies in memory where there
is no data; a stall after it (``17%40/...``) how many of 256 cycles are idle on links, at random.
"""

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sim.errors import UsageError
from sim.sequences.collectives import VARIANTS, Collectives
from sim.topologies.switch import Switch

STALLS = (0, 0, 0, 60)
"""Of 256 cycles; one of these."""
ABORTED, TWICE, ALONE = 0.6, 0.3, 0.4
"""Of the collectives of a random sequence that others follow: so many are aborted, of these so many twice; and of all
so many begin without waiting for all GPUs."""
SECOND_ABORT = 150
"""Cycles that it comes before or after the first one, at the most."""
LENGTHS = (2, 3)
Thing = TypeVar("Thing")
_ITEM = re.compile(r"(~?)([\w-]+:\d+)((?:@\d+\.\d+)*)")
_HEAD = re.compile(r"(\d+)(?:%(\d+))?")


@dataclass(frozen=True)
class Item:
    """A collective by its text, `aborts` as GPU and cycles after it was armed, and whether it begins `alone`."""

    text: str
    aborts: tuple[tuple[int, int], ...] = ()
    alone: bool = False

    def __str__(self) -> str:
        return ("~" if self.alone else "") + self.text + "".join(f"@{gpu}.{cycle}" for gpu, cycle in self.aborts)

    @property
    def name(self) -> str:
        """Of the collective."""
        return self.text.partition(":")[0]


@dataclass(frozen=True)
class CollectiveSequence:
    """Collectives, one after the other."""

    seed: int
    items: tuple[Item, ...] = field(default=())
    stall: int = 0

    def __str__(self) -> str:
        return "/".join([f"{self.seed}%{self.stall}" if self.stall else f"{self.seed}", *map(str, self.items)])

    def line(self, known: Collectives) -> str:
        """For the server, behind its number."""
        words: list[int | str] = [self.seed, self.stall]
        for item in self.items:
            aborts = [number for at in item.aborts for number in at]
            words += ["~" if item.alone else "-", known.number(item.text), len(item.aborts), *aborts]
        return " ".join(map(str, words))


def parse(text: str, known: Collectives) -> CollectiveSequence:
    """The sequence of `text`. Raises :class:`UsageError` when it is none, or not of `known`."""
    head, *rest = text.strip().split("/")
    seed, items = _HEAD.fullmatch(head), [_ITEM.fullmatch(item) for item in rest]
    if seed is None or not items or None in items:
        raise UsageError(f"--replay takes SEED/COLLECTIVE:VARIANT@GPU.CYCLE/... as a campaign prints it, got {text!r}")
    made = []
    for found in items:
        assert found is not None
        aborts = tuple((int(gpu), int(cycle)) for gpu, cycle in re.findall(r"@(\d+)\.(\d+)", found[3]))
        known.number(found[2])
        if any(gpu >= known.gpus for gpu, _ in aborts):
            raise UsageError(f"there is no such GPU of {known.gpus} in {found[0]!r}")
        made.append(Item(found[2], aborts, bool(found[1])))
    return CollectiveSequence(int(seed[1]), tuple(made), int(seed[2] or 0))


def every_pair(items: Sequence[Thing]) -> list[Thing]:
    """`items` in a row in which each follows each, itself too, once (de Bruijn 1946)."""
    row = []
    for number, first in enumerate(items):
        row += [first, *(item for second in items[number + 1 :] for item in (first, second))]
    return [*row, items[0]]


def _may_begin_alone(known: Collectives) -> bool:
    """Whether a GPU may end its epoch while others still send in it. Not on a switch, of which an input grants what all
    GPUs grant (hw/DECISIONS.md 91)."""
    return not isinstance(known.topology, Switch)


def pairs(known: Collectives, seed: int) -> CollectiveSequence:
    """Every collective after every one, all in one sequence, of a random variant each."""
    choice = random.Random(seed)
    row = every_pair(known.names)
    share = ALONE if _may_begin_alone(known) else 0
    items = []
    for number, name in enumerate(row):
        text = f"{name}:{choice.randrange(VARIANTS)}"
        items.append(Item(text, alone=choice.random() < share and number > 0))
    return CollectiveSequence(seed, tuple(items))


def drawn(known: Collectives, cycles: Mapping[str, int], seed: int, length: int = 0) -> CollectiveSequence:
    """A random sequence of `length` collectives, 0: of :data:`LENGTHS`; `cycles`: how long each collective takes by
    itself. The last one is not aborted."""
    choice = random.Random(seed)
    share = ALONE if _may_begin_alone(known) else 0
    drawn_length = choice.choice(LENGTHS)
    length = length or drawn_length
    items = []
    for number in range(length):
        text = choice.choice(known.ready).text
        aborts: list[tuple[int, int]] = []
        if number < length - 1 and choice.random() < ABORTED:
            at = choice.randrange(cycles[text] + 1)
            aborts.append((choice.randrange(known.gpus), at))
            if choice.random() < TWICE:
                apart = choice.randint(-SECOND_ABORT, SECOND_ABORT)
                aborts.append((choice.randrange(known.gpus), max(0, at + apart)))
        aborts.sort(key=lambda pair: pair[1])
        items.append(Item(text, tuple(aborts), choice.random() < share and number > 0))
    return CollectiveSequence(seed, tuple(items), choice.choice(STALLS))


def at_every_cycle(known: Collectives, cycles: Mapping[str, int], name: str, seed: int) -> Iterator[CollectiveSequence]:
    """Collective `name` aborted at each of its cycles, by each GPU in turn, and run again."""
    text = f"{name}:0"
    for cycle, gpu in itertools.product(range(cycles[text] + 1), range(known.gpus)):
        yield CollectiveSequence(seed, (Item(text, ((gpu, cycle),)), Item(text)))
