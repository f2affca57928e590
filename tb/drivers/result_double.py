"""Stand-ins for the result of an experiment: every figure that the command line shows, without a simulation."""

from typing import Any

from sim.experiments.catalogue import shape
from sim.experiments.results import Result
from sim.experiments.spec import Spec

SECONDS = {
    "build": 0.0,
    "prepare": 0.1,
    "simulate": 1.0,
    "check": 0.1,
    "total": 1.2,
    "python": 0.1,
    "python_share": 0.1,
}


def result_of(spec: Spec, errors: list[str] | None = None, **figures: Any) -> Result:
    """A result of `spec` with these `errors`; 12,345 cycles."""
    errors = errors or []
    full_size = {} if spec.compute == "array" else {"analytic_gemm_cycles": 12000, "rs_wire_cycles": 9000}
    return {
        "spec": spec.to_json(),
        "passed": not errors,
        "errors": errors,
        "mismatches": 0,
        "closed_forms": {"rs_read": {"expected": 8, "counted": 8, "matches": True}},
        "cycles": 12345,
        "gemm_cycles": 12000,
        "rs_cycles": 12345,
        "ag_cycles": None,
        "spans": {"gemm": [0, 12000], "rs": [0, 12345], "ag": None},
        **full_size,
        "dram_sectors": {"rs": {"read": 8, "write": 0, "update": 4}},
        "link_utilisation": 0.9,
        "tracker": {"hits": 5, "evictions": 0, "refetches": 0, "peak_occupancy": 4, "triggers": 2},
        "arbiter": {
            "held_compute": 1,
            "held_communication": 2,
            "forced": 0,
            "communication_wait_peak": 2,
            "threshold": None,
        },
        "trigger_latency": 7,
        "occupancy_mean": 1.5,
        "occupancy_peak": 9,
        "totals": {"tracker_evictions": 0},
        "seconds": SECONDS,
        "kilocycles_per_second": 100.0,
        "kilocycles_per_processor_second": 100.0,
        **figures,
    }


def array_result(name: str = "ring-4", **changes: Any) -> Result:
    """A result of the array generator on four GPUs."""
    return result_of(shape(name=name), **changes)
