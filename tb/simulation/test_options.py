"""Every option of every command is honoured or refused: written down, it changes what is run, shown or written, or the
command says in one sentence that it has no use for it."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")
pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")

import hw.export.exporter
import hw.synthesis.fpga
import hw.synthesis.liberty
import hw.synthesis.measure
import hw.synthesis.protection
import hw.synthesis.report
import sim.benches.dram_trace
import sim.benches.vectors
import sim.experiments.experiment
import sim.experiments.regression
import sim.experiments.sweep
import sim.faults.campaign
import sim.faults.server
import sim.report.page
import sim.sequences.campaign
import sim.sequences.server
import sim.workloads.calibration
from sim.cli import (
    alternatives,
    blocks,
    calibrate,
    dram_trace,
    faults,
    main,
    regress,
    report,
    run,
    sequences,
    sweep,
    synth,
)
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.faults.campaign import Finished
from sim.faults.injections import Injection, Sent, Space
from sim.faults.outcomes import Facts
from sim.faults.places import KINDS, Variable
from sim.sequences.collectives import Collectives
from sim.sequences.server import Found
from tb.drivers.point_double import analytic
from tb.drivers.result_double import result_of

LAYER = {
    "--variant": ["t3"],
    "--mode": ["ring"],
    "--link-bandwidth": ["150"],
    "--compute-units": ["160"],
    "--channels": ["4"],
    "--starvation-limit": ["0"],
    "--watchdog": ["5000"],
    "--tracker-ways": ["4"],
    "--prefetch": ["0"],
    "--reads-under-way": ["8"],
    "--communication-units": ["8"],
    "--communication-bandwidth": ["6.5"],
    "--seed": ["2"],
    "--set": ["dma_packets=64"],
    "--threads": ["1"],
    "--timeline": ["run.pftrace"],
    "--html": ["run.html"],
    "--no-baseline": [],
    "--out": ["other.json"],
}
SHAPE = {
    "--preset": ["tiny"],
    "--policy": ["round-robin"],
    "--threshold": ["10"],
    "--dtype": ["fp32"],
    "--op": ["max"],
    "--direction": ["ccw"],
    "--watchdog": ["5000"],
    "--bug": ["no_first_touch"],
    "--set": ["tracker_ways=1"],
    "--waves": ["waves.fst"],
    "--threads": ["2"],
    "--timeline": ["run.pftrace"],
    "--html": ["run.html"],
    "--out": ["other.json"],
}
SWEPT = {"--processes": ["3"], "--scheduler": ["tcp://nowhere:1"], "--store": ["elsewhere"], "--out": ["other"]}
BENCH = {
    "--gpus": ["2"],
    "--shape": ["256", "256", "64"],
    "--preset": ["tiny"],
    "--minimum": ["1000"],
    "--repeat": ["1"],
    "--threads": ["1"],
    "--out": ["other.json"],
}
TRACE = ["run", "trace", "trace.npz", "--shape", "256", "256", "64", "--tp", "2"]

CASES: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    "run shape": (
        ["run", "shape"],
        SHAPE
        | {
            "--gpus": ["2"],
            "--shape": ["256", "256", "64"],
            "--tile": ["64", "64"],
            "--wfs": ["4"],
            "--dma-block": ["2"],
            "--initial": ["zeroing"],
            "--stalls": ["10"],
            "--bit-errors": ["1e-6"],
            "--schedule": ["sweep"],
            "--seed": ["2"],
            "--starvation-limit": ["0"],
            "--no-alone": [],
        },
    ),
    "run layer": (["run", "layer", "t-nlg/op/tp8"], LAYER | {"--tile-order": ["rows"], "--workgroups-per-unit": ["2"]}),
    "run gemm": (
        ["run", "gemm", "--shape", "1024", "256", "64"],
        LAYER
        | {
            "--shape": ["2048", "256", "64"],
            "--tp": ["4"],
            "--tile-order": ["rows"],
            "--workgroups-per-unit": ["2"],
        },
    ),
    "run trace": (TRACE, LAYER | {"--shape": ["512", "256", "64"], "--tp": ["4"]}),
    "run arrays": (
        ["run", "arrays", "--inputs", "x.npz", "--dtype", "fp16", "--out", "y.npz"],
        SHAPE | {"--inputs": ["two.npz"], "--dtype": ["bf16"], "--out": ["z.npz"], "--results": ["figures.json"]},
    ),
    "run collective": (
        ["run", "collective", "ring-all-gather-gemm"],
        {name: value for name, value in SHAPE.items() if name not in ("--op", "--direction")}
        | {
            "--gpus": ["2"],
            "--topology": ["ring-one-way"],
            "--shape": ["192", "64", "32"],
            "--tile": ["64", "64"],
            "--wfs": ["4"],
            "--dma-block": ["2"],
            "--tile-order": ["swizzled"],
            "--gates": ["fine"],
            "--slices": ["2"],
            "--naive": [],
            "--mode": ["mirrored"],
            "--pieces": ["2"],
            "--independent": [],
            "--gemm-shape": ["64", "32", "16"],
            "--stalls": ["10"],
            "--bit-errors": ["1e-6"],
            "--seed": ["2"],
            "--starvation-limit": ["0"],
            "--bug": ["early_gate"],
        },
    ),
    "run collective, of a machine": (
        ["run", "collective", "ring-all-gather-gemm", "--shape", "1024", "1024", "1024"],
        {"--machine": ["h100"]},
    ),
    "run collective, as recorded": (
        ["run", "collective", "ring-all-gather-gemm", "--shape", "1024", "1024", "1024", "--machine", "h100"],
        {"--trace": ["trace.npz"], "--machine": ["a100-80"]},
    ),
    "run collective, in slices": (
        ["run", "collective", "direct-all-gather-gemm", "--topology", "mesh", "--gpus", "3", "--gates", "fine"],
        {"--slices": ["2"]},
    ),
    "run collective, by a kernel": (
        ["run", "collective", "all-to-all-reduce-scatter", "--topology", "mesh", "--gpus", "3"],
        {"--copied": [], "--units": ["2"], "--naive": []},
    ),
    "run collective, beside a GEMM": (
        ["run", "collective", "all-to-all", "--topology", "mesh", "--gpus", "3", "--copied", "--independent"],
        {"--sharing": ["priority"], "--alike": []},
    ),
    "run collective, from a host": (
        ["run", "collective", "hosted-gemm", "--topology", "hosted-ring", "--gpus", "3", "--shape", "64", "64", "32"],
        {"--host-bandwidth": ["12.5"], "--straight": []},
    ),
    "run collective, from a host and on to all": (
        ["run", "collective", "hosted-gemm", "--topology", "hosted-mesh", "--gpus", "4", "--shape", "96", "64", "32"],
        {"--spread": []},
    ),
    "run collective, from memory": (
        ["run", "collective", "direct-all-gather", "--topology", "mesh", "--gpus", "3"],
        {"--lying": []},
    ),
    "run collective, a reduction": (
        ["run", "--collective", "ring-all-reduce"],
        {
            "--op": ["max"],
            "--initial": ["zeroing"],
            "--pieces": ["2"],
            "--splits": ["2"],
            "--residual": [],
            "--gates": ["fine"],
            "--slices": ["2"],
        },
    ),
    "run collective, another way": (["run", "--collective", "ring-reduce-scatter"], {"--direction": ["ccw"]}),
    "run collective, from another rank": (["run", "--collective", "broadcast-chain"], {"--root": ["1"]}),
    "reduce": (
        ["reduce", "--inputs", "two.npz", "--dtype", "fp16", "--out", "y.npz"],
        {name: value for name, value in SHAPE.items() if name not in ("--direction", "--watchdog", "--bug")}
        | {
            "--inputs": ["x.npz"],
            "--collective": ["all-to-all"],
            "--topology": ["ring-one-way"],
            "--dtype": ["bf16"],
            "--out": ["z.npz"],
            "--results": ["figures.json"],
        },
    ),
    "list": (["list"], {"--json": []}),
    "explain": (
        ["explain", "ring-all-reduce"],
        {
            "--gpus": ["3"],
            "--topology": ["mesh"],
            "--rank": ["1"],
            "--picture": ["program.svg"],
            "--direction": ["ccw"],
            "--pieces": ["2"],
            "--splits": ["2"],
            "--residual": [],
            "--gates": ["fine"],
            "--slices": ["2"],
            "--root": ["1"],
        },
    ),
    "explain, a ring": (["explain", "ring-reduce-scatter"], {"--direction": ["ccw"], "--pieces": ["2"]}),
    "explain, a GEMM": (["explain", "ring-all-gather-gemm"], {"--gates": ["fine"], "--residual": []}),
    "explain, in slices": (["explain", "direct-all-gather-gemm", "--gates", "fine"], {"--slices": ["2"]}),
    "explain, a host": (["explain", "hosted-gemm"], {"--spread": [], "--straight": []}),
    "explain, a tree": (["explain", "broadcast-tree"], {"--root": ["1"], "--pieces": ["2"], "--splits": ["2"]}),
    "sweep": (["sweep", "--vary", "workload=t-nlg/op/tp8"], SWEPT | {"--vary": ["seed=1,2"]}),
    "report": (
        ["report", "--section", "ring"],
        SWEPT | {"--section": ["recorded"], "--only": ["t-nlg/op/*"], "--no-run": []},
    ),
    "report, nothing run": (["report", "--no-run"], {"--processes": ["3"], "--scheduler": ["x"]}),
    "compare": (["compare", "one.json", "two.json"], {"--shown": ["1"], "--all": []}),
    "regress": (
        ["regress", "--only", "tiny"],
        {"--out": ["other.json"], "--only": ["gpus-2"], "--processes": ["3"], "--threads": ["2"]},
    ),
    "bench": (["bench"], BENCH | {"--profile": []}),
    "bench, profiled": (["bench", "--profile"], BENCH),
    "faults": (
        ["faults", "--injections", "20"],
        {
            "--injections": ["60"],
            "--class": ["control"],
            "--gpus": ["4"],
            "--topology": ["mesh"],
            "--seed": ["2"],
            "--watchdog": ["0"],
            "--set": ["protection=none"],
            "--replay": ["memory 5 abort 0"],
            "--control": [],
            "--processes": ["3"],
            "--scheduler": ["tcp://nowhere:1"],
            "--out": ["other"],
        },
    ),
    "faults, one injection": (
        ["faults", "--replay", "memory 5 abort 0"],
        {
            "--injections": ["60"],
            "--class": ["control"],
            "--seed": ["2"],
            "--control": [],
            "--processes": ["3"],
            "--scheduler": ["x"],
            "--out": ["other"],
            "--gpus": ["4"],
            "--topology": ["mesh"],
        },
    ),
    "faults, without protection": (
        ["faults", "--control"],
        {
            "--injections": ["60"],
            "--class": ["control"],
            "--set": ["protection=none"],
            "--replay": ["memory 5 abort 0"],
            "--processes": ["3"],
            "--scheduler": ["x"],
            "--gpus": ["4"],
            "--topology": ["mesh"],
            "--seed": ["2"],
            "--watchdog": ["0"],
            "--out": ["other"],
        },
    ),
    "sequences": (
        ["sequences", "--sequences", "20"],
        {
            "--sequences": ["21"],
            "--length": ["5"],
            "--pairs": [],
            "--every-cycle": ["all-to-all"],
            "--topology": ["ring"],
            "--gpus": ["4"],
            "--seed": ["2"],
            "--set": ["tracker_ways=2"],
            "--replay": ["1/all-to-all:0"],
            "--processes": ["3"],
            "--out": ["other"],
        },
    ),
    "sequences, every pair": (
        ["sequences", "--pairs"],
        {
            "--sequences": ["21"],
            "--length": ["5"],
            "--every-cycle": ["all-to-all"],
            "--processes": ["3"],
            "--seed": ["2"],
            "--out": ["other"],
            "--topology": ["ring"],
        },
    ),
    "sequences, every cycle": (
        ["sequences", "--every-cycle", "all-to-all"],
        {
            "--sequences": ["21"],
            "--length": ["5"],
            "--processes": ["3"],
            "--seed": ["2"],
            "--gpus": ["4"],
            "--every-cycle": ["gemm-alone"],
        },
    ),
    "sequences, one alone": (
        ["sequences", "--replay", "1/all-to-all:0"],
        {
            "--sequences": ["21"],
            "--length": ["5"],
            "--pairs": [],
            "--every-cycle": ["all-to-all"],
            "--seed": ["2"],
            "--processes": ["3"],
            "--out": ["other"],
            "--gpus": ["4"],
            "--replay": ["2/all-to-all:0"],
        },
    ),
    "calibrate": (["calibrate", "--only", "t-nlg/op/tp8"], {"--only": ["t-nlg/ip/tp8"], "--compute-units": ["160"]}),
    "alternatives": (
        ["alternatives"],
        {
            "--variant": ["256 sets, 4 ways"],
            "--workload": ["t-nlg/op/tp16"],
            "--no-area": [],
            "--no-simulate": [],
            "--processes": ["3"],
            "--out": ["other"],
            "--record": [],
        },
    ),
    "alternatives, not simulated": (["alternatives", "--no-simulate"], {"--workload": ["t-nlg/op/tp16"]}),
    "alternatives, nothing measured": (
        ["alternatives", "--no-simulate", "--no-area"],
        {"--processes": ["3"], "--variant": ["256 sets, 4 ways"]},
    ),
    "dram-trace": (
        ["dram-trace", "one.trace", "--communication", "two.trace"],
        {
            "--communication": ["one.trace"],
            "--generate": ["sequential-read"],
            "--requests": ["10"],
            "--seed": ["2"],
            "--preset": ["tiny"],
            "--queue-depth": ["8"],
            "--no-refresh": [],
            "--policy": ["round-robin"],
            "--threshold": ["10"],
            "--starvation-limit": ["1"],
            "--set": ["timing.cl=20"],
            "--out": ["other.json"],
        },
    ),
    "dram-trace, one stream": (
        ["dram-trace", "one.trace"],
        {"--policy": ["round-robin"], "--threshold": ["10"], "--starvation-limit": ["1"], "--set": ["tracker_ways=1"]},
    ),
    "dram-trace, generated": (
        ["dram-trace", "new.trace", "--generate", "sequential-read", "--requests", "10"],
        {"--requests": ["11"], "--seed": ["2"], "--generate": ["random-read"]},
    ),
    "vectors": (["vectors", "one.trace"], {"--dtype": ["bf16"], "--op": ["max"]}),
    "verilog": (["verilog"], {"--out": ["other"], "--preset": ["tiny"], "--set": ["channels=2"]}),
    "synth": (
        ["synth", "--no-fpga"],
        {
            "--block": ["tracker"],
            "--preset": ["tiny"],
            "--liberty": ["my.lib"],
            "--fpga": [],
            "--processes": ["3"],
            "--out": ["other"],
            "--record": [],
            "--protection": [],
        },
    ),
    "synth, protection": (
        ["synth", "--protection"],
        {"--block": ["tracker"], "--processes": ["3"], "--out": ["other"], "--record": [], "--preset": ["tiny"]},
    ),
    "synth, not placed": (["synth", "--preset", "tiny"], {"--fpga": []}),
}
"""Command (and use of it) -> a command line, and for each option values that are not those of the line."""


FOUND = Found("ok", 0, 0, 0, 0, 900, "c", (500,))
REFUSAL = "has no effect here"
FINISHED = Finished(Injection("5 abort 0", "memory"), Facts(True, True, False, 1, 0, 0, 0, 0, 9, 0, 0))
SPACE = Space(
    2,
    ((10, 50), (60, 99)),
    {kind: [Variable(f"gpu_shell.gpu.node.{kind}", 8, 1)] for kind in KINDS},
    [Sent(0, 0, kind, 9, (20, 30)) for kind in ("flits", "messages")],
    {(0, 0): (0, 0)},
)
BAD = {"dram-trace, one stream": ("--set",)}
"""Options that are refused for a value that has no use here."""


class Pool:
    """Stands for a pool of processes: what is handed in is noted, and answered at once."""

    calls: list[Any]
    answer: Callable[..., Any]

    def __init__(self, processes: int):
        self.calls.append(("pool", processes))

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        self.calls.append((function.__name__, arguments))
        future: Future = Future()
        future.set_result(type(self).answer(*arguments))
        return future


def synthesized(calls: list[Any]) -> Callable[..., Any]:
    """What a worker of `t3rtl synth` or `t3rtl alternatives` answers."""

    def answer(first: Any, *others: Any) -> Any:
        if isinstance(first, tuple):
            area = {"gate_equivalents": 1, "memory_bits": 1, "fo4": 1.0}
            counts = dict.fromkeys(("cycles", "evictions", "refetches", "stall_cycles", "peak_occupancy"), 1)
            return area if first[0] == "area" else counts | {"errors": []}
        if isinstance(first, str):
            path = Path(f"{others[1]}-{first}".replace("/", "-"))
            path.write_text(str(path))
            return path
        return SimpleNamespace()

    return answer


def replaced_engines(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    """Everything that simulates, synthesizes or exports is replaced by a note of what it was asked."""

    def note(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            calls.append((name, [_plain(item) for item in arguments], sorted(options.items())))
            return answer(*arguments, **options)

        return called

    def experiment(spec: Spec, *others: Any) -> Any:
        # A rank of a program may be left with as many chunks as there are.
        rows = spec.shape[0] // (1 if spec.compute == "program" else spec.gpus)
        return result_of(spec), np.zeros((spec.gpus, rows, spec.shape[1]), np.uint16)

    def run_all(specs: list[Spec], processes: int, *others: Any, **options: Any) -> Iterator[Any]:
        yield from ((index, result_of(spec)) for index, spec in enumerate(specs))

    def run_points(specs: list[Spec], *others: Any) -> Iterator[Any]:
        yield from (Outcome(spec, analytic(spec)) for spec in specs)

    def simulated(spec: Spec, *others: Any, **options: Any) -> Any:
        status = {"spans": {"begin": [0], "end": [1000]}, "done_cycles": 1000}
        return SimpleNamespace(ranks=[status], profile={"links": 1.5}), None

    for module in (alternatives, blocks, calibrate, dram_trace, faults, regress, report, run, sequences, sweep):
        monkeypatch.setattr(module, "require_simulator", lambda: None, raising=False)
    monkeypatch.setattr(run, "require_waves", lambda: None)
    headline: dict[str, dict] = {
        "headline": {"paper": {"speedup_geomean": {}, "speedup_maximum": {}, "sub_layers": 16}},
        "systems": {},
    }
    played = SimpleNamespace(summary=dict, lines=list, passed=True)
    for owner, name, answer in (
        (sim.experiments.experiment, "run_with_output", experiment),
        (sim.experiments.experiment, "run_experiment", lambda spec, *others, **options: result_of(spec)),
        (sim.experiments.experiment, "simulate", simulated),
        (sim.experiments.regression, "run_all", run_all),
        (sim.experiments.sweep, "run_points", run_points),
        (sim.report.page, "write_report", lambda *arguments: headline),
        (sim.benches.dram_trace, "build", lambda *arguments: Path("simulator")),
        (sim.benches.dram_trace, "play", lambda *arguments: played),
        (sim.benches.vectors, "run_vectors", lambda *arguments: (1, [])),
        (hw.export.exporter, "export", lambda *arguments: []),
        (hw.synthesis.measure, "default_library", lambda folder: None),
        (hw.synthesis.report, "summarize", lambda results: {}),
        (hw.synthesis.report, "write_summary", lambda *arguments: None),
        (hw.synthesis.report, "write_table", lambda *arguments: None),
        (hw.synthesis.report, "table", lambda summary: []),
        (hw.synthesis.protection, "table", lambda summary: []),
        (hw.synthesis.report, "changes", lambda *arguments: []),
        (hw.synthesis.fpga, "available", lambda: True),
        (hw.synthesis.liberty, "Library", lambda files: None),
        (alternatives, "record_tables", lambda lines: None),
        (sim.faults.campaign, "run_all", lambda *arguments: iter(())),
        (sim.faults.campaign, "run_now", lambda options, wanted: [FINISHED]),
        (sim.faults.campaign, "wrong_controls", lambda *arguments: []),
        (sim.sequences.campaign, "cycles_alone", lambda known, *places: {item.text: 9 for item in known.ready}),
        (sim.sequences.campaign, "run_all", lambda *arguments: iter(())),
        (sim.sequences.server, "build", lambda *arguments: Path("simulator")),
        (sim.sequences.server, "run_sequences", lambda known, model, shared, listed: [(listed[0], FOUND)]),
    ):
        monkeypatch.setattr(owner, name, note(name, answer))
    monkeypatch.setattr(sim.faults.server, "build", lambda *arguments: Path("simulator"))
    monkeypatch.setattr(sim.faults.server, "explore", lambda *arguments: SimpleNamespace(space=SPACE))
    monkeypatch.setattr(sim.sequences.server, "prepared", lambda *arguments: nullcontext(Path("shared")))
    pool = type("NotedPool", (Pool,), {"calls": calls, "answer": staticmethod(synthesized(calls))})
    for module in (synth, alternatives):
        monkeypatch.setattr(module, "ProcessPoolExecutor", pool)


def _plain(item: Any) -> Any:
    """What is compared of an argument: figures that take part in a run, not the addresses of functions."""
    if callable(item):
        return "function"
    if hasattr(item, "folder"):
        return str(item.folder)
    if hasattr(item, "outcomes"):
        return sorted(map(str, item.outcomes))
    if hasattr(item, "seconds"):
        return item.version
    if isinstance(item, dict):
        return {name: _plain(value) for name, value in item.items()}
    if isinstance(item, Collectives):
        return item.wiring, item.gpus, [ready.spec for ready in item.ready]
    if hasattr(item, "address"):
        return item.address.tolist(), item.access.tolist()
    return item


def effect(
    arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code of a command line in a fresh `folder`; and all it did, as text, or the sentence that refuses it."""
    folder.mkdir()
    calls: list[Any] = []
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        replaced_engines(patch, calls)
        patch.setattr(sim.workloads.calibration, "TABLE", folder / "calibration.json")
        (folder / "calibration.json").write_text("{}")
        sim.workloads.calibration.table.cache_clear()
        np.savez(folder / "x.npz", x=np.zeros((4, 64), np.uint16))
        np.savez(folder / "two.npz", x=np.zeros((2, 64), np.uint16))
        np.savez(folder / "trace.npz", x=np.zeros((2, 4), np.int64))
        (folder / "one.trace").write_text("0x0 READ 0\n")
        (folder / "two.trace").write_text("0x20 READ 0\n")
        for name, cycles in (("one", 1), ("two", 2)):
            figures = {"cycles": cycles, "speedup": cycles, "triggers": 3}
            (folder / f"{name}.json").write_text(json.dumps([{"name": "a", **figures}]))
        code = main.command_line(arguments)
    sim.workloads.calibration.table.cache_clear()
    printed = capsys.readouterr()
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return code, printed.err if code == 2 else repr((code, printed, calls, files)).replace(str(folder), "")


