"""Compute model `program`: any collective on any topology that can be built, its kernels tile by tile, with real data.

What the kernels store and what lies in memory are files; what a GEMM reads of a gathered array is compared with what
its owners wrote, at every read (`sim/models/gathered_checker.sv`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hw.config import BANK_GROUPS, COLUMN_BITS, SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from sim.collectives.check import check_alike, depends_on_order
from sim.collectives.compiler import NodeProgram, backing_sectors, cuts, needs, workgroup_numbers
from sim.collectives.cut import Cut
from sim.collectives.independent_gemm import NAME as INDEPENDENT
from sim.collectives.inputs import Given, addends, given
from sim.collectives.program import Array, Does, Kernel, Part, Program, ProgramError, Rows, Via
from sim.errors import UsageError
from sim.experiments.array_model import INPUT_SECTORS, PEAK_FLOPS, STORAGE_SECTORS, WORKGROUP_SLOTS, arming_cycles
from sim.experiments.hardware import EARLY_GATE, with_room
from sim.experiments.job import Build, Held, Job, compiled, fault_writes, laid_out, program_of, slowed_down
from sim.experiments.spec import ELEMENT_BYTES, Spec
from sim.experiments.tensors import tensors_of
from sim.experiments.variants import POLICIES, THRESHOLDS
from sim.golden.arithmetic import pattern_type, to_float64
from sim.golden.matmul import partial_products, patterns_of
from sim.host.address_space import ARRAY_BASE
from sim.host.program import host_program
from sim.host.register_writes import arbiter_writes, register_write, slow_link_writes
from sim.host.tiling import Tiling
from sim.simulator.memory_image import scatter_channels, to_sectors, write_hex, write_hex_at
from sim.topologies.hosted import Hosted
from sim.topologies.known import topology
from sim.workloads.kernel_plans import KernelPlan, plan_texts
from sim.workloads.machines import machine as known_machine
from sim.workloads.program_plans import Laid, Operands, gate_text, gates_of, program_kernel
from sim.workloads.sublayer import STEP_DEPTH

RANGES = 32
"""Of the range table: as many as every program on 8 GPUs needs, so that one build serves all."""
PLAIN_RANGES = 2
MACHINE_STORAGE, MACHINE_SOURCES, MACHINE_BLOCKS = 1 << 19, 1 << 20, 1 << 12
"""Of a slice of a machine: sectors of a channel's model and of arrays to store, and entries of the trigger table, or
more. One build then serves all shapes of a system."""


INPUT_BASE = ARRAY_BASE + (1 << 29)
"""First sector of the operands. In the DRAM they are the places of the arrays, and what is read there is not looked at
(hw/DECISIONS.md 97)."""


@dataclass(frozen=True)
class ProgramWork:
    """`program` with its arrays cut as `tilings` says. By rank: `inputs`, as `program.golden` takes them; `given`: the
    same by chunk. By simulated rank, one of a mirrored run: `outputs`, what kernels with gates store, by number of the
    kernel and part; `kernels`, their plans. `gates`: tile rows by number; `laid`: where the arrays lie."""

    program: Program
    tilings: Mapping[str, Tiling]
    laid: Mapping[str, Laid]
    inputs: tuple[np.ndarray, ...]
    given: tuple[Given, ...]
    outputs: tuple[Mapping[tuple[int, Part], np.ndarray], ...]
    kernels: tuple[tuple[KernelPlan, ...], ...]
    gates: Mapping[int, tuple[Part, int]]

    @property
    def gathered(self) -> tuple[str, ...]:
        """The arrays for parts of which kernels wait, as they lie one after another: the one that has rows of A, and
        the one that has columns of B."""
        kernels = [kernel for rank in range(self.program.gpus) for kernel in self.program.kernels(rank)]
        sides = ([kernel.gates for kernel in kernels], [kernel.column_gates for kernel in kernels])
        found = (
            next((part.array for gates in side for waited in gates.values() for part in waited), None) for side in sides
        )
        names = {name for name in found if name is not None}
        return tuple(array.name for array in self.program.arrays if array.name in names)

    @property
    def compared(self) -> list[Part]:
        """The chunks of these arrays."""
        return [Part(name, chunk) for name in self.gathered for chunk in range(self.program.array(name).chunks)]

    @property
    def nodes(self) -> int:
        """Ranks that are simulated."""
        return len(self.kernels)

    def held(self, rank: int) -> tuple[Part, ...]:
        """What is compared of `rank`: what the program leaves it with, what its GEMM made of that, and what the GEMMs
        of others sent there."""
        return (*self.program.result(rank), *(part for _, part in sorted(self.outputs[rank])), *self.sent_to(rank))

    def sent_to(self, rank: int) -> dict[Part, np.ndarray]:
        """What kernels with gates of other ranks store and then send to `rank`, by where it arrives."""
        found: dict[Part, np.ndarray] = {}
        for sender, outputs in enumerate(self.outputs if self.nodes == self.program.gpus else ()):
            stored = {part: piece for (_, part), piece in outputs.items()}
            for region in self.program.regions(sender):
                if region.part in stored and region.via is Via.DMA:
                    found |= {send.part: stored[region.part] for send in region.sends if send.peer == rank}
        return found

    def place(self, part: Part) -> Held:
        """Where a part lies."""
        laid = self.laid[part.array]
        return Held(laid.chunk(part.chunk) - ARRAY_BASE, laid.tiling)

    def cuts(self, block_wfs: int) -> dict[str, Cut]:
        """The tilings as programs know them."""
        return cuts(self.tilings, block_wfs)


def tilings_of(spec: Spec, program: Program) -> dict[str, Tiling]:
    """How one chunk of each array is cut: M rows in all, N columns; K columns of what a GEMM reads."""
    rows, columns, depth = spec.shape
    waited = {gate.array for kernel in program.kernels(0) if kernel.does is Does.MULTIPLY for gate in kernel.waited}
    tilings: dict[str, Tiling] = {}
    for array in program.arrays:
        if array.name == INDEPENDENT:
            tilings[array.name] = spec.tiling(spec.gemm_shape[0] // array.chunks, spec.gemm_shape[1], spec.gemm_tile)
            continue
        if array.rows is Rows.SHARE and rows % array.chunks:
            raise UsageError(f"shape M must be a multiple of the {array.chunks} chunks of {array.name}, got {rows}")
        if array.name in waited and not depth:
            raise UsageError(f"shape K must be at least 1: {array.name} has K columns")
        high = {Rows.SHARE: rows // array.chunks, Rows.ALL: rows, Rows.COLUMNS: columns}[array.rows]
        tilings[array.name] = spec.tiling(high, depth if array.name in waited else columns)
    return tilings


def node_of(spec: Spec, program: Program, tilings: Mapping[str, Tiling]) -> Configuration:
    """The hardware, with as many ranges and trigger-table entries as the program needs."""
    config = spec.hardware
    needed = needs(program, config, laid_out(program, tilings), spec.dma_block or spec.wfs)
    if spec.machine:
        needed = replace(needed, trigger_entries=max(needed.trigger_entries, MACHINE_BLOCKS))
    config = with_room(config, needed, PLAIN_RANGES, least=RANGES)
    return replace(config, gpus=config.ranges // 2)


def program_work(spec: Spec) -> ProgramWork:
    """What the GPUs of `spec` do."""
    program = program_of(spec)
    multiplying = sum(kernel.does is Does.MULTIPLY for kernel in program.kernels(0))
    if spec.machine and multiplying > 1:
        raise UsageError(f"a machine is for programs with one GEMM, {program.name} has {multiplying}")
    tilings = tilings_of(spec, program)
    config = node_of(spec, program, tilings)
    places = laid_out(program, tilings)
    numbers, _ = workgroup_numbers(program, config, places)
    laid = {
        array.name: Laid(
            places[array.name].base,
            tilings[array.name],
            [numbers[Part(array.name, chunk)] for chunk in range(array.chunks)],
        )
        for array in program.arrays
    }
    work = ProgramWork(program, tilings, laid, (), (), (), (), {})
    cuts = work.cuts(spec.dma_block or spec.wfs)
    rng = np.random.default_rng(spec.seed)
    ranks = range(program.gpus)
    x = tensors_of(spec.inputs, spec.dtype, spec.collective).inputs() if spec.inputs else None
    if spec.mirrored:
        inputs = _alike(spec, program, cuts, _random(spec, program, 0, tilings, rng))
    else:
        inputs = [_random(spec, program, rank, tilings, rng) if x is None else x[rank] for rank in ranks]
    nodes = ranks[:1] if spec.mirrored else ranks
    pieces = tuple(given(program, rank, inputs[rank], cuts) for rank in ranks)
    gates = gates_of(program, laid)
    return ProgramWork(
        program,
        tilings,
        laid,
        tuple(inputs),
        pieces,
        tuple(_outputs(spec, program, rank, (inputs, pieces, cuts), rng) for rank in nodes),
        tuple(_plans(spec, config, program, rank, laid) for rank in nodes),
        {number: row for row, number in gates.items()},
    )


def _random(spec: Spec, program: Program, rank: int, tilings: Mapping[str, Tiling], rng: np.random.Generator) -> Any:
    """Inputs of a rank: products of random matrices for what kernels store, random numbers for what lies in memory."""
    pieces = []
    for kernel in program.kernels(rank):
        if not kernel.gates:
            depth = max(spec.multiplied[2] // kernel.splits, 1)
            for _ in range(kernel.splits):
                for part in sorted(kernel.parts):
                    tiling = tilings[part.array]
                    product = partial_products(1, tiling.rows, tiling.columns, depth, spec.dtype, rng)
                    pieces.append(product.ravel())
    for part in program.lies(rank):
        tiling = tilings[part.array]
        shape = tiling.rows * tiling.columns
        values = rng.integers(-128, 128, shape) if spec.dtype == "int32" else rng.standard_normal(shape)
        pieces.append(patterns_of(spec.dtype, values))
    return np.concatenate(pieces) if pieces else np.zeros(0, pattern_type(spec.dtype))


def _alike(spec: Spec, program: Program, cuts: Mapping[str, Cut], first: np.ndarray) -> list[np.ndarray]:
    """Inputs by rank, of which `first` are those of rank 0: all the same, in chunks as much further on as the rank."""
    check_alike(program)
    pieces = given(program, 0, first, cuts)
    answer = []
    for rank in range(program.gpus):

        def held(part: Part, back: int = rank) -> Part:
            return Part(part.array, program.array(part.array).further(part.chunk, -back))

        stored = [
            pieces.stores[number, held(part), split].ravel()
            for number, kernel in enumerate(program.kernels(rank))
            if not kernel.gates
            for split in range(kernel.splits)
            for part in sorted(kernel.parts)
        ]
        lies = [pieces.lies[held(part)].ravel() for part in program.lies(rank)]
        answer.append(np.concatenate([*stored, *lies]) if stored or lies else first)
    return answer


def _outputs(
    spec: Spec,
    program: Program,
    rank: int,
    data: tuple[Sequence[np.ndarray], Sequence[Given], Mapping[str, Cut]],
    rng: np.random.Generator,
) -> dict[tuple[int, Part], np.ndarray]:
    """What kernels with gates store: the sum of the chunks that a part waits for, or the product of these, as their
    owners have them, and of the columns that it waits for, or else a matrix of the rank's own. `data`: inputs by rank,
    the same by chunk, and how they are cut."""
    found = {}
    for number, kernel in enumerate(program.kernels(rank)):
        if not kernel.gates:
            continue
        weights = rng.integers(-8, 8, (spec.shape[2], spec.shape[1])).astype(np.float64)
        for part in kernel.parts:
            chunks = _numbers(spec, awaited(program, rank, kernel.gates[part], *data))
            if kernel.column_gates:
                (columns,) = _numbers(spec, awaited(program, rank, kernel.column_gates[part], *data))
                weights = columns.T
            summed = kernel.does is Does.ADD
            made = np.sum(chunks, axis=0) if summed else np.concatenate(chunks) @ weights
            found[number, part] = patterns_of(spec.dtype, made)
    return found


def _numbers(spec: Spec, chunks: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Bit patterns as what they stand for."""
    return [
        chunk.view(np.int32).astype(np.float64) if spec.dtype == "int32" else to_float64(spec.dtype, chunk)
        for chunk in chunks
    ]


