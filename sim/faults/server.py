"""One process of the simulator: a run without a fault, and then as many with one as it is given."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.errors import SimulationError
from sim.experiments.check import golden
from sim.experiments.run import read_results, remove_stale, write_inputs
from sim.faults.injections import FLITS, Injection, Sent, Space
from sim.faults.outcomes import Facts
from sim.faults.places import Variable, by_kind
from sim.faults.reference import Setup
from sim.simulator.build_folder import Tell, silent
from sim.simulator.fast_model import EXECUTABLE, build_system
from sim.simulator.session import SESSION, wires
from sim.topologies.ring import ring
from sim.topologies.topology import Topology


@dataclass(frozen=True)
class Prepared:
    """What can go wrong in a run: its `space`, all `variables` of a GPU, and those of them that do not keep what they
    are changed to, `copies`, of which there must be none."""

    space: Space
    variables: tuple[Variable, ...]
    copies: tuple[str, ...]


def build(setup: Setup, tell: Tell = silent) -> Path:
    """The folder of the simulator of `setup`."""
    made = setup.job.build
    return build_system(made.config, made.storage_sectors, made.source_sectors, tell=tell, faults=True)


@contextmanager
def _folder(model: Path) -> Iterator[Path]:
    """A folder of a run, which goes away with it."""
    remove_stale(model / "runs")
    folder = model / "runs" / f"{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        if not os.environ.get("T3_KEEP_RUNS"):
            shutil.rmtree(folder, ignore_errors=True)


def _start(setup: Setup, model: Path, folder: Path, injections: Sequence[Injection]) -> subprocess.Popen[str]:
    # Nobody reads samples and latencies, and children would write them into one file.
    written = ("+samples=", "+read_latencies=")
    arguments = [word for word in write_inputs(setup.job, folder, threads=1) if not word.startswith(written)]
    lines = [*setup.plan, *(f"inject {number} {item.text}" for number, item in enumerate(injections))]
    (folder / "campaign.txt").write_text("\n".join(lines) + "\n")
    command = [str(model / EXECUTABLE), SESSION, *arguments]
    with (folder / "run.log").open("w") as log:
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)


def _end(process: subprocess.Popen[str], folder: Path) -> None:
    """Raise :class:`SimulationError` unless the process ended well."""
    if process.wait():
        words = (folder / "run.log").read_text(errors="replace").strip().splitlines()
        raise SimulationError(f"the fault server failed: {words[-1] if words else f'exit code {process.returncode}'}")


def explore(setup: Setup, model: Path) -> Prepared:
    """Run the reference, and list what can go wrong in it.

    Raises :class:`SimulationError` when its result is not the golden one in every bit, after the second collective; the
    first is compared with the second.
    """
    with _folder(model) as folder:
        process = _start(setup, model, folder, [])
        process.communicate()
        _end(process, folder)
        reference = (folder / "reference.txt").read_text().splitlines()
        state = (folder / "state.txt").read_text().splitlines()
        found = read_results(setup.job, folder)
    right = golden(setup.spec, setup.work, None)
    keyed = [line.partition(" ")[::2] for line in reference]
    sectors = [text for key, text in keyed if key == "sectors"]
    if not np.array_equal(found.reshape(right.shape), right) or sectors[0] != sectors[1]:
        raise SimulationError("the run without a fault is wrong")
    rows = [line.split() for line in state]
    variables = tuple(Variable(name, int(bits), int(words)) for name, bits, words, _ in rows)
    first, second = (tuple(map(int, text.split())) for key, text in keyed if key == "span")
    sent = []
    for key, text in keyed:
        if key == "sent":
            gpu, port, kind, bits, *cycles = text.split()
            during = tuple(cycle for cycle in map(int, cycles) if first[0] <= cycle < second[1])
            sent.append(Sent(int(gpu), int(port), kind, int(bits), during))
    space = Space(
        setup.spec.gpus,
        ((first[0], first[1]), (second[0], second[1])),
        by_kind(list(variables), setup.config),
        sent,
        _answered(setup),
    )
    return Prepared(space, variables, tuple(name for name, *_, kept in rows if kept == "0"))


def _answered(setup: Setup) -> dict[tuple[int, int], tuple[int, int]]:
    """By output of flits, the output of the messages that come back for them."""
    built = setup.job.build.topology
    joined = built if isinstance(built, Topology) else ring(setup.spec.gpus, setup.config.links)
    found = {}
    for line in wires(joined, 1, joined.gpus):
        kind, gpu, port, sender, output, _ = line.split()
        if kind != FLITS:
            found[int(gpu), int(port)] = int(sender), int(output)
    return found


def run_injections(setup: Setup, model: Path, injections: Sequence[Injection]) -> Iterator[tuple[Injection, Facts]]:
    """What comes of each of `injections`, as soon as it is known, about in the order of their cycles.

    Raises :class:`SimulationError` when the server fails, or a run in which something went wrong ends in no way that it
    knows.
    """
    ordered = sorted(injections, key=lambda item: item.cycle)
    with _folder(model) as folder:
        process = _start(setup, model, folder, ordered)
        assert process.stdout is not None
        missing = dict(enumerate(ordered))
        try:
            for line in process.stdout:
                number, _, text = line.partition(" ")
                injection = missing.pop(int(number))
                if text.startswith("died"):
                    raise SimulationError(f"the simulator died of the injection {injection.text!r}")
                yield injection, Facts.of_line(text)
            _end(process, folder)
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
    for injection in missing.values():
        raise SimulationError(f"the injection {injection.text!r} is in no cycle of the run")
