"""A component is converted faster than Amaranth does it, to the same text."""

import re

import pytest
from amaranth.back import rtlil
from amaranth.hdl import _nir

from hw.config import PRESETS
from hw.export.conversion import to_rtlil
from hw.export.exporter import BLOCKS

CONTENTS = re.compile(r"^(?:  attribute [^\n]*\n)*  cell \$meminit_v2 .*?^  end\n\n", re.MULTILINE | re.DOTALL)
WITH_MEMORIES = ("t3_tracker", "t3_register_file", "t3_memory_controller")
"""Blocks whose memories are all written: no ROM."""


@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("name", WITH_MEMORIES)
def test_the_text_is_amaranths(name: str, sources: bool) -> None:
    make, config = BLOCKS[name], PRESETS["tiny"]
    plain = rtlil.convert(make(config), name=name, emit_src=sources)
    assert to_rtlil(make(config), name, sources) == plain
    shorter, removed = CONTENTS.subn("", plain)
    assert removed
    assert to_rtlil(make(config), name, sources, contents=False) == shorter


def test_amaranth_is_left_as_it_was() -> None:
    before = vars(_nir.Value)["__new__"], vars(rtlil.ModuleEmitter)["emit_memory"]
    to_rtlil(BLOCKS["t3_doorbell"](PRESETS["tiny"]), "t3_doorbell", contents=False)
    assert (vars(_nir.Value)["__new__"], vars(rtlil.ModuleEmitter)["emit_memory"]) == before
    with pytest.raises(AssertionError):
        _nir.Value(["no net"])
