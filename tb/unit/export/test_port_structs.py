"""The package of port structs against the exported modules, as slang reads both: same widths, bits and values."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amaranth.lib import data

from hw.config import PRESETS, Configuration, preset
from hw.export.exporter import BLOCKS, ports
from hw.export.port_structs import PortStructs, enumerations
from hw.export.verilog import to_systemverilog

SLANG = """
import json
import sys
from pyslang.ast import Compilation
from pyslang.syntax import SyntaxTree

compilation = Compilation()
for file in sys.argv[1:]:
    compilation.addSyntaxTree(SyntaxTree.fromFile(file))
errors = [str(item.code) for item in compilation.getAllDiagnostics() if item.isError()]
types = {}
for item in compilation.getPackage("t3_pkg"):
    if item.kind.name == "TypeAlias":
        kind = item.canonicalType
        fields = {}
        if kind.kind.name == "PackedStructType":
            fields = {f.name: [f.bitOffset, f.type.bitWidth] for f in kind if f.kind.name == "Field"}
        values = {v.name: int(v.value.value) for v in kind if v.kind.name == "EnumValue"}
        types[item.name] = {"width": kind.bitWidth, "fields": fields, "values": values}
widths = {
    top.name: {port.name: port.type.bitWidth for port in top.body.portList}
    for top in compilation.getRoot().topInstances
}
print(json.dumps({"errors": errors, "types": types, "ports": widths}))
"""
"""A process of its own for each design: slang has crashed after several in one."""


def read_by_slang(*files: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", SLANG, *map(str, files)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def differences(described: list[dict[str, Any]], types: dict[str, Any], low: int = 0) -> list[str]:
    """In what the types of ports (or of fields of something that begins at bit `low`) differ from the description."""
    found = []
    for item in (item for item in described if "type" in item):
        kind, fields, start = types[item["type"]], item.get("fields", []), item.get("low", low)
        if kind["width"] != item["width"]:
            found.append(f"{item['name']}: {item['type']} has {kind['width']} bits, not {item['width']}")
        elif kind["fields"] != {field["name"]: [field["low"] - start, field["width"]] for field in fields}:
            found.append(f"{item['name']}: the fields of {item['type']} lie elsewhere")
        found += differences(fields, types, start)
    return found


def _all(described: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in described:
        yield item
        yield from _all(item.get("fields", []))


@pytest.mark.parametrize("config", [*PRESETS.values(), preset("paper", protection="all")], ids=[*PRESETS, "protected"])
def test_types_have_the_width_and_the_bits_of_the_ports(config: Configuration, tmp_path: Path) -> None:
    structs = PortStructs(config)
    package = tmp_path / "t3_pkg.sv"
    package.write_text(structs.text())
    found = read_by_slang(package)
    assert found["errors"] == []
    used: set[str] = set()
    for name, make in BLOCKS.items():
        described = ports(make(config), structs)
        assert differences(described, found["types"]) == [], name
        assert all("type" in port for port in described if port["fields"]), name
        used |= {item["type"] for item in _all(described) if "type" in item}
    assert {"compute_request_t", "memory_request_t", "spill_record_t", "access_e", "fault_e"} <= used
    for name, item in enumerations().items():
        kind = structs.name_of(item)
        assert kind is not None, name
        prefix = kind.removesuffix("_e").upper()
        values = {f"{prefix}_{member.name}": member.value for member in item}
        assert found["types"][kind]["values"] == values


@pytest.mark.parametrize("name", BLOCKS)
def test_the_exported_module_has_the_ports_that_are_described(name: str, tmp_path: Path) -> None:
    """Widths as slang reads them in the module's own text, beside the package."""
    config = PRESETS["tiny"]
    structs = PortStructs(config)
    component = BLOCKS[name](config)
    (tmp_path / "t3_pkg.sv").write_text(structs.text())
    (tmp_path / "module.sv").write_text(to_systemverilog(component, name))
    found = read_by_slang(tmp_path / "t3_pkg.sv", tmp_path / "module.sv")
    assert found["errors"] == []
    assert found["ports"][name] == {port["name"]: port["width"] for port in ports(component, structs) if port["width"]}


def test_a_struct_in_the_order_of_amaranth_is_found(tmp_path: Path) -> None:
    """SystemVerilog writes the highest bits first: with the members the other way round every field lies elsewhere."""
    config = PRESETS["tiny"]
    structs = PortStructs(config)
    text = structs.text()
    body = re.search(r"typedef struct packed {\n([^}]*)  } remote_store_t;", text)
    assert body is not None
    wrong = "".join(reversed(body[1].splitlines(keepends=True)))
    (tmp_path / "t3_pkg.sv").write_text(text.replace(body[1], wrong))
    found = read_by_slang(tmp_path / "t3_pkg.sv")
    assert found["errors"] == []
    described = ports(BLOCKS["t3_address_map"](config), structs)
    assert differences(described, found["types"]) == ["remote__payload: the fields of remote_store_t lie elsewhere"]


def test_a_field_of_another_width_is_found(tmp_path: Path) -> None:
    structs = PortStructs(PRESETS["tiny"])
    (tmp_path / "t3_pkg.sv").write_text(PortStructs(preset("tiny", wg_bits=15)).text())
    found = read_by_slang(tmp_path / "t3_pkg.sv")
    described = ports(BLOCKS["t3_doorbell"](PRESETS["tiny"]), structs)
    assert "commits__payload: commit_t has 90 bits, not 91" in differences(described, found["types"])


def test_a_struct_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no type of t3_pkg has the layout"):
        PortStructs(PRESETS["tiny"]).name_of(data.StructLayout({"nameless": 3}))
