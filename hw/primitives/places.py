"""Places of a memory or a queue: how many are free, and which."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .memory_watch import watch
from .queue import memory_depth, next_pointer


class Room(wiring.Component):
    """Counts free places: `take` reserves one, `give` frees one, `available` is high while one is free."""

    take: In(1)
    give: In(1)
    available: Out(1)

    def __init__(self, places: int):
        self._places = places
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        free = Signal(range(self._places + 1), init=self._places)
        m.d.comb += self.available.eq(free != 0)
        with m.If(self.take & ~self.give):
            m.d.sync += free.eq(free - 1)
        with m.If(self.give & ~self.take):
            m.d.sync += free.eq(free + 1)
        return m


class FreeList(wiring.Component):
    """Hands out the numbers 0 to `depth` - 1, each to one holder at a time.

    Ports: `available`, `index`: a number can be taken, and which; `take`: take it; `give`, `given`: return a number. A
    number returned can be taken from the next cycle. The ring that stores returned numbers needs no initial content:
    its first `depth` numbers are the positions themselves. With `checked`, `wrong` (pulse, 2 cycles after `take`): a
    returned number that was taken had a wrong bit; `checking`: that is not known yet.
    """

    def __init__(self, depth: int, checked: bool = False):
        self._depth = depth
        self._checked = checked
        super().__init__(
            {
                "available": Out(1),
                "index": Out(range(memory_depth(depth))),
                "take": In(1),
                "give": In(1),
                "given": In(range(memory_depth(depth))),
                **({"wrong": Out(1), "checking": Out(1)} if checked else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=range(memory_depth(self._depth)), depth=memory_depth(self._depth), init=[]
        )
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        first = Signal(range(memory_depth(self._depth)))
        last = Signal(range(memory_depth(self._depth)))
        wrapped = Signal()
        count = Signal(range(self._depth + 1), init=self._depth)
        m.d.comb += [
            self.available.eq(count != 0),
            read.addr.eq(first),
            self.index.eq(Mux(wrapped, read.data, first)),
            write.addr.eq(last),
            write.data.eq(self.given),
            write.en.eq(self.give),
        ]
        if self._checked:
            found = watch(m, "memory_watch", write, (read, self.take & wrapped))
            m.d.comb += [self.wrong.eq(found.wrong), self.checking.eq(found.busy)]
        with m.If(self.take):
            m.d.sync += first.eq(next_pointer(first, self._depth))
            with m.If(first == self._depth - 1):
                m.d.sync += wrapped.eq(1)
        with m.If(self.give):
            m.d.sync += last.eq(next_pointer(last, self._depth))
        with m.If(self.take & ~self.give):
            m.d.sync += count.eq(count - 1)
        with m.If(~self.take & self.give):
            m.d.sync += count.eq(count + 1)
        return m
