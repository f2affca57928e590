"""What is built is built once, and anew when it is not whole; a build that fails leaves its log and one sentence; some
paths are make's trouble and nobody else's."""

import os
import pickle
from pathlib import Path

import pytest

from sim.errors import MachineError
from sim.experiments.regression import builds_only
from sim.simulator import machine, plain_paths
from sim.simulator.build_folder import LOG, Building, build_failure, build_folder, remembered, whole
from sim.simulator.plain_paths import build_place, is_plain, linked
from sim.simulator.run_folder import remove_stale


def built(kind: Path, content: str = "product") -> tuple[Path, bool]:
    with build_folder(kind, "sources", ["simulator"]) as (folder, new):
        if new:
            assert not list(folder.iterdir())
            (folder / "simulator").write_text(content)
    return folder, new


def test_a_build_is_made_once_and_anew_when_it_was_damaged(tmp_path):
    folder, new = built(tmp_path / "kind")
    assert new
    assert whole(folder)
    assert built(tmp_path / "kind") == (folder, False)
    for damage in (
        lambda: (folder / "simulator").write_text("pro"),
        lambda: (folder / "simulator").unlink(),
        lambda: (folder / "complete").write_text(""),
        lambda: (folder / "complete").write_bytes(b"\xff{"),
        lambda: (folder / "complete").rename(folder / "left by a build that was killed"),
    ):
        damage()
        assert not whole(folder)
        assert built(tmp_path / "kind") == (folder, True)
        assert (folder / "simulator").read_text() == "product"


def test_a_build_that_fails_leaves_its_log_only(tmp_path):
    def fail() -> None:
        with build_folder(tmp_path / "kind", "sources", ["simulator"]) as (folder, _):
            (folder / "half.o").write_text("half")
            (folder / LOG).write_text("g++: fatal error: No space left on device\n")
            raise build_failure("the simulator", folder / LOG)

    with pytest.raises(MachineError, match="could not be built: the disk is full"):
        fail()
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.name for path in folder.iterdir()] == [LOG]


@pytest.mark.parametrize("note", ["", "/nowhere", "\0\0\0", "\udcff broken", "x" * 5000])
def test_a_damaged_note_is_written_anew(tmp_path, note):
    noted, folder = tmp_path / "notes" / "one", built(tmp_path / "kind")[0]
    noted.parent.mkdir()
    noted.write_text(note, errors="surrogateescape")
    assert remembered(noted, lambda: folder) == folder
    assert noted.read_text() == str(folder)
    assert remembered(noted, lambda: pytest.fail("built again")) == folder


def test_folders_of_processes_that_are_gone_are_removed(tmp_path):
    gone = next(number for number in range(4_000_000, 2, -1) if not Path("/proc", str(number)).exists())
    for name in (f"{gone}-1", f"{os.getpid()}-2", "notes"):
        (tmp_path / name).mkdir()
    remove_stale(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{os.getpid()}-2", "notes"])


def test_paths_that_make_does_not_take_are_gone_round(tmp_path, monkeypatch):
    bad, good = tmp_path / "a b (c)" / "tool", tmp_path / "tool"
    bad.mkdir(parents=True)
    assert not is_plain(bad)
    assert linked(good) == build_place(good) == good
    monkeypatch.setattr(plain_paths.tempfile, "gettempdir", lambda: str(tmp_path))
    link = linked(bad)
    assert is_plain(link)
    assert link.resolve() == bad
    assert linked(bad) == link
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert build_place(bad).parent == tmp_path / "cache" / "t3rtl"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert is_plain(build_place(bad))


@pytest.mark.parametrize(
    ("seconds", "processors", "said"),
    [
        (1, 2, "about 5 seconds"),
        (32, 2, "about 30 seconds"),
        (32, 1, "about 1 minute"),
        (60, 2, "about 1 minute"),
        (300, 2, "about 5 minutes"),
        (float("inf"), 2, "for as long as it takes"),
    ],
)
def test_a_build_says_how_long_it_takes_here(monkeypatch, seconds, processors, said):
    parts = ("runtime", "gpu")
    slowness = seconds / sum(machine.BUILD_SECONDS[part] for part in parts)
    monkeypatch.setattr(machine, "slowness", lambda: slowness)
    monkeypatch.setattr(machine, "processors", lambda: processors)
    assert machine.build_minutes(*parts) == said


def test_the_whole_gpu_is_said_to_take_longer(monkeypatch):
    monkeypatch.setattr(machine, "slowness", lambda: 1.0)
    monkeypatch.setattr(machine, "processors", lambda: 2)
    assert machine.build_minutes("runtime", "gpu", *["lane channel"] * 32) == "about 3 minutes"


def test_the_speed_is_measured_once(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "BUILD", tmp_path)
    monkeypatch.setattr(machine, "compile_seconds", lambda: 2 * machine.REFERENCE_SECONDS)
    assert machine.slowness() == 2
    monkeypatch.setattr(machine, "compile_seconds", lambda: pytest.fail("measured again"))
    assert machine.slowness() == 2
    (tmp_path / "machine.json").write_text("half")
    monkeypatch.setattr(machine, "compile_seconds", lambda: float("inf"))
    assert machine.slowness() == float("inf")


def test_only_builds_are_told_of_where_there_is_no_terminal():
    """From another process too, as a regression's workers tell of theirs."""
    heard: list[str] = []
    tell = builds_only(heard.append)
    for stage in ("building", Building("the simulator"), pickle.loads(pickle.dumps(Building("the channel")))):
        tell(stage)
    assert heard == ["the simulator", "the channel"]
