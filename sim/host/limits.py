"""What the host refuses: a value that does not fit the hardware."""


class DriverError(ValueError):
    """Something asked of the host does not fit the hardware; the message names the field and what is allowed."""


def between(name: str, value: int, low: int, high: int) -> None:
    """Raises :class:`DriverError` unless `value` is a whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise DriverError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
