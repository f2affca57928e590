"""The run of compute model `program`: what the simulator is given, and the files that it reads."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from hw.config import SECTOR_BYTES, Configuration
from sim.collectives.check import depends_on_order
from sim.collectives.compiler import NodeProgram, backing_sectors
from sim.collectives.program import Array, ProgramError
from sim.experiments.array_model import STORAGE_SECTORS
from sim.experiments.job import (
    Build,
    Job,
    behind_arrays,
    channel_sectors,
    compiled,
    fault_writes,
    forced_idle,
    sampling_window,
    set_up,
    time_limit,
)
from sim.experiments.program_data import awaited
from sim.experiments.program_kernels import data_sets, input_sectors, span_of
from sim.experiments.program_model import ProgramWork, node_of
from sim.experiments.spec import Spec
from sim.experiments.variants import POLICIES, THRESHOLDS
from sim.golden.arithmetic import pattern_type
from sim.host.address_space import ARRAY_BASE, input_base
from sim.host.program import host_program
from sim.host.register_writes import arbiter_writes, slow_link_writes, window_write
from sim.simulator.memory_image import scatter_channels, to_sectors, write_hex, write_hex_at
from sim.topologies.hosted import Hosted
from sim.topologies.known import topology
from sim.workloads.kernel_plans import KernelPlan, plan_texts
from sim.workloads.program_plans import Laid, gate_text

MACHINE_STORAGE, MACHINE_SOURCES = 1 << 19, 1 << 20
"""Of a slice of a machine: sectors of a channel's model and of arrays to store, or more. One build then serves all
shapes of a system."""


def _busy_ports(nodes: Sequence[NodeProgram], links: int) -> int:
    """Ports by which a rank sends, of `links` it has: one for each peer, but on a switch."""
    peers = (len({send.peer for item in node.ranges for send in item.region.sends}) for node in nodes)
    return min(links, max(1, *peers))


def program_job(spec: Spec, work: ProgramWork) -> Job:
    """The run of `work`."""
    program, gpus, nodes = work.program, spec.gpus, work.nodes
    config = node_of(spec, program, work.tilings)
    rates = link_rates(spec, config)
    slowest = min((rate for *_, rate in rates), default=0.0)
    span = span_of(work.laid, program)
    backing = behind_arrays(span)
    wiring = topology(spec.topology, gpus)
    inputs = (input_base(config.channels), input_sectors(spec, config, program, work.laid))
    ranks = compiled(spec, program, config, wiring, work.laid, nodes, inputs, backing)
    before = [
        *arbiter_writes(
            config,
            POLICIES[spec.variant.policy],
            THRESHOLDS[spec.variant.threshold],
            spec.starvation_limit,
            ports=_busy_ports(ranks, config.links),
        ),
        window_write(config, ARRAY_BASE),
        *fault_writes(spec, config),
    ]
    late = [spec.late_rank] if spec.late_cycles else []
    doorbells = [rank.doorbells for rank in ranks]
    setup = [[*slow_link_writes(config, slowest), *writes] for writes in set_up(config, ranks)]
    phases, commands = host_program(config, [{}] * nodes, [before] * nodes, setup, late, doorbells)
    link = program.moves().egress * max(t.sectors for t in work.tilings.values()) * SECTOR_BYTES
    link = int(link / (slowest or config.link_bytes_per_cycle)) * gpus
    compute = max((_cycles(plan) for plans in work.kernels for plan in plans), default=0)
    sources = max(len(data_sets(program, rank)) for rank in range(nodes)) * span
    written = span + backing_sectors(program, config, work.laid)
    least = (MACHINE_STORAGE, MACHINE_SOURCES) if spec.machine else (STORAGE_SECTORS, STORAGE_SECTORS)
    return Job(
        build=Build(
            config,
            nodes,
            storage_sectors=max(least[0], channel_sectors(config, written)),
            source_sectors=max(least[1], 1 << (sources - 1).bit_length()),
            plans=True,
            topology=wiring,
        ),
        session={
            "fill": False,
            "alone": False,
            "stall": forced_idle(spec),
            "bit_errors": (spec.bit_errors, spec.seed),
            "link_rates": rates,
            "timeout": time_limit(spec, compute, link, span),
            "late_cycles": spec.late_cycles,
            "doorbells": any(doorbells),
            "phases": phases,
            "mirrored_arrays": [turns for array in program.arrays for turns in _turns(array, work.laid[array.name])],
        },
        program=tuple(commands),
        plusargs={
            "plan": Path("plan"),
            "steps": Path("steps"),
            "waits": Path("waits"),
            "gates": Path("gates"),
            "source": Path("source"),
            "hbm_initial": Path("initial"),
            **_gathered(work),
        },
        write_inputs=partial(_write, work, config, ranks),
        window=sampling_window(compute + link),
        results=tuple(tuple(map(work.place, work.held(rank))) for rank in range(nodes)),
        pattern=pattern_type(spec.dtype),
        log=depends_on_order(program),
        nodes=tuple(ranks),
    )


def link_rates(spec: Spec, config: Configuration) -> list[tuple[int, int, float]]:
    """Rank and port that a link leads from, and its bytes a cycle, for all that are slower than the node's: those of a
    host, and those between GPUs that share the bandwidth of one."""
    wiring = topology(spec.topology, spec.gpus)
    if not isinstance(wiring, Hosted):
        return []
    whole = config.link_bytes_per_cycle
    away, back = spec.host_rates(config) or (whole, whole)
    found = []
    for rank, port, peer, _ in wiring.links():
        rate = away if rank == wiring.host else back if peer == wiring.host else whole / wiring.onward
        found += [(rank, port, rate)] if rate < whole else []
    return found


def _turns(array: Array, laid: Laid) -> Iterator[tuple[int, ...]]:
    """What a mirrored node is told of an array, piece by piece: first sector, sectors of a rank's turn, turns, first wg
    number, wg numbers of a turn."""
    numbers = int(np.diff(laid.numbers[:2]).sum())
    for first in range(0, array.chunks, array.piece):
        yield (
            laid.chunk(first),
            array.together * laid.stride,
            array.piece // array.together,
            laid.numbers[first],
            array.together * numbers,
        )


def _cycles(plan: KernelPlan) -> int:
    """Of a kernel until it begins, of its arithmetic, and of its reads one by one."""
    turns = -(-plan.count // plan.kernel["slots"])
    longest = int(np.max(plan.workgroups["lead_cycles"]))
    longest += plan.kernel["steps"] * int(np.max(plan.workgroups["step_cycles"]))
    return int(np.max(plan.workgroups["not_before"])) + turns * longest + 4 * plan.reads


def _gathered(work: ProgramWork) -> dict[str, str | int | Path]:
    """What the checker of reads is told."""
    if not work.gathered:
        return {}
    laid = work.laid[work.gathered[0]]
    tiling = laid.tiling
    if any(work.tilings[name].pitch_sectors != tiling.pitch_sectors for name in work.gathered):
        raise ProgramError(f"{work.program.name} gathers arrays whose rows are not as long as each other's")
    return {
        "gathered": Path("gathered"),
        "gathered_first": laid.base,
        "gathered_sectors": sum(work.laid[part.array].stride for part in work.compared),
        "gathered_pitch": tiling.pitch_sectors,
        "gathered_last": tiling.columns * tiling.dtype_bytes - SECTOR_BYTES * (tiling.pitch_sectors - 1),
    }


def _write(work: ProgramWork, config: Configuration, nodes: Sequence[NodeProgram], folder: Path) -> None:
    program, span = work.program, span_of(work.laid, work.program)
    for rank, plans in enumerate(work.kernels):
        for name, text in plan_texts(rank, plans).items():
            (folder / name).write_text(text)
        write_hex(folder / f"source{rank}.hex", _source(work, rank, span))
        _write_initial(work, config, nodes[rank], folder)
    (folder / "gates.hex").write_text(gate_text({row: gate for gate, row in work.gates.items()}, work.laid))
    if work.gathered:
        pitch, cuts = work.tilings[work.gathered[0]].pitch_sectors, work.cuts(1)
        for rank in range(work.nodes):
            held = awaited(program, rank, work.compared, work.inputs, work.given, cuts)
            pieces = [to_sectors(piece, pitch) for piece in held]
            room = [
                work.laid[part.array].stride - len(piece) for part, piece in zip(work.compared, pieces, strict=True)
            ]
            padded = [np.pad(piece, ((0, gap), (0, 0))) for piece, gap in zip(pieces, room, strict=True)]
            write_hex(folder / f"gathered{rank}.hex", np.concatenate(padded))


def _source(work: ProgramWork, rank: int, span: int) -> np.ndarray:
    """The sectors that the kernels of `rank` store, set after set."""
    sets = data_sets(work.program, rank)
    image = np.zeros((max(1, len(sets)) * span, SECTOR_BYTES), np.uint8)
    stored = dict(work.given[rank].stores)
    stored |= {(number, part, 0): piece for (number, part), piece in work.outputs[rank].items()}
    for (number, part, split), piece in stored.items():
        laid = work.laid[part.array]
        first = sets[number, split] * span + laid.chunk(part.chunk) - ARRAY_BASE
        image[first : first + laid.tiling.sectors] = to_sectors(piece, laid.tiling.pitch_sectors)
    return image


def _write_initial(work: ProgramWork, config: Configuration, node: NodeProgram, folder: Path) -> None:
    """What lies in the memory of a rank before it starts: data, and the element that tracked regions begin with."""
    images = [
        (work.laid[part.array].chunk(part.chunk), to_sectors(piece, work.tilings[part.array].pitch_sectors))
        for part, piece in work.given[node.rank].lies.items()
    ]
    kind = pattern_type(work.program.arrays[0].dtype)
    filled = np.full(SECTOR_BYTES // np.dtype(kind).itemsize, node.fill_element, kind).view(np.uint8)
    images += [(first, np.tile(filled, (sectors, 1))) for first, sectors in node.fill]
    for channel in range(config.channels):
        path = folder / f"initial{node.rank * config.channels + channel}.hex"
        write_hex_at(path, scatter_channels(images, ARRAY_BASE, channel, config.channels))
