"""Benches around one memory controller that run without Python: traffic at full rate, or the streams with a DRAM."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Configuration
from hw.memory_controller.controller import MemoryController, controller_ports
from hw.messages import Access, ColumnCommand, RowCommand, Source
from sim.models.hbm import Hbm
from sim.models.timing_checker import TimingChecker
from tb.drivers.dram_stub import DramStub

PORTS = (
    "compute",
    "communication",
    "spill",
    "compute_response",
    "returns",
    "commits",
    "control",
    "kernel_active",
    "events",
    "row",
    "column",
)
"""Members of the controller's signature that :class:`MemoryBench` passes on."""


class RateBench(wiring.Component):
    """Offers requests in every cycle and counts how long they take.

    Ports: `requests`: how many; `first`, `second`: what they do, in turn; `random`: at random addresses instead of
    consecutive ones; `refresh`: on; `start`: high while running. `done`: all have had their column command; `columns`,
    `activates`, `refreshes`: commands issued; `cycles` since the start until the last column command; `reads`: read
    data that came back; `violation`, `rule`: of the timing checker; `early`: something was committed before its
    column command. `controller`: another one than that of `config`. Reads are of the
    communication stream, whose room is not limited here.
    """

    requests: In(32)
    first: In(Access)
    second: In(Access)
    random: In(1)
    refresh: In(1)
    start: In(1)
    done: Out(1)
    cycles: Out(32)
    columns: Out(32)
    activates: Out(32)
    refreshes: Out(32)
    reads: Out(32)
    violation: Out(1)
    rule: Out(5)
    early: Out(1)

    def __init__(self, config: Configuration, controller: wiring.Component | None = None):
        self._config = config
        self._controller = controller or MemoryController(config)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = controller = self._controller
        m.submodules.checker = checker = TimingChecker(self._config)
        accepted = Signal(32)
        # Random addresses: the 32-bit xorshift generator of Marsaglia.
        state = Signal(32, init=0x2545F491)
        mixed = state ^ (state << 13)[:32]
        mixed = mixed ^ (mixed >> 17)
        mixed = mixed ^ (mixed << 5)[:32]
        request = controller.communication
        m.d.comb += [
            request.valid.eq(self.start & (accepted != self.requests)),
            request.payload.access.eq(Mux(accepted[0], self.second, self.first)),
            request.payload.source.eq(Source.DMA),
            request.payload.va.eq(Mux(self.random, state[:25], accepted)),
            request.payload.mask.eq(0xFFFFFFFF),
            request.payload.tracked.eq(1),
            controller.commits.ready.eq(1),
            controller.control.refresh.eq(self.refresh),
            checker.refresh.eq(self.refresh),
            checker.row.eq(controller.row),
            checker.column.eq(controller.column),
            self.violation.eq(checker.violation),
            self.rule.eq(checker.rule),
            self.done.eq(self.start & (self.columns == self.requests)),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += [accepted.eq(accepted + 1), state.eq(mixed)]
        with m.If(self.start & ~self.done):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(controller.column.valid):
            m.d.sync += self.columns.eq(self.columns + 1)
        with m.If(controller.events.activate):
            m.d.sync += self.activates.eq(self.activates + 1)
        with m.If(controller.row.valid & (controller.row.command == RowCommand.REF)):
            m.d.sync += self.refreshes.eq(self.refreshes + 1)
        committed = Signal(32)
        ordered = Signal(32)
        with m.If(controller.commits.valid):
            m.d.sync += committed.eq(committed + 1)
        reading = controller.column.command == ColumnCommand.RD
        with m.If(controller.column.valid & ~reading):
            m.d.sync += ordered.eq(ordered + 1)
        with m.If(committed > ordered):
            m.d.sync += self.early.eq(1)
        latency = self._config.timing.cl
        flying = Signal(latency)
        m.d.sync += flying.eq(Cat(controller.column.valid & reading, flying[: latency - 1]))
        m.d.comb += controller.read_data.valid.eq(flying[-1])
        with m.If(controller.returns.valid):
            m.d.sync += self.reads.eq(self.reads + 1)
        return m


class MemoryBench(wiring.Component):
    """A controller with a DRAM and the timing checker; the streams are ports.

    Ports: those of :class:`MemoryController` but the DRAM's data; `violation`, `rule`: of the timing checker; `fault`:
    of the DRAM. The DRAM is :class:`DramStub`, or with `near_bank_units` the whole :class:`Hbm` (which has no `fault`,
    takes `sim/models/hbm_array.sv` and `sim/models/clock_gate.sv`, and builds three times as long).
    """

    def __init__(self, config: Configuration, near_bank_units: bool = False):
        self._config = config
        self._near_bank_units = near_bank_units
        ports = controller_ports(config)
        members = {name: ports[name] for name in PORTS}
        members |= {"violation": Out(1), "rule": Out(5), "fault": In(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = controller = MemoryController(self._config)
        m.submodules.checker = checker = TimingChecker(self._config)
        dram: Hbm | DramStub
        if self._near_bank_units:
            dram = Hbm(self._config, gated_clocks=False)
        else:
            dram = DramStub(self._config)
            m.d.comb += dram.fault.eq(self.fault)
        m.submodules.dram = dram
        for name in ("compute", "communication", "spill", "compute_response", "commits"):
            connect(m, flipped(getattr(self, name)), getattr(controller, name))
        m.d.comb += [
            self.returns.eq(controller.returns),
            self.events.eq(controller.events),
            controller.control.eq(self.control),
            controller.kernel_active.eq(self.kernel_active),
            checker.row.eq(controller.row),
            checker.column.eq(controller.column),
            checker.refresh.eq(self.control.refresh),
            dram.row.eq(controller.row),
            dram.column.eq(controller.column),
            dram.write_data.eq(controller.write_data),
            controller.read_data.eq(dram.read_data),
            self.row.eq(controller.row),
            self.column.eq(controller.column),
            self.violation.eq(checker.violation),
            self.rule.eq(checker.rule),
        ]
        return m
