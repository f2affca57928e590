"""The command line: bad input is one sentence and exit code 2, nothing is half-written, results become exit codes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim.experiments.experiment
from hw.config import PRESETS
from sim import files
from sim.cli import main as cli
from sim.cli import run as run_command
from sim.cli.rows import format_row, header, summary
from sim.collectives.known import PROGRAMS
from sim.errors import MachineError, UsageError
from sim.experiments import user_arrays
from sim.experiments.array_model import node_of
from sim.experiments.catalogue import arrays, settings, shape
from sim.experiments.figures import overlap_figures
from sim.experiments.results import read_results, write_results
from sim.experiments.user_arrays import chunk_elements, padded
from sim.golden.ring import ring_reduce_scatter
from sim.simulator import prerequisites
from sim.topologies.known import TOPOLOGIES
from sim.workloads.machines import machines
from sim.workloads.table import WORKLOADS
from tb.drivers.result_double import array_result


def save(path: Path, **data: Any) -> str:
    np.savez(path, **data)
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence with which the command line refuses `arguments`."""
    assert cli.command_line(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("t3rtl: ")
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frobnicate"], "No such command"),
        (["run", "frobnicate"], "No such command"),
        (["run", "--gpus", "4"], "No such option"),
        (["run", "shape", "--frobnicate"], "No such option"),
        (["run", "shape", "--tp", "8"], "No such option"),
        (["run", "layer", "gpt-5"], "workload must be one of mega-gpt-2/op/tp8"),
        (["run", "t-nlg/fc-2/tp9"], "workload must be one of mega-gpt-2/op/tp8"),
        (["run", "t-nlg/fc-2/tp8", "--waves", "x.fst"], "No such option"),
        (["run", "t-nlg/fc-2/tp8", "--variant", "t4"], "variant must be one of gemm, sequential"),
        (["run", "t-nlg/fc-2/tp8", "--mode", "star"], "mode must be one of mirrored, ring"),
        (["run", "t-nlg/fc-2/tp8", "--channels", "3"], "channels must be one of 1, 2, 4, 8, 16, 32; got 3"),
        (["run", "t-nlg/fc-2/tp8", "--tracker-ways", "3"], "tracker-ways must be one of 1, 2, 4, 8, 16"),
        (["run", "t-nlg/fc-2/tp8", "--tile-order", "no"], "tile-order must be one of tuned, rows"),
        (["run", "t-nlg/fc-2/tp8", "--compute-units", "0"], "compute-units must be a whole number from 1"),
        (["run", "t-nlg/fc-2/tp8", "--link-bandwidth", "0"], "link-bandwidth must be from 1"),
        (["run", "t-nlg/fc-2/tp8", "--set", "tracker_ways=1"], "it is --tracker-ways"),
        (["run", "gemm", "--tp", "8"], "Missing option '--shape'"),
        (["run", "gemm", "--shape", "100", "256", "64"], "M must be a multiple of 128"),
        (["run", "gemm", "--shape", "128", "200", "64"], "cannot be cut into 8 chunks"),
        (["run", "trace", "no.npz:k", "--shape", "1", "2", "3"], "trace no.npz does not exist"),
        (["run", "trace", "no.npz:k", "--tile-order", "rows"], "No such option"),
        (
            ["run", "shape", "--policy", "paced", "--threshold", "5"],
            "threshold has no effect here, it is of policy mca only",
        ),
        (["run", "shape", "--set", "channels=2", "--set", "channels=4"], "channels is set twice"),
        (["regress", "--only", "nothing"], "no scenario's name contains 'nothing'"),
        (["compare", "one.json", "two.json"], "one.json cannot be read"),
        (["run", "shape", "--gpus", "many"], "valid integer"),
        (["run", "shape", "--gpus", "1"], "gpus must be a whole number from 2"),
        (["run", "shape", "--gpus", "3"], "shape M must be a multiple of gpus (3), got 512"),
        (["run", "shape", "--shape", "1", "2"], "requires 3 arguments"),
        (["run", "shape", "--shape", "0", "256", "64"], "shape M must be"),
        (
            ["run", "shape", "--shape", "8192", "4096", "0"],
            "of its memory keeps less than 33,554,432",
        ),
        (["run", "shape", "--preset", "huge"], "preset must be one of paper, quad, gpu, wide, tiny; got 'huge'"),
        (["run", "shape", "--preset", "gpu", "--waves", "gpu.fst"], "waves are of at most 8 channels, this GPU has 32"),
        (
            ["run", "shape", "--preset", "gpu", "--bug", "count_at_enqueue"],
            "bug count_at_enqueue is of at most 8 channels",
        ),
        (
            ["run", "t-nlg/fc-2/tp8", "--channels", "32", "--threads", "9"],
            "threads must be from 0 to 8, one for each lane",
        ),
        (["run", "t-nlg/fc-2/tp8", "--set", "channels=4"], "channels is no setting of a full-size run"),
        (["run", "shape", "--policy", "fifo"], "policy must be one of round-robin, compute-first, mca"),
        (["run", "shape", "--threshold", "7"], "threshold must be one of 5, 10, 30, none, auto"),
        (["run", "shape", "--dtype", "fp8"], "dtype must be one of fp16, bf16, fp32, int32"),
        (["run", "shape", "--op", "mul"], "op must be one of add, min, max"),
        (["run", "shape", "--wfs", "9"], "wfs must be a whole number from 1 to 8"),
        (["run", "shape", "--wfs", "3"], "tile_rows must be a multiple of wfs (3), got 128"),
        (["run", "shape", "--dma-block", "9"], "dma-block must be a whole number from 0 to 8"),
        (["run", "shape", "--wfs", "4", "--dma-block", "5"], "dma-block must be at most wfs (4), got 5"),
        (["run", "shape", "--tile", "128", "24"], "tile_columns must be a multiple of 16"),
        (["run", "shape", "--direction", "up"], "direction must be one of cw, ccw"),
        (["run", "shape", "--initial", "ones"], "initial must be one of first-touch, zeroing"),
        (["run", "shape", "--stalls", "100"], "stalls must be a whole number from 0 to 90"),
        (["run", "shape", "--schedule", "random"], "schedule must be one of"),
        (["run", "shape", "--seed", "-1"], "seed must be"),
        (["run", "shape", "--starvation-limit", "70000"], "starvation-limit must be"),
        (["run", "shape", "--bug", "typo"], "bug must be one of count_at_enqueue"),
        (["run", "shape", "--set", "channels"], "--set takes FIELD=VALUE"),
        (["run", "shape", "--set", "chanels=4"], "unknown configuration field 'chanels'; allowed: channels"),
        (["run", "shape", "--set", "gpus=4"], "unknown configuration field 'gpus'"),
        (["run", "shape", "--set", "channels=x"], "channels must be a whole number"),
        (["run", "shape", "--set", "channels=3"], "channels must be one of"),
        (["run", "shape", "--set", "link_bandwidth=fast"], "link_bandwidth must be a number"),
        (["run", "shape", "--set", "timing.refresh=maybe"], "timing.refresh must be true or false"),
        (["run", "shape", "--set", "timing.wl=1"], "timing.wl must be at least 2"),
        (["run", "shape", "--set", "timing.xyz=1"], "unknown configuration field 'timing.xyz'; allowed: timing.ccd_l"),
        (["run", "shape", "--set", "tracker_sets=1048576"], "tracker_sets must be one of"),
        (["verilog", "--preset", "huge"], "unknown preset 'huge'"),
        (["regress", "--processes", "0"], "processes must be from 1 to 64"),
        (["bench", "--repeat", "0"], "repeat must be from 1"),
        (["run", "arrays", "--dtype", "fp16"], "Missing option"),
        (["vectors", "nowhere.txt"], "nowhere.txt does not exist"),
    ],
)
def test_bad_options(capsys, monkeypatch, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "dtype", "sentence"),
    [
        ({"y": np.zeros((2, 4), np.uint16)}, "fp16", "has no array called x (it holds y)"),
        ({"x": np.zeros(4, np.uint16)}, "fp16", "must have shape (N, elements), got (4,)"),
        ({"x": np.zeros((5, 10), np.uint16)}, "fp16", "one of (2, 3, 4, 8, 16); got 5"),
        ({"x": np.zeros((4, 10), np.uint16)}, "fp16", "multiple of the 4 GPUs, got 10"),
        ({"x": np.zeros((4, 0), np.uint16)}, "fp16", "positive multiple of the 4 GPUs, got 0"),
        ({"x": np.zeros((4, 8), np.float64)}, "fp32", "must hold 32-bit integers (bit patterns) or float32 for fp32"),
        ({"x": np.zeros((4, 8), np.float32)}, "fp16", "or float16 for fp16, got float32"),
        ({"x": np.zeros((4, 8), np.float32)}, "int32", "must hold 32-bit integers"),
        ({"x": np.zeros((4, 8), np.int16)}, "fp8", "dtype must be one of"),
    ],
)
def test_bad_arrays(capsys, tmp_path, data, dtype, sentence):
    file = save(tmp_path / "x.npz", **data)
    out = tmp_path / "y.npz"
    assert sentence in refused(capsys, "run", "arrays", "--inputs", file, "--dtype", dtype, "--out", str(out))
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_damaged_archives(capsys, tmp_path):
    good = Path(save(tmp_path / "good.npz", x=np.arange(64, dtype=np.uint16).reshape(2, 32))).read_bytes()
    np.save(tmp_path / "single.npy", np.zeros((2, 2), np.uint16))
    cases = {
        "truncated": good[: len(good) // 2],
        "text": b"hello",
        "empty": b"",
        "flipped": good[:200] + bytes([good[200] ^ 0xFF]) + good[201:],
        "single": (tmp_path / "single.npy").read_bytes(),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        out = tmp_path / "y.npz"
        refused(capsys, "run", "arrays", "--inputs", str(tmp_path / name), "--dtype", "fp16", "--out", str(out))
        assert not out.exists()
    refused(capsys, "run", "arrays", "--inputs", str(tmp_path), "--dtype", "fp16", "--out", str(out))


def test_pickled_objects_are_not_loaded(tmp_path):
    file = save(tmp_path / "x.npz", x=np.array([[{}, {}], [{}, {}]], dtype=object))
    with pytest.raises(UsageError, match="not a readable npz"):
        user_arrays.load_inputs(Path(file), "fp16")


@pytest.mark.parametrize("name", ["int16", "uint16", "float16", ">u2"])
def test_16_bit_arrays_keep_their_bits_and_type(tmp_path, name):
    bits = np.arange(32, dtype=np.uint16).reshape(2, 16) * 2049
    given = bits.view(np.dtype(name).newbyteorder("=")).astype(np.dtype(name))
    array = user_arrays.load_inputs(Path(save(tmp_path / "x.npz", x=given)), "fp16")
    assert (array.patterns == bits).all()
    back = array.restored(array.patterns)
    assert back.dtype == np.dtype(name).newbyteorder("=")
    assert back.tobytes() == bits.tobytes()


def test_float32_for_bf16_is_rounded_to_nearest_even(tmp_path):
    x = np.array([[1.0, 1.00390625], [1.01171875, np.nan]], np.float32)  # exact, tie to even 1.0, tie to even up
    array = user_arrays.load_inputs(Path(save(tmp_path / "x.npz", x=x)), "bf16")
    assert array.patterns.tolist() == [[0x3F80, 0x3F80], [0x3F82, 0x7FC0]]
    assert array.restored(array.patterns).dtype == np.float32
    assert array.restored(array.patterns)[1, 0] == 1.015625


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "y.npz"
    path.write_text("old")

    def fail() -> None:
        with files.replaced(path) as draft:
            draft.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(UsageError, match="cannot be written"):
        files.check_writable(path / "inside.json")
    with pytest.raises(UsageError, match="is a folder"):
        files.check_writable(tmp_path)


def test_a_missing_simulator_is_one_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.setattr(prerequisites, "BUILD", tmp_path)
        assert cli.command_line(["run", "shape"]) == 3
        assert "g++ and make not found" in capsys.readouterr().err
    monkeypatch.setattr(prerequisites.importlib.util, "find_spec", lambda name: None)
    for command in ("regress", "bench"):
        assert cli.command_line([command]) == 3
        printed = capsys.readouterr().err
        assert printed.startswith("t3rtl: Verilator is not installed")
        assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["sweep", "--vary", "workload=t-nlg/op/tp8"], 3, "distributed not installed"),
        (["sweep", "--vary", "nothing=1"], 2, "nothing"),
        (["report"], 3, "matplotlib and jinja2 and distributed not installed"),
        (["report", "--section", "all"], 2, "section must be one of"),
        (["report", "--only", "gpt-5/*"], 2, "no sub-layer of these sections matches"),
        (["explain", "ring-all-reduce", "--picture", "picture.svg"], 3, "matplotlib not installed"),
    ],
)
def test_a_package_that_is_not_there_is_one_sentence(capsys, monkeypatch, tmp_path, command, code, said):
    """What is wrong with the input is said first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prerequisites.importlib.util, "find_spec", lambda name: None)
    assert cli.command_line(command) == code
    printed = capsys.readouterr().err
    assert printed.startswith("t3rtl: ")
    assert said in printed
    assert printed.count("\n") == 1


def test_missing_wave_headers_are_named(monkeypatch):
    monkeypatch.setattr(prerequisites, "_compiles", lambda text: "zlib" in text)
    with pytest.raises(MachineError, match=r"waves need lz4\.h, not found: install liblz4-dev"):
        prerequisites.require_waves()


@pytest.mark.parametrize("command", [[], ["--help"], ["-h"]])
def test_help_teaches(capsys, command):
    assert cli.command_line(command) == 0
    printed = capsys.readouterr().out
    assert "t3rtl run shape --gpus 2" in printed
    for name in ("run", "vectors", "verilog", "list", "explain", "regress", "bench", "faults", "compare", "sweep"):
        assert f" {name} " in printed
        assert cli.command_line([name, "--help"]) == 0
        assert "Example" in capsys.readouterr().out or name == "list"


def test_help_of_run_shows_the_uses_and_then_one_at_a_time(capsys):
    assert cli.command_line(["run", "--help"]) == 0
    printed = capsys.readouterr().out
    for name in ("shape", "layer", "gemm", "trace", "arrays"):
        assert f" {name} " in printed
    assert "--tile-order" not in printed
    assert cli.command_line(["run", "t-nlg/fc-2/tp8", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--tile-order" in printed
    assert "--wfs" not in printed


def test_list(capsys):
    assert cli.command_line(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed["presets"]) == set(PRESETS)
    assert listed["collectives"]["all-to-all"]["topologies"] == ["mesh", "ideal-switch", "switch", "hosted-mesh"]
    assert list(listed["collectives"]) == list(PROGRAMS)
    assert list(listed["topologies"]) == list(TOPOLOGIES)
    assert listed["policies"] == ["round-robin", "compute-first", "mca", "paced"]
    assert {
        "name": "t-nlg/fc-1/tp16",
        "model": "T-NLG",
        "sublayer": "FC-1",
        "tp": 16,
        "m": 8192,
        "n": 4256,
        "k": 1064,
    } in (listed["workloads"])
    assert cli.command_line(["list"]) == 0
    printed = capsys.readouterr().out
    assert "Mega-GPT-2" in printed
    assert all(name in printed for name in (*PROGRAMS, *TOPOLOGIES, *machines()))


def test_table_2_has_28_sublayers_and_whole_depths():
    assert len(WORKLOADS) == 28
    assert len({work.name for work in WORKLOADS}) == 28
    depths = {work.sublayer: work.k for work in WORKLOADS if (work.model, work.tp) == ("Mega-GPT-2", 16)}
    assert depths == {"OP": 192, "FC-2": 768, "FC-1": 768, "IP": 576}
    assert all(work.k * work.tp % work.n == 0 for work in WORKLOADS)


def test_settings_reach_the_configuration():
    spec = shape(settings=settings(["channels=4", "timing.refresh=off", "link_bandwidth=150", "timing.cl=0x10"]))
    config = node_of(spec, spec.tiling())
    assert (config.channels, config.timing.refresh, config.link_bandwidth, config.timing.cl) == (4, False, 150.0, 16)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("chunk", [1, 100, 1024, 1030, 5000])
def test_padding_of_a_users_arrays_does_not_show(tmp_path, ranks, chunk):
    rng = np.random.default_rng(chunk)
    x = rng.integers(0, 1 << 16, (ranks, ranks * chunk), dtype=np.uint16)
    spec = arrays(Path(save(tmp_path / "x.npz", x=x)), "fp16")
    filled = padded(x)
    assert filled.shape == (spec.gpus, *spec.shape[:2])
    reduced = ring_reduce_scatter(filled.reshape(ranks, -1), "fp16", "add")
    assert (chunk_elements(reduced, chunk) == ring_reduce_scatter(x, "fp16", "add")).all()


def test_results_round_trip_and_rows(tmp_path):
    results = [array_result(), array_result("wrong", errors=["3 elements differ"], overlap_efficiency=0.5)]
    write_results(tmp_path / "deep" / "results.json", results)
    assert read_results(tmp_path / "deep" / "results.json") == results
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["results.json"]
    assert "12,345" in format_row(results[0])
    assert format_row(results[0]).endswith("pass")
    assert "50 %" in format_row(results[1])
    assert format_row(results[1]).endswith("FAIL")
    assert header().index("result") == format_row(results[0]).index("pass")
    assert summary(results, 3) == "1 of 2 scenarios pass, 98,760 node cycles in 3 s; FAILED: wrong"


def test_overlap_figures_by_hand():
    figures = overlap_figures(overall=1200, gemm_alone=1000, rs_alone=500)
    assert figures["speedup"] == 1.25
    assert figures["ideal_speedup"] == 1.5
    assert figures["percent_of_ideal"] == 50.0
    assert figures["ect_cycles"] == 200
    assert figures["overlap_efficiency"] == 0.6


def test_where_nothing_is_to_be_gained_there_is_no_percentage():
    figures = overlap_figures(overall=1000, gemm_alone=1000, rs_alone=0)
    assert (figures["speedup"], figures["percent_of_ideal"], figures["overlap_efficiency"]) == (1.0, None, None)


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_exit_code_follows_the_result(capsys, monkeypatch, tmp_path, passed, code):
    """The engine is replaced: what is tested is what the command makes of a result."""
    result = array_result(errors=[] if passed else ["1 of 8 elements differ"])
    reduced = np.arange(8, dtype=np.uint16).reshape(2, 1, 4)
    monkeypatch.setattr(sim.experiments.experiment, "run_with_output", lambda *arguments: (result, reduced))
    monkeypatch.setattr(run_command, "require_simulator", lambda: None)
    out = tmp_path / "results.json"
    assert cli.command_line(["run", "shape", "--out", str(out)]) == code
    assert read_results(out)[0]["passed"] == passed
    assert ("elements differ" in capsys.readouterr().err) != passed
    file = save(tmp_path / "x.npz", x=np.zeros((2, 8), np.int16))
    y = tmp_path / "y.npz"
    assert cli.command_line(
        ["run", "arrays", "--inputs", file, "--dtype", "fp16", "--out", str(y), "--results", str(out)]
    ) == code  # fmt: skip
    assert y.exists() == passed
    if passed:
        with np.load(y) as archive:
            assert archive["y"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert archive["y"].dtype == np.int16
