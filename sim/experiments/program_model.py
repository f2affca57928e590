"""Compute model `program`: any collective on any topology that can be built, its kernels tile by tile, with real data.

What the kernels store and what lies in memory are files; what a GEMM reads of a gathered array is compared with what
its owners wrote, at every read (`sim/models/gathered_checker.sv`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hw.config import Configuration
from sim.collectives.compiler import cuts, needs, workgroup_numbers
from sim.collectives.cut import Cut
from sim.collectives.independent_gemm import NAME as INDEPENDENT
from sim.collectives.inputs import Given, given
from sim.collectives.program import Does, Part, Program, Rows, Via
from sim.errors import UsageError
from sim.experiments.hardware import with_room
from sim.experiments.job import Held, laid_out, program_of
from sim.experiments.program_data import alike_inputs, gated_outputs, random_inputs
from sim.experiments.program_kernels import plans_of, recorded_gemm, row_sectors
from sim.experiments.spec import Spec
from sim.experiments.tensors import tensors_of
from sim.host.address_space import ARRAY_BASE
from sim.host.tiling import Tiling
from sim.workloads.kernel_plans import KernelPlan
from sim.workloads.program_plans import Laid, gates_of

RANGES = 32
"""Of the range table: as many as every program on 8 GPUs needs, so that one build serves all."""
PLAIN_RANGES = 2
MACHINE_BLOCKS = 1 << 12
"""Entries of the trigger table of a slice of a machine, or more, for the same reason."""


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
    slices = _slices_of(program)
    tilings: dict[str, Tiling] = {}
    for array in program.arrays:
        if array.name == INDEPENDENT:
            tilings[array.name] = spec.tiling(spec.gemm_shape[0] // array.chunks, spec.gemm_shape[1], spec.gemm_tile)
            continue
        if array.rows is Rows.SHARE and rows % array.chunks:
            raise UsageError(f"shape M must be a multiple of the {array.chunks} chunks of {array.name}, got {rows}")
        if array.name in slices and not depth:
            raise UsageError(f"shape K must be at least 1: {array.name} has K columns")
        high = {Rows.SHARE: rows // array.chunks, Rows.ALL: rows, Rows.COLUMNS: columns}[array.rows]
        if slices.get(array.name, 1) > 1:
            tilings[array.name] = _sliced(spec, array.name, high, slices[array.name])
            continue
        tilings[array.name] = spec.tiling(high, depth if array.name in slices else columns)
    return tilings


def _slices_of(program: Program) -> dict[str, int]:
    """The arrays that a GEMM reads when they are gathered, and in how many slices of the depth their tile rows lie."""
    kernels = (kernel for kernel in program.kernels(0) if kernel.does is Does.MULTIPLY)
    return {gate.array: kernel.slices for kernel in kernels for gate in kernel.waited}


def _sliced(spec: Spec, name: str, rows: int, slices: int) -> Tiling:
    """How a chunk of array `name` is cut each of whose tile rows lies in `slices` of the depth."""
    depth, (tile_rows, _) = spec.shape[2], spec.tile
    if rows % tile_rows:
        raise UsageError(f"a chunk of {name} in {slices} slices must have whole tiles of {tile_rows} rows, got {rows}")
    if depth % slices:
        raise UsageError(f"shape K must be a multiple of the {slices} slices of {name}, got {depth}")
    return spec.tiling(slices * rows, depth // slices, (tile_rows, depth // slices))


def _gaps(program: Program, config: Configuration, tilings: Mapping[str, Tiling]) -> dict[str, int]:
    """Whole rows of an array, about half a row of every bank group, behind each chunk whose tile rows lie in slices: a
    GEMM reads all chunks at a time, and finds them in different banks, as hashed addresses have them on a GPU."""
    half = row_sectors(config) // 2
    pitches = {name: tilings[name].pitch_sectors for name, slices in _slices_of(program).items() if slices > 1}
    return {name: -(-half // pitch) * pitch for name, pitch in pitches.items()}


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
    places = laid_out(program, tilings, _gaps(program, config, tilings))
    numbers, _ = workgroup_numbers(program, config, places)
    laid = {
        array.name: Laid(
            place.base,
            place.tiling,
            place.gap,
            numbers=[numbers[Part(array.name, chunk)] for chunk in range(array.chunks)],
        )
        for array, place in ((array, places[array.name]) for array in program.arrays)
    }
    work = ProgramWork(program, tilings, laid, (), (), (), (), {})
    cuts = work.cuts(spec.dma_block or spec.wfs)
    rng = np.random.default_rng(spec.seed)
    ranks = range(program.gpus)
    x = tensors_of(spec.inputs, spec.dtype, spec.collective).inputs() if spec.inputs else None
    if spec.mirrored:
        inputs = alike_inputs(spec, program, cuts, random_inputs(spec, program, 0, tilings, rng))
    else:
        inputs = [random_inputs(spec, program, rank, tilings, rng) if x is None else x[rank] for rank in ranks]
    nodes = ranks[:1] if spec.mirrored else ranks
    pieces = tuple(given(program, rank, inputs[rank], cuts) for rank in ranks)
    gates, recorded = gates_of(program, laid), recorded_gemm(spec, program, laid)
    return ProgramWork(
        program,
        tilings,
        laid,
        tuple(inputs),
        pieces,
        tuple(gated_outputs(spec, program, rank, (inputs, pieces, cuts), rng) for rank in nodes),
        tuple(plans_of(spec, config, program, rank, laid, recorded) for rank in nodes),
        {number: row for row, number in gates.items()},
    )
