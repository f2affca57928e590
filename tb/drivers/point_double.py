"""Stand-ins for the simulation of a full-size spec: instant, and with figures that can be worked out by hand.

GEMM, RS and AG take the times of the calibrated machine (2MNK / (114.7 TFLOP/s x 0.9 x K / (K + 200)); N - 1 steps of a
chunk and 500 ns); T3 adds a tenth of the ideal's distance to Sequential, T3-MCA a twentieth.
"""

import os
import signal
import threading
from pathlib import Path

from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.experiments.spec_values import PROGRAM
from sim.workloads.table import WORKLOADS

MARKER = "T3_TEST_MARKER"
"""Environment variable: a file that :func:`deadly` and :func:`dying` make as they kill their process."""
WINDOWS = 40
T_NLG = tuple(work.name for work in WORKLOADS if work.model == "T-NLG")
_ABOVE_IDEAL = {
    "t3": 0.1,
    "t3-mca-none": 0.1,
    "t3-mca-30": 0.08,
    "t3-mca-10": 0.05,
    "t3-mca-5": 0.06,
    "t3-mca": 0.05,
    "t3-paced": 0.03,
}


def spans(spec: Spec) -> tuple[int, int, int]:
    """(GEMM, RS, AG) alone, in cycles of 1 ns."""
    m, n, k = spec.shape
    gemm = 2 * m * n * k / (114.7e3 * 0.9 * k / (k + 200) * spec.gpu.compute_units / 80)
    ring = (spec.gpus - 1) * (m * n * 2 / spec.gpus / spec.gpu.link_bandwidth + 500)
    return round(gemm), round(ring), round(ring)


def analytic(spec: Spec) -> Result:
    """The result of `spec`, with figures of :data:`sim.experiments.results.FIGURES`."""
    if spec.compute == PROGRAM:
        return _program(spec)
    gemm, rs, ag = spans(spec)
    sequential, ideal = gemm + rs + ag, max(gemm, rs) + ag
    nmc = round(0.93 * rs)
    cycles = {"gemm": gemm, "sequential": sequential, "rs-nmc": nmc}.get(spec.variant.name)
    if cycles is None:
        cycles = round(ideal + _ABOVE_IDEAL[spec.variant.name] * (sequential - ideal))
    if not spec.mirrored:
        cycles += cycles // 100
    phases = {"gemm": ("gemm",), "rs-nmc": ("rs",)}.get(spec.variant.name, ("gemm", "rs", "ag"))
    sectors = {
        phase: counts if phase in phases else dict.fromkeys(counts, 0) for phase, counts in _sectors(spec).items()
    }
    entries = 256 * spec.gpu.tracker_ways
    return {
        "spec": spec.to_json(),
        "cycles": cycles,
        "gemm_cycles": gemm if "gemm" in phases else None,
        "rs_cycles": (nmc if spec.variant.near_memory else rs) if "rs" in phases else None,
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
            "triggers": 10 * spec.gpus,
        },
        "arbiter": {
            "held_compute": 10,
            "held_communication": 20,
            "forced": 1,
            "threshold": "10",
            "communication_wait_peak": min(1500, spec.starvation_limit),
        },
        "closed_forms": {"rs_read": {"expected": 1, "counted": 1, "matches": True}},
        "trigger_latency": 40 if spec.variant.overlapped else None,
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
        "errors": [],
        "seconds": {"build": 0.0, "simulate": 0.9, "total": 1.0, "python_share": 0.04},
    }


def _program(spec: Spec) -> Result:
    """A GEMM takes 1,000 cycles for each of its chunks; beside an all-gather a hundredth longer, a fiftieth with coarse
    gates, and 100 more beside a kernel that shares its compute units. A kernel that copies takes 500 cycles."""
    choices = dict(spec.choices)
    if spec.collective == "gemm-alone":
        cycles = 1000 * choices["chunks"]
    elif spec.independent:
        cycles = spec.gpus * 1010 + (100 if spec.sharing != "own" else 0)
    elif choices.get("copied") or choices.get("lying") or spec.collective == "all-to-all-dma":
        cycles = 500
    else:
        cycles = spec.gpus * (1010 if choices.get("fine", True) else 1020)
    return {
        "spec": spec.to_json(),
        "cycles": cycles,
        "dram_sectors": {"gemm": {"read": 1000, "write": 500, "update": 0}},
        "closed_forms": {"gemm_read": {"expected": 1, "counted": 1, "matches": True}},
        "passed": True,
        "errors": [],
        "seconds": {"build": 0.0, "simulate": 0.9, "total": 1.0, "python_share": 0.04},
    }


def _sectors(spec: Spec) -> dict[str, dict[str, int]]:
    """DRAM sectors by the ring's closed forms; the GEMM reads each input once."""
    (m, n, k), tp, overlapped = spec.shape, spec.gpus, spec.variant.overlapped
    chunk = m * n * 2 // 32 // tp
    inputs = (m + n) * k * 2 // 32
    gathered = (tp - 1) * chunk
    stored = (0, gathered) if overlapped else (tp * chunk, 0)
    return {
        "gemm": {"read": inputs, "write": stored[0], "update": stored[1]},
        "rs": {
            "read": (tp - 2 if overlapped else 2 * tp - 1) * chunk,
            "write": stored[0],
            "update": stored[1],
        },
        "ag": {"read": gathered, "write": gathered, "update": 0},
        "other": {"read": 0, "write": 0, "update": 0},
    }


def counted(runs: Path, spec: Spec) -> Result:
    """Like :func:`analytic`; the name of the sub-layer is appended to file `runs`."""
    with runs.open("a") as file:
        file.write(f"{spec.name}\n")
    return analytic(spec)


def wrong(spec: Spec) -> Result:
    """Like :func:`analytic`, but T3 on T-NLG has failed a check."""
    result = analytic(spec)
    if spec.variant.name == "t3" and spec.name in T_NLG:
        result |= {"passed": False, "errors": ["rank 0 moved a sector too many"]}
    return result


def breaking(spec: Spec) -> Result:
    """Like :func:`analytic`, but the simulator breaks down under T3-MCA."""
    if spec.variant.name == "t3-mca":
        raise OSError("no space left on device")
    return analytic(spec)


def _first_to_mark() -> bool:
    """Whether this call made MARKER, which one of all processes can."""
    try:
        Path(os.environ[MARKER]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def deadly(spec: Spec) -> Result:
    """Like :func:`analytic`, but the first worker that simulates T3-MCA is killed; MARKER then exists."""
    if spec.variant.name == "t3-mca" and _first_to_mark():
        os.kill(os.getpid(), signal.SIGKILL)
    return analytic(spec)


def dying(spec: Spec) -> Result:
    """Like :func:`analytic`, but the first worker to begin is killed half a second later, with what it has done."""
    if _first_to_mark():
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return analytic(spec)


def never(spec: Spec) -> Result:
    """Nothing may run it."""
    raise AssertionError(f"{spec} was to be taken from disk")
