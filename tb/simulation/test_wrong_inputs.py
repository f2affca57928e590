"""Wrong inputs and failing environments: one sentence each, the right exit code, no traceback, nothing left behind, and
no simulation, not even a build, before a wrong input is refused."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sim.benches import dram_trace
from sim.cli import dram_trace as dram_trace_command
from sim.cli.main import command_line
from sim.experiments import run as experiment_run
from sim.simulator import executable

ROOT = Path(__file__).parents[2]
BAD, MACHINE, WRONG, INTERRUPTED = 2, 3, 1, 130
BIG = str(10**30)


def npz(name: str, **arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / name, **arrays)  # type: ignore[arg-type]


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def folder(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).mkdir(parents=True)


def truncated(name: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        np.savez(place / name, x=np.zeros((2, 4096), np.uint16))
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: len(content) // 2])

    return write


def nothing(place: Path) -> None:
    """Needs no file."""


ARRAYS = ("run", "arrays", "--inputs", "x.npz", "--dtype", "fp16", "--out", "y.npz")
SHAPE = ("run", "shape")
LAYER = ("run", "t-nlg/op/tp8")
TRACE = ("run", "trace", "t.npz:k", "--shape", "256", "128", "64", "--tp", "2")
HOSTED = ("run", "collective", "hosted-gemm", "--topology", "hosted-ring")
HOST = ("--host-bandwidth",)
GRID = ("sweep", "--vary", "workload=t-nlg/op/tp8", "--vary")
DRAM = ("dram-trace", "t.trace")
NOISE = bytes(byte | 0x80 for byte in random.Random(1).randbytes(4096))
"""No text, and no line end in it."""
GOOD = npz("x.npz", x=np.zeros((2, 64), np.uint16))
RESULTS = json.dumps({"schema": 2, "results": []})

INPUTS: list[tuple[Callable[[Path], None], tuple[str, ...], str]] = [
    # Numbers of absurd size, and none at all.
    (nothing, (*SHAPE, "--gpus", BIG), "gpus must be a whole number from 2"),
    (nothing, (*SHAPE, "--gpus", "-1"), "gpus must be a whole number from 2"),
    (nothing, (*SHAPE, "--gpus", "2.5"), "should be a valid integer"),
    (nothing, (*SHAPE, "--gpus", ""), "should be a valid integer"),
    (nothing, (*SHAPE, "--shape", BIG, "256", "64"), "shape M must be a whole number from 1"),
    (nothing, (*SHAPE, "--shape", "256", BIG, "64"), "shape N must be"),
    (nothing, (*SHAPE, "--shape", "256", "256", BIG), "shape K must be"),
    (nothing, (*SHAPE, "--shape", "256", "256", "-1"), "shape K must be"),
    (nothing, (*SHAPE, "--shape", "1048576", "1048576", "64"), "at most 65536 WG tiles"),
    (nothing, (*SHAPE, "--seed", BIG), "seed must be"),
    (nothing, (*SHAPE, "--stalls", "91"), "stalls must be"),
    (nothing, (*SHAPE, "--wfs", "0"), "wfs must be"),
    (nothing, (*SHAPE, "--tile", "0", "0"), "must be"),
    (nothing, (*SHAPE, "--tile", BIG, "128"), "must be"),
    (nothing, (*SHAPE, "--set", "tracker_sets=1e9"), "tracker_sets must be a whole number"),
    (nothing, (*SHAPE, "--set", f"dram_queue_depth={BIG}"), "dram_queue_depth must be"),
    (nothing, (*SHAPE, "--set", "link_bandwidth=-1"), "link_bandwidth must be"),
    (nothing, (*SHAPE, "--set", "link_bandwidth=nan"), "link_bandwidth must be"),
    (nothing, (*SHAPE, "--set", "link_latency=0"), "link_latency must be"),
    (nothing, (*SHAPE, "--set", "timing.rp=-3"), "timing.rp must be"),
    (nothing, (*SHAPE, "--set", "=3"), "--set takes FIELD=VALUE"),
    (nothing, (*SHAPE, "--starvation-limit", BIG), "starvation-limit must be"),
    (nothing, (*LAYER, "--link-bandwidth", "inf"), "link-bandwidth must be"),
    (nothing, (*LAYER, "--link-bandwidth", "nan"), "link-bandwidth must be"),
    (nothing, (*LAYER, "--compute-units", BIG), "compute-units must be"),
    (nothing, (*LAYER, "--communication-units", BIG), "communication-units must be a whole number from 0 to 80"),
    (nothing, (*LAYER, "--communication-bandwidth", "nan"), "communication-bandwidth must be 0 or from 1 to 1024 GB/s"),
    (nothing, (*LAYER, "--variant", "gemm", "--communication-units", "8"), "variant gemm has none"),
    (nothing, (*LAYER, "--channels", "32", "--reads-under-way", "32"), "reads-under-way on 32 channels must be"),
    (nothing, (*LAYER, "--channels", "0"), "channels must be one of"),
    (nothing, ("run", "gemm", "--shape", "128", "128", "64", "--tp", "1"), "tp must be"),
    (nothing, ("run", "gemm", "--shape", "128", "128", "64", "--tp", BIG), "tp must be"),
    (nothing, ("bench", "--repeat", "101"), "repeat must be from 1"),
    (nothing, ("regress", "--processes", BIG), "processes must be from 1"),
    (nothing, ("sequences", "--sequences", "0"), "sequences must be from 1 to"),
    (nothing, ("sequences", "--gpus", "17"), "gpus must be from 2 to 16, got 17"),
    (nothing, ("sequences", "--seed", "-1"), "seed must be from 0 to"),
    (nothing, ("sequences", "--topology", "star"), "topology must be one of ring, ring-one-way, mesh"),
    (nothing, ("sequences", "--every-cycle", "star"), "there is no collective 'star:0' here, only ring-reduce-scatter"),
    (nothing, ("sequences", "--replay", "1"), "--replay takes SEED/COLLECTIVE:VARIANT@GPU.CYCLE/..."),
    (nothing, ("sequences", "--replay", "1/all-to-all:0@3.9"), "there is no such GPU of 3"),
    (nothing, ("faults", "--injections", "0"), "injections must be from 1 to"),
    (nothing, ("faults", "--gpus", "9"), "gpus must be from 2 to 8, got 9"),
    (nothing, ("faults", "--watchdog", BIG), "watchdog must be from 0 to"),
    (nothing, ("faults", "--class", "memories"), "unknown class 'memories'; allowed: protected_memory"),
    (
        nothing,
        ("faults", "--class", "protected_memory", "--set", "protection=links"),
        "--class protected_memory has no effect here: with these settings no memory is protected",
    ),
    (
        nothing,
        (*("run", "--collective", "all-to-all", "--topology", "mesh"), "--independent", "--sharing", "partitioned"),
        "sharing partitioned has no effect here: it is of a kernel that copies on units",
    ),
    (nothing, ("faults", "--replay", "memory"), "--replay takes 'CLASS CYCLE flip|wire|abort ...'"),
    (nothing, (*DRAM, "--generate", "random-read", "--requests", BIG), "requests must be from 1"),
    (nothing, (*DRAM, "--generate", "random-read", "--queue-depth", "65"), "dram_queue_depth must be"),
    (nothing, ("explain", "ring-all-gather", "--gpus", BIG), "needs at least 2 GPUs, and at most 64"),
    (nothing, ("explain", "ring-all-gather", "--gpus", "0"), "needs at least 2 GPUs"),
    (nothing, ("explain", "ring-all-gather", "--rank", "9"), "rank must be from 0 to 3"),
    # A host's links: where there is no host, faster than others, too many numbers, and none that is one.
    (nothing, ("run", "collective", "ring-all-gather", *HOST, "9"), "host-bandwidth is of topology hosted-ring or"),
    (
        nothing,
        (*HOSTED, *HOST, "76"),
        "host-bandwidth must be above 0 and at most that of other links, 75 GB/s, got 76",
    ),
    (nothing, (*HOSTED, *HOST, "9", *HOST, "0"), "host-bandwidth must be above 0"),
    (nothing, (*HOSTED, *HOST, "nan"), "host-bandwidth must be above 0"),
    (nothing, (*HOSTED, *HOST, "9", *HOST, "9", *HOST, "9"), "host-bandwidth must be one or two numbers"),
    (nothing, (*HOSTED, "--mode", "mirrored"), "the host is not like the other ranks"),
    (nothing, (*HOSTED, "--gpus", "17"), "the hosted-ring joins 2 to 16 ranks"),
    (nothing, ("run", "collective", "hosted-gemm"), "the ring has no link there"),
    # Names that there are not.
    (nothing, ("run", "t-nlg/fc-9/tp8"), "workload must be one of"),
    (nothing, (*LAYER, "--variant", "T3"), "variant must be one of"),
    (nothing, ("explain", "ring"), "collective must be one of"),
    (nothing, ("explain", "ring-all-gather", "--topology", "torus"), "must be one of"),
    (nothing, ("verilog", "--preset", ""), "unknown preset"),
    (nothing, ("report", "--only", "gpt-5/*"), "no sub-layer of these sections matches"),
    (nothing, ("report", "--section", "all"), "section must be one of"),
    (nothing, (*GRID, "variant=t9"), "variant must be one of"),
    (nothing, (*GRID, "colour=red"), "a point has no field 'colour'"),
    (nothing, (*GRID, "channels=3"), "channels must be one of"),
    (nothing, (*GRID, "seed="), "needs values"),
    (nothing, ("run", "\0"), "No such command"),
    # Arrays: truncated, damaged, of the wrong type, shape or size.
    (nothing, ARRAYS, "x.npz does not exist or is not a file"),
    (folder("x.npz"), ARRAYS, "x.npz does not exist or is not a file"),
    (text("x.npz", ""), ARRAYS, "x.npz is not a readable npz file"),
    (text("x.npz", "PK\x03\x04 and no more"), ARRAYS, "x.npz is not a readable npz file"),
    (text("x.npz", NOISE), ARRAYS, "x.npz is not a readable npz file"),
    (truncated("x.npz"), ARRAYS, "x.npz is not a readable npz file"),
    (npz("x.npz", y=np.zeros((2, 4), np.uint16)), ARRAYS, "x.npz has no array called x"),
    (npz("x.npz", x=np.zeros((2, 4), np.complex64)), ARRAYS, "x in x.npz must hold"),
    (npz("x.npz", x=np.array([["a", "b"], ["c", "d"]])), ARRAYS, "x in x.npz must hold"),
    (npz("x.npz", x=np.zeros((2, 4), bool)), ARRAYS, "x in x.npz must hold"),
    (npz("x.npz", x=np.zeros((2, 2, 2), np.uint16)), ARRAYS, "must have shape (N, elements)"),
    (npz("x.npz", x=np.zeros((2, 7), np.uint16)), ARRAYS, "positive multiple of the 2 GPUs"),
    (npz("x.npz", x=np.zeros((0, 8), np.uint16)), ARRAYS, "the number of GPUs"),
    (npz("x.npz", x=np.array(1, np.float16)), ARRAYS, "must have shape (N, elements)"),
    (GOOD, (*ARRAYS, "--dtype", "fp64"), "dtype must be one of"),
    (GOOD, (*ARRAYS, "--op", "mean"), "op must be one of"),
    # Recorded traces.
    (nothing, TRACE, "trace t.npz does not exist"),
    (text("t.npz", "no archive"), TRACE, "trace t.npz is not a readable npz file"),
    (truncated("t.npz"), TRACE, "trace t.npz is not a readable npz file"),
    (npz("t.npz", z=np.zeros((2, 4), np.int64)), TRACE, "with KEY one of z"),
    (npz("t.npz", k=np.zeros((2, 4), np.float32)), TRACE, "must have rows of four whole numbers"),
    (npz("t.npz", k=np.zeros((2, 3), np.int64)), TRACE, "must have rows of four whole numbers"),
    (npz("t.npz", k=np.zeros((3, 4), np.int64)), TRACE, "one row for each of the 2 workgroups"),
    (npz("t.npz", k=np.array([[0, 0, 5, 5], [1, 0, 0, 9]])), TRACE, "0 <= begin < store"),
    (npz("t.npz", k=np.array([[0, 0, -1, 5], [1, 0, 0, 9]])), TRACE, "0 <= begin < store"),
    # Request traces and test vectors.
    (nothing, DRAM, "t.trace does not exist"),
    (folder("t.trace"), DRAM, "t.trace does not exist or is not a file"),
    (text("t.trace", ""), DRAM, "t.trace holds no requests"),
    (text("t.trace", "# nothing\n"), DRAM, "t.trace holds no requests"),
    (text("t.trace", "0x0 READ 0\n0x20 REA"), DRAM, "line 2 of t.trace"),
    (text("t.trace", NOISE), DRAM, "line 1 of t.trace"),
    (text("t.trace", f"0x{10**40:x} READ 0\n"), DRAM, "the address must be below"),
    (text("t.trace", f"0x0 READ {BIG}\n"), DRAM, "the cycle must be from 0"),
    (text("t.trace", "0x0 READ 0\n"), (*DRAM, "--set", "tracker_ways=1"), "tracker_ways is not of one channel"),
    (text("v.txt", ""), ("vectors", "v.txt"), "holds no vectors"),
    (text("v.txt", "1 2 3\n"), ("vectors", "v.txt"), "expected `A B Z FLAGS`"),
    (text("v.txt", "1 2 fffff 0\n"), ("vectors", "v.txt"), "has 16 bits"),
    (text("v.txt", b"\xff\xfe\x00"), ("vectors", "v.txt"), "expected `A B Z FLAGS`"),
    # Files of results.
    (text("a.json", RESULTS), ("compare", "a.json", "b.json"), "b.json cannot be read"),
    (text("a.json", RESULTS[:20]), ("compare", "a.json", "a.json"), "a.json is not JSON"),
    (text("a.json", b"\x80\x81\x82"), ("compare", "a.json", "a.json"), "a.json is not JSON"),
    (text("a.json", "7"), ("compare", "a.json", "a.json"), "a.json is no file of results"),
    (text("a.json", '[{"spec": 3}]'), ("compare", "a.json", "a.json"), "a.json is no file of results"),
    (text("a.json", '[{"spec": {"compute": "array"}}]'), ("compare", "a.json", "a.json"), "is no file of results"),
    (folder("a.json"), ("compare", "a.json", "a.json"), "a.json cannot be read"),
    (text("a.json", "[" * 100_000), ("compare", "a.json", "a.json"), "a.json is not JSON"),
    (text("a.json", '{"headline": {}, "sub_layers": [1]}'), ("compare", "a.json", "a.json"), "is no file of results"),
    (text("a.json", '{"headline": {}, "sub_layers": [{}]}'), ("compare", "a.json", "a.json"), "is no file of results"),
    (text("a.json", '{"headline": {}, "sub_layers": 3}'), ("compare", "a.json", "a.json"), "is no file of results"),
    (text("a.json", RESULTS), ("compare", "a.json", "a.json", "--shown", "-1"), "shown must be from 1"),
    # Outputs that cannot be written.
    (folder("out.json"), (*SHAPE, "--out", "out.json"), "out.json is a folder"),
    (text("file", ""), (*SHAPE, "--out", "file/out.json"), "cannot be written"),
    (nothing, (*SHAPE, "--out", "/proc/out.json"), "/proc/out.json cannot be written"),
    (nothing, (*SHAPE, "--out", f"{'x' * 300}.json"), "cannot be written (File name too long)"),
    (nothing, (*SHAPE, "--timeline", "/proc/t.pftrace"), "/proc/t.pftrace cannot be written"),
    (nothing, (*SHAPE, "--html", "/proc/t.html"), "/proc/t.html cannot be written"),
    (nothing, (*SHAPE, "--timeline", "t", "--html", "t"), "t is to be written twice"),
    (GOOD, (*ARRAYS, "--results", "y.npz"), "y.npz is to be written twice"),
    (GOOD, (*ARRAYS, "--results", "x.npz"), "x.npz is read, and would be overwritten"),
    (text("t.trace", "0x0 READ 0\n"), (*DRAM, "--out", "t.trace"), "t.trace is read, and would be overwritten"),
    (text("file", ""), ("verilog", "--out", "file"), "file is not a folder"),
    (text("file", ""), ("verilog", "--out", "file/below"), "file is not a folder"),
    (text("file", ""), (*GRID, "seed=1", "--vary", "variant=t3", "--store", "file"), "file is not a folder"),
    (nothing, ("report", "--no-run", "--out", "/proc/report"), "/proc/report cannot be"),
    (text("t.trace", "0x0 READ 0\n"), (*DRAM, "--out", "/proc/o.json"), "/proc/o.json cannot be written"),
    (nothing, ("explain", "ring-all-gather", "--picture", "p.gif"), "a picture is a file that ends in"),
]


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever builds or simulates fails the test."""

    def build(*arguments: object, **options: object) -> None:
        raise AssertionError("a build was begun before the input was refused")

    monkeypatch.setattr(experiment_run, "build_system", build)
    monkeypatch.setattr(executable, "build_executable", build)
    monkeypatch.setattr(dram_trace, "build_executable", build)


