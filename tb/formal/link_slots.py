"""Proofs of the link's packet slots, of the turns of its ports, and of a queue that is discarded."""

from amaranth import Cat, Mux, Signal, Value

from hw.link.port_queue import PortQueue
from hw.link.slot_bank import SlotBank
from hw.link.turns import Turns
from tb.formal.bench import Bench, at_most_one, implies
from tb.formal.link_sizes import FewSends
from tb.formal.proof import proof

SLOTS = 4
LINKS = 2


def _sum(bits: list[Value]) -> Value:
    return sum(bits[1:], bits[0])


@proof(
    block="link_slots",
    claim="a slot is free exactly when the last of its sends has been released, is never given out while in use and "
    "never lost; a packet whose ports each have fewer slots than their own share gets one, whatever the others hold",
    scope="4 slots, 2 ports with a slot of their own, up to 2 sends; only sends that are due are released",
    bug="freed stuck at 0: a slot is never free again",
    bug_depth=14,
    cover_depth=14,
    depth=1,
)
def link_slot_bank(b: Bench) -> None:
    m = b.m
    parameters = FewSends(links=LINKS, dma_packets=SLOTS, store_packets=1, link_receive_packets=1, link_sequence_bits=6)
    own = parameters.own_slots(0)
    assert own == 1
    shared_slots = SLOTS - LINKS * own
    dut = SlotBank(parameters, 0)
    block = b.open_block(dut, stuck={"freed": 0})
    routes = dut.routes
    sends, ports, single = routes.sends, routes.ports, routes.single
    # `ports` are those of the sends: one or two of them.
    b.assume((sends == 1) | (sends == 2))
    b.assume(ports != 0)
    b.assume(implies(sends == 1, single & at_most_one(ports)))
    b.assume(implies(sends == 2, single == ports.all()))
    b.assume(implies(dut.close, dut.room))

    # What is due of each slot: sends through each port.
    due = [[Signal(2, name=f"due_{slot}_{port}") for port in range(LINKS)] for slot in range(SLOTS)]
    shares = [Signal(name=f"shares_{slot}") for slot in range(SLOTS)]
    left = [_sum(list(row)) for row in due]
    own_room = block.signal("own_room")
    is_last = Signal()
    for slot in range(SLOTS):
        for port in range(LINKS):
            goes = dut.release & (dut.release_slot == slot) & (dut.release_port == port)
            comes = dut.close & (dut.slot == slot) & ports[port]
            amount = Mux(comes, Mux(ports.all(), 1, sends), 0)
            b.assume(implies(goes, due[slot][port] != 0))
            m.d.sync += due[slot][port].eq(due[slot][port] + amount - goes)
        with m.If(dut.close & (dut.slot == slot)):
            m.d.sync += shares[slot].eq(~own_room)
        with m.If(dut.release & (dut.release_slot == slot)):
            m.d.comb += is_last.eq(left[slot] == 1)
    in_use = Signal(SLOTS)
    m.d.comb += in_use.eq(Cat(count != 0 for count in left))
    b.assume(implies(dut.release, (dut.release_slot < SLOTS) & (dut.release_port < LINKS)))

    b.claim(dut.freed == (dut.release & is_last))
    b.claim(dut.empty == ~in_use.any())
    b.claim(implies(dut.room, ~in_use.all() & (dut.slot < SLOTS) & ~in_use.bit_select(dut.slot, 1)))
    fewer = Signal(LINKS)
    for port in range(LINKS):
        held = [(due[slot][port] != 0) for slot in range(SLOTS)]
        m.d.comb += fewer[port].eq(_sum(held) < own)
    b.claim(implies(single & ((ports & ~fewer) == 0), dut.room))
    b.claim(implies(in_use == 0, dut.room))

    count = len(sends)
    for slot in range(SLOTS):
        b.invariant(
            block.signal("left").word_select(slot, count)[:3] == left[slot][:3]
            if count >= 3
            else block.signal("left").word_select(slot, count) == left[slot]
        )
        b.invariant(left[slot] <= 2)
        b.invariant(implies(in_use[slot], block.signal("shared")[slot] == shares[slot]))
        b.invariant(implies(in_use[slot] & ~shares[slot], (due[slot][0] <= 1) & (due[slot][1] <= 1)))
    for port in range(LINKS):
        owned = [in_use[slot] & ~shares[slot] & (due[slot][port] != 0) for slot in range(SLOTS)]
        b.invariant(block.signal(f"own_used_{port}") == _sum(owned))
        b.invariant(_sum(owned) <= own)
    charged = [Mux(shares[slot], left[slot], 0) for slot in range(SLOTS)]
    sharing = _sum([in_use[slot] & shares[slot] for slot in range(SLOTS)])
    b.invariant(block.signal("shared_used") == _sum(charged))
    b.invariant((block.signal("shared_used") <= shared_slots) | (sharing <= 1))
    used = _sum([in_use[slot] for slot in range(SLOTS)])
    b.invariant(block.signal("used_slots") == used)
    _free_list(b, block, in_use, used)
    b.cover(in_use.all())
    b.cover(dut.freed & shares[0] & (dut.release_slot == 0) & b.past(dut.release, "before"))
    b.cover((used == 3) & dut.room & single & ~own_room)


