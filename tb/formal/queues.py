"""Proofs of the queues: nothing overflows, nothing underflows, order is kept.

Order is shown by the watched-token method: one arbitrarily chosen payload is followed through the queue by its distance
to the head; that it comes out exactly when it is at the head, for every choice, is order and integrity of all payloads.
"""

from amaranth import Cat, Mux, Signal
from amaranth.hdl import unsigned

from hw.primitives.places import FreeList, Room
from hw.primitives.queue import Queue
from hw.primitives.stream_arbiter import StreamArbiter
from hw.tracker.protected_queue import ProtectedReadyQueue
from hw.tracker.ready_queue import ReadyQueue
from tb.formal.bench import Bench, Block, at_most_one, implies
from tb.formal.proof import proof

WIDTH = 8


def _queue(b: Bench, depth: int, bypass: bool, stuck: dict[str, int]) -> tuple[Queue, Block]:
    dut = Queue(unsigned(WIDTH), depth, bypass=bypass)
    block = b.open_block(dut, stuck=stuck)
    return dut, block


def _check_queue(b: Bench, depth: int, bypass: bool, stuck: dict[str, int]) -> None:
    m = b.m
    dut, block = _queue(b, depth, bypass, stuck)
    first, last = block.signal("first"), block.signal("last")
    accepted, taken = Signal(), Signal()
    m.d.comb += [accepted.eq(dut.i.valid & dut.i.ready), taken.eq(dut.o.valid & dut.o.ready)]

    content = Signal(range(depth + 2))
    m.d.sync += content.eq(content + accepted - taken)
    b.claim(content <= depth)
    b.claim(dut.level == content)
    b.claim(implies(taken & ~bypass, content != 0))
    b.claim(implies(taken & accepted, (content != 0) | bypass))
    b.claim(implies(content == 0, dut.o.valid == (accepted if bypass else 0)))

    token = b.any_const(WIDTH, "token")
    choose = b.any_seq(1, "choose")
    watching = Signal()
    ahead = Signal(range(depth + 1))
    """Payloads in front of the watched one."""
    start = Signal()
    m.d.comb += start.eq(choose & accepted & (dut.i.payload == token) & ~watching)
    with m.If(start):
        m.d.sync += [ahead.eq(content - taken), watching.eq(~(taken & (content == 0)))]
        b.claim(implies(taken & (content == 0), dut.o.payload == token))
    with m.Elif(watching & taken):
        m.d.sync += [ahead.eq(ahead - 1), watching.eq(ahead != 0)]
    b.claim(implies(watching & (ahead == 0), dut.o.valid & (dut.o.payload == token)))

    b.invariant(first < depth)
    b.invariant(last < depth)
    distance = Mux(last >= first, last - first, last + depth - first)
    b.invariant(Mux(content == depth, first == last, distance == content))
    place = Signal(range(2 * depth + 1))
    m.d.comb += place.eq(Mux(first + ahead >= depth, first + ahead - depth, first + ahead))
    b.invariant(implies(watching, (ahead < content) & (block.word("memory", place) == token)))

    b.cover(watching & (ahead == depth - 1))
    b.cover(watching & taken & (ahead == 0))
    b.cover(content == depth)


@proof(
    block="queues",
    claim="no overflow, no underflow, order and payload kept",
    scope="5 entries of 8 bits (an entry's bits are alike)",
    bug="ready stuck at 1: a full queue accepts",
    bug_depth=9,
    cover_depth=12,
)
def queue(b: Bench) -> None:
    _check_queue(b, 5, False, {"i__ready": 1})


@proof(
    block="queues",
    claim="no overflow, no underflow, order and payload kept, with the bypass of an empty queue",
    scope="5 entries of 8 bits",
    bug="pop stuck at 0: a payload comes out twice",
    bug_depth=9,
    cover_depth=12,
)
def queue_bypass(b: Bench) -> None:
    _check_queue(b, 5, True, {"pop": 0})


@proof(
    block="queues",
    claim="no overflow, no underflow, order and payload kept, at one entry",
    scope="1 entry of 8 bits",
    bug="ready stuck at 1: a full queue accepts",
    bug_depth=6,
    cover_depth=8,
)
def queue_of_one(b: Bench) -> None:
    _check_queue(b, 1, False, {"i__ready": 1})


