"""What became of points: a result each, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.experiments.results import Result
from sim.experiments.spec import Spec


@dataclass(frozen=True)
class Outcome:
    """What became of a spec: its `result`, or the `error` that kept it from having one, and whether that was the
    `machine`'s. `reused`: it was on disk. `unsaved`: why it could not be kept there."""

    spec: Spec
    result: Result | None
    error: str = ""
    machine: bool = False
    reused: bool = False
    unsaved: str = ""

    @property
    def passed(self) -> bool:
        """Whether there is a result and nothing is wrong with it."""
        return self.result is not None and bool(self.result["passed"])

    @property
    def errors(self) -> tuple[str, ...]:
        """What speaks against it, a sentence each."""
        return (self.error,) if self.result is None else tuple(self.result["errors"])


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0: all are right; 3: the machine failed under one, or did not let its result be kept; 1: one is wrong."""
    if any(outcome.machine or outcome.unsaved for outcome in outcomes):
        return 3
    return 0 if all(outcome.passed for outcome in outcomes) else 1
