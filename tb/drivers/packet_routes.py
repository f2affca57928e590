"""Sources of packets in benches of the link: their packet's routes, looked up in the send table of their lane."""

from amaranth import Module

from hw.link.lane import LinkLane
from hw.link.parameters import LinkParameters
from hw.link.send_routes import SendRoutes


def announce_packets(m: Module, name: str, parameters: LinkParameters, lane: LinkLane, source: int) -> None:
    """The next packet of `source` of `lane` is the one that it has now."""
    m.submodules[f"{name}_routes_{source}"] = routes = SendRoutes(parameters)
    said = lane.sources[source]
    m.d.comb += [
        routes.sends.first.eq(said.packet.first),
        routes.sends.count.eq(said.packet.count),
        *(port.eq(known) for port, known in zip(routes.port_of, lane.port_of, strict=True)),
        said.upcoming.eq(routes.routes),
    ]
