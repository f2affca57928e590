"""Buffer trees of a mapped netlist, made anew: abc chains its buffers where it believes to have time.

One walk against the direction of signals. A net whose load is more than its driver is meant for gets buffers: the sinks
with the most time left are put behind one together, which counts as a sink itself, until the rest is light enough (the
combination is Huffman's). "Time left" is exact for the part of the netlist already walked. Delays are taken from the
library at a nominal slew. Sizes of other gates stay as abc chose them; see :mod:`hw.synthesis.upsizing`.
"""

import bisect
import re
from collections import defaultdict
from itertools import pairwise
from typing import Any

from .liberty import Cell, Library
from .memory_macros import INPUT_LOADS, SETUP, access_time, macro

Net = int | str
GAIN = 4.0
"""Load of a gate over its input capacitance, at most (3.6 to 4 is the optimum of a chain of inverters)."""
STRETCH = 1.5
"""How much more than the load of the target gain a driver takes before it gets buffers."""
_CONSTANTS = ("0", "1", "x", "z")
_PORTS = ""
"""In place of a cell's name: the sink is a bit of an output port."""


class Family:
    """Cells that differ in strength only, weakest first; `drive`: load at which each has the target gain."""

    def __init__(self, cells: list[Cell], unit: float):
        self.cells = sorted(cells, key=lambda cell: (cell.area, sum(cell.capacitance.values())))
        self.drive = [_drive(cell, unit) for cell in self.cells]

    def fit(self, load: float) -> Cell:
        """The weakest cell that drives `load` at the target gain, else the strongest."""
        for cell, drive in zip(self.cells, self.drive, strict=True):
            if drive >= load:
                return cell
        return max(zip(self.drive, range(len(self.cells)), self.cells, strict=True))[2]


def worst_delay(cell: Cell, pin: str, load: float, slew: float) -> float:
    """Delay from `pin` to the output, the longer of both edges."""
    return max(
        (
            arc.delay[edge].at(slew, load)
            for arcs in cell.arcs.values()
            for arc in arcs
            if arc.related == pin
            for edge in (0, 1)
        ),
        default=0.0,
    )


def _drive(cell: Cell, unit: float) -> float:
    """Load that adds to the delay what a smallest inverter's gain of `GAIN` adds: `unit` picoseconds."""
    pin = next(iter(cell.capacitance))
    slew, one = 0.0, next(iter(cell.capacitance.values()))
    slope = (worst_delay(cell, pin, 11 * one, slew) - worst_delay(cell, pin, one, slew)) / (10 * one)
    return unit / slope if slope > 0 else 0.0


