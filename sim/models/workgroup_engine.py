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
have opened them (section 7.2); one whose rows of A arrive in slices of the depth reads
none before it is there. A second kernel may run beside the first, on slots of its own or on some of the first's.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Messages
from hw.primitives.queue import Queue
from sim.models.burst_lanes import Gathered, ReadProbe, Task
from sim.models.kernel_context import KernelContext, KernelSequence, Spans
from sim.models.launch_gates import GateWaits, WaitingFor
from sim.models.memory_lanes import MemoryLanes, RequestSocket, kinds
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
from sim.models.store_lines import Place, StoreLines
from sim.models.unit_sharing import UnitSharing

PLAN_LINES = 1 << 14
STORE_BUFFER_BYTES = 4 << 20
"""Stores that the whole GPU can have under way: a quarter of its last-level cache, or 128 tiles."""
PARTS_OF_STORE_BUFFER = 3
"""Where remote stores leave by several ports those to each have one part at most: a port that is slow would fill it,
and of a ring both ways round one part is left to local stores."""


class SlotState(enum.Enum, shape=1):
    """What a slot's workgroup does: there is none, or it computes (or waits for its reads, or for room to store)."""

    FREE = 0
    RUN = 1


Slot = data.StructLayout(
    {
        "state": SlotState,
        "late": unsigned(1),
        "waits": unsigned(1),
        "workgroup": unsigned(14),
        "following": unsigned(8),
        "deadline": unsigned(32),
    }
)
"""`workgroup`: number in its kernel; `following`: the step that begins next; `deadline`: when it may begin; `late`: it
could not; `waits`: it stands in one of the :class:`StoreLines`."""


class _Turn:
    """The slot that is looked at in this cycle, of the kernel on `side`, which is `running`: the kernel, how many of
    its workgroups are `launched`, when it began; `old`, what is in the slot, `new`, with `write` what will be. `free`:
    it has no workgroup; `number`: of the `workgroup` that it has, or that would begin in it. `launch`, `retire`: one
    begins in it, or leaves it."""

    workgroup: data.View

    def __init__(self, old: data.View, write: Signal) -> None:
        self.old = old
        self.write = write
        self.slot = Signal(range(MAX_SLOTS))
        self.side = Signal()
        self.running = Signal()
        self.kernel = Signal(Kernel)
        self.launched = Signal(14)
        self.begun_at = Signal(32)
        self.launch = Signal()
        self.retire = Signal()
        self.new = Signal(Slot)
        self.free = Signal()
        self.number = Signal(14)


def remote_ports(config: Configuration, source_sectors: int) -> int:
    """Link ports by which a workgroup engine stores: kernels of full size, without a source, to the next rank only."""
    return config.links if source_sectors else 1


