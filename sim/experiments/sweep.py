"""Runs points on worker processes, of this machine or of a Dask cluster, and keeps what is finished.

Dask schedules both: a local run is a cluster of this machine's processes, so results, retries and what happens when
a worker dies are the same either way.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed

from sim.errors import MachineError, UsageError, of_the_machine, sentence_of
from sim.experiments.experiment import source_version
from sim.experiments.outcomes import Outcome
from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.experiments.store import PointStore

Simulate = Callable[[Spec], Result]
DEATHS_ALLOWED = 3
"""Workers that may die under a point before it is given up."""
RETRIES = 1
"""Times a point is tried again after it raised an exception: one machine may lack what another has."""
TIMEOUT = 60
"""Seconds to wait for the first worker of a cluster."""
SETTINGS = {
    "distributed.scheduler.allowed-failures": DEATHS_ALLOWED,
    # A simulation may keep a worker from answering for minutes, and its tools start processes of their own.
    "distributed.scheduler.worker-ttl": None,
    "distributed.worker.daemon": False,
    # It would take samples of a thread that waits for a simulator.
    "distributed.worker.profile.enabled": False,
    # A terminal's Ctrl-C reaches the workers too; they end when the one that started them has heard it, without a
    # traceback each.
    "distributed.worker.preload": ["import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"],
}
_one_at_a_time = threading.Lock()


def run_points(
    specs: Sequence[Spec], store: PointStore, simulate: Simulate, processes: int = 2, scheduler: str = ""
) -> Iterator[Outcome]:
    """The outcome of every spec: first those that `store` has, then the others as they finish, kept in `store`.

    `scheduler` is the address of a Dask scheduler; without it `processes` local ones work. Results that are wrong are
    finished too; specs without a result are not kept, and run again next time. Of specs that are one simulation one
    runs. Raises :class:`UsageError` when the cluster does not answer or has no worker.
    """
    waiting: dict[Path, list[Spec]] = {}
    for spec in specs:
        result = store.load(spec)
        if result is None:
            waiting.setdefault(store.path(spec), []).append(spec)
        else:
            yield Outcome(spec, result, reused=True)
    if not waiting:
        return
    with cluster_client(min(processes, len(waiting)), scheduler) as client:
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
            alike = futures[future]
            outcome = _kept(_outcome(future, alike[0]), store)
            future.release()
            for spec in alike:
                result = outcome.result and outcome.result | {"spec": spec.to_json()}
                yield replace(outcome, spec=spec, result=result)


def _kept(outcome: Outcome, store: PointStore) -> Outcome:
    """`outcome`, its result on disk; one that cannot be written is not lost for that."""
    if outcome.result is None:
        return outcome
    try:
        store.save(outcome.spec, outcome.result)
    except (UsageError, MachineError, OSError) as error:
        return replace(outcome, unsaved=sentence_of(error))
    return outcome


def measure(simulate: Simulate, spec: Spec, version: str) -> Result:
    """Simulate `spec` on a worker, one at a time in a process; the worker's sources must be of `version`."""
    if source_version() != version:
        raise RuntimeError("this worker has other sources, or tools of other versions, than the one who asks")
    with _one_at_a_time:
        return simulate(spec)


def _outcome(future: Future, spec: Spec) -> Outcome:
    if future.status == "finished":
        return Outcome(spec, future.result())
    if future.status != "error":
        return Outcome(spec, None, "the scheduler went away before it was finished", machine=True)
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Outcome(spec, None, f"each of the {DEATHS_ALLOWED + 1} workers that ran it died", machine=True)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(spec, None, text, machine=error is not None and of_the_machine(error))


@contextmanager
def cluster_client(processes: int, scheduler: str) -> Iterator[Client]:
    """A client of the cluster at address `scheduler`, or of one of local processes that ends with it."""
    if scheduler:
        try:
            client = Client(scheduler, timeout=10)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler} ({error})") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=TIMEOUT)
            except TimeoutError as error:
                raise UsageError(f"the scheduler at {scheduler} has had no worker for {TIMEOUT} s") from error
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
