"""Kernels of compute model `program`: their plans, what their workgroups read from where, and for how long they
compute."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hw.config import BANK_GROUPS, COLUMN_BITS, SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from sim.collectives.independent_gemm import NAME as INDEPENDENT
from sim.collectives.program import Does, Kernel, Program
from sim.errors import UsageError
from sim.experiments.array_model import INPUT_SECTORS, arming_cycles
from sim.experiments.hardware import EARLY_GATE
from sim.experiments.spec import Spec
from sim.experiments.spec_values import ELEMENT_BYTES
from sim.host.address_space import input_base
from sim.models.plan_layout import Workgroup
from sim.topologies.known import topology
from sim.workloads.calibration import COMPUTE_UNITS, gemm_cycles
from sim.workloads.kernel_plans import KernelPlan
from sim.workloads.machines import machine as known_machine
from sim.workloads.program_plans import Laid, Operands, apart, program_kernel
from sim.workloads.recorded_trace import RecordedTrace, load_trace
from sim.workloads.sublayer import STEP_DEPTH


def data_sets(program: Program, rank: int) -> dict[tuple[int, int], int]:
    """For each kernel and split the number of the set of arrays in the file of what the rank stores."""
    keys = [(number, split) for number, kernel in enumerate(program.kernels(rank)) for split in range(kernel.splits)]
    return {key: index for index, key in enumerate(keys)}


def span_of(laid: Mapping[str, Laid], program: Program) -> int:
    """Sectors of all arrays."""
    return sum(array.chunks * laid[array.name].stride for array in program.arrays)


def plans_of(
    spec: Spec,
    config: Configuration,
    program: Program,
    rank: int,
    laid: Mapping[str, Laid],
    recorded: RecordedTrace | None = None,
) -> tuple[KernelPlan, ...]:
    """The plans of the kernels of `rank`; its GEMM as `recorded`, if it was."""
    span, sets = span_of(laid, program), data_sets(program, rank)
    operands = _operands(spec, config, input_sectors(spec, config, program, laid))
    units = known_machine(spec.machine).compute_units if spec.machine else COMPUTE_UNITS
    if spec.sharing == "partitioned":
        units -= sum(kernel.units for kernel in program.kernels(rank))
    kernels = program.kernels(rank)
    traces = (recorded if kernel.does is Does.MULTIPLY else None for kernel in kernels)
    plans = (
        program_kernel(
            program,
            rank,
            number,
            laid,
            operands,
            topology(spec.topology, spec.gpus),
            slots=trace.slots if trace else kernel.units or units,
            order=_order(spec, kernel),
            block_wfs=spec.dma_block or spec.wfs,
            data_span=span,
            first_data=sets[number, 0] * span,
            early=int(spec.bug == EARLY_GATE),
            recorded=trace,
        )
        for number, (kernel, trace) in enumerate(zip(kernels, traces, strict=True))
    )
    late = spec.late_cycles and rank == spec.late_rank
    return tuple(_launched_when_armed(plan, spec, config) for plan in plans) if late else tuple(plans)


def recorded_gemm(spec: Spec, program: Program, laid: Mapping[str, Laid]) -> RecordedTrace | None:
    """The trace of `spec`, in cycles, by which the GEMM of every rank runs."""
    if not spec.trace:
        return None
    gemm = next((kernel for kernel in program.kernels(0) if kernel.does is Does.MULTIPLY), None)
    if gemm is None:
        raise UsageError(
            f"trace has no effect here: {program.name} has no GEMM, unless an independent one is beside it"
        )
    workgroups = gemm.splits * sum(laid[part.array].tiling.workgroups for part in gemm.parts)
    return load_trace(spec.trace, workgroups).on(known_machine(spec.machine))


def _launched_when_armed(plan: KernelPlan, spec: Spec, config: Configuration) -> KernelPlan:
    """`plan` on a rank that is armed late: a host launches a kernel whose stores are counted when the GPU is armed."""
    begin = plan.workgroups["not_before"] + spec.late_cycles + arming_cycles(config)
    if np.max(begin) >= 1 << Workgroup["not_before"].width:
        raise UsageError(
            f"late-cycles and the trace must be below {1 << Workgroup['not_before'].width} cycles together"
        )
    return replace(plan, workgroups={**plan.workgroups, "not_before": begin})


def _order(spec: Spec, kernel: Kernel) -> str:
    """In which `kernel` takes its tiles: beside an independent GEMM, whose order the spec says, the kernels of the
    collective store to all peers in turns."""
    if spec.independent and kernel.name != INDEPENDENT:
        return "interleaved"
    return spec.tile_order or "rows"


def _operands(spec: Spec, config: Configuration, inputs: int) -> Operands:
    """How long a workgroup of `spec` computes, and what it reads from where: of so many sectors of plain memory."""
    rows, columns = spec.gemm_tile
    depth = spec.multiplied[2]
    if not spec.machine:
        # As on all compute units of machine PAPER, one of which the workgroup has, for the channels that are simulated.
        cycles = gemm_cycles(rows * columns, depth, 1) * TOTAL_CHANNELS / config.channels if depth else 0
        return Operands(depth, input_base(config.channels), inputs, round(cycles))
    machine = known_machine(spec.machine)
    rows, columns, whole = (side * machine.side for side in (rows, columns, depth))
    lead = machine.cycles(machine.workgroup_us(rows, columns, 0))
    return Operands(
        depth,
        input_base(config.channels),
        inputs,
        machine.cycles(machine.workgroup_us(rows, columns, whole)) - lead,
        lead_cycles=lead,
        step_depth=max(1, STEP_DEPTH // machine.side),
        row_sectors=row_sectors(config),
        copied_sectors_per_cycle=machine.copy_bytes_per_cycle / SECTOR_BYTES,
        capacity=int(machine.llc_mib * 2**20) * machine.slice_channels // machine.channels,
    )


def row_sectors(config: Configuration) -> int:
    """Sectors that lie in one row of a bank of each group, of all channels."""
    return (BANK_GROUPS << COLUMN_BITS) * config.channels


def input_sectors(spec: Spec, config: Configuration, program: Program, laid: Mapping[str, Laid]) -> int:
    """Sectors of plain memory that operands lie in: A in one half, B in the other, on a machine in panels that lie
    apart."""
    if not spec.machine:
        return INPUT_SECTORS
    rows, columns, depth = spec.multiplied
    element = ELEMENT_BYTES[spec.dtype]
    larger = max(rows, columns + spec.gemm_tile[1]) * depth * element // SECTOR_BYTES
    halves = [
        (panels - 1) * apart(panel, row_sectors(config)) + panel
        for kernel in program.kernels(0)
        if kernel.does is Does.MULTIPLY
        for panels, panel in _panels(kernel, laid, spec.gemm_tile, depth * element)
    ]
    return max(INPUT_SECTORS, 4 << larger.bit_length(), *(2 << (half - 1).bit_length() for half in halves))


def _panels(kernel: Kernel, laid: Mapping[str, Laid], tile: tuple[int, ...], bytes_each: int) -> list[tuple[int, int]]:
    """How many panels of A and of B a GEMM reads from plain memory, and how many sectors one has: of a tile's rows or
    columns, `bytes_each`."""
    arrays = [laid[part.array] for part in kernel.parts]
    down = max(len(each.numbers) * each.tiling.tiles_down for each in arrays)
    a = [] if kernel.gates else [(down, -(-tile[0] * bytes_each // SECTOR_BYTES))]
    b = [] if kernel.column_gates else [(arrays[0].tiling.tiles_across, -(-tile[1] * bytes_each // SECTOR_BYTES))]
    return a + b
