"""Formulas of the evaluation (T3, ASPLOS 2024, sections 5.3 and 6). Times in cycles, all of one unit.

`gemm`, `rs` and `ag` are the spans of the three phases when they run one after the other.
"""

import math
from collections.abc import Iterable, Mapping

from sim.experiments.variants import VARIANTS

BASELINE = "sequential"
OVERLAPPED = tuple(name for name, variant in VARIANTS.items() if variant.overlapped)
"""Variants in which the hardware overlaps GEMM and reduce-scatter."""
IDEAL = "ideal"
"""Ideal-GEMM-RS-Overlap: the longer of GEMM and RS, then AG."""
IDEAL_NMC = "ideal-rs-nmc"
"""Ideal-RS+NMC: the same with a reduce-scatter that adds near the banks."""


def ideal_cycles(gemm: float, rs: float, ag: float) -> float:
    """GEMM and RS perfectly overlapped, then AG."""
    return max(gemm, rs) + ag


def ideal_speedup(gemm: float, rs: float, ag: float, overlapped_rs: float | None = None) -> float:
    """(GEMM + RS + AG) / (max(GEMM, RS) + AG), where the RS below the line may be another, `overlapped_rs`."""
    return (gemm + rs + ag) / ideal_cycles(gemm, rs if overlapped_rs is None else overlapped_rs, ag)


def percent_of_ideal(speedup: float, ideal: float) -> float | None:
    """100 (S - 1) / (S_ideal - 1); None when there is nothing to gain."""
    return 100 * (speedup - 1) / (ideal - 1) if ideal > 1 else None


def overlap_efficiency(overall: float, sequential: float, gemm: float) -> float | None:
    """1 - ECT / ECT_sequential; ECT, the effective communication time, is what a run takes beyond the GEMM alone."""
    return 1 - (overall - gemm) / (sequential - gemm) if sequential > gemm else None


def geomean(values: Iterable[float]) -> float | None:
    """Geometric mean of positive `values`; None of no values."""
    logarithms = [math.log(value) for value in values]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None


def relative_difference(one: float, other: float) -> float:
    """|one - other| as a share of `other`; 0 when both are 0, 1 when only `other` is."""
    if one == other:
        return 0.0
    return abs(one - other) / abs(other) if other else 1.0


def total_sectors(sectors: Mapping[str, Mapping[str, int]], without: str = "") -> int:
    """All DRAM sectors of a run: of GEMM, RS, AG and the Tracker's backing store, but not of class `without`."""
    return sum(sum(counts.values()) for traffic_class, counts in sectors.items() if traffic_class != without)
