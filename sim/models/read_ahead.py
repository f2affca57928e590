"""What the workgroups of a GEMM have asked of memory: how far ahead of their arithmetic, and how much at a time.

How well a GEMM hides a slow memory follows from both. With nothing asked ahead a step waits for a whole round trip;
with one step (double buffering) for what is longer than a step; a limit of reads under way makes a round trip of each
so many sectors, as the registers or the miss buffers of a compute unit do.
"""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from sim.models.plan_layout import MAX_SLOTS, SECTOR_COUNT, Kernel, Step, Workgroup

UNLIMITED = (1 << 11) - 1


def asked_layout(sliced: bool) -> data.StructLayout:
    """Of a slot: `steps` whose reads were all asked for, `part` sectors of the next one; `moved` sectors in all, of all
    its workgroups; for the last of these steps, and the one before it, how many that were at its end (`ends`), and
    whose fetches it waits for; `sliced`: the next step is number `within` of `slice`."""
    return data.StructLayout(
        {
            "steps": unsigned(8),
            "part": unsigned(SECTOR_COUNT.width + 1),
            "moved": unsigned(16),
            "ends": data.ArrayLayout(unsigned(16), 2),
            "wait_a": data.ArrayLayout(unsigned(14), 2),
            "wait_b": data.ArrayLayout(unsigned(14), 2),
            **({"slice": unsigned(8), "within": unsigned(8)} if sliced else {}),
        }
    )


ReadTask = data.StructLayout(
    {
        "va": unsigned(32),
        "count": SECTOR_COUNT,
        "second_va": unsigned(32),
        "second_count": SECTOR_COUNT,
    }
)
"""`count` sectors at `va`, then `second_count` at `second_va`."""


