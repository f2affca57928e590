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

from tb.mutation.campaign import Verdict

REASONS = Path(__file__).with_name("survivors.toml")
SCORES = Path(__file__).with_name("scores.json")
"""Figures of the last full run of each block, and the day of it; the coverage page shows them where build/ has none."""


@dataclass(frozen=True)
class Reason:
    """An entry of survivors.toml."""

    block: str
    place: str
    reason: str

    def explains(self, verdict: Verdict) -> bool:
        """Whether the entry is about this mutant."""
        return self.block == verdict.block and re.search(self.place, f"{verdict.place} {verdict.mode}") is not None


def read_reasons(path: Path = REASONS) -> list[Reason]:
    """The entries of survivors.toml. Raises :class:`TypeError` for one with other keys than block, place, reason."""
    return [Reason(**entry) for entry in tomllib.loads(path.read_text()).get("survivor", [])]


def score(verdicts: Sequence[Verdict]) -> float | None:
    """Percent killed of the mutants that are not proven equivalent; None without any."""
    counted = [verdict for verdict in verdicts if verdict.outcome != "equivalent"]
    killed = sum(verdict.outcome == "killed" for verdict in counted)
    return round(100 * killed / len(counted), 2) if counted else None


def _figures(verdicts: Sequence[Verdict]) -> dict[str, object]:
    outcomes = [verdict.outcome for verdict in verdicts]
    return {
        "mutants": len(outcomes),
        "killed": outcomes.count("killed"),
        "survived": outcomes.count("survived"),
        "equivalent": outcomes.count("equivalent"),
        "score": score(verdicts),
    }


def summarize(verdicts: Sequence[Verdict], reasons: Sequence[Reason]) -> dict[str, Any]:
    """What `summary.json` holds: figures per block and in total, each survivor with source lines and reason."""
    by_block: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_block.setdefault(verdict.block, []).append(verdict)
    survivors = [
        {
            "block": verdict.block,
            "netlist": verdict.netlist,
            "number": verdict.number,
            "mode": verdict.mode,
            "place": verdict.place,
            "sources": list(verdict.sources),
            "reason": next((entry.reason for entry in reasons if entry.explains(verdict)), None),
        }
        for verdict in verdicts
        if verdict.outcome == "survived"
    ]
    return {
        "total": _figures(verdicts),
        "blocks": {name: _figures(found) for name, found in by_block.items()},
        "survivors": survivors,
    }


def record_scores(verdicts: Sequence[Verdict], path: Path = SCORES) -> None:
    """Replace in `path` the figures of the blocks of `verdicts`; those of other blocks stay."""
    kept = json.loads(path.read_text())["blocks"] if path.exists() else {}
    for name in dict.fromkeys(verdict.block for verdict in verdicts):
        figures = _figures([verdict for verdict in verdicts if verdict.block == name])
        kept[name] = {**figures, "date": f"{date.today():%Y-%m-%d}"}
    path.write_text(json.dumps({"blocks": dict(sorted(kept.items()))}, indent=1) + "\n")


def junit(verdicts: Sequence[Verdict], reasons: Sequence[Reason]) -> ElementTree.ElementTree:
    """A test case per mutant: failed when it survived, skipped when it is proven equivalent or explained."""
    root = ElementTree.Element("testsuites", name="mutation")
    suites: dict[str, ElementTree.Element] = {}
    for verdict in verdicts:
        if verdict.block not in suites:
            suites[verdict.block] = ElementTree.SubElement(root, "testsuite", name=verdict.block)
        case = ElementTree.SubElement(
            suites[verdict.block],
            "testcase",
            classname=f"mutation.{verdict.block}",
            name=f"{verdict.netlist}.{verdict.number} {verdict.mode} {verdict.place}",
        )
        reason = next((entry.reason for entry in reasons if entry.explains(verdict)), None)
        if verdict.outcome == "equivalent":
            ElementTree.SubElement(case, "skipped", message="proven equivalent")
        elif verdict.outcome == "survived" and reason:
            ElementTree.SubElement(case, "skipped", message=reason)
        elif verdict.outcome == "survived":
            ElementTree.SubElement(case, "failure", message=f"no test notices it: {', '.join(verdict.sources)}")
    for suite in suites.values():
        for kind, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            suite.set(kind, str(len(suite.findall(tag))))
    return ElementTree.ElementTree(root)


def write(verdicts: Sequence[Verdict], folder: Path) -> dict[str, object]:
    """Write `summary.json` and `junit.xml` to `folder`; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    reasons = read_reasons()
    summary = summarize(verdicts, reasons)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    junit(verdicts, reasons).write(folder / "junit.xml", encoding="unicode", xml_declaration=True)
    return summary
