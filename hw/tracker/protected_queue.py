"""The ready set with check bits: as :class:`hw.tracker.ready_queue.ReadyQueue`, and never behind it.

What the check bits cost in time is spent before a payload's turn: the oldest of those that wait stand in registers
behind the memory, where their wrong bits are found and then put right, so nothing of it is in front of the port.
"""

from amaranth import Cat, Module, Signal
from amaranth.hdl import Shape, ShapeLike, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..primitives.secded import check_bits, check_width, is_lost, syndrome, wrong_bits
from ..protection import MemoryReport
from .ready_queue import ready_queue_ports


class ProtectedReadyQueue(wiring.Component):
    """Queue of `depth` payloads behind an output register.

    Ports: :func:`hw.tracker.ready_queue.ready_queue_ports`; `flips`: bits of a word and its check bits behind it that
    are turned in what has to wait from this cycle on, if `stored`; `report`: what waited had a wrong bit, which was
    corrected, or more: then it is lost, and not offered; of which place is not known.

    Latency: 1 cycle when empty; in every cycle as many payloads have been offered as by a queue without check bits, or
    more (proof `protected_queue_is_not_behind`). A payload goes through `entering`, the memory, `fetched`, `examined`
    with its syndrome, and the output register, past each in which nothing has to wait. The memory needs no reset: it is
    read where something was pushed.
    """

    def __init__(self, payload: ShapeLike, depth: int):
        self._payload = payload
        self._depth = depth
        width = Shape.cast(payload).width
        super().__init__(
            {
                **ready_queue_ports(payload),
                "flips": In(width + check_width(width)),
                "stored": Out(1),
                "report": Out(MemoryReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = Shape.cast(self._payload).width
        entering, enters = Signal(width), Signal()
        fetched, has_fetched = Signal(width + check_width(width)), Signal()
        examined, has_examined = Signal(width), Signal()
        found = Signal(check_width(width))
        level = Signal(range(self._depth + 1))
        fetching = Signal()

        free = Signal()
        room = Signal()
        direct = Signal()
        beside = Signal()
        follows = Signal()
        fetch = Signal()
        m.d.comb += [
            free.eq(~self.output.valid | self.output.ready),
            room.eq(~has_examined | free),
            # Nothing goes past what waits further back.
            beside.eq(enters & room & ~has_fetched & ~fetching & (level == 0)),
            direct.eq(self.push & free & ~has_examined & ~enters & ~has_fetched & ~fetching & (level == 0)),
            follows.eq(enters & (room == has_fetched) & ~fetching & (level == 0)),
            self.stored.eq(enters & ~beside),
            fetch.eq((level != 0) & ~fetching & (~has_fetched | room)),
            # Not what is taken in this very cycle: a clear does not drop it.
            self.waiting.eq(
                (self.output.valid & ~self.output.ready) | has_examined | enters | has_fetched | fetching | (level != 0)
            ),
        ]
        m.d.sync += [enters.eq(self.push & ~direct), fetching.eq(fetch)]
        with m.If(self.push):
            m.d.sync += entering.eq(self.item)
        word = Cat(entering, check_bits(entering)) ^ self.flips
        oldest = self._memory(m, word, self.stored & ~follows, fetch, level)
        with m.If(fetching):
            m.d.sync += [fetched.eq(oldest), has_fetched.eq(1)]
        with m.Elif(follows):
            m.d.sync += [fetched.eq(word), has_fetched.eq(1)]
        with m.Elif(room):
            m.d.sync += has_fetched.eq(0)

        with m.If(room):
            m.d.sync += [
                has_examined.eq(beside | has_fetched),
                examined.eq(fetched),
                found.eq(syndrome(fetched[:width], fetched[width:])),
            ]
            with m.If(~has_fetched):
                # It was in no memory.
                m.d.sync += [examined.eq(entering), found.eq(0)]
        lost = Signal()
        m.d.comb += lost.eq(is_lost(found, width))
        with m.If(free):
            m.d.sync += [
                self.output.valid.eq(direct | (has_examined & ~lost)),
                Value.cast(self.output.payload).eq(examined ^ wrong_bits(found, width)),
            ]
            with m.If(~has_examined):
                m.d.sync += self.output.payload.eq(self.item)
        m.d.sync += [
            self.report.corrected.eq(has_examined & free & found.any() & ~lost),
            self.report.lost.eq(has_examined & free & lost),
        ]
        with m.If(self.clear):
            m.d.sync += [
                *(signal.eq(0) for signal in (self.output.valid, enters, fetching, has_fetched, has_examined)),
                level.eq(0),
            ]
        return m

    def _memory(self, m: Module, word: Value, store: Value, fetch: Signal, level: Signal) -> Value:
        """The memory: keeps `word` with `store`, and counts it in `level`; gives the oldest in the cycle after
        `fetch`."""
        m.submodules.items = items = Memory(shape=unsigned(len(word)), depth=self._depth, init=[])
        write = items.write_port()
        read = items.read_port()
        head = Signal(range(self._depth))
        tail = Signal(range(self._depth))
        m.d.comb += [
            write.en.eq(store),
            write.addr.eq(tail),
            write.data.eq(word),
            read.en.eq(fetch),
            read.addr.eq(head),
        ]
        with m.If(store):
            m.d.sync += tail.eq(tail + 1)
        with m.If(fetch):
            m.d.sync += head.eq(head + 1)
        with m.If(store != fetch):
            m.d.sync += level.eq(level + store - fetch)
        with m.If(self.clear):
            m.d.sync += [head.eq(0), tail.eq(0)]
        return read.data
