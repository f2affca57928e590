"""Verilog of the node, the near-bank unit and every block on its own, with a file list and a description in JSON."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data, wiring

from ..blocks import BLOCKS as INVENTORY
from ..config import Configuration
from ..registers.counter_addresses import counters
from ..registers.documents import c_header, markdown
from ..registers.map import register_map
from ..registers.systemrdl import systemrdl
from ..release import LICENCE, marked, release
from .files import fusesoc_core, lint_waivers, package_core
from .port_structs import PACKAGE, PortStructs, enumerations
from .verilog import to_systemverilog

BLOCKS = {f"t3_{name}": block.make for name, block in INVENTORY.items() if block.make and block.exported}
"""Modules of an export. `t3_node` and `t3_near_bank` are the hardware; the others are blocks of the node on their own,
for who wants one of them in another design."""


COMMENTS = {
    ".sv": ("//", ""),
    ".f": ("//", ""),
    ".vlt": ("//", ""),
    ".rdl": ("//", ""),
    ".h": ("/*", "*/"),
    ".md": ("<!--", "-->"),
}
"""Suffix of an exported file -> how a comment begins and ends. JSON has none: there, entries say licence and version.
A FuseSoC core begins with its own first line and has a comment after it."""


def _fields(shape: object, types: PortStructs | None, low: int = 0) -> Iterator[dict[str, Any]]:
    """Where each field of a packed port lies, and its type in the package."""
    if isinstance(shape, data.StructLayout):
        for name, field in shape:
            inner = list(_fields(field.shape, types, low + field.offset))
            kind = types.name_of(field.shape) if types else None
            yield {
                "name": name,
                "low": low + field.offset,
                "width": field.width,
                **({"type": kind} if kind else {}),
                **({"fields": inner} if inner else {}),
            }


def ports(component: wiring.Component, types: PortStructs | None = None) -> list[dict[str, Any]]:
    """Ports of the exported module: name, direction, width in bits and, for packed ones, the fields, and with
    `types` the type in the package `t3_pkg`."""
    answer: list[dict[str, Any]] = [
        {"name": "clk", "direction": "in", "width": 1, "fields": []},
        {"name": "rst", "direction": "in", "width": 1, "fields": []},
    ]
    for path, member, _ in component.signature.flatten(component):
        shape = member.shape
        width = Shape.cast(shape).width
        kind = types.name_of(shape) if types else None
        answer.append(
            {
                "name": "__".join(map(str, path)),
                "direction": "in" if member.flow == wiring.In else "out",
                "width": width,
                **({"type": kind} if kind else {}),
                "fields": list(_fields(shape, types)) if isinstance(shape, ShapeCastable) else [],
            }
        )
    return answer


def marked_file(name: str, text: str) -> str:
    """`text` of file `name` with licence and release at its head."""
    if name.endswith(".json"):
        return text
    if name.endswith(".core"):
        first, rest = text.split("\n", 1)
        return f"{first}\n{marked(rest, '#')}"
    return marked(text, *COMMENTS[Path(name).suffix])


def export(config: Configuration, out: Path) -> list[Path]:
    """Write the export of `config` into folder `out`; returns the files. Nothing is written unless all of it can be.

    `t3.f` lists the Verilog files of the node with its near-bank unit, `t3.json` the parameters, ports, enumerations
    and counters, `t3_registers.md`, `.h` and `.rdl` (SystemRDL) the register map; `t3.core` describes the node with its
    near-bank unit for FuseSoC, `t3_<block>.core` a block alone; `t3_pkg.sv` and `.core` are the package of the structs
    that ports are, for who instantiates a module; `t3_lint.vlt` waives what Verilator's -Wall says, with reasons.
    """
    types = PortStructs(config)
    texts = {f"{PACKAGE}.sv": types.text()}
    description: dict[str, Any] = {
        "license": LICENCE,
        "version": release(),
        "parameters": asdict(config),
        "modules": {},
    }
    for name, block in BLOCKS.items():
        component = block(config)
        description["modules"][name] = {"file": f"{name}.sv", "ports": ports(component, types)}
        texts[f"{name}.sv"] = to_systemverilog(component, name)
    description["enumerations"] = {
        name: {member.name: member.value for member in item} for name, item in enumerations().items()
    }
    description["counters"] = [counter.name for counter in counters(config.links, config.protects_memories)]
    description["registers"] = {register.name: register.address for register in register_map(config)}
    node = ["t3_near_bank.sv", "t3_node.sv"]
    texts["t3.f"] = "".join(f"{file}\n" for file in [f"{PACKAGE}.sv", *node])
    texts["t3.json"] = json.dumps(description, indent=1, default=str) + "\n"
    texts["t3.core"] = fusesoc_core("t3", "node and near-bank unit", node, "t3_node")
    for name in BLOCKS:
        if name != "t3_node":
            title = name.removeprefix("t3_").replace("_", " ")
            texts[f"{name}.core"] = fusesoc_core(name, title, [f"{name}.sv"], name)
    texts[f"{PACKAGE}.core"] = package_core()
    texts["t3_lint.vlt"] = lint_waivers()
    texts["t3_registers.md"] = markdown(config)
    texts["t3_registers.rdl"] = systemrdl(config)
    texts["t3_registers.h"] = c_header(config)
    texts = {name: marked_file(name, text) for name, text in texts.items()}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as draft:
        for name, text in texts.items():
            (Path(draft) / name).write_text(text)
        for name in texts:
            (Path(draft) / name).replace(out / name)
    return [out / name for name in texts]
