"""Reads of the DMA engine: the walkers of the ports take turns, packet by packet, as there are slots for them."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..link.parameters import LinkParameters
from ..link.slot_source import PacketSource
from ..link.wire import routes_layout
from ..messages import Messages
from ..primitives.round_robin import next_in_turn
from .transfer import label_layout, sector_layout


def read_layout(parameters: LinkParameters) -> data.StructLayout:
    """A read of one sector, as of :attr:`hw.messages.Messages.memory_request`."""
    request = Messages(parameters).memory_request
    names = ("traffic_class", "id", "range", "wg", "wf", "epoch", "va")
    return data.StructLayout({name: request[name].shape for name in names})


class PacketReader(wiring.Component):
    """Reads one sector a cycle, for the walker that has the turn.

    A walker has the turn until its packet ends. One that stands at the beginning of a packet for which no slot is to be
    had gives it away, so a port that stands holds up no other.

    Ports, per walker: `sectors`, `labels`: of the transfer that they belong to; `coming_valid`: it begins one in the
    next cycle, whose packets take the routes `coming`. `reads`, per channel: a read's `id` is {slot, place}; `slots`:
    its packets; `step`, `block_ends`: a read is issued, the last one of a block; `waits`: none is, for want of a slot.
    Latency: 0 cycles.
    """

    def __init__(self, config: LinkParameters):
        self._config = config
        walkers = config.links
        label = label_layout(config)
        super().__init__(
            {
                "sectors": In(stream.Signature(sector_layout(config))).array(walkers),
                "labels": In(label).array(walkers),
                "coming_valid": In(walkers),
                "coming": In(routes_layout(config)),
                "reads": Out(stream.Signature(read_layout(config))).array(config.lane_channels),
                "slots": Out(PacketSource(config)),
                "step": Out(1),
                "block_ends": Out(1),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        turn = Signal(range(max(2, config.links)))
        ready = Signal(config.links)
        valid = Signal()
        sector = Signal(sector_layout(config))
        label = Signal(label_layout(config))
        m.d.comb += ready.eq(Cat(port.valid for port in self.sectors))
        self._turns(m, turn, ready, valid, sector)
        with m.Switch(turn):
            for number, port in enumerate(self.sectors):
                with m.Case(number):
                    m.d.comb += [
                        valid.eq(port.valid),
                        sector.eq(port.payload),
                        label.eq(self.labels[number]),
                        port.ready.eq(self.step),
                    ]
        self._read(m, valid, sector, label)
        return m

    def _turns(self, m: Module, turn: Signal, ready: Signal, valid: Signal, sector: Signal) -> None:
        """Say who has the turn next, and ask for room for it."""
        gives = Signal()
        following = Signal.like(turn)
        m.d.comb += [
            gives.eq(~valid | (self.step & sector.packet_end) | self._stands(sector.place)),
            following.eq(turn),
        ]
        with m.If(gives):
            # One that begins is asked for at once, when no other has anything to read.
            next_in_turn(m, "comb", following, self.coming_valid, turn)
            next_in_turn(m, "comb", following, ready, turn, again=False)
        m.d.sync += turn.eq(following)
        routes = []
        for number in range(self._config.links):
            kept = Signal(routes_layout(self._config), name=f"kept_{number}")
            own = Signal(routes_layout(self._config), name=f"routes_{number}")
            m.d.comb += own.eq(Mux(self.coming_valid[number], self.coming, kept))
            m.d.sync += kept.eq(own)
            routes.append(own)
        with m.Switch(following):
            for number, own in enumerate(routes):
                with m.Case(number):
                    m.d.comb += self.slots.upcoming.eq(own)

    def _stands(self, place: Value) -> Value:
        """Whether a walker that can have no slot stands at the beginning of a packet."""
        return ~self.slots.room & (place == 0)

    def _read(self, m: Module, valid: Signal, sector: Signal, label: Signal) -> None:
        """Read the sector; with the last one of a packet, close its slot."""
        config, slots = self._config, self.slots
        channel = Signal(config.lane_channel_bits)
        read = Signal(read_layout(config))
        m.d.comb += [
            channel.eq(sector.va[3 : 3 + config.lane_channel_bits]),
            *(read[name].eq(label[name]) for name in ("traffic_class", "range", "wg", "epoch")),
            read.id.eq(Cat(sector.place, slots.slot)),
            read.wf.eq(sector.tile),
            read.va.eq(sector.va),
            self.waits.eq(valid & ~slots.room),
            self.block_ends.eq(self.step & sector.end),
        ]
        for number, port in enumerate(self.reads):
            m.d.comb += [port.valid.eq(valid & slots.room & (channel == number)), port.payload.eq(read)]
            with m.If(channel == number):
                m.d.comb += self.step.eq(port.valid & port.ready)
        packet = slots.packet
        m.d.comb += [
            slots.bank.eq(channel),
            slots.close.eq(self.step & sector.packet_end),
            # A packet does not cross a boundary of 8 sectors, so nothing is borrowed beyond it.
            packet.va.eq(Cat((sector.va - sector.place)[:3], sector.va[3:])),
            packet.wf.eq(sector.tile),
            packet.length.eq(sector.place),
            packet.mask.eq(sector.mask),
            packet.mark.eq(sector.end),
            *(packet[name].eq(label[name]) for name in ("wg", "epoch", "first", "count")),
        ]
