"""A disk that is really full, at every size from nothing to enough: while building, while running, where results go."""

import os
import subprocess
import sys
from atexit import register
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from sim.experiments.experiment import simulate
from sim.experiments.results import read_results
from sim.experiments.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
"""Gives a command, in a mount namespace of its own, a disk of so many bytes in that folder."""


@cache
def can_mount() -> bool:
    """Whether this user may have disks of its own (user namespaces are allowed)."""
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_mount(), reason="needs namespaces for mounts of its own")


def on_a_disk(size: str, folder: Path, arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The command `t3rtl` with `arguments` while `folder` is a disk of `size`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "sim.cli.main", *arguments]
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNT, "sh", size, str(folder), *command],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_full_while_building_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    vectors = tmp_path / "v.txt"
    vectors.write_text("".join(f"{a:x} 0 {a:x} 0\n" for a in range(64)))
    build = tmp_path / "build"
    for size in ("20k", "200k", "800k"):
        done = on_a_disk(size, build, ["vectors", str(vectors)], T3_BUILD=str(build))
        assert done.returncode == 3, done.stderr
        assert "disk is full" in done.stderr or "No space left on device" in done.stderr
        assert all(line.startswith(("t3rtl: ", "vectors: building")) for line in done.stderr.splitlines()), done.stderr


@cache
def model() -> Path:
    """The simulator of the first scenario, built where there is room."""
    return simulate(SCENARIOS[0])[0].model


@pytest.mark.parametrize(
    ("size", "fits"),
    [("4k", False), ("60k", False), ("120k", False), ("180k", False), ("236k", False), ("600k", False), ("16m", True)],
)
def test_full_while_running_is_no_result(tmp_path: Path, size: str, fits: bool) -> None:
    """What the simulator itself could not write must not be taken for what it found."""
    out = tmp_path / "results.json"
    done = on_a_disk(size, model() / "runs", ["regress", "--only", SCENARIOS[0].name, "--out", str(out)])
    (result,) = read_results(out)
    assert "Traceback" not in done.stdout + done.stderr
    if fits:
        assert (done.returncode, result["passed"]) == (0, True), done.stdout + done.stderr
        return
    assert done.returncode == 3, done.stdout + done.stderr
    assert result["broken"] == "machine"
    (error,) = result["errors"]
    assert "is full" in error or error.startswith("No space left on device")


BENCHES = (["vectors", "v.txt"], ["dram-trace", "t.trace"])


@cache
def files_of_benches() -> Path:
    """A folder with a file for each of `vectors` and a channel, whose simulators are built where there is room."""
    folder = Path(mkdtemp())
    register(rmtree, folder)
    (folder / "v.txt").write_text("".join(f"{a:x} 0 {a:x} 0\n" for a in range(4096)))
    (folder / "t.trace").write_text("".join(f"{32 * a:#x} READ 0\n" for a in range(4096)))
    for arguments in BENCHES:
        done = bench_on_a_disk("16m", folder, arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def bench_on_a_disk(size: str, folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command with `arguments`, a file of `folder` last; what it writes while it runs goes to a disk of `size`."""
    command, file = arguments
    more = ["--out", str(folder / "results.json")] if command == "dram-trace" else []
    return on_a_disk(size, folder / "disk", [command, str(folder / file), *more], TMPDIR=str(folder / "disk"))


@pytest.mark.parametrize("size", ["4k", "16k", "40k", "64k"])
@pytest.mark.parametrize("arguments", BENCHES, ids=" ".join)
def test_full_while_a_bench_runs_is_one_sentence(arguments: list[str], size: str) -> None:
    folder = files_of_benches()
    done = bench_on_a_disk(size, folder, arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert "is full" in said[-1] or "No space left on device" in said[-1], done.stderr
    assert all(line.startswith(("t3rtl: ", "dram-trace: playing")) for line in said), done.stderr
    assert not list((folder / "disk").iterdir())


def test_full_where_the_results_go_loses_none(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    arguments = ["regress", "--only", SCENARIOS[0].name, "--out", str(folder / "results.json")]
    done = on_a_disk("4k", folder, arguments, TMPDIR=str(elsewhere))
    assert done.returncode == 3, done.stdout + done.stderr
    (kept,) = elsewhere.rglob("*.json")
    assert str(kept) in done.stderr
    assert read_results(kept)[0]["passed"]
