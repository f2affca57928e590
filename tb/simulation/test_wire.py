"""Wires between models that are advanced apart, and the team of threads that advances them: what arrives, and when,
depends on neither the quantum nor the threads."""

import subprocess
from itertools import product
from pathlib import Path

import pytest

from sim.models import FOLDER

BENCH = Path(__file__).with_name("wire_bench.cpp")
MODELS, DELAY, CYCLES = 5, 8, 4000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wire") / "bench"
    command = ["g++", "-std=c++20", "-O1", "-pthread", "-I", str(FOLDER), "-o", str(made), str(BENCH)]
    subprocess.run(command, check=True)
    return made


def run(bench: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bench, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


def cycle_by_cycle(models: int, delay: int, cycles: int) -> list[int]:
    """The numbers of all models, which go on together."""
    numbers = list(range(models))
    arriving: list[dict[int, int]] = [{} for _ in range(models)]
    for cycle in range(cycles):
        for n in range(models):
            numbers[n] = (numbers[n] * 1664525 + 1013904223 + arriving[n].pop(cycle, 0)) % 2**32
        for n in range(models):
            if numbers[n] >> 31:
                arriving[(n + 1) % models][cycle + delay] = numbers[n] ^ cycle
    return numbers


@pytest.mark.parametrize(("threads", "quantum"), list(product((1, 2, 5), (1, 3, 7, DELAY))))
def test_threads_and_quantum_make_no_difference(bench: Path, threads: int, quantum: int) -> None:
    done = run(bench, MODELS, threads, quantum, DELAY, CYCLES, "none")
    assert list(map(int, done.stdout.split())) == cycle_by_cycle(MODELS, DELAY, CYCLES)


def test_more_threads_than_models(bench: Path) -> None:
    done = run(bench, 2, 6, 1, 1, CYCLES, "none")
    assert list(map(int, done.stdout.split())) == cycle_by_cycle(2, 1, CYCLES)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("quantum", "fault"), [(DELAY, "late"), (DELAY + 1, "none"), (3 * DELAY, "none")])
def test_what_arrives_too_late_is_caught(bench: Path, threads: int, quantum: int, fault: str) -> None:
    """The seeded faults: an exchange that is a quantum late, and quanta longer than the delay."""
    done = run(bench, MODELS, threads, quantum, DELAY, CYCLES, fault)
    assert (done.returncode, done.stderr) == (1, "what was sent on a wire arrived too late\n")


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_what_a_part_throws_is_thrown(bench: Path, threads: int) -> None:
    done = run(bench, MODELS, threads, 1, DELAY, CYCLES, "thrown")
    assert (done.returncode, done.stderr) == (1, "a part has failed\n")
