"""Is the result of a run right? Compares every element with the golden model, the counters with the closed forms, and
asks the checkers of the simulation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.abort import AbortCause
from hw.config import SECTOR_BYTES, Configuration
from sim.collectives.program import Traffic
from sim.collectives.ring_all_gather import ring_all_gather
from sim.experiments import program_check
from sim.experiments.array_model import ArrayWork
from sim.experiments.job import program_of
from sim.experiments.kernel_model import KernelWork
from sim.experiments.program_model import ProgramWork
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec
from sim.experiments.spec_values import ARRAY_COLLECTIVES
from sim.experiments.variants import ALL_GATHER, GEMM, REDUCE_SCATTER
from sim.golden.operands import operand_elements
from sim.workloads.sublayer import SubLayer

Work = ArrayWork | KernelWork | ProgramWork
"""What the GPUs do, by compute model."""


@dataclass(frozen=True)
class Checked:
    """`errors` is empty when everything is as it must be; each entry is one sentence. `mismatches`: wrong elements,
    None without data; `closed_forms`: name -> {expected, counted, matches}."""

    errors: tuple[str, ...]
    mismatches: int | None
    closed_forms: dict[str, dict[str, Any]]


def faults(spec: Spec, outcome: Outcome) -> list[str]:
    """What the checkers of the simulation saw, one sentence each."""
    answer = [
        f"the watchdog of rank {rank} ended the run: nothing had moved there for {spec.watchdog} cycles"
        for rank, status in enumerate(outcome.ranks)
        if AbortCause.from_bits(status["registers"]["abort_cause"] & (1 << AbortCause.size) - 1)["watchdog"]
    ]
    answer += [] if outcome.finished else ["the run did not complete"]
    answer += ["a packet came to the switch that was for no GPU"] if outcome.switch_stray else []
    for rank, status in enumerate(outcome.ranks):
        registers = status["registers"]
        for name, text in {
            "violation": f"broke DRAM timing rule {status['violation_rule']}",
            "stray": "wrote outside the modelled DRAM",
            "read_error": "had a read refused",
        }.items():
            if status[name]:
                answer.append(f"rank {rank} {text}")
        if registers["fault_count"]:
            answer.append(
                f"rank {rank} recorded {registers['fault_count']} faults, the first {registers['fault_record']:#x}"
            )
    return answer


def golden(spec: Spec, work: Work, logs: list[np.ndarray] | None = None) -> np.ndarray:
    """What each rank must hold of its result, shape (gpus, rows, columns), as bit patterns; of a program's arrays of
    different widths (gpus, elements)."""
    if isinstance(work, ProgramWork):
        return program_check.golden(work, logs)
    tiling = work.tiling if isinstance(work, ArrayWork) else work.layer.tiling
    stored = work.partials if isinstance(work, ArrayWork) else operands(work.layer, spec.seed)
    program = program_of(spec)
    chunks = stored.reshape(spec.gpus, spec.gpus, -1)
    inputs = [chunks[rank, sorted(program.gemm(rank).chunks)].ravel() for rank in range(spec.gpus)]
    return np.asarray(program.golden(np.stack(inputs))).reshape(spec.gpus, -1, tiling.columns)


def operands(layer: SubLayer, seed: int) -> np.ndarray:
    """What the GEMMs of full-size kernels store, shape (gpus, elements), as bit patterns."""
    tiling = layer.tiling
    inputs = []
    for rank in range(layer.gpus):
        elements = operand_elements(seed, rank, layer.gpus * tiling.sectors)
        rows = elements.reshape(layer.gpus, tiling.rows, -1)[:, :, : tiling.columns]
        inputs.append(rows.reshape(-1))
    return np.stack(inputs)


def closed_forms(spec: Spec, work: ArrayWork | KernelWork) -> dict[str, int]:
    """Sectors per GPU that must be counted, and other numbers that are known, by the closed forms of the programs.

    `gemm_read`: what the last-level cache leaves; `output_store`, `output_update`: writes of the output by GEMM and
    reduce-scatter; `sent_read`: what the DMA engine reads; `arrived`: sectors from the link in all; `triggers`: WF
    tiles completed. What zeroing stores comes before.
    """
    program = program_of(spec)
    reduction = program.closed_forms
    if isinstance(work, ArrayWork):
        tiling, reduced = work.tiling, program.moves()
        row = (tiling.tiles_across - 1) * (tiling.body_bytes // SECTOR_BYTES) + -(-tiling.right_bytes // SECTOR_BYTES)
        chunk = tiling.rows * row
        if spec.collective != ARRAY_COLLECTIVES[0]:
            return {
                "output_store": reduced.local_stores * chunk,
                "output_update": reduced.updates * chunk,
                "ag_store": reduced.arriving_stores * chunk,
                "sent_read": reduced.reads * chunk,
                "triggers": reduced.triggers * tiling.wf_tiles,
            }
        return {
            "output_store": reduced.stores * chunk,
            "output_update": reduced.updates * chunk,
            "rs_read": reduced.reads * chunk,
            "triggers": reduced.triggers * tiling.wf_tiles,
        }
    layer, kernels = work.layer, spec.variant.kernels
    chunk = layer.chunk_sectors
    if spec.variant.overlapped:
        reduced = program.moves()
    elif spec.variant.near_memory:
        reduced = reduction["near-memory kernel"]
    else:
        reduced = reduction["kernels"] if REDUCE_SCATTER in kernels else Traffic(local_stores=layer.gpus)
    gathered = ring_all_gather(layer.gpus).closed_forms["kernels"] if ALL_GATHER in kernels else Traffic()
    return {
        "gemm_read": work.kernels[0][0].reads if GEMM in kernels else 0,
        "output_store": reduced.stores * chunk,
        "output_update": reduced.updates * chunk,
        "rs_read": reduced.reads * chunk,
        "ag_read": gathered.reads * chunk,
        "ag_store": gathered.stores * chunk,
        "arrived": (reduced.arriving + gathered.arriving) * chunk,
        "triggers": reduced.triggers * layer.tiling.wf_tiles,
    }


def _counted(status: dict[str, Any]) -> dict[str, int]:
    registers = status["registers"]
    return {
        "gemm_read": registers["sectors_gemm_read"],
        "output_store": registers["sectors_gemm_store"] + registers["sectors_rs_store"],
        "output_update": registers["sectors_gemm_update"] + registers["sectors_rs_update"],
        "rs_read": registers["sectors_rs_read"],
        "ag_read": registers["sectors_ag_read"],
        "ag_store": registers["sectors_ag_store"],
        "sent_read": registers["dma_reads"],
        "arrived": max(status["spans"]["arrived"]),
        "triggers": registers["tracker_triggers"],
    }


def compare_closed_forms(expected: dict[str, int], statuses: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every known number beside the counted one; of several ranks one that is wrong, if there is any."""
    return _beside([expected] * len(statuses), [_counted(status) for status in statuses])


