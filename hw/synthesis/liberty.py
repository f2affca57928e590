"""Reads what timing needs of Liberty files (.lib, .lib.gz): cells, their areas, pins, delay and set-up tables.

Cells are parsed when they are asked for: a real library has tens of megabytes, a netlist uses a few dozen cells.
"""

import bisect
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}();:,])|([^\s{}();:,"\\]+)|/\*.*?\*/|\\\s*\n|\s+', re.DOTALL)
_CELL = re.compile(r'^[ \t]*cell\s*\(\s*"?([^")\s]+)"?\s*\)\s*\{', re.MULTILINE)
_TEMPLATE = re.compile(r'^[ \t]*lu_table_template\s*\(\s*"?([^")\s]+)"?\s*\)\s*\{', re.MULTILINE)
_TIME_UNIT = re.compile(r'^\s*time_unit\s*:\s*"?\s*([\d.]+)\s*([pn])s', re.MULTILINE)
_INVERTER = re.compile(r"!\s*\(?\s*(\w+)\s*\)?|\(?\s*(\w+)\s*\)?\s*'")
_NAND = re.compile(r"!\s*\(\s*\w+\s*[&*]\s*\w+\s*\)|\(?!\s*\w+\)?\s*[|+]\s*\(?!\s*\w+\)?")


_BUFFER = re.compile(r"\(?\s*\w+\s*\)?")
_FUNCTION = re.compile(r'^\s*(?:function|clocked_on|next_state)\s*:\s*("[^"]*")', re.MULTILINE)


class LibertyError(ValueError):
    """A Liberty file cannot be read, or lacks what is needed."""


@dataclass
class Group:
    """`kind (name) { ... }` of a Liberty file."""

    kind: str
    name: str
    values: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    def all(self, *kinds: str) -> Iterator["Group"]:
        """Its groups of these kinds."""
        return (group for group in self.groups if group.kind in kinds)

    def value(self, key: str, default: str = "") -> str:
        """The last value given to an attribute."""
        return self.values.get(key, [default])[-1]


def parse_group(text: str, start: int, source: str) -> Group:
    """The group that begins at `start`."""

    def tokens() -> Iterator[str]:
        position = start
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                break
            position = match.end()
            token = match[1] if match[1] is not None else match[2] or match[3]
            if token is not None:
                yield token
        raise LibertyError(f"{source}: the file ends within a group or holds something that is not Liberty")

    stack: list[Group] = []
    words: list[str] = []
    arguments: list[str] | None = None
    for token in tokens():
        if token == "(":
            arguments = []
        elif token == "{":
            if not words:
                raise LibertyError(f"{source}: a group without a name")
            group = Group(words[0], (arguments or [""])[0])
            if stack:
                stack[-1].groups.append(group)
            stack.append(group)
            words, arguments = [], None
        elif token == "}":
            closed = stack.pop()
            if not stack:
                return closed
            words, arguments = [], None
        elif token == ";" or (token == ")" and words and words[0] in ("values", "index_1", "index_2")):
            if stack and words:
                stack[-1].values.setdefault(words[0], []).extend(arguments or words[1:])
            words, arguments = [], None
        elif token in ":,)":
            continue
        elif arguments is not None:
            arguments.append(token)
        else:
            words.append(token)
    raise AssertionError("tokens() never ends by itself")


@dataclass(frozen=True)
class Table:
    """A delay, transition or constraint over `rows` (input slew) and `columns` (load, or the clock's slew)."""

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def at(self, row: float, column: float) -> float:
        """Bilinear between the points, continued in a straight line beyond them."""
        if len(self.rows) == 1:
            return self._along(self.values[0], column)
        low = min(max(bisect.bisect_right(self.rows, row) - 1, 0), len(self.rows) - 2)
        first = self._along(self.values[low], column)
        if row == self.rows[low]:
            return first
        share = (row - self.rows[low]) / (self.rows[low + 1] - self.rows[low])
        return first + share * (self._along(self.values[low + 1], column) - first)

    def _along(self, values: tuple[float, ...], column: float) -> float:
        columns = self.columns
        if len(columns) == 1:
            return values[0]
        low = min(max(bisect.bisect_right(columns, column) - 1, 0), len(columns) - 2)
        share = (column - columns[low]) / (columns[low + 1] - columns[low])
        return values[low] + share * (values[low + 1] - values[low])


@dataclass(frozen=True)
class Arc:
    """Delay from input `related` to an output: per output edge (rise, fall) the table of delay and of slew."""

    related: str
    sense: str
    delay: tuple[Table, Table]
    slew: tuple[Table, Table]


@dataclass(frozen=True)
class Cell:
    """A cell: `area`, input `capacitance` by pin, `arcs` by output, `setup` tables (rise, fall) by data pin, `clock`
    pin of a flip-flop ("" for others), `functions` of the outputs."""

    name: str
    area: float
    capacitance: dict[str, float]
    arcs: dict[str, list[Arc]]
    setup: dict[str, tuple[Table, Table]]
    clock: str
    functions: dict[str, str]


def _numbers(texts: list[str]) -> tuple[float, ...]:
    return tuple(float(word) for text in texts for word in text.replace(",", " ").split())


class Library:
    """Cells of some Liberty files, taken together.

    Raises :class:`LibertyError` (one sentence naming the file) when a file is missing, is not Liberty, has a cell of
    another file (a second corner), or the library lacks an inverter, a two-input NAND or a flip-flop.
    """

    def __init__(self, paths: list[Path]):
        self._texts: dict[str, str] = {}
        self._where: dict[str, tuple[str, int]] = {}
        self._templates: dict[str, dict[str, Group]] = {}
        self._cells: dict[str, Cell] = {}
        self.scale = 1.0
        """Picoseconds per time unit."""
        if not paths:
            raise LibertyError("no Liberty file was given")
        for path in paths:
            self._read(path)
        missing = [
            what
            for what, cell in (
                ("inverter", self.inverter),
                ("two-input NAND", self.nand),
                ("flip-flop", self.flip_flop),
            )
            if not cell
        ]
        if missing:
            raise LibertyError(f"{', '.join(map(str, paths))}: the library has no {' and no '.join(missing)}")

    def _read(self, path: Path) -> None:
        source = str(path)
        try:
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", errors="replace")
        except (OSError, EOFError, zlib.error) as error:
            raise LibertyError(f"{source}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
        unit = _TIME_UNIT.search(text)
        if not re.search(r"^\s*library\s*\(", text, re.MULTILINE) or unit is None:
            raise LibertyError(f"{source}: not a Liberty file (no library group with a time_unit)")
        if text.count("{") != text.count("}"):
            raise LibertyError(f"{source}: malformed Liberty, its braces do not match")
        self.scale = float(unit[1]) * (1000 if unit[2] == "n" else 1)
        self._texts[source] = text
        self._templates[source] = {
            match[1]: parse_group(text, match.start(), source) for match in _TEMPLATE.finditer(text)
        }
        for match in _CELL.finditer(text):
            other, _ = self._where.setdefault(match[1], (source, match.start()))
            if other != source:
                raise LibertyError(f"{source}: cell {match[1]} is in {other} too; give the files of one corner")

    @property
    def names(self) -> list[str]:
        """Names of all cells."""
        return list(self._where)

    def cell(self, name: str) -> Cell:
        """The cell called `name`."""
        if name not in self._cells:
            source, start = self._where[name]
            try:
                self._cells[name] = self._convert(parse_group(self._texts[source], start, source), source)
            except (ValueError, IndexError, KeyError) as error:
                if isinstance(error, LibertyError):
                    raise
                raise LibertyError(f"{source}: malformed Liberty in cell {name} ({error})") from error
        return self._cells[name]

    def _table(self, group: Group, source: str) -> Table:
        template = self._templates[source].get(group.name)
        rows, columns = (
            _numbers(group.values.get(key) or (template.values.get(key, []) if template else []))
            for key in ("index_1", "index_2")
        )
        values = _numbers(group.values["values"])
        rows, columns = rows or (0.0,), columns or (0.0,)
        width = len(columns)
        if len(values) != len(rows) * width:
            raise LibertyError(f"{source}: a table of {len(values)} values has {len(rows)} x {width} indices")
        return Table(rows, columns, tuple(values[n : n + width] for n in range(0, len(values), width)))

    def _convert(self, group: Group, source: str) -> Cell:
        capacitance: dict[str, float] = {}
        arcs: dict[str, list[Arc]] = {}
        setup: dict[str, tuple[Table, Table]] = {}
        functions: dict[str, str] = {}
        clock = ""
        for state in group.all("ff"):
            clock = re.sub(r"\W", "", state.value("clocked_on"))
        for pin in group.all("pin"):
            if pin.value("direction") == "input":
                capacitance[pin.name] = float(pin.value("capacitance", "0"))
            functions[pin.name] = " ".join(pin.values.get("function", []))
            for timing in pin.all("timing"):
                tables = {child.kind: child for child in timing.groups}
                if timing.value("timing_type").startswith("setup"):
                    rise, fall = (self._table(tables[f"{edge}_constraint"], source) for edge in ("rise", "fall"))
                    setup[pin.name] = (rise, fall)
                elif "cell_rise" in tables and "cell_fall" in tables:
                    delay = (self._table(tables["cell_rise"], source), self._table(tables["cell_fall"], source))
                    slew = (
                        self._table(tables["rise_transition"], source),
                        self._table(tables["fall_transition"], source),
                    )
                    sense = timing.value("timing_sense", "non_unate")
                    arcs.setdefault(pin.name, []).append(Arc(timing.value("related_pin"), sense, delay, slew))
        return Cell(group.name, float(group.value("area", "0")), capacitance, arcs, setup, clock, functions)

    def _smallest(self, pattern: re.Pattern[str]) -> Cell | None:
        found = []
        for name, (source, start) in self._where.items():
            # A look at the function before the cell is parsed: it stands within the first pins.
            end = self._texts[source].find("timing", start)
            function = re.search(r'function\s*:\s*"([^"]*)"', self._texts[source][start : max(end, start) + 4000])
            if function and pattern.fullmatch(function[1].strip()):
                found.append(self.cell(name))
        return min(found, key=lambda cell: cell.area, default=None)

    @cached_property
    def inverter(self) -> Cell:
        """The smallest inverter."""
        return self._smallest(_INVERTER)  # type: ignore[return-value]

    @cached_property
    def buffer(self) -> Cell | None:
        """The smallest buffer, if there is one."""
        return self._smallest(_BUFFER)

    def relatives(self, names: set[str]) -> list[Cell]:
        """Cells that may differ from one of `names` in strength only: their functions are written alike."""
        wanted = {self._functions(name) for name in names}
        if self.buffer:
            wanted.add(self._functions(self.buffer.name))
        return [self.cell(name) for name in self._where if self._functions(name) in wanted]

    def _functions(self, name: str) -> tuple[str, ...]:
        source, start = self._where[name]
        text = self._texts[source]
        next_cell = _CELL.search(text, start + 6)
        body = text[start : next_cell.start() if next_cell else len(text)]
        return tuple(_FUNCTION.findall(body))

    @cached_property
    def nand(self) -> Cell:
        """The smallest two-input NAND: one gate equivalent."""
        return self._smallest(_NAND)  # type: ignore[return-value]

    @cached_property
    def flip_flop(self) -> Cell | None:
        """The smallest plain flip-flop clocked by a rising edge."""
        found = []
        for name, (source, start) in self._where.items():
            if re.compile(r"\s+ff\s*\(").search(self._texts[source], start, start + 60_000):
                state = self.cell(name)
                if state.clock and set(state.capacitance) - {state.clock} == set(state.setup) and len(state.setup) == 1:
                    found.append(state)
        return min(found, key=lambda cell: cell.area, default=None)
