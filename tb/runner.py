"""Builds a component with Verilator and runs cocotb tests on it: one call for every test of the project.

A build is keyed by the content of what goes into it, so an unchanged design is never built twice. A test run is one
process with its own seed; its result file is checked, because the simulator's exit code says nothing of failed tests.
"""

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from weakref import WeakKeyDictionary

import pytest
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator, VerilatorControlFile
from filelock import FileLock

from hw.export.verilog import to_systemverilog
from sim.errors import SimulationError
from sim.simulator.verilator import BUILD, prepare_environment, shared_runtime
from tb.coverage_runs import coverage_build, coverage_mode, record_run
from tb.drivers.stream_checker import checked
from tb.verilator_runner import FastVerilator

LESS_CODE = ["-fno-expand", "-fno-inline"]
"""Options of Verilator that make a model slower and halve the C++ code: what is to run soon is compiled sooner."""
PARITY = "= ^ {"
"""A parity of picked bits, in SystemVerilog. Expanded, their code is less, that of a link lane by half: each bit is a
call otherwise."""


def build(
    component: wiring.Component,
    name: str,
    sources: Sequence[Path] = (),
    waves: bool = False,
    counts: bool = True,
) -> Path:
    """Build `component` as module `name`; returns the build folder. Without `counts`, toggles are not measured.

    Only the ports can be accessed from Python: exposing every signal doubles build time and slows simulation down.
    Raises :class:`SimulationError` when Verilator or the C++ compiler fails.
    """
    if coverage_mode() == "off":
        return build_text(to_systemverilog(component, name), name, sources, waves)
    measured = coverage_build(component, name, counts)
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
        less = LESS_CODE[1:] if PARITY in text else LESS_CODE
        arguments = ["-Wno-lint", "-Wno-style", "--assert", *less, *flags, *(["--trace-fst"] if waves else [])]
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


_builds: WeakKeyDictionary[wiring.Component, dict[tuple[str, str, bool, tuple[Path, ...]], Path]] = WeakKeyDictionary()
"""Builds of components simulated before, by name, what is measured, and sources: a component simulated again is not
converted again."""


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
    counts: bool = True,
) -> None:
    """Run the cocotb tests of Python module `module` (all, or `testcase`) on `component`. Without `counts`, its toggles
    are not measured: for large designs, whose parts are measured elsewhere.

    The protocol of all its stream ports is checked, the tests' drivers included (:mod:`tb.drivers.stream_checker`).
    Simulate the same object again where a design takes long to convert.
    The seed is `seed`, or T3_SEED, or random; it is printed with the failure. The folder of a run that passes is
    removed. Raises :class:`SimulationError` when the design cannot be built, a test fails, an RTL assertion fires or no
    test ran.
    """
    builds = _builds.setdefault(component, {})
    kind = name, coverage_mode(), counts, tuple(sources)
    folder = builds.get(kind)
    if folder is None:
        folder = builds[kind] = build(checked(component), name, sources, counts=counts)
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


@contextmanager
def caught(message: str = "tests failed|stopped early") -> Iterator[pytest.ExceptionInfo[SimulationError]]:
    """What runs inside has a seeded bug, and has to fail with an error in which regular expression `message` is found;
    by default any failure of a test or an assertion will do, but none of the build.

    Which of several checkers is the first to see it depends on the traffic, and that one traffic shows it is enough:
    the seed is always the same, whatever T3_SEED says.
    """
    with patch.dict(os.environ, {"T3_SEED": "1"}), pytest.raises(SimulationError, match=message) as failure:
        yield failure


def _counted(results: Path) -> tuple[int, int]:
    """Tests and failed tests of a results file; (0, 0) when the simulator wrote none that can be read."""
    try:
        return get_results(results)
    except (OSError, RuntimeError, SyntaxError):
        return 0, 0


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
