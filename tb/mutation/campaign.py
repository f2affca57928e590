"""One block's mutants from the list to the results, kept in a file so that an interrupted run goes on where it was."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.errors import SimulationError, UsageError
from sim.simulator.sources import digest_of_folders
from sim.simulator.verilator import BUILD
from tb.mutation.blocks import Block
from tb.mutation.equivalence import is_equivalent, lead_nowhere
from tb.mutation.execution import kill, prepared
from tb.mutation.jobs import Job, read_jobs
from tb.mutation.netlist import ROOT, Mutant, apply_mutants, list_mutants
from tb.mutation.outcomes import read_outcomes
from tb.mutation.processes import in_processes

_APART = ("mutation",)
"""Folder whose sources make no difference to a simulation."""
BATCH = 200
"""Mutants in one simulator build; with a thousand the simulation is four times slower."""


@dataclass(frozen=True)
class MutantResult:
    """What became of a mutant: `outcome` is killed, equivalent (proven) or survived; `test` killed it."""

    block: str
    netlist: str
    number: int
    mode: str
    place: str
    sources: tuple[str, ...]
    command: str
    outcome: str
    test: str = ""
    by: str = ""


def record(block: Block, seed: int) -> Path:
    """The folder with the block's recorded simulations; its tests run once, unless nothing has changed since.

    Raises :class:`SimulationError` when a test fails.
    """
    sources = digest_of_folders("hw", "sim", "tb", apart=_APART)
    key = hashlib.sha256(repr((block.tests, seed, sources)).encode()).hexdigest()[:16]
    folder = BUILD / "mutation" / "recorded" / key
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tb.mutation.recorder", "-p", "no:cacheprovider"]
    answer = subprocess.run(
        [*command, "-m", "not slow", *block.tests],
        cwd=ROOT,
        env={**os.environ, "T3_MUTATION_RECORD": str(folder), "T3_SEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise SimulationError(f"the tests of the right design fail:\n{answer.stdout[-3000:]}")
    (folder / "complete").touch()
    return folder


def _known(path: Path) -> dict[int, MutantResult]:
    if not path.exists():
        return {}
    results = (MutantResult(**json.loads(line)) for line in path.read_text().splitlines())
    return {result.number: result for result in results}


def _result(block: str, netlist: str, mutant: Mutant, outcome: str, *noticed: str) -> MutantResult:
    names = (mutant.mode, mutant.place, mutant.sources, mutant.command, outcome)
    return MutantResult(block, netlist, mutant.number, *names, *noticed)


def _append(results: Path, result: MutantResult) -> None:
    with results.open("a") as file:
        file.write(json.dumps(result.__dict__) + "\n")


def _take_over(block: str, netlist: str, mutants: list[Mutant], results: Path) -> None:
    """Begin `results`, where this checkout has none, with the outcomes that another one's run has left."""
    if not results.exists():
        known = read_outcomes(block, netlist, mutants)
        for mutant in mutants:
            if mutant.number in known:
                _append(results, _result(block, netlist, mutant, known[mutant.number]))


def _try(
    block: str,
    rtlil: str,
    jobs: list[Job],
    batch: list[Mutant],
    todo: list[Mutant],
    unproven: Container[int],
    show: Callable[[str], object],
    processes: int = 1,
) -> Iterator[MutantResult]:
    """Results of `todo`, mutants of a `batch` in one build; of the numbers in `unproven` no proof is tried again."""
    unread = lead_nowhere(rtlil, jobs[0].name, todo)
    show(f"{block}: building {len(batch)} mutants")
    text = apply_mutants(rtlil, jobs[0].name, batch)

    def try_some(part: Sequence[Mutant]) -> Iterator[MutantResult]:
        with prepared(jobs, text) as trials:
            for mutant in part:
                noticed: tuple[str, ...] = ()
                if mutant.number in unread:
                    outcome = "equivalent"
                elif (last := kill(trials, mutant.number)).killed:
                    outcome, noticed = "killed", (last.test, last.by)
                else:
                    proven = mutant.number not in unproven and is_equivalent(rtlil, mutant)
                    outcome = "equivalent" if proven else "survived"
                yield _result(block, jobs[0].netlist, mutant, outcome, *noticed)

    if processes > 1:
        # Once, before several processes want the same.
        for job in jobs:
            job.build(text)
    for done, result in enumerate(in_processes(try_some, todo, processes), start=1):
        show(f"{block}: mutant {result.number}, {done} of {len(todo)}")
        yield result


def _run_netlist(
    block: str,
    rtlil: str,
    jobs: list[Job],
    mutants: list[Mutant],
    results: Path,
    show: Callable[[str], object],
    processes: int = 1,
) -> Iterator[MutantResult]:
    """Results of `mutants`; survivors of an earlier run are tried again only when tests have changed, proofs never."""
    known = _known(results)
    tests = digest_of_folders("tb", apart=_APART)
    marker = results.with_suffix(".tests")
    same_tests = marker.exists() and marker.read_text() == tests
    kept = {number for number, result in known.items() if result.outcome != "survived" or same_tests}
    yield from (known[mutant.number] for mutant in mutants if mutant.number in kept)
    waiting = [mutant for mutant in mutants if mutant.number not in kept]
    if not same_tests:
        marker.unlink(missing_ok=True)
    for start in range(0, len(mutants), BATCH):
        batch = mutants[start : start + BATCH]
        todo = [mutant for mutant in batch if mutant in waiting]
        if not todo:
            continue
        for result in _try(block, rtlil, jobs, batch, todo, known, show, processes):
            _append(results, result)
            yield result
    marker.write_text(tests)


def run_block(
    name: str,
    block: Block,
    seed: int,
    mutants: int | None = None,
    show: Callable[[str], None] = lambda text: None,
    only: Collection[int] = (),
    processes: int = 1,
) -> Iterator[MutantResult]:
    """Results of the block's mutants (`mutants` instead of the block's own number), `processes` at a time. With `only`,
    of those of these numbers, which are tried whatever is known of them; nothing is kept then. Raises
    :class:`UsageError` for a number that the block has no mutant of."""
    show(f"{name}: recording the simulations of {', '.join(block.tests)}")
    recorded = record(block, seed)
    out = BUILD / "mutation" / "results"
    out.mkdir(parents=True, exist_ok=True)
    for netlist, jobs in read_jobs(recorded).items():
        rtlil = (recorded / f"{netlist}.il").read_text()
        listed = list_mutants(rtlil, jobs[0].name, block.sources, mutants or block.mutants, seed)
        if not listed:
            continue
        if only:
            if max(only) > len(listed):
                raise UsageError(f"--number must be 1 to {len(listed)}; got {max(only)}")
            chosen = [mutant for mutant in listed if mutant.number in only]
            yield from _try(name, rtlil, jobs, chosen, chosen, (), show, processes)
        else:
            results = out / f"{name}-{netlist}-{len(listed)}-{seed}.jsonl"
            _take_over(name, netlist, listed, results)
            yield from _run_netlist(name, rtlil, jobs, listed, results, show, processes)
        return
