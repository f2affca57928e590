"""One GPU's memory-side hardware: the blocks in the order in which a sector meets them, wired together.

Ports are listed in :class:`Node`. Everything else (GPU, DRAM, links) stands on the other side of them.
Source: T3 (ASPLOS 2024) Fig 8.
"""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abort import EpochAbort
from .address_map import ADDRESS_MAP_COUNTERS, AddressMap
from .config import Configuration
from .dma.engine import DmaEngine
from .dma.events import DMA_COUNTERS
from .drain_bound import DrainBound
from .interfaces import AxiLite, BackingStorePort, DramBus, LinkPort, gathered, gathered_ports
from .link.egress import DMA, STORES
from .link.events import LINK_COUNTERS, link_counters, recovery_counters
from .link.lane import LinkLane
from .link.packetizer import StorePacketizer
from .link.port_sender import LinkTimers
from .memory_clear import MemoryClear
from .memory_controller.controller import MemoryController
from .memory_controller.events import CONTROLLER_COUNTERS, ControllerEvents
from .memory_errors import MEMORY_COUNTERS, MemoryErrors
from .messages import Access, Messages, TrafficClass, WindowCheck
from .node_monitor import LATENCY_COUNTERS, CollectiveState, TriggerLatency
from .primitives.clock_enable import sleeping_submodule
from .primitives.stream_arbiter import StreamArbiter
from .protection import MemoryUpset, ProtectedMemory
from .registers.map import ADDRESS_BITS, PEERS_PER_REGISTER
from .registers.register_file import RegisterFile
from .tracker.doorbell import DOORBELL_COUNTERS, Doorbell
from .tracker.events import TRACKER_COUNTERS
from .tracker.spill import SpillPort
from .tracker.tracker import Tracker


