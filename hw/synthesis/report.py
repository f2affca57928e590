"""Figures of all blocks and presets: the table of AREA.md, the JSON summary, what changed since the last commit."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .measure import Figures

COMMITTED = Path(__file__).with_name("figures.json")
"""The figures last committed, by preset and block."""
BEGIN = "<!-- table of t3rtl synth: begin -->"
END = "<!-- table of t3rtl synth: end -->"

Summary = dict[str, dict[str, dict[str, Any]]]
"""Preset -> block -> fields of :class:`Figures`."""

_COMPARED = ("gate_equivalents", "memory_bits", "fo4")


def summarize(results: dict[tuple[str, str], Figures]) -> Summary:
    """`results` by (preset, block) as plain values."""
    summary: Summary = {}
    for (preset, block), figures in results.items():
        summary.setdefault(preset, {})[block] = figures.to_json()
    return summary


def table(summary: Summary) -> list[str]:
    """A Markdown table, one row per block and preset. Columns that no row has a value for are left out."""
    columns: list[tuple[str, Any]] = [
        ("generic cells", lambda row: f"{row['cells']:,}"),
        ("gate equivalents", lambda row: f"{row['gate_equivalents']:,}"),
        ("memory bits", lambda row: f"{row['memory_bits']:,}"),
        ("FO4", lambda row: f"{row['fo4']:.1f}"),
        ("um2", lambda row: f"{row['square_microns']:,.0f}" if "square_microns" in row else ""),
        ("ps", lambda row: f"{row['picoseconds']:.0f}" if "picoseconds" in row else ""),
        ("ECP5 LUTs", lambda row: f"{row['fpga']['luts']:,}" if "fpga" in row else ""),
        ("block RAMs", lambda row: f"{row['fpga']['block_rams']}" if "fpga" in row else ""),
        ("MHz", lambda row: f"{row['fpga']['megahertz']:.0f}" if "fpga" in row else ""),
    ]
    rows = [(preset, block, row) for preset, blocks in summary.items() for block, row in blocks.items()]
    shown = [(title, text) for title, text in columns if any(text(row) for *_, row in rows)]
    lines = [
        "| preset | block | " + " | ".join(title for title, _ in shown) + " |",
        "|---|---|" + "--:|" * len(shown),
    ]
    for preset, block, row in rows:
        lines.append(f"| {preset} | {block} | " + " | ".join(text(row) for _, text in shown) + " |")
    return lines


def changes(summary: Summary, committed: Summary) -> list[str]:
    """One line per figure that differs from the committed one, for the blocks both have."""
    lines = []
    for preset, blocks in summary.items():
        for block, row in blocks.items():
            old = committed.get(preset, {}).get(block)
            if old is None:
                lines.append(f"{preset} {block}: no committed figures")
                continue
            for key in _COMPARED:
                if row[key] != old[key]:
                    share = f" ({100 * (row[key] / old[key] - 1):+.1f} %)" if old[key] else ""
                    lines.append(f"{preset} {block}: {key} {old[key]:,} -> {row[key]:,}{share}")
    return lines


def merge(summary: Summary, committed: Summary, blocks: Sequence[str]) -> Summary:
    """`summary`, and rows of `committed` for those of `blocks` that it does not have, in the order of `blocks`."""
    merged: Summary = {}
    for preset, rows in summary.items():
        known = committed.get(preset, {}) | rows
        merged[preset] = {block: known[block] for block in blocks if block in known}
    return merged


def read_summary(path: Path) -> Summary:
    """A summary written by :func:`write_summary`; empty when there is none."""
    summary: Summary = json.loads(path.read_text()) if path.exists() else {}
    return summary


def write_summary(summary: Summary, path: Path) -> None:
    """Write `summary` as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1) + "\n")


def write_table(lines: list[str], document: Path) -> None:
    """Replace what stands between the markers of `document`. Raises ValueError when a marker is missing."""
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} lacks the line {BEGIN if not begin else END}")
    document.write_text("\n".join([before + BEGIN, *lines, END + after]))
