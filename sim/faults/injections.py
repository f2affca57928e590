"""What can go wrong, and samples of it: an injection is a line for the simulator, and its class."""

import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sim.faults.places import CONTROL, CSR, DATA, KINDS, MEMORY, PROTECTED, Variable, block_of

FLITS, MESSAGES = "flits", "messages"
ABORT, REPLAY = "abort", "error_during_replay"
DAMAGE, DROP, DOUBLE, REORDER = WAYS = ("damage", "drop", "double", "reorder")
"""What the simulator does to a word on a wire."""


@dataclass(frozen=True)
class OnWire:
    """A class of injections on links: `way` is what is done to words of `kind`, of :data:`REPLAY` to the first."""

    kind: str
    way: str
    title: str


ON_WIRE = {
    "flit_bit": OnWire(FLITS, DAMAGE, "a bit of a flit on a link"),
    "message_bit": OnWire(MESSAGES, DAMAGE, "a bit of a state message (credits, acknowledgements, grants)"),
    "flit_dropped": OnWire(FLITS, DROP, "a flit lost"),
    "flit_doubled": OnWire(FLITS, DOUBLE, "a flit twice"),
    "flit_reordered": OnWire(FLITS, REORDER, "two flits in the wrong order"),
    "message_dropped": OnWire(MESSAGES, DROP, "a state message lost"),
    "message_doubled": OnWire(MESSAGES, DOUBLE, "a state message twice"),
    "message_reordered": OnWire(MESSAGES, REORDER, "two state messages in the wrong order"),
    REPLAY: OnWire(FLITS, DAMAGE, "a flit damaged, and another flit or message while it is sent again"),
}
TITLES = {
    PROTECTED: "a bit of a memory with check bits or parity",
    MEMORY: "a bit of a memory without",
    CONTROL: "a bit of a control flip-flop",
    DATA: "a bit of a data flip-flop",
    CSR: "a bit of a register that software sees",
    **{name: item.title for name, item in ON_WIRE.items()},
    ABORT: "an abort by the host of one GPU",
}
"""Classes of injections, and what goes wrong in each."""
CLASSES = tuple(TITLES)
LINK_CLASSES = tuple(ON_WIRE)
REPLAY_REACH = 40
"""Words after the first error among which the second is: more than are under way in a round trip."""
SETTLING = 8
"""Cycles at the beginning of a collective in which it is started, and not aborted."""


@dataclass(frozen=True)
class Injection:
    """`text`: cycle, kind and place, as the simulator reads them; `name`: one of :data:`CLASSES`; `block`: where."""

    text: str
    name: str
    block: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def cycle(self) -> int:
        """When."""
        return int(self.text.split()[0])


@dataclass(frozen=True)
class Sent:
    """A wire from output `port` of `gpu`, by whose words of so many `bits` left in which `cycles`."""

    gpu: int
    port: int
    kind: str
    bits: int
    cycles: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Everything that can go wrong: `gpus`; `spans`, first cycle and end of both collectives; `state`, the variables of
    one GPU by class; `sent`, what is on the wires; `answered[gpu, port]`: the output from which messages come back for
    the flits of an output."""

    gpus: int
    spans: tuple[tuple[int, int], tuple[int, int]]
    state: Mapping[str, Sequence[Variable]]
    sent: Sequence[Sent]
    answered: Mapping[tuple[int, int], tuple[int, int]]

    @property
    def cycles(self) -> range:
        """In which a bit may flip."""
        return range(self.spans[0][0], self.spans[1][1])

    def population(self, name: str) -> int:
        """How many different injections class `name` has; of two errors, so many as there are first ones."""
        if name in KINDS:
            return self.gpus * len(self.cycles) * sum(variable.size for variable in self.state[name])
        if name == ABORT:
            return len(list(self.aborts()))
        of_bits = ON_WIRE[name].way == DAMAGE
        return sum(len(wire.cycles) * (wire.bits if of_bits else 1) for wire in self._wires(name))

    def aborts(self) -> Iterator[Injection]:
        """An abort in every cycle of the first collective, on every GPU."""
        first, end = self.spans[0]
        for cycle in range(first + SETTLING, end):
            for gpu in range(self.gpus):
                yield Injection(f"{cycle} abort {gpu}", ABORT)

    def _wires(self, name: str) -> list[Sent]:
        return [wire for wire in self.sent if wire.kind == ON_WIRE[name].kind and wire.cycles]

    def draw(self, name: str, count: int, seed: int) -> list[Injection]:
        """`count` injections of class `name` (all, if it has not so many), each as likely as any other, no two alike; a
        longer sample begins with a shorter one."""
        if name == ABORT and count >= self.population(ABORT):
            return list(self.aborts())
        rng = random.Random(f"{seed} {name}")
        draw = self._drawer(name, rng)
        count = min(count, self.population(name))
        found: dict[str, Injection] = {}
        while len(found) < count:
            made = draw()
            found.setdefault(made.text, made)
        return list(found.values())

    def _drawer(self, name: str, rng: random.Random) -> Callable[[], Injection]:
        if name in KINDS:
            return self._flips(name, rng)
        if name == ABORT:
            first, end = self.spans[0]
            return lambda: Injection(f"{rng.randrange(first + SETTLING, end)} abort {rng.randrange(self.gpus)}", ABORT)
        wires = self._wires(name)
        ends = list(accumulate(len(wire.cycles) for wire in wires))

        def word() -> tuple[Sent, int]:
            chosen = rng.randrange(ends[-1])
            number = bisect(ends, chosen)
            return wires[number], wires[number].cycles[chosen - (ends[number - 1] if number else 0)]

        if name == REPLAY:
            return lambda: self._twice(*word(), rng)
        way = ON_WIRE[name].way

        def once() -> Injection:
            wire, cycle = word()
            bit = rng.randrange(wire.bits) if way == DAMAGE else 0
            return Injection(f"{cycle} wire {wire.gpu} {wire.port} {wire.kind} {way} 0 {bit}", name, "links")

        return once

    def _flips(self, name: str, rng: random.Random) -> Callable[[], Injection]:
        variables = self.state[name]
        ends = list(accumulate(variable.size for variable in variables))

        def draw() -> Injection:
            place = rng.randrange(ends[-1])
            number = bisect(ends, place)
            variable = variables[number]
            word, bit = divmod(place - (ends[number - 1] if number else 0), variable.bits)
            cycle, gpu = rng.choice(self.cycles), rng.randrange(self.gpus)
            return Injection(f"{cycle} flip {gpu} {variable.name} {word} {bit}", name, block_of(variable.name) or "")

        return draw

    def _twice(self, wire: Sent, cycle: int, rng: random.Random) -> Injection:
        """A flit is damaged, and then another flit or a message of the same link."""
        first = f"{cycle} wire {wire.gpu} {wire.port} {FLITS} {DAMAGE} 0 {rng.randrange(wire.bits)}"
        way, skip = rng.choice(WAYS), rng.randrange(REPLAY_REACH)
        if rng.random() < 0.5:
            return Injection(f"{first} {way} {skip} {rng.randrange(wire.bits)}", REPLAY, "links")
        gpu, port = self.answered[wire.gpu, wire.port]
        bits = next(item.bits for item in self.sent if (item.gpu, item.port, item.kind) == (gpu, port, MESSAGES))
        back = f"and {gpu} {port} {MESSAGES} {way} {skip} {rng.randrange(bits)}"
        return Injection(f"{first} {back}", REPLAY, "links")
