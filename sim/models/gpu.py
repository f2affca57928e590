"""One simulated GPU: the node under test, its DRAM, its GEMM, the rate of its outgoing links and the checkers, as one
module.

It is compiled once (:mod:`sim.simulator.fast_model`), and a system advances as many of it as it has, so that build time
does not grow with the system. What lies between two of them, the latency of a link, is not in it.
"""

from collections.abc import Sequence

from amaranth import Cat, ClockSignal, Const, Instance, Module, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Configuration
from hw.link.wire import message_layout
from hw.node import Node
from hw.registers.register_file import RegisterFile
from sim.host.address_space import ARRAY_BASE
from sim.models.burst_lanes import Gathered
from sim.models.clock_gates import ClockGated
from sim.models.far_backing_store import FarBackingStore
from sim.models.gemm import GemmEngine, SimulationWrite
from sim.models.kernel_context import Spans
from sim.models.lane_bus import LaneBus, OpenNode, lane_members
from sim.models.lane_surroundings import LaneSurroundings
from sim.models.launch_gates import WaitingFor
from sim.models.link import rate_shape, sent_flit
from sim.models.memory_lanes import RequestSocket
from sim.models.recorded_events import SAMPLED, QueueEvent
from sim.models.recorder import Recorded, recorder
from sim.models.seeded_bugs import FaultyNode
from sim.models.stalls import Stalls
from sim.models.workgroup_engine import WorkgroupEngine, remote_ports


def gpu_status(links: int, channels: int) -> data.StructLayout:
    """What a GPU with that many link ports and channels reports: cycles from the start of the GEMM to its end and to
    the end of the collective, WG-launch events, busy cycles of each outgoing link (mean of its lanes), and of the first
    at the end of the collective; of a workgroup engine `spans` of the kernels, the gate it is `waiting` for, and what
    was read of a gathered array, by channel; the most cycles in which a communication request could have been taken and
    was not; the DRAM timing checker's result, a refused read, a write outside the modelled DRAM; `busy`, `active`: its
    GEMM engine does anything, runs a GEMM; `done`, `interrupt`: the node's outputs."""
    return data.StructLayout(
        {
            "gemm_cycles": unsigned(32),
            "done_cycles": unsigned(32),
            "launches": unsigned(32),
            "link_busy": data.ArrayLayout(unsigned(32), links),
            "link_busy_done": unsigned(32),
            "spans": Spans,
            "waiting": WaitingFor,
            "gathered": data.ArrayLayout(Gathered, channels),
            "communication_wait_peak": unsigned(16),
            "violation_rule": unsigned(8),
            "violation": unsigned(1),
            "read_error": unsigned(1),
            "stray": unsigned(1),
            "busy": unsigned(1),
            "active": unsigned(1),
            "done": unsigned(1),
            "interrupt": unsigned(1),
        }
    )


