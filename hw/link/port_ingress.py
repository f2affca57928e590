"""Arrivals of one link port: CRC of the wire's flits, receiver, writer."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory_window import WindowCheck
from ..messages import Messages
from ..range_table import range_write
from .flit_crc import flit_crc, flit_is_clean
from .packet_writer import PacketWriter, PeerCheck
from .parameters import LinkParameters
from .port_receiver import PortReceiver
from .port_sender import LinkTimers
from .wire import flit_layout, message_layout


class PortIngress(wiring.Component):
    """:class:`hw.link.port_receiver.PortReceiver` and :class:`hw.link.packet_writer.PacketWriter` behind the wire.

    Ports: `lane`, `timers`, `ranges`, `window`, `rank`, `peer`, `epoch`, `armed` (grants `epoch`), `notice`,
    `requests`, `fault_valid`, `fault`, `received`, `writing`, `idle`, `tables_wrong`, `queue_wrong`: as there; `rx`:
    always ready; `message`: state message with its CRC, for the peer; `damaged`: a flit was not clean. Latency: last
    flit to first request 4 cycles. Rate: one flit a cycle.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        messages = Messages(parameters)
        super().__init__(
            {
                **({"lane": In(parameters.lane_bits)} if parameters.lanes > 1 else {}),
                "timers": In(LinkTimers),
                "ranges": In(range_write(parameters)),
                "window": In(WindowCheck),
                "rank": In(6),
                "peer": In(PeerCheck),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "notice": In(messages.epoch),
                "rx": In(stream.Signature(flit_layout(parameters))),
                "message": Out(message_layout(parameters)),
                "requests": Out(stream.Signature(messages.memory_request)),
                "fault_valid": Out(1),
                "fault": Out(messages.fault_record),
                "received": Out(1),
                "writing": Out(1),
                "damaged": Out(1),
                "idle": Out(1),
                **({"tables_wrong": Out(1), "queue_wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        protected = self._parameters.protects_links
        m.submodules.receiver = receiver = PortReceiver(self._parameters)
        m.submodules.writer = writer = PacketWriter(self._parameters)
        valid = Signal()
        clean = Signal()
        flit = Signal(flit_layout(self._parameters))
        m.d.comb += self.rx.ready.eq(1)
        m.d.sync += valid.eq(self.rx.valid)
        with m.If(self.rx.valid):
            m.d.sync += [
                flit.eq(self.rx.payload),
                clean.eq(flit_is_clean(self.rx.payload.as_value()) if protected else 1),
            ]
        connect(m, writer.requests, flipped(self.requests))
        m.d.comb += [
            receiver.timers.eq(self.timers),
            receiver.valid.eq(valid),
            receiver.clean.eq(clean),
            receiver.flit.eq(flit),
            receiver.granted.eq(self.armed),
            receiver.epoch.eq(self.epoch),
            receiver.notice.eq(self.notice),
            receiver.freed.eq(writer.freed),
            *([writer.lane.eq(self.lane)] if self._parameters.lanes > 1 else []),
            writer.ranges.eq(self.ranges),
            writer.window.eq(self.window),
            writer.rank.eq(self.rank),
            writer.peer.eq(self.peer),
            writer.epoch.eq(self.epoch),
            writer.armed.eq(self.armed),
            writer.looks.eq(receiver.looks),
            writer.header.eq(receiver.header),
            writer.sector.eq(receiver.sector),
            writer.place.eq(receiver.place),
            writer.buffer.eq(receiver.buffer),
            writer.complete.eq(receiver.complete),
            writer.data.eq(flit.data),
            self.fault_valid.eq(writer.fault_valid),
            self.fault.eq(writer.fault),
            self.received.eq(writer.received),
            self.writing.eq(writer.writing),
            self.damaged.eq(valid & ~clean),
            self.idle.eq(writer.idle & ~receiver.busy & ~valid),
        ]
        if self._parameters.protects_memories:
            m.d.comb += [self.tables_wrong.eq(writer.tables_wrong), self.queue_wrong.eq(writer.queue_wrong)]
        state = receiver.message.state
        body = state.as_value()[: state.shape()["crc"].offset]
        m.d.comb += [
            self.message.valid.eq(receiver.message.valid),
            self.message.state.eq(Cat(body, flit_crc(body)) if protected else state),
        ]
        return m
