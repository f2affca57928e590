"""Instruments an elaborated Amaranth design: a sticky bit for each list of statements and each transition of an FSM.

A statement list is mirrored: beside `If(a): x.eq(b)` there will be `If(a): hit[3].eq(1)` in the `comb` domain, and
`seen |= hit` in a register of the clock domain the statement belongs to. So a synchronous statement counts when its
clock ticks, its domain is not in reset and an enable inserted around it is high; a combinational one counts when it
holds at an edge of the clock `clock_domain`. The registers have no reset, and the output is read once.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType

import amaranth
from amaranth import tracer
from amaranth.hdl import Cat, Const, Elaboratable, Format, Fragment, Instance, Mux, ResetSignal, Signal, Value
from amaranth.hdl._ast import Assign, Statement, Switch
from amaranth.hdl._dsl import FSM, FSMNextStatement

from tb.source_coverage.points import Point, PointMap

WRITER = "source_coverage_writer"
WRITER_SOURCE = Path(__file__).parent / f"{WRITER}.sv"
"""The module that writes the bits out. It is a source of every simulation of an instrumented design."""

IMPLICIT_ELSE = "no arm taken"
ENUMERATED_VALUES = 1 << 14
"""Switch tests up to this many values are checked for completeness one by one."""


def _is_complete(switch: Switch) -> bool:
    """Whether some arm is taken for every value the test can have."""
    patterns = [pattern for patterns, _, _ in switch.cases if patterns is not None for pattern in patterns]
    if any(patterns is None for patterns, _, _ in switch.cases) or any(set(text) <= {"-"} for text in patterns):
        return True
    width = len(switch.test)
    description = getattr(switch.test, "_format", None)
    if isinstance(description, Format.Enum):
        values: Sequence[int] = [value & (1 << width) - 1 for value in description._variants]
    elif 1 << width <= ENUMERATED_VALUES:
        values = range(1 << width)
    else:
        return False
    masks = [(int(text.replace("0", "1").replace("-", "0"), 2), int(text.replace("-", "0"), 2)) for text in patterns]
    return all(any(value & mask == match for mask, match in masks) for value in values)


def _lists(statements: Sequence[Statement]) -> int:
    """How many lists of statements there are in `statements`, implicit ones included."""
    switches = [statement for statement in statements if isinstance(statement, Switch)]
    return 1 + sum(1 + sum(_lists(inner) for _, inner, _ in switch.cases) for switch in switches)


def _tests(statements: Sequence[Statement]) -> Iterator[Value]:
    """What the switches in `statements` look at."""
    for statement in statements:
        if isinstance(statement, Switch):
            yield statement.test
            for _, inner, _ in statement.cases:
                yield from _tests(inner)


def _point(kind: str, location: tuple[str, int], label: str = "") -> Point:
    return Point(kind, location[0], location[1], label)


class _Mirror:
    """Mirrors the statements of one fragment; `points[domain]` is what each bit of that domain's vector stands for."""

    def __init__(self, fragment: Fragment, roots: Sequence[Path], fsms: Sequence[FSM]):
        self._roots = [root.resolve() for root in roots]
        tested = {id(test) for statements in fragment.statements.values() for test in _tests(statements)}
        self._fsms = [fsm for fsm in fsms if id(fsm.state) in tested]
        self._arcs: dict[int, list[Point]] = {index: [] for index in range(len(self._fsms))}
        self._arc_domains: dict[int, str] = {}
        self._taken = [Signal(16, name="source_coverage_arc") for _ in self._fsms]
        # One vector, and not a signal per bit: each signal gets a copy of the conditions around its assignments.
        self._hit = Signal(sum(map(_lists, fragment.statements.values())), name="source_coverage_hit")
        self._used = count()
        self.points: dict[str, list[list[Point]]] = {}
        self.hits: dict[str, list[Value]] = {}
        self.statements: list[Statement] = []
        for domain, statements in fragment.statements.items():
            self.statements += self._mirror(statements, domain, [], {})
        for index in range(len(self._fsms)):
            self._add_fsm(index)

    def _known(self, location: tuple[str, int] | None) -> bool:
        return location is not None and any(Path(location[0]).is_relative_to(root) for root in self._roots)

    def _bit(self, domain: str, points: list[Point], value: Value | None = None) -> Value:
        bit = self._hit[next(self._used)] if value is None else value
        self.points.setdefault(domain, []).append(points)
        self.hits.setdefault(domain, []).append(bit)
        return bit

    def _fsm_of(self, value: Value) -> int | None:
        return next((index for index, fsm in enumerate(self._fsms) if fsm.state is value), None)

    def _mirror(
        self, statements: Sequence[Statement], domain: str, points: list[Point], states: dict[int, str]
    ) -> list[Statement]:
        """Statements for `comb` that say that `statements` (with `points` for the arm they are) are executed.

        `states` holds, for each FSM whose states enclose them, the name of the state.
        """
        answer: list[Statement] = []
        points = list(points)
        for statement in statements:
            if isinstance(statement, Switch):
                answer.append(self._mirror_switch(statement, domain, states))
                continue
            if self._known(statement.src_loc):
                points.append(_point("statement", statement.src_loc))
            if isinstance(statement, Assign) and (index := self._fsm_of(statement.lhs)) is not None:
                answer += self._mirror_next(index, statement, domain, states)
        if points:
            answer.append(self._bit(domain, points).eq(1))
        return answer

    def _mirror_switch(self, switch: Switch, domain: str, states: dict[int, str]) -> Switch:
        fsm = self._fsm_of(switch.test)
        cases = []
        for patterns, statements, location in switch.cases:
            inner, points = states, []
            if fsm is not None:
                inner = states | {fsm: self._fsms[fsm].decoding[int(patterns[0], 2)]}
            elif self._known(location):
                points = [_point("branch", location)]
            cases.append((patterns, self._mirror(statements, domain, points, inner), location))
        # What an enable or a reset inserted around a block does has no line of its own.
        is_source = all(location is not None for _, _, location in switch.cases) and self._known(switch.src_loc)
        if fsm is None and is_source and not _is_complete(switch):
            bit = self._bit(domain, [_point("branch", switch.src_loc, IMPLICIT_ELSE)])
            cases.append((None, [bit.eq(1)], switch.src_loc))
        return Switch(switch.test, cases, src_loc=switch.src_loc)

    def _mirror_next(self, index: int, statement: Assign, domain: str, states: dict[int, str]) -> list[Statement]:
        """`m.next`: of several in one cycle the last one wins, in the mirror as well."""
        if not (self._known(statement.src_loc) and isinstance(statement.rhs, Const) and index in states):
            return []
        target = self._fsms[index].decoding[statement.rhs.value]
        label = f"{self._fsms[index]._data['name']}: {states[index]} -> {target}"
        self._arcs[index].append(_point("arc", statement.src_loc, label))
        self._arc_domains[index] = domain
        return [self._taken[index].eq(len(self._arcs[index]))]

    def _add_fsm(self, index: int) -> None:
        fsm, data = self._fsms[index], self._fsms[index]._data
        domain = self._arc_domains.get(index, "comb")
        for state, code in fsm.encoding.items():
            location = data["state_src_locs"].get(state)
            if self._known(location):
                self._bit(domain, [_point("state", location, f"{data['name']}: {state}")], fsm.state == code)
        for number, point in enumerate(self._arcs[index], 1):
            self._bit(domain, [point], self._taken[index] == number)


