"""Paths that make and Verilator can take: they split what they read at spaces, and some characters are theirs."""

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

_PLAIN = re.compile(r"[\w./+,@=~-]+")


def is_plain(path: Path) -> bool:
    """Whether make takes `path` as it stands."""
    return _PLAIN.fullmatch(str(path)) is not None


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


def build_place(wanted: Path) -> Path:
    """`wanted`, or where make cannot work there, which it sees through links too, a folder for the same in the user's
    cache or in the one for temporary files."""
    if is_plain(wanted):
        return wanted
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "t3rtl"
    return next(place for place in (cache, _links()) if is_plain(place)) / _digest(wanted)


def linked(path: Path) -> Path:
    """`path`, or where make does not take it a link to it; without a place for the link it is `path` all the same."""
    if is_plain(path):
        return path
    links = _links()
    link = links / _digest(path)
    with suppress(OSError):
        links.mkdir(mode=0o700, exist_ok=True)
        # What others could have put there is not followed.
        if links.is_symlink() or links.stat().st_uid != os.getuid():
            return path
        if not link.is_symlink() or link.readlink() != path:
            draft = link.with_suffix(f".{os.getpid()}")
            draft.symlink_to(path)
            draft.replace(link)
        return link
    return path


def _links() -> Path:
    """A folder of this user's, whose name make takes whatever that of the folder for temporary files is."""
    folder = Path(tempfile.gettempdir())
    return (folder if is_plain(folder) else Path("/tmp")) / f"t3rtl-{os.getuid()}"
