"""A GEMM + ring reduce-scatter through the RTL, from arrays to a checked result."""

import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cocotb_tools.check_results import get_results

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import AluOperation, DataType, Policy, Threshold
from sim.collectives.compiler import NodeProgram, Placement, compile_program, home_sectors, needs, workgroup_stride
from sim.collectives.program import Program
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.errors import SimulationError, UsageError
from sim.host.address_space import ARRAY_BASE
from sim.host.program import host_program
from sim.host.range_entries import range_words
from sim.host.register_writes import arbiter_writes, range_writes, register_write
from sim.host.tiling import Tiling
from sim.models.gemm import GemmWord
from sim.simulator.coverage_hook import installed
from sim.simulator.fast_model import FastVerilator, build_system
from sim.simulator.memory_image import from_sectors, gather_channels, read_hex, to_sectors, write_hex
from sim.simulator.samples import mean_occupancy, read_samples
from sim.simulator.session_result import read_result
from sim.simulator.verilator import BUILD
from sim.simulator.wave_view import write_view
from sim.topologies.ring import ring

INPUT_BASE = ARRAY_BASE + (1 << 29)
INPUT_SECTORS = 1 << 16
STORAGE_SECTORS = 1 << 18
LATE_MARGIN = 2000
"""Cycles that arming a rank may take besides sweeping the trigger table."""
PATTERN = {DataType.FP16: np.uint16, DataType.BF16: np.uint16, DataType.FP32: np.uint32, DataType.INT32: np.uint32}
PEAK_FLOPS = 114.7e12 * 0.9
"""Machine PAPER: a GEMM alone takes 2MNK / (PEAK_FLOPS * K / (K + 200)) seconds: `sim/workloads/calibration.py`."""


@dataclass(frozen=True)
class RingTask:
    """One run: the array each GPU holds, how it is tiled, and how the ring treats it.

    `partials`: bit patterns of shape (gpus, gpus * rows, columns), one whole output array per GPU; chunk c is rows
    c*rows..(c+1)*rows. `depth` is K of the GEMM, from which compute time and input reads follow (0: neither).
    `pauses` is the share of idle cycles forced on every interface, 0 to 0.9. `wrong_order` is the seeded software bug
    that runs the ring against the order of the golden; `bug` a fault of a configuration
    with `seeded_bug` "chosen". With `late_cycles`, rank `late_rank` is armed that many cycles
    after the others have started, and its GEMM stores nothing before that.
    """

    config: Configuration
    partials: np.ndarray
    tiling: Tiling
    dtype: DataType = DataType.FP16
    op: AluOperation = AluOperation.ADD
    block_wfs: int = 8
    direction: int = 1
    first_touch: bool = True
    policy: Policy = Policy.MCA
    threshold: Threshold = Threshold.AUTO
    starvation_limit: int = 2000
    slots: int = 80
    depth: int = 0
    pauses: float = 0.0
    alone: bool = False
    seed: int = 1
    epoch: int = 1
    waves: Path | None = None
    wrong_order: bool = False
    bug: str = ""
    late_rank: int = 0
    late_cycles: int = 0

    @property
    def gpus(self) -> int:
        """GPUs on the ring."""
        return len(self.partials)

    @property
    def program(self) -> Program:
        """The collective."""
        return self._program(self.direction)

    @property
    def compiled(self) -> Program:
        """The collective that the nodes are programmed with: with `wrong_order` another one."""
        return self._program(-self.direction if self.wrong_order else self.direction)

    def _program(self, direction: int) -> Program:
        names = self.dtype.name.lower(), self.op.name.lower()
        return ring_reduce_scatter(self.gpus, direction, *names, self.first_touch)

    @property
    def placements(self) -> dict[str, Placement]:
        """Where the output lies."""
        return {"output": Placement(ARRAY_BASE, self.tiling)}


