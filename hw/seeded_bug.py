"""Faults built in on purpose, to show that the testbench catches them.

A configuration whose `seeded_bug` is a fault has it always. With `CHOSEN_BUG` the run switches a fault on,
+seeded_bug=<name> of the simulation, so that one build serves the test of each of
:data:`hw.simulation_aids.SWITCHED_BUGS`.
"""

from amaranth import Const, Instance, Module, Signal
from amaranth.hdl import ValueLike

from .simulation_aids import CHOSEN_BUG, SWITCHED_BUGS, SimulationAids


def seeded_bug(m: Module, config: SimulationAids, name: str) -> ValueLike | None:
    """None when the hardware is right; else 1 while it is to have fault `name`."""
    if config.seeded_bug == name:
        return Const(1, 1)
    if config.seeded_bug != CHOSEN_BUG or name not in SWITCHED_BUGS:
        return None
    present = Signal(name=f"bug_{name}")
    m.submodules[f"choose_{name}"] = Instance("seeded_bug", p_NAME=name, o_present=present)
    return present
