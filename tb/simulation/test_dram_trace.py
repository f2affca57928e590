"""Request traces reach the DRAM as written; the reference traces take the reference's time; a bad line is refused."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.config import preset
from hw.messages import Policy, Threshold
from sim.benches.dram_channel import TraceFigures
from sim.benches.dram_trace import TraceResult, arbiter_control, build, play
from sim.benches.trace_file import CHANNEL_BYTES, KINDS, Trace, generate, read_trace, write_trace
from sim.cli import main as cli
from sim.errors import SimulationError, UsageError
from sim.models.timing_checker import Rule
from tb.drivers.payload import pack

REFERENCE = {"sequential-read": 1_116_034, "sequential-write": 1_114_267, "random-read": 4_485_933}
"""Cycles an independent cycle-accurate simulator takes for a million requests (1 GiB, open page, all-bank refresh)."""
TOLERANCE = 0.05
CONTROL: dict[str, Any] = {"policy": Policy.MCA, "threshold": Threshold.NONE, "starvation_limit": 2000, "refresh": True}


@cache
def paper_channel() -> Path:
    """The simulator of the paper's channel; even to find that it is there takes seconds."""
    return build(preset("paper"))


def played(kind: str, requests: int, **changes) -> TraceResult:
    """The reference trace `kind` on the paper's channel."""
    return play(paper_channel(), {"compute": generate(kind, requests, 1)}, arbiter_control(**(CONTROL | changes)))


def deviation(kind: str, result: TraceResult) -> float:
    """From the reference, relative."""
    return result.cycles / result.requests / (REFERENCE[kind] / 1_000_000) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_short_reference_traces_take_the_time_of_the_reference(kind):
    result = played(kind, 20_000)
    assert result.passed
    assert abs(deviation(kind, result)) < TOLERANCE, f"{result.cycles} cycles"
    assert (result.row_hit_rate > 0.95) == (kind != "random-read")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_requests_take_the_time_of_the_reference(kind):
    result = played(kind, 1_000_000)
    assert result.passed
    assert abs(deviation(kind, result)) < TOLERANCE, f"{result.cycles} cycles"


def test_without_refresh_the_comparison_fails():
    result = played("sequential-read", 20_000, refresh=False)
    assert result.passed
    assert deviation("sequential-read", result) < -TOLERANCE


