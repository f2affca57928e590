"""A topology: which port of which GPU each link port is joined to, and by which port a packet leaves for its peer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

MOST_PORTS = 15
"""Link ports a GPU can have."""


class Routes(Protocol):
    """What a program needs to know of the links between `gpus` GPUs with `ports` link ports each."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def gpus(self) -> int:
        """GPUs."""
        ...

    @property
    def ports(self) -> int:
        """Link ports of a GPU."""
        ...

    @property
    def shared(self) -> bool:
        """Whether all ports of a GPU together have the bandwidth of one link."""
        ...

    def port(self, rank: int, peer: int) -> int | None:
        """The port by which packets of `rank` for `peer` leave; None when no link leads there."""
        ...

    def source(self, rank: int, port: int) -> int | None:
        """Whose packets arrive at `port` of `rank`; None: those of several."""
        ...


@dataclass(frozen=True)
class End:
    """Port `port` of the GPU `shift` ranks further on (negative: back), modulo the number of GPUs."""

    shift: int
    port: int

    def gpu(self, rank: int, gpus: int) -> int:
        """The GPU that is meant, as seen from `rank` of `gpus`."""
        return (rank + self.shift) % gpus


@dataclass(frozen=True)
class Topology:
    """`gpus` GPUs that are wired alike: a port leads equally many ranks on from every one of them.

    By port of a GPU: `sends`, where what it sends arrives, and where the state of its credits and grants comes from;
    `receives`, whose packets it takes in. `preference`: the ports in the order in which they are chosen where several
    lead to the same peer. `shared`: all ports of a GPU together have the bandwidth of one link, each way.
    """

    name: str
    gpus: int
    sends: tuple[End, ...]
    receives: tuple[End, ...]
    preference: tuple[int, ...]
    shared: bool = False

    @property
    def ports(self) -> int:
        """Link ports of a GPU."""
        return len(self.sends)

    def links(self) -> Iterator[tuple[int, int, int, int]]:
        """Every link, one way: rank and port that it leads from, rank and port that it leads to."""
        for rank in range(self.gpus):
            yield from ((rank, port, (rank + end.shift) % self.gpus, end.port) for port, end in enumerate(self.sends))

    def port(self, rank: int, peer: int) -> int | None:
        """The port by which packets of `rank` for `peer` leave; None when no link leads there."""
        return next((port for port in self.preference if self.sends[port].gpu(rank, self.gpus) == peer), None)

    def source(self, rank: int, port: int) -> int | None:
        """Whose packets arrive at `port` of `rank`."""
        return self.receives[port].gpu(rank, self.gpus)