def _fragments(fragment: Fragment) -> Iterator[Fragment]:
    if type(fragment) is Fragment:
        yield fragment
        for inner, _, _ in fragment.subfragments:
            yield from _fragments(inner)


_AMARANTH = str(Path(amaranth.__file__).parent)


def _in_amaranth(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_AMARANTH)


def _caller_of_library(src_loc_at: int = 0) -> tuple[str, int]:
    """As `amaranth.tracer.get_src_loc`, but for what a function of Amaranth does, the line that calls it.

    What a component of Amaranth elaborates to stays with Amaranth.
    """
    nominal = sys._getframe(2 + src_loc_at)
    frame: FrameType | None = nominal
    while frame is not None and _in_amaranth(frame) and frame.f_code.co_name != "elaborate":
        frame = frame.f_back
    if frame is None or _in_amaranth(frame):
        frame = nominal
    return frame.f_code.co_filename, frame.f_lineno


@contextmanager
def _located_statements() -> Iterator[list[FSM]]:
    """While it lasts, assignments that Amaranth makes of `m.next`, of views and of `connect` have the user's line. The
    list fills with the FSMs that are made: a fragment that an enable was inserted into has forgotten its own."""
    resolve, get_src_loc, initialize = FSMNextStatement.resolve, tracer.get_src_loc, FSM.__init__
    made: list[FSM] = []

    def resolve_located(statement: FSMNextStatement) -> Statement:
        assignment = resolve(statement)
        assignment.src_loc = statement.src_loc
        return assignment

    def initialize_noted(fsm: FSM, data: dict[str, object]) -> None:
        initialize(fsm, data)
        made.append(fsm)

    FSMNextStatement.resolve, tracer.get_src_loc = resolve_located, _caller_of_library
    FSM.__init__ = initialize_noted
    try:
        yield made
    finally:
        FSMNextStatement.resolve, tracer.get_src_loc, FSM.__init__ = resolve, get_src_loc, initialize