@proof(
    block="queues",
    claim="a number is never with two holders, none is lost",
    scope="6 numbers; a holder returns only what it holds",
    bug="wrapped stuck at 0: returned numbers are ignored",
    bug_depth=20,
    cover_depth=20,
)
def free_list(b: Bench) -> None:
    m, depth = b.m, 6
    dut = FreeList(depth)
    block = b.open_block(dut, stuck={"wrapped": 0})
    held = Signal(depth)
    m.d.sync += held.eq((held | Mux(dut.take, 1 << dut.index, 0)) & ~Mux(dut.give, 1 << dut.given, 0))
    b.assume(implies(dut.take, dut.available))
    b.assume(implies(dut.give, (held >> dut.given) & 1))
    outstanding = sum(held[number] for number in range(depth))
    b.claim(dut.available == (outstanding != depth))
    b.claim(implies(dut.available, (dut.index < depth) & ~((held >> dut.index) & 1)))

    first, last, count = block.signal("first"), block.signal("last"), block.signal("count")
    b.invariant((first < depth) & (last < depth))
    b.invariant(count == depth - outstanding)
    b.invariant(last == (first + count) % depth)
    b.invariant(block.signal("wrapped") | (first + count >= depth))
    here = []
    for position in range(depth):
        inside = (position + depth - first) % depth < count
        stored = block.word("memory", position)
        number = Mux(block.signal("wrapped") | (position < first), stored, position)
        here.append((inside, number))
        b.invariant(implies(inside, number < depth))
    for number in range(depth):
        places = sum(inside & (value == number) for inside, value in here)
        b.invariant(places == ~held[number])
    b.cover((outstanding == depth) & block.signal("wrapped"))


@proof(
    block="controller",
    claim="places taken never exceed the places there are",
    scope="5 places",
    bug="available stuck at 1",
    bug_depth=9,
    cover_depth=8,
)
def room(b: Bench) -> None:
    dut = Room(5)
    block = b.block(dut, stuck={"available": 1})
    b.free(dut.give)
    wish = b.any_seq(1, "wish")
    b.m.d.comb += dut.take.eq(wish & dut.available)
    taken = Signal(4)
    b.m.d.sync += taken.eq(taken + dut.take - dut.give)
    b.assume(implies(dut.give, taken != 0))
    b.claim(taken <= 5)
    b.claim(dut.available == (taken != 5))
    b.invariant(block.signal("free") == 5 - taken)
    b.cover(taken == 5)


def _check_ready_queue(b: Bench, dut: ReadyQueue | ProtectedReadyQueue, depth: int) -> None:
    m = b.m
    taken = dut.output.valid & dut.output.ready
    content = Signal(range(depth + 1))
    with m.If(dut.clear):
        m.d.sync += content.eq(0)
    with m.Else():
        m.d.sync += content.eq(content + dut.push - taken)
    b.assume(implies(dut.push, (content != depth) | taken))
    b.claim(implies(dut.output.valid, content != 0))
    b.claim(dut.waiting == (content > taken))

    token = b.any_const(len(dut.item), "token")
    choose = b.any_seq(1, "choose")
    watching = Signal()
    ahead = Signal(range(depth + 1))
    with m.If(dut.clear):
        m.d.sync += watching.eq(0)
    with m.Elif(watching & taken):
        m.d.sync += [ahead.eq(ahead - 1), watching.eq(ahead != 0)]
    with m.Elif(choose & dut.push & (dut.item == token) & ~watching):
        m.d.sync += [ahead.eq(content - taken), watching.eq(1)]
    b.claim(implies(watching & (ahead == 0) & dut.output.valid, dut.output.payload == token))

    idle = Signal(range(4))
    m.d.sync += idle.eq(Mux(dut.output.valid | dut.clear | (content == 0), 0, idle + 1))
    b.claim(idle < 3)
    b.claim_offers_stay(dut.output, withdrawn=dut.clear)
    b.cover(watching & (ahead == depth - 1))
    b.cover(watching & (ahead == 0) & taken)


@proof(
    block="ready_queue",
    claim="order and payload kept, nothing lost or issued twice, until it is cleared, and it tells what a clear drops",
    scope="4 entries of 4 bits; at most as many payloads at once as there are entries (a block becomes ready once)",
    engine="pdr",
    depth=0,
    bug="fetching stuck at 0: what waited in the memory is dropped",
    bug_depth=10,
    cover_depth=16,
)
def ready_queue(b: Bench) -> None:
    dut = ReadyQueue(unsigned(4), 4)
    b.open_block(dut, stuck={"fetching": 0})
    _check_ready_queue(b, dut, 4)


