"""Packetizer of remote-mapped GEMM stores: merges runs of stores into link packets (T3 section 4.4, `remote_map`)."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Messages
from ..primitives.queue import Queue
from ..primitives.round_robin import next_in_turn
from .packet_buffer import PacketBuffer
from .parameters import PacketizerParameters

TIMEOUT = 16
"""Cycles without a store after which an open packet is closed."""
TIMEOUT_OTHERS = 4
"""The same while another channel has a store waiting."""

_SAME = {
    "access": "access",
    "alu": "alu",
    "dtype": "dtype",
    "traffic_class": "traffic_class",
    "peer": "destination",
    "wg": "wg",
    "wf": "wf",
    "epoch": "epoch",
}
"""Fields of a store, and of the header, that all sectors of a packet have in common."""


def _expected_layout(store: data.StructLayout) -> data.StructLayout:
    """What the next store of a channel must have to continue the packet of the last one."""
    return data.StructLayout({name: store[name].shape for name in (*_SAME, "va")})


class StorePacketizer(wiring.Component):
    """Merges remote stores of consecutive addresses and equal attributes into packets of up to 8 sectors.

    A packet never crosses an 8-sector boundary of the destination address, and only its last sector may have a partial
    mask. It is closed by the eighth place, by a partial mask, by a store that does not continue it, or by timeout. One
    channel is served until its packet closes, then the next one with a store.

    Ports: `rank`: goes into the headers; `stores`: per channel, behind a FIFO of `remote_queue_depth`;
    `packets`: header flit (`crc` 0) and data flits; `idle`; `wake`: see
    :mod:`hw.primitives.clock_enable`. Rate: one store a cycle, one cycle lost per packet that ends in a store which
    does not continue it. Latency: store to its header 3 cycles if its packet closes with it.
    """

    def __init__(self, config: PacketizerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "rank": In(6),
                "stores": In(stream.Signature(messages.remote_store)).array(config.channels),
                "packets": Out(stream.Signature(messages.link_flit)),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        channels = config.channels
        m.submodules.buffer = buffer = PacketBuffer(config, config.store_packets, banks=1)
        connect(m, buffer.packets, flipped(self.packets))

        shape = messages.remote_store
        queued = data.StructLayout({"store": shape, "continues": unsigned(1)})
        waiting = Signal(channels)
        served = Signal(range(channels))
        store = Signal(shape)
        continues = Signal()
        merge = Signal()
        for channel in range(channels):
            queue = Queue(queued, config.remote_queue_depth)
            m.submodules[f"queue_{channel}"] = queue
            port = self.stores[channel]
            # A channel's open packet ends in the store before this one, so the comparison need not wait for the way out
            # of the queue, which takes long enough without it.
            expected = Signal(_expected_layout(shape), name=f"expected_{channel}")
            with m.If(port.valid & port.ready):
                m.d.sync += [
                    expected.va.eq(port.payload.va + 1),
                    *(expected[name].eq(port.payload[name]) for name in _SAME),
                ]
            m.d.comb += [
                queue.i.payload.store.eq(port.payload),
                queue.i.payload.continues.eq(self._continues(port.payload, expected)),
                queue.i.valid.eq(port.valid),
                port.ready.eq(queue.i.ready),
                waiting[channel].eq(queue.o.valid),
                queue.o.ready.eq(merge & (served == channel)),
            ]
            with m.If(served == channel):
                m.d.comb += [store.eq(queue.o.payload.store), continues.eq(queue.o.payload.continues)]

        opened = Signal()
        packet = Signal(messages.link_header)
        place = Signal(3)
        timeout = Signal(range(TIMEOUT))

        present = Signal()
        others = Signal()
        m.d.comb += [
            present.eq(waiting.bit_select(served, 1)),
            others.eq((waiting & ~(1 << served)).any()),
            merge.eq(buffer.room & present & (~opened | continues)),
        ]

        ends = Signal()
        close = Signal()
        timed_out = Signal()
        m.d.comb += [
            ends.eq((store.va[:3] == 7) | ~store.mask.all()),
            timed_out.eq(~present & ((timeout == TIMEOUT - 1) | (others & (timeout >= TIMEOUT_OTHERS - 1)))),
            close.eq(Mux(merge, ends, opened & (timed_out | (present & ~continues)))),
        ]
        arrival = buffer.arrivals[0]
        header = buffer.closing.header
        m.d.comb += [
            arrival.valid.eq(merge),
            arrival.index.eq(Mux(opened, place, 0)),
            arrival.slot.eq(buffer.slot),
            arrival.data.eq(store.data),
            buffer.closing.valid.eq(close),
            header.eq(packet),
            self.idle.eq(~opened & ~waiting.any() & buffer.empty),
            self.wake.eq(Cat(port.valid for port in self.stores).any() | ~self.idle),
        ]
        with m.If(merge):
            m.d.comb += [header.mask.eq(store.mask), header.length.eq(arrival.index)]
        with m.If(merge & ~opened):
            m.d.comb += [
                header.va.eq(store.va),
                header.source.eq(self.rank),
                *(header[name].eq(store[field]) for field, name in _SAME.items()),
            ]

        with m.If(merge):
            m.d.sync += [
                packet.eq(header),
                place.eq(arrival.index + 1),
                timeout.eq(0),
            ]
        with m.Elif(opened & ~present):
            m.d.sync += timeout.eq(timeout + 1)
        with m.If(close):
            m.d.sync += opened.eq(0)
        with m.Elif(merge):
            m.d.sync += opened.eq(1)

        if channels > 1:
            with m.If(close | (~opened & ~present)):
                next_in_turn(m, "sync", served, waiting, served, again=False)
        return m

    def _continues(self, store: data.View, expected: data.View) -> Value:
        """Whether `store` may follow the one before it in a packet."""
        same = Cat(Value.cast(store[name]) == Value.cast(expected[name]) for name in (*_SAME, "va"))
        return same.all() & (store.va[:3] != 0)
