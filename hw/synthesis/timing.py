"""Static timing of a mapped netlist: arrival times with the loads of the fan-out, no wires, ideal clock.

Every path begins at a flip-flop, a memory macro or an input port and ends at one. A block is timed as if its ports led
to registers: an input arrives a flip-flop's delay after the edge, an output has to be there a set-up time before it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from .liberty import Arc, Cell, Library, Table
from .memory_macros import INPUT_LOADS, SETUP, Macro, access_time, macro

Net = int | str
"""A net of yosys's JSON netlist: a number, or "0", "1", "x", "z" for a constant."""
Node = tuple[Cell | Macro, dict[str, list[Net]], int, list[Net], list[Net]]
"""A combinational cell with the nets at its pins, or the read port with this number of a macro; nets in and out."""
RISE, FALL = 0, 1
IDEAL = ("clk", "rst")
"""Ports that start no path: clock and reset reach the flip-flops by trees of their own."""
PORT_LOADS = 4
"""Load of an output port, in smallest inverters."""


@dataclass(frozen=True)
class Point:
    """A step of a path: the `net` reached, through a cell of kind `through`, `time` in ps after the clock edge."""

    net: str
    through: str
    time: float


@dataclass(frozen=True)
class Path:
    """A path from `start` to `end` and its length in ps, set-up time included."""

    start: str
    end: str
    length: float
    points: list[Point]


@dataclass(frozen=True)
class Timing:
    """Result of an analysis: `fo4` of the library in ps, and the longest path to each register or port,
    longest first."""

    fo4: float
    paths: list[Path]

    @property
    def critical(self) -> float:
        """The longest path in FO4; 0 when there is no path at all."""
        return self.paths[0].length / self.fo4 if self.paths else 0.0


def fo4_delay(library: Library) -> float:
    """Delay of the smallest inverter driving four like it, mean of both edges, with the slews of a chain of such."""
    cell = library.inverter
    arcs = next(iter(cell.arcs.values()))
    arc, load = arcs[0], 4 * next(iter(cell.capacitance.values()))
    slew = [0.0, 0.0]
    for _ in range(10):
        slew = [arc.slew[RISE].at(slew[FALL], load), arc.slew[FALL].at(slew[RISE], load)]
    return (arc.delay[RISE].at(slew[FALL], load) + arc.delay[FALL].at(slew[RISE], load)) / 2 * library.scale


def _sources(sense: str, edge: int) -> tuple[int, ...]:
    """Input edges that cause output edge `edge`."""
    if sense == "positive_unate":
        return (edge,)
    if sense == "negative_unate":
        return (1 - edge,)
    return (RISE, FALL)


