"""Runs kernels of a sub-layer on the RTL: programs the nodes, writes plans, simulates, reads what came out."""

import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hw.config import SECTOR_BYTES, Configuration
from hw.messages import Access, Mapping, Phase, Policy, Threshold
from sim.collectives.compiler import NodeProgram, Placement, compile_program, needs
from sim.collectives.program import Program
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.experiments.ring_run import run_simulator
from sim.host.address_space import ARRAY_BASE
from sim.host.program import host_program
from sim.host.range_entries import range_words
from sim.host.register_writes import Write, arbiter_writes, range_writes, register_write, wide_writes
from sim.host.tiling import Tiling
from sim.simulator.fast_model import build_system
from sim.simulator.memory_image import from_sectors, gather_channels, read_hex
from sim.simulator.samples import read_samples
from sim.simulator.session_result import read_result
from sim.topologies.ring import ring
from sim.workloads.kernel_plans import KernelPlan, write_plan
from sim.workloads.sublayer import SubLayer

SAMPLES = 200
"""Windows of a timeline, about."""
LONG = 500_000
"""Cycles from which on a run makes up for the time that better optimized code takes to compile."""
DIRECT_TILE_ROWS = 1 << 15
STORAGE_SECTORS = 1 << 19
"""Sectors of a channel's model, enough for all of Table 2, so that one build serves them."""


@dataclass(frozen=True)
class SubLayerTask:
    """One simulation. `kernels[rank]` are the plans of a rank, one entry in all when the run is mirrored.

    `overlapped`: the nodes do the reduce-scatter while the GEMM stores, else memory is plain. `near_memory`: stores
    through the output window are added by the neighbour's memory. `pace`: for policy PACED, cycles per communication
    request of a channel. `boundary_none`: requests in the detector's window from which AUTO is threshold 30; 0: as
    reset gives it. `expected_cycles`: how long it should take at most, from which the time limit and the windows of the
    timeline follow.
    """

    layer: SubLayer
    config: Configuration
    kernels: tuple[tuple[KernelPlan, ...], ...]
    overlapped: bool
    policy: Policy
    threshold: Threshold
    starvation_limit: int
    expected_cycles: int
    near_memory: bool = False
    pace: int = 0
    boundary_none: int = 0
    seed: int = 1

    @property
    def program(self) -> Program:
        """The collective whose data the GEMM produces."""
        return ring_reduce_scatter(self.layer.gpus)

    @property
    def mirrored(self) -> bool:
        """Whether one node stands for all."""
        return len(self.kernels) == 1


@dataclass(frozen=True)
class SubLayerOutcome:
    """`ranks`: status (:func:`sim.models.gpu.gpu_status`) and `registers` of every simulated rank; `samples[rank]`:
    lines of `sampler.sv`; `reduced[r]`: what rank r holds of chunk r, as bit patterns, None when mirrored; seconds of
    wall time. Of processor time: `simulate_processor` from reset to the dump of the memories, `python_processor` all
    else but the build: plans, start and end of the simulator's process, reading its files."""

    ranks: list[dict[str, Any]]
    samples: list[np.ndarray]
    window: int
    finished: bool
    reduced: np.ndarray | None
    build_seconds: float
    prepare_seconds: float
    simulate_seconds: float
    collect_seconds: float
    simulate_processor: float
    python_processor: float

    @property
    def faults(self) -> list[str]:
        """What the checkers of the simulation saw, one sentence each."""
        answer = [] if self.finished else ["the run did not complete"]
        for rank, status in enumerate(self.ranks):
            registers = status["registers"]
            for name, text in {
                "violation": f"broke DRAM timing rule {status['violation_rule']}",
                "stray": "wrote outside the modelled DRAM",
                "read_error": "had a read refused",
            }.items():
                if status[name]:
                    answer.append(f"rank {rank} {text}")
            if registers["fault_count"]:
                answer.append(
                    f"rank {rank} recorded {registers['fault_count']} faults, the first {registers['fault_record']:#x}"
                )
        return answer


PLAIN_RANGES = 4
"""Ranges beside the collective's: operands, home table, gathered output, and the window to the neighbour's."""


def sized_for(task: SubLayerTask) -> Configuration:
    """The task's configuration with the ranges and trigger-table entries that it needs, or more if it has them; for
    plain memory a few ranges do."""
    config, layer = task.config, task.layer
    if not task.overlapped:
        return replace(config, gpus=8, ranges=16)
    needed = needs(task.program, config, placements(layer), layer.tiling.wfs)
    ranges = max(16, config.ranges, 1 << (needed.ranges + PLAIN_RANGES - 1).bit_length())
    blocks = max(config.trigger_blocks, 1 << (needed.trigger_entries - 1).bit_length())
    return replace(config, gpus=max(8, config.gpus, layer.gpus), ranges=ranges, trigger_blocks=blocks)


def placements(layer: SubLayer) -> dict[str, Placement]:
    """Where the output lies."""
    return {"output": Placement(ARRAY_BASE, layer.tiling)}


def _window(
    config: Configuration, index: int, base: int, sectors: int, target: int, phase: Phase, access: Access, peer: int
) -> list[Write]:
    """Range `index`: stores to it go to `target` of the neighbour."""
    region = Tiling(
        rows=sectors, columns=SECTOR_BYTES // 2, tile_rows=DIRECT_TILE_ROWS, tile_columns=SECTOR_BYTES // 2, wfs=1
    )
    words = range_words(
        config,
        base=base,
        tiling=region,
        mapping=Mapping.REMOTE,
        remote_access=access,
        phase=phase,
        peer=peer,
        offset=target - base,
    )
    return range_writes(config, index, words)


def node_setup(task: SubLayerTask, config: Configuration, rank: int) -> tuple[list[Write], NodeProgram | None]:
    """Register writes that program `rank`, and the plan of its reduce-scatter when the hardware does it."""
    layer, memory = task.layer, task.layer.memory
    # Kernels that communicate store to the peer that an all-gather's chunks go to.
    (peer,) = {send.peer for region in ring_all_gather(layer.gpus).regions(rank) for send in region.sends}
    inputs = (memory.inputs, 1 << 23)
    plan = None

    def plain(index: int, base: int, sectors: int, phase: Phase) -> list[Write]:
        return range_writes(config, index, range_words(config, base=base, sectors=sectors, phase=phase))

    if task.overlapped:
        plan = compile_program(
            task.program,
            config,
            ring(layer.gpus, config.links),
            rank,
            placements(layer),
            block_wfs=layer.tiling.wfs,
            plain=[inputs],
            home=memory.home_base,
        )
        writes = list(plan.writes)
        free = len(plan.ranges) + 2
    else:
        writes = [
            register_write(config, "rank", rank=rank),
            *wide_writes(config, "route", 0),
            register_write(config, "epoch", epoch=1),
            register_write(config, "expected_blocks", expected_blocks=0),
            *plain(0, ARRAY_BASE, memory.array, Phase.RS),
            *plain(1, *inputs, Phase.OTHER),
            *plain(2, memory.staging, memory.array, Phase.RS),
            *_window(config, 3, memory.staging_window, memory.array, memory.staging, Phase.RS, Access.STORE, peer),
        ]
        if task.near_memory:
            writes += _window(config, 4, memory.array_window, memory.array, ARRAY_BASE, Phase.RS, Access.UPDATE, peer)
        free = 5
    writes += plain(free, memory.gathered, memory.array, Phase.AG)
    writes += _window(
        config, free + 1, memory.gather_window, memory.array, memory.gathered, Phase.AG, Access.STORE, peer
    )
    return writes, plan


def _program(task: SubLayerTask, config: Configuration) -> tuple[dict[str, int], list[int], list[NodeProgram | None]]:
    setup, before, plans = [], [], []
    for rank in range(len(task.kernels)):
        writes, plan = node_setup(task, config, rank)
        setup.append([*writes, register_write(config, "control", clear_counters=1)])
        arbiter = arbiter_writes(config, task.policy, task.threshold, task.starvation_limit)
        if task.pace:
            arbiter.append(register_write(config, "pace", pace=task.pace))
        if task.boundary_none:
            name = "detector_boundary_none"
            arbiter.append(register_write(config, name, **{name: task.boundary_none}))
        before.append([*arbiter, register_write(config, "interrupt_enable", fault=1)])
        plans.append(plan)
    phases, program = host_program(config, [{} for _ in task.kernels], before, setup, [])
    return phases, program, plans


def simulate_sublayer(task: SubLayerTask, progress: Callable[[str], None] = lambda stage: None) -> SubLayerOutcome:
    """Build what has to be built, run `task`, and return what came out.

    Raises :class:`sim.errors.SimulationError` when the simulator itself fails.
    """
    began = time.perf_counter()
    layer = task.layer
    config = sized_for(task)
    wiring = ring(layer.gpus, config.links)
    needed = layer.memory.written // config.channels
    progress("building the simulator")
    optimize = "-O2" if task.expected_cycles > LONG else "-O1"
    storage = max(STORAGE_SECTORS, 1 << needed.bit_length())
    model = build_system(config, ring(len(task.kernels), config.links), storage, optimize=optimize)
    built, worked = time.perf_counter(), _processor_seconds()
    progress("writing the plans")
    phases, program, plans = _program(task, config)
    window = max(1, task.expected_cycles // SAMPLES)
    job = {
        "gpus": len(task.kernels),
        "fill": False,
        "alone": False,
        "pause": 0,
        "timeout": 4 * task.expected_cycles + 200_000,
        "late_cycles": 0,
        "phases": phases,
    }
    folder = model / "runs" / f"{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(parents=True)
    try:
        for rank, kernels in enumerate(task.kernels):
            write_plan(folder, rank, kernels)
        (folder / "job.json").write_text(json.dumps(job))
        (folder / "program.hex").write_text("".join(f"{command:016x}\n" for command in program))
        memory = layer.memory
        plusargs = {
            "plan": folder / "plan",
            "steps": folder / "steps",
            "samples": folder / "samples",
            "sample_window": window,
            "operand_seed": task.seed,
            "program": folder / "program.hex",
            "answers": folder / "answers.txt",
            "hbm_dump": folder / "dump",
            "hbm_dump_sectors": 8 if task.mirrored else layer.gpus * layer.tiling.sectors // config.channels + 8,
            "mirror_first": ARRAY_BASE,
            "mirror_second": memory.gathered,
            "mirror_sectors": layer.tiling.sectors,
            "mirror_chunks": layer.gpus,
            "mirror_workgroups": layer.workgroups,
            "mirror_shift": wiring.receives[wiring.sends[0].port].shift % layer.gpus,
        }
        progress("simulating")
        started = time.perf_counter()
        run_simulator(model, folder, task.seed, [f"+{name}={value}" for name, value in plusargs.items()])
        simulated = time.perf_counter()
        progress("reading the result")
        result = read_result(folder, config)
        samples = [read_samples(folder, rank) for rank in range(len(task.kernels))]
        reduced = None if task.mirrored else _reduced(layer, folder)
    finally:
        if not os.environ.get("T3_KEEP_RUNS"):
            shutil.rmtree(folder, ignore_errors=True)
    for status, plan in zip(result["ranks"], plans, strict=True):
        status["expected_triggers"] = plan.expected_triggers if plan else 0
    inside = sum(result["seconds"].values())
    return SubLayerOutcome(
        ranks=result["ranks"],
        samples=samples,
        window=window,
        finished=result["finished"],
        reduced=reduced,
        build_seconds=built - began,
        prepare_seconds=started - built,
        simulate_seconds=inside,
        collect_seconds=time.perf_counter() - simulated + (simulated - started - inside),
        simulate_processor=result["processor_seconds"],
        python_processor=_processor_seconds() - worked - result["processor_seconds"],
    )


def _processor_seconds() -> float:
    """Of this thread, because a worker of a sweep has others, and of the processes that were waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


def _reduced(layer: SubLayer, folder: Path) -> np.ndarray:
    tiling = layer.tiling
    answer = []
    for rank in range(layer.gpus):
        dumps = [read_hex(folder / f"dump{rank * layer.channels + channel}.hex") for channel in range(layer.channels)]
        sectors = gather_channels(dumps, rank * tiling.sectors, tiling.sectors)
        answer.append(from_sectors(sectors, tiling.rows, tiling.columns, np.dtype(np.uint16)))
    return np.stack(answer)
