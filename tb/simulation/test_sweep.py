"""Grids of points, their results on disk, and who runs them: this machine's processes or a Dask cluster."""

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs the packages of the extra [report]")

import sim.experiments.experiment
from sim.cli.main import command_line
from sim.cli.sweep import write_sweep
from sim.errors import UsageError
from sim.experiments.catalogue import layer, own
from sim.experiments.experiment import source_version
from sim.experiments.grid import FIELDS, grid
from sim.experiments.outcomes import Outcome
from sim.experiments.results import Result, read_results
from sim.experiments.spec import Spec
from sim.experiments.store import PointStore
from sim.experiments.sweep import run_points
from tb.drivers import point_double

ONE = "workload=t-nlg/op/tp8"
GRID = [ONE, "variant=sequential,t3,t3-mca", "link_bandwidth=75,150"]


def outcomes_of(found: Iterator[Outcome]) -> dict[Spec, Outcome]:
    return {outcome.spec: outcome for outcome in found}


def result_of(outcome: Outcome) -> Result:
    assert outcome.result is not None, outcome.error
    return outcome.result


@pytest.fixture
def store(tmp_path: Path) -> PointStore:
    return PointStore(tmp_path / "points", source_version())


def test_grid_is_every_combination_in_order() -> None:
    points = grid([ONE, "variant=t3,t3-mca", "link-bandwidth=75,150"])
    assert [(point.variant.name, point.link_bandwidth) for point in points] == [
        ("t3", 75.0),
        ("t3", 150.0),
        ("t3-mca", 75.0),
        ("t3-mca", 150.0),
    ]
    assert {point.name for point in points} == {"t-nlg/op/tp8"}


def test_workloads_of_a_grid_are_patterns() -> None:
    assert len(grid(["workload=*/tp16,*/FC-?/tp8", "variant=t3"])) == 8 + 4


def test_grid_runs_recorded_gemms_that_come_along_and_the_users_own(tmp_path: Path) -> None:
    (shipped,) = grid(["workload=h200/tnlg_op_tp8"])
    assert shipped.trace.endswith("h200_gemm_traces.npz:tnlg_op_tp8")
    assert (*shipped.shape, shipped.gpus) == (8192, 4256, 532, 8)
    trace = tmp_path / "mine.npz"
    trace.touch()
    points = grid(["workload=mine", f"trace={trace}:a,{trace}:b", "shape=256x128x64x2"])
    assert [(point.name, point.trace, point.shape) for point in points] == [
        ("mine", f"{trace}:a", (256, 128, 64)),
        ("mine", f"{trace}:b", (256, 128, 64)),
    ]


@pytest.mark.parametrize(
    ("varied", "said"),
    [
        (["colour=red"], f"a point has no field 'colour'; its fields are {', '.join(FIELDS)}"),
        (["channels"], "vary takes FIELD=VALUE,VALUE,...; got 'channels'"),
        ([ONE, ONE], "field workload is varied twice"),
        ([ONE, "seed=1,,2"], "field seed needs values, separated by commas; got 'seed=1,,2'"),
        ([ONE, "variant=t3", "channels=four"], "field channels takes whole numbers; got 'four'"),
        ([ONE, "variant=t3", "link_bandwidth=fast"], "field link_bandwidth takes numbers; got 'fast'"),
        (["variant=t3"], "the grid needs values for workload"),
        (["workload=mine", "shape=8x8", "trace=x.npz"], "field shape takes MxNxKxTP, four whole numbers; got '8x8'"),
        (["workload=mine", "shape=8x8x8x2", "trace=x.npz:k"], "trace x.npz does not exist or is not a file"),
        ([ONE, "channels=3"], "channels must be one of 1, 2, 4, 8, 16, 32; got 3"),
        (["workload=gpt-5/*", "variant=t3"], "workload 'gpt-5/*' matches none of those `t3rtl list` shows, nor"),
        ([ONE, "variant=t4"], "variant must be one of gemm, sequential, t3"),
        ([ONE, "variant=t3", "mode=star"], "mode must be one of mirrored, ring"),
    ],
)
def test_what_no_grid_can_hold_is_refused(varied: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part for text in varied for part in ("--vary", text)]
    assert command_line(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"t3rtl: {said}")
    assert error.count("\n") == 1


