"""Files that are written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.errors import MachineError, UsageError

BAD_PATHS = (
    *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EROFS),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL),
)
"""Errors that another path would not have; all others are the machine's, as a full disk is."""


@contextmanager
def replaced(path: Path, suffix: str = "") -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` at the end, or goes away when something fails.

    Raises :class:`UsageError` when `path` is none to write to, :class:`MachineError` when the machine does not let it
    be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    except OSError as error:
        raise cannot_write(path, error) from error
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> UsageError | MachineError:
    """What to raise when writing `path` ended in `error`."""
    sentence = f"{path} cannot be written ({error.strerror or error})"
    return UsageError(sentence) if error.errno in BAD_PATHS else MachineError(sentence)


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Write what is finished: `write(path)`, or where that fails a file in the folder for temporary files or the home
    folder, and then raise :class:`MachineError`, which says where it is."""
    try:
        write(path)
    except (UsageError, MachineError, OSError) as error:
        for folder in (Path(tempfile.gettempdir()), Path.home()):
            elsewhere = folder / f"t3rtl-{os.getpid()}-{path.name}"
            try:
                write(elsewhere)
            except (UsageError, MachineError, OSError):
                continue
            raise MachineError(f"{error}; what was to be written is in {elsewhere}") from error
        raise MachineError(f"{error}, nor anywhere else") from error


def check_writable(path: Path) -> None:
    """Raise :class:`sim.errors.UsageError` now, not after minutes of simulation, when `path` cannot be written. Nothing
    is left behind, not even a folder."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder, not a file to write to")
        there = next(folder for folder in path.absolute().parents if folder.exists())
        handle, probe = tempfile.mkstemp(dir=there, prefix=f".{path.name}.")
    except OSError as error:
        raise cannot_write(path, error) from error
    os.close(handle)
    Path(probe).unlink()


def check_folder(path: Path) -> None:
    """Raise :class:`sim.errors.UsageError` now when `path` is no folder that can be written to, or be made."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder")
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        raise UsageError(f"{path} cannot be made, because {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written ({os.strerror(errno.EACCES)})")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
