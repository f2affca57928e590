"""One GPU's compute units as its memory sees them: kernels of workgroups that read, compute and store (T3 section 5).

A workgroup holds one of a fixed number of slots. It works in steps; the reads of a step are issued when the step before
it begins (double buffering), and a step begins when the one before it is over, its own reads are back, and those other
workgroups whose fetches it shares through the last-level cache have theirs. After its last step it stores its tile, WF
tile by WF tile; as soon as the cache has room for the tile its slot takes the next workgroup. So slower memory makes it
slower, and faster memory does not make it faster than its arithmetic. Which reads go to memory at all was computed
ahead (:mod:`sim.workloads.last_level_cache`). Reduce-scatter and all-gather kernels are workgroups of one step that
wait for what arrives over the link and store to the neighbour.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS, Configuration
from hw.messages import Messages
from hw.primitives.queue import Queue
from sim.models.burst_lanes import BurstGenerator, RequestLane, Task
from sim.models.plan_layout import KERNELS, MAX_SLOTS, MAX_WORKGROUPS, PLAN_BITS, Kernel, Step, Workgroup
from sim.models.recorded_events import recorded_workgroups

PLAN_LINES = 1 << 14
STEP_LINES = 1 << 18
PACE_BITS = 16
"""Bits after the point of the pace of remote stores, in sectors a cycle."""
PACE_BURST = 8
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

Spans = data.StructLayout(
    {name: data.ArrayLayout(unsigned(32), KERNELS) for name in ("begin", "end", "arrived", "retired", "link_busy")}
)
"""Per kernel: cycles from `start` to its begin and its end; by its end, sectors that had arrived; workgroups done;
during it, busy cycles of the link."""


class WorkgroupEngine(wiring.Component):
    """Ports: `rank`; `start`: run the plan; `node_done`: the node's collective is done; `arrival`: a sector came over
    the link; `link_busy`: busy cycles of the link so far; `active`: a kernel that says so runs; `busy`; `error`: a
    read was refused; `spans`; `requests`/`responses` per channel.

    `base` is the first sector of the output, from which operands are numbered. Files: +plan=<prefix> (one per GPU) and
    +steps=<prefix>, see :mod:`sim.models.plan_layout`. One slot is looked at per cycle.
    """

    def __init__(self, config: Configuration, base: int):
        self._config = config
        self._base = base
        messages = Messages(config)
        self.recorded = recorded_workgroups()
        """Events for a timeline, no ports: a workgroup begins, one retires, and nothing."""
        super().__init__(
            {
                "rank": In(6),
                "start": In(1),
                "node_done": In(1),
                "arrival": In(1),
                "link_busy": In(32),
                "active": Out(1),
                "busy": Out(1),
                "error": Out(1),
                "spans": Out(Spans),
                "requests": Out(stream.Signature(messages.compute_request)).array(config.channels),
                "responses": In(stream.Signature(messages.compute_response)).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._number = Signal(range(KERNELS + 1), name="number")
        now = Signal(32)
        arrived = Signal(24)
        m.d.sync += [now.eq(now + 1), arrived.eq(arrived + self.arrival)]
        kernel = Signal(Kernel)
        running = Signal()
        begun_at = Signal(32)
        launched = Signal(14)
        retired = Signal(14)

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
        done, lanes_idle = self._lanes(m, kernel)
        self._kernels(m, kernel, plan, line, running, now, begun_at, launched, retired, arrived, lanes_idle)

        # One slot a cycle: what it is, what its workgroup needs.
        slot = Signal(range(MAX_SLOTS))
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
        with m.If(running):
            m.d.sync += slot.eq(Mux(slot == kernel.slots - 1, 0, slot + 1))
        with m.Else():
            m.d.sync += slot.eq(0)

        free = Signal()
        number = Signal(14)
        workgroup = data.View(Workgroup, plan[: Workgroup.size])
        m.d.comb += [free.eq(old.state == SlotState.FREE), number.eq(Mux(free, launched, old.workgroup))]
        for event in (begun, over_now):
            payload = event.payload
            m.d.comb += [payload.slot.eq(slot), payload.kernel.eq(self._number), payload.workgroup.eq(number)]
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
        m.d.comb += tile.eq(workgroup.row_sectors * kernel.rows * kernel.wfs)
        capacity = STORE_BUFFER_BYTES * self._config.channels // (SECTOR_BYTES * TOTAL_CHANNELS)
        over = Signal()
        elapsed = Signal(32)
        m.d.comb += [elapsed.eq(now - old.deadline), over.eq(~elapsed[31])]
        with m.If(running):
            with m.Switch(old.state):
                with m.Case(SlotState.FREE):
                    with m.If(
                        (launched != kernel.count)
                        & (arrived >= workgroup.wait)
                        & (now - begun_at >= workgroup.not_before)
                    ):
                        m.d.sync += launched.eq(launched + 1)
                        m.d.comb += [
                            begun.valid.eq(1),
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
                                    over_now.valid.eq(1),
                                    new.state.eq(SlotState.FREE),
                                    task.store.eq(1),
                                    task.va.eq(workgroup.store_va),
                                    task.count.eq(workgroup.row_sectors),
                                    done.storing.eq(tile),
                                    store_tasks.i.valid.eq(~workgroup.remote),
                                    remote_tasks.i.valid.eq(workgroup.remote),
                                ]
                                m.d.sync += retired.eq(retired + 1)
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

    def _kernels(
        self,
        m: Module,
        kernel: data.View,
        plan: Signal,
        line: Signal,
        running: Signal,
        now: Signal,
        begun_at: Signal,
        launched: Signal,
        retired: Signal,
        arrived: Signal,
        lanes_idle: Signal,
    ) -> None:
        """Run the kernels one after the other."""
        number = self._number
        started = Signal(32)
        busy_before = Signal(32)
        m.d.comb += [self.busy.eq(1), self.active.eq(running & kernel.active)]
        with m.FSM(name="kernels"):
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                m.d.sync += number.eq(0)
                with m.If(self.start):
                    m.d.sync += started.eq(now)
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += line.eq(number)
                m.d.sync += [kernel.eq(plan[: Kernel.size]), launched.eq(0), retired.eq(0)]
                m.next = "WAIT"
                with m.If(number == KERNELS):
                    m.next = "IDLE"
            with m.State("WAIT"):
                m.d.sync += [begun_at.eq(now), busy_before.eq(self.link_busy)]
                with m.If(kernel.count == 0):
                    m.d.sync += number.eq(number + 1)
                    m.next = "LOAD"
                with m.Elif(~kernel.after_done | self.node_done):
                    m.d.sync += self.spans.begin[number].eq(now - started)
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If((retired == kernel.count) & (arrived >= kernel.arrive) & lanes_idle):
                    m.d.sync += [
                        self.spans.end[number].eq(now - started),
                        self.spans.arrived[number].eq(arrived),
                        self.spans.retired[number].eq(retired),
                        self.spans.link_busy[number].eq(self.link_busy - busy_before),
                        number.eq(number + 1),
                    ]
                    m.next = "LOAD"

    def _lanes(self, m: Module, kernel: data.View) -> tuple["_Done", Signal]:
        """Generators and lanes. Returns the ports through which the slots use them."""
        config = self._config
        done = _Done()
        lanes = []
        for kind in KINDS:
            m.submodules[f"{kind}_bursts"] = generator = BurstGenerator(config)
            m.d.comb += generator.kernel.eq(kernel)
            done.generators.append(generator)
        for channel in range(config.channels):
            m.submodules[f"lane_{channel}"] = lane = RequestLane(config)
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
            m.d.comb += [lane.rank.eq(self.rank), lane.base.eq(self._base), lane.traffic_class.eq(kernel.traffic_class)]
        m.d.comb += done.moved.eq(sum(done.counts[1:], done.counts[0]))

        # Remote stores go at the pace of the link: what waits for it must not stand before the reads behind it.
        unit = 1 << PACE_BITS
        rate = round(config.link_bytes_per_cycle / SECTOR_BYTES * unit)
        full = PACE_BURST * config.channels * unit
        tokens = Signal(range(full + rate + 1), init=full)
        spent = sum((lane.remote_sent for lane in lanes[1:]), lanes[0].remote_sent)
        after = Signal(range(full + rate + 1))
        m.d.comb += [
            after.eq(tokens + rate - (spent << PACE_BITS)),
            *(lane.pace.eq(tokens >= config.channels * unit) for lane in lanes),
        ]
        m.d.sync += tokens.eq(Mux(after > full, full, after))
        idle = Signal()
        taken = sum((lane.sent_store for lane in lanes[1:]), lanes[0].sent_store)
        m.d.sync += done.stores_under_way.eq(done.stores_under_way + done.storing - taken)
        m.d.comb += idle.eq(Cat(lane.idle for lane in lanes).all() & (done.stores_under_way == 0))
        return done, idle


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
