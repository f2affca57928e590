"""Gated clocks where hardware has enables (:mod:`hw.primitives.clock_enable`), so that a simulator skips what rests.

A compiled simulator evaluates all logic behind an edge of the clock, whether registers are enabled or not. A design
with gates needs the module `clock_gate` (`sim/models/clock_gate.sv`).
"""

from typing import Any

from amaranth import ClockDomain, ClockSignal, DomainRenamer, Instance, ResetSignal
from amaranth.hdl import Elaboratable, Fragment
from amaranth.lib import wiring

from hw.primitives.clock_enable import ClockEnable


class ClockGates:
    """The platform that makes a gate of every clock enable."""

    def __init__(self) -> None:
        self._gates = 0

    def get_clock_enable(self, enabled: ClockEnable) -> Fragment:
        """The block of `enabled` with a clock of its own, which runs in reset too."""
        # A block within a block that is gated needs another name for its clock.
        self._gates += 1
        clock = ClockDomain(f"gated_{self._gates}", local=True)
        fragment = Fragment.get(DomainRenamer(clock.name)(enabled.block), self)
        fragment.add_domains(clock)
        gate = Instance(
            "clock_gate",
            i_clk=ClockSignal("sync"),
            i_enable=enabled.enable | ResetSignal("sync"),
            o_gated=clock.clk,
        )
        fragment.add_subfragment(gate, "gate")
        fragment.add_statements("comb", clock.rst.eq(ResetSignal("sync")))
        return fragment


class ClockGated(Elaboratable):
    """`block` with gated clocks wherever it has enables; its ports, and whatever else it has, stay its own."""

    def __init__(self, block: wiring.Component):
        self._block = block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def elaborate(self, platform: object) -> Fragment:
        return Fragment.get(self._block, ClockGates())
