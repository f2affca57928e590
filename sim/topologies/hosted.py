"""GPUs and a host, which is the last rank and has a link to each of them: port p of the host leads to GPU p, and of a
GPU the last port that is joined leads to the host. The GPUs are a ring one way round or a full mesh. The host's links
may be slower than those between GPUs; those of a mesh share the bandwidth of the one that a GPU of a ring has, as
behind a switch."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.errors import UsageError
from sim.topologies.topology import MOST_PORTS


@dataclass(frozen=True)
class Hosted:
    """`gpus` ranks, of which the last one is the host; the others are a `mesh` or a ring. A GPU alone has no link but
    to the host; ports behind those that are joined lead nowhere."""

    gpus: int
    mesh: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.gpus <= MOST_PORTS + 1:
            raise UsageError(
                f"the {self.name} joins 2 to {MOST_PORTS + 1} ranks, the last of them the host, not {self.gpus}"
            )

    @property
    def name(self) -> str:
        """What it is called."""
        return "hosted-mesh" if self.mesh else "hosted-ring"

    @property
    def host(self) -> int:
        """Its rank, which is also the number of GPUs."""
        return self.gpus - 1

    @property
    def onward(self) -> int:
        """Links of a GPU to others, but a GPU alone has none."""
        return max(1, self.host - 1) if self.mesh else 1

    @property
    def ports(self) -> int:
        """Of a node: as many as the host needs, or a GPU."""
        return max(self.onward + 1, self.host)

    def links(self) -> Iterator[tuple[int, int, int, int]]:
        """Every link, one way: rank and port that it leads from, rank and port that it leads to."""
        for rank in range(self.host):
            for port in range(self.onward if self.host > 1 else 0):
                # What leaves for the rank port + 1 further on arrives by the port that leads as far back, or the only
                # one.
                yield rank, port, (rank + port + 1) % self.host, self.onward - 1 - port
            yield rank, self.onward, self.host, rank
            yield self.host, rank, rank, self.onward

    def port(self, rank: int, peer: int) -> int | None:
        """The port by which packets of `rank` for `peer` leave; None when no link leads there."""
        return next((port for here, port, there, _ in self.links() if (here, there) == (rank, peer)), None)

    def source(self, rank: int, port: int) -> int | None:
        """Whose packets arrive at `port` of `rank`; None where nothing is joined to it."""
        return next((here for here, _, there, end in self.links() if (there, end) == (rank, port)), None)