def test_requests_wait_for_their_cycle_and_streams_are_told_apart():
    cycle = np.array([0, 1000, 1000, 7000], np.uint64)
    access = np.array([0, 1, 2, 0], np.uint64)
    compute = Trace(access, np.arange(4, dtype=np.uint64) << np.uint64(5), cycle)
    communication = Trace(access, (np.arange(4, dtype=np.uint64) + 99) << np.uint64(5), cycle // np.uint64(2))
    traces = {"compute": compute, "communication": communication}
    result = play(paper_channel(), traces, arbiter_control(**(CONTROL | {"refresh": False})))
    assert result.passed
    assert (result.requests, result.reads, result.figures["reads_returned"]) == (8, 4, 4)
    assert 7000 <= result.figures["compute_cycles"] < 7060
    assert 3500 <= result.figures["communication_cycles"] < 3560


@pytest.mark.parametrize(("policy", "slowed"), [(Policy.MCA, True), (Policy.PACED, False)])
def test_compute_that_always_waits_starves_communication_unless_it_is_paced(policy, slowed):
    """Under MCA one communication request passes in a starvation limit; the paced policy keeps the link's rate."""
    limit, requests, distance = 500, 400, 14
    cycle = np.arange(requests, dtype=np.uint64) * np.uint64(distance)
    update = np.full(requests, 2, np.uint64)
    communication = Trace(update, np.arange(requests, dtype=np.uint64) << np.uint64(5), cycle)
    traces = {"compute": generate("random-read", 6_000, 1), "communication": communication}
    result = play(paper_channel(), traces, arbiter_control(policy, Threshold.NONE, limit, refresh=False))
    figures = result.figures
    assert result.passed
    # A request that is next to enter the DRAM queue may find it full; without refresh a place is free soon.
    assert figures["longest_hold"] <= limit + 100
    assert (figures["communication_cycles"] > 4 * requests * distance) == slowed
    assert (figures["communication_cycles"] < 1.2 * requests * distance) != slowed
    assert (figures["forced"] > 0) == slowed


def beside_a_reduction(intensity: float, policy: Policy, threshold: Threshold) -> tuple[int, int]:
    """Cycles until a compute stream and the communication beside it are served: bursts of 256 sequential reads that
    take `intensity` of a channel's bandwidth, and what a reduce-scatter at 75 GB/s moves, packets of 8 updates and of 8
    reads in turns, one sector in 6.8 cycles."""
    cycles, burst, link = 20_000, 256, 0.146
    place = np.arange(int(cycles * intensity))
    begins = place // burst * int(burst / intensity)
    compute = Trace(*(values.astype(np.uint64) for values in (0 * place, place << 5, begins)))
    place = np.arange(int(cycles * link))
    reads = place // 8 % 2
    sector = (1 << 22) + reads * (1 << 20) + place // 16 * 8 + place % 8
    communication = Trace(*(values.astype(np.uint64) for values in (2 - 2 * reads, sector << 5, place / link)))
    traces = {"compute": compute, "communication": communication}
    result = play(paper_channel(), traces, arbiter_control(policy, threshold, 2000, refresh=True))
    assert result.passed
    return result.figures["compute_cycles"], result.figures["communication_cycles"]


@pytest.mark.parametrize("intensity", [0.15, 0.3, 0.7, 0.8])
def test_policies_differ_where_compute_takes_most_of_the_bandwidth(intensity):
    """Up to a third of the bandwidth any policy serves both streams in time. Where little is left, round robin takes
    it from compute, and MCA from communication; a low threshold then only takes more."""
    turns = beside_a_reduction(intensity, Policy.ROUND_ROBIN, Threshold.NONE)
    first = beside_a_reduction(intensity, Policy.MCA, Threshold.NONE)
    held = beside_a_reduction(intensity, Policy.MCA, Threshold.OCCUPANCY_5)
    scarce = intensity > 0.5
    assert (turns[0] > 1.1 * first[0]) == scarce
    assert (turns[0] < 1.03 * first[0]) != scarce
    assert (first[1] > 1.03 * turns[1]) == scarce
    assert held[0] == pytest.approx(first[0], rel=0.01)
    assert held[1] > (1.01 if scarce else 1) * first[1]


@pytest.mark.parametrize(("figure", "passed"), [({}, True), ({"violation": 1, "rule": Rule.RRD}, False)])
def test_the_result_is_that_of_checker_and_counts(tmp_path, figure, passed):
    for columns, reads in ((3, 3), (2, 3), (3, 2)):
        counts = {"cycles": 50, "compute_columns": columns, "compute_cycles": 40, "reads_returned": reads}
        word = pack(TraceFigures, **(counts | figure))
        simulator = tmp_path / f"simulator{columns}{reads}"
        simulator.write_text(f"#!/bin/sh\necho figures {word:x}\n")
        simulator.chmod(0o755)
        result = play(simulator, {"compute": generate("random-read", 3, 1)}, 0)
        assert result.passed == (passed and columns == reads)
        assert result.result == ("no violation" if passed else "RRD")


def test_a_simulator_that_breaks_down_is_noticed(tmp_path):
    simulator = tmp_path / "simulator"
    simulator.write_text("#!/bin/sh\necho broken >&2\n")
    simulator.chmod(0o755)
    with pytest.raises(SimulationError, match="broken"):
        play(simulator, {}, 0)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0x20 READ", "line 3 of {} must be `0xADDR READ|WRITE|UPDATE CYCLE`, got '0x20 READ'"),
        ("0x20 X", "got '0x20 X'"),
        ("LD 0y20", "got 'LD 0y20'"),
        ("0x20", "got '0x20'"),
        ("0x20 FETCH 0", "got '0x20 FETCH 0'"),
        ("READ 0x20 0", "got 'READ 0x20 0'"),
        ("0x20 READ soon", "got '0x20 READ soon'"),
        ("0x40000000 READ 0", "line 3 of {}: the address must be below 0x40000000"),
        ("-0x20 READ 0", "the address must be below"),
        ("0x20 READ -1", "the cycle must be from 0 to"),
        ("\x00\xff", "line 3"),
    ],
)
def test_a_bad_line_is_one_sentence(capsys, tmp_path, line, sentence):
    path, out = tmp_path / "bad.trace", tmp_path / "results.json"
    path.write_text(f"0x0 READ 0\n\n{line}\n0x0 READ 0\n", encoding="utf-8")
    assert cli.command_line(["dram-trace", str(path), "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence.format(path) in printed.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.trace"], "nowhere.trace does not exist"),
        (["x", "--generate", "strided"], "generate must be one of sequential-read, sequential-write, random-read"),
        (["x", "--generate", "random-read", "--requests", "0"], "requests must be from 1"),
        (["x", "--generate", "random-read", "--seed", "-1"], "seed must be from 0"),
        (["x", "--generate", "random-read", "--queue-depth", "3"], "dram_queue_depth must be one of"),
        (["x", "--generate", "random-read", "--policy", "fifo"], "policy must be one of"),
        (["x", "--generate", "random-read", "--threshold", "7"], "threshold must be one of"),
        (["x", "--generate", "random-read", "--starvation-limit", "-1"], "starvation-limit must be"),
        (["x", "--generate", "random-read", "--communication", "y"], "y does not exist"),
    ],
)
def test_bad_options_write_nothing(capsys, monkeypatch, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert cli.command_line(["dram-trace", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_traces_of_other_simulators_are_read(tmp_path):
    path = tmp_path / "trace"
    dramsim3 = ("0x40 READ 0\n0x80 WRITE 7\n", "0x40 P_FETCH 0\n0x80 P_MEM_WR 7\n", "0x40 read 0\n0x80 BOFF 7\n")
    for text in (*dramsim3, "0x40 R\n0x80 W\n", "LD 64\nST 0x80\n"):
        path.write_text(text)
        found = read_trace(path)
        assert (found.address.tolist(), found.reads) == ([0x40, 0x80], 1)
        assert found.cycle.tolist() == [0, 7 if "7" in text else 0]


def test_generated_traces_are_what_they_say(tmp_path):
    drawn = generate("random-read", 5000, 7)
    assert (drawn.address == generate("random-read", 5000, 7).address).all()
    assert (drawn.address != generate("random-read", 5000, 8).address).any()
    assert (drawn.address % np.uint64(32) == 0).all()
    assert drawn.address.max() < CHANNEL_BYTES
    assert np.histogram(drawn.address, 8, (0, CHANNEL_BYTES))[0].min() > 500
    written = generate("sequential-write", 1000, 1)
    assert not written.reads
    write_trace(tmp_path / "trace", written)
    assert (tmp_path / "trace").read_text().splitlines()[2] == "0x00000040 WRITE 0"
    back = read_trace(tmp_path / "trace")
    for name in ("access", "address", "cycle"):
        assert (getattr(back, name) == getattr(written, name)).all()
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no requests"):
        read_trace(tmp_path / "empty")


def test_the_command_writes_trace_and_results(capsys, tmp_path):
    file, out = tmp_path / "sequential.trace", tmp_path / "results.json"
    arguments = ["dram-trace", str(file), "--generate", "sequential-read", "--requests", "2000", "--out", str(out)]
    assert cli.command_line(arguments) == 0
    assert len(file.read_text().splitlines()) == 2000
    report = json.loads(out.read_text())
    assert report["passed"]
    assert report["requests"] == 2000
    assert report["requests_per_second"] > 0
    text = capsys.readouterr().out
    for name in (
        "cycles",
        "bandwidth",
        "GB/s",
        "requests a second",
        "simulation speed",
        "row hits",
        "timing checker",
        "no violation",
    ):
        assert name in text
    again = ["dram-trace", str(file), "--out", str(out), "--communication", str(file)]
    assert cli.command_line(again) == 0
    assert json.loads(Path(out).read_text())["requests"] == 4000
    assert "communication held" in capsys.readouterr().out
