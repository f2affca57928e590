"""Runs many ring requests in processes of their own and hands over each result as it comes."""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stdout
from io import StringIO

from sim.experiments.request import RingRequest
from sim.experiments.results import ScenarioResult


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what the tools under a simulation print to standard output; their log files have it too.

    A failed build is SystemExit or a plain RuntimeError of cocotb's runner; it becomes a SimulationError.
    """
    from sim.errors import SimulationError
    from sim.simulator.verilator import BUILD

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
            raise SimulationError(f"the simulator does not build: build.log under {BUILD} says why") from error
        finally:
            sys.stdout.flush()
            os.dup2(saved, 1)
            os.close(saved)
            os.close(null)


def failed_result(request: RingRequest, complaint: str) -> ScenarioResult:
    """The result of a run whose simulator broke down."""
    return ScenarioResult(
        **request.identity(),
        passed=False,
        cycles=0,
        complaints=(complaint,),
    )


def run_one(request: RingRequest) -> ScenarioResult:
    """One request, never raising for what the simulator does: a breakdown is a failed result."""
    from sim.errors import SimulationError
    from sim.experiments.run import run_ring

    try:
        with quiet():
            return run_ring(request)
    except SimulationError as error:
        return failed_result(request, str(error))


def run_all(requests: Sequence[RingRequest], processes: int) -> Iterator[tuple[int, ScenarioResult]]:
    """(Index of the request, its result), as they finish."""
    if processes == 1:
        for index, request in enumerate(requests):
            yield index, run_one(request)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {pool.submit(run_one, request): index for index, request in enumerate(requests)}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            for unfinished in waiting:
                unfinished.cancel()
