"""The Tracker built otherwise: ways, counter widths, no tags. What each costs, by the same flow as every block.

What each loses on workloads is simulated by :mod:`sim.cli.alternatives`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import Configuration, preset

if TYPE_CHECKING:
    from .measure import Figures

PAPER = "256 sets, 8 ways (the paper's)"
COUNTER_BITS = (9, 10, 11, 12)
VARIANTS: dict[str, dict[str, Any]] = {
    PAPER: {},
    "256 sets, 4 ways": {"tracker_ways": 4},
    "256 sets, 16 ways": {"tracker_ways": 16},
    "512 sets, 4 ways": {"tracker_sets": 512, "tracker_ways": 4},
    "128 sets, 16 ways": {"tracker_sets": 128, "tracker_ways": 16},
    "no tags, 256 WGs": {"tracker_tags": False},
    "no tags, 4,096 WGs": {"tracker_tags": False, "tracker_sets": 4096},
    **{f"counters of {bits} bits": {"count_bits": bits} for bits in COUNTER_BITS},
}
"""Changes to preset `paper`, or to the configuration of an experiment."""


def configurations() -> dict[str, Configuration]:
    """The configuration of each variant."""
    return {name: preset("paper", **changes) for name, changes in VARIANTS.items()}


def measure_variant(name: str, out: Path) -> "Figures":
    """Figures of variant `name`; files go to a folder of its own in `out`."""
    from .measure import default_library, measure

    folder = out / "".join(letter if letter.isalnum() else "_" for letter in name)
    default_library(folder)
    return measure("tracker", configurations()[name], folder, [])
