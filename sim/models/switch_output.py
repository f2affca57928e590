"""Output of a switch: packets of all inputs in turns, onto the link of a GPU."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.link.flit_buffer import FlitBuffer
from hw.link.flit_crc import flit_is_clean
from hw.link.port_sender import LinkTimers, PortSender
from hw.link.turns import Turns
from hw.link.wire import FlitKind, descriptor_layout, flit_layout, message_layout
from hw.message_parameters import MessageParameters
from hw.messages import Messages
from hw.primitives.clock_enable import sleeping_submodule
from sim.models.switch_input import HEADER_PLACE, PLACE_BITS
from sim.models.switch_parameters import SwitchParameters


def peer_state(parameters: MessageParameters) -> data.StructLayout:
    """What is known of a GPU. `heard`: something, in this session; `granted`: it takes packets of `epoch`; `notice`: it
    has aborted that epoch, 0: none."""
    epoch = Messages(parameters).epoch
    return data.StructLayout({"heard": unsigned(1), "granted": unsigned(1), "epoch": epoch, "notice": epoch})


class SwitchOutput(wiring.Component):
    """Sends packets to one GPU, as the port of a GPU does; inputs take turns, packet by packet.

    A packet of an epoch that the GPU grants no more, or that was aborted, is thrown away; no other ever is. While the
    link has no session, packets wait.

    Ports: `timers`; `message`: state message of the GPU, with its check; `peer`: what it says; `aborted`: the
    notices of all GPUs; by input `offers`; `read`, `bank`: a sector or header of a slot of that input, `words`: by
    input, a cycle later; `release`, `released`, `release_taken`: a packet is over; `tx`: flits with their check.
    Latency: `offers` to `tx` 5 cycles. Rate: one flit a cycle with three `output_flits`, two in three cycles with two.
    """

    def __init__(self, parameters: SwitchParameters):
        self._parameters = parameters
        messages = Messages(parameters)
        ports = parameters.switch_ports
        descriptor = descriptor_layout(parameters)
        super().__init__(
            {
                "timers": In(LinkTimers),
                "message": In(message_layout(parameters)),
                "peer": Out(peer_state(parameters)),
                "aborted": In(messages.epoch).array(ports),
                "offers": In(stream.Signature(descriptor)).array(ports),
                "read": Out(1),
                "bank": Out(range(ports)),
                "slot": Out(parameters.slot_bits),
                "place": Out(PLACE_BITS),
                "words": In(messages.sector).array(ports),
                "release": Out(1),
                "released": Out(descriptor),
                "release_taken": In(1),
                "tx": Out(stream.Signature(flit_layout(parameters))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sender = sender = PortSender(self._parameters)
        m.d.comb += [
            sender.timers.eq(self.timers),
            self.release.eq(sender.release),
            self.released.eq(sender.released),
            sender.release_taken.eq(self.release_taken),
        ]
        self._hear(m, sender)
        self._choose(m, sender)
        self._send(m, sender)
        return m

    def _hear(self, m: Module, sender: PortSender) -> None:
        """Check the GPU's messages, and remember what those of the session say."""
        protected = self._parameters.protects_links
        clean = flit_is_clean(self.message.state.as_value()) if protected else 1
        message = Signal(message_layout(self._parameters))
        m.d.sync += message.valid.eq(self.message.valid & clean)
        with m.If(self.message.valid):
            m.d.sync += message.state.eq(self.message.state)
        m.d.comb += sender.message.eq(message)
        said = message.state
        with m.If(~sender.up):
            m.d.sync += self.peer.eq(0)
        with m.Elif(message.valid & (said.session == sender.flit.session)):
            m.d.sync += [
                self.peer.heard.eq(1),
                *(self.peer[name].eq(said[name]) for name in ("granted", "epoch", "notice")),
            ]

    def _choose(self, m: Module, sender: PortSender) -> None:
        """Move packets into the sender's queue, where those that were not sent are of one epoch, so that all of them
        may be thrown away or none."""
        depth = self._parameters.port_queue_depth
        m.submodules.turns = turns = Turns(len(self.offers))
        used = Signal(range(depth + 1))
        epoch = Signal(Messages(self._parameters).epoch)
        over = Signal()
        room = Signal()
        m.d.comb += [
            over.eq(
                Cat((notice != 0) & (notice == epoch) for notice in self.aborted).any()
                | (self.peer.heard & ~(self.peer.granted & (self.peer.epoch == epoch)))
            ),
            sender.discard.eq(over & ~sender.all_left),
            room.eq((used != depth) & ~sender.discard),
            turns.asks.eq(
                Cat(offer.valid & room & (sender.all_left | (offer.payload.epoch == epoch)) for offer in self.offers)
            ),
            turns.taken.eq(1),
            sender.push.eq(turns.has.any()),
        ]
        for number, offer in enumerate(self.offers):
            m.d.comb += offer.ready.eq(turns.has[number])
            with m.If(turns.has[number]):
                m.d.comb += sender.descriptor.eq(offer.payload)
        with m.If(sender.push):
            m.d.sync += epoch.eq(sender.descriptor.epoch)
        gone = Signal()
        m.d.comb += gone.eq(sender.release & self.release_taken)
        with m.If(sender.push != gone):
            m.d.sync += used.eq(Mux(sender.push, used + 1, used - 1))

    def _send(self, m: Module, sender: PortSender) -> None:
        """Read each flit of the sender, and give it to the wire."""
        buffer = FlitBuffer(self._parameters)
        sleeping_submodule(m, "buffer", buffer)
        wiring.connect(m, buffer.tx, wiring.flipped(self.tx))
        chosen = sender.flit
        held = Signal(chosen.shape())
        m.d.comb += [
            sender.room.eq(buffer.room),
            sender.turn.eq(sender.asks),
            buffer.asked.eq(sender.asks),
            self.read.eq(sender.asks & (chosen.kind != FlitKind.OPEN)),
            self.bank.eq(chosen.descriptor.bank),
            self.slot.eq(chosen.descriptor.slot),
            self.place.eq(Mux(chosen.kind == FlitKind.HEADER, HEADER_PLACE, chosen.place)),
            *(
                buffer.flit[name].eq(held[name])
                for name in ("kind", "last", "place", "sequence_number", "session", "attempt")
            ),
        ]
        m.d.sync += buffer.coming.eq(sender.asks)
        with m.If(sender.asks):
            m.d.sync += held.eq(chosen)
        with m.If(held.kind != FlitKind.OPEN), m.Switch(held.descriptor.bank):
            for number, word in enumerate(self.words):
                with m.Case(number):
                    m.d.comb += buffer.flit.data.eq(word)
