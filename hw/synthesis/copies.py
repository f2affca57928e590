"""A netlist in which a module stands several times, put together: one of them whole, of the others what a path from or
to the rest can pass (an interface logic model), so that a chip of many like parts is timed as one netlist.

Paths within the module are those of the whole one. Of the others every cell between a port and the next register or
macro is there, and what else loads their nets; the rest of them counts in the area.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .liberty import Library
from .memory_macros import macro

Net = int | str
Module = dict[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """What is not in the netlist of all copies but the first: the area of its cells, as they were mapped, and its bits
    in macros."""

    area: float
    macro_bits: int


class _Part:
    """A flat module as a graph from nets to cells and on."""

    def __init__(self, module: Module, library: Library):
        self._ports = module["ports"]
        self._drivers: dict[Net, str] = {}
        self._readers: dict[Net, list[str]] = defaultdict(list)
        self._through: dict[str, list[tuple[list[Net], list[Net]]]] = {}
        """By cell: inputs from which a path goes on to outputs within the cycle."""
        for name, item in module["cells"].items():
            nets = item["connections"]
            if item["type"] == "$mem_v2":
                reads = macro(name, item).reads
                self._through[name] = [(read.address, read.data) for read in reads if not read.synchronous]
                driven = {net for read in reads for net in read.data}
                outputs = {"RD_DATA"}
            elif item["type"].startswith("$"):
                continue
            else:
                cell = library.cell(item["type"])
                outputs = set(cell.arcs)
                driven = {net for pin in outputs for net in nets.get(pin, ())}
                inputs = [net for pin in cell.capacitance for net in nets.get(pin, ())]
                self._through[name] = [] if cell.clock else [(inputs, list(driven))]
            self._drivers |= dict.fromkeys(driven, name)
            for pin, connected in nets.items():
                if pin not in outputs:
                    for net in connected:
                        self._readers[net].append(name)

    def seen_from_ports(self, ideal: Iterable[str]) -> set[str]:
        """Cells that a path from an input but `ideal` ones, or to an output, passes, and those that load its nets."""
        after = self._reach(self._bits("input", ideal), forward=True)
        before = self._reach(self._bits("output", ()), forward=False)
        driven = {net for name in after | before for _, nets in self._through[name] for net in nets}
        driven |= {net for net, name in self._drivers.items() if name in before}
        return after | before | {name for net in driven for name in self._readers[net]}

    def _bits(self, direction: str, apart: Iterable[str]) -> list[Net]:
        ports = [
            port for name, port in self._ports.items() if port["direction"] == direction and name not in set(apart)
        ]
        return [net for port in ports for net in port["bits"]]

    def _reach(self, nets: list[Net], forward: bool) -> set[str]:
        found: set[str] = set()
        seen: set[Net] = set()
        waiting = nets
        while waiting:
            net = waiting.pop()
            if net in seen or not isinstance(net, int):
                continue
            seen.add(net)
            cells = self._readers[net] if forward else [self._drivers[net]] if net in self._drivers else []
            for name in cells:
                found.add(name)
                for inputs, outputs in self._through[name]:
                    if net in (inputs if forward else outputs):
                        waiting += outputs if forward else inputs
        return found


def join(
    top: Module, part: Module, copies: Sequence[str], library: Library, ideal: Iterable[str]
) -> tuple[Module, LeftOut]:
    """Flat netlist `top`, in which cells `copies` are of module `part`, with the first of them whole; `ideal`: inputs
    of it, such as the clock, from which no path begins."""
    graph = _Part(part, library)
    seen = graph.seen_from_ports(ideal)
    joined: Module = {"ports": top["ports"], "cells": {}, "netnames": dict(top["netnames"])}
    joined["cells"] = {name: item for name, item in top["cells"].items() if name not in copies}
    nets = _Nets(top)
    for copy in copies:
        kept = [(name, item) for name, item in part["cells"].items() if copy == copies[0] or name in seen]
        number = nets.of_copy(part, top["cells"][copy]["connections"])
        for name, item in kept:
            connections = {pin: [number(net) for net in bits] for pin, bits in item["connections"].items()}
            joined["cells"][f"{copy}.{name}"] = item | {"connections": connections}
        for name, wire in part["netnames"].items():
            joined["netnames"][f"{copy}.{name}"] = wire | {"bits": [number(net) for net in wire["bits"]]}
    nets.unite(joined)
    left_out = [(name, item) for name, item in part["cells"].items() if name not in seen]
    area = sum(library.cell(item["type"]).area for _, item in left_out if not item["type"].startswith("$"))
    bits = sum(macro(name, item).bits for name, item in left_out if item["type"] == "$mem_v2")
    return joined, LeftOut((len(copies) - 1) * area, (len(copies) - 1) * bits)


class _Nets:
    """Numbers of the nets of the copies, and which nets of the top turn out to be one."""

    def __init__(self, top: Module):
        cells = top["cells"].values()
        self._next = 1 + max((net for item in cells for bits in item["connections"].values() for net in bits
                              if isinstance(net, int)), default=0)  # fmt: skip
        self._same: dict[Net, Net] = {}

    def of_copy(self, part: Module, connections: dict[str, list[Net]]) -> Any:
        """A function from the nets of `part` to those of the copy with these `connections`."""
        numbers: dict[Net, Net] = {}
        for direction in ("input", "output"):
            for name, port in part["ports"].items():
                if port["direction"] != direction:
                    continue
                for inside, outside in zip(port["bits"], connections.get(name, ()), strict=False):
                    known = numbers.setdefault(inside, outside) if isinstance(inside, int) else inside
                    if self._root(known) != self._root(outside):
                        self._same[self._root(outside)] = self._root(known)

        def number(net: Net) -> Net:
            if isinstance(net, str):
                return net
            if net not in numbers:
                numbers[net] = self._next
                self._next += 1
            return numbers[net]

        return number

    def _root(self, net: Net) -> Net:
        while net in self._same:
            net = self._same[net]
        return net

    def unite(self, module: Module) -> None:
        """Give nets that are one the same number."""
        if self._same:
            for item in module["cells"].values():
                connected = item["connections"]
                item["connections"] = {pin: [self._root(net) for net in bits] for pin, bits in connected.items()}
            for port in module["ports"].values():
                port["bits"] = [self._root(net) for net in port["bits"]]
