"""Reads of the DMA engine: the walkers of the ports take turns, packet by packet, as there are slots for them."""

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..link.parameters import LinkParameters
from ..link.slot_source import PacketSource
from ..link.wire import sends_layout
from ..messages import Access, Messages, Source
from ..primitives.round_robin import next_in_turn
from .transfer import label_layout, sector_layout


class PacketReader(wiring.Component):
    """Reads one sector a cycle, for the walker that has the turn.

    A walker has the turn until its packet ends. One that stands at the beginning of a packet for which no slot is to be
    had gives it away, so a port that stands holds up no other.

    Ports, per walker: `sectors`, `labels`: of the transfer that they belong to; `coming_valid`: it begins `coming`, a
    transfer, in the next cycle. `reads`, per channel: a read's `id` is {slot, place}; `slots`: its packets;
    `step`, `block_ends`: a read is issued, the last one of a block; `waits`: none is, for want of a slot. Latency: 0
    cycles; a turn costs a cycle when sends other than those of the packet before are asked for.
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
                "coming": In(label),
                "reads": Out(stream.Signature(Messages(config).memory_request)).array(config.lane_channels),
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
        room = self._turns(m, turn, ready, valid, sector, label)
        with m.Switch(turn):
            for number, port in enumerate(self.sectors):
                with m.Case(number):
                    m.d.comb += [
                        valid.eq(port.valid),
                        sector.eq(port.payload),
                        label.eq(self.labels[number]),
                        port.ready.eq(self.step),
                    ]
        self._read(m, valid, room, sector, label)
        return m

    def _turns(self, m: Module, turn: Signal, ready: Signal, valid: Signal, sector: Signal, label: Signal) -> Signal:
        """Say who has the turn next, and ask for room for it; returns whether there is for the one that has it now."""
        asked = Signal(sends_layout(self._config))
        known = Signal()
        room = Signal()
        gives = Signal()
        following = Signal.like(turn)
        upcoming = self.slots.upcoming
        m.d.comb += [
            known.eq((asked.first == label.first) & (asked.count == label.count)),
            room.eq(known & self.slots.room),
            gives.eq(~valid | (self.step & sector.packet_end) | self._stands(known, room, sector.place)),
            following.eq(turn),
        ]
        with m.If(gives):
            # One that begins is asked for at once, when no other has anything to read.
            next_in_turn(m, "comb", following, self.coming_valid, turn)
            next_in_turn(m, "comb", following, ready, turn, again=False)
        m.d.sync += [turn.eq(following), asked.eq(upcoming)]
        with m.Switch(following):
            for number, own in enumerate(self.labels):
                with m.Case(number):
                    m.d.comb += [upcoming.first.eq(own.first), upcoming.count.eq(own.count)]
                    with m.If(self.coming_valid[number]):
                        m.d.comb += [upcoming.first.eq(self.coming.first), upcoming.count.eq(self.coming.count)]
        return room

    def _stands(self, known: Value, room: Value, place: Value) -> Value:
        """Whether a walker stands at the beginning of a packet."""
        return known & ~room & (place == 0)

    def _read(self, m: Module, valid: Signal, room: Signal, sector: Signal, label: Signal) -> None:
        """Read the sector; with the last one of a packet, close its slot."""
        config, slots = self._config, self.slots
        channel = Signal(config.lane_channel_bits)
        request = Signal(Messages(config).memory_request)
        m.d.comb += [
            channel.eq(sector.va[3 : 3 + config.lane_channel_bits]),
            request.access.eq(Access.READ),
            request.traffic_class.eq(label.traffic_class),
            request.source.eq(Source.DMA),
            request.id.eq(Cat(sector.place, slots.slot)),
            request.range.eq(label.range),
            request.wg.eq(label.wg),
            request.wf.eq(sector.tile),
            request.epoch.eq(label.epoch),
            request.va.eq(sector.va),
            request.mask.eq(Const(0xFFFFFFFF, 32)),
            self.waits.eq(valid & ~room),
            self.block_ends.eq(self.step & sector.end),
        ]
        for number, port in enumerate(self.reads):
            m.d.comb += [port.valid.eq(valid & room & (channel == number)), port.payload.eq(request)]
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
