"""The ready set: blocks that are complete and wait for the DMA engine or for the WG launcher.

A bit vector would do, because it can never be full. A queue with one place per block has the
same property (a block becomes ready once an epoch), needs no search, and keeps the order of completion: what a block
carries to the DMA engine has to be stored either way.
"""

from amaranth import Module, Signal
from amaranth.hdl import ShapeLike, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


def ready_queue_ports(payload: ShapeLike) -> dict[str, wiring.Member]:
    """Ports of a ready set, with check bits or without: `push` with `item`, always taken; `output`; `clear` empties it
    (and withdraws what is offered); `waiting`: something was pushed, and is not taken in this cycle."""
    return {
        "push": In(1),
        "item": In(payload),
        "output": Out(stream.Signature(payload)),
        "clear": In(1),
        "waiting": Out(1),
    }


class ReadyQueue(wiring.Component):
    """Queue of `depth` payloads behind an output register.

    Ports: :func:`ready_queue_ports`. Latency 1 cycle when empty; a payload that had to wait in the memory follows its
    predecessor after 2 more cycles. The memory needs no reset: it is read where something was pushed.
    """

    def __init__(self, payload: ShapeLike, depth: int):
        self._payload = payload
        self._depth = depth
        super().__init__(ready_queue_ports(payload))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        item = Value.cast(self.item)
        kept = Value.cast(self.output.payload)
        offered = self.output.valid
        m.submodules.items = items = Memory(shape=unsigned(len(item)), depth=self._depth, init=[])
        write = items.write_port()
        read = items.read_port()
        head = Signal(range(self._depth))
        tail = Signal(range(self._depth))
        level = Signal(range(self._depth + 1))
        fetching = Signal()
        free = Signal()
        direct = Signal()
        stored = Signal()
        m.d.comb += [
            # Not what is taken in this very cycle: a clear does not drop it.
            self.waiting.eq((offered & ~self.output.ready) | (level != 0) | fetching),
            free.eq(~offered | self.output.ready),
            direct.eq(self.push & free & (level == 0) & ~fetching),
            stored.eq(self.push & ~direct),
            write.en.eq(stored),
            write.addr.eq(tail),
            write.data.eq(item),
            read.en.eq(free & ~fetching & (level != 0)),
            read.addr.eq(head),
        ]
        m.d.sync += fetching.eq(read.en)
        with m.If(direct):
            m.d.sync += [offered.eq(1), kept.eq(item)]
        with m.Elif(fetching):
            m.d.sync += [offered.eq(1), kept.eq(read.data)]
        with m.Elif(free):
            m.d.sync += offered.eq(0)
        with m.If(stored):
            m.d.sync += tail.eq(tail + 1)
        with m.If(read.en):
            m.d.sync += head.eq(head + 1)
        with m.If(stored != read.en):
            m.d.sync += level.eq(level + stored - read.en)
        with m.If(self.clear):
            m.d.sync += [offered.eq(0), fetching.eq(0), head.eq(0), tail.eq(0), level.eq(0)]
        return m
