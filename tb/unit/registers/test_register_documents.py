"""The register map has no overlaps, and the documents made from it hold all of it."""

import re
import subprocess

import pytest

from hw.config import preset
from hw.range_table import Word
from hw.registers.documents import c_header, markdown
from hw.registers.fields import Field, Kind, Register
from hw.registers.map import check_map, register_map
from hw.send_table import SendWord

PRESETS = ("paper", "tiny", "wide")


@pytest.mark.parametrize("name", PRESETS)
def test_map_has_no_overlaps(name):
    check_map(preset(name))
    check_map(preset(name, va_bits=36, ranges=64))


def test_overlap_is_caught(monkeypatch):
    field = Field("a", 0, 4, Kind.READ_WRITE, "")
    broken = [Register("x", 0, (field, Field("b", 3, 2, Kind.READ_WRITE, "")), "")]
    monkeypatch.setattr("hw.registers.map.register_map", lambda config: broken)
    with pytest.raises(ValueError, match="field b of x"):
        check_map(preset("paper"))
    monkeypatch.setattr(
        "hw.registers.map.register_map", lambda config: [Register("x", 0, (field,), ""), Register("y", 0, (field,), "")]
    )
    with pytest.raises(ValueError, match="y and x share address 0x0"):
        check_map(preset("paper"))


@pytest.mark.parametrize("name", PRESETS)
def test_documents_hold_every_register_and_field(name):
    config = preset(name)
    table = markdown(config)
    defines = dict(re.findall(r"^#define (\w+) +(0x[0-9A-F]+)u$", c_header(config), re.MULTILINE))
    for register in register_map(config):
        assert f"`{register.name}`" in table and f"0x{register.address:04X}" in table
        prefix = f"T3_{register.name.upper()}"
        assert int(defines[f"{prefix}_OFFSET"], 16) == register.address
        for field in register.fields:
            if len(register.fields) > 1:
                assert int(defines[f"{prefix}_{field.name.upper()}_MASK"], 16) == field.mask
                assert int(defines[f"{prefix}_{field.name.upper()}_SHIFT"], 16) == field.low
    for word in Word:
        assert int(defines[f"T3_RANGE_{word.name}_WORD"], 16) == word.value
    for send_word in SendWord:
        assert int(defines[f"T3_SEND_{send_word.name}_WORD"], 16) == send_word.value
    assert int(defines["T3_SEND_CONTROL_WG_OFFSET_SHIFT"], 16) == 16


def test_header_is_valid_c(tmp_path):
    (tmp_path / "registers.h").write_text(c_header(preset("paper")))
    source = tmp_path / "check.c"
    source.write_text(
        '#include "registers.h"\n#include "registers.h"\nint a = T3_RANGE_OFFSET(1) + T3_SEND_OFFSET(1);\n'
    )
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", str(source)], check=True, capture_output=True
    )
