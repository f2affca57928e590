"""Folders in which something is built once, named after what it is made from; what becomes of a build that fails."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from sim.errors import MachineError
from sim.simulator.prerequisites import COMPLETE, require_compiler
from sim.simulator.verilator import BUILD

LOG = "build.log"
Tell = Callable[[str], None]
"""Is told, in words, of what takes long."""
FULL = 1 << 20
"""Bytes left on a disk below which it counts as full."""
_REASONS = {
    "no space left on device": "the disk is full",
    "file too large": "a file would be larger than it may be",
    "file size limit exceeded": "a file would be larger than it may be",
    "memory exhausted": "memory ran out",
    "cannot allocate memory": "memory ran out",
    "out of memory": "memory ran out",
    "bad_alloc": "memory ran out",
    "killed": "the compiler was killed, as happens when memory runs out",
    "error 127": "a tool that it needs is not installed",
}
"""What tools say, in small letters, when the machine fails them, and what that means."""


class Building(str):
    """What a :data:`Tell` hears of a build: said where there is no terminal too, because it is what takes long."""


def silent(text: str) -> None:
    """A :data:`Tell` that tells nobody."""


def build_failure(what: str, log: Path) -> MachineError:
    """One sentence about the build of `what` that failed, after its `log`, which it names."""
    text = log.read_text(errors="replace") if log.exists() else ""
    reason = next((reason for said, reason in _REASONS.items() if said in text.lower()), "")
    if shutil.disk_usage(log.parent).free < FULL:
        reason = "the disk is full"
    return MachineError(f"{what} could not be built: {reason + '; ' if reason else ''}{log} says more")


def whole(folder: Path) -> bool:
    """Whether the build in `folder` came to its end, and what it made is there in its whole length."""
    try:
        sizes = json.loads((folder / COMPLETE).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def build_folder(kind: Path, made_from: object, products: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """A folder named after `kind` and all that the build is `made_from`, locked, and whether it has to be built.

    Then it is empty, whatever a build that was killed has left in it. One that fails leaves its log and nothing else.
    `products`: names of what is made. Raises :class:`sim.errors.MachineError` when it has to be built and there is no
    compiler.
    """
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
    folder = kind.with_name(f"{kind.name}-{digest}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if whole(folder):
            yield folder, False
            return
        require_compiler()
        _clear(folder)
        try:
            yield folder, True
            sizes = {name: (folder / name).stat().st_size for name in products}
            (folder / COMPLETE).write_text(json.dumps(sizes))
        except BaseException:
            _clear(folder, LOG)
            raise


def _clear(folder: Path, kept: str = "") -> None:
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        elif item.name != kept:
            item.unlink(missing_ok=True)


def recipe(*made_from: object) -> Path:
    """A file named after everything a build is made from, down to the Python sources; it holds the build's folder.

    Exporting hardware takes seconds; an unchanged recipe need not even do that.
    """
    return BUILD / "ring" / "recipes" / hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]


def remembered(noted: Path, build: Callable[[], Path], usable: Callable[[Path], bool] = lambda folder: True) -> Path:
    """The folder that file `noted` leads to, if it is whole and `usable`, or else that of `build`, noted there; other
    processes wait for it."""
    noted.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(noted) + ".lock"):
        if noted.exists():
            folder = Path(noted.read_text(errors="replace").strip("\0\n") or ".")
            if whole(folder) and usable(folder):
                return folder
        folder = build()
        noted.write_text(str(folder))
    return folder
