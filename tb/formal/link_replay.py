"""Proof of a link's transport: sender and receiver of a port over a wire that keeps to nothing.

The wire is not built but assumed: in every cycle it may deliver anything that was ever sent in the session and is not
too old for its sequence number, or nothing, or a flit that is not clean. That covers losses, repetitions, reordering
and errors during a replay of any length. The CRC of a flit is the solver's choice (`clean`); what it finds is
enumerated by `python -m tb.flit_crc_sweep`.
"""

from amaranth import Signal, Value

from hw.link.port_receiver import PortReceiver
from hw.link.port_sender import PortSender, PortState
from hw.link.wire import FlitKind, descriptor_layout
from tb.formal.bench import Bench, implies
from tb.formal.link_sizes import FewSends
from tb.formal.proof import proof

BITS = 4
DEPTH = 4
BUFFERS = 2
LATE = 1 << (BITS - 1)
PARAMETERS = FewSends(
    epoch_bits=4,
    links=1,
    dma_packets=1,
    store_packets=1,
    link_receive_packets=BUFFERS,
    link_sequence_bits=BITS,
    link_repeat=1,
)
assert PARAMETERS.port_queue_depth == DEPTH


@proof(
    block="link_port",
    claim="every packet of a session is accepted exactly once, in order, with all its sectors at their places, unless "
    "it is discarded, and then it was never sent; acknowledged packets were accepted and each is released once; never "
    "more packets are under way than the peer has buffers; a packet is begun only in the granted epoch and never while "
    "packets are discarded",
    scope="a queue of 4 places, 2 buffers, sequence numbers of 4 bits; a wire that loses, damages, doubles and "
    "reorders anything, late by at most half the sequence numbers; from the session's beginning to its end",
    bug="the receiver takes the packet behind the expected one for the expected one (ahead stuck at 0)",
    bug_depth=22,
    cover_depth=22,
    depth=1,
)
def link_exactly_once(b: Bench) -> None:
    m = b.m
    sender, receiver = PortSender(PARAMETERS), PortReceiver(PARAMETERS)
    tx = b.block(sender, "sender")
    rx = b.block(receiver, "receiver", stuck={"ahead": 0})
    b.free(sender.push, sender.descriptor, sender.message, sender.discard, sender.turn, sender.room)
    b.free(sender.release_taken, receiver.valid, receiver.clean, receiver.flit, receiver.granted, receiver.epoch)
    b.free(receiver.freed)
    for part in (sender, receiver):
        m.d.comb += [part.timers.silence.eq(1), part.timers.retry.eq(3), part.timers.dead.eq(1 << 20)]

    state, session = tx.signal("state"), tx.signal("session")
    written, next_place = tx.signal("queue.written"), tx.signal("queue.next_place")
    acknowledged, released = tx.signal("queue.acknowledged"), tx.signal("queue.oldest")
    left = tx.signal("queue.left")
    queue = tx.component("queue")
    sent = queue.sent
    expected, freed = rx.signal("expected"), rx.signal("freed")
    heard_session, opening = rx.signal("session"), rx.signal("opening")
    up = sender.up

    def distance(value: Value) -> Value:
        """How far ahead of the oldest place in the queue."""
        return (value - released)[:BITS]

    # The surroundings: places for what is pushed, turns for who asks, buffers that are given back once.
    b.assume(implies(sender.push, distance(written) != DEPTH))
    b.assume(implies(sender.turn, sender.asks))
    b.assume(implies(sender.release_taken, sender.release))
    b.assume(implies(receiver.freed, expected != freed))
    b.assume(~sender.cut)

    # The wire forward: packets of the session that were sent, and the request to open it.
    flit, arrives = receiver.flit, Signal()
    packet = flit.kind != FlitKind.OPEN
    m.d.comb += arrives.eq(receiver.valid & receiver.clean)
    behind, ahead = (expected - flit.sequence_number)[:BITS], (flit.sequence_number - expected)[:BITS]
    was_sent = (behind != 0) & (behind <= LATE) | (ahead < (sent - expected)[:BITS])
    b.assume(implies(arrives, flit.kind.as_value() != 3))
    b.assume(implies(arrives, flit.session == session))
    b.assume(implies(arrives & packet, up & was_sent))
    # The last flit of a packet arrives only if it was sent.
    ended = (behind != 0) | (ahead < (left - expected)[:BITS])
    b.assume(implies(arrives & packet & flit.last, ended & (flit.kind == FlitKind.DATA)))
    b.assume(implies(arrives & (flit.kind == FlitKind.DATA) & (flit.place == 7), flit.last))
    b.assume(implies(arrives & ~packet, up | ((state == PortState.OPENING) & (flit.sequence_number == acknowledged))))
    # Backward: what the receiver says now or said before.
    said = sender.message.state
    b.assume(implies(sender.message.valid, said.session == heard_session))
    b.assume(implies(sender.message.valid & up, (expected - said.expected)[:BITS] < LATE))
    b.assume(implies(sender.message.valid & up, (freed - said.freed)[:BITS] < LATE))

    # One packet, chosen when it is pushed.
    token = b.any_const(descriptor_layout(PARAMETERS), "token")
    choose = b.any_seq(1, "choose")
    watching, number, accepted = Signal(), Signal(BITS), Signal()
    over = (
        sender.release_taken
        & watching
        & (((released == number) & ~sender.unsent) | (((written - 1)[:BITS] == number) & sender.unsent))
    )
    with m.If(choose & sender.push & (sender.descriptor == token) & ~watching):
        m.d.sync += [watching.eq(1), number.eq(written), accepted.eq(0)]
    with m.Elif(over):
        m.d.sync += watching.eq(0)
    mine = watching & up & receiver.complete & (expected == number)
    with m.If(mine):
        m.d.sync += accepted.eq(1)
    # Its flits are as they were sent, which is claimed of each as it leaves.
    leaves = sender.turn & up & watching & (sender.flit.sequence_number == number)
    b.claim(implies(leaves, sender.flit.descriptor == token))
    b.claim(implies(leaves & (sender.flit.kind == FlitKind.DATA), sender.flit.place <= token.length))
    b.claim(
        implies(leaves, sender.flit.last == ((sender.flit.kind == FlitKind.DATA) & (sender.flit.place == token.length)))
    )
    comes = arrives & packet & watching & (flit.sequence_number == number)
    b.assume(implies(comes & (flit.kind == FlitKind.DATA), (flit.place <= token.length)))
    b.assume(implies(comes & (flit.kind == FlitKind.DATA), flit.last == (flit.place == token.length)))

    b.claim(implies(mine, ~accepted & (receiver.place == token.length)))
    b.claim(implies(receiver.complete, up & (expected != sent)))
    b.claim(implies(over & ~sender.unsent, accepted & (sender.released == token)))
    b.claim(
        implies(over & sender.unsent, ~accepted & (sender.released == token) & (distance(number) >= distance(sent)))
    )
    b.claim(implies(up, (sent - freed)[:BITS] <= BUFFERS))
    fresh = sender.turn & up & (sender.flit.kind == FlitKind.HEADER) & (sender.flit.sequence_number == sent)
    granted, epoch = tx.signal("granted"), tx.signal("epoch")
    b.claim(implies(fresh, granted & (sender.flit.descriptor.epoch == epoch) & ~sender.discard))

    # Every packet has left to its end for the first time once, in order, before it is acknowledged.
    last_leaves = sender.turn & up & sender.flit.last
    b.claim(queue.leaves == (last_leaves & (sender.flit.sequence_number == left)))
    b.claim(implies(queue.acknowledge, distance(queue.until) <= distance(left)))
    b.claim(implies(up & sender.all_left, distance(written) == distance(left)))

    # Where everything is.
    head = queue.head_valid
    b.invariant((distance(acknowledged) <= distance(left)) & (distance(left) <= distance(sent)))
    b.invariant((sent - left)[:BITS] <= 1)
    b.invariant(implies(up, distance(expected) <= distance(left)))
    b.invariant(implies(head, distance(queue.sequence_number) <= distance(left)))
    b.invariant(implies(~head, distance(next_place) <= distance(left)))
    b.invariant(distance(written) <= DEPTH)
    b.invariant(distance(sent) <= distance(written))
    b.invariant(distance(acknowledged) <= distance(sent))
    b.invariant(implies(up, (distance(acknowledged) <= distance(expected)) & (distance(expected) <= distance(sent))))
    b.invariant((distance(next_place) >= distance(acknowledged)) & (distance(next_place) <= distance(written)))
    fresh_head = head & (queue.sequence_number == sent)
    b.invariant(implies(distance(next_place) > distance(sent), fresh_head & (next_place == (sent + 1)[:BITS])))
    b.invariant(implies(head, (next_place == (queue.sequence_number + 1)[:BITS])))
    b.invariant(implies(head, distance(queue.sequence_number) >= distance(acknowledged)))
    b.invariant(implies(head, distance(queue.sequence_number) < distance(written)))
    b.invariant(
        implies(
            queue.acknowledge,
            up & (distance(queue.until) > distance(acknowledged)) & (distance(queue.until) <= distance(expected)),
        )
    )
    started, place = tx.signal("begun"), tx.signal("place")
    b.invariant(implies(started, up & head & (queue.sequence_number != sent) & (place <= queue.head.length)))
    b.invariant(implies(~up, (sent == acknowledged) & (released == acknowledged) & ~queue.acknowledge))
    guarded = tx.signal("guarded")
    said_freed, limit = tx.signal("freed"), tx.signal("limit")
    b.invariant(implies((state != PortState.SILENT) | ~guarded, limit == (said_freed + BUFFERS)[:BITS]))
    b.invariant(implies(((state != PortState.SILENT) | ~guarded) & ~up, said_freed == acknowledged))
    b.invariant(implies(up, (freed - said_freed)[:BITS] <= (sent - said_freed)[:BITS]))
    b.invariant(implies(up, (sent - said_freed)[:BITS] <= BUFFERS))
    b.invariant(implies(up, (expected - freed)[:BITS] <= (sent - freed)[:BITS]))
    # The session.
    b.invariant(implies(state == PortState.SILENT, (heard_session == 0) & ~opening))
    b.invariant(implies(state == PortState.LISTENING, (heard_session == 0) & ~opening))
    b.invariant(
        implies(state == PortState.OPENING, (session != 0) & ((heard_session == 0) | (heard_session == session)))
    )
    b.invariant(implies(up, (session != 0) & (heard_session == session) & ~opening))
    b.invariant(implies(heard_session != 0, ~opening))
    b.invariant(implies(heard_session == 0, (expected == 0) & (freed == 0)))
    b.invariant(
        implies((state == PortState.OPENING) & (heard_session != 0), (expected == acknowledged) & (freed == expected))
    )
    b.invariant(implies(opening, (rx.signal("next_session") == session) & (rx.signal("next_expected") == acknowledged)))
    # The chosen packet.
    word = tx.word("queue.memory", number[:2])
    b.invariant(implies(watching, (distance(number) < distance(written)) & (word == token.as_value())))
    b.invariant(implies(watching & head & (queue.sequence_number == number), queue.head == token))
    b.invariant(implies(watching, accepted == (up & (distance(number) < distance(expected)))))
    begun, following = rx.signal("begun"), rx.signal("following")
    b.invariant(implies(watching & up & begun & (expected == number), following <= token.length))
    b.invariant(implies(begun, up & (expected != sent)))

    b.cover(over & accepted & (token.length == 1) & (number == 1))
    b.cover(over & sender.unsent & (number == 1))
    again = Signal(2)
    m.d.sync += again.eq(again + (sender.again & (again != 3)))
    b.cover(mine & (again == 2) & queue.unacknowledged)


