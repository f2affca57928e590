# amaranth: UnusedElaboratable=no
"""Builds the fast simulator of a system: one GPU compiled once to a library, N instances of it, a small top.

Verilator copies an instantiated module's logic for every instance, so N GPUs in one model takes N times as long to
build. As a library (`--lib-create`) the GPU is built once and serves every N; only the top, wires and clock, is
built per system.

cocotb's own runner exposes every signal of a design, which stops Verilator from optimizing across them and costs about
a factor of four; the control file exposes the ports of the top and nothing else.

Waves cannot look into a library: for them the GPUs are instantiated in the top, and N times the logic is built.
"""

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.runner import VerilatorControlFile
from filelock import FileLock

from hw.config import Configuration
from hw.export.verilog import to_systemverilog
from sim.errors import MachineError
from sim.models import model_texts
from sim.models.gpu import Gpu
from sim.simulator.coverage_hook import MeasuredDesign, installed
from sim.simulator.prerequisites import require_waves
from sim.simulator.sources import digest_of
from sim.simulator.system_top import gpu_shell, gpu_slot, system_top, visible_gpu_slot
from sim.simulator.verilator import BUILD, FastVerilator, prepare_environment, shared_runtime
from sim.topologies.topology import Topology

CONTROL = """`verilator_config
public_flat_rw -module "ring_top" -var "*"
"""
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
]
TIMING = ["--timing", "-CFLAGS", "-std=c++20 -fcoroutines"]
MEMORY_SOURCES = ("hbm_array.sv", "clock_gate.sv", "sampler.sv")
ARRAY_SOURCES = ("source_array.sv", "seeded_bug.sv")
PLAN_SOURCES = ("plan_memory.sv", "model_memory.sv")


@contextmanager
def _content_folder(kind: str, texts: dict[str, str], *settings: object) -> Iterator[tuple[Path, bool]]:
    """A folder named after the content of what is built in it, locked, and whether it is new."""
    digest = hashlib.sha256(repr((sorted(texts.items()), settings)).encode()).hexdigest()[:16]
    folder = BUILD / "ring" / f"{kind}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        complete = folder / "complete"
        yield folder, not complete.exists()
        complete.touch()


def _gpu_sources(gpu: Gpu, measured: MeasuredDesign | None) -> dict[str, str]:
    """File name -> SystemVerilog of one GPU behind packed ports, `gpu_shell`; of the `measured` GPU if there is one."""
    text = measured.text if measured else to_systemverilog(gpu, "gpu")
    beside = {source.name: source.read_text() for source in (measured.sources if measured else ())}
    models = [*MEMORY_SOURCES, *(ARRAY_SOURCES if gpu.stores_arrays else ("operand_array.sv",))]
    if gpu.runs_plans:
        models += PLAN_SOURCES
        models += ["gathered_checker.sv", "command_log.sv"] if gpu.stores_arrays else []
    return {"gpu.sv": text, "gpu_shell.sv": gpu_shell(gpu)} | model_texts(models) | beside


