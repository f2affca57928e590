"""Runs a built simulator once, in a process of its own."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sim.errors import MachineError, SimulationError
from sim.simulator.build_folder import FULL
from sim.simulator.coverage_hook import installed
from sim.simulator.fast_model import EXECUTABLE
from sim.simulator.session import SESSION
from sim.simulator.verilator import BUILD

KILLED = -9
"""How a process ends that the kernel killed, as it does when memory runs out."""
NO_MEMORY = "bad_alloc"
NO_SPACE = "No space left on device"


def run_simulator(model: Path, folder: Path, plusargs: list[str], environment: Mapping[str, str] | None = None) -> None:
    """One process of the simulator in `model`, in `folder`, which holds its session and all that it reads, with more
    variables in its `environment` if they are given.

    Raises :class:`sim.errors.MachineError` when memory or disk ran out, else :class:`sim.errors.SimulationError` when
    it fails.
    """
    log = folder / "run.log"
    with log.open("w") as output:
        command = [str(model / EXECUTABLE), SESSION, *plusargs]
        own = os.environ | (environment or {})
        done = subprocess.run(command, cwd=folder, env=own, stdout=output, stderr=output, check=False)
    # What SystemVerilog writes, it writes without a word when the disk is full.
    if done.returncode or _disk_is_full(folder):
        raise _failure(done.returncode, folder, log)


def record_coverage(model: Path, folder: Path) -> None:
    """Keep the coverage of the run in `folder`, which has finished, where it is measured."""
    hook = installed()
    if hook:
        hook.record(model, folder)


def _disk_is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < FULL


def _failure(code: int, folder: Path, log: Path) -> SimulationError:
    """What is known of a run that failed, as one sentence; what the simulator said is kept in a file that it names."""
    sentence = "the simulation failed"
    text = log.read_text(errors="replace") if log.exists() else ""
    if _disk_is_full(folder) or NO_SPACE in text:
        return MachineError(f"{sentence}: the disk of {BUILD} is full")
    if code == KILLED or NO_MEMORY in text:
        return MachineError(f"{sentence}: it was killed, or memory ran out")
    if not text.strip():
        return SimulationError(f"{sentence}, and the simulator has said nothing")
    kept = BUILD / "failed.log"
    with suppress(OSError):
        kept.write_text(text)
    return SimulationError(f"{sentence}; {kept} has the simulator's words")
