"""Who sends which chunk to whom, and when it is there: routes by estimated time of arrival (PARALiA, Uncut-GEMMs).

Each rank needs all chunks of an array, each of which lies on one of them. A rank sends one chunk at a time and takes in
one at a time, since its ports share its bandwidth; a chunk goes on piece by piece, so a rank may pass on what is still
coming in. Of all chunks that some rank lacks, from all ranks that have them, the one that would arrive first is planned
next. Among equals a rank that got it itself comes before the one where it lies, so that each reads what it sends once.

A :class:`Host` beside the ranks has a slower link of its own to each of them, which their bandwidth does not share.
Among equals from there what has crossed the fewest of these links comes first.
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


class Host(NamedTuple):
    """The number of a host, behind those of the ranks, and how many times as long a transfer from it takes. The ranks
    beside it are a `ring`, on which each sends to the next one only, or each to all others."""

    number: int
    times: float
    ring: bool = False


@dataclass(frozen=True)
class Plan:
    """`hops`, in the order in which they were planned; `owners` by chunk. Times are in those of one transfer; by rank
    and chunk `begins`, when its first piece sets out to be there or 0 where it lies, and `arrivals`, when all of it is.
    """

    gpus: int
    owners: tuple[int, ...]
    hops: tuple[Hop, ...]
    arrivals: Mapping[tuple[int, int], float] = field(default_factory=dict)
    begins: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def peers(self, rank: int, chunk: int) -> list[int]:
        """To whom `rank` sends `chunk` when it has it."""
        return [hop.receiver for hop in self.hops if (hop.sender, hop.chunk) == (rank, chunk)]

    def order(self, rank: int) -> list[int]:
        """The chunks in the order in which `rank` has them; of those that lie there its own number first."""
        chunks = len(self.owners)
        return sorted(range(chunks), key=lambda chunk: (self.arrivals[rank, chunk], (chunk - rank) % chunks))

    def expected(self, rank: int, chunk: int, share: float) -> float:
        """When so much of `chunk` is on `rank`."""
        begins, arrives = self.begins[rank, chunk], self.arrivals[rank, chunk]
        return begins + share * (arrives - begins)

    @property
    def end(self) -> float:
        """When the last chunk is there."""
        return max((hop.arrives for hop in self.hops), default=0.0)


@lru_cache
def plan(owners: tuple[int, ...], gpus: int, pieces: int, host: Host | None = None) -> Plan:
    """Routes for chunks that lie on `owners`, in so many `pieces` each."""
    sending: dict[tuple[int, int], float] = {}
    receiving: dict[tuple[int, int], float] = {}
    begun = {(owner, chunk): 0.0 for chunk, owner in enumerate(owners)}
    arrivals = dict(begun)
    crossed = [0] * len(owners)
    hops: list[Hop] = []

    def ports(sender: int, receiver: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """By which it leaves and arrives: the host has one to each rank, and each rank one of its own to the host."""
        there = int(host is not None and sender == host.number)
        return (sender, receiver if there else -1), (receiver, there)

    def candidate(sender: int, chunk: int, receiver: int) -> tuple[tuple[float, ...], Hop, float, float]:
        """A hop that may come next, with what it is chosen by; when it begins, and how long its ports are busy."""
        owned, far = sender == owners[chunk], host is not None and sender == host.number
        lasts = host.times if host is not None and far else 1.0
        out, into = ports(sender, receiver)
        coming = arrivals[sender, chunk] - begun[sender, chunk]
        first_piece = 0.0 if owned else begun[sender, chunk] + coming / pieces
        begins = max(first_piece, sending.get(out, 0.0), receiving.get(into, 0.0))
        # What comes in more slowly than it goes on ends a piece after it has come.
        arrives = max(begins + lasts, 0.0 if owned else arrivals[sender, chunk] + lasts / pieces)
        near = (receiver - sender) % gpus, (chunk - sender) % gpus
        order = arrives, crossed[chunk] if far else 0, owned, *near, sender
        return order, Hop(arrives, chunk, sender, receiver), begins, lasts

    def from_one(sender: int, chunk: int) -> list[tuple[tuple[float, ...], Hop]]:
        ring = host is not None and host.ring and sender != host.number
        receivers = [(sender + 1) % gpus] if ring else range(gpus)
        return [candidate(sender, chunk, rank)[:2] for rank in receivers if (rank, chunk) not in begun]

    waiting = [found for sender, chunk in begun for found in from_one(sender, chunk)]
    heapify(waiting)
    while waiting:
        order, hop = heappop(waiting)
        _, chunk, sender, receiver = hop
        if (receiver, chunk) in begun:
            continue
        # Its ranks may have got something else to do, so that it would be there later than when it was thought of.
        now, hop, begins, lasts = candidate(sender, chunk, receiver)
        if now > order:
            heappush(waiting, (now, hop))
            continue
        out, into = ports(sender, receiver)
        sending[out] = receiving[into] = begins + lasts
        crossed[chunk] += lasts > 1
        coming = arrivals[sender, chunk] - begun[sender, chunk]
        begun[receiver, chunk] = hop.arrives - max(lasts, coming)
        arrivals[receiver, chunk] = hop.arrives
        hops.append(hop)
        for found in from_one(receiver, chunk):
            heappush(waiting, found)
    return Plan(gpus, owners, tuple(hops), arrivals, begun)