class ReadAhead(wiring.Component):
    """Ports, all of the slot that is looked at: `slot`; `looking`: a workgroup of `kernel` runs there, or with `launch`
    begins, `workgroup`; `following`: the step that begins next, with `begins` in this cycle; `over`: the one before it
    is; `step`, of number `steps`: what is fetched for it; `moved`: sectors that came back; `ready`: there is room for a
    task; `open`: slice `slice`, to which that step belongs, is there. `asks`, `task`: reads; `back`: those of step
    `following` are back, as many as were asked for up to its end; `wait_a`, `wait_b`: whose fetches it waits for.

    A kernel's `prefetched` steps are asked for while one computes, 0 to 2: with 0 those of a step when it could begin.
    Of a workgroup `reads` sectors are under way at the most (0: no limit). `slice` is counted only when `sliced`.
    """

    def __init__(self, sliced: bool) -> None:
        self._sliced = sliced
        super().__init__(
            {
                "slot": In(range(MAX_SLOTS)),
                "looking": In(1),
                "launch": In(1),
                "kernel": In(Kernel),
                "workgroup": In(Workgroup),
                "following": In(8),
                "begins": In(1),
                "over": In(1),
                "step": In(Step),
                "moved": In(16),
                "ready": In(1),
                "open": In(1),
                "steps": Out(8),
                "slice": Out(8),
                "asks": Out(1),
                "task": Out(ReadTask),
                "back": Out(1),
                "wait_a": Out(14),
                "wait_b": Out(14),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kernel, workgroup, step = self.kernel, self.workgroup, self.step
        asked_of_slot = asked_layout(self._sliced)
        m.submodules.asked = asked = Memory(shape=asked_of_slot, depth=MAX_SLOTS, init=[])
        read, write = asked.read_port(domain="comb"), asked.write_port()
        old, new = read.data, Signal(asked_of_slot, name="after")
        part = Signal(SECTOR_COUNT.width + 1)
        may_ask = Signal()
        m.d.comb += [
            read.addr.eq(self.slot),
            write.addr.eq(self.slot),
            write.data.eq(new),
            new.eq(old),
            self.steps.eq(Mux(self.launch, 0, old.steps)),
            part.eq(Mux(self.launch, 0, old.part)),
        ]

        # Which step may be asked for now, and how much of it.
        ahead = self.steps < self.following + self.begins + kernel.prefetched
        at_last = self.over & ~self.launch & (self.steps == self.following)
        in_time = self.open & (ahead | at_last)
        m.d.comb += may_ask.eq(self.looking & self.ready & (self.steps < kernel.steps) & in_time)
        last = self.steps == kernel.steps - 1
        all_a, all_b = Signal(SECTOR_COUNT), Signal(SECTOR_COUNT)
        left_a, got_b, left_b = Signal(SECTOR_COUNT), Signal(SECTOR_COUNT), Signal(SECTOR_COUNT)
        room, now_a, now_b = Signal(range(UNLIMITED + 1)), Signal(SECTOR_COUNT), Signal(SECTOR_COUNT)
        under_way = (old.moved - self.moved)[:16]
        m.d.comb += [
            all_a.eq(Mux(step.fetch_a, Mux(last, workgroup.a_last, workgroup.a_sectors), 0)),
            all_b.eq(Mux(step.fetch_b, Mux(last, workgroup.b_last, workgroup.b_sectors), 0)),
            left_a.eq(Mux(part < all_a, all_a - part, 0)),
            got_b.eq(Mux(part > all_a, part - all_a, 0)),
            left_b.eq(all_b - got_b),
            room.eq(Mux(kernel.reads == 0, UNLIMITED, Mux(under_way < kernel.reads, kernel.reads - under_way, 0))),
            now_a.eq(Mux(left_a < room, left_a, room)),
            now_b.eq(Mux(left_b < room - now_a, left_b, room - now_a)),
        ]

        # Operands lie in order of the steps.
        a_stride = Mux(kernel.a_stride == 0, workgroup.a_sectors, kernel.a_stride)
        a_va = workgroup.a_va + self.steps * a_stride + part
        b_va = workgroup.b_va + self.steps * workgroup.b_sectors + got_b
        with_a = now_a != 0
        m.d.comb += [
            self.task.va.eq(Mux(with_a, a_va, b_va)),
            self.task.count.eq(Mux(with_a, now_a, now_b)),
            self.task.second_va.eq(b_va),
            self.task.second_count.eq(Mux(with_a, now_b, 0)),
            self.asks.eq(may_ask & (self.task.count != 0)),
        ]

        with m.If(self.launch):
            m.d.comb += [write.en.eq(1), new.steps.eq(0), new.part.eq(0)]
        with m.If(may_ask):
            moved = old.moved + now_a + now_b
            m.d.comb += [write.en.eq(1), new.moved.eq(moved)]
            with m.If((now_a == left_a) & (now_b == left_b)):
                m.d.comb += [
                    new.steps.eq(self.steps + 1),
                    new.part.eq(0),
                    new.ends[0].eq(moved),
                    new.ends[1].eq(old.ends[0]),
                    new.wait_a[0].eq(step.wait_a),
                    new.wait_a[1].eq(old.wait_a[0]),
                    new.wait_b[0].eq(step.wait_b),
                    new.wait_b[1].eq(old.wait_b[0]),
                ]
            with m.Else():
                m.d.comb += new.part.eq(part + now_a + now_b)

        if self._sliced:
            self._count_slices(m, old, new, may_ask & (now_a == left_a) & (now_b == left_b))

        # The step that begins next is the last one that was asked for, or the one before it.
        one_more = Signal()
        missing = Signal(16)
        m.d.comb += [
            one_more.eq(old.steps == self.following + 2),
            missing.eq(Mux(one_more, old.ends[1], old.ends[0]) - self.moved),
            self.back.eq((old.steps > self.following) & ((missing == 0) | missing[15])),
            self.wait_a.eq(Mux(one_more, old.wait_a[1], old.wait_a[0])),
            self.wait_b.eq(Mux(one_more, old.wait_b[1], old.wait_b[0])),
        ]
        return m

    def _count_slices(self, m: Module, old: data.View, new: data.View, asked: Value) -> None:
        """Of which slice the next step is, and which number it has there; `asked`: all of it is asked for now."""
        within = Signal(8)
        ends = within + 1 == self.kernel.slice_steps
        m.d.comb += [
            self.slice.eq(Mux(self.launch, 0, old.slice)),
            within.eq(Mux(self.launch, 0, old.within)),
        ]
        with m.If(asked):
            m.d.comb += [new.slice.eq(self.slice + ends), new.within.eq(Mux(ends, 0, within + 1))]
        with m.Elif(self.launch):
            m.d.comb += [new.slice.eq(0), new.within.eq(0)]
