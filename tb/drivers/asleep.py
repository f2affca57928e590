"""A block as the node holds it, for its tests: asleep whenever it does not ask to be awake."""

from typing import Any

from amaranth import Module
from amaranth.hdl import Elaboratable
from amaranth.lib import wiring

from hw.primitives import sleeping_submodule


class Asleep(Elaboratable):
    """`block`, with its own ports, in a :func:`hw.primitives.sleeping_submodule`. Whatever the block does in a test it
    must do asleep too, cycle by cycle."""

    def __init__(self, block: wiring.Component):
        self._block = block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sleeping_submodule(m, "block", self._block)
        return m
