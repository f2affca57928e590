"""Compute model `array`: a generator that stores a real array in the order and at the pace of a GEMM's stages."""

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from sim.collectives.compiler import backing_sectors, needs, workgroup_stride
from sim.errors import UsageError
from sim.experiments.hardware import with_room
from sim.experiments.job import (
    Build,
    Job,
    arrays_at,
    behind_arrays,
    channel_sectors,
    compiled_ring,
    fault_writes,
    forced_idle,
    program_of,
    results_of,
    sampling_window,
    set_up,
    time_limit,
)
from sim.experiments.spec import Spec
from sim.experiments.user_arrays import load_inputs, padded
from sim.experiments.variants import POLICIES, THRESHOLDS
from sim.golden.arithmetic import pattern_type
from sim.golden.matmul import partial_products
from sim.host.address_space import ARRAY_BASE, input_base
from sim.host.program import host_program
from sim.host.range_entries import range_words
from sim.host.register_writes import arbiter_writes, range_writes, window_write
from sim.host.tiling import Tiling
from sim.models.gemm import GemmWord
from sim.models.seeded_bugs import SEEDED_BUGS
from sim.simulator.memory_image import to_sectors, write_hex
from sim.workloads.calibration import COMPUTE_UNITS, gemm_cycles

INPUT_SECTORS = 1 << 16
STORAGE_SECTORS = 1 << 18
LATE_MARGIN = 2000
"""Cycles that arming a rank may take besides sweeping the trigger table."""
PLAIN_RANGES = 2
"""Ranges of plain memory: the GEMM's operands and the Tracker's backing store."""


@dataclass(frozen=True)
class ArrayWork:
    """`partials`: bit patterns of shape (gpus, gpus * rows, columns), one whole output array per GPU, chunk c being
    rows c*rows..(c+1)*rows; `tiling`: how one chunk is cut."""

    partials: np.ndarray
    tiling: Tiling


def arming_cycles(config: Configuration) -> int:
    """Cycles after which a rank that is told to arm is armed."""
    return LATE_MARGIN + config.trigger_blocks


def array_work(spec: Spec) -> ArrayWork:
    """What the GPUs store: real products of random matrices, or the user's arrays."""
    m, n, k = spec.shape
    if spec.inputs:
        partials = padded(load_inputs(Path(spec.inputs), spec.dtype).patterns)
        if partials.shape != (spec.gpus, m, n):
            raise UsageError(f"{spec.inputs} does not hold arrays for {spec.gpus} GPUs of {m} x {n} elements")
    else:
        partials = partial_products(spec.gpus, m, n, max(k, 1), spec.dtype, np.random.default_rng(spec.seed))
    return ArrayWork(partials, spec.tiling())


