"""Packetizer of remote-mapped GEMM stores: merges runs of stores into link packets (T3 section 4.4, `remote_map`)."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..primitives.queue import Queue
from ..primitives.round_robin import next_in_turn
from .parameters import PacketizerParameters
from .send_routes import SendRoutes
from .slot_source import PacketSource
from .wire import arrival_layout, sends_layout

TIMEOUT = 16
"""Cycles without a store after which an open packet is closed."""
TIMEOUT_OTHERS = 4
"""The same while another queue has a store waiting."""

_SAME = ("first_send", "sends", "wg", "wf", "epoch")
"""Fields of a store that all sectors of a packet have in common."""

_MARK = data.StructLayout({"continues": unsigned(1), "again": unsigned(1)})
"""What is known of a store as it enters its queue: whether it may follow the one before it in a packet, and whether it
has the sends of that one."""


def _last_layout(store: data.StructLayout) -> data.StructLayout:
    """Of the last store of a queue, what says whether the next one may continue its packet."""
    return data.StructLayout({name: store[name].shape for name in (*_SAME, "va")})


class StorePacketizer(wiring.Component):
    """Merges remote stores of consecutive addresses and equal attributes into packets of up to 8 sectors.

    A packet never crosses an 8-sector boundary of the address, and only its last sector may have a partial mask. It is
    closed by the eighth place, by a partial mask, by a store that does not continue it, or by timeout. The stores of a
    channel wait by their ports. One queue is served until its packet closes, then the next one with a store; one whose
    packet can have no slot is passed over, so a port that stands holds up no other until its queue is full.

    Ports: `stores`: per channel, behind a FIFO of `remote_queue_depth` for each port; `port_of`: port of each send;
    `slots`, `arrival`: the packets and their sectors; `idle`; `wake`: see :mod:`hw.primitives.clock_enable`; with
    protection of memories `queues_wrong`, a pulse: what goes with a store left a queue with a wrong bit. Rate: one
    store a cycle; one cycle is lost per packet that ends in a store which does not continue it, and one or two per
    packet with other sends than the one before, two if its first store had not yet come or was behind another one.
    Latency: store to `arrival` 1 cycle, to `close` the same if its packet closes with it.
    """

    def __init__(self, config: PacketizerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        self.room = [Signal(config.links, name=f"room_{channel}") for channel in range(config.lane_channels)]
        """By channel a bit per port: its queue is at most half full. Not a port, see :attr:`hw.node.Node.remote_room`.
        """
        super().__init__(
            {
                "stores": In(stream.Signature(messages.remote_store)).array(config.lane_channels),
                "port_of": In(4).array(config.sends),
                "slots": Out(PacketSource(config)),
                "arrival": Out(arrival_layout(config)),
                "idle": Out(1),
                "wake": Out(1),
                **({"queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config

        shape = self._messages.remote_store
        queues = self._queues(m)
        waiting = Signal(len(queues))
        served = Signal(range(len(queues)))
        store = Signal(shape)
        continues = Signal()
        merge = Signal()
        sends = Signal(sends_layout(config))
        """Those of the store, if they are `settled`."""
        settled = Signal()
        for number, queue in enumerate(queues):
            own, own_settled = self._sends(m, number, queue)
            m.d.comb += [waiting[number].eq(queue.o.valid), queue.o.ready.eq(merge & (served == number))]
            with m.If(served == number):
                m.d.comb += [
                    store.eq(queue.o.payload),
                    continues.eq(queue.o_mark.continues),
                    sends.eq(own),
                    settled.eq(own_settled),
                ]

        opened = Signal()
        packet = Signal(shape)
        """The first store of the open packet."""
        place = Signal(3)
        timeout = Signal(range(TIMEOUT))

        # The slots are asked for room a cycle before.
        asked = Signal(sends_layout(config))
        m.submodules.routes = routes = SendRoutes(config)
        known = Signal()
        present = Signal()
        others = Signal()
        m.d.comb += [
            present.eq(waiting.bit_select(served, 1)),
            others.eq((waiting & ~(1 << served)).any()),
            known.eq((asked == sends) & settled),
            merge.eq(self.slots.room & present & Mux(opened, continues, known)),
            routes.sends.eq(Mux(opened, asked, sends)),
            *(port.eq(leads) for port, leads in zip(routes.port_of, self.port_of, strict=True)),
            self.slots.upcoming.eq(routes.routes),
        ]
        m.d.sync += asked.eq(routes.sends)

        ends = Signal()
        close = Signal()
        timed_out = Signal()
        m.d.comb += [
            ends.eq((store.va[:3] == 7) | ~store.mask.all()),
            timed_out.eq(~present & ((timeout == TIMEOUT - 1) | (others & (timeout >= TIMEOUT_OTHERS - 1)))),
            close.eq(Mux(merge, ends, opened & (timed_out | (present & ~continues)))),
        ]
        filled, closed = Signal(shape), self.slots.packet
        m.d.comb += [
            filled.eq(Mux(opened, packet, store)),
            self.arrival.valid.eq(merge),
            self.arrival.index.eq(Mux(opened, place, 0)),
            self.arrival.slot.eq(self.slots.slot),
            self.arrival.data.eq(store.data),
            self.slots.bank.eq(config.slot_banks - 1),
            self.slots.close.eq(close),
            *(closed[name].eq(filled[name]) for name in ("va", "wg", "wf", "epoch")),
            closed.first.eq(asked.first),
            closed.count.eq(asked.count),
            closed.length.eq(Mux(merge, self.arrival.index, place - 1)),
            closed.mask.eq(Mux(merge, store.mask, 0xFFFFFFFF)),
            self.idle.eq(~opened & ~waiting.any()),
        ]
        wakes = [*(port.valid for port in self.stores), ~self.idle]
        if config.protects_memories:
            m.d.comb += self.queues_wrong.eq(Cat(queue.wrong for queue in queues).any())
            wakes += [queue.checking for queue in queues]
        m.d.comb += self.wake.eq(Cat(wakes).any())
        with m.If(merge):
            m.d.sync += [packet.eq(filled), place.eq(self.arrival.index + 1), timeout.eq(0)]
        with m.Elif(opened & ~present):
            m.d.sync += timeout.eq(timeout + 1)
        with m.If(close):
            m.d.sync += opened.eq(0)
        with m.Elif(merge):
            m.d.sync += opened.eq(1)

        if len(queues) > 1:
            with m.If(close | (~opened & (~present | self._passes_over(known)))):
                next_in_turn(m, "sync", served, waiting, served, again=False)
        return m

    def _passes_over(self, known: Value) -> Value:
        """Whether the queue that is served gives way to others: there is no slot for its packet."""
        return known & ~self.slots.room

    def _queues(self, m: Module) -> list[Queue]:
        """Stores that wait, by channel and port; each with whether it may follow the one before it in a packet."""
        config = self._config
        shape = self._messages.remote_store
        queues = []
        for channel, stores in enumerate(self.stores):
            for port in range(config.links):
                depth, checked = config.remote_queue_depth, config.protects_memories
                queue = Queue(shape, depth, mark=_MARK, checked=checked, apart=("data",))
                m.submodules[f"queue_{channel}_{port}"] = queue
                queues.append(queue)
                # A wrong bit may name a port that does not exist; what no queue takes would stay for ever.
                here = stores.payload.port >= port if port == config.links - 1 else stores.payload.port == port
                # A queue's open packet ends in the store before this one, so the comparison need not wait for the way
                # out of the queue, which takes long enough without it.
                last = Signal(_last_layout(shape), name=f"last_{channel}_{port}")
                with m.If(stores.valid & stores.ready & here):
                    m.d.sync += [last[name].eq(stores.payload[name]) for name in (*_SAME, "va")]
                m.d.comb += [
                    queue.i.payload.eq(stores.payload),
                    queue.i_mark.continues.eq(self._continues(stores.payload, last)),
                    queue.i_mark.again.eq(self._same(stores.payload, last, "first_send", "sends").all()),
                    queue.i.valid.eq(stores.valid & here),
                ]
                m.d.comb += self.room[channel][port].eq(queue.level <= config.remote_queue_depth // 2)
                with m.If(here):
                    m.d.comb += stores.ready.eq(queue.i.ready)
        return queues

    def _sends(self, m: Module, number: int, queue: Queue) -> tuple[data.View, Value]:
        """Sends of the last store that left a queue, or of the oldest one in it as soon as that has been there for a
        cycle, and whether they are those of the oldest one: in registers, because what comes out of the queue comes too
        late to be looked up."""
        sends = Signal(sends_layout(self._config), name=f"sends_{number}")
        seen = Signal(name=f"seen_{number}")
        oldest = queue.o.payload
        m.d.sync += seen.eq(queue.o.valid & ~queue.o.ready)
        with m.If(queue.o.valid):
            m.d.sync += [sends.first.eq(oldest.first_send), sends.count.eq(oldest.sends)]
        return sends, seen | queue.o_mark.again

    @staticmethod
    def _same(store: data.View, last: data.View, *names: str) -> Value:
        return Cat(Value.cast(store[name]) == Value.cast(last[name]) for name in names)

    def _continues(self, store: data.View, last: data.View) -> Value:
        """Whether `store` may follow the `last` one in a packet."""
        same = self._same(store, last, *_SAME)
        # Within 8 sectors nothing is carried beyond the place.
        follows = (store.va[3:] == last.va[3:]) & (store.va[:3] == (last.va + 1)[:3])
        return same.all() & follows & (store.va[:3] != 0)
