"""A system of GPUs is the same in every bit, figure and recorded event on any number of threads, and whatever quantum
its GPUs are advanced by."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.errors import SimulationError
from sim.experiments import run
from sim.experiments.catalogue import collective, shape
from sim.experiments.experiment import run_with_output
from sim.experiments.regression import quiet
from sim.experiments.spec import Spec
from sim.simulator import session
from sim.simulator.verilator import BUILD

RING = shape(name="threads", gpus=4, shape=(96, 64, 32), tile=(16, 32), wfs=2, initial="zeroing", alone=True, stalls=10)
"""Every phase that a run can have but doorbells; the presets' links have a latency of 500 cycles."""
WAYS = ((2, 500), (4, 500), (2, 499), (1, 7))
"""Threads and quantum, beside one thread and a quantum of the whole latency."""
DIRECT = shape(name="direct", gpus=2, shape=(32, 32, 16), tile=(16, 32), wfs=2, alone=False)


def all_of(spec: Spec, monkeypatch: pytest.MonkeyPatch, threads: int, quantum: int) -> tuple[str, bytes, str]:
    """Everything that comes out of a run but how long it took: figures, data, timeline."""
    recorded: list[Any] = []
    monkeypatch.setattr(run, "QUANTUM", quantum)
    with quiet():
        result, reduced = run_with_output(spec, record=lambda timeline, _: recorded.append(timeline), threads=threads)
    assert result["passed"], result["errors"]
    del result["seconds"], result["kilocycles_per_second"], result["kilocycles_per_processor_second"]
    assert reduced is not None
    return json.dumps(result, sort_keys=True, default=str), reduced.tobytes(), plain(recorded)


def plain(item: Any) -> str:
    """Text of all values in it."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return plain({field.name: getattr(item, field.name) for field in dataclasses.fields(item)})
    if isinstance(item, dict):
        return str({name: plain(value) for name, value in item.items()})
    if isinstance(item, list | tuple):
        return str([plain(value) for value in item])
    return str(item.tolist() if isinstance(item, np.ndarray) else item)


@pytest.mark.parametrize("name", ["ring", "mesh", "switch"])
def test_threads_and_quantum_make_no_difference(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A ring with all phases and stalls; a mesh with doorbells, on links that keep state messages in flight; a switch,
    each of whose links has half of the latency, with stalls and bit errors."""
    spec, hops = RING, 1
    if name != "ring":
        spec = collective("all-to-all", 4, "mca", "auto", name, {}, shape=(64, 64, 0))
    if name == "switch":
        spec, hops = replace(spec, stalls=10, bit_errors=1e-6), 2
    expected = all_of(spec, monkeypatch, 1, 0)
    for threads, whole in WAYS:
        quantum = -(-whole // hops)
        assert all_of(spec, monkeypatch, threads, quantum) == expected, (threads, quantum)


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        yield patch


def test_a_cycle_between_gpus_makes_a_difference(crossings: pytest.MonkeyPatch) -> None:
    """The seeded fault: wires that deliver a cycle late."""
    expected = all_of(DIRECT, crossings, 1, 0)
    crossings.setattr(session, "CROSSING", session.CROSSING + 1)
    late = all_of(DIRECT, crossings, 1, 0)
    assert late[1] == expected[1]
    assert json.loads(late[0])["cycles"] > json.loads(expected[0])["cycles"]


def test_a_quantum_longer_than_the_latency_is_refused(crossings: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulationError, match="the simulation failed"):
        all_of(DIRECT, crossings, 2, 502)
    assert "a quantum is longer than the delay of a wire" in (BUILD / "failed.log").read_text()


def test_a_fault_ends_a_run_in_the_same_cycle(crossings: pytest.MonkeyPatch) -> None:
    """A run that breaks off leaves the same counters too."""
    spec = replace(RING, bug="dropped_update", alone=False)
    results = []
    for threads, quantum in ((1, 0), (2, 7)):
        crossings.setattr(run, "QUANTUM", quantum)
        with quiet():
            result, _ = run_with_output(spec, threads=threads)
        assert not result["passed"]
        del result["seconds"], result["kilocycles_per_second"], result["kilocycles_per_processor_second"]
        results.append(result)
    assert results[0] == results[1]
