"""The FIFO: payloads stay in a memory, only pointers move."""

from collections.abc import Collection
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import ShapeLike, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .memory_watch import PART, MemoryWatch, watch


def memory_depth(entries: int) -> int:
    """Depth of a memory for `entries`: an address has at least one bit."""
    return max(2, entries)


def next_pointer(pointer: Signal, depth: int) -> Value:
    """Value after `pointer` in a ring of `depth` entries."""
    if depth == 1 << len(pointer):
        return (pointer + 1)[: len(pointer)]
    return Mux(pointer == depth - 1, 0, pointer + 1)


class Queue(wiring.Component):
    """A FIFO of `depth` entries of `shape`.

    Ports: `i`, `o`: streams in and out; `level`: entries stored. `i.ready` depends on registers only. Latency: 1 cycle;
    with `bypass` an empty queue shows the payload on `o` in the cycle in which it arrives (0 cycles). Rate: one a cycle
    (every second cycle at depth 1). With `mark`, `i_mark`, `o_mark`: some bits of that shape that go with a payload
    (not around the memory) in a memory of their own, which is smaller and so earlier. With `checked`, `wrong` (pulse, 2
    cycles later): a payload that left the memory, but for its fields `apart`, or its mark had a wrong bit; `checking`:
    that is not known yet of one that left; `part` as of :class:`hw.primitives.memory_watch.MemoryWatch`: smaller for
    payloads that come late in their cycle.
    """

    def __init__(
        self,
        shape: ShapeLike,
        depth: int,
        bypass: bool = False,
        mark: ShapeLike | None = None,
        checked: bool = False,
        apart: Collection[str] = (),
        part: int = PART,
    ):
        self._shape = shape
        self._depth = depth
        self._bypass = bypass
        self._mark = mark
        self._checked = checked
        self._apart = apart
        self._part = part
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
                **({} if mark is None else {"i_mark": In(mark), "o_mark": Out(mark)}),
                **({"wrong": Out(1), "checking": Out(1)} if checked else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first = Signal(range(memory_depth(self._depth)))
        last = Signal(range(memory_depth(self._depth)))
        push = Signal()
        pop = Signal()
        watches: list[MemoryWatch] = []

        def stored(name: str, shape: ShapeLike, item: ValueLike, apart: Collection[str] = ()) -> Any:
            """The oldest of the items, kept in memory `name`."""
            m.submodules[name] = memory = Memory(shape=shape, depth=memory_depth(self._depth), init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [write.addr.eq(last), write.data.eq(item), write.en.eq(push), read.addr.eq(first)]
            if self._checked:
                watches.append(watch(m, f"{name}_watch", write, (read, pop), apart=apart, part=self._part))
            return read.data

        oldest = stored("memory", self._shape, self.i.payload, self._apart)
        if self._mark is not None:
            m.d.comb += self.o_mark.eq(stored("marks", self._mark, self.i_mark))
        if self._checked:
            m.d.comb += [
                self.wrong.eq(Cat(found.wrong for found in watches).any()),
                self.checking.eq(Cat(found.busy for found in watches).any()),
            ]
        m.d.comb += self.i.ready.eq(self.level != self._depth)
        if self._bypass:
            empty = self.level == 0
            m.d.comb += [
                self.o.valid.eq(~empty | (self.i.valid & self.i.ready)),
                self.o.payload.eq(Mux(empty, self.i.payload, oldest)),
                push.eq(self.i.valid & self.i.ready & ~(empty & self.o.ready)),
                pop.eq(~empty & self.o.ready),
            ]
        else:
            m.d.comb += [
                self.o.valid.eq(self.level != 0),
                self.o.payload.eq(oldest),
                push.eq(self.i.valid & self.i.ready),
                pop.eq(self.o.valid & self.o.ready),
            ]
        with m.If(push):
            m.d.sync += last.eq(next_pointer(last, self._depth))
        with m.If(pop):
            m.d.sync += first.eq(next_pointer(first, self._depth))
        with m.If(push & ~pop):
            m.d.sync += self.level.eq(self.level + 1)
        with m.If(~push & pop):
            m.d.sync += self.level.eq(self.level - 1)
        return m
