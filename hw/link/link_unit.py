"""The node's link ports: routes packets to the port of their peer, writes received packets to the channels."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Messages
from ..primitives.clock_enable import sleeping_submodule
from ..primitives.stream_arbiter import StreamArbiter
from ..range_table import RangeWrite
from .events import LinkEvents
from .parameters import LinkParameters
from .receiver import Receiver
from .transmitter import Transmitter


class LinkUnit(wiring.Component):
    """`links` ports, each a :class:`Transmitter` and a :class:`Receiver`.

    Ports: `ranges`: programming bus; `route`: bit p is the link port that leads to peer p; `rank`; `armed`, `epoch`:
    the armed epoch, whose packets are sent and accepted, all others discarded and refused; `arm`: pulse, grants `epoch`
    to the neighbour of every port; `dma_packets`, `store_packets`: packets to send; per link port `tx`, `tx_control`,
    `rx`, `rx_control`; `requests`: writes of received packets, per channel; `faults`; `events`. A fault that comes
    while others still wait replaces the last one of its port that was not yet offered: refused packets never hold up
    the link. Latency: packet in to `tx` 2 cycles, `rx` last flit to first write 4.
    """

    def __init__(self, config: LinkParameters):
        self._config = config
        self._messages = messages = Messages(config)
        flits = stream.Signature(messages.link_flit)
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "route": In(64),
                "rank": In(6),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "arm": In(1),
                "dma_packets": In(flits),
                "store_packets": In(flits),
                "tx": Out(flits).array(config.links),
                "tx_control": In(messages.link_control).array(config.links),
                "rx": In(flits).array(config.links),
                "rx_control": Out(messages.link_control).array(config.links),
                "requests": Out(stream.Signature(messages.memory_request)).array(config.channels),
                "faults": Out(stream.Signature(messages.fault_record)),
                "events": Out(LinkEvents).array(config.links),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        transmitters, receivers = [], []
        for port in range(config.links):
            transmitter = self._transmitter()
            receiver = Receiver(config)
            sleeping_submodule(m, f"transmitter_{port}", transmitter)
            sleeping_submodule(m, f"receiver_{port}", receiver)
            transmitters.append(transmitter)
            receivers.append(receiver)
            connect(m, transmitter.tx, flipped(self.tx[port]))
            connect(m, flipped(self.rx[port]), receiver.rx)
            events = self.events[port]
            m.d.comb += [
                transmitter.armed.eq(self.armed),
                transmitter.epoch.eq(self.epoch),
                transmitter.control.eq(self.tx_control[port]),
                self.rx_control[port].eq(receiver.control),
                receiver.ranges.eq(self.ranges),
                receiver.rank.eq(self.rank),
                receiver.epoch.eq(self.epoch),
                receiver.armed.eq(self.armed),
                receiver.arm.eq(self.arm),
                events.sent_flits.eq(transmitter.sent_flit),
                events.sent_packets.eq(transmitter.sent_packet),
                events.received_packets.eq(receiver.received),
                events.no_credit.eq(transmitter.no_credit),
                events.no_grant.eq(transmitter.no_grant),
                events.discarded_packets.eq(transmitter.discarded),
                events.writing.eq(receiver.writing),
                events.all_sent.eq(transmitter.idle),
                events.idle.eq(transmitter.idle & receiver.idle),
            ]
        for number, source in enumerate((self.dma_packets, self.store_packets)):
            self._route(m, number, source, transmitters)
        self._requests(m, receivers)
        self._faults(m, receivers)
        return m

    def _transmitter(self) -> Transmitter:
        return Transmitter(self._config)

    def _route(self, m: Module, number: int, source: stream.Interface, transmitters: list[Transmitter]) -> None:
        """Offer the packets of `source` to the transmitter of their destination's port."""
        layout = self._messages.link_header
        destination = layout(source.payload.data[: layout.size]).destination
        held = Signal(name=f"held_port_{number}")
        port = Signal(name=f"port_{number}")
        if len(transmitters) > 1:
            m.d.comb += port.eq(Mux(source.payload.header, self.route.bit_select(destination, 1), held))
            with m.If(source.valid & source.payload.header):
                m.d.sync += held.eq(port)
        for index, transmitter in enumerate(transmitters):
            sink = transmitter.sources[number]
            m.d.comb += [sink.payload.eq(source.payload), sink.valid.eq(source.valid & (port == index))]
            with m.If(port == index):
                m.d.comb += source.ready.eq(sink.ready)

    def _requests(self, m: Module, receivers: list[Receiver]) -> None:
        """Give each channel the writes of its sectors, link ports taking turns."""
        config = self._config
        channels = [receiver.requests.payload.va[3 : 3 + config.channel_bits] for receiver in receivers]
        for channel in range(config.channels):
            merge = StreamArbiter(self._messages.memory_request, config.links)
            m.submodules[f"requests_{channel}"] = merge
            connect(m, merge.output, flipped(self.requests[channel]))
            for index, receiver in enumerate(receivers):
                here = channels[index] == channel
                m.d.comb += [
                    merge.inputs[index].payload.eq(receiver.requests.payload),
                    merge.inputs[index].valid.eq(receiver.requests.valid & here),
                ]
                with m.If(here):
                    m.d.comb += receiver.requests.ready.eq(merge.inputs[index].ready)

    def _faults(self, m: Module, receivers: list[Receiver]) -> None:
        """Offer fault records one at a time; a record not yet offered is replaced by a later one of its port."""
        offered = Signal()
        record = Signal(self._messages.fault_record)
        m.d.comb += [self.faults.valid.eq(offered), self.faults.payload.eq(record)]
        free = Signal()
        m.d.comb += free.eq(~offered | self.faults.ready)
        with m.If(self.faults.ready):
            m.d.sync += offered.eq(0)
        for port, receiver in enumerate(receivers):
            waits = Signal(name=f"fault_waits_{port}")
            waiting = Signal(self._messages.fault_record, name=f"fault_waiting_{port}")
            move = Signal(name=f"fault_move_{port}")
            m.d.comb += move.eq(waits & free)
            with m.If(move):
                m.d.sync += [offered.eq(1), record.eq(waiting), waits.eq(0)]
            with m.If(receiver.fault_valid):
                m.d.sync += [waits.eq(1), waiting.eq(receiver.fault)]
            taken = Signal(name=f"fault_free_{port}")
            m.d.comb += taken.eq(free & ~waits)
            free = taken
