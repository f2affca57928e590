"""Waves of a real run, read back: every signal that the view names is in them, and its marker stands at the start."""

import re
from pathlib import Path

import pytest
import pywellen

from sim.errors import MachineError
from sim.experiments.experiment import run_experiment
from sim.experiments.scenarios import SCENARIOS
from sim.simulator.prerequisites import require_waves

START = "gpu0.gpu_shell.gpu.start"
CYCLE = 1000
"""Picoseconds."""


def missing() -> str:
    """What waves lack on this machine."""
    try:
        require_waves()
    except MachineError as error:
        return str(error)
    return ""


@pytest.mark.skipif(bool(LACKING := missing()), reason=LACKING)
def test_waves_hold_what_the_view_shows_from_where_the_run_begins(tmp_path: Path) -> None:
    (spec,) = (item for item in SCENARIOS if item.name == "tiny-gpus-2")
    result = run_experiment(spec, waves=tmp_path / "waves.fst")
    assert result["passed"], result["errors"]
    waves = pywellen.Waveform(str(tmp_path / "waves.fst"))
    variables = {variable.full_name: variable for variable in waves.all_vars()}
    view = (tmp_path / "waves.gtkw").read_text().splitlines()
    shown = [re.sub(r"\[\d+:0\]$", "", line) for line in view if line.startswith("gpu")]
    assert {name.split(".")[0] for name in shown} == {"gpu0", "gpu1"}
    assert [name for name in shown if name not in variables] == []
    (marker,) = (int(line.split()[1]) for line in view if line.startswith("*"))
    start = variables[START].signal
    before = [int(start.value_at(marker + cycle * CYCLE - 1)) for cycle in (0, 1, 2)]
    assert before == [1, 0, 0], "the clock's edge at the marker is the one that takes the start"
