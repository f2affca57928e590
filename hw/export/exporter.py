"""Verilog of the node, the near-bank unit and every block on its own, with a file list and a description in JSON."""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data, enum, wiring

from .. import messages
from ..address_map import AddressMap
from ..config import Configuration
from ..dma.engine import DmaEngine
from ..link.link_unit import LinkUnit
from ..link.packetizer import StorePacketizer
from ..memory_controller.controller import MemoryController
from ..near_bank.bank_group import BankGroupUnit
from ..node import Node
from ..registers.documents import c_header, markdown
from ..registers.map import counters, register_map
from ..registers.register_file import RegisterFile
from ..registers.systemrdl import systemrdl
from ..tracker.spill import SpillPort
from ..tracker.tracker import Tracker
from .files import fusesoc_core, lint_waivers
from .verilog import to_systemverilog

BLOCKS: dict[str, Callable[[Configuration], wiring.Component]] = {
    "t3_node": Node,
    "t3_near_bank": BankGroupUnit,
    "t3_address_map": AddressMap,
    "t3_memory_controller": MemoryController,
    "t3_tracker": Tracker,
    "t3_spill_port": SpillPort,
    "t3_dma_engine": DmaEngine,
    "t3_store_packetizer": StorePacketizer,
    "t3_link_unit": LinkUnit,
    "t3_register_file": RegisterFile,
}
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
    and counters, `t3_registers.md`, `.h` and `.rdl` (SystemRDL) the register map; `t3.core` describes the node for
    FuseSoC, `t3_lint.vlt` waives what Verilator's -Wall says of it, with reasons.
    """
    texts = {}
    description: dict[str, Any] = {"parameters": asdict(config), "modules": {}}
    for name, block in BLOCKS.items():
        component = block(config)
        description["modules"][name] = {"file": f"{name}.sv", "ports": ports(component)}
        texts[f"{name}.sv"] = to_systemverilog(component, name)
    description["enumerations"] = _enumerations()
    description["counters"] = [counter.name for counter in counters()]
    description["registers"] = {register.name: register.address for register in register_map(config)}
    texts["t3.f"] = "t3_near_bank.sv\nt3_node.sv\n"
    texts["t3.json"] = json.dumps(description, indent=1, default=str) + "\n"
    texts["t3.core"] = fusesoc_core(["t3_near_bank.sv", "t3_node.sv"], "t3_node")
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
