"""Processor time by part: what is read of gprof's table, which part a function belongs to, and a run as it is."""

import re

import pytest

from hw.config import preset
from hw.export.verilog import to_systemverilog
from sim.experiments.catalogue import shape
from sim.experiments.experiment import simulate
from sim.experiments.regression import quiet
from sim.models import model_texts
from sim.models.gpu import Gpu
from sim.simulator.profile import HOST, PARTS, SETTLING, by_part, flat_profile, part_of

TABLE = """Flat profile:

Each sample counts as 0.01 seconds.
  %   cumulative   self              self     total
 time   seconds   seconds    calls  Ts/call  Ts/call  name
 50.00      0.02     0.02                             _Z1aP4Vgpu__PROF__gpu__l3
 25.00      0.03     0.01                             _ZN3Gpu4riseEv
"""


def test_the_table_is_read() -> None:
    assert flat_profile(TABLE) == {"_Z1aP4Vgpu__PROF__gpu__l3": 0.02, "_ZN3Gpu4riseEv": 0.01}


def test_a_function_belongs_to_the_module_of_its_line() -> None:
    text = "module gpu__node__tracker__bank_0(clk);\n  x\nendmodule\nmodule gpu__gemm(clk);\nz\nendmodule\n"
    functions = {
        "a__PROF__gpu__l2": 2.0,
        "b__PROF__gpu__l5": 1.0,
        "Vgpu___024root___eval_nba": 0.5,
        "main": 0.25,
        "c__PROF__unknown__l1": 0.125,
    }
    found = by_part(functions, {"gpu": text})
    assert list(found.items()) == [
        ("Tracker and backing store", 2.0),
        ("compute units", 1.0),
        (SETTLING, 0.5),
        (HOST, 0.375),
    ]


def test_every_module_is_of_a_part() -> None:
    """But the shell, which only leads ports on, and gates of clocks."""
    texts = to_systemverilog(Gpu(preset("paper"), 1 << 14, 1 << 10), "gpu")
    texts += "".join(model_texts(["hbm_array.sv", "source_array.sv", "recorder.sv", "sampler.sv"]).values())
    modules = re.findall(r"^module +(\S+?)\s*[(;#]", texts, re.MULTILINE)
    found = {module: part_of(module) for module in modules}
    assert {module for module, part in found.items() if part == SETTLING} <= {"gpu", "gpu__stalls"}
    assert set(found.values()) >= set(PARTS) - {"switch"}


@pytest.mark.wide
def test_a_run_is_profiled() -> None:
    """Most of a run is spent in parts of the design, and no part is left out that works in it."""
    spec = shape(name="profile", gpus=2, shape=(2048, 256, 64))
    with quiet():
        outcome, checked = simulate(spec, profiled=True)
    assert not checked.errors
    assert set(outcome.profile) >= {"memory controllers", "links", "Tracker and backing store"}
    assert sum(outcome.profile.values()) == pytest.approx(outcome.seconds.simulate_processor, rel=0.3, abs=0.2)
    assert outcome.profile.get(HOST, 0) + outcome.profile[SETTLING] < 0.6 * sum(outcome.profile.values())
