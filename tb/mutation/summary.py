"""Score per block, survivors with their reasons, as JSON and JUnit XML."""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tb.mutation.campaign import MutantResult

REASONS = Path(__file__).with_name("survivors.toml")
SCORES = Path(__file__).with_name("scores.json")
"""Figures of the last full run of each block, and the day of it; the coverage page shows them where build/ has none."""


@dataclass(frozen=True)
class Reason:
    """An entry of survivors.toml."""

    block: str
    place: str
    reason: str

    def explains(self, result: MutantResult) -> bool:
        """Whether the entry is about this mutant."""
        return self.block == result.block and re.search(self.place, f"{result.place} {result.mode}") is not None


def read_reasons(path: Path = REASONS) -> list[Reason]:
    """The entries of survivors.toml. Raises :class:`TypeError` for one with other keys than block, place, reason."""
    return [Reason(**entry) for entry in tomllib.loads(path.read_text()).get("survivor", [])]


def score(results: Sequence[MutantResult]) -> float | None:
    """Percent killed of the mutants that are not proven equivalent; None without any."""
    counted = [result for result in results if result.outcome != "equivalent"]
    killed = sum(result.outcome == "killed" for result in counted)
    return round(100 * killed / len(counted), 2) if counted else None


def _figures(results: Sequence[MutantResult]) -> dict[str, object]:
    outcomes = [result.outcome for result in results]
    return {
        "mutants": len(outcomes),
        "killed": outcomes.count("killed"),
        "survived": outcomes.count("survived"),
        "equivalent": outcomes.count("equivalent"),
        "score": score(results),
    }


def summarize(results: Sequence[MutantResult], reasons: Sequence[Reason]) -> dict[str, Any]:
    """What `summary.json` holds: figures per block and in total, each survivor with source lines and reason."""
    by_block: dict[str, list[MutantResult]] = {}
    for result in results:
        by_block.setdefault(result.block, []).append(result)
    survivors = [
        {
            "block": result.block,
            "netlist": result.netlist,
            "number": result.number,
            "mode": result.mode,
            "place": result.place,
            "sources": list(result.sources),
            "reason": next((entry.reason for entry in reasons if entry.explains(result)), None),
        }
        for result in results
        if result.outcome == "survived"
    ]
    return {
        "total": _figures(results),
        "blocks": {name: _figures(found) for name, found in by_block.items()},
        "survivors": survivors,
    }


def record_scores(results: Sequence[MutantResult], path: Path = SCORES) -> None:
    """Replace in `path` the figures of the blocks of `results`; those of other blocks stay."""
    kept = json.loads(path.read_text())["blocks"] if path.exists() else {}
    for name in dict.fromkeys(result.block for result in results):
        figures = _figures([result for result in results if result.block == name])
        kept[name] = {**figures, "date": f"{date.today():%Y-%m-%d}"}
    path.write_text(json.dumps({"blocks": dict(sorted(kept.items()))}, indent=1) + "\n")


def junit(results: Sequence[MutantResult], reasons: Sequence[Reason]) -> ElementTree.ElementTree:
    """A test case per mutant: failed when it survived, skipped when it is proven equivalent or explained."""
    root = ElementTree.Element("testsuites", name="mutation")
    suites: dict[str, ElementTree.Element] = {}
    for result in results:
        if result.block not in suites:
            suites[result.block] = ElementTree.SubElement(root, "testsuite", name=result.block)
        case = ElementTree.SubElement(
            suites[result.block],
            "testcase",
            classname=f"mutation.{result.block}",
            name=f"{result.netlist}.{result.number} {result.mode} {result.place}",
        )
        reason = next((entry.reason for entry in reasons if entry.explains(result)), None)
        if result.outcome == "equivalent":
            ElementTree.SubElement(case, "skipped", message="proven equivalent")
        elif result.outcome == "survived" and reason:
            ElementTree.SubElement(case, "skipped", message=reason)
        elif result.outcome == "survived":
            ElementTree.SubElement(case, "failure", message=f"no test notices it: {', '.join(result.sources)}")
    for suite in suites.values():
        for kind, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            suite.set(kind, str(len(suite.findall(tag))))
    return ElementTree.ElementTree(root)


def write(results: Sequence[MutantResult], folder: Path) -> dict[str, object]:
    """Write `summary.json` and `junit.xml` to `folder`; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    reasons = read_reasons()
    summary = summarize(results, reasons)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    junit(results, reasons).write(folder / "junit.xml", encoding="unicode", xml_declaration=True)
    return summary
