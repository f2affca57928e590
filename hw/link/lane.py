"""The link of one lane: egress and ingress of all its ports."""

from amaranth import Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Messages
from ..primitives.stream_arbiter import StreamArbiter
from ..range_table import RangeWrite
from .egress import Egress, PacketSource, port_events
from .flit_crc import flit_is_clean
from .port_ingress import PortIngress
from .port_sender import LinkTimers
from .send_table import SendWrite
from .wire import LaneParameters, arrival_layout, flit_layout, message_layout


def arrival_events() -> data.StructLayout:
    """What the receiving side of a port did this cycle: `received`: a packet was accepted; `damaged`: a flit or a state
    message was not clean; `idle`."""
    return data.StructLayout(dict.fromkeys(("received", "damaged", "idle"), unsigned(1)))


class LinkLane(wiring.Component):
    """`links` ports, each of which sends and receives; the two directions of a port share nothing but its state
    messages, and no port waits for another.

    Ports: `ranges`, `sends`: programming buses; `timers`; `rank`; `peers`, `any_peer`: whose packets a port takes;
    `epoch`, `armed`: packets of that epoch are taken, and its grant is given; `discard`, `sources`, `arrivals`,
    `block_done`, `discarded`, `empty`: see :class:`hw.link.egress.Egress`; per port `tx` and the state messages against
    it, `tx_messages`, `rx` and `rx_messages`; `requests`: writes of received packets, per channel; `faults`: a fault
    that comes while others still wait replaces the last one of its port that was not yet offered; `sent`, `arrived`:
    events per port. Latency: see Egress; `rx` last flit to first write 4 cycles.
    """

    def __init__(self, parameters: LaneParameters):
        self._parameters = parameters
        config = parameters.config
        messages = Messages(config)
        links = parameters.links
        flits = stream.Signature(flit_layout(parameters))
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "sends": In(SendWrite),
                "timers": In(LinkTimers),
                "rank": In(6),
                "peers": In(6).array(links),
                "any_peer": In(1),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "discard": In(1),
                "sources": In(PacketSource(parameters)).array(2),
                "arrivals": In(arrival_layout(parameters)).array(parameters.banks),
                "tx": Out(flits).array(links),
                "tx_messages": In(message_layout(parameters)).array(links),
                "rx": In(flits).array(links),
                "rx_messages": Out(message_layout(parameters)).array(links),
                "requests": Out(stream.Signature(messages.memory_request)).array(config.channels),
                "faults": Out(stream.Signature(messages.fault_record)),
                "sent": Out(port_events()).array(links),
                "arrived": Out(arrival_events()).array(links),
                "block_done": Out(1),
                "discarded": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.egress = egress = self._egress()
        for source, inner in zip(self.sources, egress.sources, strict=True):
            connect(m, flipped(source), inner)
        m.d.comb += [
            egress.sends.eq(self.sends),
            egress.timers.eq(self.timers),
            egress.rank.eq(self.rank),
            egress.discard.eq(self.discard),
            self.block_done.eq(egress.block_done),
            self.discarded.eq(egress.discarded),
            self.empty.eq(egress.empty),
        ]
        m.d.comb += [inner.eq(outer) for inner, outer in zip(egress.arrivals, self.arrivals, strict=True)]
        ingress = []
        for port in range(self._parameters.links):
            connect(m, egress.tx[port], flipped(self.tx[port]))
            unclean = self._hear(m, port, egress)
            arrivals = PortIngress(self._parameters)
            m.submodules[f"ingress_{port}"] = arrivals
            connect(m, flipped(self.rx[port]), arrivals.rx)
            m.d.comb += [
                *(
                    getattr(arrivals, name).eq(getattr(self, name))
                    for name in ("timers", "ranges", "rank", "any_peer", "epoch", "armed")
                ),
                arrivals.peer.eq(self.peers[port]),
                self.rx_messages[port].eq(arrivals.message),
                self.sent[port].eq(egress.events[port]),
                self.arrived[port].received.eq(arrivals.received),
                self.arrived[port].damaged.eq(arrivals.damaged | unclean),
                self.arrived[port].idle.eq(arrivals.idle),
            ]
            ingress.append(arrivals)
        self._requests(m, ingress)
        self._faults(m, ingress)
        return m

    def _egress(self) -> Egress:
        return Egress(self._parameters)

    def _hear(self, m: Module, port: int, egress: Egress) -> Signal:
        """Check the state messages of a port's peer; returns whether one was damaged."""
        message = Signal(message_layout(self._parameters), name=f"message_{port}")
        unclean = Signal(name=f"unclean_{port}")
        arrived = self.tx_messages[port]
        clean = flit_is_clean(arrived.state.as_value()) if self._parameters.protected else 1
        m.d.sync += [
            message.eq(arrived),
            message.valid.eq(arrived.valid & clean),
            unclean.eq(arrived.valid & ~clean),
        ]
        m.d.comb += egress.messages[port].eq(message)
        return unclean

    def _requests(self, m: Module, ingress: list[PortIngress]) -> None:
        """Give each channel the writes of its sectors, link ports taking turns."""
        config = self._parameters.config
        channels = [arrivals.requests.payload.va[3 : 3 + config.channel_bits] for arrivals in ingress]
        for channel in range(config.channels):
            merge = StreamArbiter(Messages(config).memory_request, len(ingress))
            m.submodules[f"requests_{channel}"] = merge
            connect(m, merge.output, flipped(self.requests[channel]))
            for index, arrivals in enumerate(ingress):
                here = channels[index] == channel
                m.d.comb += [
                    merge.inputs[index].payload.eq(arrivals.requests.payload),
                    merge.inputs[index].valid.eq(arrivals.requests.valid & here),
                ]
                with m.If(here):
                    m.d.comb += arrivals.requests.ready.eq(merge.inputs[index].ready)

    def _faults(self, m: Module, ingress: list[PortIngress]) -> None:
        """Offer fault records one at a time; a record not yet offered is replaced by a later one of its port."""
        record = Messages(self._parameters.config).fault_record
        m.submodules.faults = merge = StreamArbiter(record, len(ingress))
        connect(m, merge.output, flipped(self.faults))
        for port, arrivals in enumerate(ingress):
            offered = merge.inputs[port]
            waits = Signal(name=f"fault_waits_{port}")
            waiting = Signal(record, name=f"fault_waiting_{port}")
            offers = Signal(name=f"fault_offers_{port}")
            offer = Signal(record, name=f"fault_offer_{port}")
            m.d.comb += [offered.valid.eq(offers), offered.payload.eq(offer)]
            with m.If(~offers | offered.ready):
                m.d.sync += [offers.eq(waits), offer.eq(waiting), waits.eq(0)]
            with m.If(arrivals.fault_valid):
                m.d.sync += [waits.eq(1), waiting.eq(arrivals.fault)]
