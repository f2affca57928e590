"""Is the run of a program right? What its ranks hold, what each of them counted, what its GEMM read, and which gate it
waits for if it did not end."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hw.config import SECTOR_BYTES
from sim.collectives import inputs
from sim.collectives.closed_forms import in_sectors
from sim.collectives.cut import Cut
from sim.collectives.program import Access, Part, Traffic
from sim.experiments.program_model import ProgramWork
from sim.experiments.spec import Spec
from sim.golden import replay
from sim.golden.arithmetic import pattern_type, reduce
from sim.golden.replay import LOGGED, Command, replay_log
from sim.host.address_space import ARRAY_BASE
from sim.simulator.memory_image import from_sectors, stacked, to_sectors

Counted = dict[str, int]


def golden(work: ProgramWork, logs: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """What each rank must hold of what is read back, shape (gpus, elements): the result, and what its GEMM stored.

    Where that depends on the order in which addends meet, it is what the column commands in `logs` give in theirs.
    """
    program = work.program
    if logs is not None:
        memories = replayed(work, logs)
        return np.stack(
            [
                np.concatenate([memory[part].ravel() for part in program.result(rank)])
                for rank, memory in enumerate(memories)
            ]
        )
    result = np.asarray(program.golden(list(work.inputs))).reshape(program.gpus, -1)
    stored = [
        [(part, piece) for (_, part), piece in sorted(of_rank.items())] + list(work.sent_to(rank).items())
        for rank, of_rank in enumerate(work.outputs)
    ]
    return stacked(
        [
            np.concatenate([result[rank], *(_on_what_lay(work, rank, part, piece).ravel() for part, piece in pieces)])
            for rank, pieces in enumerate(stored)
        ]
    )


def _on_what_lay(work: ProgramWork, rank: int, part: Part, stored: np.ndarray) -> np.ndarray:
    """What `part` holds after `stored`, added to what lay there if that is what its region does."""
    lay = work.given[rank].lies.get(part)
    array = work.program.array(part.array)
    return stored if lay is None else reduce(array.op, array.dtype, lay.ravel(), stored.ravel())


def replayed(work: ProgramWork, logs: Sequence[np.ndarray]) -> list[dict[Part, np.ndarray]]:
    """By rank what every part of its memory holds after the commands of its log."""
    kind = np.dtype(pattern_type(work.program.arrays[0].dtype))
    answer = []
    for rank, log in enumerate(logs):
        sectors = replay_log(log, work.program.arrays[0].dtype, np.zeros((_end(work, log), SECTOR_BYTES), np.uint8))
        memory = {}
        for region in work.program.regions(rank):
            first, tiling = work.place(region.part)
            memory[region.part] = from_sectors(
                sectors[first : first + tiling.sectors], tiling.rows, tiling.columns, kind
            )
        answer.append(memory)
    return answer


def _end(work: ProgramWork, log: np.ndarray) -> int:
    """Sectors of all arrays, or more if more were written."""
    ends = [laid.chunk(len(laid.numbers)) - ARRAY_BASE for laid in work.laid.values()]
    return max(*ends, int(log["sector"].max(initial=0)) + 1)


def wrong_operands(work: ProgramWork, logs: Sequence[np.ndarray], cuts: Mapping[str, Cut]) -> Iterator[str]:
    """A sentence for each chunk in which other operands met than its addends, once each, in whatever order."""
    program, memories = work.program, _of_all(work, replayed(work, logs))
    for rank, log in enumerate(logs):
        order = np.argsort(log["sector"], kind="stable")
        bounds = np.searchsorted(log["sector"][order], np.arange(_end(work, log) + 1))
        for region in program.regions(rank):
            if not region.updates or region.store is not Access.UPDATE:
                continue
            first, tiling = work.place(region.part)
            addends = [
                to_sectors(piece, tiling.pitch_sectors)
                for piece in inputs.addends(program, work.inputs, memories, rank, region.part, cuts)
            ]
            touched = program.array(region.array).first_touch
            for sector in range(tiling.sectors):
                lines = log[order[bounds[first + sector] : bounds[first + sector + 1]]]
                commands = [
                    Command(
                        LOGGED[line["operation"]], line["operand"].tobytes(), int(line["mask"]), bool(line["first"])
                    )
                    for line in lines
                ]
                expected = [piece[sector].tobytes() for piece in addends]
                found = replay.wrong_operands(commands, expected, touched)
                if found:
                    yield f"in {region.part} of rank {rank}, sector {sector}, {found}"
                    break


def _of_all(work: ProgramWork, memories: list[dict[Part, np.ndarray]]) -> list[dict[Part, np.ndarray]]:
    """What is in the memories of all ranks, of which those of one alone are those of one that stands for all."""
    if len(memories) == work.program.gpus:
        return memories
    chunks = {array.name: array.chunks for array in work.program.arrays}
    return [
        {Part(part.array, (part.chunk + rank) % chunks[part.array]): held for part, held in memories[0].items()}
        for rank in range(work.program.gpus)
    ]


def closed_forms(spec: Spec, work: ProgramWork) -> list[Counted]:
    """By rank the sectors, blocks, tiles and launch events that must be counted."""
    return [_expected(spec, work, rank) for rank in range(work.nodes)]


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
        if wrong and work.gathered:
            place = wrong[0]["first_wrong"]
            part = next(part for part in reversed(work.compared) if place >= work.laid[part.array].chunk(part.chunk))
            laid = work.laid[part.array]
            yield (
                f"the GEMM of rank {rank} read {sum(seen['wrong'] for seen in wrong)} sectors of "
                f"{' and '.join(work.gathered)} that are not what their owners wrote, the first in {part}, row "
                f"{(place - laid.chunk(part.chunk)) // laid.tiling.pitch_sectors}"
            )


def closed_gates(work: ProgramWork, statuses: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each rank whose first kernel waits for a gate."""
    for rank, status in enumerate(statuses):
        waiting = status["waiting"]
        if waiting["waits"]:
            part, row = work.gates[waiting["gate"]]
            yield (
                f"kernel {work.program.gemm(rank).name} of rank {rank} waits for the gate of {part}, tile row {row}, "
                f"which {waiting['launches']} of {waiting['needed']} launch events have opened"
            )
