"""Blocks whose registers stand still while they have nothing to do.

Such a block has an output `wake`, set whenever it would change state and was not awake in the :data:`LINGER` cycles
before; it may depend on inputs of the same cycle. :func:`sleeping_submodule` makes the rest of it.

The means is an enable of the registers, of which synthesis makes clock gates of its library. Who needs another one puts
it in by the `platform` that Amaranth hands to every `elaborate`, as for the flip-flops of
:class:`amaranth.lib.cdc.FFSynchronizer`.
"""

from amaranth import Cat, EnableInserter, Module, Signal
from amaranth.hdl import Elaboratable, Value
from amaranth.lib import wiring

LINGER = 2
"""Cycles a block runs on after it last asked to be awake, so that what it does in the wake of an event needs no
mention."""


class ClockEnable(Elaboratable):
    """`block`, whose registers change only in cycles with `enable`, or in reset; its ports stay its own.

    A platform with a method `get_clock_enable(clock_enable)` gives what is elaborated instead; cycle by cycle it has to
    behave the same.
    """

    def __init__(self, block: Elaboratable, enable: Value):
        self.block = block
        self.enable = enable

    def elaborate(self, platform: object) -> Elaboratable:
        if hasattr(platform, "get_clock_enable"):
            return platform.get_clock_enable(self)
        return EnableInserter(self.enable)(self.block)


def sleeping_submodule(m: Module, name: str, block: wiring.Component) -> None:
    """Add `block` to `m` as `name`, asleep but for cycles with its output `wake` and :data:`LINGER` cycles after."""
    recent = Signal(LINGER, name=f"{name}_recent")
    running = Signal(name=f"{name}_running")
    m.d.sync += recent.eq(Cat(block.wake, recent))
    m.d.comb += running.eq(block.wake | recent.any())
    m.submodules[name] = ClockEnable(block, running)
