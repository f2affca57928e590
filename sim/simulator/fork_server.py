"""A process of the simulator that forks for each thing that is asked of it (`sim/models/answers.h`)."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from sim.errors import SimulationError
from sim.simulator.fast_model import EXECUTABLE
from sim.simulator.process import failure
from sim.simulator.session import SESSION

DIED = "died"
"""First word of an answer in the place of a child that gave none."""
Asked = TypeVar("Asked")


def answers(
    model: Path, folder: Path, arguments: Sequence[str], asked: Sequence[Asked], what: str
) -> Iterator[tuple[Asked, str]]:
    """Each of `asked`, which `what` they are of, and its answer, as soon as it comes, from a process of the simulator
    `model` in `folder`, whose files number them from 0 on.

    Raises :class:`SimulationError` when a child dies, the process fails or leaves any of them out, and
    :class:`sim.errors.MachineError` when memory or disk ran out.
    """
    log = folder / "run.log"
    with log.open("w") as said:
        command = [str(model / EXECUTABLE), SESSION, *arguments]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True)
    assert process.stdout is not None
    missing = dict(enumerate(asked))
    try:
        for line in process.stdout:
            number, _, text = line.partition(" ")
            item = missing.pop(int(number))
            if text.startswith(DIED):
                words = log.read_text(errors="replace").strip().splitlines() or [text.strip()]
                raise SimulationError(f"the simulator died of {what} {str(item)!r}: {words[-1]}")
            yield item, text
        if code := process.wait():
            raise failure(f"the server of {what}s", code, log.read_text(errors="replace"), folder)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    for item in missing.values():
        raise SimulationError(f"{what} {str(item)!r} was never reached")
