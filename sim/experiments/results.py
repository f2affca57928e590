"""Figures of a ring run, the JSON they are written in, and the row that a terminal shows of them.

Every time is in cycles of 1 ns. Figures that do not apply (all-gather, or overlap when the GEMM was not run alone) are
null. The keys of `results.json` are the names of the fields below.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sim.files import replaced


@dataclass(frozen=True)
class ScenarioResult:
    """One run and its verdict. `passed` only when every element, counter and checker is right; else `complaints`.

    `ideal_speedup` = (GEMM + RS + AG) / (max(GEMM, RS) + AG), where GEMM is `gemm_alone_cycles`, simulated, and RS is
    `rs_alone_cycles`, computed from link bandwidth and latency: N - 1 steps of one chunk each. `ect_cycles` is the
    effective communication time, overall - GEMM alone; `overlap_efficiency` = 1 - ECT / ECT of running one after the
    other; `percent_of_ideal` = 100 (speedup - 1) / (ideal - 1). `sectors` are DRAM sectors of all GPUs by phase and
    access. `occupancy_over_time`: requests in rank 0's DRAM queues, mean per channel over `occupancy_window` cycles
    each. `link_utilisation` is per GPU the share of cycles its busiest outgoing link moves flits.
    """

    name: str
    gpus: int
    shape: tuple[int, int, int]
    dtype: str
    op: str
    policy: str
    threshold: str
    preset: str
    passed: bool
    cycles: int
    options: dict[str, Any] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    mismatches: int = 0
    gemm_cycles: int | None = None
    gemm_alone_cycles: int | None = None
    rs_alone_cycles: int | None = None
    ag_cycles: int | None = None
    speedup: float | None = None
    ideal_speedup: float | None = None
    percent_of_ideal: float | None = None
    ect_cycles: int | None = None
    overlap_efficiency: float | None = None
    sectors: dict[str, int] = field(default_factory=dict)
    occupancy_mean: float | None = None
    occupancy_peak: int | None = None
    occupancy_window: int | None = None
    occupancy_over_time: list[float] | None = None
    link_utilisation: list[float] = field(default_factory=list)
    tracker_accesses: int | None = None
    tracker_hits: int | None = None
    tracker_evictions: int | None = None
    tracker_live_peak: int | None = None
    trigger_latency_peak: int | None = None
    held_compute_cycles: int | None = None
    held_communication_cycles: int | None = None
    counters: list[dict[str, int]] = field(default_factory=list)
    kilocycles_per_second: float | None = None
    simulate_seconds: float | None = None
    total_seconds: float | None = None

    @property
    def verdict(self) -> str:
        """`pass`, or `FAIL`."""
        return "pass" if self.passed else "FAIL"


def overlap_figures(overall: int, gemm_alone: int, rs_alone: int, ag: int = 0) -> dict[str, float]:
    """Speedup over running one after the other, and what follows from it (definitions: see above)."""
    sequential = gemm_alone + rs_alone + ag
    speedup = sequential / overall if overall else 0.0
    ideal = sequential / (max(gemm_alone, rs_alone) + ag)
    ect = overall - gemm_alone
    return {
        "speedup": speedup,
        "ideal_speedup": ideal,
        "percent_of_ideal": 100 * (speedup - 1) / (ideal - 1) if ideal > 1 else 100.0,
        "ect_cycles": ect,
        "overlap_efficiency": 1 - ect / (sequential - gemm_alone) if sequential > gemm_alone else 0.0,
    }


def write_results(path: Path, results: Sequence[ScenarioResult]) -> None:
    """Write the list of results as JSON, all of it or nothing."""
    with replaced(path) as draft:
        draft.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def read_results(path: Path) -> list[ScenarioResult]:
    """Inverse of :func:`write_results`."""
    answer = []
    for entry in json.loads(path.read_text()):
        entry["shape"] = tuple(entry["shape"])
        entry["complaints"] = tuple(entry["complaints"])
        answer.append(ScenarioResult(**entry))
    return answer


COLUMNS = (
    ("scenario", 30),
    ("gpus", 4),
    ("shape", 16),
    ("type", 9),
    ("policy", 18),
    ("cycles", 10),
    ("overlap", 7),
    ("evicted", 8),
    ("verdict", 7),
)
"""Headings and widths of a row."""


def header() -> str:
    """Headings for the rows of :func:`format_row`."""
    return _line([title for title, _ in COLUMNS])


def format_row(result: ScenarioResult) -> str:
    """One line of a result."""
    efficiency = result.overlap_efficiency
    evictions = result.tracker_evictions
    threshold = f"/{result.threshold}" if result.policy == "mca" else ""
    return _line(
        [
            result.name,
            str(result.gpus),
            "x".join(map(str, result.shape)),
            f"{result.dtype} {result.op}",
            f"{result.policy}{threshold}",
            f"{result.cycles:,}",
            "-" if efficiency is None else f"{100 * efficiency:.0f} %",
            "-" if evictions is None else f"{evictions:,}",
            result.verdict,
        ]
    )


def figure_lines(result: ScenarioResult) -> list[str]:
    """The figures of one run that are worth a line on the terminal."""
    latency = "no trigger" if result.trigger_latency_peak is None else f"at most {result.trigger_latency_peak} cycles"
    figures = {
        "GEMM cycles": f"{result.gemm_cycles or 0:,} (alone {result.gemm_alone_cycles or 0:,})",
        "DRAM sectors": ", ".join(f"{key} {value:,}" for key, value in result.sectors.items() if value),
        "DRAM-queue occupancy": f"mean {result.occupancy_mean}, peak {result.occupancy_peak}",
        "link utilisation": ", ".join(f"{100 * share:.0f} %" for share in result.link_utilisation),
        "Tracker": f"{result.tracker_hits or 0:,} hits, {result.tracker_evictions or 0:,} evictions, "
        f"peak {result.tracker_live_peak or 0:,} entries",
        "trigger latency": latency,
        "simulation speed": f"{result.kilocycles_per_second or 0:,.0f} kcycles/s",
    }
    if result.speedup is not None:
        figures["speedup"] = (
            f"{result.speedup:.3f} (ideal {result.ideal_speedup:.3f}, {result.percent_of_ideal:.0f} % of it)"
        )
    return [f"  {name:<22}{text}" for name, text in figures.items()]


def _line(cells: list[str]) -> str:
    left = {"scenario", "shape", "type", "policy", "verdict"}
    return "  ".join(
        cell.ljust(width) if title in left else cell.rjust(width)
        for cell, (title, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()


def summary(results: Sequence[ScenarioResult], seconds: float) -> str:
    """The last line of a regression."""
    failed = [result.name for result in results if not result.passed]
    cycles = sum(result.cycles * result.gpus for result in results)
    text = f"{len(results) - len(failed)} of {len(results)} scenarios pass, {cycles:,} node cycles in {seconds:.0f} s"
    return text + (f"; FAILED: {', '.join(failed)}" if failed else "")
