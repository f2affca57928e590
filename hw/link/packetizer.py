"""Packetizer of remote-mapped GEMM stores: merges runs of stores into link packets (T3 section 4.4, `remote_map`)."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..primitives.queue import Queue
from ..primitives.round_robin import next_in_turn
from .parameters import PacketizerParameters
from .slot_source import PacketSource
from .wire import arrival_layout, sends_layout

TIMEOUT = 16
"""Cycles without a store after which an open packet is closed."""
TIMEOUT_OTHERS = 4
"""The same while another queue has a store waiting."""

_SAME = ("first_send", "sends", "wg", "wf", "epoch")
"""Fields of a store that all sectors of a packet have in common."""


def _expected_layout(store: data.StructLayout) -> data.StructLayout:
    """What the next store of a queue must have to continue the packet of the last one."""
    return data.StructLayout({name: store[name].shape for name in (*_SAME, "va")})


class StorePacketizer(wiring.Component):
    """Merges remote stores of consecutive addresses and equal attributes into packets of up to 8 sectors.

    A packet never crosses an 8-sector boundary of the address, and only its last sector may have a partial mask. It is
    closed by the eighth place, by a partial mask, by a store that does not continue it, or by timeout. The stores of a
    channel wait by their ports. One queue is served until its packet closes, then the next one with a store; one whose
    packet can have no slot is passed over, so a port that stands holds up no other until its queue is full.

    Ports: `stores`: per channel, behind a FIFO of `remote_queue_depth` for each port; `slots`, `arrival`: the packets
    and their sectors; `idle`; `wake`: see :mod:`hw.primitives.clock_enable`; with protection of memories
    `queues_wrong`, a pulse: what goes with a store left a queue with a wrong bit. Rate: one store a cycle; one cycle is
    lost per packet that ends in a store which does not continue it, and per packet with other sends than the one
    before. Latency: store to `arrival` 1 cycle, to `close` the same if its packet closes with it.
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
        for number, queue in enumerate(queues):
            m.d.comb += [waiting[number].eq(queue.o.valid), queue.o.ready.eq(merge & (served == number))]
            with m.If(served == number):
                m.d.comb += [store.eq(queue.o.payload.store), continues.eq(queue.o.payload.continues)]

        opened = Signal()
        packet = Signal(shape)
        """The first store of the open packet."""
        place = Signal(3)
        timeout = Signal(range(TIMEOUT))

        # The slots are asked for room a cycle before.
        asked = Signal(sends_layout(config))
        known = Signal()
        present = Signal()
        others = Signal()
        m.d.comb += [
            present.eq(waiting.bit_select(served, 1)),
            others.eq((waiting & ~(1 << served)).any()),
            known.eq((asked.first == store.first_send) & (asked.count == store.sends)),
            merge.eq(self.slots.room & present & Mux(opened, continues, known)),
            self.slots.upcoming.eq(asked),
        ]
        with m.If(present & ~opened):
            m.d.comb += [self.slots.upcoming.first.eq(store.first_send), self.slots.upcoming.count.eq(store.sends)]
        m.d.sync += asked.eq(self.slots.upcoming)

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
        queued = data.StructLayout({"store": shape, "continues": unsigned(1)})
        queues = []
        for channel, stores in enumerate(self.stores):
            for port in range(config.links):
                queue = Queue(queued, config.remote_queue_depth, checked=config.protects_memories, apart=("data",))
                m.submodules[f"queue_{channel}_{port}"] = queue
                queues.append(queue)
                # A wrong bit may name a port that does not exist; what no queue takes would stay for ever.
                last = port == config.links - 1
                here = stores.payload.port >= port if last else stores.payload.port == port
                # A queue's open packet ends in the store before this one, so the comparison need not wait for the way
                # out of the queue, which takes long enough without it.
                expected = Signal(_expected_layout(shape), name=f"expected_{channel}_{port}")
                with m.If(stores.valid & stores.ready & here):
                    m.d.sync += [
                        expected.va.eq(stores.payload.va + 1),
                        *(expected[name].eq(stores.payload[name]) for name in _SAME),
                    ]
                m.d.comb += [
                    queue.i.payload.store.eq(stores.payload),
                    queue.i.payload.continues.eq(self._continues(stores.payload, expected)),
                    queue.i.valid.eq(stores.valid & here),
                ]
                m.d.comb += self.room[channel][port].eq(queue.level <= config.remote_queue_depth // 2)
                with m.If(here):
                    m.d.comb += stores.ready.eq(queue.i.ready)
        return queues

    def _continues(self, store: data.View, expected: data.View) -> Value:
        """Whether `store` may follow the one before it in a packet."""
        same = Cat(Value.cast(store[name]) == Value.cast(expected[name]) for name in (*_SAME, "va"))
        return same.all() & (store.va[:3] != 0)
