"""Sending side of one link port: arbitration between packets, credits, epoch grants, header check."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..primitives.round_robin import next_in_turn
from .header_crc import header_bits, header_crc
from .parameters import LinkParameters


class Transmitter(wiring.Component):
    """Sends whole packets of `sources` sources over one link, least recently served first.

    A packet starts only with a credit (a free packet buffer at the receiver; `link_receive_packets` at reset) and when
    the peer's last grant is for the epoch of its header, so nothing reaches a neighbour that is not armed. A packet
    that has not started and is not of the armed epoch is discarded, a flit a cycle, without credit, grant or the link:
    so an aborted epoch drains though its neighbour takes nothing.

    Ports: `armed`, `epoch`: the armed epoch; `sources`: header flit, then data flits; `tx`: the same with `crc`
    filled in; `control`: credits and grants from the receiver; `no_credit`, `no_grant`: a packet waits for that;
    `sent_flit`, `sent_packet`: taken by the link; `discarded`: how many packets were, this cycle; `idle`; `wake`: see
    :mod:`hw.primitives.clock_enable`. Latency 2 cycles, one flit a cycle, no bubble between packets. `ready` of a
    source depends on `tx.ready`.
    """

    def __init__(self, config: LinkParameters, sources: int = 2):
        self._config = config
        self._sources = sources
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "armed": In(1),
                "epoch": In(messages.epoch),
                "sources": In(stream.Signature(messages.link_flit)).array(sources),
                "tx": Out(stream.Signature(messages.link_flit)),
                "control": In(messages.link_control),
                "no_credit": Out(1),
                "no_grant": Out(1),
                "sent_flit": Out(1),
                "sent_packet": Out(1),
                "discarded": Out(range(sources + 1)),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        messages = self._messages
        count = self._sources
        buffers = self._config.link_receive_packets

        credits = Signal(range(buffers + 1), init=buffers)
        granted = Signal()
        grant_epoch = Signal(messages.epoch)
        with m.If(self.control.grant):
            m.d.sync += [granted.eq(1), grant_epoch.eq(self.control.epoch)]

        waiting = Signal(count)
        allowed = Signal(count)
        discard = Signal(count)
        discarding = Signal(count)
        ends = Signal(count)
        for index, source in enumerate(self.sources):
            epoch = messages.link_header(source.payload.data[: messages.link_header.size]).epoch
            ended = source.payload.header & ~(self.armed & (epoch == self.epoch))
            m.d.comb += [
                waiting[index].eq(source.valid),
                discard[index].eq(source.valid & (discarding[index] | ended)),
                ends[index].eq(discard[index] & source.payload.last),
                allowed[index].eq(source.valid & granted & (epoch == grant_epoch) & ~discard[index]),
            ]
        m.d.sync += discarding.eq((discarding | discard) & ~ends)
        m.d.comb += self.discarded.eq(sum(ends))

        sending = Signal()
        owner = Signal(range(count))
        chosen = Signal(range(count))
        m.d.comb += chosen.eq(owner)
        with m.If(~sending):
            next_in_turn(m, "comb", chosen, allowed, owner)

        # Two registers: the flit as it was chosen, then with its check, so that neither stage is long.
        first = Signal(messages.link_flit)
        first_valid = Signal()
        second = Signal(messages.link_flit)
        second_valid = Signal()
        move_first = Signal()
        move_second = Signal()
        offer = Signal()
        take = Signal()
        m.d.comb += [
            move_second.eq(~second_valid | self.tx.ready),
            move_first.eq(~first_valid | move_second),
            offer.eq(Mux(sending, waiting.bit_select(owner, 1), allowed.any() & (credits != 0))),
            take.eq(offer & move_first),
        ]
        with m.Switch(chosen):
            for index, source in enumerate(self.sources):
                with m.Case(index):
                    m.d.comb += source.ready.eq(take)
                    with m.If(take):
                        m.d.sync += [first.eq(source.payload), sending.eq(~source.payload.last), owner.eq(index)]
        with m.If(move_first):
            m.d.sync += first_valid.eq(offer)
        with m.If(move_second):
            m.d.sync += second_valid.eq(first_valid)
            with m.If(first_valid):
                m.d.sync += second.eq(first)
                with m.If(first.header):
                    bits = header_bits(messages)
                    message = first.data[:bits]
                    m.d.sync += second.data.eq(Cat(message, header_crc(message)))

        for index, source in enumerate(self.sources):
            with m.If(discard[index]):
                m.d.comb += source.ready.eq(1)

        start = Signal()
        m.d.comb += start.eq(take & ~sending)
        with m.If(self.control.credit != start):
            m.d.sync += credits.eq(Mux(start, credits - 1, credits + 1))

        m.d.comb += [
            self.tx.payload.eq(second),
            self.tx.valid.eq(second_valid),
            self.no_credit.eq(~sending & allowed.any() & (credits == 0)),
            self.no_grant.eq(~sending & (waiting & ~allowed & ~discard).any()),
            self.sent_flit.eq(second_valid & self.tx.ready),
            self.sent_packet.eq(self.sent_flit & second.last),
            self.wake.eq(waiting.any() | first_valid | second_valid | self.control.credit | self.control.grant),
            self.idle.eq(~sending & ~first_valid & ~second_valid & ~waiting.any() & ~discarding.any()),
        ]
        return m
