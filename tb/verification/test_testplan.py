"""The testplan names only what exists, leaves no requirement without a test, and a wrong plan is found out."""

import ast
import importlib.util
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tb.functional_coverage.plan import GROUPS

ROOT = Path(__file__).parents[2]
KEYS = {"id", "requirement", "tests", "cover", "properties"}
REQUIREMENTS = tomllib.loads((ROOT / "tb" / "testplan.toml").read_text())["requirement"]


@cache
def named_tests(file: str) -> frozenset[str]:
    """Names of the pytest functions and cocotb tests in a file of the repository; empty when there is none."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    names = {function.name for function in functions if function.name.startswith("test_")}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.AsyncFunctionDef) and any("cocotb" in ast.dump(item) for item in node.decorator_list):
            names.add(node.name)
    return frozenset(names)


def proofs() -> set[str]:
    """Names of the properties that `make formal` proves."""
    if importlib.util.find_spec("tb.formal") is None:
        return set()
    sources = (ROOT / "tb" / "formal").glob("*.py")
    functions = [node for source in sources for node in ast.parse(source.read_text()).body]
    return {
        node.name
        for node in functions
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(item, ast.Call) and "'proof'" in ast.dump(item.func) for item in node.decorator_list)
    }


def errors(entries: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong with a plan, one sentence each."""
    found, seen = [], set()
    groups, properties = {group.name for group in GROUPS}, proofs()
    for entry in entries:
        name = entry.get("id", "?")
        if set(entry) != KEYS:
            found.append(f"{name}: its keys are {sorted(entry)}, not {sorted(KEYS)}")
            continue
        if name in seen:
            found.append(f"{name}: stands twice in the plan")
        seen.add(name)
        if not entry["requirement"].strip():
            found.append(f"{name}: says nothing")
        if not entry["tests"]:
            found.append(f"{name}: no test shows it")
        for test in entry["tests"]:
            file, _, function = test.partition("::")
            if function not in named_tests(file):
                found.append(f"{name}: there is no test {test}")
        found += [f"{name}: there is no cover group {group}" for group in entry["cover"] if group not in groups]
        found += [f"{name}: there is no proof {proof}" for proof in entry["properties"] if proof not in properties]
    return found


def test_every_requirement_is_shown_by_what_exists():
    assert errors(REQUIREMENTS) == []


def test_every_cover_group_belongs_to_a_requirement():
    named = {group for entry in REQUIREMENTS for group in entry["cover"]}
    assert {group.name for group in GROUPS} == named


def test_every_proof_belongs_to_a_requirement():
    assert proofs() == {proof for entry in REQUIREMENTS for proof in entry["properties"]}


RIGHT = {
    "id": "XYZ-01",
    "requirement": "this",
    "tests": ["tb/verification/test_testplan.py::test_a_wrong_plan_is_found_out"],
    "cover": ["dma.block"],
    "properties": [],
}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tests": []}, "no test shows it"),
        ({"tests": ["tb/verification/test_testplan.py::test_of_tomorrow"]}, "there is no test"),
        ({"tests": ["tb/unit/test_nowhere.py::test_of_tomorrow"]}, "there is no test"),
        ({"tests": ["tb/unit/memory_controller/test_arbiter.py::start"]}, "there is no test"),
        ({"cover": ["dma.nothing"]}, "no cover group"),
        ({"properties": ["everything_is_right"]}, "no proof"),
        ({"requirement": " "}, "says nothing"),
        ({"note": ""}, "its keys are"),
    ],
)
def test_a_wrong_plan_is_found_out(change, error):
    assert errors([RIGHT]) == []
    found = errors([RIGHT | change])
    assert len(found) == 1 and error in found[0]


def test_a_doubled_requirement_is_found_out():
    assert errors([RIGHT, RIGHT]) == ["XYZ-01: stands twice in the plan"]
