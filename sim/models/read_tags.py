"""Tags of reads under way: a request names one, so that its data, which comes in any order, is known by address."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.primitives.queue import Queue
from sim.models.plan_layout import MAX_SLOTS

TAG_BITS = 8
"""Of a compute request's id."""


class ReadTags(wiring.Component):
    """Ports: `take`: a read of sector `va` for `slot` gets `tag`, which it may while `free`; `give`: the data of tag
    `given` came, `given_slot` and `given_va` say whose it is, in the same cycle. A tag is free from the cycle after."""

    def __init__(self) -> None:
        super().__init__(
            {
                "take": In(1),
                "slot": In(range(MAX_SLOTS)),
                "va": In(32),
                "free": Out(1),
                "tag": Out(TAG_BITS),
                "give": In(1),
                "given": In(TAG_BITS),
                "given_slot": Out(range(MAX_SLOTS)),
                "given_va": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tags = 1 << TAG_BITS
        kept = data.StructLayout({"slot": range(MAX_SLOTS), "va": unsigned(32)})
        m.submodules.reads = reads = Memory(shape=kept, depth=tags, init=[])
        write, read = reads.write_port(), reads.read_port(domain="comb")
        # Those that were never taken come first, so that no memory has to hold anything at reset.
        m.submodules.returned = returned = Queue(TAG_BITS, tags)
        fresh = Signal(range(tags + 1))
        use_fresh = fresh != tags
        m.d.comb += [
            self.free.eq(use_fresh | returned.o.valid),
            self.tag.eq(Mux(use_fresh, fresh, returned.o.payload)),
            returned.o.ready.eq(self.take & ~use_fresh),
            returned.i.valid.eq(self.give),
            returned.i.payload.eq(self.given),
            write.en.eq(self.take),
            write.addr.eq(self.tag),
            write.data.slot.eq(self.slot),
            write.data.va.eq(self.va),
            read.addr.eq(self.given),
            self.given_slot.eq(read.data.slot),
            self.given_va.eq(read.data.va),
        ]
        with m.If(self.take & use_fresh):
            m.d.sync += fresh.eq(fresh + 1)
        return m
