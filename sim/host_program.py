"""The register program of a simulation: what its host (`axi_sequencer.sv`) does, and reading what came of it."""

import json
from pathlib import Path
from typing import Any

from amaranth.lib import data

from hw.config import Configuration
from hw.registers import counters, find_register
from sim.driver import Write, arm_writes
from sim.gemm import GemmWord
from sim.gpu import GpuStatus
from tb.runner import SimulationError


def counter_registers(config: Configuration) -> dict[str, int]:
    """Addresses of what is read after a run: the low word of every counter, and the fault registers."""
    names = {counter.name: f"{counter.name}_low" for counter in counters()}
    names |= {name: name for name in ("fault_record", "fault_count", "status")}
    return {name: find_register(config, register).address for name, register in names.items()}


def host_program(
    config: Configuration,
    gemm: list[dict[str, int]],
    before: list[list[Write]],
    setup: list[list[Write]],
    late: list[int],
) -> tuple[dict[str, int], list[int]]:
    """Where each phase begins, and the commands for `axi_sequencer.sv`.

    By rank: `gemm`, words of its GEMM engine (none for an engine that runs plans); `before`, writes for the GEMM alone;
    `setup`, writes for the collective. Ranks in `late` are armed in a phase of their own.
    """

    def command(operation: int, rank: int, address: int, value: int) -> int:
        return operation << 60 | rank << 50 | address << 32 | value & 0xFFFF_FFFF

    status = find_register(config, "status")
    ranks = range(len(gemm))
    registers = counter_registers(config).values()
    idle, armed = (status.field(name).mask for name in ("idle", "armed"))

    def arm(chosen: list[int]) -> list[int]:
        return [
            # Tags of the simulated memory start as 0, and nothing is reset in mid-run.
            *(command(1, rank, *write) for rank in chosen for write in arm_writes(config, initialised=True)),
            *(command(3, rank, status.address, armed) for rank in chosen),
        ]

    phases = {
        "before": [
            *(command(4, rank, GemmWord[name].value, value) for rank in ranks for name, value in gemm[rank].items()),
            *(command(1, rank, *write) for rank in ranks for write in before[rank]),
        ],
        "settle": (settle := [command(3, rank, status.address, idle) for rank in ranks]),
        # A node may be granted to send before its neighbour is armed: the grant, not the order here, holds it back.
        "setup": [
            *(command(1, rank, *write) for rank in ranks for write in setup[rank]),
            *arm([rank for rank in ranks if rank not in late]),
        ],
        "late": arm(late),
        "drain": settle,
        "counters": [command(2, rank, address, 0) for rank in ranks for address in registers],
    }
    starts, program = {}, []
    for name, commands in phases.items():
        starts[name] = len(program)
        program += [*commands, 0]
    if len(program) > 1 << 16:
        raise SimulationError(f"the register program has {len(program)} commands, more than 65536")
    return starts, program


def read_result(folder: Path, config: Configuration) -> dict[str, Any]:
    """What :mod:`sim.ring_session` left in `folder`: `ranks` by name (:data:`sim.gpu.GpuStatus`), each with the
    `registers` that the simulation's host read; `alone`, cycles of each GEMM by itself; `finished`; `seconds` by stage,
    and `processor_seconds`: what all stages took of the processor."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    result["alone"] = [plain(GpuStatus.from_bits(bits))["gemm_cycles"] for bits in result["alone"]]
    result["ranks"] = ranks = [plain(GpuStatus.from_bits(bits)) for bits in result["ranks"]]
    names = {address: name for name, address in counter_registers(config).items()}
    for status in ranks:
        status["registers"] = {}
    for line in (folder / "answers.txt").read_text().splitlines():
        rank, address, value = map(int, line.split())
        ranks[rank]["registers"][names[address]] = value
    return result


def plain(value: Any) -> Any:
    """A constant as numbers, lists and dictionaries, after its layout."""
    if not isinstance(value, data.Const):
        return int(value)
    layout = value.shape()
    if isinstance(layout, data.ArrayLayout):
        return [plain(value[index]) for index in range(layout.length)]
    return {name: plain(value[name]) for name, _ in layout}