class Analysis:
    """One netlist (`module` of yosys's JSON) against one library.

    :meth:`run` propagates all arrival times, once; :meth:`retype` follows a change of some cells' kinds, and costs as
    much as the part of the netlist whose times it changes.
    """

    def __init__(self, module: dict[str, Any], library: Library):
        self._library = library
        self._module = module
        self.fo4 = fo4_delay(library)
        self._unit = self.fo4 / library.scale
        self._names: dict[Net, str] = {}
        self._arrival: dict[Net, list[float]] = {}
        self._slew: dict[Net, list[float]] = {}
        self._cause: dict[Net, tuple[Net | None, str]] = {}
        self._load: dict[Net, float] = defaultdict(float)
        self._sinks: dict[Net, list[tuple[int, str]]] = defaultdict(list)
        self._fixed: dict[Net, list[float]] = defaultdict(list)
        self._starts: dict[Net, tuple[Cell | Macro, str]] = {}
        self.cells: list[tuple[str, Cell, dict[str, list[Net]]]] = []
        self.macros: list[Macro] = []
        for name, item in module["cells"].items():
            if item["type"] == "$mem_v2":
                self.macros.append(macro(name, item))
            elif not item["type"].startswith("$"):
                self.cells.append((name, library.cell(item["type"]), item["connections"]))
            elif item["type"] not in ("$scopeinfo", "$assert", "$check", "$print"):
                raise ValueError(f"cell {name} of type {item['type']} was not mapped")
        self._index = {name: index for index, (name, _, _) in enumerate(self.cells)}

    @property
    def area(self) -> float:
        """Sum of the areas of all cells; macros have none here."""
        return sum(cell.area for _, cell, _ in self.cells)

    def run(self) -> Timing:
        """Propagate arrival times and collect the longest path to every end point."""
        self._name_nets()
        self._sum_loads()
        self._start()
        self._propagate()
        return self.timing()

    def timing(self) -> Timing:
        """The longest path to every end point, as the cells are now."""
        return Timing(self.fo4, self._ends())

    @property
    def critical(self) -> float:
        """The longest path in FO4, as the cells are now; 0 when there is no path at all."""
        return max((length for _, _, length in self._lengths()), default=0.0) * self._library.scale / self.fo4

    def excess(self, bound: float) -> float:
        """The squares of what the longest path to each end has beyond `bound`, in FO4, summed up."""
        unit = self._library.scale / self.fo4
        return sum(max(length * unit - bound, 0.0) ** 2 for _, _, length in self._lengths())

    def retype(self, kinds: Mapping[str, Cell]) -> None:
        """Give combinational cells, by name, other kinds with the same pins, here and in the netlist.

        Times are worked out anew from there on, as far as they change.
        """
        touched: dict[Net, None] = {}
        stale: set[int] = set()
        for name, cell in kinds.items():
            index = self._index[name]
            nets = self.cells[index][2]
            self._module["cells"][name]["type"] = cell.name
            self.cells[index] = (name, cell, nets)
            touched.update((net, None) for pin in cell.capacitance for net in nets.get(pin, ()))
            driven = next(net for output in cell.arcs for net in nets.get(output, ()))
            rank = self._rank[driven]
            self._order[rank] = (cell, *self._order[rank][1:])
            stale.add(rank)
        for net in touched:
            self._load[net] = self._sum_load(net)
            if net in self._rank:
                stale.add(self._rank[net])
            elif net in self._starts and self._renew(net):
                stale.update(self._readers[net])
        self._follow(stale)

    def _follow(self, stale: set[int]) -> None:
        """Evaluate nodes, given by their place in the order, and those behind them as long as anything changes."""
        waiting = list(stale)
        heapify(waiting)
        while waiting:
            rank = heappop(waiting)
            stale.discard(rank)
            outputs = self._order[rank][4]
            before = [(self._arrival.pop(net, None), self._slew.pop(net, None)) for net in outputs]
            self._evaluate_node(self._order[rank])
            for net, was in zip(outputs, before, strict=True):
                if (self._arrival.get(net), self._slew.get(net)) != was:
                    for reader in self._readers[net]:
                        if reader not in stale:
                            stale.add(reader)
                            heappush(waiting, reader)

    def _name_nets(self) -> None:
        def rank(item: tuple[str, dict[str, Any]]) -> tuple[bool, int]:
            return (bool(item[1]["hide_name"]), item[0].count("."))

        for name, wire in sorted(self._module["netnames"].items(), key=rank):
            for place, net in enumerate(wire["bits"]):
                self._names.setdefault(net, f"{name}[{place}]" if len(wire["bits"]) > 1 else name)

    def _sum_loads(self) -> None:
        inverter = next(iter(self._library.inverter.capacitance.values()))
        for index, (_, cell, nets) in enumerate(self.cells):
            for pin in cell.capacitance:
                for net in nets.get(pin, ()):
                    self._sinks[net].append((index, pin))
        for item in self.macros:
            for net in (*item.sampled, *(net for read in item.reads if not read.synchronous for net in read.address)):
                self._fixed[net].append(INPUT_LOADS * inverter)
        for port in self._module["ports"].values():
            if port["direction"] == "output":
                for net in port["bits"]:
                    self._fixed[net].append(PORT_LOADS * inverter)
        for net in {**self._sinks, **self._fixed}:
            self._load[net] = self._sum_load(net)

    def _sum_load(self, net: Net) -> float:
        cells = sum((self.cells[index][1].capacitance[pin] for index, pin in self._sinks.get(net, ())), 0.0)
        return sum(self._fixed.get(net, ()), cells)

    def _improve(self, net: Net, edge: int, time: float, slew: float, cause: Net | None, through: str) -> None:
        arrival = self._arrival.setdefault(net, [-1.0, -1.0])
        slews = self._slew.setdefault(net, [0.0, 0.0])
        if time > max(arrival):
            self._cause[net] = (cause, through)
        arrival[edge] = max(arrival[edge], time)
        slews[edge] = max(slews[edge], slew)

    def _from_clock(self, net: Net, cell: Cell, through: str) -> None:
        load = self._load[net]
        for arc in next(iter(cell.arcs.values())):
            if arc.related == cell.clock:
                for edge in (RISE, FALL):
                    self._improve(net, edge, arc.delay[edge].at(0, load), arc.slew[edge].at(0, load), None, through)

    def _start(self) -> None:
        flip_flop = self._library.flip_flop
        assert flip_flop is not None
        for name, port in self._module["ports"].items():
            if port["direction"] == "input" and name not in IDEAL:
                for net in port["bits"]:
                    self._starts[net] = flip_flop, "input port"
        for _, cell, nets in self.cells:
            if cell.clock:
                for output in cell.arcs:
                    for net in nets.get(output, ()):
                        self._starts[net] = cell, cell.name
        for item in self.macros:
            for read in item.reads:
                if read.synchronous:
                    for net in read.data:
                        self._starts[net] = item, ""
        for net in self._starts:
            self._renew(net)

    def _renew(self, net: Net) -> bool:
        """Times of a net on which paths begin, with its load as it is; whether they changed."""
        before = self._arrival.pop(net, None), self._slew.pop(net, None)
        subject, through = self._starts[net]
        if isinstance(subject, Cell):
            self._from_clock(net, subject, through)
        else:
            self._from_macro(net, 0.0, None, subject)
        return (self._arrival.get(net), self._slew.get(net)) != before

    def _from_macro(self, net: Net, time: float, cause: Net | None, item: Macro) -> None:
        """Data of a macro: the access, and the delay of a flip-flop's output stage for the load beyond its own."""
        flip_flop = self._library.flip_flop
        assert flip_flop is not None
        arc = next(iter(flip_flop.arcs.values()))[0]
        for edge in (RISE, FALL):
            driving = arc.delay[edge].at(0, self._load[net]) - arc.delay[edge].at(0, 0)
            delay = access_time(item.bits) * self._unit + driving
            through = f"memory of {item.words} x {item.width}"
            self._improve(net, edge, time + delay, arc.slew[edge].at(0, self._load[net]), cause, through)

    def _propagate(self) -> None:
        """Kahn's order over the combinational cells and the asynchronous reads."""
        nodes: list[Node] = []
        for _, cell, nets in self.cells:
            if not cell.clock:
                inputs = [net for pin in cell.capacitance for net in nets.get(pin, ())]
                nodes.append((cell, nets, 0, inputs, [net for pin in cell.arcs for net in nets.get(pin, ())]))
        for item in self.macros:
            for number, read in enumerate(item.reads):
                if not read.synchronous:
                    nodes.append((item, {}, number, read.address, read.data))
        driven = {net for *_, outputs in nodes for net in outputs}
        waiting = [0] * len(nodes)
        readers: dict[Net, list[int]] = defaultdict(list)
        for index, (_, _, _, inputs, _) in enumerate(nodes):
            for net in inputs:
                readers[net].append(index)
                if net in driven:
                    waiting[index] += 1
        ready = [index for index, count in enumerate(waiting) if not count]
        place = [0] * len(nodes)
        self._order: list[Node] = []
        while ready:
            index = ready.pop()
            node = nodes[index]
            place[index] = len(self._order)
            self._order.append(node)
            self._evaluate_node(node)
            for net in node[4]:
                for index in readers[net]:
                    waiting[index] -= 1
                    if not waiting[index]:
                        ready.append(index)
        if len(self._order) != len(nodes):
            raise ValueError("the netlist has a combinational loop")
        self._rank = {net: rank for rank, (*_, outputs) in enumerate(self._order) for net in outputs}
        self._readers = defaultdict(list, {net: [place[index] for index in found] for net, found in readers.items()})

    def _evaluate_node(self, node: Node) -> None:
        subject, nets, number, _, _ = node
        if isinstance(subject, Cell):
            self._evaluate(subject, nets)
            return
        read = subject.reads[number]
        late = max(read.address, key=lambda net: max(self._arrival.get(net, (0.0,))))
        for net in read.data:
            self._from_macro(net, max(self._arrival.get(late, (0.0,))), late, subject)

    def _evaluate(self, cell: Cell, nets: dict[str, list[Net]]) -> None:
        for output, arcs in cell.arcs.items():
            for target in nets.get(output, ()):
                load = self._load[target]
                for arc in arcs:
                    self._along(arc, nets[arc.related][0], target, load, cell.name)

    def _along(self, arc: Arc, source: Net, target: Net, load: float, through: str) -> None:
        arrival = self._arrival.get(source)
        if arrival is None:
            return
        slews = self._slew[source]
        for edge in (RISE, FALL):
            for cause in _sources(arc.sense, edge):
                if arrival[cause] >= 0:
                    time = arrival[cause] + arc.delay[edge].at(slews[cause], load)
                    self._improve(target, edge, time, arc.slew[edge].at(slews[cause], load), source, through)

    def load(self, net: Net) -> float:
        """Capacitance that `net` drives."""
        return self._load[net]

    def cell(self, name: str) -> tuple[Cell, dict[str, list[Net]]]:
        """Kind of a cell, and the nets at its pins."""
        _, cell, nets = self.cells[self._index[name]]
        return cell, nets

    def long_paths(self, share: float) -> Iterator[list[Net]]:
        """After :meth:`run`: for each end whose path is at least `share` of the longest, the nets of that path."""
        ends = [(net, length) for _, net, length in self._lengths()]
        least = share * max((length for _, length in ends), default=0.0)
        for end in dict.fromkeys(net for net, length in ends if length >= least):
            path: list[Net] = []
            current: Net | None = end
            while current is not None:
                path.append(current)
                current, _ = self._cause[current]
            yield path[::-1]

    def _lengths(self) -> Iterator[tuple[str, Net, float]]:
        """Every end of a path: name of the register or port, net, time until it is stored there."""
        flip_flop = self._library.flip_flop
        assert flip_flop is not None
        setup = next(iter(flip_flop.setup.values()))

        def length(net: Net, tables: tuple[Table, Table] | None) -> float:
            slews = self._slew[net]
            return max(
                time + (tables[edge].at(slews[edge], 0) if tables else SETUP * self._unit)
                for edge, time in enumerate(self._arrival[net])
                if time >= 0
            )

        for _, cell, nets in self.cells:
            for pin, tables in cell.setup.items():
                state = next((net for output in cell.arcs for net in nets.get(output, ())), None)
                name = self._names.get(state, "?") if state is not None else "?"
                if nets[pin][0] in self._arrival:
                    yield name.partition("[")[0], nets[pin][0], length(nets[pin][0], tables)
        for item in self.macros:
            for net in filter(self._arrival.__contains__, item.sampled):
                yield f"memory {item.words} x {item.width} {item.name}", net, length(net, None)
        for name, port in self._module["ports"].items():
            if port["direction"] == "output":
                for net in filter(self._arrival.__contains__, port["bits"]):
                    yield f"port {name}", net, length(net, setup)

    def _ends(self) -> list[Path]:
        worst: dict[str, tuple[float, Net]] = {}
        for name, net, length in self._lengths():
            if length > worst.get(name, (-1.0, 0))[0]:
                worst[name] = (length, net)
        ordered = sorted(worst.items(), key=lambda item: -item[1][0])
        return [self._trace(name, net, length) for name, (length, net) in ordered]

    def _trace(self, end: str, net: Net, length: float) -> Path:
        points: list[Point] = []
        current: Net | None = net
        while current is not None:
            cause, through = self._cause[current]
            time = max(self._arrival[current]) * self._library.scale
            points.append(Point(self._names.get(current, "?"), through, time))
            current = cause
        points.reverse()
        return Path(points[0].net, end, length * self._library.scale, points)
