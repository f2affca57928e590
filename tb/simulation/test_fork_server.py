"""What is made of the lines of a process that forks for each thing it is asked; a script stands for the process."""

from pathlib import Path

import pytest

from sim.errors import MachineError, SimulationError
from sim.simulator.fast_model import EXECUTABLE
from sim.simulator.fork_server import answers

ASKED = ["first", "second"]


def asked_of(folder: Path, script: str) -> list[tuple[str, str]]:
    """The answers of a process that is `script`."""
    file = folder / EXECUTABLE
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return list(answers(folder, folder, [], ASKED, "thing"))


def test_answers_come_in_the_order_of_the_process(tmp_path: Path) -> None:
    assert asked_of(tmp_path, "echo 1 b c; echo 0 a") == [("second", "b c\n"), ("first", "a\n")]


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo 0 a; echo 1 died 6", SimulationError, "the simulator died of thing 'second'"),
        ("echo no such wire >&2; echo 0 died 256", SimulationError, "died of thing 'first': no such wire"),
        ("echo 0 a", SimulationError, "thing 'second' was never reached"),
        (
            "echo 0 a; echo 1 b; echo there is no wire >&2; exit 1",
            SimulationError,
            "the server of things failed: there",
        ),
        (
            "echo 0 a; echo std::bad_alloc >&2; exit 1",
            MachineError,
            "the server of things failed: it was killed, or memory",
        ),
        ("kill -9 $$", MachineError, "the server of things failed: it was killed"),
    ],
    ids=["died", "died-with-words", "left-out", "failed", "memory", "killed"],
)
def test_what_is_wrong_is_said(tmp_path: Path, script: str, error: type[SimulationError], words: str) -> None:
    with pytest.raises(error, match=words):
        asked_of(tmp_path, script)
