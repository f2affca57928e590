"""Proof of the packet buffers shared in design by the DMA engine and the store packetizer."""

from amaranth import Cat, Const, Mux, Signal, Value
from hw.link.packet_buffer import PacketBuffer, closing_layout

from hw.config import INTERLEAVE_SECTORS, Configuration
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

PACKETS = 4
BANKS = 2
PLACES = PACKETS * INTERLEAVE_SECTORS


def _one(valid: Value, place: Value) -> Value:
    return Mux(valid, (Const(1, 1) << place)[:PLACES], 0)[:PLACES]


@proof(
    block="packet_buffer",
    claim="no buffer is given away while in use; packets leave in the order in which they were closed, each when all "
    "of its sectors have arrived and not before, with its own header, its own sectors in order and its mark; a flit "
    "stays until it is taken",
    scope="4 buffers, 2 banks; any sector of any packet; sectors arrive once each, in their packet's bank, only while "
    "their buffer is in use",
    bug="complete stuck at 1: a packet leaves before its sectors have arrived",
    bug_depth=6,
    cover_depth=12,
    depth=1,
)
def packet_buffer(b: Bench) -> None:
    m = b.m
    config = Configuration(channels=BANKS)
    dut = PacketBuffer(config, PACKETS, BANKS)
    block = b.open_block(dut, stuck={"complete": 1})
    layout = closing_layout(config)
    closing = dut.closing

    # Ring of buffers: how many are closed, which is open, which leaves next.
    used = Signal(range(PACKETS + 1))
    first, last = Signal(2), Signal(2)
    m.d.sync += used.eq(used + closing.valid - dut.sent)
    with m.If(closing.valid):
        m.d.sync += last.eq(last + 1)
    with m.If(dut.sent):
        m.d.sync += first.eq(first + 1)
    b.assume(implies(closing.valid, dut.room))
    b.claim(dut.room == (used != PACKETS))
    b.claim(implies(dut.room, dut.slot == last))
    b.claim(dut.empty == (used == 0))
    b.claim(implies(dut.sent, used != 0))

    def in_use(slot: Value) -> Value:
        """The buffer is closed and has not left, or it is the open one."""
        return ((slot - first)[:2] < used) | ((slot == last) & (used != PACKETS))

    # Sectors that have arrived; lengths of the closed packets.
    arrived = Signal(PLACES)
    lengths = [Signal(3, name=f"length_{slot}") for slot in range(PACKETS)]
    now = [_one(arrival.valid, Cat(arrival.index, arrival.slot)) for arrival in dut.arrivals]
    b.assume((now[0] & now[1]) == 0)
    b.assume(((now[0] | now[1]) & arrived) == 0)
    left = Mux(dut.sent, Const(0xFF, PLACES) << Cat(Const(0, 3), first), 0)[:PLACES]
    m.d.sync += arrived.eq((arrived | now[0] | now[1]) & ~left)

    def whole(length: Value) -> Value:
        return ((Const(2, 9) << length) - 1)[:8]

    leaving = Signal(3)
    complete = Signal()
    for slot in range(PACKETS):
        closes = closing.valid & (last == slot)
        with m.If(closes):
            m.d.sync += lengths[slot].eq(closing.header.length)
        with m.If(first == slot):
            m.d.comb += leaving.eq(lengths[slot])
            m.d.comb += complete.eq((used != 0) & ((arrived.word_select(slot, 8) & whole(leaving)) == whole(leaving)))
        came = arrived.word_select(slot, 8) | (now[0] | now[1]).word_select(slot, 8)
        open_now = (last == slot) & (used != PACKETS)
        b.assume(implies(~in_use(Const(slot, 2)), ((now[0] | now[1]).word_select(slot, 8)) == 0))
        length = Mux(open_now, closing.header.length, lengths[slot])
        b.assume(implies(closes | ~open_now, (came & ~whole(length)) == 0))

    # One arbitrary place: what was written to it for the packet that is there now, and the packet's header.
    slot, index = b.any_const(2, "slot"), b.any_const(3, "index")
    place = Cat(index, slot)
    sector, bank, closed = Signal(256), Signal(1), Signal(layout)
    for number, arrival in enumerate(dut.arrivals):
        with m.If(arrival.valid & (Cat(arrival.index, arrival.slot) == place)):
            m.d.sync += [sector.eq(arrival.data), bank.eq(number)]
            b.assume(
                implies((slot != last) | (used == PACKETS), closed.bank == number)
                & implies(closing.valid & (slot == last), closing.bank == number)
            )
    with m.If(closing.valid & (slot == last)):
        m.d.sync += closed.eq(closing)
        b.assume(implies(arrived.bit_select(place, 1), closing.bank == bank))
    here = (slot == first) & (used != 0)
    inside, at = Signal(), Signal(3)
    flit = dut.packets.payload
    taken = dut.packets.valid & dut.packets.ready
    with m.If(taken):
        m.d.sync += [inside.eq(~flit.last), at.eq(Mux(inside, at + 1, 0))]
    b.claim(dut.packets.valid == complete)
    b.claim(implies(dut.packets.valid, flit.header == ~inside))
    b.claim(implies(dut.packets.valid, flit.last == (inside & (at == leaving))))
    b.claim(implies(dut.packets.valid & here & ~inside, flit.data == closed.header.as_value()))
    b.claim(implies(dut.packets.valid & here & inside & (at == index), flit.data == sector))
    b.claim(dut.sent == (taken & flit.last))
    b.claim(implies(dut.sent & here, dut.sent_mark == closed.mark))

    b.invariant(block.signal("used") == used)
    b.invariant((block.signal("head") == first) & (block.signal("tail") == last))
    b.invariant((last - first)[:2] == used[:2])
    b.invariant(used <= PACKETS)
    b.invariant(block.signal("arrived") == arrived)
    b.invariant((block.signal("sending") == inside) & implies(inside, block.signal("index") == at))
    b.invariant(implies(inside, complete & (at <= leaving)))
    waits = (slot - first)[:2] < used
    header_word = layout(block.word("headers", slot))
    for number in range(PACKETS):
        there = Const(number, 2)
        b.invariant(implies(~in_use(there), arrived.word_select(number, 8) == 0))
        is_closed = (there - first)[:2] < used
        b.invariant(implies(is_closed, (arrived.word_select(number, 8) & ~whole(lengths[number])) == 0))
        b.invariant(implies(is_closed, layout(block.word("headers", there)).header.length == lengths[number]))
    b.invariant(implies(waits, header_word.as_value() == closed.as_value()))
    has = arrived.bit_select(place, 1)
    for number in range(BANKS):
        word = block.word(f"sectors_{number}", place)
        b.invariant(implies(has & (bank == number), word == sector))
        read = block.read_data(f"sectors_{number}")
        b.invariant(implies(inside & here & (at == index) & (closed.bank == number), read == sector))
    b.invariant(implies(has & waits, closed.bank == bank))
    b.cover(dut.sent & b.past(taken & inside, "before") & (used == 3))
    b.cover((used == PACKETS) & complete)
