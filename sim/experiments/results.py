"""What a result holds, and the JSON file of results: one schema for scenarios, points, sweeps, a single run.

A file is an object: `schema` (:data:`SCHEMA`), `commit`, `version` and `command` it was made with, `date` (UTC, ISO
8601), `units` (figure -> unit), and `results`, a list. A result is an object with the figures of :data:`FIGURES`; a
run whose simulator broke down has `spec`, `passed`, `errors` and `broken` only. Figures that do not apply are null or
left out.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hw.release import release
from sim.errors import UsageError
from sim.experiments.spec import Spec
from sim.files import replaced
from sim.simulator.checkout import commit

SCHEMA = 2
"""Number of the schema; 1 was a bare list of scenarios, or of points, without a word on where they came from."""

Result = dict[str, Any]
"""The figures of one experiment, plain values."""


class Figure(NamedTuple):
    """`unit` ("" for none) and meaning of a figure. A part of its name that is `*` stands for any word."""

    unit: str
    text: str


_CYCLES, _SECTORS, _SECONDS = "cycles of 1 ns", "sectors of 32 B", "s"

FIGURES = {
    "spec": Figure("", "what was run: the fields of sim.experiments.spec.Spec"),
    "passed": Figure("", "whether every element, counter and checker is right"),
    "errors": Figure("", "what is not, a sentence each"),
    "broken": Figure("", "what kept the run from having any other figure: simulator or machine"),
    "mismatches": Figure("elements", "elements that differ from the golden model; null without data"),
    "closed_forms.*.expected": Figure(_SECTORS, "number per GPU that is known beforehand; triggers in WF tiles"),
    "closed_forms.*.counted": Figure(_SECTORS, "what the counters say; of several GPUs one that is wrong, if any"),
    "closed_forms.*.matches": Figure("", "whether all GPUs counted what is expected"),
    "cycles": Figure(_CYCLES, "start of the GEMM to the end of the last phase"),
    "gemm_cycles": Figure(_CYCLES, "length of the GEMM"),
    "rs_cycles": Figure(_CYCLES, "length of the reduce-scatter; overlapped, it begins with the GEMM"),
    "ag_cycles": Figure(_CYCLES, "length of the all-gather"),
    "spans.*": Figure(_CYCLES, "[begin, end] of a phase: first begin, last end of all GPUs"),
    "gemm_alone_cycles": Figure(_CYCLES, "the GEMM by itself, simulated (array generator, option alone)"),
    "rs_alone_cycles": Figure(_CYCLES, "N - 1 steps of a chunk by link bandwidth and latency (array generator)"),
    "speedup": Figure("", "S = (gemm_alone + rs_alone) / cycles"),
    "ideal_speedup": Figure("", "(gemm_alone + rs_alone) / max(gemm_alone, rs_alone)"),
    "percent_of_ideal": Figure("%", "100 (speedup - 1) / (ideal_speedup - 1); null where nothing is to be gained"),
    "ect_cycles": Figure(_CYCLES, "effective communication time: cycles - gemm_alone_cycles"),
    "overlap_efficiency": Figure("", "1 - ECT / ECT of running one after the other; null where that is 0"),
    "analytic_gemm_cycles": Figure(_CYCLES, "the GEMM by machine PAPER's formula (full size)"),
    "calibrated": Figure("", "whether the GEMM's lead time was calibrated to that formula (full size)"),
    "rs_wire_cycles": Figure(_CYCLES, "N - 1 chunks over the link (full size)"),
    "dram_sectors.*.*": Figure(_SECTORS, "by traffic class and access, per GPU: the mean of the nodes of a ring"),
    "link_utilisation": Figure("", "share of rs_cycles in which the outgoing link moves bytes, mean of the GPUs"),
    "link_utilisation_by_gpu": Figure("", "share of each GPU's cycles in which its busiest link moves flits"),
    "link_errors.flipped_bits": Figure("bits", "bits that arrived wrong on all links"),
    "link_errors.damaged": Figure("", "flits and state messages that were thrown away for a wrong CRC"),
    "link_errors.replays": Figure("", "times that a port sent again what was not acknowledged"),
    "tracker.accesses": Figure(_SECTORS, "updates that the Tracker counted; of this and the next, the worst GPU's"),
    "tracker.hits": Figure("", "accesses that found their counter, the fewest"),
    "tracker.misses": Figure("", "accesses that did not, the most"),
    "tracker.evictions": Figure("", "counters written to the memory-backed table"),
    "tracker.refetches": Figure("", "counters fetched from it again"),
    "tracker.stall_cycles": Figure(_CYCLES, "cycles in which a commit waited for the Tracker"),
    "tracker.peak_occupancy": Figure("entries", "most counters held at once"),
    "tracker.triggers": Figure("WF tiles", "tiles that became complete"),
    "arbiter.held_compute": Figure(_CYCLES, "cycles in which a compute request was held back; the worst GPU's"),
    "arbiter.held_communication": Figure(_CYCLES, "the same of communication"),
    "arbiter.forced": Figure("requests", "let through by the starvation limit alone"),
    "arbiter.communication_wait_peak": Figure(
        _CYCLES, "most cycles in which one communication request could have been taken and was not"
    ),
    "arbiter.threshold": Figure("", "threshold in force on rank 0 when the GEMM ends; null without MCA"),
    "trigger_latency": Figure(
        _CYCLES, "longest time from a block's last commit to its first DMA read; null where DMA sends none"
    ),
    "read_latency": Figure("", "null where the compute units read nothing"),
    "read_latency.reads": Figure("", "reads of the compute units of all simulated GPUs"),
    "read_latency.*": Figure(
        _CYCLES, "from a read's being taken to its data: percentiles (nearest rank), and the longest"
    ),
    "occupancy_mean": Figure("requests", "in a channel's DRAM queue, over all cycles"),
    "occupancy_peak": Figure("requests", "the same, the most"),
    "totals.*": Figure("", "hardware counters summed over all GPUs: Tracker, cycles held back, DRAM sectors"),
    "counters": Figure("", "every hardware counter of every GPU (hw.registers.counter_addresses.counters)"),
    "timeline.window": Figure(_CYCLES, "length of a window of rank 0's timeline"),
    "timeline.*": Figure(
        _SECTORS, "DRAM sectors of PHASE_ACCESS by window; occupancy: requests in a channel's DRAM queue, the mean"
    ),
    "seconds.build": Figure(_SECONDS, "wall time of building the simulator, 0 when it was there"),
    "seconds.prepare": Figure(_SECONDS, "wall time before the simulation"),
    "seconds.simulate": Figure(_SECONDS, "wall time from reset to the dump of the memories"),
    "seconds.simulate_processor": Figure(_SECONDS, "processor time of the same, of all threads"),
    "seconds.check": Figure(_SECONDS, "wall time after the simulation"),
    "seconds.total": Figure(_SECONDS, "wall time without the build"),
    "seconds.python": Figure(_SECONDS, "processor time of everything but build and simulate"),
    "seconds.python_share": Figure("", "its part of the processor time of all but the build"),
    "kilocycles_per_second": Figure("kcycles/s", "cycles, of the GEMM alone too, over seconds.simulate"),
    "kilocycles_per_processor_second": Figure("kcycles/s", "the same over seconds.simulate_processor"),
}
"""Name -> unit and meaning. The paper's sections 5.3 and 6 define speedup, ideal and ECT."""
WHOLE = ("spec", "errors", "counters")
"""Figures whose parts have no line of their own."""


