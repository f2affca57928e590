"""Buffers in which link packets are assembled, shared in design by the DMA engine and the store packetizer.

The writer fills the open buffer (`slot`) while `room` is high, in any order and as late as it likes, and closes it with
its header; packets leave in the order in which they were closed, each when all of its sectors have arrived.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..geometry import INTERLEAVE_SECTORS
from ..messages import ChannelParameters, Messages


def slot_bits(packets: int) -> int:
    """Width of a packet buffer's number."""
    return (packets - 1).bit_length()


def arrival_layout(packets: int) -> data.StructLayout:
    """One sector for place `index` of buffer `slot`."""
    return data.StructLayout(
        {"valid": unsigned(1), "index": unsigned(3), "slot": unsigned(slot_bits(packets)), "data": unsigned(256)}
    )


def closing_layout(config: ChannelParameters) -> data.StructLayout:
    """Closes the open buffer: its `header` (without `crc`), the `bank` its sectors arrive in, and a `mark` that comes
    back when the packet has left."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "mark": unsigned(1),
            "bank": unsigned((config.channels - 1).bit_length()),
            "header": Messages(config).link_header,
        }
    )


class PacketBuffer(wiring.Component):
    """`packets` buffers of 8 sectors, one memory of them per bank; a packet's sectors all arrive in one bank.

    Ports: `room`, `slot`: a buffer is open and its number, stable until it is closed; `arrivals`: per bank at most one
    sector a cycle, never refused; `closing`: see :func:`closing_layout`, only with `room`; `packets`: header flit, then
    data flits, without bubbles between complete packets; `sent`: last flit taken, `sent_mark` its mark; `empty`.
    Latency: from the cycle of the last arrival or the closing to the header flit 1 cycle. Reset empties all buffers;
    their memories need none, since a buffer is read only when it is closed and all its sectors have arrived.
    """

    def __init__(self, config: ChannelParameters, packets: int, banks: int):
        self._config = config
        self._packets = packets
        self._banks = banks
        self._messages = Messages(config)
        super().__init__(
            {
                "room": Out(1),
                "slot": Out(slot_bits(packets)),
                "arrivals": In(arrival_layout(packets)).array(banks),
                "closing": In(closing_layout(config)),
                "packets": Out(stream.Signature(self._messages.link_flit)),
                "sent": Out(1),
                "sent_mark": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        packets, banks = self._packets, self._banks
        bits = slot_bits(packets)
        places = packets * INTERLEAVE_SECTORS

        closed_layout = closing_layout(self._config)
        m.submodules.headers = headers = Memory(shape=closed_layout, depth=packets, init=[])
        closed_write = headers.write_port()
        closed = headers.read_port(domain="comb")
        reads = []
        for bank in range(banks):
            memory = Memory(shape=unsigned(256), depth=places, init=[])
            m.submodules[f"sectors_{bank}"] = memory
            write = memory.write_port()
            reads.append(memory.read_port())
            arrival = self.arrivals[bank]
            m.d.comb += [
                write.addr.eq(Cat(arrival.index, arrival.slot)),
                write.data.eq(arrival.data),
                write.en.eq(arrival.valid),
            ]

        head = Signal(bits)
        tail = Signal(bits)
        used = Signal(range(packets + 1))
        arrived = Signal(places)
        sending = Signal()
        index = Signal(3)

        m.d.comb += [
            self.room.eq(used != packets),
            self.slot.eq(tail),
            self.empty.eq(used == 0),
            closed_write.addr.eq(tail),
            closed_write.data.eq(self.closing),
            closed_write.en.eq(self.closing.valid),
            closed.addr.eq(head),
        ]

        length = Signal(3)
        whole = Signal(8)
        present = Signal(8)
        complete = Signal()
        last = Signal()
        taken = Signal()
        m.d.comb += [
            length.eq(closed.data.header.length),
            whole.eq((Const(2, 9) << length) - 1),
            present.eq(arrived.word_select(head, 8)),
            complete.eq((used != 0) & ((present & whole) == whole)),
            last.eq(sending & (index == length)),
            taken.eq(self.packets.valid & self.packets.ready),
            self.packets.valid.eq(sending | complete),
            self.packets.payload.header.eq(~sending),
            self.packets.payload.last.eq(last),
            self.sent.eq(taken & last),
            self.sent_mark.eq(closed.data.mark),
        ]

        following = Signal(3)
        m.d.comb += following.eq(Mux(sending, index + 1, 0))
        for bank, read in enumerate(reads):
            m.d.comb += [
                read.addr.eq(Cat(following, head)),
                read.en.eq(taken & ~last & (closed.data.bank == bank)),
            ]
        with m.If(sending):
            with m.Switch(closed.data.bank):
                for bank, read in enumerate(reads):
                    with m.Case(bank):
                        m.d.comb += self.packets.payload.data.eq(read.data)
        with m.Else():
            m.d.comb += self.packets.payload.data.eq(closed.data.header.as_value())

        with m.If(taken):
            m.d.sync += [sending.eq(~last), index.eq(following)]
        with m.If(self.sent):
            m.d.sync += head.eq(head + 1)
        with m.If(self.closing.valid):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.closing.valid != self.sent):
            m.d.sync += used.eq(Mux(self.closing.valid, used + 1, used - 1))

        added = Const(0, places)
        for arrival in self.arrivals:
            place = Cat(arrival.index, arrival.slot)
            added = added | Mux(arrival.valid, (Const(1, 1) << place)[:places], 0)
        removed = Mux(self.sent, (Const(0xFF, 8) << Cat(Const(0, 3), head))[:places], 0)
        with m.If(Cat(arrival.valid for arrival in self.arrivals).any() | self.sent):
            m.d.sync += arrived.eq((arrived & ~removed) | added)
        return m
