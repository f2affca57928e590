"""Runs jobs on mutants, the most telling job first, each with a limit of CPU time: a deadlock never ends by itself."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tb.mutation.fork_server import FAILED, PASSED, STARVED, STOPPED
from tb.mutation.jobs import Job, Run

LEAST_CPU_SECONDS = 5
LIMIT_FACTOR = 4
"""A job may take this many times the CPU time of the right design, and at least LEAST_CPU_SECONDS."""
BASELINE_CPU_SECONDS = 3600


@dataclass
class Trial:
    """A job that can be run on mutants; CPU seconds that the right design takes and that it was run for, kills."""

    job: Job
    run: Run
    seconds: float
    spent: float
    kills: int = 0

    @property
    def worth(self) -> float:
        """Kills per second of CPU time."""
        return (self.kills + 1) / (self.spent + 0.1)


@dataclass(frozen=True)
class Attempt:
    """A job run on a mutant: whether it noticed, and how (`failure` or `time limit`)."""

    test: str
    killed: bool
    by: str


@contextmanager
def prepared(jobs: Sequence[Job], text: str) -> Iterator[list[Trial]]:
    """Build `text`, run each job on the right design in it, and keep their simulators ready.

    Raises :class:`RuntimeError` when a job fails.
    """
    with ExitStack() as stack:
        trials = []
        for job in jobs:
            run = stack.enter_context(job.ready(job.build(text)))
            outcome, seconds = run(0, BASELINE_CPU_SECONDS)
            if outcome != PASSED:
                raise RuntimeError(f"{job.test} fails on the right design, built with its mutants switched off")
            trials.append(Trial(job, run, seconds, seconds))
        yield trials


def kill(trials: Sequence[Trial], mutant: int) -> Attempt:
    """Run the jobs on `mutant` up to the first that notices; returns the last attempt.

    Raises :class:`RuntimeError` when the machine is too busy to tell.
    """
    attempt = Attempt("", False, "")
    for trial in sorted(trials, key=lambda trial: -trial.worth):
        limit = max(LEAST_CPU_SECONDS, int(trial.seconds * LIMIT_FACTOR) + 1)
        outcome, seconds = trial.run(mutant, limit)
        if outcome == STARVED:
            raise RuntimeError(f"the machine is too busy: {trial.job.test} got {seconds:.1f} CPU seconds")
        trial.spent += seconds
        by = {PASSED: "", FAILED: "failure", STOPPED: "time limit"}[outcome]
        attempt = Attempt(trial.job.test, outcome != PASSED, by)
        if attempt.killed:
            trial.kills += 1
            break
    return attempt
