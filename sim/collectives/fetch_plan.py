"""Who sends which chunk to whom, and when it is there: routes by estimated time of arrival (PARALiA, Uncut-GEMMs).

Each rank needs all chunks of an array, each of which lies on one of them. A rank sends one chunk at a time and takes in
one at a time, since its ports share its bandwidth; a chunk goes on piece by piece, so a rank may pass on what is still
coming in. Of all chunks that some rank lacks, from all ranks that have them, the one that would arrive first is planned
next. Among equals a rank that got it itself comes before the one where it lies, so that each reads what it sends once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import NamedTuple


class Hop(NamedTuple):
    """`chunk` goes from rank `sender` to rank `receiver`, all of it there at time `arrives`."""

    arrives: float
    chunk: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class Plan:
    """`hops`, in the order in which they were planned; `owners` by chunk. Times are in those of one transfer."""

    gpus: int
    owners: tuple[int, ...]
    hops: tuple[Hop, ...]
    arrivals: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def peers(self, rank: int, chunk: int) -> list[int]:
        """To whom `rank` sends `chunk` when it has it."""
        return [hop.receiver for hop in self.hops if (hop.sender, hop.chunk) == (rank, chunk)]

    def order(self, rank: int) -> list[int]:
        """The chunks in the order in which `rank` has them; of those that lie there its own number first."""
        chunks = len(self.owners)
        return sorted(range(chunks), key=lambda chunk: (self.arrivals[rank, chunk], (chunk - rank) % chunks))

    @property
    def end(self) -> float:
        """When the last chunk is there."""
        return max((hop.arrives for hop in self.hops), default=0.0)


@lru_cache
def plan(owners: tuple[int, ...], gpus: int, pieces: int) -> Plan:
    """Routes for chunks that lie on `owners`, in so many `pieces` each."""
    sending, receiving = [0.0] * gpus, [0.0] * gpus
    begun = {(owner, chunk): 0.0 for chunk, owner in enumerate(owners)}
    arrivals = dict(begun)
    hops = []
    while len(arrivals) < gpus * len(owners):
        hop = min(_candidates(owners, gpus, pieces, (sending, receiving), begun), key=lambda found: found[0])[1]
        start = hop.arrives - 1
        sending[hop.sender] = receiving[hop.receiver] = hop.arrives
        begun[hop.receiver, hop.chunk] = start
        arrivals[hop.receiver, hop.chunk] = hop.arrives
        hops.append(hop)
    return Plan(gpus, owners, tuple(hops), arrivals)


def _candidates(
    owners: tuple[int, ...],
    gpus: int,
    pieces: int,
    free: tuple[Sequence[float], Sequence[float]],
    begun: Mapping[tuple[int, int], float],
) -> Iterator[tuple[tuple[float, ...], Hop]]:
    """Every hop that may come next, with what it is chosen by. `free`: from when on each rank may send, and take in;
    `begun`: since when a rank has a chunk, or is getting it."""
    sending, receiving = free
    for (sender, chunk), receiver in product(begun, range(gpus)):
        if (receiver, chunk) in begun:
            continue
        owned = sender == owners[chunk]
        first_piece = 0.0 if owned else begun[sender, chunk] + 1 / pieces
        arrives = max(first_piece, sending[sender], receiving[receiver]) + 1
        shift = (receiver - sender) % gpus
        yield (arrives, owned, shift, (chunk - sender) % gpus, sender), Hop(arrives, chunk, sender, receiver)
