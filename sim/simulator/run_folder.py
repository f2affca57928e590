"""Folders of runs of a simulator, within its own."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEEP_RUNS = "T3_KEEP_RUNS"
"""Environment variable: a folder stays after its run."""


@contextmanager
def run_folder(model: Path) -> Iterator[Path]:
    """A folder in that of the simulator `model` for one run, or for processes that read the same, which goes away with
    it; those of processes that were killed go away too."""
    remove_stale(model / "runs")
    folder = model / "runs" / f"{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        if not os.environ.get(KEEP_RUNS):
            shutil.rmtree(folder, ignore_errors=True)


def remove_stale(runs: Path) -> None:
    """Remove what processes that were killed have left in folder `runs`, where each folder begins with its process's
    number."""
    if os.environ.get(KEEP_RUNS):
        return
    for folder in runs.glob("*-*"):
        process = folder.name.partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)
