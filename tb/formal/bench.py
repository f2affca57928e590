"""Bench of a proof: blocks under test beside assumptions about their inputs and claims about their outputs.

A block is taken as it is in `hw`. Its inner signals are found by name in the elaborated fragment, so a proof can state
invariants about them without a change to the block; memory words are seen through an additional asynchronous read port.
A proof can also be built with a *seeded bug*: some inner signals cut from their logic and stuck at a constant.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from amaranth import Elaboratable, Module, Signal
from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Const, Cover, Fragment, Shape, ShapeLike, Value, ValueLike
from amaranth.hdl._ast import Assign, Switch
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import data, wiring

from hw.word_table import WORD_BITS


class UnknownSignal(LookupError):
    """A proof names an inner signal that the block does not have (any more)."""


class _Elaborated(Elaboratable):
    """Lets a fragment stand as a submodule."""

    def __init__(self, fragment: Fragment):
        self._fragment = fragment

    def elaborate(self, platform: object) -> Fragment:
        return self._fragment


def _drivers(statements: list) -> list[Signal]:
    """Signals assigned anywhere in `statements`."""
    return [signal for statement in statements for signal in statement._lhs_signals()]


def _without(statements: list, signal: Signal) -> list:
    """`statements` less every assignment to `signal`."""
    kept = []
    for statement in statements:
        if isinstance(statement, Switch):
            cases = [(patterns, _without(body, signal), where) for patterns, body, where in statement.cases]
            kept.append(Switch(statement.test, cases, src_loc=statement.src_loc))
        elif not (isinstance(statement, Assign) and signal in statement._lhs_signals()):
            kept.append(statement)
    return kept


class Block:
    """An elaborated block under test. Paths are instance names and a signal's name joined by dots."""

    def __init__(self, m: Module, component: wiring.Component, name: str):
        self._m = m
        self._fragment = Fragment.get(component, None)
        m.submodules[name] = _Elaborated(self._fragment)

    def _find(self, path: str) -> tuple[Fragment, str]:
        fragment = self._fragment
        *instances, name = path.split(".")
        for instance in instances:
            inner = {label: sub for sub, label, _ in fragment.subfragments}
            if instance not in inner:
                raise UnknownSignal(f"{path}: no instance {instance!r}; there are {', '.join(map(str, inner))}")
            fragment = inner[instance]
        return fragment, name

    def view(self, path: str, layout: data.Layout) -> data.View:
        """The signal at `path` as a `layout`."""
        return data.View(layout, self.signal(path))

    def signal(self, path: str) -> Signal:
        """The one signal called `path` that the block (or the named instance in it) drives."""
        fragment, name = self._find(path)
        found: dict[int, Signal] = {}
        for statements in fragment.statements.values():
            found.update((id(signal), signal) for signal in _drivers(statements) if signal.name == name)
        if len(found) != 1:
            raise UnknownSignal(f"{path}: {len(found)} signals of that name")
        return next(iter(found.values()))

    def component(self, instance: str) -> Any:
        """The component at `instance` (a path), whose ports a proof may read."""
        fragment, _ = self._find(f"{instance}.")
        return fragment.origins[0]

    def state(self, fsm: str, state: str) -> Value:
        """High while the FSM called `fsm` (a path) is in `state`."""
        signal = self.signal(f"{fsm}_state")
        codes = [code for code in range(2 ** len(signal)) if _state_name(signal, code) == state]
        if not codes:
            raise UnknownSignal(f"{fsm}: no state {state!r}")
        return signal == codes[0]

    def word(self, path: str, address: ValueLike) -> Signal:
        """What the memory at `path` holds at `address` now (before the clock edge)."""
        fragment, name = self._find(f"{path}.data")
        if not isinstance(fragment, MemoryInstance):
            raise UnknownSignal(f"{path} is no memory")
        data = Signal(Shape.cast(fragment._data.shape).width, name=f"{name}_word")
        width = (fragment._data.depth - 1).bit_length()
        index = Signal(width, name=f"{name}_address")
        self._m.d.comb += index.eq(address)
        fragment.read_port(domain="comb", addr=index, data=data, en=Const(1, 1), transparent_for=())
        return data

    def entry(self, table: str, index: ValueLike) -> dict[IntEnum, Value]:
        """The words that the :class:`hw.word_table.WordTable` at `table`, without checks, holds of an entry now."""
        words = self.component(table).words
        held = self.word(f"{table}.entries", index)
        return {word: held.word_select(number, WORD_BITS) for number, word in enumerate(words)}

    def read_data(self, path: str, port: int = 0) -> Value:
        """Output of a read port of the memory at `path`, in the order in which the block made them."""
        fragment, _ = self._find(f"{path}.data")
        return fragment._read_ports[port]._data

    def stick(self, path: str, value: int) -> None:
        """Cut the signal at `path` from its logic and hold it at `value`."""
        fragment, _ = self._find(path)
        signal = self.signal(path)
        for domain in list(fragment.statements):
            fragment.statements[domain] = type(fragment.statements[domain])(
                _without(fragment.statements[domain], signal)
            )
        fragment.add_statements("comb", signal.eq(value))


