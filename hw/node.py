"""One GPU's memory-side hardware: the blocks in the order in which a sector meets them, wired together.

Ports are listed in :class:`Node`. Everything else (GPU, DRAM, links) stands on the other side of them.
Source: T3 (ASPLOS 2024) Fig 8.
"""

from types import SimpleNamespace
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abort import EpochAbort
from .address_map import ADDRESS_MAP_COUNTERS
from .config import Configuration
from .dma.events import DMA_COUNTERS
from .drain_bound import DrainBound
from .interfaces import AxiLite, BackingStorePort, DramBus, LinkPort, gathered_ports
from .link.events import LINK_COUNTERS, link_counters, recovery_counters
from .link.port_sender import LinkTimers
from .memory_clear import MemoryClear
from .memory_controller.events import CONTROLLER_COUNTERS, ControllerEvents
from .memory_errors import MEMORY_COUNTERS, MemoryErrors
from .memory_lane import LANE_USERS, MemoryLane
from .memory_window import WindowCheck
from .messages import Access, Messages, TrafficClass
from .node_monitor import LATENCY_COUNTERS, CollectiveState, TriggerLatency
from .primitives.clock_enable import sleeping_submodule
from .primitives.queue import Queue
from .primitives.stream_arbiter import StreamArbiter
from .primitives.stream_fork import StreamFork
from .protection import TRACKER_MEMORIES, MemoryReport, MemoryUpset, ProtectedMemory, TableUser
from .registers.map import ADDRESS_BITS, PEERS_PER_REGISTER
from .registers.register_file import RegisterFile
from .tracker.doorbell import DOORBELL_COUNTERS, Doorbell
from .tracker.events import TRACKER_COUNTERS
from .tracker.spill import SpillPort
from .tracker.tracker import Tracker

DRAIN_STARVATION = 64
"""Starvation limit of the arbiters, in cycles, while something of an ended epoch is left, unless a lower one is
programmed. Each request that is left may wait so long."""


