"""How `t3rtl` ends: 0 right, 1 wrong, 2 bad input, 3 the machine failed, 130 interrupted. One sentence on standard
error, no traceback; what is finished is never lost."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sim.experiments.experiment
import sim.experiments.regression
from sim import files
from sim.cli import regress, run
from sim.cli.main import command_line
from sim.errors import MachineError, SimulationError, UsageError
from sim.experiments.results import Result, broken_down, exit_code, read_results
from sim.experiments.spec import Spec
from sim.simulator.executable import build_executable
from tb.drivers.result_double import array_result

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for temporary files, and a home, of this test alone."""
    for name in ("elsewhere", "home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "here")
    for module in (run, regress):
        monkeypatch.setattr(module, "require_simulator", lambda: None)


def one_sentence(capsys: pytest.CaptureFixture[str], start: str) -> str:
    """What standard error shows: a line that begins with `start`. The rest of what was printed is returned."""
    printed = capsys.readouterr()
    assert printed.err.startswith(start), printed.err
    assert printed.err.count("\n") == 1, printed.err
    return printed.out


def ending_in(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """Exit code of a run that ends in `error`."""

    def broken(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(sim.experiments.experiment, "run_with_output", broken)
    return command_line(["run", "shape"])


@pytest.mark.parametrize(
    ("error", "code", "start"),
    [
        (SimulationError("the simulation failed"), 1, "t3rtl: the simulation failed"),
        (UsageError("no such thing"), 2, "t3rtl: no such thing"),
        (MachineError("the GPU model could not be built"), 3, "t3rtl: the GPU model could not be built"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "t3rtl: No space left on device"),
        (MemoryError(), 3, "t3rtl: out of memory"),
        (KeyboardInterrupt(), 130, "t3rtl: interrupted"),
        (SystemExit("make failed"), 3, "t3rtl: the simulator does not build"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exit_code_says_what_happened(monkeypatch, capsys, error, code, start):
    assert ending_in(monkeypatch, error) == code
    one_sentence(capsys, start)


def full_disk(monkeypatch: pytest.MonkeyPatch, allowed: Path | None) -> None:
    """Text can be written in folder `allowed` only: every other disk is full."""
    write = Path.write_text

    def limited(path: Path, text: str) -> int:
        if allowed is None or path.parent != allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", limited)


def test_results_that_cannot_be_written_are_kept_elsewhere(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sim.experiments.experiment, "run_with_output", lambda *arguments: (array_result(), None))
    for folder in ("elsewhere", "home"):
        with monkeypatch.context() as patch:
            full_disk(patch, tmp_path / folder)
            assert command_line(["run", "shape"]) == 3
        printed = capsys.readouterr()
        assert "12,345" in printed.out
        (kept,) = (tmp_path / folder).iterdir()
        assert printed.err == (
            "t3rtl: build/run/results.json cannot be written (No space left on device); "
            f"what was to be written is in {kept}\n"
        )
        assert read_results(kept) == [array_result()]
        kept.unlink()
    full_disk(monkeypatch, None)
    assert command_line(["run", "shape"]) == 3
    printed = capsys.readouterr()
    assert "nor anywhere else" in printed.err
    assert json.loads(printed.out[printed.out.index("{") :])["results"] == [array_result()]


def test_a_machine_that_fails_under_one_scenario_loses_no_other(monkeypatch, capsys):
    def results(specs: list[Spec], *others: object) -> object:
        yield 0, array_result("one")
        yield 1, broken_down(specs[1], "a process was killed, or memory ran out", True)
        yield from ((index, array_result("other")) for index in range(2, len(specs)))

    monkeypatch.setattr(sim.experiments.regression, "run_all", results)
    assert command_line(["regress", "--out", "results.json"]) == 3
    assert len(read_results(Path("results.json"))) > 2
    assert "killed, or memory ran out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([array_result()], 0),
        ([array_result(), array_result(errors=["no"])], 1),
        ([broken_down(Spec(), "it stopped", False)], 1),
        ([array_result(errors=["no"]), broken_down(Spec(), "disk full", True)], 3),
    ],
)
def test_the_worst_result_decides(results: list[Result], code: int):
    assert exit_code(results) == code


def test_a_path_that_is_none_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"), files.replaced(tmp_path / "file" / "below"):
        pass


def test_a_compiler_that_fails_is_the_machines_fault(monkeypatch, tmp_path):
    tool = tmp_path / "g++"
    tool.write_text("#!/bin/sh\necho no space left on device >&2\nexit 1\n")
    tool.chmod(0o755)
    text = "module failing(input clk); endmodule\n"
    monkeypatch.setattr("sim.simulator.executable.BUILD", tmp_path)
    # Verilator's folder comes first then, and this one before the compiler's.
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CXX", str(tool))
    with pytest.raises(MachineError, match="failing could not be built: the disk is full"):
        build_executable("failing", {"failing.sv": text}, ["--cc", "--exe", "--main", "-MAKEFLAGS", f"CXX={tool}"])


INTERRUPTED = """
import os, signal, subprocess, sys, time
import sim.experiments.regression as regression
import sim.simulator.prerequisites

def slow(spec, *others):
    process = subprocess.Popen(["sleep", "600"])
    open(f"{spec.name}.pid", "w").write(f"{os.getpid()} {process.pid}")
    process.wait()

if __name__ == "__main__":
    import sim.cli.main as main
    # A shell that starts the tests in the background has it ignored, and a process inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    regression._work = slow
    sys.exit(main.command_line(["regress", "--only", "tiny"]))
elif os.environ.get("T3_SLOW"):
    regression._work = slow
"""


def running(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_an_interrupted_regression_leaves_nothing_running(tmp_path):
    """SIGINT to the command alone, as `kill -INT` sends it: workers and what they have started end too."""
    script = tmp_path / "slow_regression.py"
    script.write_text(INTERRUPTED)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "T3_SLOW": "1"}
    command = subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while len(list(Path().glob("tiny*.pid"))) < 2 and time.monotonic() < deadline and command.poll() is None:
        time.sleep(0.2)
    time.sleep(0.5)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert said.endswith("t3rtl: interrupted\n")
    assert "Traceback" not in said
    started = [int(word) for path in Path().glob("tiny*.pid") for word in path.read_text().split()]
    assert len(started) == 4
    while any(map(running, started)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(running, started))


SLOW_SWEEP = """
import os, signal, subprocess, sys
from tb.drivers import point_double

def simulated(spec):
    if spec.variant.name == "t3":
        return point_double.analytic(spec)
    process = subprocess.Popen(["sleep", "600"])
    open(f"{os.getpid()}.pid", "w").write(f"{os.getpid()} {process.pid}")
    process.wait()
"""
SWEEP = """
import signal, sys
import sim.cli.sweep
import sim.experiments.experiment
import slow_sweep
from sim.cli.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sim.cli.sweep.require_simulator = lambda: None
    sim.experiments.experiment.run_experiment = slow_sweep.simulated
    sys.argv[1:] = ["sweep", "--vary", "workload=t-nlg/*/tp8", "--vary", "variant=t3,t3-mca"]
    main()
"""


def test_ctrl_c_of_a_sweep_is_one_line_and_loses_nothing_finished(tmp_path):
    """As a terminal sends it: SIGINT to the command and all its workers; what was finished is not run again."""
    (tmp_path / "slow_sweep.py").write_text(SLOW_SWEEP)
    (tmp_path / "sweep.py").write_text(SWEEP)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = subprocess.Popen(
        [sys.executable, str(tmp_path / "sweep.py")],
        env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (list(Path().glob("*.pid")) and list(Path("build/points").glob("*.json"))):
        assert time.monotonic() < deadline
        assert command.poll() is None, command.communicate()
        time.sleep(0.2)
    os.killpg(command.pid, signal.SIGINT)
    printed, said = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert said == "t3rtl: interrupted\n"
    assert printed == ""
    started = [int(word) for path in Path().glob("*.pid") for word in path.read_text().split()]
    while any(map(running, started)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(running, started))
    assert all(read_results(path)[0]["passed"] for path in Path("build/points").glob("*.json"))
