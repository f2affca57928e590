"""RTL around a design under test that checks the protocol of every stream port, in both directions.

The rules: once `valid` is high it stays high until the payload is taken (so it cannot wait for `ready` either way), and
the payload does not change meanwhile. `tb.runner.simulate` puts it around every design.
"""

from collections.abc import Iterator
from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import Assert
from amaranth.lib import stream, wiring


def stream_ports(component: wiring.Component) -> Iterator[tuple[str, wiring.PureInterface]]:
    """Name, as in Verilog, and interface of each stream port, those in arrays and nested interfaces included."""
    yield from _streams(component.signature, component, ())


def _streams(
    signature: wiring.Signature, interface: object, path: tuple[str, ...]
) -> Iterator[tuple[str, wiring.PureInterface]]:
    for name, member in signature.members.items():
        if member.is_port:
            continue
        found = getattr(interface, name)
        places: list[tuple[tuple[str, ...], Any]] = [((*path, name), found)]
        for _ in member.dimensions:
            places = [((*at, str(index)), item) for at, items in places for index, item in enumerate(items)]
        for at, item in places:
            if isinstance(member.signature, stream.Signature):
                yield "__".join(at), item
            else:
                yield from _streams(member.signature, item, at)


class StreamChecker(wiring.Component):
    """`design` with assertions on its stream ports; the same ports. A violation stops the simulation one cycle later.

    The streams are sampled at the clock edge, when a test has done with its inputs, and not in reset.
    """

    def __init__(self, design: wiring.Component):
        self._design = design
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.design = self._design
        outer, inner = self.signature.flatten(self), self.signature.flatten(self._design)
        for (_, member, outside), (_, _, inside) in zip(outer, inner, strict=True):
            source, target = (outside, inside) if member.flow is wiring.In else (inside, outside)
            m.d.comb += Value.cast(target).eq(source)
        for name, port in stream_ports(self):
            payload = Cat(Value.cast(port.payload))
            held = Signal(len(payload), name=f"{name}_held")
            waiting = Signal(name=f"{name}_waiting")
            fell, changed = Signal(name=f"{name}_fell"), Signal(name=f"{name}_changed")
            m.d.sync += [
                held.eq(payload),
                waiting.eq(port.valid & ~port.ready),
                fell.eq(waiting & ~port.valid),
                changed.eq(waiting & port.valid & (payload != held)),
            ]
            m.d.comb += [
                Assert(~fell, f"stream {name}: valid fell before the payload was taken"),
                Assert(~changed, f"stream {name}: the payload changed before it was taken"),
            ]
        return m


def checked(component: wiring.Component) -> wiring.Component:
    """`component` behind a :class:`StreamChecker`, or itself when it has no stream port or is one."""
    plain = isinstance(component, StreamChecker) or not any(True for _ in stream_ports(component))
    return component if plain else StreamChecker(component)
