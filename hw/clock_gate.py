"""Clock gating of a block: an enable on its registers in the exported hardware, a gated clock in simulation.

Synthesis turns register enables into clock gates of the library by itself. A compiled simulator does not: it evaluates
all logic behind an edge of the clock. With gated clocks it skips a block that is idle; cycle by cycle both are the
same.
"""

from amaranth import Cat, ClockDomain, ClockSignal, DomainRenamer, EnableInserter, Instance, Module, ResetSignal, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring

LINGER = 2
"""Cycles a block runs on after its last enable, so that what it does in the wake of an event needs no mention."""


def gated_submodule(m: Module, name: str, block: wiring.Component, enable: Value, gated_clocks: bool) -> None:
    """Add `block` to `m` as `name`; its registers change only in cycles with `enable` (or reset).

    `enable` must be set whenever the block would change state. With `gated_clocks` the design needs a module
    `clock_gate` (ports `clk`, `enable`, `gated`).
    """
    wanted = Signal(name=f"{name}_wanted")
    recent = Signal(LINGER, name=f"{name}_recent")
    running = Signal(name=f"{name}_running")
    m.d.sync += recent.eq(Cat(wanted, recent))
    m.d.comb += [wanted.eq(enable), running.eq(wanted | recent.any())]
    if not gated_clocks:
        m.submodules[name] = EnableInserter(running)(block)
        return
    domain = f"{name}_clock"
    m.domains += (clock := ClockDomain(domain, local=True))
    m.submodules[f"{name}_gate"] = Instance(
        "clock_gate", i_clk=ClockSignal("sync"), i_enable=running | ResetSignal("sync"), o_gated=clock.clk
    )
    m.d.comb += clock.rst.eq(ResetSignal("sync"))
    m.submodules[name] = DomainRenamer(domain)(block)
