"""One DRAM channel by itself: memory controller, HBM model and timing checker, and the figures a trace run reports.

`sim/benches/dram_trace.sv` plays request traces into it.
"""

from dataclasses import replace

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.memory_controller.controller import MemoryController
from hw.messages import Access, AluOperation, ArbiterControl, DataType, Source, TrafficClass
from sim.models.hbm import SECTOR_ADDRESS_BITS, Hbm
from sim.models.timing_checker import TimingChecker

STREAMS = {"compute": TrafficClass.GEMM, "communication": TrafficClass.RS}
"""Streams of requests, and what their column commands are counted as."""

TraceRequest = data.StructLayout({"access": Access, "address": unsigned(SECTOR_ADDRESS_BITS)})
"""One line of a trace: what is done to which sector of the channel."""

TraceFigures = data.StructLayout(
    {
        "cycles": unsigned(48),
        "compute_cycles": unsigned(48),
        "communication_cycles": unsigned(48),
        "compute_columns": unsigned(48),
        "communication_columns": unsigned(48),
        "reads_returned": unsigned(48),
        "row_hits": unsigned(48),
        "activates": unsigned(48),
        "refreshes": unsigned(48),
        "occupancy_sum": unsigned(56),
        "held_compute": unsigned(48),
        "held_communication": unsigned(48),
        "longest_hold": unsigned(32),
        "forced": unsigned(48),
        "rule": unsigned(5),
        "violation": unsigned(1),
    }
)
"""What a run counts. `cycles` since the reset; column commands of each stream (`*_columns`) and the number of cycles
until its last one (`*_cycles`); `reads_returned`: data of so many reads came back; `row_hits`: column commands that
needed no ACT of their own; `activates`, `refreshes`; `occupancy_sum`: requests in the DRAM queue, added up over the
cycles; `held_*`: cycles in which the arbiter left a stream's request waiting, `longest_hold`: the most in a row of the
communication stream; `forced`: requests let through by the starvation limit alone; `violation`, `rule`: of the timing
checker (:class:`sim.models.timing_checker.Rule`)."""


class DramChannel(wiring.Component):
    """Ports: `compute`, `communication`: the two streams; `control`, `kernel_active`: of the arbiter; `measured`: how
    long reads take is counted, and written down when it falls; `idle`: nothing is queued or in flight; `figures`.

    Stores and updates are committed as if tracked. Reads of both streams have the room for their data reserved
    elsewhere (as the DMA engine's do), so that the trace alone decides how many are under way; fewer than 128 of a
    stream are, since the queues on the way hold no more. The HBM model keeps
    `storage_sectors` sectors; beyond them writes leave no trace and reads give a hash of the address.
    """

    def __init__(self, config: Configuration, storage_sectors: int = 1 << 14):
        self._config = replace(config, channels=1)
        self._storage_sectors = storage_sectors
        super().__init__(
            {
                "compute": In(stream.Signature(TraceRequest)),
                "communication": In(stream.Signature(TraceRequest)),
                "control": In(ArbiterControl),
                "kernel_active": In(1),
                "measured": In(1),
                "idle": Out(1),
                "figures": Out(TraceFigures),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.controller = controller = MemoryController(config)
        m.submodules.hbm = hbm = Hbm(config, self._storage_sectors)
        m.submodules.checker = checker = TimingChecker(config)
        events = controller.events
        figures = self.figures
        asked, tags = [], []
        for number, (name, traffic_class) in enumerate(STREAMS.items()):
            given, request = getattr(self, name), getattr(controller, name)
            tag = Signal(8, name=f"{name}_tag", init=number)
            is_read = given.valid & given.ready & (given.payload.access == Access.READ)
            with m.If(is_read):
                m.d.sync += tag.eq(tag + len(STREAMS))
            asked.append(is_read)
            tags.append(tag)
            address = given.payload.address
            m.d.comb += [
                request.valid.eq(given.valid),
                given.ready.eq(request.ready),
                request.payload.access.eq(given.payload.access),
                request.payload.alu.eq(AluOperation.ADD),
                request.payload.dtype.eq(DataType.FP16),
                request.payload.tracked.eq(1),
                request.payload.traffic_class.eq(traffic_class),
                request.payload.source.eq(Source.DMA),
                request.payload.id.eq(tag),
                request.payload.wg.eq(address >> 7),
                request.payload.va.eq(address),
                request.payload.mask.eq((1 << 32) - 1),
                request.payload.data.eq(address.replicate(10)),
            ]
        came = controller.returns
        m.submodules.read_latency = Instance(
            "read_latency",
            p_PORTS=len(STREAMS),
            i_clk=ClockSignal(),
            i_id=Const(0, 32),
            i_restart=Const(0, 1),
            i_enable=self.measured,
            i_asked=Cat(asked),
            i_asked_tag=Cat(tags),
            i_answered=Cat(came.valid & (came.id[0] == number) for number in range(len(STREAMS))),
            i_answered_tag=came.id[:8].replicate(len(STREAMS)),
        )
        m.d.comb += [
            controller.compute_response.ready.eq(1),
            controller.commits.ready.eq(1),
            controller.control.eq(self.control),
            controller.kernel_active.eq(self.kernel_active),
            hbm.row.eq(controller.row),
            hbm.column.eq(controller.column),
            hbm.write_data.eq(controller.write_data),
            controller.read_data.eq(hbm.read_data),
            checker.row.eq(controller.row),
            checker.column.eq(controller.column),
            checker.refresh.eq(self.control.refresh),
            figures.violation.eq(checker.violation),
            figures.rule.eq(checker.rule),
            self.idle.eq(events.idle),
        ]

        def count(name: str, condition: Value) -> None:
            with m.If(condition):
                m.d.sync += figures[name].eq(figures[name] + 1)

        for name in ("held_compute", "held_communication", "forced"):
            count(name, events[name])
        count("row_hits", events.row_hit)
        count("activates", events.activate)
        count("refreshes", events.refresh)
        count("reads_returned", controller.returns.valid)
        for name, traffic_class in STREAMS.items():
            issued = events.column & (events.traffic_class == traffic_class)
            count(f"{name}_columns", issued)
            with m.If(issued):
                m.d.sync += figures[f"{name}_cycles"].eq(figures.cycles + 1)
        hold = Signal(32)
        m.d.sync += [
            figures.cycles.eq(figures.cycles + 1),
            figures.occupancy_sum.eq(figures.occupancy_sum + events.occupancy),
            hold.eq(Mux(events.held_communication, hold + 1, 0)),
        ]
        with m.If(hold > figures.longest_hold):
            m.d.sync += figures.longest_hold.eq(hold)
        return m
