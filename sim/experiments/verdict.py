"""Is the result of a ring run right? Compares it with the golden model and the counters with the closed forms."""

from dataclasses import dataclass

import numpy as np

from sim.experiments.ring_run import RingOutcome, RingTask


@dataclass(frozen=True)
class Verdict:
    """`complaints` is empty when everything is as it must be; each entry is one sentence."""

    complaints: tuple[str, ...]
    mismatches: int

    @property
    def passed(self) -> bool:
        """Whether the run is right."""
        return not self.complaints


def golden_chunks(task: RingTask) -> np.ndarray:
    """What each rank must hold in the end, shape (gpus, rows, columns)."""
    reduced = task.program.golden(task.partials.reshape(task.gpus, -1))
    return np.asarray(reduced).reshape(task.gpus, task.tiling.rows, task.tiling.columns)


def expected_sectors(task: RingTask) -> dict[str, int]:
    """DRAM sectors per GPU of the collective, by the closed forms of its program. What zeroing stores comes before."""
    tiling = task.tiling
    row = (tiling.tiles_across - 1) * (tiling.body_bytes // 32) + -(-tiling.right_bytes // 32)
    chunk = tiling.rows * row
    forms = task.program.closed_forms["hardware"]
    return {
        "rs_read": forms.reads * chunk,
        "output_update": forms.updates * chunk,
        "output_store": forms.stores * chunk,
    }


def counted_sectors(registers: dict[str, int]) -> dict[str, int]:
    """The same figures as the node's counters have them."""
    return {
        "rs_read": registers["sectors_rs_read"],
        "output_update": registers["sectors_gemm_update"] + registers["sectors_rs_update"],
        "output_store": registers["sectors_gemm_store"] + registers["sectors_rs_store"],
    }


def overflow_complaints(task: RingTask, outcome: RingOutcome) -> tuple[str, ...]:
    """What speaks against every rank's Tracker having been full, and having evicted counters to make room."""
    config = task.config
    entries = config.tracker_sets * config.tracker_ways
    complaints = []
    for rank, status in enumerate(outcome.ranks):
        peak, evictions = (status["registers"][f"tracker_{name}"] for name in ("live_peak", "evictions"))
        if peak != entries or not evictions:
            complaints.append(f"rank {rank} has held {peak} of {entries} Tracker entries and evicted {evictions}")
    return tuple(complaints)


def judge(task: RingTask, outcome: RingOutcome) -> Verdict:
    """Compare every element, every rank's counters, and what the checkers saw.

    NaNs are compared bit for bit too: the hardware's NaN is the canonical one, and so is the golden's.
    """
    complaints = list(outcome.faults)
    golden = golden_chunks(task)
    wrong = np.argwhere(outcome.reduced != golden)
    if len(wrong):
        rank, row, column = wrong[0]
        complaints.append(
            f"{len(wrong)} of {golden.size} elements differ, the first on rank {rank} at row {row}, column {column}: "
            f"{outcome.reduced[rank, row, column]:#x} instead of {golden[rank, row, column]:#x}"
        )
    if outcome.finished:
        expected = expected_sectors(task)
        for rank, status in enumerate(outcome.ranks):
            counted = counted_sectors(status["registers"])
            if counted != expected:
                complaints.append(f"rank {rank} moved {counted} sectors instead of {expected}")
                break
    return Verdict(tuple(complaints), len(wrong))
