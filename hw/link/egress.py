"""Egress of a lane: packets of the DMA engine and of merged stores, kept in slots, sent through ports that take turns.

A closed packet whose sectors are all there is issued: one descriptor for each of its sends goes to the queue of that
send's port. Ports take turns at the slots' read port flit by flit, and only one that can send asks for a turn, so no
port waits for another.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from ..messages import Messages
from ..primitives.clock_enable import sleeping_submodule
from ..send_table import WG_OFFSET_BITS, send_write
from .flit_buffer import FlitBuffer
from .issue import PacketIssue
from .parameters import LinkParameters
from .port_sender import LinkTimers, PortSender, chosen_flit
from .send_routes import existing_sends
from .send_table import SendTable
from .slot_bank import SlotBank
from .slot_source import PacketSource
from .turns import Turns
from .wire import (
    FlitKind,
    arrival_layout,
    descriptor_layout,
    flit_layout,
    header_layout,
    message_layout,
    packet_layout,
    routes_layout,
)

DMA, STORES = 0, 1
"""Sources of packets."""


SentEvents = data.StructLayout(
    dict.fromkeys(
        ("flits", "packets", "left", "again", "no_credit", "no_grant", "cut", "dead", "up", "all_left", "empty"),
        unsigned(1),
    )
)
"""What the sending side of a port did this cycle: `flits`, `packets`: taken by the wire (sent again or not); `left`: a
packet was sent to its end for the first time; `again`:
went back to what was not acknowledged; `no_credit`, `no_grant`: its next packet waits for that; `cut`: a session ended;
`dead`: the peer answers nothing; `up`: in a session; `all_left`: the wire has taken every packet once; `empty`: no
descriptor is left."""


class Egress(wiring.Component):
    """Slots, send table, and the senders of all ports.

    Ports: `sends`: programming bus of the send table, quiet unless `empty`; `timers`; `rank`: source of all packets;
    `discard`: take out what was never sent; `give_up`: see :class:`hw.link.port_sender.PortSender`; `sources`: DMA
    engine and stores, whose bank is always the last one; `arrivals`: sectors for each bank; `tx`: flits with CRC, per
    port; `messages`: checked state messages, per port; `events`, per port; `heard`: numbers of epochs that the peers
    have aborted, 0: none; `port_of`: port of each send; `block_sent`: a send of a packet with `mark` goes to its wire,
    not again; `discarded`: a send of a packet was discarded; `all_left`: the wires have taken every closed packet once;
    `empty`: no slot is in use; with protection of memories `sends_wrong`, a pulse: see `wrong` of
    :class:`hw.link.send_table.SendTable`, and `queues_wrong`: what is kept of a packet but its data was used with a
    wrong bit. A `count` of 0 acts as 1; sends and ports that do not exist act as the first ones.

    Rate: one flit a cycle for all ports together, without bubbles between packets; a port alone has all of them with
    three `output_flits`, two in three cycles with two. Latency: with the last sector of a packet, or the close of one
    of stores, in cycle c its header is at `tx` in c + 5; with the close of one of the DMA engine, in c + 6.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        links = parameters.links
        super().__init__(
            {
                "sends": In(send_write(parameters)),
                "timers": In(LinkTimers),
                "rank": In(6),
                "discard": In(1),
                "give_up": In(1),
                "sources": In(PacketSource(parameters)).array(2),
                "arrivals": In(arrival_layout(parameters)).array(parameters.slot_banks),
                "tx": Out(stream.Signature(flit_layout(parameters))).array(links),
                "messages": In(message_layout(parameters)).array(links),
                "events": Out(SentEvents).array(links),
                "heard": Out(Messages(parameters).epoch).array(links),
                "port_of": Out(4).array(parameters.sends),
                "block_sent": Out(1),
                "discarded": Out(1),
                "all_left": Out(1),
                "empty": Out(1),
                **({"sends_wrong": Out(1), "queues_wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.sends = table = SendTable(parameters)
        m.d.comb += [
            table.write.eq(self.sends),
            *(port.eq(known) for port, known in zip(self.port_of, table.port_of, strict=True)),
        ]
        banks = []
        for number in range(parameters.slot_banks):
            bank = SlotBank(parameters, number)
            m.submodules[f"bank_{number}"] = bank
            m.d.comb += bank.arrival.eq(self.arrivals[number])
            banks.append(bank)
        senders, buffers = [], []
        for port in range(parameters.links):
            sender, buffer = PortSender(parameters), FlitBuffer(parameters)
            m.submodules[f"sender_{port}"] = sender
            sleeping_submodule(m, f"buffer_{port}", buffer)
            m.d.comb += [
                sender.timers.eq(self.timers),
                sender.message.eq(self.messages[port]),
                sender.discard.eq(self.discard),
                sender.give_up.eq(self.give_up),
                self.heard[port].eq(sender.heard),
            ]
            connect(m, buffer.tx, wiring.flipped(self.tx[port]))
            self._events(m, port, sender, buffer)
            senders.append(sender)
            buffers.append(buffer)
        issues = self._fill(m, table, banks, senders)
        self._send(m, table, banks, senders, buffers)
        self._release(m, banks, senders)
        m.d.comb += [
            self.empty.eq(Cat(bank.empty for bank in banks).all()),
            self.block_sent.eq(Cat(sender.block_leaves for sender in senders).any()),
        ]
        if parameters.protects_memories:
            closes = Cat(source.close for source in self.sources).any()
            wrong = [bank.queues_wrong for bank in banks]
            wrong += [issue.queue_wrong for issue in issues] + [sender.queue_wrong for sender in senders]
            m.d.comb += [
                table.routes.eq(~self.empty | closes),
                self.sends_wrong.eq(table.wrong),
                self.queues_wrong.eq(Cat(wrong).any()),
            ]
        return m

    def _events(self, m: Module, port: int, sender: PortSender, buffer: FlitBuffer) -> None:
        tx, events = self.tx[port], self.events[port]
        taken = tx.valid & tx.ready
        m.d.comb += [
            events.flits.eq(taken),
            events.packets.eq(taken & tx.payload.last),
            events.all_left.eq(sender.all_left & buffer.empty),
            *(
                events[name].eq(getattr(sender, name))
                for name in ("left", "again", "no_credit", "no_grant", "cut", "dead", "up", "empty")
            ),
        ]

    def _fill(self, m: Module, table: SendTable, banks: list[SlotBank], senders: list[PortSender]) -> list[PacketIssue]:
        """Give slots to the sources, and issue their closed packets, by what is returned."""
        parameters = self._parameters
        issues = []
        prefer = Signal()
        wants = Signal(2)
        fires = Signal(2)
        m.d.comb += [
            fires[DMA].eq(wants[DMA] & ~(wants[STORES] & prefer)),
            fires[STORES].eq(wants[STORES] & ~(wants[DMA] & ~prefer)),
        ]
        with m.If(fires.any()):
            m.d.sync += prefer.eq(fires[DMA])
        for number, source in enumerate(self.sources):
            own = banks[:-1] if number == DMA else banks[-1:]
            base = 0 if number == DMA else parameters.slot_banks - 1
            packet = Signal(packet_layout(parameters), name=f"packet_{number}")
            m.d.comb += [packet.eq(source.packet), packet.count.eq(existing_sends(parameters, source.packet.count))]
            # What may be had of slots is looked up for these.
            routes = Signal(routes_layout(parameters), name=f"routes_{number}")
            m.d.sync += routes.eq(source.upcoming)
            issue = PacketIssue(parameters, sum(parameters.packet_slots[base : base + len(own)]), asks=number == DMA)
            m.submodules[f"issue_{number}"] = issue
            m.d.comb += [
                issue.close.eq(source.close),
                issue.closed.bank.eq(base + source.bank if number == DMA else base),
                issue.closed.slot.eq(source.slot),
                *(issue.closed[name].eq(packet[name]) for name in ("length", "epoch", "mark", "first", "count")),
                *(port.eq(known) for port, known in zip(issue.port_of, table.port_of, strict=True)),
                wants[number].eq(issue.valid),
                issue.taken.eq(fires[number]),
            ]
            for index, bank in enumerate(own):
                here = (source.bank == index) if number == DMA else 1
                m.d.comb += [
                    bank.routes.eq(routes),
                    bank.packet.eq(packet),
                    bank.close.eq(source.close & here),
                ]
                with m.If(here):
                    m.d.comb += [source.room.eq(bank.room), source.slot.eq(bank.slot)]
                if number == DMA:
                    asked = issue.asked.bank == base + index
                    m.d.comb += [
                        bank.asked.eq(issue.asked.slot),
                        bank.asked_length.eq(issue.asked.length),
                        bank.forget.eq(issue.forget & asked),
                    ]
                    with m.If(asked):
                        m.d.comb += issue.whole.eq(bank.whole)
            issues.append(issue)
        # A packet that closes is seen in `idle` a cycle later; its source is not idle before.
        m.d.comb += self.all_left.eq(
            Cat(*(issue.idle for issue in issues), *(event.all_left for event in self.events)).all()
        )
        for port, sender in enumerate(senders):
            m.d.comb += [
                sender.push.eq(Cat(issue.taken & (issue.port == port) for issue in issues).any()),
                sender.descriptor.eq(Mux(fires[STORES], issues[STORES].descriptor, issues[DMA].descriptor)),
            ]
        return issues

    def _send(
        self,
        m: Module,
        table: SendTable,
        banks: list[SlotBank],
        senders: list[PortSender],
        buffers: list[FlitBuffer],
    ) -> None:
        """Read the flit of the port that has the turn; two cycles later it goes to that port's buffer, a header with
        the sum of its address."""
        parameters = self._parameters
        m.submodules.turns = turns = Turns(len(senders))
        chosen = Signal(chosen_flit(parameters))
        reads = Signal()
        m.d.comb += [
            turns.asks.eq(Cat(sender.asks for sender in senders)),
            turns.taken.eq(1),
            reads.eq(turns.asks.any()),
            table.read.eq(reads),
            table.index.eq(chosen.descriptor.send),
        ]
        for port, sender in enumerate(senders):
            m.d.comb += [
                sender.turn.eq(turns.has[port]),
                sender.room.eq(buffers[port].room),
                buffers[port].asked.eq(turns.has[port]),
            ]
            with m.If(turns.has[port]):
                m.d.comb += chosen.eq(sender.flit)
        for number, bank in enumerate(banks):
            m.d.comb += [
                bank.read.eq(reads & (chosen.descriptor.bank == number)),
                bank.read_slot.eq(chosen.descriptor.slot),
                bank.read_place.eq(chosen.place),
            ]
            if parameters.protects_memories:
                # OPEN is of no packet, and may come before any.
                m.d.comb += bank.uses.eq(chosen.kind == FlitKind.HEADER)

        read = Signal(chosen_flit(parameters))
        target = Signal(len(senders))
        m.d.sync += [read.eq(chosen), target.eq(turns.has)]
        fetched = data.StructLayout({"sector": Messages(parameters).sector, "attributes": packet_layout(parameters)})
        found = Signal(fetched)
        with m.Switch(read.descriptor.bank):
            for number, bank in enumerate(banks):
                with m.Case(number):
                    m.d.comb += [found.sector.eq(bank.sector), found.attributes.eq(bank.attributes)]

        flit = Signal(chosen_flit(parameters))
        owner = Signal(len(senders))
        held = Signal(fetched)
        send = Signal(table.send.shape())
        m.d.sync += [flit.eq(read), owner.eq(target), held.eq(found), send.eq(table.send)]
        attributes = held.attributes
        header = Signal(header_layout(parameters))
        m.d.comb += [
            header.va.eq(attributes.va + send.offset),
            header.wg.eq((attributes.wg + send.wg_offset)[:WG_OFFSET_BITS]),
            *(header[name].eq(attributes[name]) for name in ("wf", "epoch", "length", "mask")),
            *(header[name].eq(send[name]) for name in ("access", "alu", "dtype", "traffic_class")),
            header.source.eq(self.rank),
            header.destination.eq(send.peer),
        ]
        for port, buffer in enumerate(buffers):
            out = buffer.flit
            m.d.comb += [
                buffer.coming.eq(owner[port]),
                *(
                    out[name].eq(flit[name])
                    for name in ("kind", "last", "place", "sequence_number", "session", "attempt")
                ),
            ]
            # OPEN has none.
            with m.If(flit.kind == FlitKind.HEADER):
                m.d.comb += out.data.eq(header)
            with m.Elif(flit.kind == FlitKind.DATA):
                m.d.comb += out.data.eq(held.sector)

    def _release(self, m: Module, banks: list[SlotBank], senders: list[PortSender]) -> None:
        """Take one descriptor a cycle that is over, ports taking turns; a cycle later its slot knows."""
        m.submodules.releases = turns = Turns(len(senders))
        valid = Signal()
        over = Signal(descriptor_layout(self._parameters))
        unsent = Signal()
        port = Signal(range(max(2, len(senders))))
        m.d.comb += [turns.asks.eq(Cat(sender.release for sender in senders)), turns.taken.eq(1)]
        m.d.sync += valid.eq(turns.asks.any())
        for number, sender in enumerate(senders):
            m.d.comb += sender.release_taken.eq(turns.has[number])
            with m.If(turns.has[number]):
                m.d.sync += [over.eq(sender.released), unsent.eq(sender.unsent), port.eq(number)]
        for number, bank in enumerate(banks):
            here = Signal(name=f"release_{number}")
            m.d.comb += [
                here.eq(valid & (over.bank == number)),
                bank.release.eq(here),
                bank.release_slot.eq(over.slot),
                bank.release_port.eq(port),
            ]
        m.d.comb += self.discarded.eq(valid & unsent)