def contents(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize(
    ("prepare", "arguments", "sentence"),
    INPUTS,
    ids=[f"{number}-{arguments[0]}" for number, (_, arguments, _) in enumerate(INPUTS)],
)
def test_a_wrong_input_is_refused_in_one_sentence(monkeypatch, capsys, tmp_path, prepare, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    before = contents(tmp_path)
    assert command_line(arguments) == BAD
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    assert printed.err.startswith("t3rtl: ")
    assert sentence in printed.err
    assert contents(tmp_path) == before


def test_there_are_a_hundred_of_them():
    assert len(INPUTS) + len(ENVIRONMENTS) + len(SIMULATORS) >= 100


def limited(which: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (size, size))


def plain() -> None:
    """No limit."""


LINES = "".join(f"{a:x} 0 {a:x} 0\n" for a in range(64))
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], Callable[[], None], dict[str, str], int, str]] = {
    "no compiler": (("vectors", "v.txt"), plain, {"PATH": "/nonexistent"}, MACHINE, "g++ and make not found on PATH"),
    "no compiler for waves": (
        (*SHAPE, "--waves", "w.fst"), plain, {"PATH": "/nonexistent"}, MACHINE, "g++ and make not found on PATH",
    ),
    "disk full as sources are written": (
        ("vectors", "v.txt"), limited(resource.RLIMIT_FSIZE, 2_000), {}, MACHINE, "File too large",
    ),
    "disk full as C++ is compiled": (
        ("vectors", "v.txt"), limited(resource.RLIMIT_FSIZE, 600_000), {}, MACHINE, "could not be built",
    ),
    "memory limit": (
        (*DRAM, "--generate", "random-read", "--requests", "30000000"),
        limited(resource.RLIMIT_AS, 900 << 20), {"OPENBLAS_NUM_THREADS": "1"}, MACHINE, "out of memory",
    ),
    "build folder is a file": (("vectors", "v.txt"), plain, {"T3_BUILD": "v.txt"}, MACHINE, "Not a directory"),
}  # fmt: skip
"""Command, limit of the process, environment, exit code, part of the sentence."""


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_machine_that_fails_is_one_sentence(name: str, tmp_path: Path):
    arguments, limit, environment, code, sentence = ENVIRONMENTS[name]
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "v.txt").write_text(LINES)
    environment = os.environ | {"T3_BUILD": str(tmp_path / "build"), "PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli.main", *arguments],
        cwd=tmp_path / "here", env=environment, preexec_fn=limit, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    said = done.stderr.splitlines()
    assert sentence in said[-1], done.stderr
    assert all(line.startswith(("t3rtl: ", "vectors: building")) for line in said), done.stderr
    assert contents(tmp_path / "here") == ["v.txt"]
    left = [path for path in (tmp_path / "build").rglob("*") if path.is_file()]
    assert {path.name for path in left} <= {"build.log", "machine.json"} | {
        path.name for path in left if path.suffix == ".lock"
    }


