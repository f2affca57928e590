# amaranth: UnusedElaboratable=no
"""Builds the fast simulator of a system: one GPU compiled once to a library, N instances of it, a small top.

Verilator copies an instantiated module's logic for every instance, so N GPUs in one model takes N times as long to
build. As a library (`--lib-create`) the GPU is built once and serves every N; only the top, wires and clock, is
built per system.

cocotb's own runner exposes every signal of a design, which stops Verilator from optimizing across them and costs about
a factor of four; the control file exposes the ports of the top and nothing else.

Waves cannot look into a library: for them the GPUs are instantiated in the top, and N times the logic is built.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.runner import VerilatorControlFile

from hw.config import Configuration
from hw.export.verilog import to_systemverilog
from sim.models import model_texts
from sim.models.gpu import Gpu
from sim.simulator.build_folder import BUILDING, LOG, Tell, build_failure, build_folder, recipe, remembered, silent
from sim.simulator.coverage_hook import MeasuredDesign, installed
from sim.simulator.machine import build_minutes
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
MEMORY_SOURCES = ("hbm_array.sv", "clock_gate.sv", "sampler.sv", "recorder.sv")
ARRAY_SOURCES = ("source_array.sv", "seeded_bug.sv")
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
                log_file=folder / LOG,
            )
    except (SystemExit, RuntimeError) as error:
        raise build_failure("the simulator", folder / LOG) from error


def build_gpu(gpu: Gpu, measured: MeasuredDesign | None, optimize: str, parts: bool) -> Path:
    """The folder with one GPU compiled to a library (`Vgpu__ALL.a`), as of
    :func:`sim.simulator.verilator.prepare_environment`."""
    texts = _gpu_sources(gpu, measured)
    made_from = (sorted(texts.items()), FLAGS, optimize)
    with build_folder(BUILD / "ring" / "gpu", made_from, ["Vgpu__ALL.a"]) as (folder, new):
        if new:
            prepare_environment(optimize, parts)
            for name, text in texts.items():
                (folder / name).write_text(text)
            command = ["verilator", "--cc", "--top-module", "gpu_shell", "--prefix", "Vgpu", "-Mdir", str(folder)]
            command += ["--timescale", "1ns/1ps", *FLAGS, *(str(folder / name) for name in texts)]
            # Verilator's own `--build` makes its runtime too, which comes with the top.
            make = ["make", "-C", str(folder), "-f", "Vgpu.mk", "-j", "2", "Vgpu__ALL.a"]
            with (folder / LOG).open("w") as output:
                for step in (command, make):
                    if subprocess.run(step, stdout=output, stderr=output, check=False).returncode:
                        raise build_failure("the model of the GPU", folder / LOG)
    return folder


def _recipe(*settings: object) -> Path:
    return recipe(settings, FLAGS, TIMING, str(cocotb_tools.config.libs_dir), digest_of(__name__))


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
    topology: Topology,
    storage_sectors: int,
    source_sectors: int = 0,
    seeded_bugs: bool = False,
    plans: bool = False,
    waves: bool = False,
    optimize: str = "-O1",
    tell: Tell = silent,
) -> Path:
    """The folder of a simulator `ring_top` for GPUs in `topology`, built unless it is there already.

    `source_sectors`, `seeded_bugs`, `plans` as for :class:`sim.models.gpu.Gpu`. `optimize` is the C++ compiler's
    option: -O2 takes twice as long as -O1 and gains a tenth of speed, which only kernels of full size make up for.
    `tell` hears of a build, and how long it will take.

    Raises :class:`sim.errors.MachineError` when Verilator or the C++ compiler fails.
    """
    if seeded_bugs:
        # It runs only until it is seen to fail.
        optimize = "-O0"
    settings = (config, topology, storage_sectors, source_sectors, seeded_bugs, plans, waves, optimize)
    return _remembered(_recipe(*settings, installed() is not None), lambda: _build_system(*settings, tell))


def _build_system(
    config: Configuration,
    topology: Topology,
    storage_sectors: int,
    source_sectors: int,
    seeded_bugs: bool,
    plans: bool,
    waves: bool,
    optimize: str,
    tell: Tell,
) -> Path:
    gpus = topology.gpus
    title = f"{BUILDING} the simulator: {gpus} x preset {config.name}, first time only"
    gpu = Gpu(config, storage_sectors, source_sectors, seeded_bugs, plans, topology.shared)
    texts = {"ring_top.sv": system_top(config, gpu, topology), "visible.vlt": CONTROL}
    texts |= model_texts(["axi_sequencer.sv", "recorder.cpp", *(["mirror.sv"] if gpus == 1 else [])])
    settings = [FLAGS, TIMING, str(cocotb_tools.config.libs_dir)]
    # What a fault makes the hardware do is not to be counted.
    hook = installed()
    measured = hook.instrument(gpu, "gpu") if hook and not seeded_bugs else None
    if waves:
        require_waves()
        tell(f"{title}, {build_minutes(*['waves'] * gpus)}")
        texts |= _gpu_sources(gpu, measured) | {"gpu_slot.sv": visible_gpu_slot(gpu)}
        arguments = ["--trace-fst", "--trace-structs"]
        prepare_environment(optimize, parts=True)
    else:
        # Systems of other sizes find the GPU without exporting it.
        def new_gpu() -> Path:
            tell(f"{title}, {build_minutes('runtime', 'gpu', 'top')}")
            return build_gpu(gpu, measured, optimize, parts=not seeded_bugs)

        library = _remembered(
            _recipe(
                *("gpu", config, storage_sectors, source_sectors, seeded_bugs, plans, topology.shared),
                *(optimize, measured is not None),
            ),
            new_gpu,
        )
        texts |= {"gpu_slot.sv": gpu_slot(gpu)} | model_texts(["gpu_model.cpp"])
        settings.append(str(library))
        # Verilator takes C++ sources and libraries among its arguments.
        arguments = ["-CFLAGS", f"-I{library}", str(library / "Vgpu__ALL.a")]
        prepare_environment("-O1")
    kind = BUILD / "ring" / f"{'waves' if waves else 'top'}{gpus}"
    with build_folder(kind, (sorted(texts.items()), settings), ["ring_top"]) as (folder, new):
        if new:
            sources = [str(folder / name) for name in texts if name.endswith(".cpp")]
            _build_top(folder, texts, [*arguments, *sources], waves)
        if measured:
            measured.save(folder)
    return folder
