"""A measured run that was cut off goes on: what passed is not run again; nothing measured of other sources stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb.coverage_page.inputs import read_tests
from tb.site.commands import ROOT

TESTS = """
import os
import pytest
def test_right(): open("ran", "a").write("right ")
def test_wrong(): open("ran", "a").write("wrong "); assert os.environ.get("MENDED")
@pytest.mark.skip
def test_skipped(): pass
"""


class Repository:
    """Three tests in a folder, and what is measured of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.coverage = folder / "build" / "coverage"
        (folder / "test_three.py").write_text(TESTS)

    def run(self, *options: str, **variables: str) -> tuple[int, str]:
        """Exit code, and the tests that were run."""
        ran = self.folder / "ran"
        ran.write_text("")
        plugins = ("-p", "tb.coverage_resume", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", "."]
        environment = os.environ | {"T3_BUILD": str(self.folder / "build"), "PYTHONPATH": str(ROOT)} | variables
        done = subprocess.run(
            [*command, *options, "test_three.py"], cwd=self.folder, env=environment, capture_output=True, check=False
        )
        return done.returncode, ran.read_text()

    def outcomes(self) -> dict[str, str]:
        """Of every test, whichever run it was in."""
        return {test.name: test.outcome for test in read_tests(self.coverage / "junit.xml") or ()}


@pytest.mark.parametrize("options", [(), ("-n", "1", "--dist", "loadfile")], ids=["alone", "workers"])
def test_only_what_has_not_passed_is_run_again(tmp_path, options):
    repository = Repository(tmp_path)
    assert repository.run(*options) == (1, "right wrong ")
    assert repository.outcomes() == {"test_right": "passed", "test_wrong": "failed", "test_skipped": "skipped"}
    (repository.coverage / "runs").mkdir()
    with (repository.coverage / "tests.jsonl").open("a") as file:
        file.write('{"name": "test_three.py::cut o')
    assert repository.run(*options, MENDED="1") == (0, "wrong ")
    assert repository.outcomes() == {"test_right": "passed", "test_wrong": "passed", "test_skipped": "skipped"}
    assert repository.run(*options, "-k", "not skipped") == (0, "")
    assert (repository.coverage / "runs").exists()


def test_other_sources_are_measured_anew(tmp_path):
    repository = Repository(tmp_path)
    repository.run()
    (repository.coverage / "runs").mkdir()
    (repository.coverage / "sources.txt").write_text("others")
    assert repository.run(MENDED="1") == (0, "right wrong ")
    assert not (repository.coverage / "runs").exists()
