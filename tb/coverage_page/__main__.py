"""`python -m tb.coverage_page`: merge what was measured and write the page, summary.json and the exports."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.simulator.checkout import commit
from tb.coverage_page.blocks import read_blocks
from tb.coverage_page.measured import read_runs
from tb.coverage_page.page import PageWriter
from tb.coverage_page.summary import GOALS, results
from tb.source_coverage.exclusions import exclude, read_exclusions
from tb.source_coverage.lcov import lcov_info

ROOT = Path(__file__).resolve().parent.parent.parent
EXCLUSIONS = Path(__file__).with_name("exclusions.toml")
SCORES = ROOT / "tb" / "mutation" / "scores.json"


def write_page(build: Path, exclusions: Path = EXCLUSIONS, scores: Path = SCORES, goals: bool = False) -> int:
    """Write build/coverage/index.html and what belongs to it; returns 1 when an exclusion is wrong, or, with `goals`,
    when a figure of the whole is below its goal; else 0."""
    coverage = build / "coverage"
    coverage.mkdir(parents=True, exist_ok=True)
    blocks = read_blocks()
    measured = read_runs(coverage)
    points = measured.all_points()
    strays = [file for file in points.files() if not any(block.has_file(file) for block in blocks)]
    entries = read_exclusions(exclusions) if measured.runs else []
    excluded = exclude(points, entries, lambda file: (ROOT / file).read_text().splitlines())
    excluded.errors.extend(f"{file} belongs to no block of blocks.toml" for file in strays)
    found = results(blocks, measured, excluded, build, ROOT / "tb" / "testplan.toml", scores)
    (coverage / "summary.json").write_text(json.dumps(found.as_json(), indent=1) + "\n")
    (coverage / "source.info").write_text(lcov_info(measured.source, "t3"))
    page = PageWriter(found, blocks, coverage, ROOT, commit()).write()
    for name in ("tests", "functional", "statement", "branch", "fsm_arc", "toggle", "expression", "mutation"):
        figure = found.overall.figures.get(name)
        text = "not measured"
        if figure is not None:
            text = f"{figure.percent} % ({figure.done} of {figure.total})" if figure.total else "none"
        print(f"{name:12} {text}")
    print(f"page: {page}")
    if goals:
        below = [name for name in GOALS if found.overall.met(name) is False]
        excluded.errors.extend(f"{name} is below its goal of {GOALS[name]} %" for name in below)
    for error in excluded.errors:
        print(error, file=sys.stderr)
    return 1 if excluded.errors else 0


def main(
    build: Annotated[Path, typer.Option(help="Folder with coverage/, formal/ and so on.")] = ROOT / "build",
    goals: Annotated[bool, typer.Option(help="exit code 1 when a figure of the whole is below its goal")] = False,
) -> None:
    """Write the coverage page from what is in the build folder."""
    raise typer.Exit(write_page(build, goals=goals))


if __name__ == "__main__":
    typer.run(main)