@dataclass(frozen=True)
class RingOutcome:
    """What came out: `reduced[r]` is chunk r as rank r holds it; `ranks` the status and counters of every rank.

    `occupancy`: requests in rank 0's DRAM queues, mean per channel over each `window` cycles of the collective.
    """

    reduced: np.ndarray
    ranks: list[dict[str, Any]]
    plans: list[NodeProgram]
    finished: bool
    alone_cycles: int
    cycles: int
    gemm_cycles: int
    window: int
    occupancy: list[float]
    simulate_seconds: float
    total_seconds: float
    folder: Path

    @property
    def faults(self) -> list[str]:
        """What the checkers of the simulation saw, one sentence each."""
        answer = [] if self.finished else ["the collective did not complete"]
        for rank, status in enumerate(self.ranks):
            registers = status["registers"]
            if status["violation"]:
                answer.append(f"rank {rank} broke DRAM timing rule {status['violation_rule']}")
            if status["stray"]:
                answer.append(f"rank {rank} wrote outside the modelled DRAM")
            if status["read_error"]:
                answer.append(f"rank {rank} had a read refused")
            if registers["fault_count"]:
                answer.append(
                    f"rank {rank} recorded {registers['fault_count']} faults, the first {registers['fault_record']:#x}"
                )
            if registers["tracker_triggers"] != status["expected_triggers"]:
                answer.append(
                    f"rank {rank} triggered {registers['tracker_triggers']} WF tiles, not {status['expected_triggers']}"
                )
        return answer


PLAIN_RANGES = 2
"""Ranges of plain memory: the GEMM's operands and the Tracker's home table."""


