"""A campaign: sequences on processes of the simulator, each finished one kept, and what they say."""

import itertools
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.errors import SimulationError
from sim.experiments.hardware import Settings
from sim.sequences.collectives import Collectives
from sim.sequences.sequence import CollectiveSequence, Item
from sim.sequences.server import BOUND, HANGS, OK, Found, run_sequences
from sim.simulator.campaign_runs import RunFile, side_by_side
from sim.simulator.sources import digest_of

SHARE = 500
"""Sequences that one process of the simulator is given: its reset is then a small part of the work."""


@dataclass(frozen=True)
class Options:
    """What sequences are about: `gpus` on `topology`, of which hardware (`settings` as of a spec)."""

    topology: str
    gpus: int
    settings: Settings = ()

    def flags(self) -> list[str]:
        """As options of the command."""
        flags = ["--topology", self.topology, "--gpus", str(self.gpus)]
        return flags + [word for name, value in self.settings for word in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class Finished:
    """A sequence by its text, and what came of it."""

    text: str
    found: Found

    @property
    def failed(self) -> bool:
        """Whether something was wrong."""
        return self.found.verdict != OK


class Store:
    """Finished sequences of a campaign with some `options`, in a file of folder `folder`."""

    def __init__(self, folder: Path, options: Options):
        self._file = RunFile(folder, options, digest_of(__name__))

    def load(self) -> dict[str, Finished]:
        """By the text of the sequence."""
        found = {}
        for kept in self._file.load():
            try:
                found[kept["text"]] = Finished(kept["text"], Found.of_json(kept["found"]))
            except (ValueError, TypeError, KeyError):
                continue
        return found

    def add(self, finished: Finished) -> None:
        """Keep one."""
        self._file.add({"text": finished.text, "found": finished.found.to_json()})


def cycles_alone(known: Collectives, model: Path, shared: Path) -> dict[str, int]:
    """How many cycles each collective lasts by itself, from arming to its end.

    Raises :class:`SimulationError` when one of them is wrong: nothing else could be believed.
    """
    alone = [CollectiveSequence(1, (Item(item.text),)) for item in known.ready]
    cycles = {}
    for sequence, found in run_sequences(known, model, shared, alone):
        if found.verdict != OK:
            raise SimulationError(f"{sequence} alone is {found.verdict} on GPU {found.gpu} ({found.detail})")
        cycles[sequence.items[0].text] = found.lasted[0]
    return cycles


def run_all(
    known: Collectives,
    places: tuple[Path, Path],
    sequences: Sequence[CollectiveSequence],
    store: Store,
    processes: int,
) -> Iterator[Finished]:
    """What comes of `sequences`: first those that `store` has, then the others as they finish, kept in `store`.
    `places`: the folder of the simulator, and what its processes share."""
    there = store.load()
    yield from (there[str(item)] for item in sequences if str(item) in there)
    waiting = [item for item in sequences if str(item) not in there]
    size = max(1, min(SHARE, -(-len(waiting) // processes)))
    parts = [waiting[first : first + size] for first in range(0, len(waiting), size)]
    for sequence, found in side_by_side(parts, lambda part: run_sequences(known, *places, part), processes):
        finished = Finished(str(sequence), found)
        store.add(finished)
        yield finished


def command(options: Options, text: str) -> str:
    """The command that repeats a sequence alone."""
    return shlex.join(["t3rtl", "sequences", *options.flags(), "--replay", text])


def up_to_the_failure(finished: Finished) -> str:
    """The sequence without what comes after the collective that failed, but for what other GPUs begin meanwhile."""
    head, *items = finished.text.split("/")
    last = finished.found.item + 1
    while last < len(items) and items[last].startswith("~"):
        last += 1
    return "/".join([head, *items[:last]])


def summarize(options: Options, finished: Sequence[Finished]) -> dict[str, Any]:
    """What a campaign says: of how many collectives how many were completed, every element right, and how many aborted;
    how many sequences were wrong or hung; how often which collective followed which; the longest times."""
    ends = Counter("".join(item.found.ends for item in finished))
    pairs: Counter[str] = Counter()
    longest = 0
    for item in finished:
        names = [part.lstrip("~").partition(":")[0] for part in item.text.split("/")[1:]]
        run = len(item.found.ends.rstrip("-"))
        pairs.update(f"{one} > {other}" for one, other in itertools.pairwise(names[:run]))
        longest = max(longest, *item.found.lasted)
    failed = [item for item in finished if item.failed]
    verdicts = Counter(item.found.verdict for item in failed)
    return {
        **asdict(options),
        "settings": dict(options.settings),
        "sequences": len(finished),
        "collectives": ends["c"] + ends["a"],
        "completed": ends["c"],
        "aborted": ends["a"],
        "failed": len(failed),
        "wrong": sum(count for verdict, count in verdicts.items() if verdict not in HANGS),
        "hung": sum(verdicts[name] for name in HANGS),
        "verdicts": dict(verdicts),
        "bound_cycles": BOUND * options.gpus,
        "longest_abort_cycles": max((item.found.drained for item in finished), default=0),
        "longest_collective_cycles": longest,
        "cycles": sum(item.found.cycles for item in finished),
        "pairs": dict(sorted(pairs.items())),
        "failures": [
            {"command": command(options, up_to_the_failure(item)), **item.found.to_json()}
            for item in sorted(failed, key=lambda item: len(item.text))
        ],
    }


def merged(summary: Path, made: dict[str, Any]) -> dict[str, Any]:
    """What file `summary` says, with `made` in the place of what it says of the same topology and number of GPUs."""
    try:
        runs = json.loads(summary.read_text())["runs"]
    except (OSError, ValueError, KeyError):
        runs = []
    same = ("topology", "gpus", "kind", "settings")
    others = [run for run in runs if any(run.get(name) != made[name] for name in same)]
    runs = sorted([*others, made], key=lambda run: (run["topology"], run["gpus"], run["kind"]))
    counted = ("sequences", "collectives", "completed", "aborted", "failed", "wrong", "hung", "cycles")
    return {**{name: sum(run[name] for run in runs) for name in counted}, "runs": runs}
