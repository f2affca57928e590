"""Starts the simulator once for a job, and reads what came out."""

import resource
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sim.experiments.job import Job
from sim.simulator.build_folder import silent
from sim.simulator.command_log import read_log
from sim.simulator.fast_model import build_system
from sim.simulator.machine import processors
from sim.simulator.memory_image import from_sectors, gather_channels, read_hex, stacked
from sim.simulator.process import record_coverage, run_simulator
from sim.simulator.profile import histogram_environment, seconds_by_part
from sim.simulator.read_latencies import read_latencies
from sim.simulator.recording import Recording, begin_of, read_recording
from sim.simulator.run_folder import run_folder
from sim.simulator.samples import read_samples
from sim.simulator.session import SESSION, session_text
from sim.simulator.session_result import read_result
from sim.simulator.wave_view import write_view
from sim.topologies.ring import ring
from sim.topologies.switch import Switch

Progress = Callable[[str], None]
"""Is told what is being done."""

QUANTUM = 0
"""Cycles by which GPUs are advanced at a time; 0: the latency of their links. No figure depends on it."""
RECORDED = "recorded"
"""First part of the names of the files in which a run is recorded."""


@dataclass(frozen=True)
class Seconds:
    """Wall time: `build` (0 when cached), `prepare`, `simulate` (reset to the dump of the memories), `check` (what
    comes after). `python` is processor time of everything but `build` and `simulate`, of which
    `simulate_processor` is the processor time."""

    build: float
    prepare: float
    simulate: float
    check: float
    simulate_processor: float
    python: float


@dataclass(frozen=True)
class Outcome:
    """`ranks`: status (:func:`sim.models.gpu.gpu_status`) and `registers` of every simulated rank; `samples`: lines of
    `sampler.sv` of rank 0; `reduced[r]`: what rank r holds of its result, as bit patterns, None without data;
    `logs[r]`: its column commands (:func:`sim.simulator.command_log.read_log`), None when they were not wanted;
    `alone_cycles`: the longest GEMM by itself, 0 when it was not run alone; `model`: folder of the simulator;
    `recordings`: of every rank, when it was asked for; `flipped_bits`: bits that arrived wrong on links;
    `read_latencies`: reads of the compute units of all ranks by the cycles they took; `switch_busy`: by lane of a
    switch, cycles in which each link from it moved bytes; `switch_stray`: a packet came to it that was for no GPU;
    `profile`: processor seconds by part of what was simulated, when that was asked for."""

    ranks: list[dict[str, Any]]
    samples: np.ndarray
    finished: bool
    reduced: np.ndarray | None
    alone_cycles: int
    seconds: Seconds
    model: Path
    logs: list[np.ndarray] | None = None
    recordings: tuple[Recording, ...] = ()
    flipped_bits: int = 0
    read_latencies: Mapping[int, int] = field(default_factory=dict)
    switch_busy: tuple[tuple[int, ...], ...] = ()
    switch_stray: bool = False
    profile: Mapping[str, float] = field(default_factory=dict)