class Gpu(wiring.Component):
    """Ports: `axi_*` of the node; `rank`; `write`, `start`, `fill` of the GEMM engine; `stall` (probability / 256 of an
    idle cycle on links and events); `rates` by link port, of each of its lanes, of links that are slower than those of
    the node (:func:`sim.models.link.rate_shape`); `dump` writes the DRAM array out; per lane of each link port flits
    that are sent and that arrive (`link_out`, `link_in`) and state messages (`messages_out`, `messages_in`), a link's
    latency between them, or, with lanes that are models of their own, by lane `down`, `early` and `late` of
    :class:`sim.models.lane_bus.LaneBus`; `status`."""

    def __init__(
        self,
        config: Configuration,
        storage_sectors: int,
        source_sectors: int = 0,
        seeded_bugs: bool = False,
        plans: bool = False,
        shared: bool = False,
        gated_clocks: bool = True,
        lanes_apart: bool = False,
    ):
        """With `source_sectors` the compute units store arrays of that size that were loaded; without, numbers that
        depend on the place. They are a :class:`WorkgroupEngine`, which runs plans, without `source_sectors` or with
        `plans`, otherwise a :class:`GemmEngine`. With `shared` all link ports together have the bandwidth of one link,
        each way. Without `gated_clocks` blocks that rest are clocked too. With `seeded_bugs` a run may switch on one of
        :data:`sim.models.seeded_bugs.SEEDED_BUGS`. With `lanes_apart` its lanes are models of their own
        (:class:`sim.models.gpu_lane.GpuLane`), to which the links belong, and what makes a workgroup engine's requests.
        """
        self._config = config
        self._seeded_bugs = seeded_bugs
        self._storage_sectors = storage_sectors
        self._source_sectors = source_sectors
        self._plans = plans or not source_sectors
        self._shared = shared
        self._gated_clocks = gated_clocks
        self._lanes_apart = lanes_apart
        flit, message = sent_flit(config), message_layout(config)
        if lanes_apart:
            bus = LaneBus.of(config, self.request_ports)
            outside = {"down": Out(bus.down), "early": In(bus.early), "late": In(bus.late)}
            outside = {name: member.array(config.lanes) for name, member in outside.items()}
        else:
            outside = {
                "link_out": Out(flit),
                "link_in": In(flit),
                "messages_out": Out(message),
                "messages_in": In(message),
            }
            outside = {name: member.array(config.link_lanes) for name, member in outside.items()}
        super().__init__(
            {
                **RegisterFile.axi_members(),
                "rank": In(6),
                "write": In(SimulationWrite),
                "start": In(1),
                "fill": In(1),
                "stall": In(8),
                "rates": In(rate_shape(config)).array(config.links),
                "dump": In(1),
                **outside,
                "status": Out(gpu_status(config.links, config.channels)),
            }
        )

    @property
    def lanes(self) -> int:
        """Of its node."""
        return self._config.lanes

    @property
    def lane_bus(self) -> LaneBus | None:
        """Of a lane, where lanes are models of their own."""
        return LaneBus.of(self._config, self.request_ports) if self._lanes_apart else None

    @property
    def request_ports(self) -> int:
        """Link ports for remote stores of request lanes that are parts of lanes which are models of their own; 0 where
        these are parts of no such model."""
        if not (self._lanes_apart and self._plans):
            return 0
        return remote_ports(self._config, self._source_sectors)

    @property
    def stores_arrays(self) -> bool:
        """Whether the compute units store arrays that were loaded."""
        return self._source_sectors != 0

    @property
    def logged(self) -> bool:
        """Whether column commands are written down."""
        return self._plans and self.stores_arrays

    @property
    def runs_plans(self) -> bool:
        """Whether the compute units run plans."""
        return self._plans

    def status_field(self, name: str) -> data.Field:
        """Where `name` lies in `status`."""
        return gpu_status(self._config.links, self._config.channels)[name]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lanes = range(config.lanes)
        node = self._node()
        m.submodules.node = ClockGated(node) if self._gated_clocks else node
        gemm: GemmEngine | WorkgroupEngine
        if self._plans:
            gemm = WorkgroupEngine(config, ARRAY_BASE, self._source_sectors, self._lanes_apart)
        else:
            gemm = GemmEngine(config, self._source_sectors)
        m.submodules.gemm = gemm
        m.submodules.stalls = stalls = Stalls(ports=1 + config.link_lanes)
        stops = [Cat(stalls.stop[1 + port * config.lanes + lane] for port in range(config.links)) for lane in lanes]
        sockets = gemm.sockets if isinstance(gemm, WorkgroupEngine) else []
        reports = self._open(m, node, sockets, stops) if isinstance(node, OpenNode) else self._surround(m, node, stops)
        for name, member in RegisterFile.axi_members().items():
            port, inner = getattr(self, name), getattr(node, name)
            m.d.comb += inner.eq(port) if member.flow == In else port.eq(inner)
        m.d.comb += [
            gemm.rank.eq(self.rank),
            gemm.start.eq(self.start),
            node.kernel_active.eq(gemm.active | self.start),
            stalls.probability.eq(self.stall),
            stalls.seed.eq(~self.rank),
        ]
        if isinstance(gemm, GemmEngine):
            m.d.comb += [gemm.write.eq(self.write), gemm.fill.eq(self.fill)]
        else:
            m.d.comb += [
                gemm.node_done.eq(node.done),
                *(port.eq(room) for port, room in zip(gemm.remote_room, node.remote_room, strict=True)),
                gemm.arrivals.eq(sum(report.arrivals for report in reports)),
                gemm.link_busy.eq(self.status.link_busy[0]),
                self.status.spans.eq(gemm.spans),
                self.status.waiting.eq(gemm.waiting),
                *(port.eq(seen) for port, seen in zip(self.status.gathered, gemm.gathered, strict=True)),
            ]
        self._longest_wait(m, node)
        if config.far_backing_store:
            m.submodules.backing_store = backing_store = FarBackingStore(config)
            connect(m, node.backing_store, backing_store.port)
        for channel in range(config.channels):
            connect(m, gemm.requests[channel], node.compute[channel])
            connect(m, node.responses[channel], gemm.responses[channel])
        for port, total in enumerate(self.status.link_busy):
            busy = [report.link_busy[port] for report in reports]
            m.d.comb += total.eq(sum(busy[1:], busy[0]) >> config.lane_bits)

        started = Signal()
        cycles = Signal(32)
        finished = Signal()
        launches = Signal(32)
        gemm_cycles = Signal(32)
        done_cycles = Signal(32)
        link_busy_done = Signal(32)
        m.d.comb += node.launches.ready.eq(~stalls.stop[0])
        if isinstance(gemm, WorkgroupEngine):
            m.d.comb += [
                gemm.launches.payload.eq(node.launches.payload),
                gemm.launches.valid.eq(node.launches.valid & ~stalls.stop[0]),
                node.launches.ready.eq(gemm.launches.ready & ~stalls.stop[0]),
            ]
        with m.If(node.launches.valid & node.launches.ready):
            m.d.sync += launches.eq(launches + 1)
        self._recorder(m, node, gemm)
        self._sampler(m, node, gemm.busy, started & ~finished)
        if isinstance(gemm, WorkgroupEngine) or gemm.told_apart:
            self._read_latency(m, gemm)
        with m.If(self.start):
            m.d.sync += [started.eq(1), finished.eq(0), cycles.eq(0), launches.eq(0)]
        with m.Elif(started):
            m.d.sync += cycles.eq(cycles + 1)
            with m.If(gemm.active):
                m.d.sync += gemm_cycles.eq(cycles)
            with m.If(node.done & ~finished):
                m.d.sync += [finished.eq(1), done_cycles.eq(cycles), link_busy_done.eq(self.status.link_busy[0])]
        last_rule = Signal(8)
        for report in reports:
            with m.If(report.violation):
                m.d.comb += last_rule.eq(report.rule)
        m.d.comb += [
            self.status.gemm_cycles.eq(gemm_cycles),
            self.status.done_cycles.eq(done_cycles),
            self.status.launches.eq(launches),
            self.status.link_busy_done.eq(link_busy_done),
            self.status.violation.eq(Cat(report.violation for report in reports).any()),
            self.status.violation_rule.eq(last_rule),
            self.status.read_error.eq(gemm.error),
            self.status.stray.eq(Cat(report.stray for report in reports).any()),
            self.status.busy.eq(gemm.busy),
            self.status.active.eq(gemm.active),
            self.status.done.eq(node.done),
            self.status.interrupt.eq(node.irq),
        ]
        return m

    def _node(self) -> Recorded:
        if self._lanes_apart:
            return OpenNode(self._config)
        return FaultyNode(self._config) if self._seeded_bugs else Recorded(self._config)

    def _surround(self, m: Module, node: Node, stops: Sequence[Value]) -> list[data.View]:
        """Put what stands around the lanes of `node` there; what it reports, by lane."""
        config, reports = self._config, []
        for lane, stop in enumerate(stops):
            around = LaneSurroundings(
                config, self._storage_sectors, lane, self._seeded_bugs, self._shared, self._gated_clocks, self.logged
            )
            around.add_to(m)
            m.d.comb += [
                around.rank.eq(self.rank),
                around.number.eq(lane),
                around.dump.eq(self.dump),
                around.stop.eq(stop),
                *(inner.eq(rate) for inner, rate in zip(around.rates, self.rates, strict=True)),
            ]
            for own, dram in enumerate(around.dram):
                connect(m, node.dram[lane * config.lane_channels + own], dram)
            for port, link in enumerate(around.link):
                index = port * config.lanes + lane
                connect(m, node.link[index], link)
                m.d.comb += [
                    around.link_in[port].eq(self.link_in[index]),
                    around.messages_in[port].eq(self.messages_in[index]),
                    self.link_out[index].eq(around.link_out[port]),
                    self.messages_out[index].eq(around.messages_out[port]),
                ]
            reports.append(around.report)
        return reports

    def _open(
        self, m: Module, node: OpenNode, requests: Sequence[RequestSocket], stops: Sequence[Value]
    ) -> list[data.View]:
        """Lead the ports of the lanes of `node` outside, and those of the request lanes, where these are there; what
        stands around them reports, by lane."""
        own = self._config.lane_channels
        for lane, (socket, stop) in enumerate(zip(node.sockets, stops, strict=True)):
            down, early, late = self.down[lane], self.early[lane], self.late[lane]
            m.d.comb += [down.rank.eq(self.rank), down.dump.eq(self.dump), down.stop.eq(stop)]
            m.d.comb += [down[f"rate_{port}"].eq(rate) for port, rate in enumerate(self.rates)]
            for member in lane_members(socket, requests[lane * own : (lane + 1) * own]):
                if member.flow == In:
                    m.d.comb += Value.cast(down[member.field]).eq(member.port)
                else:
                    part = late if member.field in late.shape().fields else early
                    m.d.comb += member.port.eq(part[member.field])
        return [early.report for early in self.early]

    def _sampler(self, m: Module, node: Node, busy: Value, pending: Value) -> None:
        """Let `sampler.sv` write down what the channels do from the last start on, while kernels are `busy` or a
        collective is `pending`."""
        m.submodules.sampler = Instance(
            "sampler",
            p_CHANNELS=self._config.channels,
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_restart=self.start,
            i_busy=busy,
            i_pending=pending,
            i_column=Cat(probe.column for probe in node.probes),
            i_kind=Cat(Cat(probe.access.as_value(), probe.traffic_class.as_value()) for probe in node.probes),
            i_occupancy=Cat(probe.occupancy for probe in node.probes),
            i_threshold=node.probes[0].threshold.as_value(),
        )

    def _read_latency(self, m: Module, gemm: GemmEngine | WorkgroupEngine) -> None:
        """Let `read_latency.sv` write down how long what the compute units read takes."""
        m.submodules.read_latency = Instance(
            "read_latency",
            p_PORTS=self._config.channels,
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_restart=self.start,
            i_enable=gemm.busy,
            i_asked=Cat(probe.asked for probe in gemm.probes),
            i_asked_tag=Cat(probe.asked_tag for probe in gemm.probes),
            i_answered=Cat(probe.answered for probe in gemm.probes),
            i_answered_tag=Cat(probe.answered_tag for probe in gemm.probes),
        )

    def _recorder(self, m: Module, node: Node, gemm: GemmEngine | WorkgroupEngine) -> None:
        """Let `recorder.sv` write down what happens around the node; :func:`sim.models.recorder.gpu_sources`."""
        since = Signal(range(SAMPLED))
        done_before = Signal()
        m.d.sync += [since.eq(since + 1), done_before.eq(node.done)]
        queues = []
        for channel, probe in enumerate(node.probes):
            queue = Signal(QueueEvent, name=f"recorded_queue_{channel}")
            m.d.comb += [queue.occupancy.eq(probe.occupancy), queue.threshold.eq(probe.threshold.as_value())]
            queues.append((since.all() & self.status.busy | (since.all() & ~node.done), queue))
        m.submodules.recorder = recorder(
            "gpu",
            self.rank,
            [
                (self.start, Const(0, 64)),
                (node.done & ~done_before, Const(0, 64)),
                *queues,
                *((event.valid, event.payload) for event in gemm.recorded),
            ],
        )

    def _longest_wait(self, m: Module, node: Node) -> None:
        """Measure how long the arbiters of the channels pass a communication request over."""
        for channel, probe in enumerate(node.probes):
            passed = Signal(16, name=f"passed_over_{channel}")
            with m.If(probe.took_communication):
                m.d.sync += passed.eq(0)
            with m.Elif(probe.passed_over & ~passed.all()):
                m.d.sync += passed.eq(passed + 1)
            with m.If(passed > self.status.communication_wait_peak):
                m.d.sync += self.status.communication_wait_peak.eq(passed)
