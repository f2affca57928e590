"""What a block is built from: parameter classes, each field of which says what values it takes.

Every block has a class of its own, beside it: :class:`hw.tracker.TrackerParameters` for the Tracker, and so on. A field
keeps its name wherever it is read, so designs of several blocks join their classes by inheritance, as
:class:`hw.config.Configuration` does for the node: what two blocks both read is then one field, and an object of the
joint class serves each of them.
"""

from dataclasses import dataclass, field, fields
from typing import Any

POWERS_OF_TWO = tuple(1 << n for n in range(17))


class ConfigurationError(ValueError):
    """A parameter has a value the hardware cannot be built with; the message names it and what is allowed."""


def one_of(default: int, *values: int) -> Any:
    """A field that takes one of `values`."""
    return field(default=default, metadata={"allowed": values})


def between(default: int, low: int, high: int) -> Any:
    """A field that takes the whole numbers from `low` to `high`."""
    return field(default=default, metadata={"between": (low, high)})


def choice(default: str, *names: str) -> Any:
    """A field that takes one of `names`."""
    return field(default=default, metadata={"names": names})


@dataclass(frozen=True)
class Parameters:
    """Base of the parameter classes.

    Raises :class:`ConfigurationError` for a field of :func:`one_of`, :func:`between` or :func:`choice` with another
    value, for a flag that is no `bool`, and for what a class refuses in its :meth:`check`.
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            self._check_field(item.name, getattr(self, item.name), item.type, dict(item.metadata))
        self.check()

    @staticmethod
    def _check_field(name: str, value: Any, kind: Any, metadata: dict[str, Any]) -> None:
        if kind is bool and not isinstance(value, bool):
            raise ConfigurationError(f"{name} must be true or false, got {value!r}")
        if not metadata:
            return
        if "names" in metadata:
            if value not in metadata["names"]:
                raise ConfigurationError(f"{name} must be one of {', '.join(metadata['names'])}; got {value}")
            return
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"{name} must be a whole number, got {value!r}")
        if "allowed" in metadata and value not in metadata["allowed"]:
            raise ConfigurationError(f"{name} must be one of {', '.join(map(str, metadata['allowed']))}; got {value}")
        if "between" in metadata:
            low, high = metadata["between"]
            if not low <= value <= high:
                raise ConfigurationError(f"{name} must be from {low} to {high}; got {value}")

    def check(self) -> None:
        """Compare fields with one another. A class that extends it calls `super().check()` first."""
