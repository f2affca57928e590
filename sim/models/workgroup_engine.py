"""One GPU's compute units as its memory sees them: kernels of workgroups that read, compute and store (T3 section 5).

A workgroup holds one of a fixed number of slots. It works in steps; the reads of a step are issued when the step before
it begins (double buffering), or earlier or later (:mod:`sim.models.read_ahead`), and a step begins when the one before
it is over, its own reads are back, those other workgroups whose fetches it shares through the last-level cache have
theirs, and no other workgroup computes on its compute unit. After its last step it stores its tile, WF
tile by WF tile; as soon as the cache has room for the tile its slot takes the next workgroup. So slower memory makes it
slower, and faster memory does not make it faster than its arithmetic. Which reads go to memory at all was computed
ahead (:mod:`sim.workloads.last_level_cache`). Reduce-scatter and all-gather kernels are workgroups of one step that
wait for what arrives over the link and store to the neighbour.

Workgroups begin in the order of the plan. One that has gates waits, and holds up those after it, until launch events
have opened them (section 7.2). A second kernel may run beside the first, on slots of its own or on some of the first's.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Messages
from hw.primitives.queue import Queue
from sim.models.burst_lanes import Gathered, Task
from sim.models.kernel_context import KernelContext, KernelSequence, Spans
from sim.models.launch_gates import GateWaits, WaitingFor
from sim.models.memory_lanes import MemoryLanes, kinds
from sim.models.plan_layout import (
    MAX_SLOTS,
    MAX_WORKGROUPS,
    PLAN_BITS,
    STEP_LINES,
    Kernel,
    Sharing,
    Workgroup,
)
from sim.models.read_ahead import ReadAhead, ReadTask
from sim.models.recorded_events import recorded_workgroups
from sim.models.unit_sharing import UnitSharing

PLAN_LINES = 1 << 14
STORE_BUFFER_BYTES = 4 << 20
"""Stores that the whole GPU can have under way: a quarter of its last-level cache, or 128 tiles."""


class SlotState(enum.Enum, shape=1):
    """What a slot's workgroup does: there is none, or it computes (or waits for its reads, or for room to store)."""

    FREE = 0
    RUN = 1


Slot = data.StructLayout(
    {
        "state": SlotState,
        "late": unsigned(1),
        "workgroup": unsigned(14),
        "following": unsigned(8),
        "deadline": unsigned(32),
    }
)
"""`workgroup`: number in its kernel; `following`: the step that begins next; `deadline`: when it may begin; `late`: it
could not."""


