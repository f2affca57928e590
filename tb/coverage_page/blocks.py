"""The blocks of the page: which source files, tests, proofs and mutants belong to each (`blocks.toml`)."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from hw.blocks import paths_of

BLOCKS = Path(__file__).with_name("blocks.toml")


@dataclass(frozen=True)
class Block:
    """`files`: paths; `tests`: patterns of paths. `known_as`: names it goes by in proofs, mutants and cover points.
    `no_functional`: why it has no functional coverage of its own."""

    key: str
    title: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    known_as: tuple[str, ...]
    no_functional: str = ""

    def has_file(self, path: str) -> bool:
        """Whether source file `path` belongs to the block."""
        return path in self.files

    def has_test(self, path: str) -> bool:
        """Whether test file `path` is one of the block's."""
        return any(fnmatch(path, pattern) for pattern in self.tests)

    def goes_by(self, name: str) -> bool:
        """Whether `name` means this block."""
        return name == self.key or name in self.known_as


def read_blocks(path: Path = BLOCKS) -> list[Block]:
    """The blocks in the order of the page."""
    return [
        Block(
            key,
            entry["title"],
            paths_of(*entry["blocks"]),
            tuple(entry["tests"]),
            tuple(entry.get("known_as", ())),
            entry.get("no_functional", ""),
        )
        for key, entry in tomllib.loads(path.read_text()).items()
    ]
