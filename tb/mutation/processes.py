"""Work in several processes at once, whose results come as they are ready.

Processes, where :func:`sim.simulator.campaign_runs.side_by_side` has threads: the work forks simulators and proofs, and
what is forked beside other threads may find their locks held for ever.
"""

import multiprocessing
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_SECONDS = 5
"""How often to look whether a process has died without a word."""


def in_processes(
    work: Callable[[Sequence[Item]], Iterator[Result]], items: Sequence[Item], processes: int
) -> Iterator[Result]:
    """Results of `work`, which gets a part of `items` in each of the `processes`, in no order; with one process, of all
    items here.

    What `work` raises is raised here, and ends the other processes. Raises :class:`RuntimeError` when a process ends
    before its time.
    """
    if processes == 1:
        yield from work(items)
        return
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()

    def run(part: Sequence[Item]) -> None:
        try:
            for result in work(part):
                results.put((result, None, False))
            results.put((None, None, True))
        except Exception as error:
            results.put((None, error, False))

    parts = [items[start::processes] for start in range(min(processes, len(items)))]
    workers = [context.Process(target=run, args=(part,)) for part in parts]
    for worker in workers:
        worker.start()
    running = len(workers)
    try:
        while running:
            try:
                result, error, over = results.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if any(worker.exitcode for worker in workers):
                    raise RuntimeError("a process ended before its time") from None
                continue
            if error is not None:
                raise error
            if over:
                running -= 1
            else:
                yield result
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
