"""A full mesh: a link between any two GPUs. Port p of every GPU leads p + 1 ranks on; and the ideal switch, whose ports
are those of a mesh that share what one link carries."""

from sim.errors import UsageError
from sim.topologies.topology import MOST_PORTS, End, Topology


def mesh(gpus: int) -> Topology:
    """A full mesh of `gpus` GPUs. Raises :class:`UsageError` for more than the ports of a GPU lead to."""
    return _joined("mesh", gpus)


def ideal_switch(gpus: int) -> Topology:
    """A switch in which nothing waits for anything but the links into it and out of it: a mesh whose ports share a
    GPU's bandwidth. Raises :class:`UsageError` as :func:`mesh` does."""
    return _joined("ideal-switch", gpus, shared=True)


def _joined(name: str, gpus: int, shared: bool = False) -> Topology:
    if not 2 <= gpus <= MOST_PORTS + 1:
        raise UsageError(f"the {name} joins 2 to {MOST_PORTS + 1} GPUs, each with a port for every peer, not {gpus}")
    # What leaves by port p for the rank p + 1 further on arrives by the port that leads as far back.
    ends = tuple(End(shift, gpus - shift - 1) for shift in range(1, gpus))
    return Topology(name, gpus, ends, ends, tuple(range(gpus - 1)), shared)
