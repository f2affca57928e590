"""Functional coverage reports a hole as a hole, merges runs, and refuses what the plan does not know."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tb.functional_coverage.group import read_unreachable
from tb.functional_coverage.near_bank import classify
from tb.functional_coverage.plan import FLOAT_CLASSES, GROUPS, INTEGER_CLASSES

PROGRAM = """
import sys
from pathlib import Path
from cocotb_coverage.coverage import coverage_db
from tb.functional_coverage.group import Group, Unreachable
from tb.functional_coverage.report import lines, merge
folder = Path(sys.argv[1])
argued = [Unreachable("toy.group", {"side": "left", "size": "2|3"}, "the left one is small")]
group = Group("toy.group", argued, side=("left", "right"), size=(1, 2, 3))
for side, size in SAMPLES:
    group.sample(side, size)
coverage_db.export_to_xml(str(folder / f"{sys.argv[2]}.xml"))
if sys.argv[2] == "last":
    print("\\n".join(lines(merge(folder, folder.with_suffix(".xml"), (group,)))))
"""


def sampled(folder: Path, name: str, samples: list[tuple[str, int]]) -> subprocess.CompletedProcess[str]:
    """A process of its own (cocotb-coverage has one database) that samples, and if `name` is "last" reports."""
    command = [sys.executable, "-c", PROGRAM.replace("SAMPLES", repr(samples)), str(folder), name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_runs_are_merged_and_a_hole_is_a_hole(tmp_path):
    folder = tmp_path / "functional"
    folder.mkdir()
    assert sampled(folder, "one", [("left", 1), ("right", 1)]).returncode == 0
    text = sampled(folder, "last", [("right", 3)]).stdout
    assert "3 of     4 bins   75.0 %, 2 argued to be unreachable" in text
    assert "hole: right x 2" in text and text.count("hole") == 1


def test_all_bins_are_all(tmp_path):
    folder = tmp_path / "functional"
    folder.mkdir()
    text = sampled(folder, "last", [("left", 1), ("right", 1), ("right", 2), ("right", 3)]).stdout
    assert "100.0 %" in text and "hole" not in text


EMPTY = """
import sys
from pathlib import Path
from tb.functional_coverage.report import lines, merge
folder = Path(sys.argv[1])
print("\\n".join(lines(merge(folder, folder.with_suffix(".xml"), ()))))
"""


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_an_empty_plan_merges_to_valid_xml(tmp_path, runs):
    """Without any group, and with whatever runs of another plan have left."""
    folder = tmp_path / "functional"
    folder.mkdir()
    for number in range(runs):
        assert sampled(folder, str(number), [("right", number + 1)]).returncode == 0
    command = [sys.executable, "-c", EMPTY, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.split() == ["total", "0", "of", "0", "bins", "100.0", "%"]
    top = ElementTree.parse(tmp_path / "functional.xml").getroot()
    cross = top.find("toy/group/cross")
    assert top.get("size") == (str(4 + 2 + 3) if runs else "0")
    assert (0 if cross is None else int(cross.get("coverage", ""))) == runs


@pytest.mark.parametrize(
    ("sample", "error"),
    [(("left", 2), "was reached, but: the left one is small"), (("above", 1), "toy.group.side has no bin 'above'")],
)
def test_what_cannot_be_is_refused(tmp_path, sample, error):
    outcome = sampled(tmp_path, "one", [sample])
    assert outcome.returncode and error in outcome.stderr


def test_every_reason_is_of_a_group_and_says_something():
    names = {group.name for group in GROUPS}
    for entry in read_unreachable():
        assert entry.group in names and len(entry.reason) > 20


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_classes_of_floating_point_patterns(dtype):
    width, exponent_bits = {"fp16": (16, 5), "bf16": (16, 8), "fp32": (32, 8)}[dtype]
    fraction_bits = width - 1 - exponent_bits
    top = ((1 << exponent_bits) - 1) << fraction_bits
    quiet = 1 << fraction_bits - 1
    positive = [0, 1, 1 << fraction_bits, top, top | quiet, top | 1]
    patterns = [*positive, *(value | 1 << width - 1 for value in positive)]
    kind = np.uint32 if width == 32 else np.uint16
    names = [FLOAT_CLASSES[index] for index in classify(dtype, np.array(patterns, kind))]
    kinds = ["zero", "subnormal", "normal", "infinity"]
    nans = ["quiet NaN", "signaling NaN"]
    assert names == [*(f"+{name}" for name in kinds), *nans, *(f"-{name}" for name in kinds), *nans]


def test_classes_of_integers():
    values = np.array([0, 1, 5, -5, -1, 2**31 - 1, -(2**31)], np.int32).view(np.uint32)
    assert [INTEGER_CLASSES[index] for index in classify("int32", values)] == [
        "zero",
        "one",
        "positive",
        "negative",
        "minus one",
        "largest",
        "smallest",
    ]
