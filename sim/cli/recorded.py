"""Options `--timeline` and `--html` of a run: the files into which what happened is written."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import UsageError
from sim.files import keep

if TYPE_CHECKING:
    from sim.experiments.results import Result
    from sim.experiments.timeline import Timeline


@dataclass(frozen=True)
class Recorded:
    """Where a run's timeline goes: `timeline`, a trace for Perfetto; `page`, one HTML page."""

    timeline: Path | None = None
    page: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that were asked for."""
        return tuple(path for path in (self.timeline, self.page) if path is not None)

    @property
    def writer(self) -> "Callable[[Timeline, Result], None] | None":
        """What writes them; None when nothing was asked for, and a run is not recorded."""
        return self._write if self.files else None

    def _write(self, timeline: "Timeline", result: "Result") -> None:
        from sim.report.perfetto_trace import write_perfetto
        from sim.report.timeline_page import write_page

        if self.timeline is not None:
            name = result["spec"]["name"]
            keep(self.timeline, lambda path: write_perfetto(path, timeline, name))
        if self.page is not None:
            keep(self.page, lambda path: write_page(path, timeline, result))

    def say(self, echo: Callable[[str], None]) -> None:
        """Tell where they are."""
        if self.timeline is not None:
            echo(f"timeline: {self.timeline}, to be opened in https://ui.perfetto.dev")
        if self.page is not None:
            echo(f"page: {self.page}")


def check_distinct(*paths: Path | None, read: Iterable[Path] = ()) -> None:
    """Raise :class:`sim.errors.UsageError` when two of the files that a command writes are one, or one is `read`."""
    inputs = {path.resolve() for path in read}
    seen: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        if path.resolve() in inputs:
            raise UsageError(f"{path} is read, and would be overwritten; give the output a file of its own")
        if path.resolve() in seen:
            raise UsageError(f"{path} is to be written twice; give each output a file of its own")
        seen.add(path.resolve())
