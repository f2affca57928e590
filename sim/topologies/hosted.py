"""A ring of GPUs and a host: port 0 of every GPU leads to the next one, port 1 to the host, which is the last rank and
whose port p leads to GPU p. The host's links may be slower than those of the ring."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.errors import UsageError
from sim.topologies.topology import MOST_PORTS

ONWARD, UPWARD = 0, 1
"""Ports of a GPU."""


@dataclass(frozen=True)
class HostedRing:
    """`gpus` ranks, of which the last one is the host. A GPU alone has no ring; ports behind those that are joined lead
    nowhere."""

    gpus: int
    name: str = "hosted-ring"
    shared: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.gpus <= MOST_PORTS + 1:
            raise UsageError(
                f"the {self.name} joins 2 to {MOST_PORTS + 1} ranks, the last of them the host, not {self.gpus}"
            )

    @property
    def host(self) -> int:
        """Its rank, which is also the number of GPUs."""
        return self.gpus - 1

    @property
    def ports(self) -> int:
        """Of a node: as many as the host needs, or a GPU."""
        return max(2, self.host)

    def links(self) -> Iterator[tuple[int, int, int, int]]:
        """Every link, one way: rank and port that it leads from, rank and port that it leads to."""
        for rank in range(self.host):
            if self.host > 1:
                yield rank, ONWARD, (rank + 1) % self.host, ONWARD
            yield rank, UPWARD, self.host, rank
            yield self.host, rank, rank, UPWARD

    def port(self, rank: int, peer: int) -> int | None:
        """The port by which packets of `rank` for `peer` leave; None when no link leads there."""
        return next((port for here, port, there, _ in self.links() if (here, there) == (rank, peer)), None)

    def source(self, rank: int, port: int) -> int | None:
        """Whose packets arrive at `port` of `rank`; None where nothing is joined to it."""
        return next((here for here, _, there, end in self.links() if (there, end) == (rank, port)), None)