class Sizer:
    """Buffers `module` (yosys's JSON) anew, in place."""

    def __init__(self, module: dict[str, Any], library: Library):
        self._module = module
        self._library = library
        inverter = library.inverter
        self._one = next(iter(inverter.capacitance.values()))
        pin = next(iter(inverter.capacitance))
        self.slew = next(iter(inverter.arcs.values()))[0].slew[0].at(0, 4 * self._one)
        unit = worst_delay(inverter, pin, (GAIN + 1) * self._one, 0) - worst_delay(inverter, pin, self._one, 0)
        self._fo4 = worst_delay(inverter, pin, 4 * self._one, self.slew)
        self._unit = unit
        self._families = self._find_families()
        self._buffers = self._families.get(self._key(library.buffer)) if library.buffer else None
        self._ladder = {
            cell.name: stronger for family in self._families.values() for cell, stronger in pairwise(family.cells)
        }
        self._next_net = 1 + max((net for cell in module["cells"].values() for bits in cell["connections"].values()
                                  for net in bits if isinstance(net, int)), default=0)  # fmt: skip

    @staticmethod
    def _key(cell: Cell) -> tuple[Any, ...]:
        functions = tuple(sorted((pin, re.sub(r"\s", "", text)) for pin, text in cell.functions.items() if text))
        return (tuple(sorted(cell.capacitance)), functions, cell.clock)

    def _find_families(self) -> dict[tuple[Any, ...], Family]:
        kinds = {item["type"] for item in self._module["cells"].values() if not item["type"].startswith("$")}
        groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
        wanted = {self._key(self._library.cell(kind)) for kind in kinds}
        if self._library.buffer:
            wanted.add(self._key(self._library.buffer))
        for cell in self._library.relatives(kinds):
            if self._key(cell) in wanted:
                groups[self._key(cell)].append(cell)
        return {key: Family(cells, self._unit) for key, cells in groups.items()}

    def stronger(self, cell: Cell) -> Cell | None:
        """The next stronger cell of the same kind."""
        return self._ladder.get(cell.name)

    def run(self) -> None:
        """Walk the netlist from its ends to its starts."""
        self._collapse()
        drivers: dict[Net, tuple[str, str]] = {}
        sinks: dict[Net, list[tuple[str, str, int]]] = defaultdict(list)
        cells = self._module["cells"]
        for name, item in cells.items():
            kind = item["type"]
            if kind.startswith("$"):
                continue
            cell = self._library.cell(kind)
            for pin in cell.arcs:
                for net in item["connections"].get(pin, ()):
                    drivers[net] = (name, pin)
        for name, item in cells.items():
            macro_pins = item["type"].startswith("$")
            inputs = item.get("port_directions", {}) if macro_pins else self._library.cell(item["type"]).capacitance
            for pin, nets in item["connections"].items():
                if pin in inputs and inputs[pin] != "output":
                    for place, net in enumerate(nets):
                        sinks[net].append((name, pin, place))
        for name, port in self._module["ports"].items():
            if port["direction"] == "output":
                for place, net in enumerate(port["bits"]):
                    sinks[net].append((_PORTS, name, place))
        self._sinks = sinks
        self._after: dict[Net, float] = {}
        macros = {name: macro(name, item) for name, item in cells.items() if item["type"] == "$mem_v2"}
        self._macro_data = {
            net: (read, item)
            for item in macros.values()
            for read in item.reads
            if not read.synchronous
            for net in read.address
        }
        order = self._order(drivers, macros)
        for net in order:
            self._settle(net, drivers.get(net))

    def _collapse(self) -> None:
        """Take abc's buffers out: it chains them where it believes to have time."""
        cells = self._module["cells"]
        if self._library.buffer is None:
            return
        kind = self._key(self._library.buffer)
        alias: dict[Net, Net] = {}
        for name in [name for name, item in cells.items() if not item["type"].startswith("$")]:
            cell = self._library.cell(cells[name]["type"])
            if self._key(cell) == kind:
                nets = cells.pop(name)["connections"]
                alias[nets[next(iter(cell.arcs))][0]] = nets[next(iter(cell.capacitance))][0]

        def root(net: Net) -> Net:
            while net in alias:
                net = alias[net]
            return net

        for item in cells.values():
            for connected in item["connections"].values():
                connected[:] = map(root, connected)
        for port in self._module["ports"].values():
            port["bits"] = [root(net) for net in port["bits"]]

    def _order(self, drivers: dict[Net, tuple[str, str]], macros: dict[str, Any]) -> list[Net]:
        """Nets, each after all nets that its sinks drive."""
        cells = self._module["cells"]
        sources: dict[Net, list[Net]] = {}
        for net, (name, _) in drivers.items():
            cell = self._library.cell(cells[name]["type"])
            nets = cells[name]["connections"]
            sources[net] = [] if cell.clock else [nets[pin][0] for pin in cell.capacitance if pin in nets]
        for item in macros.values():
            for read in item.reads:
                for net in read.data:
                    sources[net] = [] if read.synchronous else list(read.address)
        every = set(self._sinks) | set(sources)
        readers: dict[Net, int] = defaultdict(int)
        for origin in sources.values():
            for net in origin:
                readers[net] += 1
        ready = [net for net in every if not readers[net] and net not in _CONSTANTS]
        order: list[Net] = []
        while ready:
            net = ready.pop()
            order.append(net)
            for source in sources.get(net, ()):
                readers[source] -= 1
                if not readers[source] and source not in _CONSTANTS:
                    ready.append(source)
        return order

    def _sink(self, sink: tuple[str, str, int]) -> tuple[float, float]:
        """Time needed behind a sink, and its load."""
        name, pin, place = sink
        if name == _PORTS:
            return self._fo4, 4 * self._one
        item = self._module["cells"][name]
        if item["type"].startswith("$"):
            needed = SETUP * self._fo4
            net = item["connections"][pin][place]
            if pin == "RD_ADDR" and net in self._macro_data:
                read, memory = self._macro_data[net]
                needed = access_time(memory.bits) * self._fo4 + max(self._after.get(data, 0.0) for data in read.data)
            return needed, INPUT_LOADS * self._one
        cell = self._library.cell(item["type"])
        load = cell.capacitance.get(pin, 0.0)
        if cell.clock:
            return (self._fo4 if pin != cell.clock else 0.0), load
        output = next(iter(cell.arcs))
        net = item["connections"][output][0]
        return worst_delay(cell, pin, self._load.get(net, 0.0), self.slew) + self._after.get(net, 0.0), load

    _load: dict[Net, float]

    def _settle(self, net: Net, driver: tuple[str, str] | None) -> None:
        """Buffer `net`."""
        if not hasattr(self, "_load"):
            self._load = {}
        clock = any(self._is_clock(sink) for sink in self._sinks.get(net, ())[:1])
        members: list[tuple[float, float, tuple[str, str, int] | None]] = sorted(
            ((*self._sink(sink), sink) for sink in self._sinks.get(net, ())), key=lambda item: item[:2]
        )
        family = self._family(driver)
        limit = 2 * self._unit_load()
        if family and driver:
            kind = self._module["cells"][driver[0]]["type"]
            limit = STRETCH * next(
                drive for cell, drive in zip(family.cells, family.drive, strict=True) if cell.name == kind
            )
        if self._buffers and not clock:
            members = self._tree(net, members, limit)
        self._load[net] = sum(item[1] for item in members)
        self._after[net] = max((item[0] for item in members), default=0.0)

    def _unit_load(self) -> float:
        return GAIN * self._one

    def _is_clock(self, sink: tuple[str, str, int]) -> bool:
        if sink[0] == _PORTS:
            return False
        kind = self._module["cells"][sink[0]]["type"]
        return sink[1] in ("RD_CLK", "WR_CLK") if kind.startswith("$") else self._library.cell(kind).clock == sink[1]

    def _family(self, driver: tuple[str, str] | None) -> Family | None:
        if driver is None:
            return None
        return self._families.get(self._key(self._library.cell(self._module["cells"][driver[0]]["type"])))

    def _tree(self, net: Net, members: list[Any], limit: float) -> list[Any]:
        """Put sinks behind buffers until the load is within `limit`; returns what is left on the net."""
        assert self._buffers is not None
        total = sum(item[1] for item in members)
        while total > limit and len(members) > 2:
            group: list[Any] = []
            weight = 0.0
            # Large groups where there is time; a group as large as needed where that is all that is missing.
            largest = min(self._buffers.drive[-1], 8 * self._unit_load())
            while members and (len(group) < 2 or weight + members[0][1] <= largest):
                group.append(members.pop(0))
                weight += group[-1][1]
            cell = self._buffers.fit(weight)
            pin = next(iter(cell.capacitance))
            output = next(iter(cell.arcs))
            new = self._next_net
            self._next_net += 1
            name = f"$buffer${new}"
            self._module["cells"][name] = {
                "type": cell.name,
                "connections": {pin: [net], output: [new]},
                "port_directions": {pin: "input", output: "output"},
                "hide_name": 1,
            }
            for *_, (owner, pins, place) in group:
                module = self._module
                bits = module["ports"][pins]["bits"] if owner == _PORTS else module["cells"][owner]["connections"][pins]
                bits[place] = new
            self._load[new] = weight
            self._after[new] = group[-1][0]
            needed = worst_delay(cell, pin, weight, self.slew) + group[-1][0]
            load = cell.capacitance[pin]
            bisect.insort(members, (needed, load, (name, pin, 0)), key=lambda item: item[0])
            total += load - weight
        return members