def _build_top(folder: Path, texts: dict[str, str], arguments: list[str], waves: bool) -> None:
    """Write `texts` to `folder` and build the simulator `ring_top` of them there."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    try:
        with shared_runtime(folder, *FLAGS, *TIMING, *(["waves"] if waves else [])) as headers:
            FastVerilator().build(
                sources=[
                    VerilatorControlFile(folder / "visible.vlt"),
                    *(folder / name for name in texts if name.endswith(".sv")),
                ],
                hdl_toplevel="ring_top",
                build_dir=folder,
                build_args=[*FLAGS, *TIMING, *arguments, *headers],
                timescale=("1ns", "1ps"),
                always=True,
                waves=waves,
                log_file=folder / "build.log",
            )
    except (SystemExit, RuntimeError) as error:
        log = (folder / "build.log").read_text(errors="replace")[-2000:]
        raise MachineError(f"the ring model could not be built: {error}\n{log}") from error


def build_gpu(gpu: Gpu, measured: MeasuredDesign | None, optimize: str, parts: bool) -> Path:
    """The folder with one GPU compiled to a library (`Vgpu__ALL.a`), as of
    :func:`sim.simulator.verilator.prepare_environment`."""
    texts = _gpu_sources(gpu, measured)
    with _content_folder("gpu", texts, FLAGS, optimize) as (folder, new):
        if new:
            prepare_environment(optimize, parts)
            for name, text in texts.items():
                (folder / name).write_text(text)
            command = ["verilator", "--cc", "--build", "-j", "2", "--top-module", "gpu_shell", "--prefix", "Vgpu"]
            command += ["-Mdir", str(folder), "--timescale", "1ns/1ps", *FLAGS]
            log = folder / "build.log"
            with log.open("w") as output:
                command += [str(folder / name) for name in texts]
                answer = subprocess.run(command, stdout=output, stderr=output, check=False)
            if answer.returncode:
                raise MachineError(f"the GPU model could not be built\n{log.read_text()[-2000:]}")
    return folder


def _recipe(*settings: object) -> Path:
    """A file named after everything a build is made from, down to the Python sources; it holds the build's folder.

    Exporting a GPU takes seconds; an unchanged recipe need not even do that.
    """
    made_from = repr((settings, FLAGS, TIMING, str(cocotb_tools.config.libs_dir), digest_of(__name__)))
    return BUILD / "ring" / "recipes" / hashlib.sha256(made_from.encode()).hexdigest()[:16]


def _remembered(recipe: Path, build: Callable[[], Path]) -> Path:
    """The folder that `recipe` leads to, or else that of `build`, noted in `recipe`; other processes wait for it."""
    recipe.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(recipe) + ".lock"):
        if recipe.exists():
            folder = Path(recipe.read_text())
            hook = installed()
            if (folder / "complete").exists() and (hook is None or hook.can_record(folder)):
                return folder
        folder = build()
        recipe.write_text(str(folder))
    return folder


def build_system(
    config: Configuration,
    topology: Topology,
    storage_sectors: int,
    source_sectors: int = 0,
    seeded_bugs: bool = False,
    plans: bool = False,
    waves: bool = False,
    optimize: str = "-O1",
) -> Path:
    """The folder of a simulator `ring_top` for GPUs in `topology`, built unless it is there already.

    `source_sectors`, `seeded_bugs`, `plans` as for :class:`sim.models.gpu.Gpu`. `optimize` is the C++ compiler's
    option: -O2 takes twice as long as -O1 and gains a tenth of speed, which only kernels of full size make up for.

    Raises :class:`sim.errors.MachineError` when Verilator or the C++ compiler fails.
    """
    if seeded_bugs:
        # It runs only until it is seen to fail.
        optimize = "-O0"
    settings = (config, topology, storage_sectors, source_sectors, seeded_bugs, plans, waves, optimize)
    return _remembered(
        _recipe(*settings, installed() is not None),
        lambda: _build_system(*settings),
    )


def _build_system(
    config: Configuration,
    topology: Topology,
    storage_sectors: int,
    source_sectors: int,
    seeded_bugs: bool,
    plans: bool,
    waves: bool,
    optimize: str,
) -> Path:
    gpus = topology.gpus
    gpu = Gpu(config, storage_sectors, source_sectors, seeded_bugs, plans)
    texts = {"ring_top.sv": system_top(config, gpu, topology), "visible.vlt": CONTROL}
    texts |= model_texts(["axi_sequencer.sv", *(["mirror.sv"] if gpus == 1 else [])])
    settings = [FLAGS, TIMING, str(cocotb_tools.config.libs_dir)]
    # What a fault makes the hardware do is not to be counted.
    hook = installed()
    measured = hook.instrument(gpu, "gpu") if hook and not seeded_bugs else None
    if waves:
        require_waves()
        texts |= _gpu_sources(gpu, measured) | {"gpu_slot.sv": visible_gpu_slot(gpu)}
        arguments = ["--trace-fst", "--trace-structs"]
        prepare_environment(optimize, parts=True)
    else:
        # Systems of other sizes find the GPU without exporting it.
        library = _remembered(
            _recipe("gpu", config, storage_sectors, source_sectors, seeded_bugs, plans, optimize, measured is not None),
            lambda: build_gpu(gpu, measured, optimize, parts=not seeded_bugs),
        )
        texts |= {"gpu_slot.sv": gpu_slot(gpu)} | model_texts(["gpu_model.cpp"])
        settings.append(str(library))
        # Verilator takes C++ sources and libraries among its arguments.
        arguments = ["-CFLAGS", f"-I{library}", str(library / "Vgpu__ALL.a")]
        prepare_environment("-O1")
    with _content_folder(f"{'waves' if waves else 'top'}{gpus}", texts, *settings) as (folder, new):
        if new:
            sources = [str(folder / name) for name in texts if name.endswith(".cpp")]
            _build_top(folder, texts, [*arguments, *sources], waves)
        if measured:
            measured.save(folder)
    return folder
