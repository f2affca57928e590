"""Blocks with a fault, to put in the place of the right ones: tests must notice."""

from amaranth import Module, Signal, Value
from amaranth.lib.wiring import In

from hw.link.send_routes import SendRoutes
from hw.link.send_table import SendTable
from hw.link.slot_bank import SlotBank
from hw.range_table import Control, Word
from hw.tracker.doorbell import Doorbell


def _inside(m: Module, outer: Doorbell) -> Doorbell:
    """A right doorbell with the ports of `outer`; what is assigned to them later counts instead."""
    m.submodules.right = right = Doorbell(outer._config)
    for name, member in outer.signature.members.items():
        if member.is_port:
            here, there = getattr(outer, name), getattr(right, name)
            m.d.comb += there.eq(here) if member.flow is In else here.eq(there)
    for name in ("commits", "faults"):
        here, there = getattr(outer, name), getattr(right, name)
        m.d.comb += [here.valid.eq(there.valid), here.payload.eq(there.payload), there.ready.eq(here.ready)]
    return right


class RingsTwice(Doorbell):
    """A doorbell that commits every tile twice."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        right = _inside(m, self)
        again = Signal()
        with m.If(self.commits.valid & self.commits.ready):
            m.d.sync += again.eq(~again)
        with m.If(~again):
            m.d.comb += right.commits.ready.eq(0)
        return m


class RingsWhateverIsAsked(Doorbell):
    """A doorbell for which every range is valid and tracked."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        right = _inside(m, self)
        with m.If(self.entry.word == Word.CONTROL):
            m.d.comb += right.entry.data.eq(self.entry.data | Control.const({"valid": 1, "tracked": 1}).as_value())
        return m


class FreesEarly(SlotBank):
    """A bank whose slot is free when the first of its sends is over."""

    def _release(self, m: Module) -> None:
        over = Signal(self._slots)
        m.d.comb += self.freed.eq(self.release & ~over.bit_select(self.release_slot, 1))
        with m.If(self.release):
            m.d.sync += over.bit_select(self.release_slot, 1).eq(1)
        with m.If(self.close):
            m.d.sync += over.bit_select(self.slot, 1).eq(0)


class RoutesOfTheFirst(SendRoutes):
    """Looks up the first send of a packet only."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = SendRoutes(self._parameters)
        m.d.comb += [
            right.sends.first.eq(self.sends.first),
            right.sends.count.eq(1),
            *(there.eq(here) for there, here in zip(right.port_of, self.port_of, strict=True)),
            self.routes.eq(right.routes),
        ]
        return m


class IncompleteSends(SendTable):
    """A send table that knows a part of a send only."""

    def left_out(self) -> Value:
        """The part that it takes for 0."""
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = SendTable(self._parameters)
        for (_, member, here), (_, _, there) in zip(
            self.signature.flatten(self), right.signature.flatten(right), strict=True
        ):
            target, source = (there, here) if member.flow is In else (here, there)
            m.d.comb += Value.cast(target).eq(source)
        m.d.comb += self.left_out().eq(0)
        return m


class LeavesOutWgOffset(IncompleteSends):
    """A send table that knows of no wg offset."""

    def left_out(self) -> Value:
        return self.send.wg_offset


class LeavesOutOffsetHigh(IncompleteSends):
    """A send table that knows 32 bits of an offset."""

    def left_out(self) -> Value:
        return self.send.offset[32:]
