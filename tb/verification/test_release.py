"""One version, in pyproject.toml, wherever it is said; a licence line in every file that is exported; a workflow that
runs what CONTRIBUTING.md names."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from hw.export.exporter import COMMENTS, marked_file
from hw.export.files import fusesoc_core, lint_waivers
from hw.release import LICENCE, marked, release
from sim.cli.main import command_line
from sim.experiments.results import provenance

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_installed_version_is_that_of_the_project():
    assert release() == PROJECT["version"]
    assert PROJECT["license"]["text"] == LICENCE


def test_the_version_is_written_down_once():
    """Beside pyproject.toml two files of the release itself name it, and follow."""
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [release()]
    assert re.findall(r"^license: (\S+)$", citation, re.MULTILINE) == [LICENCE]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == release()
    quoted = re.compile(rf"(?<![\d.]){re.escape(release())}(?![\d.])")
    naming = {
        str(path.relative_to(ROOT))
        for folder in ("hw", "sim")
        for path in (ROOT / folder).rglob("*.py")
        if quoted.search(path.read_text())
    }
    assert not naming


def test_version_is_shown(capsys):
    assert command_line(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"t3rtl {release()}, commit ")
    assert provenance()["version"] == release()


@pytest.mark.parametrize("suffix", COMMENTS)
def test_an_exported_file_begins_with_its_licence(suffix):
    begin, end = COMMENTS[suffix]
    first, second, rest = marked_file(f"t3{suffix}", "text\n").split("\n", 2)
    assert first == f"{begin} SPDX-License-Identifier: Apache-2.0{end and ' '}{end}"
    assert second == f"{begin} T3-RTL {release()}{end and ' '}{end}"
    assert rest == "text\n"


def test_a_core_keeps_its_first_line_and_json_its_form():
    core = marked_file("t3.core", fusesoc_core("t3", "node", ["t3_node.sv"], "t3_node"))
    assert core.startswith("CAPI=2:\n# SPDX-License-Identifier: Apache-2.0\n")
    assert f"name: ::t3:{release()}\n" in core
    assert json.loads(marked_file("t3.json", "{}")) == {}
    assert marked(lint_waivers(), "//").splitlines()[2] == "`verilator_config"


@pytest.mark.parametrize("name", ["tile_counter.core", "tile_counter.sv", "tile_counter_tb.sv"])
def test_an_example_that_is_copied_keeps_its_licence(name):
    assert f"SPDX-License-Identifier: {LICENCE}\n" in (ROOT / "examples" / name).read_text()[:60]


def test_the_workflow_runs_the_check_of_a_commit():
    (workflow,) = (ROOT / ".github" / "workflows").glob("*.yml")
    assert "- run: .ci/run\n" in workflow.read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
