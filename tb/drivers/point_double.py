"""Stand-ins for the simulation of a point: instant, and with figures that can be worked out by hand.

GEMM, RS and AG take the times of the calibrated machine (2MNK / (114.7 TFLOP/s x 0.9 x K / (K + 200)); N - 1 steps of a
chunk and 500 ns); T3 adds a tenth of the ideal's distance to Sequential, T3-MCA a twentieth.
"""

import os
import signal
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.experiments.experiment import Point
from sim.workloads.table import Workload

MARKER = "T3_TEST_MARKER"
"""Environment variable: a file that :func:`deadly` and :func:`dying` make as they kill their process."""
WINDOWS = 40
_ABOVE_IDEAL = {
    "t3": 0.1,
    "t3-mca-none": 0.1,
    "t3-mca-30": 0.08,
    "t3-mca-10": 0.05,
    "t3-mca-5": 0.06,
    "t3-mca": 0.05,
    "t3-paced": 0.03,
}


def spans(work: Workload, link_bandwidth: float = 75.0, compute_units: int = 80) -> tuple[int, int, int]:
    """(GEMM, RS, AG) alone, in cycles of 1 ns."""
    gemm = 2 * work.m * work.n * work.k / (114.7e3 * 0.9 * work.k / (work.k + 200) * compute_units / 80)
    ring = (work.tp - 1) * (work.m * work.n * 2 / work.tp / link_bandwidth + 500)
    return round(gemm), round(ring), round(ring)


def analytic(point: Point) -> dict[str, Any]:
    """The result of `point`, laid out as :func:`sim.experiments.experiment.simulate_point` does."""
    work = point.sublayer
    gemm, rs, ag = spans(work, point.link_bandwidth, point.compute_units)
    sequential, ideal = gemm + rs + ag, max(gemm, rs) + ag
    nmc = round(0.93 * rs)
    cycles = {"gemm": gemm, "sequential": sequential, "rs-nmc": nmc}.get(point.configuration)
    if cycles is None:
        cycles = round(ideal + _ABOVE_IDEAL[point.configuration] * (sequential - ideal))
    if point.mode == "ring":
        cycles += cycles // 100
    phases = {"gemm": ("gemm",), "rs-nmc": ("rs",)}.get(point.configuration, ("gemm", "rs", "ag"))
    sectors = {
        phase: counts if phase in phases else dict.fromkeys(counts, 0)
        for phase, counts in _sectors(work, overlapped=point.configuration.startswith("t3")).items()
    }
    entries = 256 * point.tracker_ways
    return {
        "cycles": cycles,
        "gemm_cycles": gemm if "gemm" in phases else None,
        "rs_cycles": (nmc if point.configuration == "rs-nmc" else rs) if "rs" in phases else None,
        "ag_cycles": ag if "ag" in phases else None,
        "analytic_gemm_cycles": gemm,
        "rs_wire_cycles": rs,
        "dram_sectors": sectors,
        "link_utilisation": 0.9,
        "tracker": {
            "hits": 1000,
            "misses": 100,
            "evictions": max(0, 3000 - entries),
            "refetches": max(0, 3000 - entries),
            "peak_occupancy": min(3000, entries),
            "triggers": 10 * work.tp,
        },
        "arbiter": {
            "held_compute": 10,
            "held_communication": 20,
            "forced": 1,
            "threshold": "10",
            "communication_wait_peak": min(1500, point.starvation_limit),
        },
        "closed_forms": {"rs_read": {"expected": 1, "counted": 1, "matches": True}},
        "trigger_latency": 40 if point.configuration.startswith("t3") else None,
        "timeline": {
            "window": cycles // WINDOWS,
            "occupancy": [20.0] * WINDOWS,
            **{
                f"{phase}_{access}": [count // 32 // WINDOWS] * WINDOWS
                for phase, counts in sectors.items()
                for access, count in counts.items()
            },
        },
        "passed": True,
        "complaints": [],
        "seconds": {"build": 0.0, "simulate": 0.9, "total": 1.0, "python_share": 0.04},
    }


def _sectors(work: Workload, overlapped: bool) -> dict[str, dict[str, int]]:
    """DRAM sectors by the ring's closed forms; the GEMM reads each input once."""
    chunk = work.m * work.n * 2 // 32 // work.tp
    inputs = (work.m + work.n) * work.k * 2 // 32
    gathered = (work.tp - 1) * chunk
    stored = (0, gathered) if overlapped else (work.tp * chunk, 0)
    return {
        "gemm": {"read": inputs, "write": stored[0], "update": stored[1]},
        "rs": {
            "read": (work.tp - 2 if overlapped else 2 * work.tp - 1) * chunk,
            "write": stored[0],
            "update": stored[1],
        },
        "ag": {"read": gathered, "write": gathered, "update": 0},
        "other": {"read": 0, "write": 0, "update": 0},
    }


def counted(runs: Path, point: Point) -> dict[str, Any]:
    """Like :func:`analytic`, with the point in the result; the name of the sub-layer is appended to file `runs`."""
    with runs.open("a") as file:
        file.write(f"{point.workload}\n")
    return {"point": asdict(point)} | analytic(point)


def wrong(point: Point) -> dict[str, Any]:
    """Like :func:`analytic`, but T3 on T-NLG has failed a check."""
    result = analytic(point)
    if point.configuration == "t3" and point.workload.startswith("t-nlg"):
        result |= {"passed": False, "complaints": ["rank 0 moved a sector too many"]}
    return result


def breaking(point: Point) -> dict[str, Any]:
    """Like :func:`analytic`, but the simulator breaks down under T3-MCA."""
    if point.configuration == "t3-mca":
        raise OSError("no space left on device")
    return analytic(point)


def _first_to_mark() -> bool:
    """Whether this call made MARKER, which one of all processes can."""
    try:
        Path(os.environ[MARKER]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def deadly(point: Point) -> dict[str, Any]:
    """Like :func:`analytic`, but the first worker that simulates T3-MCA is killed; MARKER then exists."""
    if point.configuration == "t3-mca" and _first_to_mark():
        os.kill(os.getpid(), signal.SIGKILL)
    return analytic(point)


def dying(point: Point) -> dict[str, Any]:
    """Like :func:`analytic`, but the first worker to begin is killed half a second later, with what it has done."""
    if _first_to_mark():
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return analytic(point)


def never(point: Point) -> dict[str, Any]:
    """Nothing may run it."""
    raise AssertionError(f"{point} was to be taken from disk")