def _beside(expected: list[dict[str, int]], counted: list[dict[str, int]]) -> dict[str, dict[str, Any]]:
    """By rank what is known and what was counted; of several ranks one that is wrong, if there is any."""
    answer = {}
    for name in expected[0]:
        pairs = [(known[name], found[name]) for known, found in zip(expected, counted, strict=True)]
        known, found = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
        answer[name] = {"expected": known, "counted": found, "matches": known == found}
    return answer


def _overflow_errors(config: Configuration, outcome: Outcome) -> list[str]:
    """What speaks against every rank's Tracker having been full, and having evicted counters to make room."""
    entries = config.tracker_sets * config.tracker_ways
    errors = []
    for rank, status in enumerate(outcome.ranks):
        peak, evictions = (status["registers"][f"tracker_{name}"] for name in ("live_peak", "evictions"))
        if peak != entries or not evictions:
            errors.append(f"rank {rank} has held {peak} of {entries} Tracker entries and evicted {evictions}")
    return errors


def _waiting_errors(spec: Spec, outcome: Outcome) -> list[str]:
    """Communication that was passed over for longer than the arbiter's limit."""
    waited = max(status["communication_wait_peak"] for status in outcome.ranks)
    if spec.variant.overlapped and 0 < spec.starvation_limit < waited:
        return [f"communication was passed over for {waited} cycles, the limit is {spec.starvation_limit}"]
    return []


def check(spec: Spec, work: Work, config: Configuration, outcome: Outcome) -> Checked:
    """Compare every element, every rank's counters, and what the checkers saw of the run on hardware `config`.

    NaNs are compared bit for bit too: the hardware's NaN is the canonical one, and so is the golden's.
    """
    errors = faults(spec, outcome)
    mismatches = None
    if outcome.reduced is not None:
        right = golden(spec, work, outcome.logs)
        wrong = np.argwhere(outcome.reduced.reshape(right.shape) != right)
        mismatches = len(wrong)
        if mismatches:
            rank, *place = map(int, wrong[0])
            where = f"row {place[0]}, column {place[1]}" if len(place) == 2 else f"element {place[0]}"
            found, wanted = outcome.reduced.reshape(right.shape)[rank, *place], right[rank, *place]
            errors.append(
                f"{mismatches} of {right.size} elements differ, the first on rank {rank} at {where}: {found:#x} "
                f"instead of {wanted:#x}"
            )
    if isinstance(work, ProgramWork):
        errors += program_check.wrong_reads(work, outcome.ranks)
        if outcome.logs is not None:
            errors += program_check.wrong_operands(work, outcome.logs, work.cuts(spec.dma_block or spec.wfs))
        errors += [] if outcome.finished else program_check.closed_gates(work, outcome.ranks)
        counted = [program_check.counted(status) for status in outcome.ranks]
        forms = _beside(program_check.closed_forms(spec, work), counted)
    else:
        forms = compare_closed_forms(closed_forms(spec, work), outcome.ranks)
    if outcome.finished:
        errors += [
            f"{name} is {form['counted']}, not {form['expected']}"
            for name, form in forms.items()
            if not form["matches"]
        ]
    errors += _waiting_errors(spec, outcome)
    if spec.overflow:
        errors += _overflow_errors(config, outcome)
    return Checked(tuple(errors), mismatches, forms)
