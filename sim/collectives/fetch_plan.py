"""Who sends which chunk to whom, and when it is there: routes by estimated time of arrival (PARALiA, Uncut-GEMMs).

Each rank needs all chunks of an array, each of which lies on one of them. A rank sends one chunk at a time and takes in
one at a time, since its ports share its bandwidth; a chunk goes on piece by piece, so a rank may pass on what is still
coming in. Of all chunks that some rank lacks, from all ranks that have them, the one that would arrive first is planned
next. Among equals a rank that got it itself comes before the one where it lies, so that each reads what it sends once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
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
    hops: list[Hop] = []

    def candidate(sender: int, chunk: int, receiver: int) -> tuple[tuple[float, ...], Hop]:
        """A hop that may come next, with what it is chosen by."""
        owned = sender == owners[chunk]
        first_piece = 0.0 if owned else begun[sender, chunk] + 1 / pieces
        arrives = max(first_piece, sending[sender], receiving[receiver]) + 1
        order = arrives, owned, (receiver - sender) % gpus, (chunk - sender) % gpus, sender
        return order, Hop(arrives, chunk, sender, receiver)

    def from_one(sender: int, chunk: int) -> list[tuple[tuple[float, ...], Hop]]:
        return [candidate(sender, chunk, rank) for rank in range(gpus) if (rank, chunk) not in begun]

    waiting = [found for sender, chunk in begun for found in from_one(sender, chunk)]
    heapify(waiting)
    while waiting:
        order, hop = heappop(waiting)
        _, chunk, sender, receiver = hop
        if (receiver, chunk) in begun:
            continue
        # Its ranks may have got something else to do, so that it would be there later than when it was thought of.
        now = candidate(sender, chunk, receiver)
        if now[0] > order:
            heappush(waiting, now)
            continue
        sending[sender] = receiving[receiver] = hop.arrives
        begun[receiver, chunk] = hop.arrives - 1
        arrivals[receiver, chunk] = hop.arrives
        hops.append(hop)
        for found in from_one(receiver, chunk):
            heappush(waiting, found)
    return Plan(gpus, owners, tuple(hops), arrivals)
