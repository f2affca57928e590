"""From tasks of workgroups to requests: bursts within an interleave unit, and one lane of requests per channel.

Two kernels may run at a time; the side of a task says whose it is.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES, Configuration
from hw.messages import Access, Messages, TrafficClass
from hw.primitives.queue import Queue
from hw.primitives.round_robin import next_in_turn
from sim.models.plan_layout import MAX_SLOTS, SECTOR_COUNT, Kernel
from sim.models.read_tags import TAG_BITS, ReadTags

Task = data.StructLayout(
    {
        "store": unsigned(1),
        "slot": range(MAX_SLOTS),
        "va": unsigned(32),
        "count": SECTOR_COUNT,
        "second_va": unsigned(32),
        "second_count": SECTOR_COUNT,
        "wg": unsigned(16),
        "last_bytes": unsigned(6),
        "rows": unsigned(9),
        "data": unsigned(28),
        "side": unsigned(1),
    }
)
"""What a workgroup of the kernel on `side` wants done: read `count` sectors at `va`, then `second_count` at
`second_va`; or, with `store`, store its tile of `rows` rows of `count` sectors at `va`, its data `data` sectors further
on. Counts are not 0, but for `second_count`."""

Burst = data.StructLayout(
    {
        "store": unsigned(1),
        "slot": range(MAX_SLOTS),
        "va": unsigned(32),
        "left": unsigned(3),
        "wg": unsigned(16),
        "wf": unsigned(3),
        "ends": unsigned(1),
        "last_bytes": unsigned(6),
        "data": unsigned(28),
        "side": unsigned(1),
    }
)
"""`left` + 1 sectors from `va` on, all in one interleave unit and so in one channel; `ends`: the last one ends a row of
a tile."""

Gathered = data.StructLayout({"reads": unsigned(32), "wrong": unsigned(32), "first_wrong": unsigned(32)})
"""Of one channel: `reads` of sectors of the gathered array that came back, how many of them brought something else than
the owner wrote, and the first such sector."""

ReadProbe = data.StructLayout(
    {"asked": unsigned(1), "asked_tag": TAG_BITS, "answered": unsigned(1), "answered_tag": TAG_BITS}
)
"""Of one channel, in this cycle: a read was taken, data of one came; the tags of both."""


class BurstGenerator(wiring.Component):
    """Cuts tasks into bursts, one a cycle, in order: those of the channels from `number` on, every `of`-th, a power of
    two.

    Ports: `kernels`: shape of the tiles, by side; `tasks`; `bursts` per channel of its own. A burst that its channel
    does not take holds the others back. Of what others cut it passes over the rest of a row at once, and, where rows
    are not wider than an interleave unit, over rows of the same WF tile; a cycle is lost where a WF tile, or an
    operand, begins with theirs.
    """

    def __init__(self, config: Configuration, number: int = 0, of: int = 1):
        self._config = config
        self._number = number
        self._of = of
        super().__init__(
            {
                "kernels": In(Kernel).array(2),
                "tasks": In(stream.Signature(Task)),
                "bursts": Out(stream.Signature(Burst)).array(config.channels // of),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        busy = Signal()
        task = Signal(Task)
        va = Signal(32)
        left = Signal(SECTOR_COUNT)
        row = Signal(8)
        wf = Signal(4)
        row_va = Signal(32)
        wf_va = Signal(32)
        kernel = Signal(Kernel)
        m.d.comb += kernel.eq(Mux(task.side, self.kernels[1], self.kernels[0]))

        room = Signal(4)
        count = Signal(4)
        own = Signal()
        others = (self._of - 1).bit_length()
        to_own = Signal(range(1, self._of + 1))
        """Interleave units from this one to the next that is cut here."""
        step = Signal(range(INTERLEAVE_SECTORS * self._of + 1))
        m.d.comb += [
            room.eq(INTERLEAVE_SECTORS - va[:3]),
            count.eq(Mux(left < room, left, room)),
            own.eq(self._is_own(va[3 : 3 + others])),
            to_own.eq((self._number - va[3 : 3 + others] - 1)[:others] + 1),
            step.eq((to_own << 3) - va[:3]),
        ]
        channel = va[3 + others : 3 + self._config.channel_bits]
        taken = Signal()
        for index, port in enumerate(self.bursts):
            m.d.comb += [
                port.valid.eq(busy & own & ((channel == index) if len(channel) else 1)),
                port.payload.store.eq(task.store),
                port.payload.slot.eq(task.slot),
                port.payload.va.eq(va),
                port.payload.left.eq(count - 1),
                port.payload.wg.eq(task.wg),
                port.payload.wf.eq(wf),
                port.payload.ends.eq(task.store & (count == left)),
                port.payload.last_bytes.eq(task.last_bytes),
                port.payload.data.eq(task.data),
                port.payload.side.eq(task.side),
            ]
            with m.If(port.valid & port.ready):
                m.d.comb += taken.eq(1)

        moves = Signal()
        row_ends = Signal()
        rows = self._rows(m, task, row_va, kernel.pitch)
        last_row = row + rows >= kernel.rows
        passed = Signal(8)
        finished = Signal()
        m.d.comb += [
            moves.eq(taken | (busy & ~own)),
            row_ends.eq(left <= step),
            passed.eq(Mux(last_row, kernel.rows - row, rows)),
            finished.eq(moves & row_ends & Mux(task.store, task.rows <= passed, task.second_count == 0)),
        ]
        with m.If(moves):
            m.d.sync += [va.eq(va + step), left.eq(left - step)]
            with m.If(row_ends):
                m.d.sync += left.eq(task.count)
                with m.If(~task.store):
                    m.d.sync += [va.eq(task.second_va), left.eq(task.second_count), task.second_count.eq(0)]
                with m.Else():
                    m.d.sync += task.rows.eq(task.rows - passed)
                    with m.If(last_row):
                        following = wf_va + kernel.wf_stride
                        m.d.sync += [
                            row.eq(0),
                            wf.eq(wf + 1),
                            va.eq(following),
                            row_va.eq(following),
                            wf_va.eq(following),
                        ]
                    with m.Else():
                        following = row_va + kernel.pitch * rows
                        m.d.sync += [row.eq(row + rows), va.eq(following), row_va.eq(following)]
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

    def _is_own(self, unit: Value) -> Value:
        return unit == self._number if len(unit) else Const(1)

    def _rows(self, m: Module, task: data.View, row_va: Signal, pitch: Value) -> Signal:
        """Rows from this one to the next with a burst of its own, as far as that can be told: 1 where a row is wider
        than an interleave unit, or does not begin at the same place in one as the row before."""
        rows = Signal(range(1, self._of + 1), init=1)
        if self._of == 1:
            m.d.comb += rows.eq(1)
            return rows
        others = (self._of - 1).bit_length()
        narrow = (row_va[:3] + task.count <= INTERLEAVE_SECTORS) & (pitch[:3] == 0)
        unit = row_va[3 : 3 + others]
        m.d.comb += rows.eq(Mux(narrow, self._of, 1))
        for number in reversed(range(1, self._of)):
            with m.If(narrow & self._is_own((unit + pitch[3 : 3 + others] * number)[:others])):
                m.d.comb += rows.eq(number)
        return rows


class RequestLane(wiring.Component):
    """Requests of one channel, one a cycle.

    Ports: `rank`: whose operands are stored; `base`: first sector of the output; `traffic_classes`: of requests, by
    side; `reads`, `stores`, and by link port `remote`: bursts; `room`: the node has
    room for a remote store of that port, so that it holds up no read behind it. Such a store goes first, those of the
    ports in turns, then reads, for which somebody waits, then stores, for which nobody does; `requests`, `responses`:
    the node's; `sent_store`: a store was taken, by side; `sent_remote`: a remote store is on its way there, by port;
    `got_read`, `got_slot`: a read came back; `error`: it was refused; `gathered`: of what came back, see
    `gathered_checker.sv`; `probe`.

    With `source_sectors` the data of stores is that many sectors of the file +source=<prefix> of the rank, in the order
    of their addresses from `base` on, and reads of a gathered array are compared; without, it is the function of
    (rank, sector) that `operand_array.sv` documents.
    """

    def __init__(self, config: Configuration, source_sectors: int = 0, ports: int = 1):
        """Remote stores leave by the first `ports` link ports."""
        self._messages = Messages(config)
        self._source_sectors = source_sectors
        self._ports = ports
        super().__init__(self.ports(config, ports))

    @staticmethod
    def ports(config: Configuration, ports: int) -> dict[str, Member]:
        """Of a lane of `config` whose remote stores leave by `ports` link ports."""
        messages = Messages(config)
        return {
            "rank": In(6),
            "base": In(32),
            "traffic_classes": In(TrafficClass).array(2),
            "reads": In(stream.Signature(Burst)),
            "stores": In(stream.Signature(Burst)),
            "remote": In(stream.Signature(Burst)).array(ports),
            "room": In(ports),
            "requests": Out(stream.Signature(messages.compute_request)),
            "responses": In(stream.Signature(messages.compute_response)),
            "sent_store": Out(2),
            "sent_remote": Out(ports),
            "got_read": Out(1),
            "got_slot": Out(range(MAX_SLOTS)),
            "error": Out(1),
            "gathered": Out(Gathered),
            "probe": Out(ReadProbe),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        advance = Signal()
        sources = []
        remote_ports = ((f"remote_{number}", port) for number, port in enumerate(self.remote))
        for name, port in (("reads", self.reads), ("stores", self.stores), *remote_ports):
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
        read_valid, store_valid = (source[0] for source in sources[:2])
        use_remote = Signal()
        may_go = Signal(self._ports)
        turn, before = Signal(range(self._ports)), Signal(range(self._ports))
        m.submodules.tags = tags = ReadTags()
        m.d.comb += [
            may_go.eq(Cat(source[0] for source in sources[2:]) & self.room),
            use_remote.eq(may_go.any()),
            sources[0][3].eq(advance & read_valid & tags.free & ~use_remote),
            sources[1][3].eq(advance & store_valid & ~use_remote & ~read_valid),
            *(source[3].eq(advance & may_go[number] & (turn == number)) for number, source in enumerate(sources[2:])),
        ]
        next_in_turn(m, "comb", turn, may_go, before)
        m.d.comb += self.sent_remote.eq(Cat(source[3] for source in sources[2:]))
        with m.If(advance & use_remote):
            m.d.sync += before.eq(turn)

        draft = Signal(self._messages.compute_request)
        draft_valid = Signal()
        draft_data = Signal(28)
        draft_side = Signal()
        request = Signal(self._messages.compute_request)
        request_valid = Signal()
        request_side = Signal()
        read = sources[0][1]
        m.d.comb += [
            advance.eq(~request_valid | self.requests.ready),
            tags.take.eq(sources[0][3]),
            tags.slot.eq(read.slot),
            tags.va.eq(read.va + sources[0][2]),
            tags.give.eq(self.responses.valid),
            tags.given.eq(self.responses.payload.id),
        ]
        with m.If(advance):
            m.d.sync += [
                draft_valid.eq(0),
                request.eq(draft),
                request_valid.eq(draft_valid),
                request_side.eq(draft_side),
            ]
        for _, burst, place, go, ended in sources:
            with m.If(go):
                m.d.sync += [
                    draft_valid.eq(1),
                    draft.access.eq(Mux(burst.store, Access.STORE, Access.READ)),
                    draft.va.eq(burst.va + place),
                    draft.wg.eq(burst.wg),
                    draft.wf.eq(burst.wf),
                    draft.traffic_class.eq(Mux(burst.side, self.traffic_classes[1], self.traffic_classes[0])),
                    draft.id.eq(tags.tag),
                    draft.mask.eq(
                        Mux(burst.ends & ended, (Const(1, SECTOR_BYTES + 1) << burst.last_bytes) - 1, 0xFFFF_FFFF)
                    ),
                    draft_data.eq(burst.data),
                    draft_side.eq(burst.side),
                ]
        operand = self._operand(m, draft.va - self.base + draft_data, advance & draft_valid, draft.access)
        m.d.comb += [
            self.requests.payload.eq(request),
            self.requests.payload.data.eq(operand),
            self.requests.valid.eq(request_valid),
            self.responses.ready.eq(1),
            self.got_read.eq(self.responses.valid),
            self.got_slot.eq(tags.given_slot),
            self.error.eq(self.responses.valid & self.responses.payload.error),
            self.probe.asked.eq(request_valid & self.requests.ready & (request.access == Access.READ)),
            self.probe.asked_tag.eq(request.id),
            self.probe.answered.eq(self.responses.valid),
            self.probe.answered_tag.eq(self.responses.payload.id),
        ]
        with m.If(request_valid & self.requests.ready & (request.access == Access.STORE)):
            m.d.comb += self.sent_store.eq(Mux(request_side, 2, 1))
        if self._source_sectors:
            m.submodules.checker = Instance(
                "gathered_checker",
                p_SECTORS=self._source_sectors,
                i_clk=ClockSignal(),
                i_id=Cat(self.rank, Const(0, 26)),
                i_valid=self.responses.valid & ~self.responses.payload.error,
                i_address=tags.given_va,
                i_data=self.responses.payload.data,
                o_reads=self.gathered.reads,
                o_wrong=self.gathered.wrong,
                o_first_wrong=self.gathered.first_wrong,
            )
        return m

    def _operand(self, m: Module, offset: Value, enable: Value, access: Value) -> Signal:
        """What is stored to the sector `offset` after the first of the output; a cycle later."""
        operand = Signal(256)
        address = Signal(32)
        m.d.comb += address.eq(offset)
        ports = {
            "i_clk": ClockSignal(),
            "i_id": Cat(self.rank, Const(0, 26)),
            "i_enable": enable & (access == Access.STORE),
            "o_data": operand,
        }
        if self._source_sectors:
            used = address[: (self._source_sectors - 1).bit_length()]
            instance = Instance("source_array", p_SECTORS=self._source_sectors, i_address=used, **ports)
        else:
            instance = Instance("operand_array", i_address=address, **ports)
        m.submodules.operands = instance
        return operand
