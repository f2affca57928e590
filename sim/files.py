"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.errors import UsageError


@contextmanager
def replaced(path: Path, suffix: str = "") -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` at the end, or goes away when something fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})") from error
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o666 & ~_umask())
        try:
            draft.replace(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror})") from error
    finally:
        draft.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise :class:`sim.errors.UsageError` now, not after minutes of simulation, when `path` cannot be written."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file to write to")
    with replaced(path.parent / f".{path.name}.probe"):
        pass
    (path.parent / f".{path.name}.probe").unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