class WorkgroupEngine(wiring.Component):
    """Ports: `rank`; `remote_room` of the node; `start`: run the plan, once after a reset; `node_done`: the node's
    collective is done; `arrivals`: sectors came over the link, one a port and
    lane; `link_busy`: busy cycles of the link so far; `launches`
    of the node; `active`: a kernel that says so runs; `busy`; `error`: a read was refused; `spans`; `waiting`: for
    which gate; `gathered`, by channel: see :class:`sim.models.burst_lanes.RequestLane`, as for `source_sectors`;
    `requests`/`responses` per channel.

    `base` is the first sector of the output, from which operands are numbered. Files: +plan=<prefix>, +waits=<prefix>
    and +steps=<prefix> (one per GPU), and +gates=<prefix>, see :mod:`sim.models.plan_layout`. One slot is
    looked at per cycle.
    """

    def __init__(self, config: Configuration, base: int, source_sectors: int = 0):
        self._config = config
        self._base = base
        self._source_sectors = source_sectors
        # Kernels of full size store to the next rank only.
        self._remote_ports = config.links if source_sectors else 1
        messages = Messages(config)
        self.recorded = recorded_workgroups()
        """Events for a timeline, no ports: a workgroup begins, one retires, and nothing."""
        super().__init__(
            {
                "rank": In(6),
                "remote_room": In(config.links).array(config.channels),
                "start": In(1),
                "node_done": In(1),
                "arrivals": In(range(config.link_lanes + 1)),
                "link_busy": In(32),
                "launches": In(stream.Signature(messages.launch_event)),
                "active": Out(1),
                "busy": Out(1),
                "error": Out(1),
                "spans": Out(Spans),
                "waiting": Out(WaitingFor),
                "gathered": Out(Gathered).array(config.channels),
                "requests": Out(stream.Signature(messages.compute_request)).array(config.channels),
                "responses": In(stream.Signature(messages.compute_response)).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now = Signal(32)
        arrived = Signal(26)
        m.d.sync += [now.eq(now + 1), arrived.eq(arrived + self.arrivals)]

        line = Signal(range(PLAN_LINES))
        plan = Signal(PLAN_BITS)
        m.submodules.plan = Instance(
            "plan_memory",
            p_WIDTH=PLAN_BITS,
            p_LINES=PLAN_LINES,
            p_PER_GPU=1,
            p_KIND="plan=%s",
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_address=line,
            o_data=plan,
        )
        begun, over_now, _ = self.recorded
        m.submodules.first = first = KernelContext()
        m.submodules.second = second = KernelContext()
        contexts = first, second
        loading = self._kernels(m, contexts, plan, line, now, arrived)
        done = self._lanes(m, contexts)

        # One slot a cycle: what it is, what its workgroup needs. Those of the second kernel are counted from the end.
        slot = Signal(range(MAX_SLOTS))
        side = Signal()
        running = Signal()
        kernel = Signal(Kernel)
        launched = Signal(14)
        begun_at = Signal(32)
        launch = Signal()
        retire = Signal()
        m.d.comb += [
            running.eq(Mux(side, second.running, first.running) & ~loading),
            kernel.eq(Mux(side, second.kernel, first.kernel)),
            launched.eq(Mux(side, second.launched, first.launched)),
            begun_at.eq(Mux(side, second.begun_at, first.begun_at)),
        ]
        for number, context in enumerate(contexts):
            m.d.comb += [
                context.launch.eq(launch & (side == number)),
                context.retire.eq(retire & (side == number)),
                context.storing.eq(done.storing),
            ]
        m.submodules.slots = slots = Memory(shape=Slot, depth=MAX_SLOTS, init=[])
        slot_read, slot_write = slots.read_port(domain="comb"), slots.write_port()
        old = slot_read.data
        new = Signal(Slot)
        m.d.comb += [
            slot_read.addr.eq(slot),
            slot_write.addr.eq(slot),
            slot_write.data.eq(new),
            new.eq(old),
            done.slot.eq(slot),
        ]
        last = Mux(side, slot == MAX_SLOTS - 1, slot == kernel.slots - 1)
        with m.If(running & ~last):
            m.d.sync += slot.eq(slot + 1)
        with m.Elif(~loading):
            other = second.running & ~(side & first.running)
            m.d.sync += [side.eq(other), slot.eq(Mux(other, MAX_SLOTS - second.kernel.slots, 0))]
        gated = self._gates(m, contexts, side, running, launched)
        crowded = _crowded(m, contexts, side)

        free = Signal()
        number = Signal(14)
        workgroup = data.View(Workgroup, plan[: Workgroup.size])
        m.d.comb += [free.eq(old.state == SlotState.FREE), number.eq(Mux(free, launched, old.workgroup))]
        for event in (begun, over_now):
            payload = event.payload
            m.d.comb += [
                payload.slot.eq(slot),
                payload.kernel.eq(Mux(side, second.which, first.which)),
                payload.workgroup.eq(number),
            ]
        with m.If(running):
            m.d.comb += line.eq(kernel.first + number)

        # The step whose reads may be issued now, and what it needs.
        m.submodules.ahead = ahead = ReadAhead()
        step = ahead.step
        step_line = Signal(range(STEP_LINES))
        m.d.comb += step_line.eq(number * kernel.steps + ahead.steps)
        loaded = Signal(32)
        m.submodules.steps = Instance(
            "plan_memory",
            p_WIDTH=32,
            p_LINES=STEP_LINES,
            p_PER_GPU=1,
            p_KIND="steps=%s",
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_address=step_line,
            o_data=loaded,
        )
        with m.If(kernel.stepped):
            m.d.comb += step.eq(loaded)
        with m.Else():
            m.d.comb += [step.fetch_a.eq(1), step.fetch_b.eq(1), step.wait_a.eq(number), step.wait_b.eq(number)]
        # How many steps' reads each workgroup has back.
        others = Signal(8), Signal(8)
        progress = Signal()
        shared_back = Signal()
        m.d.comb += [
            shared_back.eq(
                Cat(
                    (fetched_steps > old.following) | (waited == old.workgroup)
                    for fetched_steps, waited in zip(others, (ahead.wait_a, ahead.wait_b), strict=True)
                ).all()
            ),
            progress.eq(running & kernel.stepped & (old.state == SlotState.RUN) & ahead.back),
        ]

        m.submodules.progress = Instance(
            "model_memory",
            p_WIDTH=8,
            p_DEPTH=MAX_WORKGROUPS,
            i_clk=ClockSignal(),
            i_write=progress,
            i_write_address=old.workgroup,
            i_write_data=(old.following + 1)[:8],
            i_read_address_0=ahead.wait_a,
            i_read_address_1=ahead.wait_b,
            o_read_data_0=others[0],
            o_read_data_1=others[1],
        )

        task = Signal(Task)
        names = kinds(self._remote_ports)
        read_tasks, store_tasks, *remote_tasks = queues = [Queue(Task, MAX_SLOTS) for _ in names]
        for kind, queue, port in zip(names, queues, done.tasks, strict=True):
            m.submodules[f"{kind}_tasks"] = queue
            m.d.comb += queue.i.payload.eq(task)
            connect(m, queue.o, port)
        m.d.comb += [
            task.slot.eq(slot),
            *(task[name].eq(ahead.task[name]) for name in ReadTask.members),
            task.wg.eq(workgroup.wg),
            task.last_bytes.eq(workgroup.last_bytes),
            task.rows.eq(workgroup.rows),
            task.data.eq(workgroup.data),
            task.side.eq(side),
        ]
        tile = Signal(12)
        m.d.comb += tile.eq(workgroup.row_sectors * workgroup.rows)
        capacity = STORE_BUFFER_BYTES * self._config.channels // (SECTOR_BYTES * TOTAL_CHANNELS)
        over = Signal()
        elapsed = Signal(32)
        m.submodules.units = units = UnitSharing()
        begins = Signal()
        m.d.comb += [
            elapsed.eq(now - old.deadline),
            over.eq(~elapsed[31]),
            ahead.slot.eq(slot),
            ahead.looking.eq(running & (launch | (old.state == SlotState.RUN))),
            ahead.launch.eq(launch),
            ahead.kernel.eq(kernel),
            ahead.workgroup.eq(workgroup),
            ahead.following.eq(Mux(free, 0, old.following)),
            ahead.begins.eq(begins),
            ahead.over.eq(over),
            ahead.moved.eq(done.moved),
            ahead.ready.eq(read_tasks.i.ready),
            read_tasks.i.valid.eq(ahead.asks),
            units.slot.eq(slot),
            units.units.eq(kernel.units),
            units.earliest.eq(Mux(free | old.late, now, old.deadline)),
            units.take.eq(launch | begins),
            units.end.eq(new.deadline),
        ]
        with m.If(running):
            with m.Switch(old.state):
                with m.Case(SlotState.FREE):
                    with m.If(
                        (launched != kernel.count)
                        & ~gated
                        & ~crowded
                        & (arrived >= workgroup.wait)
                        & (now - begun_at >= workgroup.not_before)
                    ):
                        m.d.comb += [
                            begun.valid.eq(1),
                            launch.eq(1),
                            slot_write.en.eq(1),
                            new.state.eq(SlotState.RUN),
                            new.late.eq(0),
                            new.workgroup.eq(launched),
                            new.following.eq(0),
                            new.deadline.eq(units.begin + workgroup.lead_cycles),
                        ]
                with m.Case(SlotState.RUN):
                    with m.If(over):
                        m.d.comb += slot_write.en.eq(1)
                        with m.If(old.following == kernel.steps):
                            with m.If(done.stores_under_way + tile <= capacity):
                                m.d.comb += [
                                    over_now.valid.eq(1),
                                    new.state.eq(SlotState.FREE),
                                    task.store.eq(1),
                                    task.va.eq(workgroup.store_va),
                                    task.count.eq(workgroup.row_sectors),
                                    done.storing.eq(tile),
                                    store_tasks.i.valid.eq(~workgroup.remote),
                                    *(
                                        queue.i.valid.eq(workgroup.remote & (workgroup.port == port))
                                        for port, queue in enumerate(remote_tasks)
                                    ),
                                    retire.eq(1),
                                ]
                        with m.Elif(ahead.back & shared_back):
                            m.d.comb += [
                                begins.eq(1),
                                new.following.eq(old.following + 1),
                                new.deadline.eq(units.begin + workgroup.step_cycles),
                                new.late.eq(0),
                            ]
                        with m.Else():
                            m.d.comb += new.late.eq(1)
        return m

    def _gates(
        self, m: Module, contexts: tuple[KernelContext, KernelContext], side: Signal, running: Signal, launched: Signal
    ) -> Signal:
        """Whether the workgroup that is to begin next in the kernel on `side` waits for a gate."""
        m.submodules.gates = gates = GateWaits(self._config)
        connect(m, flipped(self.launches), gates.launches)
        m.d.comb += [
            gates.rank.eq(self.rank),
            gates.looking.eq(running),
            gates.side.eq(side),
            gates.launched.eq(launched),
            self.waiting.eq(gates.waiting),
        ]
        for number, context in enumerate(contexts):
            m.d.comb += [
                gates.lines[number].eq(context.wait_line),
                gates.ends[number].eq(context.kernel.first_wait + context.kernel.waits),
                context.advance.eq(gates.advance & (side == number)),
            ]
        return gates.gated

    def _lanes(self, m: Module, contexts: tuple[KernelContext, KernelContext]) -> MemoryLanes:
        """The way to memory, joined to the ports and to the kernels."""
        m.submodules.lanes = lanes = MemoryLanes(self._config, self._base, self._source_sectors, self._remote_ports)
        m.d.comb += [lanes.rank.eq(self.rank)]
        for number, context in enumerate(contexts):
            m.d.comb += [lanes.kernels[number].eq(context.kernel), context.stored.eq(lanes.stored[number])]
        for channel in range(self._config.channels):
            connect(m, lanes.requests[channel], flipped(self.requests[channel]))
            connect(m, flipped(self.responses[channel]), lanes.responses[channel])
            m.d.comb += [
                self.gathered[channel].eq(lanes.gathered[channel]),
                lanes.remote_room[channel].eq(self.remote_room[channel]),
            ]
        with m.If(lanes.error):
            m.d.sync += self.error.eq(1)
        return lanes

    def _kernels(
        self,
        m: Module,
        contexts: tuple[KernelContext, KernelContext],
        plan: Signal,
        line: Signal,
        now: Signal,
        arrived: Signal,
    ) -> Signal:
        """Start the kernels one after the other, those beside others without waiting for their end. Returns whether
        the plan is being read for that."""
        first, second = contexts
        m.submodules.sequence = sequence = KernelSequence()
        number, started = sequence.number, Signal(32)
        m.d.comb += [
            sequence.start.eq(self.start),
            sequence.descriptor.eq(plan[: Kernel.size]),
            sequence.first_ended.eq(first.ended),
            sequence.second_idle.eq(second.idle),
            first.load.eq(sequence.load_first),
            second.load.eq(sequence.load_second),
            self.busy.eq(sequence.busy),
            self.active.eq(first.running & first.kernel.active | second.running & second.kernel.active),
        ]
        with m.If(self.start & ~sequence.busy):
            m.d.sync += started.eq(now)
        with m.If(sequence.loading):
            m.d.comb += line.eq(number)
        for context in contexts:
            m.d.comb += [
                context.descriptor.eq(sequence.descriptor),
                context.number.eq(number),
                context.around.now.eq(now),
                context.around.started.eq(started),
                context.around.arrived.eq(arrived),
                context.around.link_busy.eq(self.link_busy),
                context.around.node_done.eq(self.node_done),
            ]
            with m.If(context.begins):
                m.d.sync += self.spans.begin[context.which].eq(now - started)
            with m.If(context.ends):
                m.d.sync += [
                    self.spans.end[context.which].eq(now - started),
                    self.spans.arrived[context.which].eq(arrived),
                    self.spans.retired[context.which].eq(context.retired),
                    self.spans.link_busy[context.which].eq(context.link_busy),
                ]
        return sequence.loading


def _crowded(m: Module, contexts: tuple[KernelContext, KernelContext], side: Signal) -> Signal:
    """Whether the kernel on `side` has no slot left because of the one that runs beside it."""
    taken = [Signal(14, name=f"taken_{number}") for number in range(2)]
    claimed = [Signal(14, name=f"claimed_{number}") for number in range(2)]
    under_way = [Signal(14, name=f"under_way_{number}") for number in range(2)]
    for number, context in enumerate(contexts):
        kernel = context.kernel
        m.d.comb += [
            under_way[number].eq(context.launched - context.retired),
            taken[number].eq(Mux(context.launched < kernel.slots, context.launched, kernel.slots)),
        ]
        with m.If(context.running):
            with m.Switch(kernel.sharing):
                with m.Case(Sharing.FOLLOWS):
                    m.d.comb += claimed[number].eq(taken[number])
                with m.Case(Sharing.PRECEDES):
                    m.d.comb += claimed[number].eq(kernel.slots)
    crowded = [Signal(name=f"crowded_{number}") for number in range(2)]
    for number, (context, other) in enumerate(zip(contexts, reversed(contexts), strict=True)):
        kernel, full = context.kernel, other.kernel.slots
        with m.If(kernel.sharing == Sharing.FOLLOWS):
            # The other came first: it has all its slots before this kernel gets what its workgroups leave.
            came = (other.launched >= full) | (other.launched == other.kernel.count)
            none_left = ~came | (taken[number] + under_way[1 - number] >= full)
            m.d.comb += crowded[number].eq(other.running & (context.launched < kernel.slots) & none_left)
        with m.Elif(kernel.sharing == Sharing.OWN):
            m.d.comb += crowded[number].eq(under_way[number] + claimed[1 - number] >= kernel.slots)
    return Mux(side, crowded[1], crowded[0])
