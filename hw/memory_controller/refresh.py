"""All-bank refresh (JESD235): once per REFI drain the banks, precharge them all, refresh."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..dram_timing import Timing


class Refresher(wiring.Component):
    """Asks for an all-bank refresh every REFI cycles and sequences it.

    Ports: `enable`; `quiet`: no request is at a bank and every bank may be precharged; `precharged`: REF is allowed
    after the precharge; `drain`: start nothing new; `busy`: no ordinary row command (from `drain` to the REF);
    `precharge_all`, `refresh`: issue the command in this cycle. A refresh that is late does not move the next one.
    """

    enable: In(1)
    quiet: In(1)
    precharged: In(1)
    drain: Out(1)
    busy: Out(1)
    precharge_all: Out(1)
    refresh: Out(1)

    def __init__(self, timing: Timing):
        self._timing = timing
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        interval = Signal(range(self._timing.refi))
        due = Signal()
        wrap = interval == self._timing.refi - 1
        with m.FSM(name="refresh"):
            with m.State("Wait"):
                with m.If(due):
                    m.next = "Drain"
            with m.State("Drain"):
                m.d.comb += [self.drain.eq(1), self.busy.eq(1)]
                with m.If(self.quiet):
                    m.d.comb += self.precharge_all.eq(1)
                    m.next = "Precharge"
            with m.State("Precharge"):
                m.d.comb += self.busy.eq(1)
                with m.If(self.precharged):
                    m.d.comb += self.refresh.eq(1)
                    m.d.sync += due.eq(0)
                    m.next = "Wait"
        with m.If(self.enable):
            m.d.sync += interval.eq(Mux(wrap, 0, interval + 1))
            with m.If(wrap):
                m.d.sync += due.eq(1)
        with m.Else():
            m.d.sync += interval.eq(0)
        return m
