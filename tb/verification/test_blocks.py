"""The inventory of blocks: each file with logic in one, each block measured, mutated and shown somewhere."""

import re
from collections import Counter

import pytest

from hw.blocks import BLOCKS, FOLDER, paths_of
from tb.coverage_page.blocks import read_blocks
from tb.mutation.blocks import BLOCKS as MUTATED

OTHER = ("export", "synthesis")
"""Folders of hw without hardware."""


MAKES_HARDWARE = re.compile(r"^from amaranth\S* import .*\b(Cat|Module|Mux|Signal|Value)\b|\b(In|Out)\(", re.MULTILINE)
"""What is in a file that assigns signals, that only declares ports, or whose functions make expressions of payloads:
toggles of all of them are counted for the file."""


def with_logic() -> set[str]:
    """Files of hw that make hardware."""
    return {
        f"hw/{file.relative_to(FOLDER)}"
        for file in FOLDER.rglob("*.py")
        if file.relative_to(FOLDER).parts[0] not in OTHER and MAKES_HARDWARE.search(file.read_text())
    }


def test_every_file_with_logic_belongs_to_exactly_one_block() -> None:
    owners = Counter(path for name in BLOCKS for path in paths_of(name))
    assert {path for path, count in owners.items() if count > 1} == set()
    assert with_logic() - set(owners) == set()
    assert all((FOLDER.parent / path).exists() for path in owners)


def test_a_block_nobody_has_heard_of_is_an_error() -> None:
    with pytest.raises(KeyError):
        paths_of("tracker", "oracle")


def test_parts_are_parts_of_blocks() -> None:
    assert all(block.part_of in BLOCKS for block in BLOCKS.values() if block.part_of)


def test_every_block_is_on_the_coverage_page_once() -> None:
    shown = Counter(file for block in read_blocks() for file in block.files)
    assert shown == Counter(path for name in BLOCKS for path in paths_of(name))


def test_every_block_but_the_node_is_mutated() -> None:
    mutated = {path for block in MUTATED.values() for path in block.sources}
    # Without tags the Tracker is another one, of which the tests with tags see nothing.
    left = set(paths_of(*BLOCKS)) - set(paths_of("node")) - {"hw/tracker/direct_select.py"}
    assert mutated == left
