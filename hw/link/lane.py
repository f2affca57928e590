"""The link of one lane: egress and ingress of all its ports."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory_window import WindowCheck
from ..messages import Messages
from ..primitives.stream_arbiter import StreamArbiter
from ..range_table import range_write
from ..send_table import send_write
from .egress import Egress
from .events import LinkEvents
from .flit_crc import flit_is_clean
from .packet_writer import PeerCheck
from .parameters import LinkParameters
from .port_ingress import PortIngress
from .port_sender import LinkTimers
from .slot_source import PacketSource
from .wire import arrival_layout, flit_layout, message_layout


class LinkLane(wiring.Component):
    """`links` ports, each of which sends and receives; the two directions of a port share nothing but its state
    messages, and no port waits for another.

    Ports: `lane`, number of this one if there are others: packets for another are refused; `ranges`, `sends`:
    programming buses; `window`: of this node's memory; `timers`; `rank`; `peers`: whose packets a port takes; `epoch`,
    `armed`: packets of that epoch are taken, and its grant is given; `notice`: what the peers are told; `sources`,
    `arrivals`, `port_of`, `block_sent`, `discarded`, `all_left`, `empty`, `heard`, `give_up`: see
    :class:`hw.link.egress.Egress`; while not `armed`, what was never sent is discarded; per port `tx` and the state
    messages against it, `tx_messages`, `rx` and `rx_messages`; `requests`: writes of received packets, per channel;
    `faults`: a fault that comes while others still wait replaces the last one of its port that was not yet offered;
    `events`, per port; `idle`: nothing is in a slot or buffer of a port; with protection of memories `ranges_wrong`,
    `sends_wrong`, pulses: a port's packet writer, the egress, used a word of a table that had a wrong bit, and
    `queues_wrong`: what either keeps of a packet but its data. Latency: see Egress; `rx` last flit to first write 4
    cycles.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        config = parameters
        messages = Messages(config)
        links = parameters.links
        flits = stream.Signature(flit_layout(parameters))
        protected = ("ranges_wrong", "sends_wrong", "queues_wrong")
        super().__init__(
            {
                **({"lane": In(parameters.lane_bits)} if parameters.lanes > 1 else {}),
                "ranges": In(range_write(config)),
                "window": In(WindowCheck),
                "sends": In(send_write(config)),
                "timers": In(LinkTimers),
                "rank": In(6),
                "peers": In(PeerCheck).array(links),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "notice": In(messages.epoch),
                "give_up": In(1),
                "sources": In(PacketSource(parameters)).array(2),
                "arrivals": In(arrival_layout(parameters)).array(parameters.slot_banks),
                "tx": Out(flits).array(links),
                "tx_messages": In(message_layout(parameters)).array(links),
                "rx": In(flits).array(links),
                "rx_messages": Out(message_layout(parameters)).array(links),
                "requests": Out(stream.Signature(messages.memory_request)).array(config.lane_channels),
                "faults": Out(stream.Signature(messages.fault_record)),
                "events": Out(LinkEvents).array(links),
                "port_of": Out(4).array(config.sends),
                "block_sent": Out(1),
                "discarded": Out(1),
                "all_left": Out(1),
                "empty": Out(1),
                "heard": Out(messages.epoch).array(links),
                "idle": Out(1),
                **(dict.fromkeys(protected, Out(1)) if config.protects_memories else {}),
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
            egress.discard.eq(~self.armed),
            egress.give_up.eq(self.give_up),
            *(port.eq(heard) for port, heard in zip(self.heard, egress.heard, strict=True)),
            self.block_sent.eq(egress.block_sent),
            self.discarded.eq(egress.discarded),
            self.all_left.eq(egress.all_left),
            *(port.eq(known) for port, known in zip(self.port_of, egress.port_of, strict=True)),
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
                    for name in ("timers", "ranges", "window", "rank", "epoch", "armed", "notice")
                ),
                *([arrivals.lane.eq(self.lane)] if self._parameters.lanes > 1 else []),
                arrivals.peer.eq(self.peers[port]),
                self.rx_messages[port].eq(arrivals.message),
            ]
            sent, event = egress.events[port], self.events[port]
            m.d.comb += [
                event.sent_flits.eq(sent.flits),
                event.sent_packets.eq(sent.packets),
                event.received_packets.eq(arrivals.received),
                event.damaged.eq(arrivals.damaged | unclean),
                event.writing.eq(arrivals.writing),
                *(
                    event[name].eq(sent[name])
                    for name in ("left", "no_credit", "no_grant", "again", "cut", "dead", "up")
                ),
            ]
            ingress.append(arrivals)
        m.d.comb += self.idle.eq(egress.empty & Cat(arrivals.idle for arrivals in ingress).all())
        if self._parameters.protects_memories:
            m.d.comb += [
                self.ranges_wrong.eq(Cat(arrivals.tables_wrong for arrivals in ingress).any()),
                self.sends_wrong.eq(egress.sends_wrong),
                self.queues_wrong.eq(Cat(egress.queues_wrong, *(arrivals.queue_wrong for arrivals in ingress)).any()),
            ]
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
        clean = flit_is_clean(arrived.state.as_value()) if self._parameters.protects_links else 1
        m.d.sync += [
            message.eq(arrived),
            message.valid.eq(arrived.valid & clean),
            unclean.eq(arrived.valid & ~clean),
        ]
        m.d.comb += egress.messages[port].eq(message)
        return unclean

    def _requests(self, m: Module, ingress: list[PortIngress]) -> None:
        """Give each channel the writes of its sectors, link ports taking turns."""
        config = self._parameters
        channels = [arrivals.requests.payload.va[3 : 3 + config.lane_channel_bits] for arrivals in ingress]
        for channel in range(config.lane_channels):
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
        record = Messages(self._parameters).fault_record
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
