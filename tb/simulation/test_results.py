"""The schema of results, which every figure keeps to; and the comparison of two files of them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cli.main import command_line
from sim.errors import UsageError
from sim.experiments.catalogue import layer, shape
from sim.experiments.check import check
from sim.experiments.compare import compare
from sim.experiments.experiment import job_of, work_of
from sim.experiments.figures import figures, wall_time
from sim.experiments.results import FIGURES, SCHEMA, described, flat, read_results, write_results
from sim.experiments.run import Outcome, Seconds
from sim.experiments.spec import Spec
from sim.experiments.variants import VARIANTS
from sim.host.program import counter_registers
from tb.drivers.result_double import array_result, result_of

SECONDS = Seconds(build=1, prepare=1, simulate=2, check=1, simulate_processor=2, python=0.5)


def outcome_of(spec: Spec) -> tuple[dict[str, Any], Any]:
    """The figures that :mod:`sim.experiments` computes of a run in which every counter is 1."""
    work = work_of(spec)
    job = job_of(spec, work)
    status = {
        "registers": dict.fromkeys(counter_registers(job.build.config), 1),
        "spans": {"begin": [0, 10, 20], "end": [10, 20, 30], "arrived": [1, 1, 1], "link_busy": [1, 2, 3]},
        "link_busy": [1, 1],
        **dict.fromkeys(("gemm_cycles", "done_cycles", "link_busy_done", "communication_wait_peak"), 1),
        **dict.fromkeys(("violation", "stray", "read_error", "violation_rule"), 0),
    }
    samples = np.ones((3, 19), np.int64)
    alone = 5 if spec.compute == "array" else 0
    outcome = Outcome([status] * job.build.nodes, samples, True, None, alone, SECONDS, Path())
    if spec.compute == "kernels":
        outcome = replace(outcome, read_latencies={40: 3, 50: 1})
    checked = check(spec, work, job.build.config, outcome)
    return figures(spec, job, work, outcome), checked


SMALL = shape(gpus=2, shape=(64, 64, 64), tile=(32, 64))
SPECS = (SMALL, *(layer("mega-gpt-2/op/tp8", variant) for variant in VARIANTS))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.variant.name)
def test_every_figure_is_in_the_schema(spec):
    found, _ = outcome_of(spec)
    names = [name for name, _ in flat(found)]
    assert [name for name in names if described(name) is None] == []
    assert json.loads(json.dumps(found)).keys() == found.keys()


def test_every_entry_of_the_schema_is_a_figure_of_some_run():
    seen = {
        "spec",
        "passed",
        "errors",
        "broken",
        "mismatches",
        "kilocycles_per_second",
        "kilocycles_per_processor_second",
    }
    for spec in SPECS:
        found, checked = outcome_of(spec)
        result = found | {"closed_forms": checked.closed_forms, "seconds": wall_time(SECONDS, 1, 1, 1, 1)}
        seen |= {str(described(name)) for name, _ in flat(result)}
    assert seen == set(FIGURES)


def test_a_figure_without_an_entry_is_noticed():
    assert described("cycles") == "cycles"
    assert described("dram_sectors.gemm.read") == "dram_sectors.*.*"
    assert described("spec.anything") == "spec"
    assert described("seconds.lost") is None
    assert described("speed") is None


def test_a_file_says_where_it_comes_from(tmp_path):
    write_results(tmp_path / "results.json", [array_result()], sources="abc")
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["schema"] == SCHEMA
    assert content["sources"] == "abc"
    assert content["units"]["cycles"] == "cycles of 1 ns"
    for name in ("commit", "version", "command", "date"):
        assert content[name]
    assert Spec.from_json(content["results"][0]["spec"]) == shape(name="ring-4")
    (tmp_path / "old.json").write_text("[]")
    with pytest.raises(UsageError, match="is no file of results"):
        read_results(tmp_path / "old.json")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.variant.name)
def test_specs_go_through_json(spec):
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert hash(spec) == hash(Spec.from_json(spec.to_json()))
    with pytest.raises(UsageError, match="not a spec"):
        Spec.from_json({name: value for name, value in spec.to_json().items() if name != "variant"})
    with pytest.raises(UsageError, match="not a spec"):
        Spec.from_json(spec.to_json() | {"colour": "red"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"collective": "gossip"}, "collective must be one of ring-reduce-scatter"),
        ({"collective": "ring-all-gather", "direction": "ccw"}, "direction is of collective ring-reduce-scatter only"),
        ({"collective": "ring-all-reduce", "bug": "wrong_order"}, "bug is of collective ring-reduce-scatter only"),
        ({"compute": "kernels", "collective": "ring-all-reduce"}, "collective must be one of ring-reduce-scatter; got"),
        ({"topology": "star"}, "topology must be one of ring"),
        ({"compute": "guess"}, "compute must be one of array, kernels, trace"),
        ({"channels": 4}, "channels is of full-size kernels only"),
        ({"mode": "mirrored"}, "mode must be one of ring"),
        ({"compute": "kernels", "dtype": "fp32"}, "dtype is of compute model array only"),
        ({"compute": "kernels"}, "variant must be one of gemm, sequential"),
        ({"compute": "kernels", "variant": VARIANTS["t3"], "preset": "quad"}, "preset follows from channels"),
    ],
)
def test_a_field_that_the_compute_model_does_not_know_is_refused(changes, sentence):
    with pytest.raises(UsageError, match=sentence):
        Spec(**changes)


def old_scenario(**changes: Any) -> dict[str, Any]:
    return {
        "name": "ring-4",
        "gpus": 4,
        "cycles": 12345,
        "sectors": {"rs_read": 32},
        "tracker_evictions": 0,
        "trigger_latency_peak": 7,
        "ag_cycles": None,
        "simulate_seconds": 3.0,
        **changes,
    }


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_scenarios_of_before_and_after_are_compared_under_todays_names(tmp_path):
    totals = {"tracker_evictions": 0, "sectors_rs_read": 32}
    after = written(tmp_path / "after.json", {"results": [array_result(totals=totals)]})
    before = written(tmp_path / "before.json", [old_scenario()])
    same = compare(before, after)
    assert same.different == []
    assert same.equal == 5
    wrong = written(tmp_path / "wrong.json", [old_scenario(cycles=12344, tracker_evictions=1, simulate_seconds=9)])
    assert compare(wrong, after).different == [
        ("ring-4: totals.tracker_evictions", 1, 0),
        ("ring-4: cycles", 12344, 12345),
    ]


def test_points_of_before_and_after_are_told_apart_by_what_was_run(tmp_path):
    spec = layer("t-nlg/op/tp8", "t3")
    fields = ("link_bandwidth", "compute_units", "channels", "mode", "starvation_limit", "tracker_ways", "seed")
    point = {"workload": spec.name, "configuration": "t3", "tile_order": "tuned"}
    point |= {name: getattr(spec, name) for name in fields}
    result = {name: value for name, value in result_of(spec).items() if name != "spec"} | {"point": point}
    before = written(tmp_path / "before.json", {"point": point, "result": result})
    after = written(tmp_path / "after.json", {"results": [result_of(spec)]})
    assert compare(before, after).different == []
    assert compare(before, after).equal > 10
    other = written(tmp_path / "other.json", {"results": [result_of(layer("t-nlg/op/tp8", "t3", seed=2))]})
    assert compare(before, other).settings == [("seed", 1, 2)]
    both = written(tmp_path / "both.json", {"results": [result_of(spec), result_of(layer("t-nlg/op/tp8", "t3-mca"))]})
    assert compare(other, both).equal == 0


def test_two_runs_are_compared_whatever_was_run(tmp_path):
    """Settings first, then the greatest ratio; a sign or a zero has none, and comes before all; a list comes last."""
    one = written(tmp_path / "one.json", [old_scenario(policy="mca", gemm=[0, 1], lag=1, stalled=0)])
    changed = old_scenario(name="b", policy="paced", gemm=[0, 2], lag=-1, stalled=1, cycles=12346)
    other = written(tmp_path / "other.json", [changed])
    found = compare(one, other)
    assert found.settings == [("name", "ring-4", "b"), ("policy", "mca", "paced")]
    assert found.different == [
        ("lag", 1, -1), ("stalled", 0, 1), ("cycles", 12345, 12346), ("gemm", [0, 1], [0, 2]),
    ]  # fmt: skip


def test_summaries_of_reports_are_compared_entry_by_entry(tmp_path):
    def summary(cycles: int) -> dict[str, Any]:
        layers = [{"machine": "paper", "workload": "a", "cycles": {"t3": cycles}, "speedup": {"t3": 1.5}}]
        return {"headline": {"paper": {"sub_layers": 1}}, "sub_layers": layers, "seconds": {"total": cycles}}

    one, other = (written(tmp_path / f"{cycles}.json", summary(cycles)) for cycles in (7, 8))
    assert compare(one, other).different == [("sub_layers[paper a].cycles.t3", 7, 8)]
    assert compare(one, other).equal == 4


def test_the_command_lists_what_differs(tmp_path, capsys):
    one = written(tmp_path / "one.json", [old_scenario()])
    other = written(tmp_path / "other.json", [old_scenario(cycles=1, new=3)])
    assert command_line(["compare", str(one), str(one)]) == 0
    assert command_line(["compare", str(one), str(other)]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"ring-4: cycles +│ +12,345 │ +1 │ +-100\.0 %", printed)
    assert command_line(["compare", "--all", str(one), str(one)]) == 0
    assert "totals.sectors_rs_read" in capsys.readouterr().out
    assert "only in the second file: new" in printed
    assert command_line(["compare", str(one), str(written(tmp_path / "text.json", "text"))]) == 2
    assert "is no file of results" in capsys.readouterr().err
