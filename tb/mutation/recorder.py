"""A pytest plugin (`-p tb.mutation.recorder`) that keeps what is needed to repeat each simulation that passes.

Into the folder of T3_MUTATION_RECORD go the netlists, `<digest>.il`, and one line of `jobs.jsonl` per simulation. A
test that expects its simulation to fail, of a design with a seeded bug, leaves nothing.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from amaranth.lib import wiring

import sim.benches.vectors
import tb.runner
from hw.export.verilog import to_rtlil
from hw.near_bank.alu import Alu
from sim.benches.vectors import operation_lines
from sim.models.clock_gates import ClockGated
from tb.mutation.outcomes import netlist_digest
from tb.runner import Simulation


def _write(component: wiring.Component, name: str, job: dict) -> None:
    folder = Path(os.environ["T3_MUTATION_RECORD"])
    rtlil = to_rtlil(component, name, sources=True)
    digest = netlist_digest(rtlil)
    (folder / f"{digest}.il").write_text(rtlil)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
    with (folder / "jobs.jsonl").open("a") as jobs:
        jobs.write(json.dumps({"test": test, "netlist": digest, "name": name, **job}) + "\n")


def _record(component: wiring.Component, simulation: Simulation, sources: Sequence[Path]) -> None:
    job = {"simulation": asdict(simulation), "sources": list(map(str, sources))}
    _write(component, simulation.name, {"kind": "simulation", **job})


def _record_vectors(operands: list[int], old: np.ndarray, new: np.ndarray, results: bytes) -> None:
    """Keep a file of ALU operations and its results, which the test compares with the golden model."""
    folder = Path(os.environ["T3_MUTATION_RECORD"])
    operations = operation_lines(operands, old, new)
    digest = hashlib.sha256(operations.encode()).hexdigest()[:16]
    (folder / f"{digest}.operations").write_text(operations)
    (folder / f"{digest}.results").write_bytes(results)
    _write(ClockGated(Alu()), "alu", {"kind": "vectors", "vectors": str(folder / digest)})


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    tb.runner.observers.append(_record)
    sim.benches.vectors.observers.append(_record_vectors)
