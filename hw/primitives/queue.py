"""The FIFO: payloads stay in a memory, only pointers move."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import ShapeLike, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


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
    (not around the memory) in a memory of their own, which is smaller and so earlier.
    """

    def __init__(self, shape: ShapeLike, depth: int, bypass: bool = False, mark: ShapeLike | None = None):
        self._shape = shape
        self._depth = depth
        self._bypass = bypass
        self._mark = mark
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
                **({} if mark is None else {"i_mark": In(mark), "o_mark": Out(mark)}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first = Signal(range(memory_depth(self._depth)))
        last = Signal(range(memory_depth(self._depth)))
        push = Signal()
        pop = Signal()

        def stored(name: str, shape: ShapeLike, item: ValueLike) -> Any:
            """The oldest of the items, kept in memory `name`."""
            m.submodules[name] = memory = Memory(shape=shape, depth=memory_depth(self._depth), init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [write.addr.eq(last), write.data.eq(item), write.en.eq(push), read.addr.eq(first)]
            return read.data

        oldest = stored("memory", self._shape, self.i.payload)
        if self._mark is not None:
            m.d.comb += self.o_mark.eq(stored("marks", self._mark, self.i_mark))
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
