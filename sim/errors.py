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


def sentence_of(error: BaseException) -> str:
    """What `error` says, for people: of the operating system's without its number, with the file."""
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return str(error) or "out of memory"


def chosen(kind: str, names: Sequence[str], allowed: Sequence[str], default: Sequence[str]) -> list[str]:
    """`names`, each once, or `default` without any. Raises :class:`UsageError` for a name that is not `allowed`."""
    for name in names:
        if name not in allowed:
            raise UsageError(f"unknown {kind} {name!r}; allowed: {'; '.join(allowed)}")
    return list(dict.fromkeys(names)) or list(default)


def check_threads(threads: int, gpus: int, waves: bool = False, lanes: int = 1) -> None:
    """Raise :class:`UsageError` unless that many threads (0: as many as there are cores) have something to do where
    `gpus` are simulated, or one of so many `lanes`; `waves` are written by one."""
    if waves and threads > 1:
        raise UsageError("--threads has no effect here: waves are written cycle by cycle, by one thread")
    most, part = (lanes, "lane of the one GPU") if gpus == 1 < lanes else (gpus, "GPU")
    if not 0 <= threads <= most:
        raise UsageError(f"threads must be from 0 to {most}, one for each {part} that is simulated, got {threads}")


def check_processes(processes: int, most: int = 64) -> None:
    """Raise :class:`UsageError` unless that many local processes make sense."""
    if not 1 <= processes <= most:
        raise UsageError(f"processes must be from 1 to {most}, got {processes}")