class Node(wiring.Component):
    """The exported hardware of one GPU.

    Ports (besides `clk`, `rst` and the AXI4-Lite signals `axi_*` of :class:`hw.registers.register_file.RegisterFile`):

    - `irq`: level, a fault or the end of the collective, as enabled;
    - `kernel_active`: high from the launch of the GEMM kernel to the end of its last store (kernel boundary, 4.5);
    - `compute`, `responses`: per channel, the GPU's accesses and the data of its reads;
    - `link`: per link port, see :class:`hw.interfaces.LinkPort`;
    - `dram`: per channel, see :class:`hw.interfaces.DramBus`;
    - `backing_store`: with `far_backing_store`, see :class:`hw.interfaces.BackingStorePort`;
    - `rst` is held for longer than CL, so that no data of a read from before comes back after it;
    - `launches`: WG-launch events; `range_done`: a bit per range; `done`: this node's part of the collective is over.
    """

    def __init__(self, config: Configuration):
        self._config = config
        messages = Messages(config)
        self._messages = messages
        self.probes = [Signal(ControllerEvents, name=f"probe_{channel}") for channel in range(config.channels)]
        """What each channel's controller does; not a port, for simulation models that stand around the node."""
        self.remote_room = [Signal(config.links, name=f"remote_room_{channel}") for channel in range(config.channels)]
        """By channel a bit per link port: remote stores that leave by it would hold up nothing behind them; as for
        `probes`."""
        super().__init__(
            {
                **RegisterFile.axi_members(),
                "irq": Out(1),
                "kernel_active": In(1),
                "compute": In(stream.Signature(messages.compute_request)).array(config.channels),
                "responses": Out(stream.Signature(messages.compute_response)).array(config.channels),
                "link": Out(LinkPort(config)).array(config.links),
                "dram": Out(DramBus(config)).array(config.channels),
                "launches": Out(stream.Signature(messages.launch_event)),
                "range_done": Out(config.ranges),
                "done": Out(1),
                **({"backing_store": Out(BackingStorePort(config))} if config.far_backing_store else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        m.submodules.registers = registers = RegisterFile(config)
        m.submodules.state = state = CollectiveState(config)
        m.submodules.epoch_abort = abort = EpochAbort(config)
        m.submodules.drain_bound = drain_bound = DrainBound()
        m.submodules.tracker = tracker = self._tracker()
        m.submodules.spill = spill = SpillPort(config)
        dma = DmaEngine(config)
        packetizer = StorePacketizer(config)
        m.submodules.links = links = LinkLane(config)
        memory_clear = MemoryClear(config)
        doorbell = Doorbell(config)
        axi = AxiLite(ADDRESS_BITS)
        connect(m, gathered_ports(axi.flip(), self, "axi_"), gathered_ports(axi, registers, "axi_"))

        window = Signal(WindowCheck)
        maps, controllers = [], []
        blocks = {"dma": dma, "memory_clear": memory_clear, "packetizer": packetizer, "doorbell": doorbell}
        for name, block in blocks.items():
            sleeping_submodule(m, name, block)
        for channel in range(config.channels):
            m.submodules[f"address_map_{channel}"] = address_map = AddressMap(config)
            m.submodules[f"controller_{channel}"] = controller = self._controller()
            m.submodules[f"communication_{channel}"] = merge = StreamArbiter(messages.memory_request, 3)
            m.submodules[f"responses_{channel}"] = answers = StreamArbiter(messages.compute_response, 2)
            maps.append(address_map)
            controllers.append(controller)
            connect(m, flipped(self.compute[channel]), address_map.requests)
            connect(m, address_map.local, controller.compute)
            connect(m, address_map.remote, packetizer.stores[channel])
            connect(m, links.requests[channel], merge.inputs[0])
            connect(m, dma.reads[channel], merge.inputs[1])
            connect(m, memory_clear.memory[channel], merge.inputs[2])
            connect(m, merge.output, controller.communication)
            connect(m, spill.memory[channel], controller.spill)
            connect(m, controller.commits, tracker.commits[channel])
            connect(m, controller.compute_response, answers.inputs[0])
            connect(m, address_map.refused_reads, answers.inputs[1])
            connect(m, answers.output, flipped(self.responses[channel]))
            connect(m, gathered_ports(DramBus(config), controller), flipped(self.dram[channel]))
            m.d.comb += [
                dma.returns[channel].eq(controller.returns),
                spill.returns[channel].eq(controller.returns),
                controller.kernel_active.eq(self.kernel_active),
                controller.control.policy.eq(registers.arbiter_policy),
                controller.control.threshold.eq(registers.arbiter_threshold),
                controller.control.refresh.eq(registers.arbiter_refresh),
                controller.control.starvation_limit.eq(registers.starvation_limit),
                controller.control.pace.eq(registers.pace),
                controller.control.pace_lag.eq(registers.pace_lag),
                controller.control.window.eq(registers.detector_window),
                controller.control.boundary_10.eq(registers.detector_boundary_10),
                controller.control.boundary_30.eq(registers.detector_boundary_30),
                controller.control.boundary_none.eq(registers.detector_boundary_none),
                address_map.ranges.eq(registers.range_write),
                address_map.sends.eq(registers.send_write),
                *(port.eq(known) for port, known in zip(address_map.port_of, links.port_of, strict=True)),
                address_map.epoch.eq(state.epoch),
                address_map.armed.eq(state.armed),
            ]

        if config.far_backing_store:
            connect(m, spill.far, flipped(self.backing_store))
        connect(m, doorbell.commits, tracker.doorbell)
        connect(m, tracker.blocks, dma.blocks)
        connect(m, tracker.launches, flipped(self.launches))
        connect(m, tracker.spill_requests, spill.requests)
        m.d.comb += [port.eq(room) for port, room in zip(self.remote_room, packetizer.room, strict=True)]
        connect(m, dma.slots, links.sources[DMA])
        connect(m, packetizer.slots, links.sources[STORES])
        for index in range(config.links):
            port = LinkPort(config)
            members = {name: getattr(links, name)[index] for name in port.members}
            connect(m, gathered(port, **members), flipped(self.link[index]))
            peers, peer = f"link_peers_{index // PEERS_PER_REGISTER}", links.peers[index]
            m.d.comb += [
                peer.rank.eq(getattr(registers, f"{peers}_rank_{index}")),
                peer.checked.eq(getattr(registers, f"{peers}_checked_{index}")),
            ]
        m.d.comb += [
            tracker.spill_response.eq(spill.response),
            spill.base.eq(Cat(registers.spill_base_low, registers.spill_base_high)),
            spill.sectors.eq(registers.spill_sectors),
            window.high.eq(registers.memory_window_high),
            window.checked.eq(registers.memory_window_checked),
            *(port.eq(window) for port in (*(item.window for item in maps), links.window, dma.window)),
            spill.window.eq(window),
            memory_clear.window.eq(window),
            links.sends.eq(registers.send_write),
            links.rank.eq(registers.rank),
            *(links.timers[name].eq(getattr(registers, f"link_{name}")) for name, _ in LinkTimers),
            links.epoch.eq(state.epoch),
            links.armed.eq(state.armed),
            links.notice.eq(abort.notice),
            links.give_up.eq(drain_bound.give_up),
            drain_bound.waits.eq(~state.armed & ~links.empty),
            drain_bound.limit.eq(registers.link_dead),
            registers.link_status_up.eq(Cat(event.up for event in links.events)),
            registers.link_status_dead.eq(Cat(event.dead for event in links.events)),
            *(
                arrival.eq(own)
                for arrival, own in zip(links.arrivals, (*dma.arrivals, packetizer.arrival), strict=True)
            ),
            dma.block_sent.eq(links.block_sent),
            *(port.eq(known) for port, known in zip(dma.port_of, links.port_of, strict=True)),
            tracker.epoch.eq(state.epoch),
            dma.epoch.eq(state.epoch),
            dma.armed.eq(state.armed),
            tracker.clear.eq(state.clear),
            memory_clear.ranges.eq(registers.range_write),
            memory_clear.backing_base.eq(spill.base),
            memory_clear.backing_sectors.eq(spill.sectors),
            memory_clear.arm.eq(registers.control_arm),
            memory_clear.initialised.eq(registers.control_initialised),
            memory_clear.start.eq(state.clear),
            memory_clear.settled.eq(~Cat(controller.events.unsettled for controller in controllers).any()),
            dma.clear.eq(state.clear),
            dma.sends.eq(registers.send_write),
            doorbell.entry.eq(registers.doorbell_entry),
            doorbell.first.eq(registers.doorbell_workgroups_first),
            doorbell.count.eq(registers.doorbell_workgroups_count),
            doorbell.armed.eq(state.armed),
            doorbell.epoch.eq(state.epoch),
        ]
        for block in (tracker, dma, links):
            m.d.comb += block.ranges.eq(registers.range_write)

        # Whatever moves from one of these to the next is seen in one of them in every cycle; with `armed` low nothing
        # new comes in, so once it is over it stays so.
        left_over = Signal()
        drained = Signal()
        m.d.comb += left_over.eq(
            Cat(
                *(address_map.holding for address_map in maps),
                *(controller.events.unsettled for controller in controllers),
                *(event.writing for event in links.events),
                ~links.empty,
                ~dma.idle,
                ~packetizer.idle,
                tracker.waiting,
                doorbell.busy,
            ).any()
        )
        m.d.sync += drained.eq(~left_over & ~state.armed)

        idle = Signal()
        m.d.comb += [
            idle.eq(
                Cat(controller.events.idle for controller in controllers).all()
                & links.idle
                & dma.idle
                & packetizer.idle
                & ~doorbell.busy
            ),
            state.ranges.eq(registers.range_write),
            state.arm.eq(registers.control_arm),
            state.disarm.eq(registers.control_disarm | abort.ends),
            abort.request.eq(registers.control_abort),
            abort.arm.eq(registers.control_arm),
            abort.number.eq(state.called),
            abort.coming.eq(registers.epoch),
            abort.active.eq(state.armed | state.arming),
            abort.running.eq(state.running),
            abort.watchdog.eq(registers.watchdog),
            *(port.eq(heard) for port, heard in zip(abort.heard, links.heard, strict=True)),
            abort.moved.eq(
                Cat(
                    *(port.valid & port.ready for port in tracker.commits),
                    *(event.left | event.received_packets for event in links.events),
                    doorbell.tile,
                    dma.events.reads.any(),
                    packetizer.arrival.valid,
                ).any()
            ),
            registers.locked.eq(state.locked),
            registers.status_aborted.eq(abort.cause.as_value().any()),
            registers.interrupt_status_aborted.eq(abort.ends),
            *(
                getattr(registers, f"abort_cause_{name}").eq(abort.cause[name])
                for name in ("host", "watchdog", "peer", "memory")
            ),
            registers.abort_cause_epoch.eq(abort.ended),
            state.number.eq(registers.epoch),
            state.drained.eq(drained),
            state.cleared.eq(tracker.cleared & memory_clear.finished),
            state.range_done.eq(tracker.done),
            state.sent_blocks.eq(dma.sent_blocks),
            state.expected_blocks.eq(registers.expected_blocks),
            # What arrives may belong to what a neighbour does next; all that was awaited is in the ranges already.
            state.idle.eq(links.all_left & dma.idle & packetizer.idle),
            self.done.eq(state.done),
            self.range_done.eq(tracker.done),
            self.irq.eq(registers.interrupt_request),
            registers.status_armed.eq(state.armed),
            registers.status_arming.eq(state.arming),
            registers.status_drained.eq(drained),
            registers.status_cleared.eq(tracker.cleared),
            registers.status_kernel_active.eq(self.kernel_active),
            registers.status_idle.eq(idle),
            registers.status_done.eq(state.done),
            registers.status_doorbell.eq(doorbell.busy),
            Cat(registers.done_ranges_low, registers.done_ranges_high).eq(tracker.done),
            registers.interrupt_status_done.eq(state.done_rises),
        ]
        sources: list[Any] = [links, tracker, doorbell, abort, dma, spill]
        if config.protects_memories:
            sources.append(self._protect_memories(m, registers, abort, tracker))
        self._faults(m, registers, [*(item.faults for item in maps), *(source.faults for source in sources)])
        self._counters(m, registers, controllers, maps, tracker, dma, links, doorbell)
        return m

    def _protect_memories(
        self, m: Module, registers: RegisterFile, abort: EpochAbort, tracker: wiring.Component
    ) -> MemoryErrors:
        """What the protected memories report, and what they are told."""
        memories = [*ProtectedMemory] * self._config.tracker_banks
        m.submodules.memory_errors = errors = MemoryErrors(self._config, memories)
        upset = Signal(MemoryUpset)
        m.d.comb += [
            *(port.eq(report) for port, report in zip(errors.reports, tracker.memory_reports, strict=True)),
            errors.forget.eq(registers.control_arm),
            errors.interval.eq(registers.memory_scrub),
            abort.lost.eq(errors.lost),
            upset.valid.eq(registers.memory_upset_turn),
            upset.memory.eq(registers.memory_upset_memory),
            upset.address.eq(registers.memory_upset_address),
            *(upset[name].eq(getattr(registers, f"memory_upset_bits_{name}")) for name in ("first", "second", "two")),
            tracker.upset.eq(upset),
            tracker.scrub.eq(errors.scrub),
            registers.interrupt_status_memory.eq(errors.met),
            *(
                getattr(registers, f"memory_error_{name}").eq(errors.location[name])
                for name in errors.location.shape().members
            ),
            *(
                getattr(registers, f"count_{counter.name}").eq(counter.value(errors.events))
                for counter in MEMORY_COUNTERS
            ),
        ]
        return errors

    def _tracker(self) -> wiring.Component:
        return Tracker(self._config)

    def _controller(self) -> wiring.Component:
        return MemoryController(self._config)

    def _faults(self, m: Module, registers: RegisterFile, sources: list) -> None:
        """Every fault reaches the fault record; the record keeps the first, the count all."""
        m.submodules.faults = merge = StreamArbiter(self._messages.fault_record, len(sources))
        for index, source in enumerate(sources):
            connect(m, source, merge.inputs[index])
        m.d.comb += merge.output.ready.eq(1)
        self._connect_fault(m, registers, merge.output)

    def _connect_fault(self, m: Module, registers: RegisterFile, fault: stream.Interface) -> None:
        m.d.comb += [
            registers.interrupt_status_fault.eq(fault.valid),
            registers.fault_record.eq(fault.payload),
        ]

    def _counters(self, m, registers, controllers, maps, tracker, dma, links, doorbell) -> None:
        """Increments of the counter registers: what each block's counters make of its events."""
        events = [controller.events for controller in controllers]
        m.d.comb += [probe.eq(event) for probe, event in zip(self.probes, events, strict=True)]
        m.submodules.trigger_latency = latency = TriggerLatency()
        m.d.comb += [
            latency.commit.eq(Cat(port.valid & port.ready for port in tracker.commits).any()),
            latency.busy.eq(dma.events.busy),
            latency.read.eq(
                Cat(
                    event.column & (event.access == Access.READ) & (event.traffic_class != TrafficClass.GEMM)
                    for event in events
                ).any()
            ),
        ]
        for counters, sources in (
            (CONTROLLER_COUNTERS, events),
            (TRACKER_COUNTERS, [tracker.events]),
            (DMA_COUNTERS, [dma.events]),
            *((link_counters(port), [links.events[port]]) for port in range(self._config.links)),
            (ADDRESS_MAP_COUNTERS, [item.refused for item in maps]),
            (LATENCY_COUNTERS, [latency.value]),
            *((recovery_counters(port), [links.events[port]]) for port in range(self._config.links)),
            (LINK_COUNTERS, [links.discarded]),
            (DOORBELL_COUNTERS, [doorbell.tile]),
        ):
            for counter in counters:
                values = [counter.value(source) for source in sources]
                m.d.comb += getattr(registers, f"count_{counter.name}").eq(sum(values[1:], values[0]))