def instrument(
    component: Elaboratable, roots: Sequence[Path], clock_domain: str = "sync", platform: object = None
) -> tuple[Fragment, PointMap, Value]:
    """Elaborate `component` and add sticky bits for every statement from a file in `roots` (files or folders).

    Returns the fragment, what the bits stand for, and their vector, bit 0 first. Combinational statements are looked at
    when `clock_domain` of the fragment that holds them ticks.
    """
    with _located_statements() as fsms:
        fragment = Fragment.get(component, platform)
    points: list[list[Point]] = []
    vectors: list[Value] = []
    for inner in list(_fragments(fragment)):
        mirror = _Mirror(inner, roots, fsms)
        inner.add_statements("comb", mirror.statements)
        for domain, hits in mirror.hits.items():
            clocked = clock_domain if domain == "comb" else domain
            seen = Signal(len(hits), name="source_coverage_seen", reset_less=True)
            reset = ResetSignal(clocked, allow_reset_less=True)
            inner.add_statements(clocked, seen.eq(seen | Mux(reset, 0, Cat(hits))))
            points += mirror.points[domain]
            vectors.append(seen)
    return fragment, PointMap(points), Cat(vectors)


class Instrumented(Elaboratable):
    """`component` with coverage of the source files in `roots` (files or folders); same ports, same behaviour.

    The design gets an instance of the module `source_coverage_writer`, whose file :data:`WRITER_SOURCE` goes with it
    into the simulation. :attr:`points` is there after elaboration. A component without any registers gets the ports of
    `clock_domain`.
    """

    points: PointMap

    def __init__(self, component: Elaboratable, roots: Sequence[Path], clock_domain: str = "sync"):
        self._component = component
        self._roots = tuple(roots)
        self._clock_domain = clock_domain

    def __getattr__(self, name: str) -> object:
        return getattr(self._component, name)

    def elaborate(self, platform: object) -> Fragment:
        fragment, self.points, seen = instrument(self._component, self._roots, self._clock_domain, platform)
        if len(seen):
            writer = Instance(WRITER, p_WIDTH=len(seen), i_seen=seen)
            fragment.add_subfragment(writer, WRITER)
        return fragment