@proof(
    block="ready_queue",
    claim="with check bits, whichever bit of what waits is turned: order and payload kept, nothing lost or issued "
    "twice, until it is cleared, and it tells what a clear drops",
    scope="4 entries of 1 bit, any one bit of each word and its check bits turned as it begins to wait; at most as "
    "many payloads at once as there are entries",
    engine="pdr",
    depth=0,
    bug="found stuck at 0: what is wrong is not put right",
    bug_depth=12,
    cover_depth=16,
)
def protected_ready_queue(b: Bench) -> None:
    dut = ProtectedReadyQueue(unsigned(1), 4)
    b.open_block(dut, stuck={"found": 0})
    b.assume(Cat(dut.flips == 1 << place for place in range(len(dut.flips))).any() | (dut.flips == 0))
    _check_ready_queue(b, dut, 4)
    b.claim(~dut.report.lost)
    b.cover(dut.report.corrected)


@proof(
    block="ready_queue",
    claim="with check bits, which cost no cycle: it has offered as many payloads as one without, or more, at any time",
    scope="4 entries of 1 bit, the same pushes, clears and ready of what takes from either, none wrong",
    engine="pdr",
    depth=0,
    bug="beside stuck at 0: all that cannot leave at once goes through the memory",
    bug_depth=12,
    cover_depth=16,
)
def protected_queue_is_not_behind(b: Bench) -> None:
    m, depth = b.m, 4
    plain, checked = ReadyQueue(unsigned(1), depth), ProtectedReadyQueue(unsigned(1), depth)
    b.block(plain, "plain")
    b.block(checked, "checked", stuck={"beside": 0})
    push, clear, ready = (b.any_seq(1, name) for name in ("push", "clear", "ready"))
    left = {}
    for name, dut in (("plain", plain), ("checked", checked)):
        m.d.comb += [dut.push.eq(push), dut.clear.eq(clear), dut.output.ready.eq(ready)]
        left[name] = Signal(range(depth + 1), name=f"left_{name}")
        m.d.sync += left[name].eq(Mux(clear, 0, left[name] + push - (dut.output.valid & ready)))
    b.assume(implies(push, left["plain"] != depth))
    b.claim(left["checked"] <= left["plain"])
    b.cover(left["checked"] + 1 < left["plain"])


@proof(
    block="stream_arbiter",
    claim="passes on what it takes, keeps an offer until taken, serves a waiting input after at most one of each other",
    scope="3 inputs of 4 bits",
    bug="locked stuck at 0: an offer is replaced while it waits",
    bug_depth=6,
    cover_depth=8,
)
def stream_arbiter(b: Bench) -> None:
    m, count = b.m, 3
    dut = StreamArbiter(unsigned(4), count)
    block = b.open_block(dut, stuck={"locked": 0})
    output = dut.output
    takes = []
    for number, port in enumerate(dut.inputs):
        waited = b.past(port.valid & ~port.ready, f"waited_{number}")
        b.assume(implies(waited, port.valid & (port.payload == b.past(port.payload, f"payload_{number}"))))
        take = Signal(name=f"take_{number}")
        m.d.comb += take.eq(port.valid & port.ready)
        takes.append(take)
        b.claim(implies(take, output.valid & output.ready & (output.payload == port.payload)))
    taken = Signal(count)
    m.d.comb += taken.eq(Cat(takes))
    b.claim(at_most_one(taken))
    b.claim(taken.any() == (output.valid & output.ready))
    b.claim(output.valid == Cat(port.valid for port in dut.inputs).any())
    stalled, _ = b.claim_offers_stay(output)

    last, locked = block.signal("last"), block.signal("locked")
    b.invariant(last < count)
    b.invariant(locked == stalled)
    valids = Cat(port.valid for port in dut.inputs)
    b.invariant(implies(locked, (valids >> last) & 1))
    for number, port in enumerate(dut.inputs):
        overtaken = Signal(range(count + 1), name=f"overtaken_{number}")
        """Payloads of other inputs taken while this one waited."""
        with m.If(~port.valid | takes[number]):
            m.d.sync += overtaken.eq(0)
        with m.Elif(taken.any()):
            m.d.sync += overtaken.eq(overtaken + 1)
        b.claim(overtaken <= count - 1)
        distance = (number + count - last) % count
        b.invariant(implies(overtaken != 0, port.valid & (distance != 0) | locked & (distance == 0)))
        b.invariant(implies(overtaken != 0, overtaken + distance + (locked & (distance != 0)) <= count))
    b.cover(taken[0] & b.past(taken[1], "before"))
    b.cover(stalled & taken.any())
