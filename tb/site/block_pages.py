"""A page for each block: its contract, its ports, the structs of the ports, its parameters, what it costs."""

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from amaranth.lib import wiring

from hw.blocks import BLOCKS, Block
from hw.config import PRESETS
from hw.export.exporter import ports
from hw.export.port_structs import PortStructs, enumerations
from tb.site.reference import table

PRESET = "paper"
SHOWN = {"cells": "generic cells", "gate_equivalents": "gate equivalents", "memory_bits": "memory bits", "fo4": "FO4"}
"""Figures of hw/synthesis/figures.json on a block's page."""


def _component(name: str) -> wiring.Component:
    make = BLOCKS[name].make
    assert make is not None
    return make(PRESETS[PRESET])


def index_page() -> str:
    """All blocks in the order in which a sector meets them."""
    rows = [
        (
            f"[{name}]({name}.md)" if block.make else f"`{name}`",
            block.part_of,
            ", ".join(f"`{file}`" for file in block.paths),
        )
        for name, block in BLOCKS.items()
    ]
    lines = ["# Blocks", "", "Along the path of a sector, parts of a block before it (`hw/blocks.py`)."]
    lines += table(("block", "part of", "files"), rows)
    lines += ["```{toctree}", ":hidden:", "", *(name for name, block in BLOCKS.items() if block.make), "```", ""]
    return "\n".join(lines)


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of the page of each block that can be made alone."""
    figures = json.loads((root / "hw" / "synthesis" / "figures.json").read_text())
    for name, block in BLOCKS.items():
        if block.make:
            yield name, _page(name, block, figures)


def _page(name: str, block: Block, figures: dict[str, Any]) -> str:
    component = _component(name)
    kind = type(component)
    structs = PortStructs(PRESETS[PRESET]) if block.exported else None
    lines = [f"# {name}", "", f"Files: {', '.join(f'`{path}`' for path in block.paths)}."]
    if block.exported:
        lines += ["", f"`t3rtl verilog` writes it as module `t3_{name}`."]
    lines += ["", "```{eval-rst}", f".. autoclass:: {kind.__module__}.{kind.__qualname__}"]
    # Of several blocks, so it has no place of its own in the index.
    lines += [line for item in _parameters(kind) for line in ("", f".. autoclass:: {item}", "   :no-index:")]
    lines += ["```", ""]
    described = ports(component, structs)
    rows = [
        (
            f"`{port['name']}`",
            port["direction"],
            str(port["width"]),
            f"[{port['type']}](/reference/structs.md#{_anchor(port['type'])})" if "type" in port else "",
        )
        for port in described
    ]
    lines += [f"## Ports (preset {PRESET})", *table(("port", "direction", "bits", "struct"), rows)]
    lines += ["## What it costs", *_costs(name, figures)]
    return "\n".join(lines)


def _anchor(name: str) -> str:
    return name.replace("_", "-")


def _parameters(kind: type) -> list[str]:
    """The parameter classes that a block is made with."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    return [
        f"{item.__module__}.{item.__qualname__}"
        for item in hints.values()
        if isinstance(item, type) and is_dataclass(item)
    ]


def _costs(name: str, figures: dict[str, Any]) -> list[str]:
    rows = []
    for preset, blocks in figures.items():
        if name in blocks:
            row = blocks[name]
            fpga = row.get("fpga", {})
            megahertz = f"{fpga['megahertz']:g}" if fpga else ""
            rows.append((preset, *(f"{row[key]:,}" for key in SHOWN), str(fpga.get("luts", "")), megahertz))
    if not rows:
        return ["", "Measured as part of the block that holds it only.", ""]
    columns = ("preset", *SHOWN.values(), "ECP5 LUTs", "ECP5 MHz")
    return [*table(columns, rows), "How this is measured: [area and timing](/synthesis/area.md).", ""]


def structs_page() -> str:
    """Every struct and enum of the package `t3_pkg`, lowest bits first."""
    structs = PortStructs(PRESETS[PRESET])
    lines = [
        "# Structs of the ports",
        "",
        "In Verilog a port is one flat vector; `t3_pkg.sv`, which `t3rtl verilog` writes, has these structs. Their",
        f"widths are those of preset {PRESET}; what the fields mean is said in [the docstrings](/reference/python.md).",
        "",
    ]
    for name, layout in structs.layouts.items():
        rows = []
        for field, place in layout:
            kind = structs.name_of(place.shape)
            bits = str(place.offset) if place.width == 1 else f"{place.offset + place.width - 1}:{place.offset}"
            rows.append((f"`{field}`", bits, f"[{kind}](#{_anchor(kind)})" if kind else ""))
        lines += [f"## {_anchor(name)}", "", f"`{name}`, {layout.size} bits", *table(("field", "bits", "type"), rows)]
    for item in enumerations().values():
        kind = structs.name_of(item) or ""
        members = [(str(member.value), f"`{kind.removesuffix('_e').upper()}_{member.name}`") for member in item]
        lines += [f"## {_anchor(kind)}", "", f"`{kind}`", *table(("value", "name"), members)]
    return "\n".join(lines)
