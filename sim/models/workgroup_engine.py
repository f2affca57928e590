"""One GPU's compute units as its memory sees them: kernels of workgroups that read, compute and store (T3 section 5).

A workgroup holds one of a fixed number of slots. It works in steps; the reads of a step are issued when the step before
it begins (double buffering), and a step begins when the one before it is over, its own reads are back, and those other
workgroups whose fetches it shares through the last-level cache have theirs. After its last step it stores its tile, WF
tile by WF tile; as soon as the cache has room for the tile its slot takes the next workgroup. So slower memory makes it
slower, and faster memory does not make it faster than its arithmetic. Which reads go to memory at all was computed
ahead (:mod:`sim.workloads.last_level_cache`). Reduce-scatter and all-gather kernels are workgroups of one step that
wait for what arrives over the link and store to the neighbour.

Workgroups begin in the order of the plan. One that has gates waits, and holds up those after it, until launch events
have opened them (section 7.2). A second kernel may run beside the first, on slots of its own.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Messages
from hw.primitives.queue import Queue
from sim.models.burst_lanes import BurstGenerator, Gathered, RequestLane, Task
from sim.models.kernel_context import KernelContext, Spans
from sim.models.launch_gates import LAUNCH_BITS, LaunchGates
from sim.models.plan_layout import (
    GATE_LINES,
    GATES,
    KERNELS,
    MAX_SLOTS,
    MAX_WORKGROUPS,
    PLAN_BITS,
    Kernel,
    Step,
    Wait,
    Workgroup,
)

PLAN_LINES = 1 << 14
STEP_LINES = 1 << 18
PACE_BITS = 16
"""Bits after the point of the pace of remote stores, in sectors a cycle."""
PACE_BURST = 8
MOST_PORTS = 15
"""Over which remote stores of a kernel can leave."""
KINDS = ("reads", "stores", "remote")
"""Of tasks, bursts and requests: each has a queue of its own."""
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
        "wait_a": unsigned(14),
        "wait_b": unsigned(14),
        "deadline": unsigned(32),
        "moved": unsigned(16),
    }
)
"""`workgroup`: number in its kernel; `following`: the step that begins next; `wait_a`, `wait_b`: of that step;
`deadline`: when it may begin; `late`: it could not; `moved`: sectors asked for so far by this slot."""

WaitingFor = data.StructLayout({"waits": unsigned(1), "gate": range(GATES), "launches": LAUNCH_BITS, "needed": 16})
"""Whether the workgroup of the first kernel that is to begin next `waits` for a gate, which one, how many launch events
have counted it up, and how many it needs."""


class WorkgroupEngine(wiring.Component):
    """Ports: `rank`; `start`: run the plan, once after a reset; `node_done`: the node's collective is done; `arrival`: a
    sector came over the link; `link_busy`: busy cycles of the link so far; `launches` of the node; `active`: a kernel
    that says so runs; `busy`; `error`: a read was refused; `spans`; `waiting`: for which gate; `gathered`, by channel:
    see :class:`sim.models.burst_lanes.RequestLane`, as for `source_sectors`; `requests`/`responses` per channel.

    `base` is the first sector of the output, from which operands are numbered. Files: +plan=<prefix> and
    +waits=<prefix> (one per GPU), +steps=<prefix> and +gates=<prefix>, see :mod:`sim.models.plan_layout`. One slot is
    looked at per cycle.
    """

    def __init__(self, config: Configuration, base: int, source_sectors: int = 0):
        self._config = config
        self._base = base
        self._source_sectors = source_sectors
        messages = Messages(config)
        super().__init__(
            {
                "rank": In(6),
                "start": In(1),
                "node_done": In(1),
                "arrival": In(1),
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
        arrived = Signal(24)
        m.d.sync += [now.eq(now + 1), arrived.eq(arrived + self.arrival)]

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

        free = Signal()
        number = Signal(14)
        workgroup = data.View(Workgroup, plan[: Workgroup.size])
        m.d.comb += [free.eq(old.state == SlotState.FREE), number.eq(Mux(free, launched, old.workgroup))]
        with m.If(running):
            m.d.comb += line.eq(kernel.first + number)

        # The step whose reads may be issued now, and what it needs.
        ahead = Signal(8)
        step = Signal(Step)
        step_line = Signal(range(STEP_LINES))
        m.d.comb += [ahead.eq(Mux(free, 0, old.following + 1)), step_line.eq(number * kernel.steps + ahead)]
        loaded = Signal(32)
        m.submodules.steps = Instance(
            "plan_memory",
            p_WIDTH=32,
            p_LINES=STEP_LINES,
            p_PER_GPU=0,
            p_KIND="steps=%s",
            i_clk=ClockSignal(),
            i_id=Const(0, 32),
            i_address=step_line,
            o_data=loaded,
        )
        with m.If(kernel.stepped):
            m.d.comb += step.eq(loaded)
        with m.Else():
            m.d.comb += [step.fetch_a.eq(1), step.fetch_b.eq(1), step.wait_a.eq(number), step.wait_b.eq(number)]
        last_ahead = ahead == kernel.steps - 1
        fetched_a, fetched_b, fetched = Signal(8), Signal(8), Signal(9)
        m.d.comb += [
            fetched_a.eq(Mux(step.fetch_a, Mux(last_ahead, workgroup.a_last, workgroup.a_sectors), 0)),
            fetched_b.eq(Mux(step.fetch_b, Mux(last_ahead, workgroup.b_last, workgroup.b_sectors), 0)),
            fetched.eq(fetched_a + fetched_b),
        ]

        # How many steps' reads each workgroup has back.
        others = Signal(8), Signal(8)
        progress = Signal()
        back = Signal()
        shared_back = Signal()
        m.d.comb += [
            back.eq(done.moved == old.moved),
            shared_back.eq(
                Cat(
                    (fetched_steps > old.following) | (waited == old.workgroup)
                    for fetched_steps, waited in zip(others, (old.wait_a, old.wait_b), strict=True)
                ).all()
            ),
            progress.eq(running & kernel.stepped & (old.state == SlotState.RUN) & back),
        ]

        m.submodules.progress = Instance(
            "model_memory",
            p_WIDTH=8,
            p_DEPTH=MAX_WORKGROUPS,
            i_clk=ClockSignal(),
            i_write=progress,
            i_write_address=old.workgroup,
            i_write_data=(old.following + 1)[:8],
            i_read_address_0=old.wait_a,
            i_read_address_1=old.wait_b,
            o_read_data_0=others[0],
            o_read_data_1=others[1],
        )

        task = Signal(Task)
        read_tasks, store_tasks, remote_tasks = (Queue(Task, MAX_SLOTS) for _ in KINDS)
        for kind, queue, generator in zip(KINDS, (read_tasks, store_tasks, remote_tasks), done.generators, strict=True):
            m.submodules[f"{kind}_tasks"] = queue
            m.d.comb += queue.i.payload.eq(task)
            connect(m, queue.o, generator.tasks)
        read_a = fetched_a != 0
        a_va, b_va = workgroup.a_va + ahead * workgroup.a_sectors, workgroup.b_va + ahead * workgroup.b_sectors
        m.d.comb += [
            task.slot.eq(slot),
            task.va.eq(Mux(read_a, a_va, b_va)),
            task.count.eq(Mux(read_a, fetched_a, fetched_b)),
            task.second_va.eq(b_va),
            task.second_count.eq(Mux(read_a, fetched_b, 0)),
            task.wg.eq(workgroup.wg),
            task.last_bytes.eq(workgroup.last_bytes),
            task.rows.eq(workgroup.rows),
            task.data.eq(workgroup.data),
            task.side.eq(side),
        ]
        issue_reads = Signal()
        with m.If(issue_reads):
            m.d.comb += [
                read_tasks.i.valid.eq(fetched != 0),
                new.moved.eq(old.moved + fetched),
                new.wait_a.eq(step.wait_a),
                new.wait_b.eq(step.wait_b),
            ]
        tile = Signal(12)
        m.d.comb += tile.eq(workgroup.row_sectors * workgroup.rows)
        capacity = STORE_BUFFER_BYTES * self._config.channels // (SECTOR_BYTES * TOTAL_CHANNELS)
        over = Signal()
        elapsed = Signal(32)
        m.d.comb += [elapsed.eq(now - old.deadline), over.eq(~elapsed[31])]
        with m.If(running):
            with m.Switch(old.state):
                with m.Case(SlotState.FREE):
                    with m.If(
                        (launched != kernel.count)
                        & ~gated
                        & (arrived >= workgroup.wait)
                        & (now - begun_at >= workgroup.not_before)
                    ):
                        m.d.comb += [
                            launch.eq(1),
                            issue_reads.eq(1),
                            slot_write.en.eq(1),
                            new.state.eq(SlotState.RUN),
                            new.late.eq(0),
                            new.workgroup.eq(launched),
                            new.following.eq(0),
                            new.deadline.eq(now + workgroup.lead_cycles),
                        ]
                with m.Case(SlotState.RUN):
                    with m.If(over):
                        m.d.comb += slot_write.en.eq(1)
                        with m.If(old.following == kernel.steps):
                            with m.If(done.stores_under_way + tile <= capacity):
                                m.d.comb += [
                                    new.state.eq(SlotState.FREE),
                                    task.store.eq(1),
                                    task.va.eq(workgroup.store_va),
                                    task.count.eq(workgroup.row_sectors),
                                    done.storing.eq(tile),
                                    store_tasks.i.valid.eq(~workgroup.remote),
                                    remote_tasks.i.valid.eq(workgroup.remote),
                                    retire.eq(1),
                                ]
                        with m.Elif(back & shared_back):
                            m.d.comb += [
                                issue_reads.eq(~last_step_begins(old, kernel)),
                                new.following.eq(old.following + 1),
                                new.deadline.eq(Mux(old.late, now, old.deadline) + workgroup.step_cycles),
                                new.late.eq(0),
                            ]
                        with m.Else():
                            m.d.comb += new.late.eq(1)
        return m

    def _gates(
        self, m: Module, contexts: tuple[KernelContext, KernelContext], side: Signal, running: Signal, launched: Signal
    ) -> Signal:
        """Whether the workgroup that is to begin next in the kernel on `side` waits for a gate."""
        m.submodules.gates = gates = LaunchGates(self._config)
        connect(m, flipped(self.launches), gates.launches)
        wait = Signal(Wait)
        lines = [context.wait_line for context in contexts]
        m.submodules.waits = Instance(
            "plan_memory",
            p_WIDTH=Wait.size,
            p_LINES=GATE_LINES,
            p_PER_GPU=1,
            p_KIND="waits=%s",
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_address=Mux(side, lines[1], lines[0])[: (GATE_LINES - 1).bit_length()],
            o_data=wait,
        )
        gated, open_ = Signal(), Signal()
        ends = [context.kernel.first_wait + context.kernel.waits for context in contexts]
        left = Mux(side, lines[1] != ends[1], lines[0] != ends[0])
        m.d.comb += [
            gates.gate.eq(wait.gate),
            gated.eq(left & (wait.workgroup == launched)),
            open_.eq(gates.count >= wait.launches),
        ]
        for number, context in enumerate(contexts):
            m.d.comb += context.advance.eq(running & gated & open_ & (side == number))
        with m.If(running & ~side):
            m.d.sync += [
                self.waiting.waits.eq(gated & ~open_),
                self.waiting.gate.eq(wait.gate),
                self.waiting.launches.eq(gates.count),
                self.waiting.needed.eq(wait.launches),
            ]
        return gated

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
        number = Signal(range(KERNELS + 1))
        started = Signal(32)
        loading = Signal()
        descriptor = Signal(Kernel)
        m.d.comb += [
            descriptor.eq(plan[: Kernel.size]),
            self.busy.eq(1),
            self.active.eq(first.running & first.kernel.active | second.running & second.kernel.active),
        ]
        for context in contexts:
            m.d.comb += [
                context.descriptor.eq(descriptor),
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
        with m.FSM(name="kernels"):
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(~second.idle)
                m.d.sync += number.eq(0)
                with m.If(self.start):
                    m.d.sync += started.eq(now)
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [loading.eq(1), line.eq(number)]
                with m.If(number == KERNELS):
                    m.next = "IDLE"
                with m.Elif(descriptor.beside):
                    m.d.comb += second.load.eq(second.idle)
                    m.d.sync += number.eq(number + second.idle)
                with m.Else():
                    m.d.comb += first.load.eq(1)
                    m.next = "HOLD"
            with m.State("HOLD"):
                with m.If(first.ended):
                    m.d.sync += number.eq(number + 1)
                    m.next = "LOAD"
        return loading

    def _lanes(self, m: Module, contexts: tuple[KernelContext, KernelContext]) -> "_Done":
        """Generators and lanes. Returns the ports through which the slots use them."""
        config = self._config
        done = _Done()
        lanes = []
        for kind in KINDS:
            m.submodules[f"{kind}_bursts"] = generator = BurstGenerator(config)
            m.d.comb += [port.eq(context.kernel) for port, context in zip(generator.kernels, contexts, strict=True)]
            done.generators.append(generator)
        for channel in range(config.channels):
            m.submodules[f"lane_{channel}"] = lane = RequestLane(config, self._source_sectors)
            for kind, generator in zip(KINDS, done.generators, strict=True):
                connect(m, generator.bursts[channel], getattr(lane, kind))
            connect(m, lane.requests, wiring.flipped(self.requests[channel]))
            connect(m, wiring.flipped(self.responses[channel]), lane.responses)
            lanes.append(lane)
            counts = Memory(shape=unsigned(16), depth=MAX_SLOTS, init=[])
            m.submodules[f"moved_{channel}"] = counts
            look = counts.read_port(domain="comb")
            m.d.comb += look.addr.eq(done.slot)
            done.counts.append(look.data)
            before, after = counts.read_port(domain="comb"), counts.write_port()
            m.d.comb += [
                before.addr.eq(lane.got_slot),
                after.addr.eq(lane.got_slot),
                after.data.eq(before.data + 1),
                after.en.eq(lane.got_read),
            ]
            with m.If(lane.error):
                m.d.sync += self.error.eq(1)
            m.d.comb += [
                lane.rank.eq(self.rank),
                lane.base.eq(self._base),
                self.gathered[channel].eq(lane.gathered),
                *(
                    port.eq(context.kernel.traffic_class)
                    for port, context in zip(lane.traffic_classes, contexts, strict=True)
                ),
            ]
        m.d.comb += done.moved.eq(sum(done.counts[1:], done.counts[0]))

        # Remote stores go at the pace of the links: what waits for them must not stand before the reads behind it.
        unit = 1 << PACE_BITS
        rate = round(config.link_bytes_per_cycle / SECTOR_BYTES * unit)
        full = PACE_BURST * config.channels * unit
        highest = full + rate * MOST_PORTS
        tokens = Signal(range(highest + 1), init=full)
        spent = sum((lane.remote_sent for lane in lanes[1:]), lanes[0].remote_sent)
        after = Signal(range(highest + 1))
        ports = [context.kernel.ports for context in contexts]
        m.d.comb += [
            after.eq(tokens + rate * Mux(ports[0] > ports[1], ports[0], ports[1]) - (spent << PACE_BITS)),
            *(lane.pace.eq(tokens >= config.channels * unit) for lane in lanes),
        ]
        m.d.sync += tokens.eq(Mux(after > full, full, after))
        taken = []
        for number, context in enumerate(contexts):
            sent = [lane.sent_store[number] for lane in lanes]
            taken.append(sum(sent[1:], sent[0]))
            m.d.comb += context.stored.eq(taken[-1])
        m.d.sync += done.stores_under_way.eq(done.stores_under_way + done.storing - (taken[0] + taken[1]))
        return done


class _Done:
    """Ports of the lanes as the slots see them: `moved`, sectors that came back so far for slot `slot`; generators of
    bursts by kind; `stores_under_way`: sectors whose store was not yet taken, to which `storing` come."""

    def __init__(self) -> None:
        self.slot = Signal(range(MAX_SLOTS))
        self.moved = Signal(16)
        self.storing = Signal(12)
        self.stores_under_way = Signal(20)
        self.counts: list[Signal] = []
        self.generators: list[BurstGenerator] = []


def last_step_begins(slot: data.View, kernel: data.View) -> Signal:
    """Whether the step that begins is the last, so that no reads are to be issued."""
    return slot.following == kernel.steps - 1
