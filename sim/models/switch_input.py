"""Input of a switch: where the link of a GPU ends, and its packets wait for the outputs."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.link.flit_crc import flit_crc, flit_is_clean
from hw.link.port_receiver import PortReceiver
from hw.link.port_sender import LinkTimers
from hw.link.turns import Turns
from hw.link.wire import descriptor_layout, header_layout, message_layout
from hw.messages import Messages
from hw.primitives.queue import Queue
from sim.models.link import sent_flit
from sim.models.switch_parameters import SwitchParameters

HEADER_PLACE = 8
"""Of a slot, where the header lies, behind the sectors."""
PLACE_BITS = 4


def slot_read(parameters: SwitchParameters) -> data.StructLayout:
    """What an output reads of a slot: one sector, or the header."""
    return data.StructLayout({"valid": 1, "slot": parameters.slot_bits, "place": PLACE_BITS})


def slot_release(parameters: SwitchParameters) -> data.StructLayout:
    """A slot that an output needs no more."""
    return data.StructLayout({"valid": 1, "slot": parameters.slot_bits})


class SwitchInput(wiring.Component):
    """Takes the packets of GPU `number` whole and in order, as the port of a GPU does, and queues each for its output.

    A packet keeps its slot until its output's peer has acknowledged it. The slots are the credits of the sender: it
    sends on while there is a free one, whatever the outputs are that the others wait for.

    Ports: `timers`; `present`: ports that GPUs are joined to; `arrived`: flits; `granted`, `epoch`, `notice`: what the
    GPU is told; `message`: state message for it, with its CRC; by output `offers`: the oldest packet for it,
    `reads`, `words`: a sector or header of a slot, a cycle later, `releases`, `release_taken`: at most one of them a
    cycle; `stray`: a packet was for nobody, or not as long as it said, and was thrown away (pulse). Latency: last flit
    to `offers` 2 cycles. Rate: one flit a cycle.
    """

    def __init__(self, parameters: SwitchParameters, number: int):
        self._parameters = parameters
        self._number = number
        messages = Messages(parameters)
        ports = parameters.switch_ports
        super().__init__(
            {
                "timers": In(LinkTimers),
                "present": In(ports),
                "arrived": In(sent_flit(parameters)),
                "granted": In(1),
                "epoch": In(messages.epoch),
                "notice": In(messages.epoch),
                "message": Out(message_layout(parameters)),
                "offers": Out(stream.Signature(descriptor_layout(parameters))).array(ports),
                "reads": In(slot_read(parameters)).array(ports),
                "words": Out(messages.sector).array(ports),
                "releases": In(slot_release(parameters)).array(ports),
                "release_taken": Out(ports),
                "stray": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        protected = self._parameters.protects_links
        m.submodules.receiver = receiver = PortReceiver(self._parameters)
        clean = Signal()
        m.d.sync += receiver.valid.eq(self.arrived.valid)
        with m.If(self.arrived.valid):
            m.d.sync += [
                receiver.flit.eq(self.arrived.flit),
                clean.eq(flit_is_clean(self.arrived.flit.as_value()) if protected else 1),
            ]
        state = receiver.message.state
        body = state.as_value()[: state.shape()["crc"].offset]
        m.d.comb += [
            receiver.timers.eq(self.timers),
            receiver.clean.eq(clean),
            receiver.granted.eq(self.granted),
            receiver.epoch.eq(self.epoch),
            receiver.notice.eq(self.notice),
            self.message.valid.eq(receiver.message.valid),
            self.message.state.eq(Cat(body, flit_crc(body)) if protected else state),
        ]
        slot, released = self._slots(m, receiver)
        self._words(m, receiver, slot)
        self._queues(m, receiver, slot)

        due = Signal(range(self._parameters.link_receive_packets + 1))
        """Slots that are free and that the sender was not told of."""
        m.d.comb += receiver.freed.eq(due != 0)
        m.d.sync += due.eq(due + released + self.stray - receiver.freed)
        return m

    def _slots(self, m: Module, receiver: PortReceiver) -> tuple[Signal, Signal]:
        """Give the packet that arrives a slot, and take slots back: the slot, and whether one came back."""
        slots = self._parameters.link_receive_packets
        m.submodules.free = free = Queue(self._parameters.slot_bits, slots)
        m.submodules.returns = returns = Turns(len(self.releases))
        unused = Signal(range(slots + 1))
        """Slots from this one on were never used."""
        fresh = Signal()
        held = Signal(self._parameters.slot_bits)
        slot = Signal(self._parameters.slot_bits)
        holds = Signal()
        m.d.comb += [
            fresh.eq(unused != slots),
            slot.eq(Mux(holds, held, Mux(fresh, unused, free.o.payload))),
            # A header that comes anew finds the slot of the one before.
            free.o.ready.eq(receiver.header & ~holds & ~fresh),
        ]
        with m.If(receiver.header & ~holds):
            m.d.sync += [holds.eq(1), held.eq(slot)]
            with m.If(fresh):
                m.d.sync += unused.eq(unused + 1)
        with m.Elif(receiver.complete & ~self.stray):
            m.d.sync += holds.eq(0)
        m.d.comb += [
            returns.asks.eq(Cat(release.valid for release in self.releases)),
            returns.taken.eq(1),
            self.release_taken.eq(returns.has),
            free.i.valid.eq(returns.has.any()),
        ]
        for number, release in enumerate(self.releases):
            with m.If(returns.has[number]):
                m.d.comb += free.i.payload.eq(release.slot)
        return slot, free.i.valid

    def _words(self, m: Module, receiver: PortReceiver, slot: Signal) -> None:
        """Keep what is in the slots, and let every output read it."""
        words = self._parameters.link_receive_packets << PLACE_BITS
        m.submodules.words = memory = Memory(shape=Messages(self._parameters).sector, depth=words, init=[])
        write = memory.write_port()
        place = Mux(receiver.header, HEADER_PLACE, receiver.place)
        m.d.comb += [
            write.en.eq(receiver.header | receiver.sector),
            write.addr.eq(Cat(place, slot)),
            write.data.eq(receiver.flit.data),
        ]
        for asked, word in zip(self.reads, self.words, strict=True):
            read = memory.read_port()
            m.d.comb += [read.en.eq(asked.valid), read.addr.eq(Cat(asked.place, asked.slot)), word.eq(read.data)]

    def _queues(self, m: Module, receiver: PortReceiver, slot: Signal) -> None:
        """Queue the packet for its output when it is there; nothing but slots bounds a queue."""
        parameters = self._parameters
        layout = header_layout(parameters)
        arriving = layout(receiver.flit.data[: layout.size])
        destination = Signal.like(arriving.destination)
        packet = Signal(descriptor_layout(parameters))
        with m.If(receiver.header):
            m.d.sync += [
                destination.eq(arriving.destination),
                packet.length.eq(arriving.length),
                packet.epoch.eq(arriving.epoch),
            ]
        known = Signal()
        with m.Switch(destination):
            for output in range(parameters.switch_ports):
                with m.Case(output):
                    m.d.comb += known.eq(self.present[output])
        m.d.comb += self.stray.eq(receiver.complete & (~known | (receiver.place != packet.length)))
        for output, offer in enumerate(self.offers):
            m.submodules[f"for_{output}"] = queue = Queue(
                descriptor_layout(parameters), parameters.link_receive_packets
            )
            m.d.comb += [
                queue.i.payload.eq(packet),
                queue.i.payload.slot.eq(slot),
                queue.i.payload.bank.eq(self._number),
                queue.i.valid.eq(receiver.complete & ~self.stray & (destination == output)),
            ]
            wiring.connect(m, queue.o, wiring.flipped(offer))