def _free_list(b: Bench, block, in_use: Signal, used: Value) -> None:
    """The free list holds exactly the slots not in use."""
    first, last = block.signal("free.first"), block.signal("free.last")
    count, wrapped = block.signal("free.count"), block.signal("free.wrapped")
    b.invariant((first < SLOTS) & (last < SLOTS))
    b.invariant(count == SLOTS - used)
    b.invariant(last == (first + count) % SLOTS)
    b.invariant(wrapped | (first + count >= SLOTS))
    here = []
    for position in range(SLOTS):
        inside = (position + SLOTS - first) % SLOTS < count
        number = Mux(wrapped | (position < first), block.word("free.memory", position), position)
        here.append((inside, number))
        b.invariant(implies(inside, number < SLOTS))
    for number in range(SLOTS):
        b.invariant(_sum([inside & (value == number) for inside, value in here]) == ~in_use[number])


@proof(
    block="link_egress",
    claim="a turn goes to one that asks; whoever keeps asking has one after at most as many turns of others as there "
    "are others: no port waits for another",
    scope="5 ports",
    bug="later stuck at 0: the first that asks always has the turn",
    bug_depth=10,
    cover_depth=10,
    engine="pdr",
)
def link_turns(b: Bench) -> None:
    m, count = b.m, 5
    dut = Turns(count)
    b.open_block(dut, stuck={"later": 0})
    b.claim(at_most_one(dut.has) & ((dut.has & ~dut.asks) == 0))
    b.claim(dut.has.any() == dut.asks.any())
    who = b.any_const(count, "who")
    b.assume(at_most_one(who) & (who != 0))
    waited = Signal(range(count + 1))
    mine = (dut.asks & who).any()
    with m.If(~mine | (dut.has & who).any()):
        m.d.sync += waited.eq(0)
    with m.Elif(dut.taken):
        m.d.sync += waited.eq(waited + 1)
    b.claim(waited < count)
    b.cover(waited == count - 1)


@proof(
    block="link_port",
    claim="while a queue is discarded, something is offered for release in every cycle, but for the first, until only "
    "what was sent is left; with at most one release for each place the discard comes to its end; nothing that was "
    "sent is taken out",
    scope="a queue of 4 places, sequence numbers of 4 bits; no more packets than places; nothing is sent meanwhile",
    bug="take_back stuck at 0: nothing is taken out",
    bug_depth=10,
    cover_depth=12,
    depth=1,
)
def link_queue_discard(b: Bench) -> None:
    m, depth, bits = b.m, 4, 4
    parameters = FewSends(links=1, dma_packets=1, store_packets=1, link_receive_packets=1, link_sequence_bits=bits)
    dut = PortQueue(parameters)
    block = b.open_block(dut, stuck={"take_back": 0})
    written, next_place = block.signal("written"), block.signal("next_place")
    acknowledged, released = block.signal("acknowledged"), block.signal("oldest")

    def distance(value: Value) -> Value:
        return (value - released)[:bits]

    b.assume(implies(dut.push, distance(written) != depth))
    b.assume(implies(dut.started | dut.done, dut.head_valid))
    b.assume(implies(dut.started & dut.fresh, ~dut.discard))
    b.assume(implies(dut.done, ~dut.fresh))
    b.assume(implies(dut.release_taken, dut.release))
    b.assume(
        implies(
            dut.acknowledge,
            (distance(dut.until) >= distance(acknowledged)) & (distance(dut.until) <= distance(dut.sent)),
        )
    )
    discarding = b.past(dut.discard & ~dut.push & ~dut.cut, "discarding")
    unsent = Signal(bits)
    m.d.comb += unsent.eq(written - dut.sent)
    before, sent_before = b.past(unsent, "unsent_before"), b.past(dut.sent, "sent_before")
    taken_out = b.past(dut.release_taken & dut.unsent, "taken_out")
    b.claim(implies(discarding & dut.discard & ~dut.push & ~dut.cut & (unsent != 0), dut.release))
    b.claim(implies(discarding, (unsent == (before - taken_out)[:bits]) & (dut.sent == sent_before)))
    b.claim(implies(dut.release & dut.unsent, unsent != 0))

    fresh_head = dut.head_valid & (dut.sequence_number == dut.sent)
    b.invariant(distance(written) <= depth)
    b.invariant(distance(dut.sent) <= distance(written))
    b.invariant(distance(acknowledged) <= distance(dut.sent))
    b.invariant((distance(next_place) >= distance(acknowledged)) & (distance(next_place) <= distance(written)))
    b.invariant(implies(distance(next_place) > distance(dut.sent), fresh_head & (next_place == (dut.sent + 1)[:bits])))
    b.invariant(implies(dut.head_valid, next_place == (dut.sequence_number + 1)[:bits]))
    b.invariant(implies(dut.head_valid, distance(dut.sequence_number) >= distance(acknowledged)))
    b.invariant(implies(discarding, ~fresh_head))
    b.cover(discarding & taken_out & (unsent == 0) & (before == 1) & (distance(dut.sent) == 2))
    b.cover(dut.release & dut.unsent & (unsent == 3))
