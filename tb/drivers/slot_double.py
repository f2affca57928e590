"""Packet slots as the DMA engine sees them, for its tests: what it closes is shown, the test gives slots back."""

from amaranth import Module, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.dma.engine import DmaEngine
from hw.link.parameters import LinkParameters
from hw.link.wire import packet_layout, routes_layout
from hw.primitives import sleeping_submodule
from hw.primitives.places import FreeList


def closing_layout(parameters: LinkParameters) -> data.StructLayout:
    """A packet that is closed in this cycle, and where its sectors arrive."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "bank": unsigned(max(1, parameters.lane_channel_bits)),
            "slot": unsigned(parameters.slot_bits),
            "packet": packet_layout(parameters),
        }
    )


def freed_layout(parameters: LinkParameters) -> data.StructLayout:
    """A slot that is given back."""
    closing = closing_layout(parameters)
    return data.StructLayout({name: closing[name].shape for name in ("valid", "bank", "slot")})


class EngineWithSlots(wiring.Component):
    """The engine, asleep whenever it does not ask to be awake, with its ports but `slots`; instead of them `closed`,
    `freed`, `standing`: there is no slot for packets through a port that has its bit set; and `announced`: the routes
    that were `upcoming` in the cycle before, for which the slot is."""

    def __init__(self, engine: DmaEngine, parameters: LinkParameters):
        self._engine = engine
        self._parameters = parameters
        self._inner = wiring.Signature({n: item for n, item in engine.signature.members.items() if n != "slots"})
        own = {
            "closed": Out(closing_layout(parameters)),
            "freed": In(freed_layout(parameters)),
            "standing": In(parameters.links),
            "announced": Out(routes_layout(parameters)),
        }
        super().__init__(wiring.Signature({**self._inner.members, **own}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        engine = self._engine
        sleeping_submodule(m, "engine", engine)
        outer, inner = self._inner.flatten(self), self._inner.flatten(engine)
        for (_, member, outside), (_, _, inside) in zip(outer, inner, strict=True):
            source, target = (outside, inside) if member.flow is In else (inside, outside)
            m.d.comb += Value.cast(target).eq(source)
        slots, closed = engine.slots, self.closed
        stands = (self.announced.ports & self.standing).any()
        m.d.comb += [
            closed.valid.eq(slots.close),
            closed.bank.eq(slots.bank),
            closed.slot.eq(slots.slot),
            closed.packet.eq(slots.packet),
        ]
        for bank in range(self._parameters.lane_channels):
            m.submodules[f"free_{bank}"] = free = FreeList(self._parameters.dma_packets)
            m.d.comb += [
                free.take.eq(slots.close & (slots.bank == bank)),
                free.give.eq(self.freed.valid & (self.freed.bank == bank)),
                free.given.eq(self.freed.slot),
            ]
            with m.If(slots.bank == bank):
                m.d.comb += [slots.room.eq(free.available & ~stands), slots.slot.eq(free.index)]
        m.d.sync += self.announced.eq(slots.upcoming)
        return m