def _state_name(signal: Signal, code: int) -> str | None:
    """Name of an FSM's state; the decoder of its state register says `name/code`."""
    try:
        return str(signal.decoder(code)).rsplit("/", 1)[0]
    except KeyError:
        return None


class Bench(Elaboratable):
    """What one proof is made of; `build` fills it. With `seeded` the bug of the proof is built in and helping
    invariants are left out, so that only the claims themselves can fail. `reduced` tells that the bench is run from
    reset (cover run, seeded bug): what clearing a large memory would put out of reach is then built small."""

    def __init__(self, build: Callable[["Bench"], None], seeded: bool = False, reduced: bool = False):
        self.m = Module()
        self.seeded = seeded
        self.reduced = reduced or seeded
        self.covers = 0
        self.claims = 0
        self._build = build

    def elaborate(self, platform: object) -> Module:
        self._build(self)
        return self.m

    def block(self, component: wiring.Component, name: str = "dut", stuck: Mapping[str, int] | None = None) -> Block:
        """Add a block; `stuck`: its seeded bug, path and value."""
        block = Block(self.m, component, name)
        if self.seeded:
            for path, value in (stuck or {}).items():
                block.stick(path, value)
        return block

    def open_block(
        self, component: wiring.Component, name: str = "dut", stuck: Mapping[str, int] | None = None
    ) -> Block:
        """As :meth:`block`, with every input driven with anything."""
        block = self.block(component, name, stuck)
        self.free(*(port for _, member, port in component.signature.flatten(component) if member.flow is wiring.In))
        return block

    def any_const(self, shape: ShapeLike, name: str) -> Signal:
        """An arbitrary value that does not change."""
        signal = Signal(shape, name=name)
        self.m.d.comb += Value.cast(signal).eq(AnyConst(len(Value.cast(signal))))
        return signal

    def any_seq(self, shape: ShapeLike, name: str) -> Signal:
        """An arbitrary value in every cycle."""
        signal = Signal(shape, name=name)
        self.m.d.comb += Value.cast(signal).eq(AnySeq(len(Value.cast(signal))))
        return signal

    def free(self, *signals: ValueLike) -> None:
        """Drive inputs of a block with anything."""
        for signal in signals:
            value = Value.cast(signal)
            self.m.d.comb += value.eq(AnySeq(len(value)))

    def past(self, value: ValueLike, name: str) -> Signal:
        """`value` one cycle ago (0 in the first cycle)."""
        value = Value.cast(value)
        signal = Signal(len(value), name=name)
        self.m.d.sync += signal.eq(value)
        return signal

    def claim_offers_stay(self, port: Any, withdrawn: ValueLike = 0) -> tuple[Signal, Signal]:
        """Claim that what stream `port` offers stays until it is taken, or `withdrawn`; returns whether an offer was
        not taken in the cycle before, and what it was."""
        payload = Value.cast(port.payload)
        stalled = self.past(port.valid & ~port.ready & ~Value.cast(withdrawn).bool(), "stalled")
        offered = self.past(payload, "offered_before")
        self.claim(implies(stalled, port.valid & (payload == offered)))
        return stalled, offered

    def assume(self, condition: ValueLike) -> None:
        """The environment keeps to this."""
        self.m.d.comb += Assume(condition, src_loc_at=1)

    def claim(self, condition: ValueLike) -> None:
        """The property to be proved."""
        self.claims += 1
        self.m.d.comb += Assert(condition, src_loc_at=1)

    def invariant(self, condition: ValueLike) -> None:
        """A fact about inner state that induction needs; proved with the claims."""
        if not self.seeded:
            self.m.d.comb += Assert(condition, src_loc_at=1)

    def cover(self, condition: ValueLike) -> None:
        """A situation that the assumptions must allow: shows that the claims are not vacuous."""
        self.covers += 1
        self.m.d.comb += Cover(condition, src_loc_at=1)


def implies(premise: ValueLike, conclusion: ValueLike) -> Value:
    """`conclusion` holds whenever `premise` does; both are one bit."""
    return ~Value.cast(premise).bool() | Value.cast(conclusion).bool()


def at_most_one(vector: Value) -> Value:
    """At most one bit of `vector` is set."""
    return (vector & (vector - 1))[: len(vector)] == 0