def test_what_is_built_runs_without_a_compiler_and_nothing_else_does(tmp_path: Path):
    """A warm cache: of `bf16` vectors no other bench is needed than of `fp16`'s, of a channel there is none."""
    for name, content in {"v.txt": LINES, "t.trace": "0x0 READ 0\n"}.items():
        (tmp_path / name).write_text(content)

    def t3rtl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        command = [sys.executable, "-m", "sim.cli.main", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)

    assert t3rtl("vectors", "v.txt").returncode == 0
    warm = t3rtl("vectors", "v.txt", "--dtype", "bf16", PATH="/nonexistent")
    assert (warm.returncode, warm.stderr) == (0, "")
    (tmp_path / "build").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    other = t3rtl("dram-trace", "t.trace", PATH="/nonexistent", T3_BUILD=str(tmp_path / "build"))
    assert other.returncode == MACHINE
    *said, last = other.stderr.splitlines()
    assert last == "t3rtl: g++ and make not found on PATH, needed to build the simulator: install g++ make"
    assert all(line.startswith("dram-trace: building") for line in said)
    assert {path.name for path in tmp_path.iterdir()} == before


SIMULATORS = {
    "killed": ("kill -9 $$", MACHINE, "it was killed, or memory ran out"),
    "out of memory": ("echo terminate: bad_alloc >&2; exit 134", MACHINE, "it was killed, or memory ran out"),
    "disk full": ("echo No space left on device >&2; exit 1", MACHINE, "the disk is full"),
    "silent": ("exit 0", WRONG, "it has said nothing"),
    "interrupted": ("kill -INT $PPID; sleep 5", INTERRUPTED, "interrupted"),
    "garbage": ("echo figures zz", WRONG, "the simulator of the channel failed"),
}
"""What a simulator does, the exit code, part of the sentence."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # subprocess's own, when interrupted
@pytest.mark.parametrize("name", SIMULATORS)
def test_a_simulator_that_fails_is_one_sentence(monkeypatch, capsys, tmp_path, name):
    does, code, sentence = SIMULATORS[name]
    simulator = tmp_path / "simulator"
    simulator.write_text(f"#!/bin/sh\n{does}\n")
    simulator.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dram_trace, "build", lambda *arguments: simulator)
    monkeypatch.setattr(dram_trace_command, "require_simulator", lambda: None)
    (tmp_path / "t.trace").write_text("0x0 READ 0\n")
    before = contents(tmp_path)
    assert command_line(DRAM) == code
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1, printed.err
    assert sentence in printed.err
    left = [path for path in contents(tmp_path) if path not in before]
    assert left in ([], ["build", "build/dram-trace"])
