"""The ready set: blocks that are complete and wait for the DMA engine or for the WG launcher.

A bit vector would do, because it can never be full. A queue with one place per block has the
same property (a block becomes ready once an epoch), needs no search, and keeps the order of completion: what a block
carries to the DMA engine has to be stored either way.
"""

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import Shape, ShapeLike, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..primitives.secded import Corrector, check_width
from ..protection import MemoryReport


class ReadyQueue(wiring.Component):
    """Queue of `depth` payloads behind an output register.

    Ports: `push` with `item`, always taken; `output`; `clear` empties it (and withdraws what is offered); `waiting`:
    something was pushed, and is not taken in this cycle. Latency 1 cycle when empty; a payload that had to wait in the
    memory follows its predecessor after 2 more cycles. The memory needs no reset: it is read where something was
    pushed.

    If `checked`, `check` comes with `item`: its check bits. A payload is put right on its way from the output register,
    which has them too; one that is lost is not offered, but left out. `flips`: bits of word and check bits that are
    turned in what is written to the memory in this cycle, if `stored`; `report`: what left the output register had a
    wrong bit or more, of which place is not known.
    """

    def __init__(self, payload: ShapeLike, depth: int, checked: bool = False):
        self._payload = payload
        self._depth = depth
        self._checked = checked
        width = Shape.cast(payload).width
        protected = {
            "check": In(check_width(width)),
            "flips": In(width + check_width(width)),
            "stored": Out(1),
            "report": Out(MemoryReport),
        }
        super().__init__(
            {
                "push": In(1),
                "item": In(payload),
                "output": Out(stream.Signature(payload)),
                "clear": In(1),
                "waiting": Out(1),
                **(protected if checked else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        plain = Value.cast(self.item)
        word = Cat(plain, self.check) if self._checked else plain
        m.submodules.items = items = Memory(shape=unsigned(len(word)), depth=self._depth, init=[])
        write = items.write_port()
        read = items.read_port()
        head = Signal(range(self._depth))
        tail = Signal(range(self._depth))
        level = Signal(range(self._depth + 1))
        fetching = Signal()
        free = Signal()
        direct = Signal()
        stored = Signal()
        offered: Value = self.output.valid
        kept: Value = Value.cast(self.output.payload)
        dropped: Value = Const(0)
        if self._checked:
            offered, kept = Signal(), Signal(len(word))
            dropped = self._correct(m, offered, kept, free)
            m.d.comb += self.stored.eq(stored)
        m.d.comb += [
            # Not what is taken in this very cycle: a clear does not drop it.
            self.waiting.eq((offered & ~self.output.ready) | (level != 0) | fetching),
            free.eq(~offered | self.output.ready | dropped),
            direct.eq(self.push & free & (level == 0) & ~fetching),
            stored.eq(self.push & ~direct),
            write.en.eq(stored),
            write.addr.eq(tail),
            write.data.eq(word ^ self.flips if self._checked else word),
            read.en.eq(free & ~fetching & (level != 0)),
            read.addr.eq(head),
        ]
        m.d.sync += fetching.eq(read.en)
        with m.If(direct):
            m.d.sync += [offered.eq(1), kept.eq(word)]
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

    def _correct(self, m: Module, offered: Value, kept: Value, free: Value) -> Value:
        """Offers what is `kept`, without its wrong bit, until it is `free`; returns whether it was lost in the cycle
        before, and nobody will take it."""
        width = Shape.cast(self._payload).width
        m.submodules.corrector = corrector = Corrector(width)
        lost = Signal()
        dropped = Signal()
        m.d.comb += [
            corrector.word.eq(kept[:width]),
            corrector.check.eq(kept[width:]),
            lost.eq(offered & corrector.lost),
            self.output.valid.eq(offered & ~corrector.lost),
            Value.cast(self.output.payload).eq(corrector.corrected),
        ]
        m.d.sync += [
            self.report.corrected.eq(self.output.valid & self.output.ready & corrector.wrong),
            self.report.lost.eq(lost & free),
            dropped.eq(lost & ~free),
        ]
        return dropped