def node_of(spec: Spec, tiling: Tiling) -> Configuration:
    """The hardware, with as many ranges and trigger-table entries as this ring needs.

    The ring's size it is made for is what its ranges suffice for, so that rings of 2 to 8 run on one build.
    """
    config = spec.hardware
    program = program_of(spec)
    needed = needs(program, config, arrays_at(program, tiling), spec.dma_block or spec.wfs)
    config = with_room(config, needed, PLAIN_RANGES)
    return replace(config, gpus=config.ranges // 2)


def _slots(spec: Spec, tiling: Tiling) -> int:
    return COMPUTE_UNITS if spec.schedule == "staggered" else tiling.workgroups


def gemm_words(spec: Spec, config: Configuration, tiling: Tiling, rank: int, fill_element: int) -> dict[str, int]:
    """Parameters of the GEMM engine of `rank`; `fill_element`: what zeroing leaves in every element."""
    gpus, depth, slots, program = spec.gpus, spec.shape[2], _slots(spec, tiling), program_of(spec)
    chunks = program.gemm(rank).chunks
    distances = {(after - before) % gpus for before, after in itertools.pairwise(chunks)}
    if len(distances) > 1:
        raise UsageError(f"the simulated GEMM takes chunks at equal distances only, {program.name} has {chunks}")
    stages = len(chunks) * math.ceil(tiling.workgroups / slots)
    elements = len(chunks) * tiling.rows * tiling.columns
    scale = TOTAL_CHANNELS / config.channels
    reads = cycles = 0
    if depth:
        total = gemm_cycles(elements, depth) * scale
        input_bytes = (len(chunks) * tiling.rows + tiling.columns) * depth * tiling.dtype_bytes
        reads = math.ceil(input_bytes / SECTOR_BYTES / stages)
        stores = elements * tiling.dtype_bytes / SECTOR_BYTES / stages
        cycles = max(0, round(total / stages - reads - stores))

    def mask(row_bytes: int) -> int:
        return (1 << (row_bytes % SECTOR_BYTES or SECTOR_BYTES)) - 1

    if rank == spec.late_rank and spec.late_cycles:
        cycles += spec.late_cycles + arming_cycles(config)
    fill = {2: 0x10001, 4: 1}[tiling.dtype_bytes]
    return {
        "ARRAY_BASE": ARRAY_BASE,
        "CHUNK_SECTORS": tiling.sectors,
        "FIRST_CHUNK": chunks[0],
        "CHUNK_STEP": distances.pop() if distances else 0,
        "CHUNKS": len(chunks),
        "WGS_PER_CHUNK": tiling.workgroups,
        "WG_STRIDE": workgroup_stride(config, tiling),
        "TILE_COLUMNS": tiling.tiles_across,
        "BODY_SECTORS": math.ceil(tiling.body_bytes / SECTOR_BYTES),
        "RIGHT_SECTORS": math.ceil(tiling.right_bytes / SECTOR_BYTES),
        "BODY_MASK": mask(tiling.body_bytes),
        "RIGHT_MASK": mask(tiling.right_bytes),
        "PITCH": tiling.pitch_sectors,
        "TILE_ROW_STRIDE": tiling.tile_rows * tiling.pitch_sectors,
        "WF_STRIDE": tiling.wf_rows * tiling.pitch_sectors,
        "WFS": tiling.wfs,
        "WF_ROWS": tiling.wf_rows,
        "LAST_TILE_ROWS": tiling.bottom_rows,
        "TILE_ROWS": tiling.tiles_down,
        "SLOTS": slots,
        "COMPUTE_CYCLES": cycles,
        "STAGE_READS": reads,
        "INPUT_BASE": input_base(config.channels),
        "INPUT_MASK": INPUT_SECTORS - 1,
        "STALL": forced_idle(spec),
        "FILL": fill * fill_element & 0xFFFF_FFFF,
    }


def array_job(spec: Spec, work: ArrayWork) -> Job:
    """The run of `work`."""
    gpus, tiling, program = spec.gpus, work.tiling, program_of(spec)
    config = node_of(spec, tiling)
    array = gpus * tiling.sectors
    arrays = sum(item.chunks for item in program.arrays) * tiling.sectors
    inputs = (input_base(config.channels), INPUT_SECTORS)
    programs = compiled_ring(spec, config, tiling, gpus, inputs, behind_arrays(arrays))
    gemm = [gemm_words(spec, config, tiling, node.rank, node.fill_element) for node in programs]
    # For the GEMM alone, its stores are plain.
    plain = [(ARRAY_BASE, array), inputs]
    before = [
        *arbiter_writes(
            config, POLICIES[spec.variant.policy], THRESHOLDS[spec.variant.threshold], spec.starvation_limit
        ),
        window_write(config, ARRAY_BASE),
        *fault_writes(spec, config),
        *(
            write
            for index, (base, sectors) in enumerate(plain)
            for write in range_writes(config, index, range_words(config, base=base, sectors=sectors))
        ),
    ]
    late = [spec.late_rank] if spec.late_cycles else []
    numbered = [{GemmWord[name].value: value for name, value in words.items()} for words in gemm]
    phases, commands = host_program(config, numbered, [before] * gpus, set_up(config, programs), late)
    stages = gpus * math.ceil(tiling.workgroups / _slots(spec, tiling))
    cycles = max(words["COMPUTE_CYCLES"] for words in gemm) * stages
    link = gpus * arrays * SECTOR_BYTES / config.link_bytes_per_cycle
    written = arrays + backing_sectors(program, config, arrays_at(program, tiling))
    return Job(
        build=Build(
            config,
            gpus,
            storage_sectors=max(STORAGE_SECTORS, channel_sectors(config, written)),
            source_sectors=max(STORAGE_SECTORS, 1 << (array - 1).bit_length()),
            seeded_bugs=spec.bug in SEEDED_BUGS,
        ),
        session={
            "fill": spec.initial == "zeroing",
            "alone": spec.alone,
            "stall": forced_idle(spec),
            "bit_errors": (spec.bit_errors, spec.seed),
            "timeout": _timeout(spec, config, cycles, link, arrays),
            "late_cycles": spec.late_cycles,
            "doorbells": False,
            "phases": phases,
        },
        program=tuple(commands),
        plusargs={"source": Path("source"), "seeded_bug": spec.bug or "none"},
        write_inputs=partial(_write_sources, work),
        window=sampling_window(cycles + link),
        results=results_of(program, tiling),
        pattern=pattern_type(spec.dtype),
        nodes=tuple(programs),
    )


def _timeout(spec: Spec, config: Configuration, cycles: int, link: float, array: int) -> int:
    """Cycles after which the run is given up."""
    timeout = time_limit(spec, cycles, link, array)
    if config.link_receive_packets * 8 * SECTOR_BYTES < 2 * config.link_latency * config.link_bytes_per_cycle:
        timeout += array * (2 * config.link_latency + 100) * 4
    return timeout


def _write_sources(work: ArrayWork, folder: Path) -> None:
    for rank, part in enumerate(work.partials):
        write_hex(folder / f"source{rank}.hex", to_sectors(part, work.tiling.pitch_sectors))
