"""Is the run of a program right? What its ranks hold, what each of them counted, what its GEMM read, and which gate it
waits for if it did not end."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.collectives.closed_forms import in_sectors
from sim.collectives.program import Traffic
from sim.experiments.program_model import ProgramWork
from sim.experiments.spec import Spec

Counted = dict[str, int]


def golden(work: ProgramWork) -> np.ndarray:
    """What each rank must hold of what is read back, shape (gpus, elements): the result, and what its GEMM stored.

    Raises :class:`ValueError` when it depends on the order in which addends meet.
    """
    program = work.program
    result = np.asarray(program.golden(np.stack(work.inputs))).reshape(program.gpus, -1)
    stored = [[piece.ravel() for _, piece in sorted(of_rank.items())] for of_rank in work.outputs]
    return np.stack([np.concatenate([result[rank], *stored[rank]]) for rank in range(program.gpus)])


def closed_forms(spec: Spec, work: ProgramWork) -> list[Counted]:
    """By rank the sectors, blocks, tiles and launch events that must be counted."""
    return [_expected(spec, work, rank) for rank in range(work.program.gpus)]


def _expected(spec: Spec, work: ProgramWork, rank: int) -> Counted:
    program, cuts = work.program, work.cuts(spec.dma_block or spec.wfs)
    arriving = {"rs": Traffic(), "ag": Traffic()}
    total = Traffic()
    for name, moved in program.closed_form(rank).items():
        sectors = in_sectors({name: moved}, cuts)
        total += sectors
        if sectors.arriving:
            arriving[program.array(name).traffic] += sectors
    launched = [region for region in program.regions(rank) if region.launch]
    return {
        "gemm_read": sum(plan.reads for plan in work.kernels[rank]),
        "gathered_read": sum(plan.gathered_reads for plan in work.kernels[rank]),
        "output_store": total.local_stores,
        "output_update": total.local_updates,
        **{f"{name}_store": moved.arriving_stores for name, moved in arriving.items()},
        **{f"{name}_update": moved.arriving_updates for name, moved in arriving.items()},
        "sent_read": total.reads,
        "blocks": total.blocks,
        "triggers": total.triggers,
        "launches": sum(cuts[region.array].blocks for region in launched),
    }


def counted(status: dict[str, Any]) -> Counted:
    """The same of a rank, as it was counted."""
    registers = status["registers"]
    return {
        "gemm_read": registers["sectors_gemm_read"],
        "gathered_read": sum(seen["reads"] for seen in status["gathered"]),
        "output_store": registers["sectors_gemm_store"],
        "output_update": registers["sectors_gemm_update"],
        **{
            f"{name}_{access}": registers[f"sectors_{name}_{access}"]
            for access in ("store", "update")
            for name in ("rs", "ag")
        },
        "sent_read": registers["dma_reads"],
        "blocks": registers["dma_blocks"],
        "triggers": registers["tracker_triggers"],
        "launches": status["launches"],
    }


def wrong_reads(work: ProgramWork, statuses: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each rank whose GEMM read something else than the owner had written."""
    for rank, status in enumerate(statuses):
        wrong = [seen for seen in status["gathered"] if seen["wrong"]]
        if wrong and work.gathered is not None:
            laid = work.laid[work.gathered]
            chunk, sector = divmod(wrong[0]["first_wrong"] - laid.base, laid.tiling.sectors)
            yield (
                f"the GEMM of rank {rank} read {sum(seen['wrong'] for seen in wrong)} sectors of {work.gathered} that "
                f"are not what their owners wrote, the first in {work.gathered}[{chunk}], row "
                f"{sector // laid.tiling.pitch_sectors}"
            )


def closed_gates(work: ProgramWork, statuses: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each rank whose GEMM waits for a gate."""
    for rank, status in enumerate(statuses):
        waiting = status["waiting"]
        if waiting["waits"]:
            part, row = work.gates[waiting["gate"]]
            yield (
                f"the GEMM of rank {rank} waits for the gate of {part}, tile row {row}, which {waiting['launches']} of "
                f"{waiting['needed']} launch events have opened"
            )
