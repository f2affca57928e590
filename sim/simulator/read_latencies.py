"""How long reads took: what `read_latency.sv` counted, and its percentiles."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

PERCENTILES = (50, 95, 99)
"""Those of a summary, beside the longest."""
LIMIT = 65535
"""Cycles from which on the counts do not tell reads apart; `LIMIT` of `read_latency.sv` less one."""


def read_latencies(files: Iterable[Path]) -> Counter[int]:
    """Reads by the cycles that they took, of all `files` together; a file that a broken-off run did not write is
    skipped."""
    counts: Counter[int] = Counter()
    for file in files:
        if file.exists():
            for line in file.read_text().splitlines():
                cycles, reads = map(int, line.split())
                counts[cycles] += reads
    return counts


def percentile(counts: Mapping[int, int], percent: float) -> int:
    """The fewest cycles within which at least `percent` % of the reads had their data (nearest rank).

    Raises :class:`ValueError` without any read.
    """
    left = percent / 100 * sum(counts.values())
    for cycles, reads in sorted(counts.items()):
        left -= reads
        if left <= 0:
            return cycles
    raise ValueError("there is no read")


def latency_figures(counts: Mapping[int, int]) -> dict[str, int] | None:
    """The figure `read_latency`: `reads`, percentiles and the longest, in cycles; None where nothing was read."""
    if not counts:
        return None
    return {
        "reads": sum(counts.values()),
        **{f"p{percent}": percentile(counts, percent) for percent in PERCENTILES},
        "max": max(counts),
    }


def latency_text(latency: Mapping[str, int] | None) -> str:
    """:func:`latency_figures` for the terminal."""
    if latency is None:
        return "n/a: nothing was read"
    longest = f"at most {latency['max']:,}" if latency["max"] < LIMIT else f"{LIMIT:,} or more"
    shares = ", ".join(f"{percent} % within {latency[f'p{percent}']:,}" for percent in PERCENTILES[1:])
    return f"median {latency['p50']:,} cycles, {shares}, {longest}; {latency['reads']:,} reads"