def test_results_are_the_same_in_processes_and_in_one_go(store: PointStore) -> None:
    points = grid(GRID)
    found = outcomes_of(run_points(points, store, point_double.analytic))
    assert {point: outcome.result for point, outcome in found.items()} == {
        point: point_double.analytic(point) for point in points
    }


def test_sub_layers_of_one_shape_are_one_simulation(store: PointStore, tmp_path: Path) -> None:
    points = grid(["workload=t-nlg/fc-?/tp8", "variant=t3"])
    runs = tmp_path / "runs"
    found = outcomes_of(run_points(points, store, partial(point_double.counted, runs)))
    assert runs.read_text() == "t-nlg/fc-2/tp8\n"
    assert [result_of(found[point])["spec"]["name"] for point in points] == ["t-nlg/fc-2/tp8", "t-nlg/fc-1/tp8"]
    assert result_of(found[points[0]])["cycles"] == result_of(found[points[1]])["cycles"]


def test_finished_points_never_run_again_and_the_others_do(store: PointStore) -> None:
    points = grid(GRID)
    found = outcomes_of(run_points(points, store, point_double.breaking))
    broken = [point for point in points if not found[point].passed]
    assert {point.variant.name for point in broken} == {"t3-mca"}
    assert found[broken[0]].errors == ("OSError: no space left on device",)
    assert found[broken[0]].result is None
    again = outcomes_of(run_points(points, store, point_double.analytic))
    assert {point for point in points if again[point].reused} == set(points) - set(broken)
    assert all(outcome.passed for outcome in again.values())
    assert all(outcome.reused for outcome in run_points(points, store, point_double.never))


def test_result_with_a_error_is_finished_but_has_not_passed(store: PointStore) -> None:
    points = grid(GRID)
    for _ in range(2):
        found = outcomes_of(run_points(points, store, point_double.wrong))
        failed = [point for point in points if not found[point].passed]
        assert {point.variant.name for point in failed} == {"t3"}
        assert found[failed[0]].errors == ("rank 0 moved a sector too many",)


def test_stored_result_counts_for_its_point_its_sources_and_its_trace_only(tmp_path: Path) -> None:
    trace = tmp_path / "trace.npz"
    trace.write_bytes(b"one")
    store = PointStore(tmp_path / "points", "version")
    point = own((256, 128, 64), 2, name="mine", trace=f"{trace}:key")
    store.save(point, {"cycles": 1})
    assert store.load(point) == {"cycles": 1, "spec": point.to_json()}
    (kept,) = read_results(store.path(point))
    assert kept == {"cycles": 1}
    assert store.load(replace(point, seed=2)) is None
    assert store.load(replace(point, trace=f"{trace}:other")) is None
    elsewhere = tmp_path / "elsewhere.npz"
    elsewhere.write_bytes(b"one")
    assert PointStore(tmp_path / "points", "version").path(replace(point, trace=f"{elsewhere}:key")).exists()
    assert PointStore(tmp_path / "points", "other").load(point) is None
    trace.write_bytes(b"two")
    assert store.load(point) is None
    assert [path.suffix for path in store.folder.iterdir()] == [".json"]


def test_worker_with_other_sources_is_found_out(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "points", "another version")
    (outcome,) = run_points(grid([ONE, "variant=t3"]), store, point_double.analytic)
    assert not outcome.passed
    assert "this worker has other sources" in outcome.error


