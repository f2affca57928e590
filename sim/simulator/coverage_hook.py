"""Where a test environment may measure the coverage of what is simulated.

The environment variable T3_SIMULATOR_HOOK names a module with a function `measurement()` that gives a
:class:`Measurement`; this package knows nothing of how one measures. A variable, because simulations run in processes
of their own.
"""

import importlib
import os
from pathlib import Path
from typing import Protocol

from amaranth.lib import wiring

VARIABLE = "T3_SIMULATOR_HOOK"


class MeasuredDesign(Protocol):
    """An instrumented design: its `text`, the `flags` for Verilator, the `sources` it needs beside it."""

    @property
    def text(self) -> str:
        """SystemVerilog."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Options of Verilator."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """Files compiled with it."""

    def save(self, folder: Path) -> None:
        """Note in build folder `folder` what reading the coverage of its runs takes."""


class Measurement(Protocol):
    """How designs are instrumented, and what becomes of a run."""

    def instrument(self, component: wiring.Component, name: str) -> MeasuredDesign:
        """`component` as module `name`, instrumented."""

    def can_record(self, build: Path) -> bool:
        """Whether the coverage of runs in folder `build` can still be read."""

    def record(self, build: Path, run: Path) -> None:
        """Keep what the run in folder `run`, which has passed, left of the design built in `build`."""


def installed() -> Measurement | None:
    """The measurement that the environment asks for; None without any."""
    module = os.environ.get(VARIABLE, "")
    measurement: Measurement | None = importlib.import_module(module).measurement() if module else None
    return measurement