@proof(
    block="link_port",
    claim="whatever arrives, credits not given and floods included, no buffer is written while its packet "
    "waits to be written to memory, and never more packets are held than there are buffers; a packet is taken with all "
    "its sectors from the first on, none twice",
    scope="2 buffers, sequence numbers of 4 bits; any flits, clean or not; buffers are given back once",
    bug="room stuck at 1: what the peer may not send is taken",
    bug_depth=24,
    cover_depth=24,
    depth=1,
)
def link_flood(b: Bench) -> None:
    m = b.m
    dut = PortReceiver(PARAMETERS)
    block = b.open_block(dut, stuck={"room": 1})
    b.assume(dut.timers.silence == 1)
    held = Signal(range(BUFFERS + 3))
    m.d.sync += held.eq(held + dut.complete - dut.freed)
    b.assume(implies(dut.freed, held != 0))
    taken = Signal(4)
    """Sectors of the packet that is arriving."""
    with m.If(dut.header | dut.complete):
        m.d.sync += taken.eq(0)
    with m.Elif(dut.sector):
        m.d.sync += taken.eq(taken + 1)
    expected, freed = block.signal("expected"), block.signal("freed")
    b.claim(held <= BUFFERS)
    b.claim(implies(dut.sector, (held != BUFFERS) & (dut.place == taken)))
    b.claim(implies(dut.complete, dut.sector))
    oldest = freed[: (BUFFERS - 1).bit_length()]
    b.claim(implies(dut.sector & (held != 0), dut.buffer != oldest))
    b.invariant(held == (expected - freed)[:BITS])
    b.invariant(held <= BUFFERS)
    b.invariant(implies(block.signal("begun"), taken == block.signal("following")))
    b.cover((held == BUFFERS) & dut.valid & dut.clean & (dut.flit.sequence_number == expected) & dut.up)