def sized_for(task: RingTask) -> Configuration:
    """The task's configuration with as many ranges and trigger-table entries as its collective needs.

    The ring's size it is made for is what its ranges suffice for, so that rings of 2 to 8 run on one build.
    """
    config = task.config
    needed = needs(task.program, config, task.placements, task.block_wfs)
    ranges = max(config.ranges, 1 << (needed.ranges + PLAIN_RANGES - 1).bit_length())
    blocks = max(config.trigger_blocks, 1 << (needed.trigger_entries - 1).bit_length())
    return replace(config, gpus=ranges // 2, ranges=ranges, trigger_blocks=blocks)


def gemm_words(task: RingTask, rank: int) -> dict[str, int]:
    """Parameters of the GEMM engine of `rank`."""
    tiling, gpus = task.tiling, task.gpus
    chunks = task.program.gemm(rank).chunks
    distances = {(after - before) % gpus for before, after in itertools.pairwise(chunks)}
    if len(distances) != 1:
        raise UsageError(f"the simulated GEMM takes chunks at equal distances only, {task.program.name} has {chunks}")
    stages = gpus * math.ceil(tiling.workgroups / task.slots)
    elements = gpus * tiling.rows * tiling.columns
    scale = TOTAL_CHANNELS / task.config.channels
    reads = cycles = 0
    if task.depth:
        total = 2 * elements * task.depth / (PEAK_FLOPS * task.depth / (task.depth + 200)) * 1e9 * scale
        input_bytes = (gpus * tiling.rows + tiling.columns) * task.depth * tiling.dtype_bytes
        reads = math.ceil(input_bytes / SECTOR_BYTES / stages)
        stores = elements * tiling.dtype_bytes / SECTOR_BYTES / stages
        cycles = max(0, round(total / stages - reads - stores))

    def mask(row_bytes: int) -> int:
        return (1 << (row_bytes % SECTOR_BYTES or SECTOR_BYTES)) - 1

    if rank == task.late_rank and task.late_cycles:
        cycles += task.late_cycles + LATE_MARGIN + task.config.trigger_blocks
    fill = {2: 0x10001, 4: 1}[tiling.dtype_bytes]
    return {
        "ARRAY_BASE": ARRAY_BASE,
        "CHUNK_SECTORS": tiling.sectors,
        "FIRST_CHUNK": chunks[0],
        "CHUNK_STEP": distances.pop(),
        "CHUNKS": gpus,
        "WGS_PER_CHUNK": tiling.workgroups,
        "WG_STRIDE": workgroup_stride(task.config, tiling),
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
        "SLOTS": task.slots,
        "COMPUTE_CYCLES": cycles,
        "STAGE_READS": reads,
        "INPUT_BASE": INPUT_BASE,
        "INPUT_MASK": INPUT_SECTORS - 1,
        "PAUSE": round(task.pauses * 256),
        "FILL": fill,
    }


def _job(task: RingTask, config: Configuration) -> tuple[dict[str, Any], list[int], list[NodeProgram]]:
    """What the simulation is to do, its register program, and each rank's plan."""
    gpus = task.gpus
    array = gpus * task.tiling.sectors
    home = ARRAY_BASE + -(-array // 8) * 8
    inputs = (INPUT_BASE, INPUT_SECTORS)
    plans, setup, before, gemm = [], [], [], []
    for rank in range(gpus):
        plan = compile_program(
            task.compiled,
            config,
            ring(gpus, config.links, -task.direction if task.wrong_order else task.direction),
            rank,
            task.placements,
            epoch=task.epoch,
            block_wfs=task.block_wfs,
            plain=[inputs],
            home=home,
        )
        arbiter = arbiter_writes(config, task.policy, task.threshold, task.starvation_limit)
        enable = register_write(config, "interrupt_enable", fault=1)
        clear = register_write(config, "control", clear_counters=1)
        setup.append([*plan.writes, clear])
        plain = [
            range_words(config, base=ARRAY_BASE, sectors=array),
            range_words(config, base=inputs[0], sectors=inputs[1]),
        ]
        before.append([*arbiter, enable, *range_writes(config, 0, plain[0]), *range_writes(config, 1, plain[1])])
        words = gemm_words(task, rank)
        words["FILL"] = (words["FILL"] * plan.fill_element) & 0xFFFF_FFFF
        gemm.append(words)
        plans.append(plan)
    cycles = max(words["COMPUTE_CYCLES"] * gpus * math.ceil(task.tiling.workgroups / task.slots) for words in gemm)
    link = gpus * array * SECTOR_BYTES / config.link_bytes_per_cycle
    timeout = int((2 * cycles + 3 * link + 60 * array + 200_000) * (1 + 12 * task.pauses))
    if config.link_receive_packets * 8 * SECTOR_BYTES < 2 * config.link_latency * config.link_bytes_per_cycle:
        timeout += array * (2 * config.link_latency + 100) * 4
    late = [task.late_rank] if task.late_cycles else []
    numbered = [{GemmWord[name].value: value for name, value in words.items()} for words in gemm]
    phases, program = host_program(config, numbered, before, setup, late)
    return (
        {
            "gpus": gpus,
            "fill": not task.first_touch,
            "alone": task.alone,
            "pause": round(task.pauses * 256),
            "timeout": timeout,
            "late_cycles": task.late_cycles,
            "phases": phases,
            "window": 1 << max(4, int(cycles + link).bit_length() - 8),
        },
        program,
        plans,
    )


def simulate_ring(task: RingTask, progress: Callable[[str], None] = lambda stage: None) -> RingOutcome:
    """Build what has to be built, run `task`, and return what the GPUs hold in the end.

    Raises :class:`sim.errors.SimulationError` when the simulator itself fails.
    """
    began = time.perf_counter()
    config = sized_for(task)
    job, program, plans = _job(task, config)
    table = home_sectors(task.program, config, task.placements)
    needed = (task.gpus * task.tiling.sectors + table) // config.channels + 8
    storage = max(STORAGE_SECTORS, 1 << needed.bit_length())
    source = max(STORAGE_SECTORS, 1 << (task.gpus * task.tiling.sectors - 1).bit_length())
    progress("building the simulator")
    model = build_system(config, ring(task.gpus, config.links), storage, source, waves=task.waves is not None)
    folder = model / "runs" / f"{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(parents=True)
    try:
        for rank, partial in enumerate(task.partials):
            write_hex(folder / f"source{rank}.hex", to_sectors(partial, task.tiling.pitch_sectors))
        (folder / "job.json").write_text(json.dumps(job))
        (folder / "program.hex").write_text("".join(f"{command:016x}\n" for command in program))
        progress("simulating")
        plusargs = [
            f"+source={folder}/source",
            f"+seeded_bug={task.bug or 'none'}",
            f"+hbm_dump={folder}/dump",
            f"+hbm_dump_sectors={-(-task.gpus * task.tiling.sectors // task.config.channels // 8) * 8 + 8}",
            f"+program={folder}/program.hex",
            f"+answers={folder}/answers.txt",
            f"+samples={folder}/samples",
            f"+sample_window={job['window']}",
        ]
        run_simulator(model, folder, task.seed, plusargs, task.waves is not None)
        result = read_result(folder, config)
        if result["finished"]:
            hook = installed()
            if hook:
                hook.record(model, folder)
        progress("reading the result")
        samples = read_samples(folder, 0)
        # The collective leaves one chunk on each rank.
        first = [task.program.result(rank)[0].chunk * task.tiling.sectors for rank in range(task.gpus)]
        reduced = []
        for rank in range(task.gpus):
            dumps = [
                read_hex(folder / f"dump{rank * config.channels + channel}.hex") for channel in range(config.channels)
            ]
            sectors = gather_channels(dumps, first[rank], task.tiling.sectors)
            reduced.append(from_sectors(sectors, task.tiling.rows, task.tiling.columns, np.dtype(PATTERN[task.dtype])))
        if task.waves is not None:
            shutil.move(folder / "dump.fst", task.waves)
            write_view(task.waves, config, task.gpus)
    finally:
        if not os.environ.get("T3_KEEP_RUNS"):
            shutil.rmtree(folder, ignore_errors=True)
    for status, plan in zip(result["ranks"], plans, strict=True):
        status["expected_triggers"] = plan.expected_triggers
    return RingOutcome(
        reduced=np.stack(reduced),
        ranks=result["ranks"],
        plans=plans,
        finished=result["finished"],
        alone_cycles=max(result["alone"], default=0),
        cycles=max(status["done_cycles"] for status in result["ranks"]),
        gemm_cycles=max(status["gemm_cycles"] for status in result["ranks"]),
        window=job["window"],
        occupancy=mean_occupancy(samples, config.channels),
        simulate_seconds=result["seconds"]["simulate"],
        total_seconds=time.perf_counter() - began,
        folder=model,
    )


def run_simulator(model: Path, folder: Path, seed: int, plusargs: list[str], waves: bool = False) -> None:
    """One process of the simulator in `model`, its files in `folder`."""
    runner = FastVerilator()
    runner.build_dir = model
    runner.waves = waves
    log = folder / "run.log"
    root = str(BUILD.parent)
    # The session's assertions need no rewriting by pytest, which would compile anew every module that it imports.
    environment = {
        "T3_JOB": str(folder / "job.json"),
        "PYTHONPATH": root,
        "COCOTB_REWRITE_ASSERTION_FILES": "",
    }
    try:
        results = runner.test(
            hdl_toplevel="ring_top",
            hdl_toplevel_lang="verilog",
            test_module="sim.simulator.session",
            seed=seed,
            build_dir=model,
            test_dir=folder,
            results_xml=str(folder / "results.xml"),
            plusargs=plusargs,
            extra_env=environment,
            log_file=log,
            waves=waves,
        )
        tests, failed = get_results(results)
    except (SystemExit, RuntimeError) as error:
        raise SimulationError(f"the simulator stopped: {error}\n{_tail(log)}") from error
    if failed or not tests:
        raise SimulationError(f"the simulation failed\n{_tail(log)}")


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
