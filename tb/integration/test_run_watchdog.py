"""A run with a watchdog: one that stands still ends soon and says why, any other is as it is without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.cli.main import command_line
from sim.experiments.catalogue import collective, layer, shape
from sim.experiments.experiment import job_of, run_experiment, work_of
from sim.experiments.regression import quiet
from sim.experiments.spec import Spec
from sim.host.program import WRITE, command
from sim.host.register_writes import register_write

SIZE: dict[str, Any] = {"shape": (96, 64, 32), "tile": (16, 32), "wfs": 2}
ARRAYS = shape(name="watched", gpus=3, alone=False, **SIZE)
PROGRAM = collective("ring-all-gather", 3, shape=(96, 64, 0), tile=(16, 32), wfs=2)
KERNELS = layer("mega-gpt-2/op/tp8", "t3-paced")
SHORT, LONG = 30, 20_000
"""Cycles: less than a workgroup computes or a packet is on its way, and longer than the whole run."""


@pytest.mark.parametrize("spec", [ARRAYS, PROGRAM, KERNELS], ids=lambda spec: spec.compute)
def test_a_watchdog_is_programmed_on_every_gpu_when_it_is_asked_for(spec: Spec) -> None:
    work = work_of(spec)
    without = job_of(spec, work)
    watched = job_of(replace(spec, watchdog=5000), work)
    write = register_write(watched.build.config, "watchdog", watchdog=5000)
    added = [command(WRITE, rank, *write) for rank in range(watched.build.nodes)]
    assert [word for word in watched.program if word in added] == added
    assert [word for word in watched.program if word not in added] == list(without.program)


@pytest.mark.parametrize("spec", [ARRAYS, PROGRAM], ids=lambda spec: spec.compute)
def test_a_run_that_stands_still_is_ended_and_no_other(spec: Spec) -> None:
    with quiet():
        plain = run_experiment(spec)
        generous = run_experiment(replace(spec, watchdog=LONG))
        ended = run_experiment(replace(spec, watchdog=SHORT))
    assert plain["passed"]
    assert generous["passed"]
    assert (generous["cycles"], generous["dram_sectors"]) == (plain["cycles"], plain["dram_sectors"])
    assert not ended["passed"]
    told = [error for error in ended["errors"] if "the watchdog of rank" in error]
    assert told == ended["errors"][: len(told)] != []
    assert all(f"nothing had moved there for {SHORT} cycles" in error for error in told)
    assert "the run did not complete" in ended["errors"]


def test_the_command_says_so_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--gpus", "3", "--shape", "96", "64", "32", "--tile", "16", "32", "--wfs", "2", "--no-alone"]
    words = ["run", "shape", *size, "--out", str(tmp_path / "results.json")]
    assert command_line(words) == 0
    assert command_line([*words, "--watchdog", "20"]) == 1
    assert "ended the run: nothing had moved there for 20 cycles" in "".join(capsys.readouterr())