class WorkgroupEngine(wiring.Component):
    """Ports: `rank`; `remote_room` of the node; `start`: run the plan, once after a reset; `node_done`: the node's
    collective is done; `arrivals`: sectors came over the link, one a port and
    lane; `link_busy`: busy cycles of the link so far; `launches`
    of the node; `active`: a kernel that says so runs; `busy`; `error`: a read was refused; `spans`; `waiting`: for
    which gate; `gathered`, by channel: see :class:`sim.models.burst_lanes.RequestLane`, as for `source_sectors`;
    `probes`, `requests`/`responses` per channel.

    `base` is the first sector of the output, from which operands are numbered. Files: +plan=<prefix>, +waits=<prefix>
    and +steps=<prefix> (one per GPU), and +gates=<prefix>, see :mod:`sim.models.plan_layout`. One slot is
    looked at per cycle.
    """

    def __init__(self, config: Configuration, base: int, source_sectors: int = 0, lanes_apart: bool = False):
        """With `lanes_apart` requests are made elsewhere, behind `sockets`, one a channel; `requests`, `responses` and
        `remote_room` lead nowhere."""
        self._config = config
        self._base = base
        self._source_sectors = source_sectors
        self._sliced = source_sectors > 0
        self._remote_ports = remote_ports(config, source_sectors)
        self.sockets = [RequestSocket(config, self._remote_ports) for _ in range(config.channels if lanes_apart else 0)]
        messages = Messages(config)
        self.recorded = recorded_workgroups()
        """Events for a timeline, no ports: a workgroup begins, one retires, and nothing."""
        self._store_lines = StoreLines(self._remote_ports) if self._remote_ports > 1 else None
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
                "probes": Out(ReadProbe).array(config.channels),
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
        m.submodules.first = first = KernelContext()
        m.submodules.second = second = KernelContext()
        contexts = first, second
        loading = self._kernels(m, contexts, plan, line, now, arrived)
        done = self._lanes(m, contexts)
        turn = self._turn(m, contexts, loading, done)
        if self._store_lines:
            m.submodules.store_lines = self._store_lines
        gates = self._gates(m, contexts, turn.side, turn.running, turn.launched)
        crowded = _crowded(m, contexts, turn.side)
        self._find_workgroup(m, turn, contexts, line, plan)
        ahead, shared_back = self._steps(m, turn)
        task, queues = self._tasks(m, turn, ahead, done)
        read_tasks = queues[0]

        tile = Signal(12)
        m.d.comb += tile.eq(turn.workgroup.row_sectors * turn.workgroup.rows)
        over = Signal()
        elapsed = Signal(32)
        m.submodules.units = units = UnitSharing()
        begins = Signal()
        m.d.comb += [
            elapsed.eq(now - turn.old.deadline),
            over.eq(~elapsed[31]),
            ahead.slot.eq(turn.slot),
            ahead.looking.eq(turn.running & (turn.launch | (turn.old.state == SlotState.RUN))),
            ahead.launch.eq(turn.launch),
            ahead.kernel.eq(turn.kernel),
            ahead.workgroup.eq(turn.workgroup),
            ahead.following.eq(Mux(turn.free, 0, turn.old.following)),
            ahead.begins.eq(begins),
            ahead.over.eq(over),
            ahead.moved.eq(done.moved),
            ahead.ready.eq(read_tasks.i.ready),
            read_tasks.i.valid.eq(ahead.asks),
            units.slot.eq(turn.slot),
            units.units.eq(turn.kernel.units),
            units.earliest.eq(Mux(turn.free | turn.old.late, now, turn.old.deadline)),
            units.take.eq(turn.launch | begins),
            units.end.eq(turn.new.deadline),
        ]
        self._slices(m, turn, ahead, gates)
        with m.If(turn.running):
            with m.Switch(turn.old.state):
                with m.Case(SlotState.FREE):
                    with m.If(
                        (turn.launched != turn.kernel.count)
                        & ~gates.gated
                        & ~crowded
                        & (arrived >= turn.workgroup.wait)
                        & (now - turn.begun_at >= turn.workgroup.not_before)
                    ):
                        self._begin(m, turn, units)
                with m.Case(SlotState.RUN):
                    with m.If(over):
                        m.d.comb += turn.write.eq(1)
                        with m.If(turn.old.following == turn.kernel.steps):
                            self._retire(m, turn, done, task, queues, tile)
                        with m.Elif(ahead.back & shared_back):
                            m.d.comb += [
                                begins.eq(1),
                                turn.new.following.eq(turn.old.following + 1),
                                turn.new.deadline.eq(units.begin + turn.workgroup.step_cycles),
                                turn.new.late.eq(0),
                            ]
                        with m.Else():
                            m.d.comb += turn.new.late.eq(1)
        return m

    def _turn(
        self, m: Module, contexts: tuple[KernelContext, KernelContext], loading: Signal, done: MemoryLanes
    ) -> _Turn:
        """One slot a cycle, those of the kernels that run. Those of the second kernel are counted from the end."""
        first, second = contexts
        m.submodules.slots = slots = Memory(shape=Slot, depth=MAX_SLOTS, init=[])
        slot_read, slot_write = slots.read_port(domain="comb"), slots.write_port()
        turn = _Turn(slot_read.data, slot_write.en)
        m.d.comb += [
            turn.running.eq(Mux(turn.side, second.running, first.running) & ~loading),
            turn.kernel.eq(Mux(turn.side, second.kernel, first.kernel)),
            turn.launched.eq(Mux(turn.side, second.launched, first.launched)),
            turn.begun_at.eq(Mux(turn.side, second.begun_at, first.begun_at)),
        ]
        for number, context in enumerate(contexts):
            m.d.comb += [
                context.launch.eq(turn.launch & (turn.side == number)),
                context.retire.eq(turn.retire & (turn.side == number)),
                context.storing.eq(done.storing),
            ]
        m.d.comb += [
            slot_read.addr.eq(turn.slot),
            slot_write.addr.eq(turn.slot),
            slot_write.data.eq(turn.new),
            turn.new.eq(turn.old),
            done.slot.eq(turn.slot),
        ]
        place = Signal(Place)
        m.d.comb += [turn.slot.eq(place.slot), turn.side.eq(place.side)]
        lines = self._store_lines
        calls, following = (lines.calls, lines.following) if lines else (Const(0), place)
        with m.If(calls):
            m.d.comb += [turn.slot.eq(following.slot), turn.side.eq(following.side)]
        last = Mux(turn.side, turn.slot == MAX_SLOTS - 1, turn.slot == turn.kernel.slots - 1)
        with m.If(~calls & turn.running & ~last):
            m.d.sync += place.slot.eq(place.slot + 1)
        with m.Elif(~calls & ~loading):
            other = second.running & ~(turn.side & first.running)
            m.d.sync += [place.side.eq(other), place.slot.eq(Mux(other, MAX_SLOTS - second.kernel.slots, 0))]
        return turn

    def _find_workgroup(
        self,
        m: Module,
        turn: _Turn,
        contexts: tuple[KernelContext, KernelContext],
        line: Signal,
        plan: Signal,
    ) -> None:
        """The workgroup of the slot, or the one that would begin in it, is read in the plan."""
        first, second = contexts
        turn.workgroup = data.View(Workgroup, plan[: Workgroup.size])
        m.d.comb += [
            turn.free.eq(turn.old.state == SlotState.FREE),
            turn.number.eq(Mux(turn.free, turn.launched, turn.old.workgroup)),
        ]
        for event in self.recorded[:2]:
            payload = event.payload
            m.d.comb += [
                payload.slot.eq(turn.slot),
                payload.kernel.eq(Mux(turn.side, second.which, first.which)),
                payload.workgroup.eq(turn.number),
            ]
        with m.If(turn.running):
            m.d.comb += line.eq(turn.kernel.first + turn.number)

    def _steps(self, m: Module, turn: _Turn) -> tuple[ReadAhead, Signal]:
        """The step whose reads may be issued now, and what it needs. Returns also whether other workgroups, whose
        fetches the one of this slot shares, have theirs back."""
        m.submodules.ahead = ahead = ReadAhead(self._sliced)
        step = ahead.step
        step_line = Signal(range(STEP_LINES))
        m.d.comb += step_line.eq(turn.number * turn.kernel.steps + ahead.steps)
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
        with m.If(turn.kernel.stepped):
            m.d.comb += step.eq(loaded)
        with m.Else():
            m.d.comb += [
                step.fetch_a.eq(1),
                step.fetch_b.eq(1),
                step.wait_a.eq(turn.number),
                step.wait_b.eq(turn.number),
            ]
        # How many steps' reads each workgroup has back.
        others = Signal(8), Signal(8)
        progress = Signal()
        shared_back = Signal()
        m.d.comb += [
            shared_back.eq(
                Cat(
                    (fetched_steps > turn.old.following) | (waited == turn.old.workgroup)
                    for fetched_steps, waited in zip(others, (ahead.wait_a, ahead.wait_b), strict=True)
                ).all()
            ),
            progress.eq(turn.running & turn.kernel.stepped & (turn.old.state == SlotState.RUN) & ahead.back),
        ]

        m.submodules.progress = Instance(
            "model_memory",
            p_WIDTH=8,
            p_DEPTH=MAX_WORKGROUPS,
            i_clk=ClockSignal(),
            i_write=progress,
            i_write_address=turn.old.workgroup,
            i_write_data=(turn.old.following + 1)[:8],
            i_read_address_0=ahead.wait_a,
            i_read_address_1=ahead.wait_b,
            o_read_data_0=others[0],
            o_read_data_1=others[1],
        )
        return ahead, shared_back

    def _tasks(self, m: Module, turn: _Turn, ahead: ReadAhead, done: MemoryLanes) -> tuple[data.View, list[Queue]]:
        """The task that this slot gives the lanes, and the queues it may go into: reads, stores, those to each port."""
        task = Signal(Task)
        names = kinds(self._remote_ports)
        queues = [Queue(Task, MAX_SLOTS) for _ in names]
        for kind, queue, port in zip(names, queues, done.tasks, strict=True):
            m.submodules[f"{kind}_tasks"] = queue
            m.d.comb += queue.i.payload.eq(task)
            connect(m, queue.o, port)
        m.d.comb += [
            task.slot.eq(turn.slot),
            *(task[name].eq(ahead.task[name]) for name in ReadTask.members),
            task.wg.eq(turn.workgroup.wg),
            task.last_bytes.eq(turn.workgroup.last_bytes),
            task.rows.eq(turn.workgroup.rows),
            task.data.eq(turn.workgroup.data),
            task.side.eq(turn.side),
        ]
        return task, queues

    def _begin(self, m: Module, turn: _Turn, units: UnitSharing) -> None:
        """A workgroup begins in the slot."""
        begun, *_ = self.recorded
        m.d.comb += [
            begun.valid.eq(1),
            turn.launch.eq(1),
            turn.write.eq(1),
            turn.new.state.eq(SlotState.RUN),
            turn.new.late.eq(0),
            turn.new.workgroup.eq(turn.launched),
            turn.new.following.eq(0),
            turn.new.deadline.eq(units.begin + turn.workgroup.lead_cycles),
        ]

    def _retire(
        self, m: Module, turn: _Turn, done: MemoryLanes, task: data.View, queues: list[Queue], tile: Signal
    ) -> None:
        """After its last step the workgroup stores its `tile`, once the cache has room for so many sectors."""
        _, over_now, _ = self.recorded
        _, *store_tasks = queues
        ports = range(len(store_tasks) - 1)
        chosen = [~turn.workgroup.remote, *(turn.workgroup.remote & (turn.workgroup.port == port) for port in ports)]
        goes = Signal()
        capacity = STORE_BUFFER_BYTES * self._config.channels // (SECTOR_BYTES * TOTAL_CHANNELS)
        # A tile that is larger than all the room is stored when nothing else is.
        room = (done.stores_under_way == 0) | (done.stores_under_way + tile <= capacity)
        if self._store_lines:
            lines, share = self._store_lines, capacity // PARTS_OF_STORE_BUFFER
            m.d.comb += [
                lines.at.slot.eq(turn.slot),
                lines.at.side.eq(turn.side),
                lines.waits.eq(turn.old.waits),
                lines.over.eq(Cat(chosen)),
                lines.room.eq(
                    Cat(room, *(room & ((way == 0) | (way + tile <= share)) for way in done.remote_under_way))
                ),
                lines.shared.eq(Cat(done.remote_under_way).any()),
                goes.eq(lines.goes),
                turn.new.waits.eq(lines.joins | (turn.old.waits & ~lines.goes)),
            ]
        else:
            m.d.comb += goes.eq(room)
        with m.If(goes):
            m.d.comb += [
                over_now.valid.eq(1),
                turn.new.state.eq(SlotState.FREE),
                task.store.eq(1),
                task.va.eq(turn.workgroup.store_va),
                task.count.eq(turn.workgroup.row_sectors),
                done.storing.eq(tile),
                *(queue.i.valid.eq(its) for queue, its in zip(store_tasks, chosen, strict=True)),
                *(storing.eq(Mux(its, tile, 0)) for storing, its in zip(done.storing_to, chosen[1:], strict=True)),
                turn.retire.eq(1),
            ]

    def _gates(
        self, m: Module, contexts: tuple[KernelContext, KernelContext], side: Signal, running: Signal, launched: Signal
    ) -> GateWaits:
        """Whether the workgroup that is to begin next in the kernel on `side` waits for a gate, and one that runs."""
        m.submodules.gates = gates = GateWaits(self._config, self._sliced)
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
        return gates

    def _slices(self, m: Module, turn: _Turn, ahead: ReadAhead, gates: GateWaits) -> None:
        """Nothing is asked for of a slice whose gate is closed. Kernels without a source have none."""
        if not self._sliced:
            m.d.comb += ahead.open.eq(1)
            return
        sliced = turn.kernel.slice_steps != 0
        m.d.comb += [
            gates.slice_gate.eq(turn.workgroup.gate + ahead.slice),
            gates.slice_launches.eq(turn.kernel.slice_launches),
            gates.slice_wanted.eq(ahead.looking & (ahead.steps < turn.kernel.steps) & sliced),
            ahead.open.eq(~sliced | gates.slice_open),
        ]

    def _lanes(self, m: Module, contexts: tuple[KernelContext, KernelContext]) -> MemoryLanes:
        """The way to memory, joined to the ports and to the kernels."""
        m.submodules.lanes = lanes = MemoryLanes(
            self._config, self._base, self._source_sectors, self._remote_ports, self.sockets
        )
        m.d.comb += [lanes.rank.eq(self.rank)]
        for number, context in enumerate(contexts):
            m.d.comb += [lanes.kernels[number].eq(context.kernel), context.stored.eq(lanes.stored[number])]
        for channel in range(self._config.channels):
            connect(m, lanes.requests[channel], flipped(self.requests[channel]))
            connect(m, flipped(self.responses[channel]), lanes.responses[channel])
            m.d.comb += [
                self.gathered[channel].eq(lanes.gathered[channel]),
                self.probes[channel].eq(lanes.probes[channel]),
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