def described(name: str) -> str | None:
    """The entry of :data:`FIGURES` that says what figure `name`, its parts joined by dots, is; None without one."""
    if name in FIGURES:
        return name
    parts = name.split(".")
    if parts[0] in WHOLE:
        return parts[0]
    for pattern in FIGURES:
        words = pattern.split(".")
        if len(words) == len(parts) and all(word in ("*", part) for word, part in zip(words, parts, strict=True)):
            return pattern
    return None


def flat(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure of `result` under its name, parts joined by dots; lists stay whole."""
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def broken_down(spec: Spec, error: str, machine: bool) -> Result:
    """The result of a run whose simulator, or `machine`, broke down."""
    return {
        "spec": spec.to_json(),
        "passed": False,
        "errors": [error],
        "broken": "machine" if machine else "simulator",
    }


def exit_code(results: Sequence[Result]) -> int:
    """0: all are right; 3: the machine failed under one; 1: one is wrong."""
    if any(result.get("broken") == "machine" for result in results):
        return 3
    return 0 if all(result["passed"] for result in results) else 1


@cache
def provenance() -> dict[str, Any]:
    """Where results of this process come from: all of a file but `results`."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "schema": SCHEMA,
        "commit": commit(),
        "version": release(),
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "units": {name: figure.unit for name, figure in FIGURES.items() if figure.unit},
    }


def as_text(results: Sequence[Result], **others: Any) -> str:
    """The JSON of a file of `results`; `others` are further entries beside them."""
    return json.dumps(provenance() | others | {"results": list(results)}, indent=1) + "\n"


def write_results(path: Path, results: Sequence[Result], **others: Any) -> None:
    """Write :func:`as_text`, all of it or nothing."""
    with replaced(path) as draft:
        draft.write_text(as_text(results, **others))


def read_results(path: Path) -> list[Result]:
    """The results in `path`. Raises :class:`sim.errors.UsageError` when it is no file of them."""
    try:
        entry = json.loads(path.read_text())
        if entry["schema"] != SCHEMA:
            raise UsageError(f"{path} has schema {entry['schema']}, not {SCHEMA}")
        results: list[Result] = entry["results"]
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no file of results") from error
    return results
