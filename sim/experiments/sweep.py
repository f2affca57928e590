"""Runs points on worker processes, of this machine or of a Dask cluster, and keeps what is finished.

Dask schedules both: a local run is a cluster of this machine's processes, so results, retries and what happens when
a worker dies are the same either way.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed

from sim.errors import UsageError
from sim.experiments.experiment import Point, source_version
from sim.experiments.store import PointStore

Simulate = Callable[[Point], dict[str, Any]]
DEATHS_ALLOWED = 3
"""Workers that may die under a point before it is given up."""
RETRIES = 1
"""Times a point is tried again after it raised an exception: one machine may lack what another has."""
PATIENCE = 60
"""Seconds to wait for the first worker of a cluster."""
SETTINGS = {
    "distributed.scheduler.allowed-failures": DEATHS_ALLOWED,
    # A simulation may keep a worker from answering for minutes, and its tools start processes of their own.
    "distributed.scheduler.worker-ttl": None,
    "distributed.worker.daemon": False,
    # It would take samples of a thread that waits for a simulator.
    "distributed.worker.profile.enabled": False,
}
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """What became of a point: its `result`, or the `error` that kept it from having one. `reused`: it was on disk."""

    point: Point
    result: dict[str, Any] | None
    error: str = ""
    reused: bool = False

    @property
    def passed(self) -> bool:
        """Whether there is a result and no checker complained about it."""
        return self.result is not None and bool(self.result["passed"])

    @property
    def complaints(self) -> tuple[str, ...]:
        """What speaks against it, a sentence each."""
        return (self.error,) if self.result is None else tuple(self.result["complaints"])


def run_points(
    points: Sequence[Point], store: PointStore, simulate: Simulate, processes: int = 2, scheduler: str = ""
) -> Iterator[Outcome]:
    """The outcome of every point: first those that `store` has, then the others as they finish, kept in `store`.

    `scheduler` is the address of a Dask scheduler; without it `processes` local ones work. Points with a complaint are
    finished too; points without a result are not kept, and run again next time. Of points that are one simulation one
    runs. Raises :class:`UsageError` when the cluster does not answer or has no worker.
    """
    waiting: dict[Path, list[Point]] = {}
    for point in points:
        result = store.load(point)
        if result is None:
            waiting.setdefault(store.path(point), []).append(point)
        else:
            yield Outcome(point, result, reused=True)
    if not waiting:
        return
    with _client(min(processes, len(waiting)), scheduler) as client:
        futures = {
            client.submit(measure, simulate, alike[0], store.version, retries=RETRIES, pure=False): alike
            for alike in waiting.values()
        }
        finished = as_completed(futures)
        for future in finished:
            if future.status in ("lost", "pending"):
                # Its worker died with the result before it was fetched here; another one is at it.
                finished.add(future)
                continue
            first, *others = futures[future]
            outcome = _outcome(future, first)
            if outcome.result is not None:
                store.save(first, outcome.result)
            future.release()
            yield outcome
            for point in others:
                yield replace(outcome, point=point, result=store.load(point))


def measure(simulate: Simulate, point: Point, version: str) -> dict[str, Any]:
    """Simulate `point` on a worker, one at a time in a process; the worker's sources must be of `version`."""
    if source_version() != version:
        raise RuntimeError("this worker has other sources, or tools of other versions, than the one who asks")
    with _one_at_a_time:
        return simulate(point)


def _outcome(future: Future, point: Point) -> Outcome:
    if future.status == "finished":
        return Outcome(point, future.result())
    if future.status != "error":
        return Outcome(point, None, "the scheduler went away before it was finished")
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Outcome(point, None, f"each of the {DEATHS_ALLOWED + 1} workers that ran it died")
    return Outcome(point, None, " ".join(f"{type(error).__name__}: {error}".split()))


@contextmanager
def _client(processes: int, scheduler: str) -> Iterator[Client]:
    """A client of the cluster at address `scheduler`, or of one of local processes that ends with it."""
    if scheduler:
        try:
            client = Client(scheduler, timeout=10)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler} ({error})") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError as error:
                raise UsageError(f"the scheduler at {scheduler} has had no worker for {PATIENCE} s") from error
            yield client
        return
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
