"""Verilog of the node, the near-bank unit and every block on its own, with a file list and a description in JSON."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data, enum, wiring

from .. import messages
from ..blocks import BLOCKS as INVENTORY
from ..config import Configuration
from ..registers.documents import c_header, markdown
from ..registers.map import counters, register_map
from ..registers.systemrdl import systemrdl
from .files import fusesoc_core, lint_waivers
from .verilog import to_systemverilog

BLOCKS = {f"t3_{name}": block.make for name, block in INVENTORY.items() if block.make and block.exported}
"""Modules of an export. `t3_node` and `t3_near_bank` are the hardware; the others are blocks of the node on their own,
for who wants one of them in another design."""


def _fields(shape: object, low: int = 0) -> Iterator[dict[str, Any]]:
    """Where each field of a packed port lies."""
    if isinstance(shape, data.StructLayout):
        for name, field in shape:
            inner = list(_fields(field.shape, low + field.offset))
            yield {
                "name": name,
                "low": low + field.offset,
                "width": field.width,
                **({"fields": inner} if inner else {}),
            }


def ports(component: wiring.Component) -> list[dict[str, Any]]:
    """Ports of the exported module: name, direction, width in bits and, for packed ones, the fields."""
    answer: list[dict[str, Any]] = [
        {"name": "clk", "direction": "in", "width": 1, "fields": []},
        {"name": "rst", "direction": "in", "width": 1, "fields": []},
    ]
    for path, member, _ in component.signature.flatten(component):
        shape = member.shape
        width = Shape.cast(shape).width
        answer.append(
            {
                "name": "__".join(map(str, path)),
                "direction": "in" if member.flow == wiring.In else "out",
                "width": width,
                "fields": list(_fields(shape)) if isinstance(shape, ShapeCastable) else [],
            }
        )
    return answer


def _enumerations() -> dict[str, dict[str, int]]:
    return {
        name: {member.name: member.value for member in item}
        for name, item in vars(messages).items()
        if isinstance(item, type) and issubclass(item, enum.Enum) and item.__module__ == messages.__name__
    }


def export(config: Configuration, out: Path) -> list[Path]:
    """Write the export of `config` into folder `out`; returns the files. Nothing is written unless all of it can be.

    `t3.f` lists the Verilog files of the node with its near-bank unit, `t3.json` the parameters, ports, enumerations
    and counters, `t3_registers.md`, `.h` and `.rdl` (SystemRDL) the register map; `t3.core` describes the node with its
    near-bank unit for FuseSoC, `t3_<block>.core` a block alone; `t3_lint.vlt` waives what Verilator's -Wall says, with
    reasons.
    """
    texts = {}
    description: dict[str, Any] = {"parameters": asdict(config), "modules": {}}
    for name, block in BLOCKS.items():
        component = block(config)
        description["modules"][name] = {"file": f"{name}.sv", "ports": ports(component)}
        texts[f"{name}.sv"] = to_systemverilog(component, name)
    description["enumerations"] = _enumerations()
    description["counters"] = [counter.name for counter in counters(config.links)]
    description["registers"] = {register.name: register.address for register in register_map(config)}
    texts["t3.f"] = "t3_near_bank.sv\nt3_node.sv\n"
    texts["t3.json"] = json.dumps(description, indent=1, default=str) + "\n"
    texts["t3.core"] = fusesoc_core("t3", "node and near-bank unit", ["t3_near_bank.sv", "t3_node.sv"], "t3_node")
    for name in BLOCKS:
        if name != "t3_node":
            title = name.removeprefix("t3_").replace("_", " ")
            texts[f"{name}.core"] = fusesoc_core(name, title, [f"{name}.sv"], name)
    texts["t3_lint.vlt"] = lint_waivers()
    texts["t3_registers.md"] = markdown(config)
    texts["t3_registers.rdl"] = systemrdl(config)
    texts["t3_registers.h"] = c_header(config)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as draft:
        for name, text in texts.items():
            (Path(draft) / name).write_text(text)
        for name in texts:
            (Path(draft) / name).replace(out / name)
    return [out / name for name in texts]
