"""The register program of a simulation: what its host (`sim/models/host.h`) does, phase by phase."""

import itertools
from collections.abc import Sequence

from hw.config import Configuration
from hw.registers.counter_addresses import counters
from hw.registers.map import find_register
from sim.errors import SimulationError
from sim.host.register_writes import Write, arm_writes, register_write

END, WRITE, READ, POLL_SET, GEMM_WORD, POLL_CLEAR = range(6)
"""Operations of the host."""


def command(operation: int, rank: int, address: int, value: int) -> int:
    """A command of the host: `operation` on the GPU `rank`."""
    return operation << 60 | rank << 50 | address << 32 | value & 0xFFFF_FFFF


def counter_registers(config: Configuration) -> dict[str, int]:
    """Addresses of what is read after a run: the low word of every counter, and the registers that tell of faults."""
    names = {counter.name: f"{counter.name}_low" for counter in counters(config.links, config.protects_memories)}
    names |= {name: name for name in ("fault_record", "fault_count", "abort_cause", "status")}
    return {name: find_register(config, register).address for name, register in names.items()}


def host_program(
    config: Configuration,
    gemm: list[dict[int, int]],
    before: list[list[Write]],
    setup: list[list[Write]],
    late: list[int],
    doorbells: Sequence[Sequence[Sequence[Write]]] = (),
) -> tuple[dict[str, int], list[int]]:
    """Where each phase begins, and the commands for `sim/models/host.h`.

    By rank: `gemm`, words of its GEMM engine by number (none for an engine that runs plans); `before`, writes for the
    GEMM alone; `setup`, writes for the collective; `doorbells`, writes of each ring. Ranks in `late` are armed in a
    phase of their own. Doorbells are rung in another, one of each rank after the other, then the next one of each; the
    host does not wait for what one starts, but before it rings another on the same rank.
    """

    status = find_register(config, "status")
    ranks = range(len(gemm))
    registers = counter_registers(config).values()
    idle, armed, ringing = (status.field(name).mask for name in ("idle", "armed", "doorbell"))

    def arm(chosen: list[int]) -> list[int]:
        return [
            # Tags of the simulated memory start as 0, and nothing is reset in mid-run.
            *(command(WRITE, rank, *write) for rank in chosen for write in arm_writes(config, initialised=True)),
            *(command(POLL_SET, rank, status.address, armed) for rank in chosen),
        ]

    def ring(rank: int, writes: Sequence[Write]) -> list[int]:
        return [command(POLL_CLEAR, rank, status.address, ringing), *(command(WRITE, rank, *write) for write in writes)]

    turns = itertools.zip_longest(*doorbells)
    rings = [ring(rank, writes) for turn in turns for rank, writes in enumerate(turn) if writes is not None]

    phases = {
        "before": [
            # All were reset together, so nothing is under way on a link.
            *(command(WRITE, rank, *register_write(config, "link_silence", link_silence=1)) for rank in ranks),
            *(command(GEMM_WORD, rank, *word) for rank in ranks for word in gemm[rank].items()),
            *(command(WRITE, rank, *write) for rank in ranks for write in before[rank]),
        ],
        "settle": (settle := [command(POLL_SET, rank, status.address, idle) for rank in ranks]),
        # A node may be granted to send before its neighbour is armed: the grant, not the order here, holds it back.
        "setup": [
            *(command(WRITE, rank, *write) for rank in ranks for write in setup[rank]),
            *arm([rank for rank in ranks if rank not in late]),
        ],
        "late": arm(late),
        "doorbells": [item for writes in rings for item in writes],
        "drain": settle,
        "counters": [command(READ, rank, address, 0) for rank in ranks for address in registers],
    }
    starts: dict[str, int] = {}
    program: list[int] = []
    for name, commands in phases.items():
        starts[name] = len(program)
        program += [*commands, END]
    if len(program) > 1 << 16:
        raise SimulationError(f"the register program has {len(program)} commands, more than 65536")
    return starts, program
