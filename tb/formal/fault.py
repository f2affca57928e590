"""A block with a fault at a port, where holding an inner signal at a constant does not make the fault wanted."""

from collections.abc import Callable

from amaranth import Module, Value
from amaranth.hdl import ValueLike
from amaranth.lib import wiring


class FaultyPort(wiring.Component):
    """`block` with its ports, of which the one at `path` carries `fault(component, value)` instead of its value."""

    def __init__(
        self,
        block: wiring.Component,
        path: tuple[str | int, ...],
        fault: Callable[[wiring.Component, Value], ValueLike],
    ):
        self._block, self._path, self._fault = block, path, fault
        super().__init__(block.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.block = block = self._block
        outer, inside = self.signature.flatten(self), block.signature.flatten(block)
        for (path, member, port), (_, _, same) in zip(outer, inside, strict=True):
            source, target = (port, same) if member.flow is wiring.In else (same, port)
            m.d.comb += Value.cast(target).eq(self._fault(self, source) if path == self._path else source)
        return m