def awaited(
    program: Program,
    rank: int,
    parts: Sequence[Part],
    inputs: Sequence[np.ndarray],
    pieces: Sequence[Given],
    cuts: Mapping[str, Cut],
) -> list[np.ndarray]:
    """What `parts` hold on `rank` when they are complete: what lies in an owner's memory, or what is stored there."""
    everywhere = {part: piece for of_rank in pieces for part, piece in of_rank.lies.items()}
    return [
        everywhere[part] if part in everywhere else addends(program, inputs, (), rank, part, cuts)[0] for part in parts
    ]


def data_sets(program: Program, rank: int) -> dict[tuple[int, int], int]:
    """For each kernel and split the number of the set of arrays in the file of what the rank stores."""
    keys = [(number, split) for number, kernel in enumerate(program.kernels(rank)) for split in range(kernel.splits)]
    return {key: index for index, key in enumerate(keys)}


def span_of(work_laid: Mapping[str, Laid], program: Program) -> int:
    """Sectors of all arrays."""
    return sum(array.chunks * work_laid[array.name].tiling.sectors for array in program.arrays)


def _plans(
    spec: Spec, config: Configuration, program: Program, rank: int, laid: Mapping[str, Laid]
) -> tuple[KernelPlan, ...]:
    span, sets = span_of(laid, program), data_sets(program, rank)
    operands = _operands(spec, config)
    units = known_machine(spec.machine).compute_units if spec.machine else WORKGROUP_SLOTS
    if spec.sharing == "partitioned":
        units -= sum(kernel.units for kernel in program.kernels(rank))
    plans = (
        program_kernel(
            program,
            rank,
            number,
            laid,
            operands,
            topology(spec.topology, spec.gpus),
            slots=kernel.units or units,
            order=_order(spec, kernel),
            block_wfs=spec.dma_block or spec.wfs,
            data_span=span,
            first_data=sets[number, 0] * span,
            early=int(spec.bug == EARLY_GATE),
        )
        for number, kernel in enumerate(program.kernels(rank))
    )
    late = spec.late_cycles and rank == spec.late_rank
    return tuple(_launched_when_armed(plan, spec, config) for plan in plans) if late else tuple(plans)


