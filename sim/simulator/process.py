"""Runs a built simulator once, in a process of its own."""

import os
import shutil
import signal
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
    if done.returncode or disk_is_full(folder):
        raise _failure(done.returncode, folder, log)


def record_coverage(model: Path, folder: Path) -> None:
    """Keep the coverage of the run in `folder`, which has finished, where it is measured."""
    hook = installed()
    if hook:
        hook.record(model, folder)


def failure(what: str, code: int, text: str, folder: Path) -> SimulationError:
    """What is known of a simulator `what` that wrote to `folder`, ended with exit code `code` and has said `text`, as
    one sentence: a :class:`sim.errors.MachineError` when memory or disk ran out."""
    if disk_is_full(folder) or NO_SPACE in text:
        return MachineError(f"{what} failed: the disk is full")
    if code == -signal.SIGKILL or NO_MEMORY in text:
        return MachineError(f"{what} failed: it was killed, or memory ran out")
    said = text.strip().splitlines()
    return SimulationError(f"{what} failed: {said[-1] if said else 'it has said nothing'}")


def disk_is_full(folder: Path) -> bool:
    """Whether what was written to `folder` may be cut short."""
    return shutil.disk_usage(folder).free < FULL


def _failure(code: int, folder: Path, log: Path) -> SimulationError:
    """What is known of a run that failed, as one sentence; what the simulator said is kept in a file that it names."""
    sentence = "the simulation failed"
    text = log.read_text(errors="replace") if log.exists() else ""
    if disk_is_full(folder) or NO_SPACE in text:
        return MachineError(f"{sentence}: the disk of {BUILD} is full")
    if code == -signal.SIGKILL or NO_MEMORY in text:
        return MachineError(f"{sentence}: it was killed, or memory ran out")
    if not text.strip():
        return SimulationError(f"{sentence}, and the simulator has said nothing")
    kept = BUILD / "failed.log"
    with suppress(OSError):
        kept.write_text(text)
    return SimulationError(f"{sentence}; {kept} has the simulator's words")
