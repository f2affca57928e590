"""Times of a GEMM's workgroups on machine PAPER: the analytic model, and what makes the simulation agree with it.

The model, fitted to four ideal-overlap figures that the paper states (`tb/simulation/test_kernel_plans.py`): a GEMM
alone takes 2MNK / (114.7 TFLOP/s x 0.9 x K/(K + 200)) on 80 compute units. Its K/(K + 200) says that a workgroup has a
fixed cost of 200 units of K beside its K steps: here its lead time. A step takes its share of the arithmetic at full
rate. Reads that the last-level cache leaves, stores, and the last stage, in which not all compute units have work,
cost extra; therefore the lead time is shortened until the simulated GEMM alone takes what the model says.
`calibration.json` holds the results of `t3rtl calibrate`, per sub-layer and compute units: the lead time in cycles,
and the remaining error of the GEMM alone (relative to the model).
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sim.workloads.kernel_plans import GemmTimes
from sim.workloads.sublayer import TILE, SubLayer

FLOPS = 114.7e12 * 0.9
FIXED_DEPTH = 200
COMPUTE_UNITS = 80
CYCLES_PER_SECOND = 1e9
TABLE = Path(__file__).parent / "data" / "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """Lead time of a workgroup, and error of the simulated GEMM alone with it."""

    lead_cycles: int
    error: float


def gemm_cycles(elements: int, depth: int, compute_units: int = COMPUTE_UNITS) -> float:
    """Cycles of a GEMM of so many output `elements` alone, by the model; more compute units share the work."""
    rate = FLOPS * compute_units / COMPUTE_UNITS * depth / (depth + FIXED_DEPTH)
    return 2 * elements * depth / rate * CYCLES_PER_SECOND


def analytic_cycles(layer: SubLayer, compute_units: int) -> float:
    """The same of a sub-layer's."""
    return gemm_cycles(layer.m * layer.n, layer.k, compute_units)


def depth_cycles(depth: float) -> float:
    """Cycles in which a compute unit multiplies tiles of `depth` at full rate."""
    return 2 * TILE * TILE * depth / (FLOPS / COMPUTE_UNITS) * CYCLES_PER_SECOND


@dataclass(frozen=True)
class CalibratedTimes(GemmTimes):
    """Times of a sub-layer's workgroups, and whether they come from the table."""

    calibrated: bool = False


@cache
def table() -> dict[str, Calibration]:
    """The calibrations there are, by :func:`key`."""
    return {name: Calibration(**entry) for name, entry in json.loads(TABLE.read_text()).items()}


def key(layer: SubLayer, compute_units: int) -> str:
    """Name of an entry of the table: M x N x K / TP / compute units."""
    return f"{layer.m}x{layer.n}x{layer.k}/{layer.gpus}/{compute_units}"


def step_cycles(layer: SubLayer) -> int:
    """Cycles of one step of a workgroup."""
    return round(depth_cycles(layer.k / layer.steps))


def gemm_times(layer: SubLayer, compute_units: int) -> CalibratedTimes:
    """Times of the workgroups: calibrated; for want of that as calibrated on :data:`COMPUTE_UNITS`, since a workgroup
    does not know on how many others run; else the model's own fixed cost."""
    entry = table().get(key(layer, compute_units))
    nearest = entry or table().get(key(layer, COMPUTE_UNITS))
    lead = nearest.lead_cycles if nearest else round(depth_cycles(FIXED_DEPTH))
    return CalibratedTimes(step_cycles(layer), lead, calibrated=entry is not None)