def _launched_when_armed(plan: KernelPlan, spec: Spec, config: Configuration) -> KernelPlan:
    """`plan` on a rank that is armed late: a host launches a kernel whose stores are counted when the GPU is armed."""
    armed = spec.late_cycles + arming_cycles(config)
    return replace(plan, workgroups={**plan.workgroups, "not_before": armed})


def _order(spec: Spec, kernel: Kernel) -> str:
    """In which `kernel` takes its tiles: beside an independent GEMM, whose order the spec says, the kernels of the
    collective store to all peers in turns."""
    if spec.independent and kernel.name != INDEPENDENT:
        return "interleaved"
    return spec.tile_order or "rows"


def _operands(spec: Spec, config: Configuration) -> Operands:
    """How long a workgroup of `spec` computes, and what it reads from where."""
    rows, columns = spec.gemm_tile
    depth = spec.multiplied[2]
    if not spec.machine:
        # As on all compute units of machine PAPER, one of which the workgroup has, for the channels that are simulated.
        seconds = 2 * rows * columns * (depth + 200) / PEAK_FLOPS * WORKGROUP_SLOTS if depth else 0
        return Operands(depth, INPUT_BASE, INPUT_SECTORS, round(seconds * 1e9 * TOTAL_CHANNELS / config.channels))
    machine = known_machine(spec.machine)
    rows, columns, whole = (side * machine.side for side in (rows, columns, depth))
    lead = machine.cycles(machine.workgroup_us(rows, columns, 0))
    return Operands(
        depth,
        INPUT_BASE,
        input_sectors(spec),
        machine.cycles(machine.workgroup_us(rows, columns, whole)) - lead,
        lead_cycles=lead,
        step_depth=max(1, STEP_DEPTH // machine.side),
        row_sectors=(BANK_GROUPS << COLUMN_BITS) * config.channels,
        copied_sectors_per_cycle=machine.copy_bytes_per_cycle / SECTOR_BYTES,
        capacity=int(machine.llc_mib * 2**20) * machine.slice_channels // machine.channels,
    )


def input_sectors(spec: Spec) -> int:
    """Sectors of plain memory that operands lie in: A in one half, B in the other."""
    rows, columns, depth = spec.multiplied
    larger = max(rows, columns + spec.gemm_tile[1]) * depth * ELEMENT_BYTES[spec.dtype] // SECTOR_BYTES
    return max(INPUT_SECTORS, 4 << larger.bit_length()) if spec.machine else INPUT_SECTORS


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
    places = laid_out(program, work.tilings)
    span = span_of(work.laid, program)
    backing = ARRAY_BASE + -(-span // 8) * 8
    wiring = topology(spec.topology, gpus)
    ranks = compiled(spec, program, config, wiring, places, nodes, (INPUT_BASE, input_sectors(spec)), backing)
    setup = [
        [*rank.writes, *slow_link_writes(config, slowest), register_write(config, "control", clear_counters=1)]
        for rank in ranks
    ]
    before = [
        *arbiter_writes(
            config,
            POLICIES[spec.variant.policy],
            THRESHOLDS[spec.variant.threshold],
            spec.starvation_limit,
            ports=_busy_ports(ranks, config.links),
        ),
        *fault_writes(spec, config),
    ]
    late = [spec.late_rank] if spec.late_cycles else []
    doorbells = [rank.doorbells for rank in ranks]
    phases, commands = host_program(config, [{}] * nodes, [before] * nodes, setup, late, doorbells)
    link = program.moves().egress * max(t.sectors for t in work.tilings.values()) * SECTOR_BYTES
    link = int(link / (slowest or config.link_bytes_per_cycle)) * gpus
    compute = max((_cycles(plan) for plans in work.kernels for plan in plans), default=0)
    sources = max(len(data_sets(program, rank)) for rank in range(nodes)) * span
    needed = (span + backing_sectors(program, config, places)) // config.channels + 8
    least = (MACHINE_STORAGE, MACHINE_SOURCES) if spec.machine else (STORAGE_SECTORS, STORAGE_SECTORS)
    return Job(
        build=Build(
            config,
            nodes,
            storage_sectors=max(least[0], 1 << needed.bit_length()),
            source_sectors=max(least[1], 1 << (sources - 1).bit_length()),
            plans=True,
            topology=wiring,
        ),
        session={
            "fill": False,
            "alone": False,
            "stall": round(spec.stalls / 100 * 256),
            "bit_errors": (spec.bit_errors, spec.seed),
            "link_rates": rates,
            "timeout": int(
                (2 * compute + 3 * link + 60 * span + 200_000)
                * (1 + 12 * spec.stalls / 100)
                * slowed_down(spec.bit_errors)
            ),
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
        window=1 << max(4, int(compute + link).bit_length() - 8),
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
            array.together * laid.tiling.sectors,
            array.piece // array.together,
            laid.numbers[first],
            array.together * numbers,
        )


def _cycles(plan: KernelPlan) -> int:
    """Of a kernel until it begins, of its arithmetic, and of its reads one by one."""
    turns = -(-plan.count // plan.kernel["slots"])
    longest = int(np.max(plan.workgroups["lead_cycles"]))
    longest += plan.kernel["steps"] * int(np.max(plan.workgroups["step_cycles"]))
    return int(np.max(plan.workgroups.get("not_before", 0))) + turns * longest + 4 * plan.reads


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
        "gathered_sectors": sum(work.tilings[part.array].sectors for part in work.compared),
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
            write_hex(folder / f"gathered{rank}.hex", np.concatenate([to_sectors(piece, pitch) for piece in held]))


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
