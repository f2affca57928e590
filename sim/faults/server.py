"""One process of the simulator: a run without a fault, and then as many with one as it is given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.errors import SimulationError
from sim.experiments.check import golden
from sim.experiments.run import read_results, write_inputs
from sim.faults.injections import FLITS, Injection, Sent, Space
from sim.faults.outcomes import Facts
from sim.faults.places import Variable, by_kind
from sim.faults.reference import Setup
from sim.simulator.build_folder import Tell, silent
from sim.simulator.fast_model import build_system
from sim.simulator.fork_server import answers
from sim.simulator.process import run_simulator
from sim.simulator.run_folder import run_folder
from sim.simulator.session import wires
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
    return build_system(
        made.config, made.storage_sectors, made.source_sectors, plans=made.plans, tell=tell, faults=True
    )


def _written(setup: Setup, folder: Path, injections: Sequence[Injection]) -> list[str]:
    """What the simulator reads is written to `folder`; its arguments."""
    lines = [*setup.plan, *(f"inject {number} {item.text}" for number, item in enumerate(injections))]
    (folder / "campaign.txt").write_text("\n".join(lines) + "\n")
    # Nobody reads samples and latencies, and children would write them into one file.
    unread = ("+samples=", "+read_latencies=")
    return [word for word in write_inputs(setup.job, folder, threads=1) if not word.startswith(unread)]


def explore(setup: Setup, model: Path) -> Prepared:
    """Run the reference, and list what can go wrong in it.

    Raises :class:`SimulationError` when its result is not the golden one in every bit, after the second collective; the
    first is compared with the second.
    """
    with run_folder(model) as folder:
        run_simulator(model, folder, _written(setup, folder, []))
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

    Errors as of :func:`sim.simulator.fork_server.answers`.
    """
    ordered = sorted(injections, key=lambda item: item.cycle)
    with run_folder(model) as folder:
        arguments = _written(setup, folder, ordered)
        for injection, text in answers(model, folder, arguments, ordered, "injection"):
            yield injection, Facts.of_line(text)
