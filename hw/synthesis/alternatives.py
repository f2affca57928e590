"""The Tracker with other associativities and counter widths: what each costs, by the same flow as every block."""

from pathlib import Path
from typing import Any

from hw.config import PRESETS, Configuration, preset
from hw.synthesis.measure import Figures, default_library, measure

VARIANTS: dict[str, dict[str, Any]] = {
    "paper: 256 sets, 8 ways": {},
    "512 sets, 4 ways": {"tracker_sets": 512, "tracker_ways": 4},
    "128 sets, 16 ways": {"tracker_sets": 128, "tracker_ways": 16},
    "256 sets, 4 ways": {"tracker_ways": 4},
    "256 sets, 16 ways": {"tracker_ways": 16},
    **{f"counters of {bits} bits": {"count_bits": bits} for bits in (9, 10, 11, 12)},
}
"""Changes to preset `paper`. A counter of b bits counts up to 2**b - 1 bytes, so narrow ones restrict the size of a WF
tile and its updates per element; the default of 17 allows any."""


def configurations() -> dict[str, Configuration]:
    """The configuration of each variant."""
    return {name: preset("paper", **changes) if changes else PRESETS["paper"] for name, changes in VARIANTS.items()}


def measure_variant(name: str, out: Path) -> Figures:
    """Figures of variant `name`; files go to a folder of its own in `out`."""
    folder = out / "alternatives" / "".join(letter if letter.isalnum() else "_" for letter in name)
    default_library(folder)
    return measure("tracker", configurations()[name], folder, [])


def table(figures: dict[str, Figures]) -> list[str]:
    """A Markdown table, one row per variant; `figures` must hold the paper's."""
    base = figures["paper: 256 sets, 8 ways"]
    lines = [
        "| Tracker | storage bytes | gate equivalents | against the paper's | memory bits | FO4 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, item in figures.items():
        share = 100 * (item.gate_equivalents / base.gate_equivalents - 1)
        storage = f"{configurations()[name].tracker_bytes:,}"
        gates = f"{item.gate_equivalents:,} | {share:+.1f} %"
        lines.append(f"| {name} | {storage} | {gates} | {item.memory_bits:,} | {item.fo4:.1f} |")
    return lines
