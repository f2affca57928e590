"""Builds the simulator of systems of GPUs: one GPU and, around it, the C++ that advances as many as a system has.

Of a node of several lanes one lane is built, and the rest of the GPU; `sim/models/gpu_of_lanes.h` joins them. A switch
is a model beside the GPUs'.

What a run has beside the GPU, how many there are and how they are joined, it is told when it starts
(:mod:`sim.simulator.session`), so that a build serves systems of every size and topology. Nothing of the design is
exposed to C++ but the two packed ports of `gpu_shell`, so that Verilator can optimize across everything behind them.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hw.config import Configuration
from hw.export.verilog import to_systemverilog
from sim.models import ONE_MODEL_CHANNELS, included_texts, model_texts
from sim.models.gpu import Gpu
from sim.models.gpu_lane import GpuLane
from sim.models.switch import Switch
from sim.models.switch_parameters import MOST_PORTS
from sim.simulator.build_folder import LOG, Building, Tell, build_failure, build_folder, recipe, remembered, silent
from sim.simulator.coverage_hook import MeasuredDesign, installed
from sim.simulator.gpu_shell import gpu_model, gpu_ports, gpu_shell, lane_shell
from sim.simulator.machine import build_minutes
from sim.simulator.pieces import joined
from sim.simulator.prerequisites import require_waves
from sim.simulator.public_state import (
    CONTROL_FILE,
    MEMBERS_FILE,
    control_file,
    members_header,
    with_own_state,
    with_touches,
)
from sim.simulator.sources import digest_of
from sim.simulator.switch_shell import switch_model, switch_ports, switch_sources
from sim.simulator.verilator import BUILD, prepare_environment, shared_runtime

FLAGS = [
    "-Wno-lint",
    "-Wno-style",
    "--assert",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert-case",
    # A compiler takes more than twice as long for a function of twice the size.
    "--output-split-cfuncs",
    "1000",
]
CPP = ["-LDFLAGS", "-pthread"]
PROFILED = ["--prof-cfuncs", "-LDFLAGS", "-pg", "-LDFLAGS", "-no-pie"]
"""A function for each block of statements, with its line in its name, and a histogram of which one runs; addresses of
functions are those in the file."""
EXECUTABLE = "Vgpu"
"""File of the simulator in its folder."""
SYSTEM_SOURCES = ("gpus.cpp", "recorder.cpp")
TOUCHED = "touched.h"
LANE_FOLDER, LANE_LIBRARY = "lane", "Vlane"
"""Of a lane that is a model of its own: folder in that of the simulator, and prefix of what is made there."""
SWITCH_FOLDER, SWITCH_LIBRARY = "switch", "Vswitch"
"""The same of a switch."""
SWITCH_PORTS = (4, 8, MOST_PORTS)
"""Of the switches that are built; ports that no GPU is joined to are silent."""
LANE_SOURCES = ("hbm_array.sv", "clock_gate.sv", "recorder.sv")
MEMORY_SOURCES = (*LANE_SOURCES, "sampler.sv", "read_latency.sv")
ARRAY_SOURCES = ("source_array.sv", "seeded_bug.sv")
DRAM = (("hbm_array", "sectors"),)
"""What of a memory model a campaign of faults looks at: module and variable."""
COMPUTE_UNITS = "gpu__gemm"
"""Module of what stores."""
LOADED = (
    *(("plan_memory", "memory"), ("model_memory", "memory"), ("source_array", "memory"), *DRAM),
    *(("gathered_checker", name) for name in ("owners", "first", "sectors", "pitch", "last_mask", "wrong", "reads")),
)
"""What sequences of collectives change of what stands around a node: module and variable."""
PLAN_SOURCES = ("plan_memory.sv", "model_memory.sv")


_found_by_sources = True
"""Whether :func:`_remembered` may take what it built of the same sources before."""


def _gpu_sources(gpu: Gpu, measured: MeasuredDesign | None) -> dict[str, str]:
    """File name -> SystemVerilog of one GPU behind packed ports, `gpu_shell`; of the `measured` GPU if there is one."""
    text = measured.text if measured else to_systemverilog(gpu, "gpu")
    beside = {source.name: source.read_text() for source in (measured.sources if measured else ())}
    models = [*MEMORY_SOURCES, *(ARRAY_SOURCES if gpu.stores_arrays else ("operand_array.sv",))]
    if gpu.runs_plans:
        models += PLAN_SOURCES
        models += ["gathered_checker.sv", "command_log.sv"] if gpu.stores_arrays else []
    return {"gpu.sv": text, "gpu_shell.sv": gpu_shell(gpu)} | model_texts(models) | beside


def lanes_apart(config: Configuration) -> bool:
    """Whether the lanes of a node of `config` are built as models of their own where they can be."""
    return config.lanes > 1


def _lane_sources(lane: GpuLane, gpu: Gpu) -> dict[str, str]:
    """File name -> SystemVerilog of one lane of `gpu` behind packed ports, `lane_shell`."""
    models = [*LANE_SOURCES, *(("command_log.sv",) if gpu.logged else ())]
    if gpu.request_ports:
        models += ["source_array.sv", "gathered_checker.sv"] if gpu.stores_arrays else ["operand_array.sv"]
    return {"lane.sv": to_systemverilog(lane, "lane"), "lane_shell.sv": lane_shell(lane)} | model_texts(models)


def _recipe(*settings: object) -> Path:
    return recipe(settings, FLAGS, CPP, digest_of(__name__))


@contextmanager
def changed_hardware() -> Iterator[None]:
    """While a block of one's own stands in the place of one of `hw`: simulators are found by the text of the hardware,
    since sources that lead to a recipe do not tell of it. Every run then exports the GPU again, which takes seconds."""
    global _found_by_sources
    before, _found_by_sources = _found_by_sources, False
    try:
        yield
    finally:
        _found_by_sources = before


def _remembered(noted: Path, build: Callable[[], Path]) -> Path:
    """The folder that `noted` leads to, or else that of `build`."""
    return remembered(noted, build, _usable) if _found_by_sources else build()


def _usable(folder: Path) -> bool:
    hook = installed()
    return hook is None or hook.can_record(folder)


def build_system(
    config: Configuration,
    storage_sectors: int,
    source_sectors: int = 0,
    seeded_bugs: bool = False,
    plans: bool = False,
    shared: bool = False,
    waves: bool = False,
    optimize: str = "-O1",
    tell: Tell = silent,
    faults: bool = False,
    switch_gpus: int = 0,
    profiled: bool = False,
    sequences: bool = False,
) -> Path:
    """The folder of the simulator, :data:`EXECUTABLE`, of systems of GPUs of `config`, built unless it is there.

    `source_sectors`, `seeded_bugs`, `plans`, `shared` as for :class:`sim.models.gpu.Gpu`. With `waves` it can write
    them, and is slower. `optimize` is the C++ compiler's option: -O2 takes twice as long as -O1 and gains a tenth of
    speed, which only long runs make up for. `tell` hears of a build, and how long it will take. With
    `faults` it serves campaigns of them (`sim/models/fault_server.h`): all state can be seen, no clock is gated, so
    that a block in which a bit flips cannot sleep over it, and no assertion of a design ends a run. With `switch_gpus`
    there is a switch for so many GPUs, or somewhat more. When it is `profiled`, a run leaves a histogram of where its
    time went (:mod:`sim.simulator.profile`). For `sequences` of collectives in one run (`sim/models/sequence_server.h`)
    what stands around the node can be changed by C++, and nothing of the node.

    Raises :class:`sim.errors.MachineError` when Verilator or the C++ compiler fails.
    """
    if seeded_bugs:
        # It runs only until it is seen to fail.
        optimize = "-O0"
    switch = next(size for size in SWITCH_PORTS if size >= switch_gpus) if switch_gpus else 0
    kinds = (waves, optimize, faults, switch, profiled, sequences)
    settings = (config, storage_sectors, source_sectors, seeded_bugs, plans, shared, *kinds)
    return _remembered(_recipe(*settings, installed() is not None), lambda: _build_system(*settings, tell))


def _build_system(
    config: Configuration,
    storage_sectors: int,
    source_sectors: int,
    seeded_bugs: bool,
    plans: bool,
    shared: bool,
    waves: bool,
    optimize: str,
    faults: bool,
    switch_size: int,
    profiled: bool,
    sequences: bool,
    tell: Tell,
) -> Path:
    hook = installed()
    # In one model all state has a name, all waves one file, and blocks around a block can be built.
    measured_whole = hook and config.channels <= ONE_MODEL_CHANNELS
    apart = lanes_apart(config) and not (seeded_bugs or waves or faults or sequences or measured_whole)
    gpu = Gpu(config, storage_sectors, source_sectors, seeded_bugs, plans, shared, not faults, apart)
    lane = GpuLane(config, storage_sectors, shared, gpu.logged, source_sectors, gpu.request_ports) if apart else None
    # What a fault makes the hardware do is not to be counted.
    measured = hook.instrument(gpu, "gpu") if hook and not (seeded_bugs or faults or sequences or apart) else None
    texts = _gpu_sources(gpu, measured) | model_texts(SYSTEM_SOURCES)
    texts |= {"gpu_ports.h": gpu_ports(config, gpu, lane), "gpu_model.h": gpu_model(gpu)}
    texts["run_server.h"] = _run_server(faults, sequences)
    switch = Switch(config, switch_size) if switch_size else None
    texts["switch_model.h"] = switch_model(switch)
    if switch:
        texts["switch_ports.h"] = switch_ports(switch)
        texts |= {f"{SWITCH_FOLDER}/{name}": text for name, text in switch_sources(config, switch).items()}
    if lane:
        texts |= {f"{LANE_FOLDER}/{name}": text for name, text in _lane_sources(lane, gpu).items()}
    arguments = [*FLAGS, *CPP]
    if waves:
        require_waves()
        arguments += ["--trace-fst", "--trace-structs"]
    if faults:
        texts["gpu.sv"] = with_own_state(texts["gpu.sv"])
        texts = {CONTROL_FILE: control_file(texts["gpu.sv"], DRAM)} | texts
        arguments = [word for word in arguments if word != "--assert"]
    if sequences:
        texts["gpu.sv"] = with_own_state(texts["gpu.sv"])
        texts = {CONTROL_FILE: control_file(texts["gpu.sv"], LOADED, COMPUTE_UNITS)} | texts
    if profiled:
        arguments += PROFILED
    texts |= included_texts(texts)
    made_from = (sorted(texts.items()), arguments, optimize)
    lane_channels = config.channels if lane else 0
    kind = "waves" if waves else "faults" if faults else "sequences" if sequences else "gpu"
    with build_folder(BUILD / "ring" / kind, made_from, [EXECUTABLE]) as (folder, new):
        if new:
            minutes = build_minutes(*(["waves"] if waves else ["runtime", "gpu"]), *["lane channel"] * lane_channels)
            tell(Building(f"building the simulator of preset {config.name}, first time only, {minutes}"))
            _build(folder, texts, arguments, optimize)
        if measured:
            measured.save(folder)
    return folder


def _run_server(faults: bool, sequences: bool) -> str:
    """C++ of `run_server.h`: what serves many runs, if this model is one for that."""
    server = "fault_server.h" if faults else "sequence_server.h" if sequences else "single_run.h"
    return f'#pragma once\n\n#include "{server}"\n'


def _build(folder: Path, texts: dict[str, str], arguments: list[str], optimize: str) -> None:
    """Write `texts` to `folder` and build the simulator of them there."""
    prepare_environment(optimize)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    sources = [folder / name for name in texts if name.endswith((".vlt", ".sv", ".cpp"))]
    with (folder / LOG).open("w") as output, shared_runtime(folder, *arguments, headers=False):

        def step(*command: str) -> None:
            if subprocess.run(command, stdout=output, stderr=output, check=False).returncode:
                raise build_failure("the simulator", folder / LOG)

        def model(place: Path, prefix: str, top: str, target: str, *more: str) -> None:
            own = [str(path) for path in sources if path.parent == place]
            own_files = set(map(Path, own))
            names = ["--top-module", top, "--prefix", prefix, "-Mdir", str(place)]
            step("verilator", "--cc", "--timescale", "1ns/1ps", *arguments, *names, *own, *more)
            if place / CONTROL_FILE in own_files and TOUCHED in texts:
                header = place / f"{prefix}___024root.h"
                header.write_text(with_touches(header.read_text()))
                (place / MEMBERS_FILE).write_text(members_header(prefix, header.read_text()))
            makefile = joined(place, prefix, newer=SYSTEM_SOURCES)
            step("make", "-C", str(place), "-f", makefile.name, "-j", "2", target)

        beside = []
        for name, prefix in ((LANE_FOLDER, LANE_LIBRARY), (SWITCH_FOLDER, SWITCH_LIBRARY)):
            place = folder / name
            if place.exists():
                model(place, prefix, f"{name}_shell", f"lib{prefix}")
                beside += [str(place / f"lib{prefix}.a"), "-CFLAGS", f"-I{place}"]
        model(folder, EXECUTABLE, "gpu_shell", EXECUTABLE, "--exe", *beside)