def run_job(
    job: Job,
    progress: Progress = silent,
    waves: Path | None = None,
    recorded: bool = False,
    threads: int = 1,
    profiled: bool = False,
) -> Outcome:
    """Build what has to be built and run `job` on so many `threads` (0: as there are cores), at most one for each GPU;
    with `waves`, an FST file of all signals is left there, by one thread; when it is to be `recorded`, what happened is
    read too. Nothing but the time that it takes depends on `threads`. When it is `profiled`, it is found out what takes
    the simulator's time.

    Raises :class:`sim.errors.SimulationError` when the simulator fails, :class:`sim.errors.MachineError` when the
    machine does.
    """
    began = time.perf_counter()
    build = job.build
    model = build_system(
        build.config,
        build.storage_sectors,
        build.source_sectors,
        build.seeded_bugs,
        build.plans,
        shared=build.topology is not None and build.topology.shared,
        switch_gpus=build.nodes if isinstance(build.topology, Switch) else 0,
        waves=waves is not None,
        optimize=build.optimize,
        tell=progress,
        profiled=profiled,
    )
    built, worked = time.perf_counter(), processor_seconds()
    with run_folder(model) as folder:
        progress("writing what the GPUs compute")
        arguments = write_inputs(job, folder, threads, waves is not None)
        if recorded or waves is not None:
            arguments.append(f"+timeline={folder / RECORDED}")
        progress("simulating")
        started = time.perf_counter()
        run_simulator(model, folder, arguments, histogram_environment(folder) if profiled else None)
        simulated = time.perf_counter()
        progress("reading the result")
        result = read_result(folder, build.config)
        if result["finished"]:
            record_coverage(model, folder)
        profile = seconds_by_part(model, folder) if profiled else {}
        samples = read_samples(folder, 0)
        latencies = read_latencies(folder / f"read_latencies{rank}.txt" for rank in range(build.nodes))
        ranks = range(build.nodes if recorded else 0)
        recordings = tuple(read_recording(folder, RECORDED, rank, build.config) for rank in ranks)
        reduced = None if job.pattern is None else read_results(job, folder)
        channels = build.config.channels
        logs = [read_log(folder, rank, channels) for rank in range(build.nodes)] if job.log else None
        if waves is not None:
            shutil.move(folder / "dump.fst", waves)
            write_view(waves, build.config, build.nodes, begin_of(folder, RECORDED, build.config))
    inside = sum(result["seconds"].values())
    seconds = Seconds(
        build=built - began,
        prepare=started - built,
        simulate=inside,
        check=time.perf_counter() - simulated + (simulated - started - inside),
        simulate_processor=result["processor_seconds"],
        python=processor_seconds() - worked - result["processor_seconds"],
    )
    alone = max(result["alone"], default=0)
    return Outcome(
        *(result["ranks"], samples, result["finished"], reduced, alone, seconds, model, logs, recordings),
        flipped_bits=result["flipped_bits"],
        read_latencies=latencies,
        switch_busy=tuple(map(tuple, result["switch_busy"])),
        switch_stray=result["switch_stray"],
        profile=profile,
    )


def write_inputs(job: Job, folder: Path, threads: int, waves: bool = False) -> list[str]:
    """Write what the simulation reads into `folder`; its arguments."""
    job.write_inputs(folder)
    build = job.build
    wiring = build.topology or ring(build.nodes, build.config.links)
    text = session_text(build.config, wiring, job.session, threads or processors(), QUANTUM, waves, build.nodes)
    (folder / SESSION).write_text(text)
    (folder / "program.hex").write_text("".join(f"{command:016x}\n" for command in job.program))
    ends = [held.first + held.tiling.sectors for chunks in job.results for held in chunks]
    held = max(ends) if job.pattern is not None else 0
    plusargs = {
        "samples": Path("samples"),
        "sample_window": job.window,
        **({"sampled_to_done": 1} if job.nodes else {}),
        "read_latencies": Path("read_latencies"),
        "hbm_dump": Path("dump"),
        "hbm_dump_sectors": -(-held // job.build.config.channels // 8) * 8 + 8,
        **({"command_log": Path("log")} if job.log else {}),
        **job.plusargs,
    }
    return [f"+{name}={folder / value if isinstance(value, Path) else value}" for name, value in plusargs.items()]


def read_results(job: Job, folder: Path) -> np.ndarray:
    """What each rank holds of its result: shape (gpus, rows, columns), or (gpus, elements) of chunks of different
    widths, zeros behind those of ranks that hold less."""
    assert job.pattern is not None
    channels = job.build.config.channels
    answer = []
    for rank, chunks in enumerate(job.results):
        dumps = [read_hex(folder / f"dump{rank * channels + channel}.hex") for channel in range(channels)]
        found = []
        for first, tiling in chunks:
            sectors = gather_channels(dumps, first, tiling.sectors)
            found.append(from_sectors(sectors, tiling.rows, tiling.columns, np.dtype(job.pattern)))
        alike = len({chunk.shape[1] for chunk in found}) == 1
        answer.append(np.concatenate(found) if alike else np.concatenate([chunk.ravel() for chunk in found]))
    return stacked(answer)


def processor_seconds() -> float:
    """Of this thread, because a worker of a sweep has others, and of the processes that were waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime
