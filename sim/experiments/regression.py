"""Runs many specs in processes of their own and hands over each result as it comes."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from multiprocessing.queues import SimpleQueue

from sim.errors import MachineError, SimulationError, of_the_machine, sentence_of
from sim.experiments.experiment import run_experiment
from sim.experiments.results import Result, broken_down
from sim.experiments.run import Progress
from sim.experiments.spec import Spec
from sim.simulator.build_folder import Building, silent
from sim.simulator.verilator import BUILD

NICENESS = 5
"""How much nicer than the first spec all others are: its row appears sooner, and together they take no longer."""
_announcements: "SimpleQueue[str] | None" = None
_niceness = 0


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what the tools under a simulation print to standard output; their log files have it too.

    A failed build is SystemExit or a plain RuntimeError of cocotb's runner; it becomes a MachineError.
    """
    sys.stdout.flush()
    with redirect_stdout(StringIO()):
        saved = os.dup(1)
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, 1)
            yield
        except SimulationError:
            raise
        except (SystemExit, RuntimeError) as error:
            raise MachineError(f"the simulator does not build: build.log under {BUILD} says why") from error
        finally:
            sys.stdout.flush()
            os.dup2(saved, 1)
            os.close(saved)
            os.close(null)


def builds_only(tell: Progress) -> Progress:
    """A progress that passes builds on to `tell`, and nothing else."""
    return lambda stage: tell(stage) if isinstance(stage, Building) else None


def run_one(spec: Spec, tell: Progress = silent, threads: int = 1) -> Result:
    """One spec on so many `threads`, never raising for what simulator and machine do: a breakdown is a result too."""
    try:
        with quiet():
            return run_experiment(spec, builds_only(tell), threads=threads)
    except (SimulationError, OSError, MemoryError) as error:
        return broken_down(spec, sentence_of(error), of_the_machine(error))


def _begin(queue: "SimpleQueue[str]") -> None:
    """A worker leads a session of its own, so that it can be ended with all that it has started."""
    global _announcements, _niceness
    _announcements, _niceness = queue, os.nice(0) + NICENESS
    os.setsid()


def _work(spec: Spec, index: int, threads: int) -> Result:
    if index:
        os.nice(_niceness - os.nice(0))
    return run_one(spec, _announcements.put if _announcements else silent, threads)


def run_all(
    specs: Sequence[Spec], processes: int, tell: Progress = silent, threads: int = 1
) -> Iterator[tuple[int, Result]]:
    """(Index of the spec, its result), as they finish, each on so many `threads`. `tell` hears of builds that take
    long, each once.

    A worker that dies, as when memory runs out, fails what was not finished. When the caller leaves, by Ctrl-C too,
    what still runs is ended.
    """
    tell_once = _once(tell)
    if processes == 1:
        for index, spec in enumerate(specs):
            yield index, run_one(spec, tell_once, threads)
        return
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(queue,))
    complete = False
    try:
        waiting: dict[Future[Result], int] = {
            pool.submit(_work, spec, index, threads): index for index, spec in enumerate(specs)
        }
        while waiting:
            done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            while not queue.empty():
                tell_once(queue.get())
            for future in done:
                index = waiting.pop(future)
                try:
                    yield index, future.result()
                except BrokenProcessPool:
                    yield index, broken_down(specs[index], "a process was killed, or memory ran out", True)
        complete = True
    finally:
        if not complete:
            _end_workers()
        pool.shutdown(cancel_futures=True)


def _once(tell: Progress) -> Callable[[str], None]:
    told: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    return tell_once


def _end_workers() -> None:
    """End the worker processes of this one, with the simulators and compilers that they have started."""
    for child in multiprocessing.active_children():
        with suppress(ProcessLookupError, PermissionError):
            if child.pid is not None and os.getpgid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGTERM)
        child.terminate()