def test_sweep_is_written_as_json_and_as_a_table(tmp_path: Path) -> None:
    points = grid(GRID)
    outcomes = [Outcome(point, point_double.wrong(point)) for point in points]
    outcomes.append(Outcome(layer("t-nlg/op/tp8", "gemm"), None, "out of memory"))
    write_sweep(tmp_path / "sweep.json", outcomes)
    entries = read_results(tmp_path / "sweep.json")
    assert [entry["spec"]["variant"]["name"] for entry in entries[:3]] == ["sequential", "sequential", "t3"]
    assert entries[-1] == {
        "spec": layer("t-nlg/op/tp8", "gemm").to_json(),
        "passed": False,
        "errors": ["out of memory"],
        "broken": "simulator",
    }
    with (tmp_path / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(points) + 1
    assert rows[0]["dram_sectors.rs.read"] == str(15 * 8192 * 4256 * 2 // 32 // 8)
    assert rows[2]["passed"] == "False"
    assert rows[2]["errors"] == "rank 0 moved a sector too many"
    assert rows[-1]["cycles"] == ""


def test_command_writes_results_and_exits_by_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(simulate: Callable[[Spec], dict]) -> int:
        monkeypatch.setattr(sim.experiments.experiment, "run_experiment", simulate)
        arguments = [part for text in GRID for part in ("--vary", text)]
        folder = str(tmp_path / simulate.__name__)
        return command_line(["sweep", *arguments, "--store", folder, "--out", str(tmp_path / "results.json")])

    assert command(point_double.analytic) == 0
    assert "6 of 6 points pass, 0 of them run before" in capsys.readouterr().out
    assert command(point_double.analytic) == 0
    assert "6 of 6 points pass, 6 of them run before" in capsys.readouterr().out
    assert command(point_double.wrong) == 1
    shown = capsys.readouterr()
    assert "4 of 6 points pass" in shown.out
    assert "t-nlg/op/tp8 t3 link_bandwidth=150.0: rank 0 moved a sector too many" in shown.err


def test_scheduler_that_does_not_answer_is_refused(store: PointStore) -> None:
    with pytest.raises(UsageError, match="no Dask scheduler answers at nowhere"):
        list(run_points(grid(GRID), store, point_double.analytic, scheduler="nowhere"))


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of a Dask scheduler with worker processes that nobody restarts; all end by themselves when left."""
    environment = os.environ | {point_double.MARKER: str(folder / "marker")}
    command = [sys.executable, "-m", "dask"]
    ready = folder / "scheduler.json"
    at = ["--scheduler-file", str(ready), "--no-dashboard"]
    processes = [
        subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for arguments in (
            ["scheduler", *at, "--port", "0", "--host", "127.0.0.1", "--idle-timeout", "120s"],
            *[["worker", *at, "--nthreads", "1", "--no-nanny", "--death-timeout", "60"]] * workers,
        )
    ]
    try:
        deadline = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield json.loads(ready.read_text())["address"]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def test_cluster_of_two_workers_completes_though_one_is_killed(tmp_path: Path, store: PointStore) -> None:
    points = grid(["workload=t-nlg/*/tp8", "variant=sequential,t3,t3-mca", "link_bandwidth=75,150"])
    with cluster(tmp_path, workers=2) as address:
        found = outcomes_of(run_points(points, store, point_double.deadly, scheduler=address))
    assert (tmp_path / "marker").exists()
    assert {point: outcome.result for point, outcome in found.items()} == {
        point: point_double.analytic(point) for point in points
    }


@pytest.mark.slow
def test_simulation_of_a_sub_layer_is_the_same_on_a_cluster_and_here(tmp_path: Path, store: PointStore) -> None:
    points = grid(["workload=t-nlg/op/tp16", "variant=gemm,rs-nmc"])
    with cluster(tmp_path, workers=2) as address:
        found = outcomes_of(run_points(points, store, sim.experiments.experiment.run_experiment, scheduler=address))
    assert [error for outcome in found.values() for error in outcome.errors] == []
    for point in points:
        here, there = sim.experiments.experiment.run_experiment(point), result_of(found[point])
        # Wall time aside; JSON has no tuples.
        for result in (here, there):
            del result["seconds"], result["kilocycles_per_second"], result["kilocycles_per_processor_second"]
        assert json.loads(json.dumps(here)) == json.loads(json.dumps(there))


def test_local_worker_that_is_killed_is_replaced(
    tmp_path: Path, store: PointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(point_double.MARKER, str(tmp_path / "marker"))
    points = grid(GRID)
    found = outcomes_of(run_points(points, store, point_double.deadly, processes=1))
    assert (tmp_path / "marker").exists()
    assert all(outcome.passed for outcome in found.values())
    assert len(found) == len(points)


def test_results_lost_with_their_worker_are_simulated_again(
    tmp_path: Path, store: PointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(point_double.MARKER, str(tmp_path / "marker"))
    save = store.save

    def saved_late(point: Spec, result: dict[str, Any]) -> None:
        # Meanwhile the worker finishes the other points, and dies with them.
        if not list(store.folder.glob("*.json")):
            time.sleep(2)
        save(point, result)

    monkeypatch.setattr(store, "save", saved_late)
    points = grid(GRID)
    found = outcomes_of(run_points(points, store, point_double.dying, processes=1))
    assert {point: outcome.error for point, outcome in found.items()} == dict.fromkeys(points, "")
