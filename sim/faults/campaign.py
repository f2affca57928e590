"""A campaign: samples of every class of injection, run on fork servers, each finished one kept, and what they say."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw.config import Configuration
from hw.protection import NONE
from sim.errors import UsageError
from sim.experiments.hardware import Settings, configuration
from sim.faults.injections import ABORT, CLASSES, FLITS, LINK_CLASSES, Injection, Space
from sim.faults.outcomes import CORRECTED, DETECTED, HANG, MASKED, SILENT, Facts, outcome
from sim.faults.places import MEMORY, PROTECTED
from sim.faults.reference import SETTINGS, TOPOLOGIES, WATCHDOG, Setup, prepare, reference_spec
from sim.faults.server import build, run_injections
from sim.simulator.campaign_runs import RunFile, side_by_side
from sim.simulator.sources import digest_of

SHARE = 2000
"""Injections that one process of the simulator is given: its run without a fault is then a small part of the work, and
many come to a state that one before them came to."""
CONTROL = "control_run"
"""Class of injections whose outcome is known beforehand."""
SETTLED = 100
"""Cycles after the beginning at which nothing is made to go wrong."""


@dataclass(frozen=True)
class Options:
    """What a campaign is about: on how many `gpus` of which `topology` and hardware (`settings` as of a spec);
    `watchdog` of the nodes in cycles, 0 for none; `compare`: results are compared, unless the campaign itself is to be
    seen failing; `shorten`: of what is known without simulating it, nothing is simulated."""

    gpus: int = 3
    settings: Settings = ()
    watchdog: int = WATCHDOG
    compare: bool = True
    shorten: bool = True
    topology: str = TOPOLOGIES[0]

    @property
    def config(self) -> Configuration:
        """The hardware, as far as settings go."""
        return configuration("paper", dict(SETTINGS) | dict(self.settings))

    def setup(self) -> Setup:
        """The run."""
        spec = reference_spec(self.gpus, self.settings, self.topology)
        return prepare(spec, self.watchdog, self.compare, self.shorten)

    def flags(self) -> list[str]:
        """As options of the command."""
        usual = Options()
        flags = [] if self.gpus == usual.gpus else ["--gpus", str(self.gpus)]
        flags += [] if self.topology == usual.topology else ["--topology", self.topology]
        flags += [word for name, value in self.settings for word in ("--set", f"{name}={value}")]
        return flags + ([] if self.watchdog == usual.watchdog else ["--watchdog", str(self.watchdog)])


@dataclass(frozen=True)
class Finished:
    """An injection and what came of it."""

    injection: Injection
    facts: Facts

    @property
    def outcome(self) -> str:
        """One of :data:`sim.faults.outcomes.OUTCOMES`."""
        return outcome(self.facts, self.injection.name == ABORT)

    @property
    def failed(self) -> bool:
        """Whether protection, if there was any, has let it through; or something was left of an abort."""
        return self.outcome in (SILENT, HANG) or bool(self.facts.late)

    @property
    def place(self) -> str:
        """The variable in which a bit was flipped, if one was."""
        words = self.injection.text.split()
        return words[3] if words[1] == "flip" else ""


class Store:
    """Finished injections of a campaign with some `options`, in a file of folder `folder`."""

    def __init__(self, folder: Path, options: Options):
        self._file = RunFile(folder, options, digest_of(__name__))

    def load(self) -> dict[str, Finished]:
        """By the text of the injection."""
        found = {}
        for kept in self._file.load():
            try:
                made = Finished(Injection(**kept["injection"]), Facts(**kept["facts"]))
            except (TypeError, KeyError):
                continue
            found[made.injection.text] = made
        return found

    def add(self, finished: Finished) -> None:
        """Keep one."""
        self._file.add({"injection": vars(finished.injection), "facts": finished.facts.to_json()})


def controls(options: Options, space: Space) -> dict[str, tuple[Injection, str]]:
    """Injections whose outcome is known, by what they show: were one classified otherwise, nothing that the campaign
    says could be believed."""
    late = space.spans[1][1] - 1
    memory = "gpu_shell.gpu.hbm_0.array.sectors"
    known = {
        "nothing going wrong": (Injection(f"{space.spans[0][0] + SETTLED} nothing", CONTROL), MASKED),
        "a flipped bit of the result": (Injection(f"{late} flip 0 {memory} 0 0", CONTROL), SILENT),
    }
    if options.config.protects_links:
        wire = next(item for item in space.sent if item.kind == FLITS and item.cycles)
        line = f"{wire.cycles[len(wire.cycles) // 2]} wire {wire.gpu} {wire.port} {FLITS}"
        known["a damaged flit"] = (Injection(f"{line} damage 0 100", CONTROL), CORRECTED)
        ends = DETECTED if options.watchdog else HANG
        known["a wire that is cut"] = (Injection(f"{line} cut 0 0", CONTROL), ends)
    return known


UNPROTECTED = {MEMORY: 400, "flit_bit": 200, "flit_dropped": 100, "flit_reordered": 100}
"""Injections of each class into the build without protection."""


def unprotected(options: Options) -> Options:
    """The same without protection."""
    return replace(options, settings=(*options.settings, ("protection", NONE)))


def lets_through(results: Sequence[Finished]) -> dict[str, bool]:
    """By class, whether any injection is seen to do harm that protection would have corrected, or found: a wrong
    result; of flits that are lost or overtaken also an end by the watchdog."""
    found: dict[str, bool] = {}
    for item in results:
        name = item.injection.name
        ends = (SILENT, HANG) if name in (MEMORY, "flit_bit") else (SILENT, HANG, DETECTED)
        found[name] = found.get(name, False) or item.outcome in ends
    return found


def shared_out(space: Space, names: Sequence[str], total: int) -> dict[str, int]:
    """How many injections of each class `names`, so that they are `total` or a few more: as many of each, or all of one
    that has not so many, and then more of the others."""
    found: dict[str, int] = {}
    waiting = sorted(names, key=space.population)
    for number, name in enumerate(waiting):
        each = -(-max(0, total - sum(found.values())) // (len(waiting) - number))
        found[name] = min(each, space.population(name))
    return {name: found[name] for name in names}


def plan(space: Space, counts: Mapping[str, int], seed: int) -> list[Injection]:
    """So many injections of each class."""
    return [item for name, count in counts.items() for item in space.draw(name, count, seed)]


def shares(injections: Sequence[Injection], size: int = SHARE) -> list[list[Injection]]:
    """`injections` in the order of their cycles, in parts for a process each: one whose cycles lie close together goes
    through little of the run itself."""
    ordered = sorted(injections, key=lambda item: item.cycle)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


Done = tuple[Injection, Facts]


def run_share(options: Options, share: Sequence[Injection], version: str) -> list[Done]:
    """On a worker of a cluster: builds the simulator, unless it is there, and runs a share."""
    if digest_of(__name__) != version:
        raise RuntimeError("this worker has other sources, or tools of other versions, than the one who asks")
    setup = options.setup()
    return list(run_injections(setup, build(setup), share))


def run_all(
    options: Options, injections: Sequence[Injection], store: Store, processes: int, scheduler: str = ""
) -> Iterator[Finished]:
    """What comes of `injections`: first those that `store` has, then the others as they finish, kept in `store`.

    `scheduler` is the address of a Dask scheduler, whose workers run a share each; without it `processes` simulators
    run here. Raises :class:`sim.errors.SimulationError` when one fails.
    """
    known = store.load()
    yield from (known[item.text] for item in injections if item.text in known)
    waiting = [item for item in injections if item.text not in known]
    parts = shares(waiting, max(1, min(SHARE, -(-len(waiting) // (2 * processes)))))
    for injection, facts in _on_cluster(options, parts, scheduler) if scheduler else _here(options, parts, processes):
        finished = Finished(injection, facts)
        store.add(finished)
        yield finished


def _on_cluster(options: Options, parts: list[list[Injection]], scheduler: str) -> Iterator[Done]:
    from distributed import as_completed

    from sim.experiments.sweep import cluster_client

    version = digest_of(__name__)
    with cluster_client(1, scheduler) as cluster:
        futures = [cluster.submit(run_share, options, part, version, pure=False) for part in parts]
        for future in as_completed(futures):
            yield from future.result()
            future.release()


def _here(options: Options, parts: list[list[Injection]], processes: int) -> Iterator[Done]:
    """Every injection as soon as it is finished."""
    setup = options.setup()
    model = build(setup)
    yield from side_by_side(parts, lambda part: run_injections(setup, model, part), processes)


def run_now(options: Options, injections: Sequence[Injection]) -> list[Finished]:
    """What comes of injections that are not kept, in the order given."""
    if not injections:
        return []
    setup = options.setup()
    found = {item.text: Finished(item, facts) for item, facts in run_injections(setup, build(setup), injections)}
    return [found[item.text] for item in injections]


def wrong_controls(options: Options, space: Space) -> list[str]:
    """A sentence for each of :func:`controls` that is not classified as it has to be."""
    known = controls(options, space)
    found = run_now(options, [injection for injection, _ in known.values()])
    return [
        f"the campaign itself is wrong: {name} is {item.outcome}, not {expected}"
        for (name, (_, expected)), item in zip(known.items(), found, strict=True)
        if item.outcome != expected
    ]


def protected(options: Options) -> tuple[str, ...]:
    """Classes of which no injection may be silent or hang."""
    config = options.config
    memories = (PROTECTED,) if config.protects_memories else ()
    return (*memories, *LINK_CLASSES, ABORT) if config.protects_links else ()


def command(options: Options, injection: Injection) -> str:
    """The command that repeats an injection alone."""
    words = ["t3rtl", "faults", *options.flags(), "--replay", f"{injection.name} {injection.text}"]
    return shlex.join(words)


def parse(text: str) -> Injection:
    """The injection of `text`, its class first, as :func:`command` writes it."""
    name, _, rest = text.strip().partition(" ")
    kinds = {"flip": 6, "wire": 8, "abort": 3, "nothing": 2}
    words = rest.split()
    if name not in (*CLASSES, CONTROL) or len(words) < 2 or not words[0].isdigit() or words[1] not in kinds:
        raise UsageError(f"--replay takes 'CLASS CYCLE flip|wire|abort ...' as a campaign prints it, got {text!r}")
    if len(words) < kinds[words[1]]:
        raise UsageError(f"--replay: {words[1]} takes {kinds[words[1]] - 2} words or more, got {text!r}")
    return Injection(rest, name)
