"""The errors a user sees: bad input, and a simulation that failed; and the checks of input that several commands
make."""

from collections.abc import Sequence


class UsageError(ValueError):
    """Bad input: the message is one sentence that names what is wrong and what is allowed."""


class SimulationError(RuntimeError):
    """A simulation failed; the message holds what is known of it, and where there is one the command that repeats
    it."""


class MachineError(SimulationError):
    """Not the result is wrong but the machine failed: the disk is full, memory ran out, the compiler is missing or
    fails."""


def of_the_machine(error: BaseException) -> bool:
    """Whether `error` says that the machine failed, not what ran on it."""
    return isinstance(error, MachineError | OSError | MemoryError)


def chosen(kind: str, names: Sequence[str], allowed: Sequence[str], default: Sequence[str]) -> list[str]:
    """`names`, each once, or `default` without any. Raises :class:`UsageError` for a name that is not `allowed`."""
    for name in names:
        if name not in allowed:
            raise UsageError(f"unknown {kind} {name!r}; allowed: {'; '.join(allowed)}")
    return list(dict.fromkeys(names)) or list(default)


def check_processes(processes: int, most: int = 64) -> None:
    """Raise :class:`UsageError` unless that many local processes make sense."""
    if not 1 <= processes <= most:
        raise UsageError(f"processes must be from 1 to {most}, got {processes}")
