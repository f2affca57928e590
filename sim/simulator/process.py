"""Runs a built simulator once, in a process of its own."""

import shutil
from contextlib import suppress
from pathlib import Path

from cocotb_tools.check_results import get_results

from sim.errors import MachineError, SimulationError
from sim.simulator.build_folder import FULL
from sim.simulator.coverage_hook import installed
from sim.simulator.fast_model import FastVerilator
from sim.simulator.verilator import BUILD

KILLED = "error -9"
"""How cocotb's runner names the end of a process that the kernel killed, as it does when memory runs out."""
NO_MEMORY = "bad_alloc"
NO_SPACE = "No space left on device"


def run_simulator(model: Path, folder: Path, seed: int, plusargs: list[str], waves: bool = False) -> None:
    """One process of the simulator in `model`, its files in `folder`; the session's job is `folder`/job.json.

    Raises :class:`sim.errors.MachineError` when memory or disk ran out, else :class:`sim.errors.SimulationError` when
    it fails.
    """
    runner = FastVerilator()
    runner.build_dir = model
    runner.waves = waves
    log = folder / "run.log"
    # The session's assertions need no rewriting by pytest, which would compile anew every module that it imports.
    environment = {
        "T3_JOB": str(folder / "job.json"),
        "PYTHONPATH": str(BUILD.parent),
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
        raise _failure(f"the simulator stopped: {error}", folder, log) from error
    if failed or not tests:
        raise _failure("the simulation failed", folder, log)


def record_coverage(model: Path, folder: Path) -> None:
    """Keep the coverage of the run in `folder`, which has finished, where it is measured."""
    hook = installed()
    if hook:
        hook.record(model, folder)


def _failure(sentence: str, folder: Path, log: Path) -> SimulationError:
    """What is known of a run that failed, as one sentence; what the simulator said is kept in a file that it names."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if shutil.disk_usage(folder).free < FULL or NO_SPACE in text:
        return MachineError(f"{sentence}: the disk of {BUILD} is full")
    if KILLED in sentence or NO_MEMORY in text:
        return MachineError(f"{sentence}: it was killed, or memory ran out")
    if not text.strip():
        return SimulationError(f"{sentence}, and the simulator has said nothing")
    kept = BUILD / "failed.log"
    with suppress(OSError):
        kept.write_text(text)
    return SimulationError(f"{sentence}; {kept} has the simulator's words")
