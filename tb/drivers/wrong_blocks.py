"""Blocks with a fault, to put in the place of the right ones: tests must notice."""

from amaranth import Module, Signal, Value
from amaranth.lib.wiring import In

from hw.link.send_table import SendTable
from hw.tracker.doorbell import Doorbell


class RingsTwice(Doorbell):
    """A doorbell that commits every tile twice."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = Doorbell(self._config)
        again = Signal()
        for name, member in self.signature.members.items():
            if member.is_port:
                here, there = getattr(self, name), getattr(right, name)
                m.d.comb += there.eq(here) if member.flow is In else here.eq(there)
        for name in ("commits", "faults"):
            here, there = getattr(self, name), getattr(right, name)
            m.d.comb += [here.valid.eq(there.valid), here.payload.eq(there.payload), there.ready.eq(here.ready)]
        with m.If(self.commits.valid & self.commits.ready):
            m.d.sync += again.eq(~again)
        with m.If(~again):
            m.d.comb += right.commits.ready.eq(0)
        return m


class LeavesOutWgOffset(SendTable):
    """A send table that knows of no wg offset."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = SendTable(self._parameters, self._sources)
        for (_, member, here), (_, _, there) in zip(
            self.signature.flatten(self), right.signature.flatten(right), strict=True
        ):
            target, source = (there, here) if member.flow is In else (here, there)
            m.d.comb += Value.cast(target).eq(source)
        m.d.comb += self.send.wg_offset.eq(0)
        return m
