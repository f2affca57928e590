"""Which release this is, and the lines that say so, with the licence, at the head of every file that is written out.

The number stands in pyproject.toml and nowhere else; the installed package knows it.
"""

from importlib.metadata import version

LICENCE = "Apache-2.0"
PACKAGE = "t3-rtl"


def release() -> str:
    """Version of the installed package, as in pyproject.toml."""
    return version(PACKAGE)


def marked(text: str, begin: str, end: str = "") -> str:
    """`text` below the lines that name its licence (SPDX) and release, each a comment from `begin` to `end`."""
    lines = (f"SPDX-License-Identifier: {LICENCE}", f"T3-RTL {release()}")
    return "".join(f"{begin} {line}{end and ' '}{end}\n" for line in lines) + text
