"""Documents of the repository as pages of the site: same text, links led to the pages that the site has of them."""

import os
import re
from pathlib import Path, PurePosixPath

COPIED = {
    "README.md": "index.md",
    "hw/DECISIONS.md": "decisions.md",
    "sim/report/RESULTS.md": "evaluation.md",
    "hw/synthesis/AREA.md": "synthesis/area.md",
    "hw/synthesis/TIMING.md": "synthesis/timing.md",
    "hw/synthesis/ALTERNATIVES.md": "synthesis/alternatives.md",
    "hw/synthesis/PROTECTION.md": "synthesis/protection.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/TRAPS.md": "traps.md",
    "examples/README.md": "examples.md",
}
"""File of the repository -> page."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


class BrokenLink(ValueError):
    """A document names a file that there is not."""


def page_text(root: Path, file: str) -> str:
    """The text of `file` of the repository at `root` as the page that :data:`COPIED` names.

    A link to a file that is a page too leads to that page; one to another file becomes its name, a figure is taken
    along (:func:`figures_of`). Raises :class:`BrokenLink` for a file that does not exist.
    """
    text = (root / file).read_text()
    here = PurePosixPath(file).parent

    def led(match: re.Match[str]) -> str:
        picture, label, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        goal = os.path.normpath(here / target)
        if not (root / goal).exists():
            raise BrokenLink(f"{file} links to {target}, which does not exist")
        if picture:
            return f"![{label}](/figures/{PurePosixPath(goal).name})"
        if goal in COPIED:
            return f"[{label}](/{COPIED[goal]}{anchor or ''})"
        return label if "`" in label else f"`{label}`"

    pieces = _CODE.split(text)
    return "".join(piece if number % 2 else _LINK.sub(led, piece) for number, piece in enumerate(pieces))


def figures_of(root: Path, file: str) -> list[Path]:
    """The pictures that `file` shows."""
    here = PurePosixPath(file).parent
    found = [match for piece in _CODE.split((root / file).read_text())[::2] for match in _LINK.finditer(piece)]
    return [root / os.path.normpath(here / match[3]) for match in found if match[1] and "://" not in match[3]]