@pytest.mark.parametrize("case", CASES)
def test_options_are_honoured_or_refused(case, tmp_path, monkeypatch, capsys):
    base, options = CASES[case]
    code, before = effect(base, tmp_path / "base", monkeypatch, capsys)
    assert code != 2, before
    for number, (option, values) in enumerate(options.items()):
        code, after = effect([*base, option, *values], tmp_path / str(number), monkeypatch, capsys)
        if code == 2:
            assert after.startswith("t3rtl: "), after
            assert after.count("\n") == 1, after
            assert REFUSAL in after or option in BAD.get(case, ()), after
        else:
            assert after != before, f"{option} {' '.join(values)} changes nothing"


def commands() -> dict[str, Any]:
    """All commands with options, by what one types."""
    found = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, item in getattr(command, "commands", {}).items():
            walk(item, (*words, name))
        if not getattr(command, "commands", {}):
            found[" ".join(words)] = command

    walk(typer.main.get_command(main.app), ())
    return found


def test_no_option_of_any_command_is_left_out():
    """An option that is added wants a line above, and that line shows that something reads it."""
    tried: dict[str, set[str]] = {}
    for case, (_, options) in CASES.items():
        tried.setdefault(case.partition(",")[0], set()).update(options)
    for name, command in commands().items():
        declared = [item for item in command.params if item.param_type_name == "option" and item.name != "help"]
        missing = [item.opts for item in declared if not tried[name] & {*item.opts, *item.secondary_opts}]
        assert not missing, f"t3rtl {name}: {missing}"


def test_an_option_that_nothing_reads_is_found(tmp_path, monkeypatch, capsys):
    def idle(unread: int = 1) -> None:
        """Reads nothing."""

    app = typer.Typer()
    app.command("idle")(idle)
    app.command("other")(lambda: None)
    monkeypatch.setattr(main, "app", app)
    monkeypatch.setitem(CASES, "idle", (["idle"], {"--unread": ["2"]}))
    with pytest.raises(AssertionError, match="--unread 2 changes nothing"):
        test_options_are_honoured_or_refused("idle", tmp_path, monkeypatch, capsys)
    monkeypatch.setitem(CASES, "idle", (["idle"], {}))
    monkeypatch.setitem(CASES, "other", (["other"], {}))
    with pytest.raises(AssertionError, match="t3rtl idle"):
        test_no_option_of_any_command_is_left_out()
