"""Results of the proofs as summary.json and as JUnit XML."""

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tb.formal.solver import Outcome


def _error(outcome: Outcome) -> str:
    """What is wrong with an outcome, in a sentence."""
    parts = []
    if outcome.status != "proved":
        parts.append(f"{outcome.status}, see {outcome.log}")
    if outcome.cover != "reached":
        parts.append(f"cover {outcome.cover}: the claims may be vacuous")
    if outcome.seeded_bug != "found":
        parts.append(f"seeded bug {outcome.seeded_bug} ({outcome.seeded_bug_description})")
    return "; ".join(parts)


def junit(outcomes: Sequence[Outcome]) -> ElementTree.ElementTree:
    """A test case per proof, a suite per block."""
    root = ElementTree.Element("testsuites", name="formal")
    for block in dict.fromkeys(outcome.block for outcome in outcomes):
        group = [outcome for outcome in outcomes if outcome.block == block]
        failures = str(sum(not outcome.passed for outcome in group))
        suite = ElementTree.SubElement(root, "testsuite", name=block, tests=str(len(group)), failures=failures)
        for outcome in group:
            seconds = outcome.seconds + outcome.cover_seconds + outcome.seeded_bug_seconds
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"formal.{block}", name=outcome.name, time=f"{seconds:.2f}"
            )
            if not outcome.passed:
                ElementTree.SubElement(case, "failure", message=_error(outcome))
    return ElementTree.ElementTree(root)


def write(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write `summary.json` and `junit.xml` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [outcome.row() for outcome in outcomes]
    (folder / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    junit(outcomes).write(folder / "junit.xml", encoding="unicode", xml_declaration=True)


def errors(outcomes: Sequence[Outcome]) -> list[str]:
    """One line per proof that did not pass."""
    return [f"{outcome.name}: {_error(outcome)}" for outcome in outcomes if not outcome.passed]
