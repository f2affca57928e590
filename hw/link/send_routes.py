"""Ports that the sends of a packet use: looked up once for all packets of a block, or for each merged store."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .parameters import LinkParameters
from .wire import routes_layout, sends_layout


def existing_sends(parameters: LinkParameters, count: Value) -> Value:
    """The number of sends that `count` stands for: 0 acts as 1, one that is too high as that of all sends."""
    return Mux(count == 0, 1, Mux(count > parameters.sends, parameters.sends, count))


class SendRoutes(wiring.Component):
    """What a packet's `sends` are to the slots.

    Ports: `sends`, around the end of the table; `port_of`: port of each send, 0 for one that does not exist; `routes`:
    the ports of these sends, and whether no two of them use one port; their number as of :func:`existing_sends`.
    Latency: 0 cycles.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        super().__init__(
            {
                "sends": In(sends_layout(parameters)),
                "port_of": In(4).array(parameters.sends),
                "routes": Out(routes_layout(parameters)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sends, links = self._parameters.sends, self._parameters.links
        routes = self.routes
        count = Signal.like(routes.sends)
        m.d.comb += [count.eq(existing_sends(self._parameters, self.sends.count)), routes.sends.eq(count)]
        first = self.sends.first
        users = []
        for port in range(links):
            uses = Signal(sends, name=f"uses_{port}")
            for number in range(sends):
                # A packet's sends go around the end of the table, as when its descriptors are made.
                inside = (number - first)[: len(first)] < count
                m.d.comb += uses[number].eq(inside & (self.port_of[number] == port))
            users.append(uses)
        m.d.comb += [
            routes.ports.eq(Cat(uses.any() for uses in users)),
            routes.single.eq(~Cat((uses & (uses - 1)).any() for uses in users).any()),
        ]
        return m
