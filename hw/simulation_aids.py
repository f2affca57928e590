"""Parameters of what is built in for simulation only, in no preset and no export."""

from dataclasses import dataclass

from .parameters import ConfigurationError, Parameters

SWITCHED_BUGS = ("count_at_enqueue", "no_first_touch", "dropped_update", "doubled_trigger")
CHOSEN_BUG = "chosen"
SEEDED_BUGS = ("", *SWITCHED_BUGS, CHOSEN_BUG)
"""Faults a build can carry on purpose, to show that the testbench catches them (:mod:`hw.seeded_bug`)."""


@dataclass(frozen=True)
class SimulationAids(Parameters):
    """`gated_clocks` gates the clocks of idle blocks (:mod:`hw.clock_gate`); `seeded_bug` builds the hardware with a
    fault of :data:`SEEDED_BUGS`, for tests of the testbench."""

    gated_clocks: bool = False
    seeded_bug: str = ""

    def check(self) -> None:
        """Raises :class:`ConfigurationError` for an unknown fault."""
        super().check()
        if self.seeded_bug not in SEEDED_BUGS:
            raise ConfigurationError(f"seeded_bug must be one of {SEEDED_BUGS}, got {self.seeded_bug!r}")
