"""One experiment, from its spec to its result: spec, run, check, results. Everything that is simulated goes this way.

1. :mod:`sim.experiments.spec` has checked what is asked for;
2. :mod:`sim.experiments.array_model`, :mod:`sim.experiments.kernel_model` or :mod:`sim.experiments.program_model`, by
   its compute model: what the GPUs do, and the job, with the register writes that
   :func:`sim.experiments.job.compiled` gives;
3. :mod:`sim.experiments.run` starts the simulator once;
4. :mod:`sim.experiments.check` compares with golden model and closed forms;
5. :mod:`sim.experiments.figures` computes what :mod:`sim.experiments.results` writes down.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sim.experiments.array_model import ArrayWork, array_job, array_work
from sim.experiments.check import Checked, Work, check
from sim.experiments.figures import figures, wall_time
from sim.experiments.job import Job
from sim.experiments.kernel_model import kernel_job, kernel_work
from sim.experiments.program_job import program_job
from sim.experiments.program_model import ProgramWork, program_work
from sim.experiments.results import Result
from sim.experiments.run import Outcome, Progress, run_job
from sim.experiments.spec import Spec
from sim.experiments.spec_values import ARRAY, PROGRAM
from sim.experiments.timeline import Timeline, mirrored_arrival, timeline
from sim.simulator.build_folder import silent
from sim.simulator.sources import digest_of


def source_version() -> str:
    """The version of everything that an experiment depends on (:func:`sim.simulator.sources.digest_of`)."""
    return digest_of(__name__)


def work_of(spec: Spec) -> Work:
    """What the GPUs of `spec` do."""
    if spec.compute == PROGRAM:
        return program_work(spec)
    return array_work(spec) if spec.compute == ARRAY else kernel_work(spec)


def job_of(spec: Spec, work: Work) -> Job:
    """What the simulator is given for `work`."""
    if isinstance(work, ProgramWork):
        return program_job(spec, work)
    return array_job(spec, work) if isinstance(work, ArrayWork) else kernel_job(spec, work)


def simulate(
    spec: Spec, work: Work | None = None, progress: Progress = silent, profiled: bool = False
) -> tuple[Outcome, Checked]:
    """Run and check `spec`, with `work` instead of its own if that is given, `profiled` if that is wanted."""
    work = work or work_of(spec)
    job = job_of(spec, work)
    outcome = run_job(job, progress, profiled=profiled)
    return outcome, check(spec, work, job.build.config, outcome)


def run_experiment(spec: Spec, progress: Progress = silent, waves: Path | None = None, threads: int = 1) -> Result:
    """Run `spec` on the RTL; its result, see :data:`sim.experiments.results.FIGURES`.

    `progress` is told each stage; with `waves` an FST file of all signals is left there. GPUs are advanced on so
    many `threads` (0: on all cores), on which no figure but times depends. Raises
    :class:`sim.errors.SimulationError` when the simulator fails, :class:`sim.errors.MachineError` when the
    machine does.
    """
    return run_with_output(spec, progress, waves, threads=threads)[0]


def run_with_output(
    spec: Spec,
    progress: Progress = silent,
    waves: Path | None = None,
    record: Callable[[Timeline, Result], None] | None = None,
    threads: int = 1,
) -> tuple[Result, np.ndarray | None]:
    """As :func:`run_experiment`; and what rank r holds of chunk r, shape (gpus, rows, columns), as bit patterns.
    `record` is given the run's timeline, and the result."""
    began, worked = time.perf_counter(), time.thread_time()
    progress("preparing what the GPUs compute")
    work = work_of(spec)
    job = job_of(spec, work)
    planned, planning = time.perf_counter() - began, time.thread_time() - worked
    outcome = run_job(job, progress, waves, record is not None, threads)
    progress("checking the result")
    began, worked = time.perf_counter(), time.thread_time()
    checked = check(spec, work, job.build.config, outcome)
    found = figures(spec, job, work, outcome)
    checking = time.thread_time() - worked
    seconds = wall_time(outcome.seconds, planned, planning, time.perf_counter() - began, checking)
    kilocycles = (found["cycles"] + outcome.alone_cycles) / 1000
    result = {
        "spec": spec.to_json(),
        "passed": not checked.errors,
        "errors": list(checked.errors),
        "mismatches": checked.mismatches,
        "closed_forms": checked.closed_forms,
        **found,
        "seconds": seconds,
        "kilocycles_per_second": round(kilocycles / max(outcome.seconds.simulate, 1e-6), 1),
        "kilocycles_per_processor_second": round(kilocycles / max(outcome.seconds.simulate_processor, 1e-6), 1),
    }
    if record is not None:
        progress("drawing the timeline")
        one_for_all = job.build.nodes == 1 and spec.gpus > 1
        arrivals = [mirrored_arrival(job.session["mirrored_arrays"], spec.gpus)] if one_for_all else []
        with _uncollected():
            record(timeline(outcome.recordings, job.nodes, spec.dma_block or spec.wfs, *arrivals), result)
    return result, outcome.reduced


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles of references: a timeline is hundreds of thousands of objects, and has none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
