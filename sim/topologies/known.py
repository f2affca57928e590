"""The topologies by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sim.errors import UsageError
from sim.topologies.hosted import Hosted
from sim.topologies.mesh import ideal_switch, mesh
from sim.topologies.ring import ring
from sim.topologies.switch import Switch
from sim.topologies.topology import Topology

Wiring = Topology | Switch | Hosted
"""How GPUs are joined: by links between them, or each by a link to a switch, or to a host as well."""


@dataclass(frozen=True)
class Known:
    """How a topology of so many GPUs is made, and `summary`, a line about it."""

    make: Callable[[int], Wiring]
    summary: str


TOPOLOGIES: Mapping[str, Known] = {
    "ring": Known(ring, "links to the next and to the previous rank"),
    "ring-one-way": Known(partial(ring, ports=1), "a link to the next rank only"),
    "mesh": Known(mesh, "a link to every rank"),
    "ideal-switch": Known(ideal_switch, "a link to every rank, which share the bandwidth of one"),
    "switch": Known(Switch, "one link to a switch that leads to every rank"),
    "hosted-ring": Known(Hosted, "a link to the next rank, and one to the last, the host, which has one to each"),
    "hosted-mesh": Known(partial(Hosted, mesh=True), "links to all ranks, of which the last is a host"),
}


def topology(name: str, gpus: int) -> Wiring:
    """The topology called `name` for `gpus` GPUs. Raises :class:`UsageError` when there is none."""
    if name not in TOPOLOGIES:
        raise UsageError(f"topology must be one of {', '.join(TOPOLOGIES)}; got {name!r}")
    return TOPOLOGIES[name].make(gpus)
