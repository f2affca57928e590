"""From tasks of workgroups to requests: bursts within an interleave unit, and one lane of requests per channel."""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES, Configuration
from hw.messages import Access, Messages, TrafficClass
from hw.primitives.queue import Queue
from sim.models.plan_layout import MAX_SLOTS, Kernel

Task = data.StructLayout(
    {
        "store": unsigned(1),
        "slot": unsigned(8),
        "va": unsigned(32),
        "count": unsigned(8),
        "second_va": unsigned(32),
        "second_count": unsigned(8),
        "wg": unsigned(16),
        "last_bytes": unsigned(6),
    }
)
"""What a workgroup wants done: read `count` sectors at `va`, then `second_count` at `second_va`; or, with `store`,
store its tile of `count` sectors to a row at `va`. Counts are not 0, but for `second_count`."""

Burst = data.StructLayout(
    {
        "store": unsigned(1),
        "slot": unsigned(8),
        "va": unsigned(32),
        "left": unsigned(3),
        "wg": unsigned(16),
        "wf": unsigned(3),
        "ends": unsigned(1),
        "last_bytes": unsigned(6),
    }
)
"""`left` + 1 sectors from `va` on, all in one interleave unit and so in one channel; `ends`: the last one ends a row of
a tile."""


class BurstGenerator(wiring.Component):
    """Cuts tasks into bursts, one a cycle, in order.

    Ports: `kernel`: shape of the tiles; `tasks`; `bursts` per channel. A burst that its channel does not take holds
    the others back.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(
            {
                "kernel": In(Kernel),
                "tasks": In(stream.Signature(Task)),
                "bursts": Out(stream.Signature(Burst)).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        busy = Signal()
        task = Signal(Task)
        va = Signal(32)
        left = Signal(8)
        row = Signal(8)
        wf = Signal(4)
        row_va = Signal(32)
        wf_va = Signal(32)

        room = Signal(4)
        count = Signal(4)
        m.d.comb += [
            room.eq(INTERLEAVE_SECTORS - va[:3]),
            count.eq(Mux(left < room, left, room)),
        ]
        channel = va[3 : 3 + self._config.channel_bits] if self._config.channel_bits else Const(0, 1)
        taken = Signal()
        for index, port in enumerate(self.bursts):
            m.d.comb += [
                port.valid.eq(busy & (channel == index)),
                port.payload.store.eq(task.store),
                port.payload.slot.eq(task.slot),
                port.payload.va.eq(va),
                port.payload.left.eq(count - 1),
                port.payload.wg.eq(task.wg),
                port.payload.wf.eq(wf),
                port.payload.ends.eq(task.store & (count == left)),
                port.payload.last_bytes.eq(task.last_bytes),
            ]
            with m.If(port.valid & port.ready):
                m.d.comb += taken.eq(1)

        last_row = row == self.kernel.rows - 1
        last_wf = wf == self.kernel.wfs - 1
        finished = Signal()
        m.d.comb += finished.eq(taken & (left == count) & Mux(task.store, last_row & last_wf, task.second_count == 0))
        with m.If(taken):
            m.d.sync += [va.eq(va + count), left.eq(left - count)]
            with m.If(left == count):
                m.d.sync += left.eq(task.count)
                with m.If(~task.store):
                    m.d.sync += [va.eq(task.second_va), left.eq(task.second_count), task.second_count.eq(0)]
                with m.Elif(last_row):
                    following = wf_va + self.kernel.wf_stride
                    m.d.sync += [row.eq(0), wf.eq(wf + 1), va.eq(following), row_va.eq(following), wf_va.eq(following)]
                with m.Else():
                    following = row_va + self.kernel.pitch
                    m.d.sync += [row.eq(row + 1), va.eq(following), row_va.eq(following)]
        m.d.comb += self.tasks.ready.eq(~busy | finished)
        with m.If(self.tasks.ready):
            m.d.sync += busy.eq(self.tasks.valid)
            with m.If(self.tasks.valid):
                new = self.tasks.payload
                m.d.sync += [
                    task.eq(new),
                    va.eq(new.va),
                    left.eq(new.count),
                    row.eq(0),
                    wf.eq(0),
                    row_va.eq(new.va),
                    wf_va.eq(new.va),
                ]
        return m


class RequestLane(wiring.Component):
    """Requests of one channel, one a cycle.

    Ports: `rank`: whose operands are stored; `base`: first sector of the output; `traffic_class`: accounting class; `reads`,
    `stores`, `remote`: bursts; `pace`: a remote store may go, `remote_sent`: one goes. A remote store that may go goes
    first, then reads, for which somebody waits, then stores, for which nobody does;
    `requests`, `responses`: the node's; `sent_store`: a store was taken; `got_read`, `got_slot`: a read
    came back; `error`: it was refused; `idle`. Data of the stores is the function of (rank, sector) that
    `operand_array.sv` documents.
    """

    def __init__(self, config: Configuration):
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "rank": In(6),
                "base": In(32),
                "traffic_class": In(TrafficClass),
                "reads": In(stream.Signature(Burst)),
                "stores": In(stream.Signature(Burst)),
                "remote": In(stream.Signature(Burst)),
                "pace": In(1),
                "remote_sent": Out(1),
                "requests": Out(stream.Signature(messages.compute_request)),
                "responses": In(stream.Signature(messages.compute_response)),
                "sent_store": Out(1),
                "got_read": Out(1),
                "got_slot": Out(range(MAX_SLOTS)),
                "error": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        advance = Signal()
        sources = []
        for name, port in (("reads", self.reads), ("stores", self.stores), ("remote", self.remote)):
            m.submodules[f"{name}_queue"] = queue = Queue(Burst, 4)
            connect(m, flipped(port), queue.i)
            place = Signal(3, name=f"{name}_place")
            go = Signal(name=f"{name}_go")
            burst = queue.o.payload
            ended = place == burst.left
            m.d.comb += queue.o.ready.eq(go & ended)
            with m.If(go):
                m.d.sync += place.eq(Mux(ended, 0, place + 1))
            sources.append((queue.o.valid, burst, place, go, ended))
        read_valid, store_valid, remote_valid = (source[0] for source in sources)
        use_remote = Signal()
        m.d.comb += [
            use_remote.eq(remote_valid & self.pace),
            sources[0][3].eq(advance & read_valid & ~use_remote),
            sources[1][3].eq(advance & store_valid & ~use_remote & ~read_valid),
            sources[2][3].eq(advance & use_remote),
            self.remote_sent.eq(sources[2][3]),
        ]

        draft = Signal(self._messages.compute_request)
        draft_valid = Signal()
        request = Signal(self._messages.compute_request)
        request_valid = Signal()
        m.d.comb += advance.eq(~request_valid | self.requests.ready)
        with m.If(advance):
            m.d.sync += [draft_valid.eq(0), request.eq(draft), request_valid.eq(draft_valid)]
        for _, burst, place, go, ended in sources:
            with m.If(go):
                m.d.sync += [
                    draft_valid.eq(1),
                    draft.access.eq(Mux(burst.store, Access.STORE, Access.READ)),
                    draft.va.eq(burst.va + place),
                    draft.wg.eq(burst.wg),
                    draft.wf.eq(burst.wf),
                    draft.traffic_class.eq(self.traffic_class),
                    draft.id.eq(burst.slot),
                    draft.mask.eq(
                        Mux(burst.ends & ended, (Const(1, SECTOR_BYTES + 1) << burst.last_bytes) - 1, 0xFFFF_FFFF)
                    ),
                ]
        operand = Signal(256)
        offset = Signal(32)
        m.d.comb += offset.eq(draft.va - self.base)
        m.submodules.operands = Instance(
            "operand_array",
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_enable=advance & draft_valid & (draft.access == Access.STORE),
            i_address=offset,
            o_data=operand,
        )
        m.d.comb += [
            self.requests.payload.eq(request),
            self.requests.payload.data.eq(operand),
            self.requests.valid.eq(request_valid),
            self.responses.ready.eq(1),
            self.sent_store.eq(request_valid & self.requests.ready & (request.access == Access.STORE)),
            self.got_read.eq(self.responses.valid),
            self.got_slot.eq(self.responses.payload.id),
            self.error.eq(self.responses.valid & self.responses.payload.error),
            self.idle.eq(~draft_valid & ~request_valid & ~read_valid & ~store_valid & ~remote_valid),
        ]
        return m
