"""The example in SystemVerilog: the exported Tracker behind its port structs, with a testbench, in the simulators that
FuseSoC's targets name, and a testbench that finds what is wrong."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hw.config import preset
from hw.export.exporter import BLOCKS
from hw.export.files import fusesoc_core, lint_waivers, package_core
from hw.export.port_structs import PortStructs
from hw.export.verilog import to_systemverilog
from sim.simulator.verilator import prepare_environment
from tb.integration.test_example import tile_events
from tb.unit.export.test_strict_verilog import SLANG

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONFIG = preset("tiny", tracker_sets=16, trigger_blocks=64)
"""As the example's first lines say."""
FILES = ("t3_pkg.sv", "t3_tracker.sv", "tile_counter.sv", "tile_counter_tb.sv")
PASS = "PASS: 16 tiles, each with one event"
TIMEOUT = 300
without_iverilog = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed (Debian: apt-get install iverilog)"
)
without_fusesoc = pytest.mark.skipif(
    importlib.util.find_spec("fusesoc") is None, reason="fusesoc is not installed (extra [synth])"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `t3rtl verilog` writes of the Tracker, and the example."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "t3_pkg.sv").write_text(PortStructs(CONFIG).text())
    (folder / "t3_pkg.core").write_text(package_core())
    (folder / "t3_tracker.sv").write_text(to_systemverilog(BLOCKS["t3_tracker"](CONFIG), "t3_tracker"))
    (folder / "t3_tracker.core").write_text(fusesoc_core("t3_tracker", "tracker", ["t3_tracker.sv"], "t3_tracker"))
    (folder / "t3_lint.vlt").write_text(lint_waivers())
    for path in EXAMPLES.glob("tile_counter*"):
        shutil.copy(path, folder)
    return folder


def in_icarus(folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / "tile_counter.vvp"
    compiled = subprocess.run(
        ["iverilog", "-g2012", "-s", "tile_counter_tb", "-o", program, *(folder / name for name in FILES)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "warning" not in compiled.stderr
    return subprocess.run(["vvp", "-n", program], capture_output=True, text=True, check=False, timeout=TIMEOUT)


@without_iverilog
def test_every_tile_raises_one_event_in_icarus(sources: Path) -> None:
    done = in_icarus(sources)
    assert done.stdout.splitlines()[-1] == PASS, done.stdout
    assert done.returncode == 0


@without_iverilog
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("32'h0000_0100,  // THRESHOLD_RIGHT", "32'h0000_00f4,  // THRESHOLD_RIGHT", "stores early"),
        ("32'h0000_0100,  // THRESHOLD_RIGHT", "32'h0000_0120,  // THRESHOLD_RIGHT", "0 tiles are complete, not 16"),
        ("commit.wg = address[11:8]", "commit.wg = address[10:7]", "tile"),
        ("commit.epoch = 1", "commit.epoch = 2", "0 tiles are complete"),
    ],
)
def test_the_testbench_finds_what_is_wrong(sources: Path, tmp_path: Path, right: str, wrong: str, said: str) -> None:
    for name in FILES:
        text = (sources / name).read_text()
        if name == "tile_counter.sv":
            assert right in text
            text = text.replace(right, wrong)
        (tmp_path / name).write_text(text)
    done = in_icarus(tmp_path)
    assert done.returncode != 0 and said in done.stdout + done.stderr


def test_every_tile_raises_one_event_in_verilator(sources: Path, tmp_path: Path) -> None:
    prepare_environment()
    verilator = Path(os.environ["VERILATOR_ROOT"]) / "bin" / "verilator"
    options = ["--binary", "--timing", "-CFLAGS", "-std=c++20 -fcoroutines", "-Wno-lint", "-Wno-style"]
    place = ["--top-module", "tile_counter_tb", "--Mdir", str(tmp_path)]
    files = [str(sources / name) for name in FILES]
    built = subprocess.run([str(verilator), *options, *place, *files], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    command = [tmp_path / "Vtile_counter_tb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert PASS in done.stdout.splitlines() and done.returncode == 0, done.stdout


@without_iverilog
@without_fusesoc
@pytest.mark.parametrize("tool", ["icarus", "verilator"])
def test_fusesoc_runs_the_simulation_target(sources: Path, tmp_path: Path, tool: str) -> None:
    prepare_environment()
    command = [sys.executable, "-m", "fusesoc.main", "--config", str(tmp_path / "fusesoc.conf")]
    command += ["--cores-root", str(sources), "run", "--target", "sim", "--tool", tool]
    command += ["--work-root", str(tmp_path / "work"), "tile_counter"]
    (tmp_path / "fusesoc.conf").write_text("[main]\n")
    path = f"{os.environ['VERILATOR_ROOT']}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0 and PASS in done.stdout, done.stdout + done.stderr


def test_slang_finds_no_error(sources: Path) -> None:
    files = " ".join(str(sources / name) for name in FILES[:-1])
    command = [sys.executable, "-c", SLANG.replace('"{sys.argv[1]}"', files), "", "tile_counter"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.rpartition("errors:")[2].strip() == "0", done.stderr


def test_both_examples_program_the_same() -> None:
    text = (EXAMPLES / "tile_counter.sv").read_text()
    words = re.findall(r"^    32'h(\w{4}_\w{4}),? +// (\w+)", text, re.MULTILINE)
    assert [(name, int(value, 16)) for value, name in reversed(words)] == [
        (word.name, value) for word, value in tile_events.TABLE.items()
    ]
