"""A pytest plugin (`-p tb.coverage_resume`): a measured run of the tests goes on where one that was cut off was.

Tests that passed are in build/coverage/tests.jsonl and not run again while no source has changed; with the first run
after a change all that was measured is gone. build/coverage/junit.xml is of all tests, whichever run they were in.
"""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sim.simulator.sources import digest_of_folders
from tb.coverage_runs import COVERAGE

SOURCES = "sources.txt"
TESTS = "tests.jsonl"
MEASURED = ("runs", "functional")
APART = ("coverage_page", "formal", "mutation", "site")
"""Folders whose sources make no difference to what is measured."""


class Resumption:
    """Leaves out the tests that have passed. `folder`: what is kept."""

    def __init__(self, folder: Path):
        self._folder = folder

    def begin(self) -> None:
        """Throw away what was measured of other sources."""
        digest = digest_of_folders("hw", "sim", "tb", apart=APART)
        kept = self._folder / SOURCES
        if kept.exists() and kept.read_text() == digest:
            tests = self._folder / TESTS
            # A run that was cut off may have left half a line.
            whole = [line for line in tests.read_text().splitlines() if line.endswith("}")] if tests.exists() else []
            tests.write_text("".join(f"{line}\n" for line in whole))
            return
        for name in MEASURED:
            shutil.rmtree(self._folder / name, ignore_errors=True)
        (self._folder / TESTS).unlink(missing_ok=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(digest)

    def ended(self) -> dict[str, dict[str, Any]]:
        """How each test ended last, by its name."""
        path = self._folder / TESTS
        lines = path.read_text().splitlines() if path.exists() else []
        return {test["name"]: test for test in map(json.loads, lines)}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Of each process that collects."""
        passed = {name for name, test in self.ended().items() if test["outcome"] == "passed"}
        gone = [item for item in items if item.nodeid in passed]
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = [item for item in items if item.nodeid not in passed]


class Notes(Resumption):
    """That of the process in which the others' reports arrive."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._running: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is noted when all its phases are over."""
        test = self._running.setdefault(report.nodeid, {"name": report.nodeid, "outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.outcome != "passed" and test["outcome"] != "failed":
            test |= {"outcome": report.outcome, "text": report.longreprtext[-4000:]}
        if report.when == "teardown":
            del self._running[report.nodeid]
            with (self._folder / TESTS).open("a") as file:
                file.write(json.dumps(test) + "\n")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write junit.xml; with nothing left to run all is well."""
        suite = ElementTree.Element("testsuite", name="pytest")
        for name, test in self.ended().items():
            file, _, case = name.partition("::")
            module = file.removesuffix(".py").replace("/", ".")
            element = ElementTree.SubElement(suite, "testcase", classname=module, name=case, time=str(test["seconds"]))
            if test["outcome"] != "passed":
                kind = {"failed": "failure"}.get(test["outcome"], test["outcome"])
                ElementTree.SubElement(element, kind, message=test["text"])
        ElementTree.ElementTree(suite).write(self._folder / "junit.xml", encoding="unicode", xml_declaration=True)
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.ended():
            session.exitstatus = pytest.ExitCode.OK


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist collects; what comes of its tests arrives here."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Resumption(COVERAGE))
        return
    notes = Notes(COVERAGE)
    notes.begin()
    config.pluginmanager.register(notes)
