"""The processes that a command has started: compilers and simulators end with it when it is interrupted."""

import ctypes
import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, what loses its parent below this process becomes a child of this process (Linux, prctl(2)), so that
    :func:`end_children` finds compilers whose make is gone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """End everything that runs below this process."""
    below = defaultdict(list)
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name before the state may hold anything, brackets too.
            below[int((place / "stat").read_text().rpartition(")")[2].split()[1])].append(int(place.name))
    waiting = below[os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting += below[process]
        with suppress(OSError):
            os.kill(process, signal.SIGTERM)
