"""A full-size run says what it gains over Sequential on the same machine, which is run once."""

from pathlib import Path

import pytest

import sim.experiments.experiment
from sim.cli import run as run_command
from sim.cli.baseline import baseline_of, gain
from sim.cli.main import command_line
from sim.experiments.catalogue import collective, layer, shape
from sim.experiments.spec import Spec
from tb.drivers import point_double
from tb.drivers.result_double import result_of


def test_the_baseline_differs_in_the_variant_only():
    spec = layer("t-nlg/op/tp8", "t3-mca", link_bandwidth=150.0, seed=7)
    assert baseline_of(spec) == layer("t-nlg/op/tp8", "sequential", link_bandwidth=150.0, seed=7)
    assert baseline_of(layer("t-nlg/op/tp8", "sequential")) is None
    assert baseline_of(layer("t-nlg/op/tp8", "gemm")) is None
    assert baseline_of(shape()) is None
    assert baseline_of(collective("ring-all-gather", 4, shape=(384, 128, 64))) is None


def test_the_gain_by_hand():
    sequential = {"cycles": 200, "gemm_cycles": 100, "rs_cycles": 60, "ag_cycles": 40}
    assert gain({"cycles": 160}, sequential) == "1.250 over Sequential (ideal 1.429, 58 % of its gain)"
    alone = {"cycles": 100, "gemm_cycles": 100, "rs_cycles": 0, "ag_cycles": 0}
    assert gain({"cycles": 100}, alone).endswith("(ideal 1.000, n/a: nothing is to be gained)")


@pytest.mark.parametrize("wanted", [True, False])
def test_sequential_is_run_once_and_only_when_wanted(monkeypatch, capsys, tmp_path: Path, wanted: bool):
    monkeypatch.chdir(tmp_path)
    runs: list[str] = []

    def simulated(spec: Spec, *others: object, **options: object) -> dict:
        runs.append(spec.variant.name)
        return result_of(spec) | {
            name: value for name, value in point_double.analytic(spec).items() if name.endswith("cycles")
        }

    monkeypatch.setattr(sim.experiments.experiment, "run_experiment", simulated)
    monkeypatch.setattr(sim.experiments.experiment, "run_with_output", lambda spec, *others: (simulated(spec), None))
    monkeypatch.setattr(run_command, "require_simulator", lambda: None)
    command = ["run", "t-nlg/op/tp8", *([] if wanted else ["--no-baseline"])]
    assert command_line(command) == 0
    assert command_line(command) == 0
    printed = capsys.readouterr().out
    assert runs == ["t3-paced", *(["sequential"] if wanted else []), "t3-paced"]
    if not wanted:
        assert printed.count("n/a: Sequential has not been run (give --baseline") == 2
        return
    assert printed.count(" over Sequential (ideal 1.") == 2
