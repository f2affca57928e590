"""A switch with one port for each GPU: whatever a GPU sends leaves by its only port, and the switch sends it on by the
port of the peer, whose number is the peer's rank."""

from dataclasses import dataclass

from sim.errors import UsageError

MOST_GPUS = 64


@dataclass(frozen=True)
class Switch:
    """`gpus` GPUs on one switch; each GPU's port 0 is joined to the switch's port of its rank."""

    gpus: int
    name: str = "switch"
    ports: int = 1
    shared: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.gpus <= MOST_GPUS:
            raise UsageError(f"the {self.name} joins 2 to {MOST_GPUS} GPUs, not {self.gpus}")

    def port(self, rank: int, peer: int) -> int | None:
        """The port by which packets of `rank` for `peer` leave; None for the rank itself, and for one that is not
        there."""
        return 0 if 0 <= peer < self.gpus and peer != rank else None

    def source(self, rank: int, port: int) -> int | None:
        """Everybody's packets arrive at the only port."""
        return None
