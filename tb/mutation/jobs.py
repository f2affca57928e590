"""The recorded simulations of a block's tests, and how each is repeated on a design full of mutants."""

import contextlib
import json
import multiprocessing
import os
import select
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.benches.vectors import build_bench_of, run_text
from sim.errors import SimulationError
from tb.mutation import fork_server
from tb.mutation.netlist import SELECT
from tb.runner import Simulation, build_text, run_built

Run = Callable[[int, int], tuple[int, float]]
"""Runs a job on a mutant (0: the right design) within a limit of CPU seconds; returns the outcome, one of
`fork_server.PASSED`, `FAILED`, `STOPPED` and `STARVED`, and the CPU seconds."""
_START_SECONDS = 600


def run_apart(function: Callable[[], None], limit: int) -> tuple[int, float]:
    """Outcome and CPU seconds of `function` in a process of its own; it fails by raising."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            fork_server.limit_and_silence(limit)
            function()
            os._exit(fork_server.PASSED)
        os._exit(fork_server.FAILED)
    status, seconds = fork_server.wait(child, limit)
    if os.WIFSIGNALED(status) or seconds > 0.9 * limit:
        return fork_server.stopped_outcome(status, seconds, limit), seconds
    return os.WEXITSTATUS(status), seconds


@dataclass(frozen=True)
class SimulationJob:
    """A cocotb test, made by pytest's `test`, on module `name` of a netlist."""

    test: str
    netlist: str
    name: str
    simulation: Simulation
    sources: tuple[Path, ...]

    def build(self, text: str) -> Path:
        """Build SystemVerilog `text` of the netlist with mutants; returns what `ready` takes."""
        return build_text(text, self.name, [*self.sources, SELECT])

    def _serve(self, built: Path, folder: str) -> None:
        """Hold the simulator ready until the pipe of requests is closed."""
        environment = {**self.simulation.environment, "T3_MUTATION_FOLDER": folder}
        modules = f"{fork_server.__name__},{self.simulation.module}"
        with contextlib.suppress(SimulationError):  # the server itself leaves no results
            run_built(built, replace(self.simulation, module=modules, environment=environment))

    @contextmanager
    def ready(self, built: Path) -> Iterator[Run]:
        """Start the simulator; raises :class:`SimulationError` when it ends before its time."""
        with tempfile.TemporaryDirectory() as folder:
            for pipe in ("requests", "answers"):
                os.mkfifo(f"{folder}/{pipe}")
            server = multiprocessing.get_context("fork").Process(target=self._serve, args=(built, folder))
            server.start()
            # Opened for both directions, a pipe does not wait for the other side; so must the server's end be seen.
            requests, answers = (os.open(f"{folder}/{pipe}", os.O_RDWR) for pipe in ("requests", "answers"))

            def run(mutant: int, limit: int) -> tuple[int, float]:
                os.write(requests, f"{mutant} {limit}\n".encode())
                waited = 0
                while not select.select([answers], [], [], 1)[0]:
                    waited += 1
                    if not server.is_alive() or waited > _START_SECONDS + limit * fork_server.WALL_FACTOR:
                        raise SimulationError(f"the simulator of {self.test} ended before its time")
                outcome, seconds = os.read(answers, 100).split()
                return int(outcome), float(seconds)

            try:
                yield run
            finally:
                os.close(requests)
                os.close(answers)
                server.join(10)
                server.kill()
                server.join()
                for leftover in (built / "runs").glob(f"*.{server.pid}"):
                    shutil.rmtree(leftover, ignore_errors=True)


@dataclass(frozen=True)
class VectorJob:
    """A file of operations for the ALU and the results they have to give."""

    test: str
    netlist: str
    name: str
    vectors: Path

    def build(self, text: str) -> Path:
        """As of :class:`SimulationJob`."""
        return build_bench_of({"alu.sv": text, SELECT.name: SELECT.read_text()})

    @contextmanager
    def ready(self, built: Path) -> Iterator[Run]:
        """As of :class:`SimulationJob`."""
        operations = self.vectors.with_suffix(".operations").read_text()
        expected = self.vectors.with_suffix(".results").read_bytes()

        def compare(mutant: int) -> None:
            if run_text(built, operations, [f"+mutant={mutant}"]) != expected:
                raise SimulationError("a result differs from the golden one")

        yield lambda mutant, limit: run_apart(lambda: compare(mutant), limit)


Job = SimulationJob | VectorJob


def _job(record: Mapping[str, Any]) -> Job:
    common = (record["test"], record["netlist"], record["name"])
    if record["kind"] == "vectors":
        return VectorJob(*common, Path(record["vectors"]))
    sources = tuple(map(Path, record["sources"]))
    return SimulationJob(*common, Simulation(**record["simulation"]), sources)


def read_jobs(folder: Path) -> dict[str, list[Job]]:
    """The jobs that `tb.mutation.recorder` left in `folder`, by netlist, those with most jobs first.

    Jobs that repeat another in everything but the test's name are left out.
    """
    netlists: dict[str, dict[str, Job]] = {}
    for line in (folder / "jobs.jsonl").read_text().splitlines():
        record = json.loads(line)
        key = json.dumps({name: value for name, value in record.items() if name != "test"}, sort_keys=True)
        netlists.setdefault(record["netlist"], {}).setdefault(key, _job(record))
    ordered = sorted(netlists.items(), key=lambda item: -len(item[1]))
    return {netlist: list(jobs.values()) for netlist, jobs in ordered}
