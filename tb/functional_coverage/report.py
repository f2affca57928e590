"""Merges the files of a regression and says what is missing."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

from cocotb_coverage.coverage import coverage_db, merge_coverage

from tb.functional_coverage.group import Group


@dataclass(frozen=True)
class GroupResult:
    """Bins of a group's cross: reachable ones, those hit, the holes, and those argued to be unreachable."""

    name: str
    bins: int
    hit: int
    holes: tuple[tuple[Hashable, ...], ...]
    unreachable: int

    @property
    def percent(self) -> float:
        """Hit, of the reachable."""
        return _percent(self.hit, self.bins)


def _percent(hit: int, bins: int) -> float:
    return 100 * hit / bins if bins else 100.0


def export_xml(path: Path) -> None:
    """Write what this process has seen; an empty database as well, which cocotb-coverage itself fails on."""
    if coverage_db:
        coverage_db.export_to_xml(str(path))
    else:
        path.write_text('<top abs_name="top" size="0" coverage="0" cover_percentage="100.0" />\n')


def merge(folder: Path, merged: Path, groups: tuple[Group, ...]) -> list[GroupResult]:
    """Merge the XML files in `folder`, and the plan with nothing hit, to `merged`.

    A group or bin that no file knows is a hole as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(folder.glob("*.xml"))
    plan = merged.with_suffix(".plan.xml")
    export_xml(plan)
    merge_coverage(lambda text: None, str(merged), str(plan), *map(str, files))
    plan.unlink()
    hits = {
        (element.get("abs_name", "").removeprefix("top."), child.get("bin")): int(child.get("hits", "0"))
        for element in ElementTree.parse(merged).getroot().iter()
        for child in element
        if "bin" in child.attrib
    }
    answer = []
    for group in groups:
        wanted = [values for values in product(*group.axes.values()) if values not in group.unreachable]
        holes = tuple(values for values in wanted if not hits.get((f"{group.name}.cross", str(values))))
        answer.append(GroupResult(group.name, len(wanted), len(wanted) - len(holes), holes, len(group.unreachable)))
    return answer


def lines(results: list[GroupResult]) -> list[str]:
    """The report: a line per group, its holes under it."""
    text = []
    for result in results:
        argued = f", {result.unreachable} argued to be unreachable" if result.unreachable else ""
        text.append(f"{result.name:28} {result.hit:5} of {result.bins:5} bins  {result.percent:5.1f} %{argued}")
        text += [f"    hole: {' x '.join(map(str, hole))}" for hole in result.holes]
    total, hit = sum(result.bins for result in results), sum(result.hit for result in results)
    text.append(f"{'total':28} {hit:5} of {total:5} bins  {_percent(hit, total):5.1f} %")
    return text
