"""Memory-intensity detector: the MCA threshold from the isolated start of a kernel (T3 section 4.5)."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..messages import ArbiterControl, Threshold


class IntensityDetector(wiring.Component):
    """Counts the compute requests of the first `control.window` cycles of a kernel and chooses a threshold.

    Ports: `control`; `kernel_active`; `accepted`: a compute request was accepted this cycle; `threshold`: the limit in
    force, never AUTO. A threshold programmed in `control` passes through (0 cycles). With AUTO the limit is that of the
    last kernel until the next one starts, OCCUPANCY_5 while its window runs (communication must not disturb what is
    being measured), and the measured one from the cycle after the window.
    """

    control: In(ArbiterControl)
    kernel_active: In(1)
    accepted: In(1)
    threshold: Out(Threshold)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        measured = Signal(Threshold, init=Threshold.NONE)
        was_active = Signal()
        measuring = Signal()
        cycles = Signal(16)
        requests = Signal(16)

        m.d.sync += was_active.eq(self.kernel_active)
        with m.If(self.kernel_active & ~was_active):
            m.d.sync += [measuring.eq(1), cycles.eq(1), requests.eq(self.accepted), measured.eq(Threshold.OCCUPANCY_5)]
        with m.Elif(measuring):
            with m.If(cycles >= self.control.window):
                m.d.sync += measuring.eq(0)
                with m.If(requests >= self.control.boundary_10):
                    m.d.sync += measured.eq(Threshold.OCCUPANCY_5)
                with m.Elif(requests >= self.control.boundary_30):
                    m.d.sync += measured.eq(Threshold.OCCUPANCY_10)
                with m.Elif(requests >= self.control.boundary_none):
                    m.d.sync += measured.eq(Threshold.OCCUPANCY_30)
                with m.Else():
                    m.d.sync += measured.eq(Threshold.NONE)
            with m.Else():
                m.d.sync += [cycles.eq(cycles + 1), requests.eq(requests + self.accepted)]

        with m.If(self.control.threshold == Threshold.AUTO):
            m.d.comb += self.threshold.eq(measured)
        with m.Else():
            m.d.comb += self.threshold.eq(self.control.threshold)
        return m
