"""One of the kernels that run at a time on a GPU's compute units: when it begins, how far it is, when it is over."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from sim.models.plan_layout import KERNELS, Kernel

Spans = data.StructLayout(
    {name: data.ArrayLayout(unsigned(32), KERNELS) for name in ("begin", "end", "arrived", "retired", "link_busy")}
)
"""Per kernel: cycles from `start` to its begin and its end; by its end, sectors that had arrived; workgroups done;
during it, busy cycles of the link."""

Surroundings = data.StructLayout(
    {
        "now": unsigned(32),
        "started": unsigned(32),
        "arrived": unsigned(26),
        "link_busy": unsigned(32),
        "node_done": unsigned(1),
    }
)
"""What every kernel sees: the time, and that at which the plan was started; sectors that arrived over the link and its
busy cycles so far; whether the node's collective is done."""


class KernelContext(wiring.Component):
    """Ports: `load`: take `descriptor`, number `number` of the plan; `around`; `launch`, `retire`: a workgroup of it
    begins, or is over; `storing`: sectors that it is about to store, `stored`: one was taken; `advance`: the next line
    of its waits. `kernel`, `running`, `begun_at`, `launched`, `wait_line`: what it is and how far; `idle`; `ended`:
    this is its last cycle (it had none if it has no workgroups). `begins`, `ends`: its entries of the spans are
    written."""

    def __init__(self) -> None:
        super().__init__(
            {
                "load": In(1),
                "descriptor": In(Kernel),
                "number": In(range(KERNELS)),
                "around": In(Surroundings),
                "launch": In(1),
                "retire": In(1),
                "storing": In(12),
                "stored": In(6),
                "advance": In(1),
                "kernel": Out(Kernel),
                "running": Out(1),
                "begun_at": Out(32),
                "launched": Out(14),
                "retired": Out(14),
                "wait_line": Out(13),
                "idle": Out(1),
                "ended": Out(1),
                "begins": Out(1),
                "ends": Out(1),
                "which": Out(range(KERNELS)),
                "link_busy": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        around, kernel = self.around, self.kernel
        busy_before = Signal(32)
        under_way = Signal(20)
        m.d.sync += under_way.eq(under_way + Mux(self.retire, self.storing, 0) - self.stored)
        m.d.comb += self.link_busy.eq(around.link_busy - busy_before)
        with m.FSM(name="kernel"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.load):
                    m.d.sync += [
                        kernel.eq(self.descriptor),
                        self.which.eq(self.number),
                        self.launched.eq(0),
                        self.retired.eq(0),
                        self.wait_line.eq(self.descriptor.first_wait),
                    ]
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += [self.begun_at.eq(around.now), busy_before.eq(around.link_busy)]
                with m.If(kernel.count == 0):
                    m.d.comb += self.ended.eq(1)
                    m.next = "IDLE"
                with m.Elif(~kernel.after_done | around.node_done):
                    m.d.comb += self.begins.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.running.eq(1)
                m.d.sync += [
                    self.launched.eq(self.launched + self.launch),
                    self.retired.eq(self.retired + self.retire),
                    self.wait_line.eq(self.wait_line + self.advance),
                ]
                over = (self.retired == kernel.count) & (around.arrived >= kernel.arrive) & (under_way == 0)
                with m.If(over):
                    m.d.comb += [self.ends.eq(1), self.ended.eq(1)]
                    m.next = "IDLE"
        return m


class KernelSequence(wiring.Component):
    """Which kernel of a plan comes next: one after the other, those beside others without waiting for their end.

    Ports: `start`; `number` of a kernel, whose `descriptor` must be there in the same cycle while `loading`;
    `load_first`, `load_second`: it is taken by that context; `first_ended`, `second_idle` of the contexts; `busy`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "descriptor": In(Kernel),
                "first_ended": In(1),
                "second_idle": In(1),
                "number": Out(range(KERNELS + 1)),
                "loading": Out(1),
                "load_first": Out(1),
                "load_second": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.busy.eq(1)
        with m.FSM(name="kernels"):
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(~self.second_idle)
                m.d.sync += self.number.eq(0)
                with m.If(self.start):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += self.loading.eq(1)
                with m.If(self.number == KERNELS):
                    m.next = "IDLE"
                with m.Elif(self.descriptor.beside):
                    m.d.comb += self.load_second.eq(self.second_idle)
                    m.d.sync += self.number.eq(self.number + self.second_idle)
                with m.Else():
                    m.d.comb += self.load_first.eq(1)
                    m.next = "HOLD"
            with m.State("HOLD"):
                with m.If(self.first_ended):
                    m.d.sync += self.number.eq(self.number + 1)
                    m.next = "LOAD"
        return m
