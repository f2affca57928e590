"""A group of cocotb-coverage: one cover point per axis and their cross."""

import re
import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cocotb_coverage.coverage import CoverCross, CoverPoint

ARGUED = Path(__file__).with_name("unreachable.toml")


@dataclass(frozen=True)
class Unreachable:
    """Bins of a group's cross that cannot be hit: `bins` gives for some axes a regular expression of their bins."""

    group: str
    bins: Mapping[str, str]
    reason: str


def read_unreachable(path: Path = ARGUED) -> list[Unreachable]:
    """The entries of unreachable.toml."""
    return [Unreachable(**entry) for entry in tomllib.loads(path.read_text()).get("unreachable", [])]


class Group:
    """Cover points `name`.`axis` and cross `name`.cross over `axes` (axis -> its bins).

    :meth:`sample` notes one combination. Hits count the processes that saw a bin, not the cycles.
    """

    def __init__(self, name: str, argued: Sequence[Unreachable], **axes: Sequence[Hashable]):
        self.name = name
        self.axes = axes
        self.unreachable: dict[tuple[Hashable, ...], str] = {}
        for entry in argued:
            if entry.group == name:
                self.unreachable |= dict.fromkeys(self._matching(entry.bins), entry.reason)
        self.seen: set[tuple[Hashable, ...]] = set()
        points = [
            CoverPoint(f"{name}.{axis}", xf=lambda *values, place=place: values[place], bins=list(bins))
            for place, (axis, bins) in enumerate(axes.items())
        ]
        ignored = list(self.unreachable)
        cross = CoverCross(f"{name}.cross", items=[f"{name}.{axis}" for axis in axes], ign_bins=ignored)
        sampled = cross(lambda *values: None)
        for point in reversed(points):
            sampled = point(sampled)
        self._sample = sampled

    def _matching(self, wanted: Mapping[str, str]) -> list[tuple[Hashable, ...]]:
        strange = set(wanted) - set(self.axes)
        if strange:
            raise ValueError(f"group {self.name} has no axis {sorted(strange)[0]!r}")
        found = [
            values
            for values in product(*self.axes.values())
            if all(
                re.fullmatch(wanted.get(axis, ".*"), str(value)) for axis, value in zip(self.axes, values, strict=True)
            )
        ]
        if not found:
            raise ValueError(f"no bin of group {self.name} matches {dict(wanted)}")
        return found

    def sample(self, *values: Hashable) -> None:
        """A combination was seen, one value per axis.

        Raises :class:`ValueError` for a value that is no bin, :class:`AssertionError` for one argued to be unreachable.
        """
        if values in self.seen:
            return
        for (axis, bins), value in zip(self.axes.items(), values, strict=True):
            if value not in bins:
                raise ValueError(f"{self.name}.{axis} has no bin {value!r}")
        if values in self.unreachable:
            raise AssertionError(f"{self.name} {values} was reached, but: {self.unreachable[values]}")
        self.seen.add(values)
        self._sample(*values)