class Node(wiring.Component):
    """The exported hardware of one GPU.

    Ports (besides `clk`, `rst` and the AXI4-Lite signals `axi_*` of :class:`hw.registers.register_file.RegisterFile`):

    - `irq`: level, a fault or the end of the collective, as enabled;
    - `kernel_active`: high from the launch of the GEMM kernel to the end of its last store (kernel boundary, 4.5);
    - `compute`, `responses`: per channel, the GPU's accesses and the data of its reads;
    - `link`: per link port, and in it per lane, see :class:`hw.interfaces.LinkPort`;
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
                "link": Out(LinkPort(config)).array(config.link_lanes),
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
        memory_clear = MemoryClear(config)
        doorbell = Doorbell(config)
        axi = AxiLite(ADDRESS_BITS)
        connect(m, gathered_ports(axi.flip(), self, "axi_"), gathered_ports(axi, registers, "axi_"))

        window = Signal(WindowCheck)
        blocks = {"memory_clear": memory_clear, "doorbell": doorbell}
        for name, block in blocks.items():
            sleeping_submodule(m, name, block)
        m.submodules.fork = fork = StreamFork(messages.ready_block, config.lanes)
        lanes = [self._lane() for _ in range(config.lanes)]
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            self._join(m, number, lane, fork, memory_clear, spill, tracker)
            self._direct(m, number, lane, registers, state, window)
            m.d.comb += [lane.notice.eq(abort.notice), lane.give_up.eq(drain_bound.give_up)]

        if config.far_backing_store:
            connect(m, spill.far, flipped(self.backing_store))
        # Which banks take messages of channels is known late, and the doorbell need not wait for that.
        m.submodules.doorbell_commits = rung = Queue(messages.commit, 2, bypass=True, checked=config.protects_memories)
        connect(m, doorbell.commits, rung.i)
        connect(m, rung.o, tracker.doorbell)
        rings = Signal()
        m.d.comb += rings.eq(doorbell.busy | (rung.level != 0))
        connect(m, tracker.blocks, fork.input)
        connect(m, tracker.launches, flipped(self.launches))
        connect(m, tracker.spill_requests, spill.requests)
        states = [lane.lane_state for lane in lanes]
        ports = [[lane.link_events[index] for lane in lanes] for index in range(config.links)]
        link_empty = Signal()
        dead = Signal(config.links)
        was_dead = Signal(config.links)
        m.d.sync += was_dead.eq(dead)
        m.d.comb += [
            link_empty.eq(Cat(lane.link_empty for lane in lanes).all()),
            tracker.spill_response.eq(spill.response),
            spill.base.eq(Cat(registers.spill_base_low, registers.spill_base_high)),
            spill.sectors.eq(registers.spill_sectors),
            window.high.eq(registers.memory_window_high),
            window.checked.eq(registers.memory_window_checked),
            spill.window.eq(window),
            memory_clear.window.eq(window),
            drain_bound.waits.eq(~state.armed & ~link_empty),
            drain_bound.limit.eq(registers.link_dead),
            registers.link_status_up.eq(Cat(Cat(event.up for event in events).all() for events in ports)),
            dead.eq(Cat(Cat(event.dead for event in events).any() for events in ports)),
            registers.link_status_dead.eq(dead),
            registers.interrupt_status_link.eq((dead & ~was_dead).any()),
            tracker.ranges.eq(registers.range_write),
            tracker.epoch.eq(state.epoch),
            tracker.clear.eq(state.clear),
            memory_clear.ranges.eq(registers.range_write),
            memory_clear.backing_base.eq(spill.base),
            memory_clear.backing_sectors.eq(spill.sectors),
            memory_clear.arm.eq(registers.control_arm),
            memory_clear.initialised.eq(registers.control_initialised),
            memory_clear.start.eq(state.clear),
            memory_clear.settled.eq(~Cat(item.unsettled for item in states).any()),
            doorbell.entry.eq(registers.doorbell_entry),
            doorbell.first.eq(registers.doorbell_workgroups_first),
            doorbell.count.eq(registers.doorbell_workgroups_count),
            doorbell.armed.eq(state.armed),
            doorbell.epoch.eq(state.epoch),
        ]

        # Whatever moves from one of these to the next is seen in one of them in every cycle; with `armed` low nothing
        # new comes in, so once it is over it stays so.
        left_over = Signal()
        drained = Signal()
        m.d.comb += left_over.eq(Cat(*(item.holding for item in states), tracker.waiting, rings).any())
        m.d.sync += drained.eq(~left_over & ~state.armed)
        # Plain traffic that never stops must not hold up what is left of an epoch that has ended.
        programmed = registers.starvation_limit
        starvation_limit = Signal.like(programmed)
        m.d.sync += starvation_limit.eq(programmed)
        with m.If(left_over & ~state.armed & ((programmed == 0) | (programmed >= DRAIN_STARVATION))):
            m.d.sync += starvation_limit.eq(DRAIN_STARVATION)
        for lane in lanes:
            m.d.comb += lane.control.starvation_limit.eq(starvation_limit)

        idle = Signal()
        # Both are made of what is known late in a cycle, and may be told in the next one.
        m.d.sync += [
            registers.status_idle.eq(idle),
            abort.moved.eq(
                Cat(
                    *(port.valid & port.ready for port in tracker.commits),
                    *(item.moved for item in states),
                    doorbell.tile,
                ).any()
            ),
        ]
        m.d.comb += [
            idle.eq(Cat(item.idle for item in states).all() & ~rings),
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
            *(
                port.eq(heard)
                for port, heard in zip(abort.heard, (heard for lane in lanes for heard in lane.heard), strict=True)
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
            *(port.eq(lane.sent_blocks) for port, lane in zip(state.sent_blocks, lanes, strict=True)),
            state.expected_blocks.eq(registers.expected_blocks),
            # What arrives may belong to what a neighbour does next; all that was awaited is in the ranges already.
            state.idle.eq(Cat(item.sent_out for item in states).all()),
            self.done.eq(state.done),
            self.range_done.eq(tracker.done),
            self.irq.eq(registers.interrupt_request),
            registers.status_armed.eq(state.armed),
            registers.status_arming.eq(state.arming),
            registers.status_drained.eq(drained),
            registers.status_cleared.eq(tracker.cleared),
            registers.status_kernel_active.eq(self.kernel_active),
            registers.status_done.eq(state.done),
            registers.status_doorbell.eq(rings),
            Cat(registers.done_ranges_low, registers.done_ranges_high).eq(tracker.done),
            registers.interrupt_status_done.eq(state.done_rises),
        ]
        for lane in lanes[1:]:
            # Every lane walks all rows of a block, and finds the same.
            m.d.comb += lane.dma_faults.ready.eq(1)
        sources: list[Any] = [tracker, doorbell, abort, spill]
        if config.protects_memories:
            copies = self._table_copies(m, lanes, tracker, memory_clear, state)
            sources.append(self._protect_memories(m, registers, abort, tracker, spill, lanes, copies, rung.wrong))
        self._faults(
            m,
            registers,
            [
                *(faults for lane in lanes for faults in lane.map_faults),
                *(lane.link_faults for lane in lanes),
                lanes[0].dma_faults,
                *(source.faults for source in sources),
            ],
        )
        self._counters(m, registers, tracker, doorbell, lanes)
        return m

    def _protect_memories(
        self,
        m: Module,
        registers: RegisterFile,
        abort: EpochAbort,
        tracker: wiring.Component,
        spill: SpillPort,
        lanes: list[MemoryLane],
        copies: Signal,
        doorbell_wrong: Value,
    ) -> MemoryErrors:
        """What the protected memories report, and what they are told."""
        sectors = [report for lane in lanes for report in lane.memory_reports]
        queues_wrong = [*(lane.queues_wrong for lane in lanes), spill.queues_wrong, doorbell_wrong]
        tables = [*registers.memory_reports, copies]
        memories = [*TRACKER_MEMORIES] * self._config.tracker_banks + [ProtectedMemory.SECTORS] * len(sectors)
        memories += [ProtectedMemory.TABLES] * len(registers.memory_reports) + [ProtectedMemory.TABLE_COPIES]
        memories += [ProtectedMemory.QUEUES] * len(queues_wrong)
        queues = []
        for number, wrong in enumerate(queues_wrong):
            report = Signal(MemoryReport, name=f"queues_{number}")
            m.d.comb += [report.lost.eq(wrong), report.address.eq(number)]
            queues.append(report)
        m.submodules.memory_errors = errors = MemoryErrors(self._config, memories)
        upset = Signal(MemoryUpset)
        m.d.comb += [
            *(
                port.eq(report)
                for port, report in zip(
                    errors.reports, (*tracker.memory_reports, *sectors, *tables, *queues), strict=True
                )
            ),
            errors.forget.eq(registers.control_arm),
            errors.interval.eq(registers.memory_scrub),
            abort.lost.eq(errors.lost),
            upset.valid.eq(registers.memory_upset_turn),
            upset.memory.eq(registers.memory_upset_memory),
            upset.address.eq(registers.memory_upset_address),
            *(upset[name].eq(getattr(registers, f"memory_upset_bits_{name}")) for name in ("first", "second", "two")),
            *(block.upset.eq(upset) for block in (tracker, registers, *lanes)),
            *(block.scrub.eq(errors.scrub) for block in (tracker, registers)),
            # A copy cannot put itself right.
            registers.renew.eq(copies.lost),
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

    @staticmethod
    def _table_copies(
        m: Module,
        lanes: list[MemoryLane],
        tracker: wiring.Component,
        memory_clear: MemoryClear,
        state: CollectiveState,
    ) -> Signal:
        """What the blocks that have copies of words of tables say of them: a bit for each kind of block."""
        report = Signal(MemoryReport)
        users = {
            **{user: Cat(lane.tables_wrong[place] for lane in lanes).any() for place, user in enumerate(LANE_USERS)},
            TableUser.TRACKER: tracker.tables_wrong,
            TableUser.MEMORY_CLEAR: memory_clear.tables_wrong,
            TableUser.EPOCH: state.tables_wrong,
        }
        m.d.sync += [
            report.address.eq(Cat(users[user] for user in TableUser)),
            report.lost.eq(Cat(users.values()).any()),
        ]
        return report

    def _tracker(self) -> wiring.Component:
        return Tracker(self._config)

    def _lane(self) -> MemoryLane:
        return MemoryLane(self._config)

    def _join(
        self,
        m: Module,
        number: int,
        lane: MemoryLane,
        fork: StreamFork,
        memory_clear: MemoryClear,
        spill: SpillPort,
        tracker: wiring.Component,
    ) -> None:
        """Connect what moves between a lane and the rest of the node, or the outside."""
        count = self._config.lane_channels
        connect(m, fork.outputs[number], lane.blocks)
        for own, channel in enumerate(range(number * count, (number + 1) * count)):
            connect(m, flipped(self.compute[channel]), lane.compute[own])
            connect(m, lane.responses[own], flipped(self.responses[channel]))
            connect(m, lane.dram[own], flipped(self.dram[channel]))
            connect(m, memory_clear.memory[channel], lane.clearing[own])
            connect(m, spill.memory[channel], lane.spill[own])
            connect(m, lane.commits[own], tracker.commits[channel])
            m.d.comb += [
                spill.returns[channel].eq(lane.returns[own]),
                self.probes[channel].eq(lane.events[own]),
                self.remote_room[channel].eq(lane.remote_room[own]),
            ]
        for index in range(self._config.links):
            connect(m, lane.link[index], flipped(self.link[index * self._config.lanes + number]))

    def _direct(
        self,
        m: Module,
        number: int,
        lane: MemoryLane,
        registers: RegisterFile,
        state: CollectiveState,
        window: data.View,
    ) -> None:
        """Tell a lane what the host has programmed, and which epoch it is in."""
        control = {
            "policy": "arbiter_policy",
            "threshold": "arbiter_threshold",
            "refresh": "arbiter_refresh",
            "pace": "pace",
            "pace_lag": "pace_lag",
            "window": "detector_window",
            **{f"boundary_{name}": f"detector_boundary_{name}" for name in ("10", "30", "none")},
        }
        m.d.comb += [
            *(lane.control[name].eq(getattr(registers, register)) for name, register in control.items()),
            lane.kernel_active.eq(self.kernel_active),
            lane.ranges.eq(registers.range_write),
            lane.sends.eq(registers.send_write),
            lane.window.eq(window),
            *(lane.timers[name].eq(getattr(registers, f"link_{name}")) for name, _ in LinkTimers),
            lane.rank.eq(registers.rank),
            lane.epoch.eq(state.epoch),
            lane.armed.eq(state.armed),
            lane.clear.eq(state.clear),
        ]
        if self._config.lanes > 1:
            m.d.comb += lane.number.eq(number)
        for index, peer in enumerate(lane.peers):
            peers = f"link_peers_{index // PEERS_PER_REGISTER}"
            m.d.comb += [
                peer.rank.eq(getattr(registers, f"{peers}_rank_{index}")),
                peer.checked.eq(getattr(registers, f"{peers}_checked_{index}")),
            ]

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

    def _counters(self, m, registers, tracker, doorbell, lanes) -> None:
        """Increments of the counter registers: what each block's counters make of its events."""
        events = [event for lane in lanes for event in lane.events]
        m.submodules.trigger_latency = latency = TriggerLatency()
        m.d.comb += [
            latency.commit.eq(Cat(port.valid & port.ready for port in tracker.commits).any()),
            latency.busy.eq(Cat(lane.dma_events.busy for lane in lanes).any()),
            latency.read.eq(
                Cat(
                    event.column & (event.access == Access.READ) & (event.traffic_class != TrafficClass.GEMM)
                    for event in events
                ).any()
            ),
        ]
        ports = range(self._config.links)
        for counters, sources in (
            (CONTROLLER_COUNTERS, events),
            (TRACKER_COUNTERS, [tracker.events]),
            (DMA_COUNTERS, [self._dma_events([lane.dma_events for lane in lanes])]),
            *((link_counters(port), [lane.link_events[port] for lane in lanes]) for port in ports),
            (ADDRESS_MAP_COUNTERS, [refused for lane in lanes for refused in lane.refused]),
            (LATENCY_COUNTERS, [latency.value]),
            *((recovery_counters(port), [lane.link_events[port] for lane in lanes]) for port in ports),
            (LINK_COUNTERS, [lane.discarded for lane in lanes]),
            (DOORBELL_COUNTERS, [doorbell.tile]),
        ):
            for counter in counters:
                values = [counter.value(source) for source in sources]
                count = getattr(registers, f"count_{counter.name}")
                if len(values) == 1:
                    m.d.comb += count.eq(values[0])
                else:
                    # What several channels do and how much that is in all do not fit into one cycle.
                    added = sum(values[1:], values[0])
                    m.d.sync += count.eq(Mux(registers.control_clear_counters, 0, added))

    def _dma_events(self, lanes: list) -> SimpleNamespace:
        """What the DMA engines of all lanes do, as of one: every lane has every block."""
        sums = {
            name: sum((lane[name] for lane in lanes[1:]), lanes[0][name]) for name in ("reads", "packets", "waiting")
        }
        return SimpleNamespace(busy=Cat(lane.busy for lane in lanes).any(), blocks=lanes[0].blocks, **sums)
