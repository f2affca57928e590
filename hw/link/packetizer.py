"""Packetizer of remote-mapped GEMM stores: merges runs of stores into link packets (T3 section 4.4, `remote_map`)."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Configuration
from hw.dma.packet_buffer import PacketBuffer
from hw.messages import Messages

PATIENCE = 16
"""Cycles without a store after which an open packet is closed."""
PATIENCE_OTHERS = 4
"""The same while another channel has a store waiting."""

_SAME = {
    "access": "access",
    "alu": "alu",
    "dtype": "dtype",
    "phase": "phase",
    "peer": "destination",
    "wg": "wg",
    "wf": "wf",
}
"""Fields of a store, and of the header, that all sectors of a packet have in common."""


class StorePacketizer(wiring.Component):
    """Merges remote stores of consecutive addresses and equal attributes into packets of up to 8 sectors.

    A packet never crosses an 8-sector boundary of the destination address, and only its last sector may have a partial
    mask. It is closed by the eighth place, by a partial mask, by a store that does not continue it, or by patience. One
    channel is served until its packet closes, then the next one with a store.

    Ports: `epoch`, `rank`: go into the headers; `stores`: per channel, behind a FIFO of `remote_queue_depth`;
    `packets`: header flit (`check` 0) and data flits; `idle`. Rate: one store a cycle, one cycle lost per packet that
    ends in a store which does not continue it. Latency: store to its header 3 cycles if its packet closes with it.
    """

    def __init__(self, config: Configuration):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "epoch": In(messages.epoch),
                "rank": In(6),
                "stores": In(stream.Signature(messages.remote_store)).array(config.channels),
                "packets": Out(stream.Signature(messages.link_flit)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        channels = config.channels
        m.submodules.buffer = buffer = PacketBuffer(config, config.store_packets, banks=1)
        connect(m, buffer.packets, flipped(self.packets))

        shape = messages.remote_store
        waiting = Signal(channels)
        served = Signal(range(channels))
        store = Signal(shape)
        merge = Signal()
        for channel in range(channels):
            queue = fifo.SyncFIFO(width=shape.size, depth=config.remote_queue_depth)
            m.submodules[f"queue_{channel}"] = queue
            port = self.stores[channel]
            m.d.comb += [
                queue.w_data.eq(port.payload),
                queue.w_en.eq(port.valid),
                port.ready.eq(queue.w_rdy),
                waiting[channel].eq(queue.r_rdy),
                queue.r_en.eq(merge & (served == channel)),
            ]
            with m.If(served == channel):
                m.d.comb += store.as_value().eq(queue.r_data)

        opened = Signal()
        packet = Signal(messages.link_header)
        following = Signal(messages.va)
        place = Signal(3)
        patience = Signal(range(PATIENCE))

        present = Signal()
        continues = Signal()
        others = Signal()
        m.d.comb += [
            present.eq(waiting.bit_select(served, 1)),
            others.eq((waiting & ~(1 << served)).any()),
            continues.eq((store.va == following) & (store.va[:3] != 0) & self._same(store, packet)),
            merge.eq(buffer.room & present & (~opened | continues)),
        ]

        ends = Signal()
        close = Signal()
        impatient = Signal()
        m.d.comb += [
            ends.eq((store.va[:3] == 7) | ~store.mask.all()),
            impatient.eq(~present & ((patience == PATIENCE - 1) | (others & (patience >= PATIENCE_OTHERS - 1)))),
            close.eq(Mux(merge, ends, opened & (impatient | (present & ~continues)))),
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
        ]
        with m.If(merge):
            m.d.comb += [header.mask.eq(store.mask), header.length.eq(arrival.index)]
        with m.If(merge & ~opened):
            m.d.comb += [
                header.va.eq(store.va),
                header.epoch.eq(self.epoch),
                header.source.eq(self.rank),
                *(header[name].eq(store[field]) for field, name in _SAME.items()),
            ]

        with m.If(merge):
            m.d.sync += [
                packet.eq(header),
                following.eq(store.va + 1),
                place.eq(arrival.index + 1),
                patience.eq(0),
            ]
        with m.Elif(opened & ~present):
            m.d.sync += patience.eq(patience + 1)
        with m.If(close):
            m.d.sync += opened.eq(0)
        with m.Elif(merge):
            m.d.sync += opened.eq(1)

        if channels > 1:
            with m.If(close | (~opened & ~present)):
                with m.Switch(served):
                    for channel in range(channels):
                        with m.Case(channel):
                            for distance in reversed(range(1, channels)):
                                index = (channel + distance) % channels
                                with m.If(waiting[index]):
                                    m.d.sync += served.eq(index)
        return m

    def _same(self, store: data.View, packet: data.View) -> Value:
        """Whether `store` agrees with the open packet in everything but its address."""
        return Cat(Value.cast(store[field]) == Value.cast(packet[name]) for field, name in _SAME.items()).all()
