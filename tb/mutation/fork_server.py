"""Inside the simulator: one process per mutant, forked when the test's modules are imported and nothing has run yet.

Starting Python with all that a test imports takes longer than most simulations. cocotb imports test modules before the
design is evaluated for the first time, so listing this module before the test's own lets it hold the simulator there:
it reads lines "mutant limit" (limit: CPU seconds) from the pipe `requests` in the folder T3_MUTATION_FOLDER, forks,
lets the child go on as if nothing had been, with the number of its mutant in a file, and writes "outcome seconds" to
the pipe `answers`.
"""

import ctypes
import importlib
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

from cocotb_tools.check_results import get_results

PASSED, FAILED, STOPPED, STARVED = range(4)
"""Outcomes of a run. STOPPED: it used up its CPU limit. STARVED: it was given too little of the processor to tell."""
WALL_FACTOR = 100
"""Wall time that a child may take, in CPU limits, should it ever wait for nothing."""


def _exit_without_destructors() -> None:
    """Make an exit of this process end it at once: Verilator's would wait for threads that a fork does not copy."""
    libc = ctypes.CDLL(None)
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


def limit_and_silence(seconds: int) -> None:
    """Limit the CPU time of this process and its children, each, and drop what they print."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())


def wait(child: int, limit: int) -> tuple[int, float]:
    """Exit status (as `os.wait`) and CPU seconds of process `child`, killed when it outlives the wall limit."""
    deadline = time.monotonic() + limit * WALL_FACTOR
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def stopped_outcome(status: int, seconds: float, limit: int) -> int:
    """Outcome of a run that a limit ended after `seconds` of CPU time: the wall limit says nothing about a mutant.

    The kernel keeps to the CPU limit by counting ticks, which can be a fifth more than what a busy machine gave.
    """
    counted = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    return STOPPED if counted or seconds > 0.9 * limit else STARVED


def _outcome(status: int, seconds: float, limit: int, results: Path) -> int:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return stopped_outcome(status, seconds, limit)
    try:
        tests, failed = get_results(results)
    except (OSError, RuntimeError, SyntaxError):
        return FAILED
    return PASSED if status == 0 and tests and not failed else FAILED


def _serve() -> None:
    """Returns in each child; the server itself ends in here."""
    folder = Path(os.environ["T3_MUTATION_FOLDER"])
    for module in os.environ["COCOTB_TEST_MODULES"].split(","):
        if module != __name__:
            importlib.import_module(module)
    requests, answers = (folder / "requests").open(), (folder / "answers").open("w")
    for line in requests:
        mutant, limit = map(int, line.split())
        run = folder / f"mutant{mutant}"
        run.mkdir()
        child = os.fork()
        if not child:
            requests.close()
            os.chdir(run)
            Path("mutant").write_text(f"{mutant}\n")
            os.environ["COCOTB_RESULTS_FILE"] = str(run / "results.xml")
            limit_and_silence(limit)
            _exit_without_destructors()
            return
        status, seconds = wait(child, limit)
        answers.write(f"{_outcome(status, seconds, limit, run / 'results.xml')} {seconds:.3f}\n")
        answers.flush()
        shutil.rmtree(run)
    os._exit(0)


if "T3_MUTATION_FOLDER" in os.environ:
    _serve()
