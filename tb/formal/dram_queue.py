"""Proof that the DRAM queue keeps the contract by which the bank machines are proved, and forgets no request.

The queue is compared with a list of requests, oldest first; one arbitrary bank is watched, whose state the environment
keeps as the bank machines and the refresher would.
"""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib import data

from hw.config import BANKS, ROW_BITS, Configuration
from hw.memory_controller.dram_queue import BankEvent, DramQueue
from hw.messages import BANK_SHAPE
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

DEPTH = 4
LONGEST_WAIT = {"hit": DEPTH + 1, "row": 1}
"""Cycles that may pass without any dispatch, or row request, while some request can be dispatched, or have its row
opened. A dispatch is lost when a hit arrived just as the row of its bank was given up: at most once per request."""

Request = data.StructLayout({"index": 2, "bank": BANK_SHAPE, "row": ROW_BITS})


def _any(values: list[Value]) -> Value:
    return Cat(values, 0).any()


def one_hot(event: data.View) -> Value:
    """The bank of `event`, if it happens, as a vector."""
    return Mux(event.valid, 1 << event.bank, 0)[:BANKS]


class WatchedQueue:
    """The queue, the list of what waits in it, and the watched `bank` as the queue's environment keeps it: `usable`
    with its row `opened`, `pending` for row `asked`, `sent` a request."""

    def __init__(self, b: Bench, stuck: dict[str, int]):
        self.b = b
        self.dut = dut = DramQueue(Configuration(dram_queue_depth=DEPTH))
        self.block = b.block(dut, stuck=stuck)
        b.free(dut.insert, dut.insert_bank, dut.insert_row, dut.insert_index, dut.lookup_open, dut.lookup_row)
        b.free(dut.activated, dut.released, dut.drain, dut.closed)
        self.bank = b.any_const(4, "bank")
        self.idle = {name: Signal(range(DEPTH + 3), name=f"idle_{name}") for name in LONGEST_WAIT}
        self._list()
        self._watch_bank()

    def _list(self) -> None:
        b, m, dut = self.b, self.b.m, self.dut
        self.count = count = Signal(range(DEPTH + 1))
        self.requests = [Signal(Request, name=f"request_{place}") for place in range(DEPTH)]
        self.there = [place < count for place in range(DEPTH)]
        self.leaves = [
            there & dut.dispatch.valid & (request.index == dut.dispatch_index)
            for there, request in zip(self.there, self.requests, strict=True)
        ]
        gone = [_any(self.leaves[: place + 1]) for place in range(DEPTH)]
        new = Signal(Request)
        m.d.comb += [new.index.eq(dut.insert_index), new.bank.eq(dut.insert_bank), new.row.eq(dut.insert_row)]
        tail = Signal(range(DEPTH + 1))
        m.d.comb += tail.eq(count - dut.dispatch.valid)
        m.d.sync += count.eq(tail + dut.insert)
        for place, request in enumerate(self.requests):
            behind = self.requests[place + 1].as_value() if place + 1 < DEPTH else 0
            moved = Mux(gone[place], behind, request.as_value())
            m.d.sync += request.as_value().eq(Mux(dut.insert & (tail == place), new.as_value(), moved))
            # Indices are the free list's: each has one holder.
            b.assume(implies(dut.insert & self.there[place], request.index != dut.insert_index))
        b.assume(implies(dut.insert, count != DEPTH))

    def _watch_bank(self) -> None:
        b, m, dut, bank = self.b, self.b.m, self.dut, self.bank
        self.usable, self.pending, self.sent = Signal(name="usable"), Signal(name="pending"), Signal(name="sent")
        self.opened, self.asked = Signal(ROW_BITS, name="opened"), Signal(ROW_BITS, name="asked")
        self.dispatched = dut.dispatch.valid & (dut.dispatch.bank == bank)
        self.requested = dut.row_request.valid & (dut.row_request.bank == bank)
        activated = dut.activated.valid & (dut.activated.bank == bank)
        released = dut.released.valid & (dut.released.bank == bank)
        with m.If(self.requested):
            m.d.sync += [self.usable.eq(0), self.pending.eq(1), self.asked.eq(dut.row_request.row)]
        with m.If(activated):
            m.d.sync += [self.usable.eq(1), self.pending.eq(0), self.opened.eq(dut.activated.row)]
        with m.If(dut.closed):
            m.d.sync += [self.usable.eq(0), self.pending.eq(0)]
        m.d.sync += self.sent.eq((self.sent & ~released) | self.dispatched)
        b.assume(implies(activated, self.pending & (dut.activated.row == self.asked)))
        b.assume(implies(released, self.sent))
        b.assume(implies(dut.closed, dut.drain & dut.quiet & ~self.sent & ~dut.activated.valid))
        # Claimed of the watched bank, which is any; so it may be assumed of the others.
        self.asking_banks = Signal(BANKS)
        with m.If(dut.closed):
            m.d.sync += self.asking_banks.eq(0)
        with m.Else():
            m.d.sync += self.asking_banks.eq((self.asking_banks | one_hot(dut.row_request)) & ~one_hot(dut.activated))
        b.assume((one_hot(dut.activated) & ~self.asking_banks) == 0)
        for place, request in enumerate(self.requests):
            opens = self.there[place] & dut.activated.valid & (dut.activated.bank == request.bank)
            b.assume(implies(opens & self.is_oldest(place), request.row == dut.activated.row))
        looked_up = dut.insert & (dut.insert_bank == bank) & ~self.pending & ~self.requested
        b.assume(implies(looked_up, dut.lookup_open == self.usable))
        b.assume(implies(looked_up & self.usable, dut.lookup_row == self.opened))

    def is_oldest(self, place: int) -> Value:
        """No older request waits for the same bank."""
        bank = self.requests[place].bank
        return ~_any([self.there[other] & (self.requests[other].bank == bank) for other in range(place)])

    def here(self, place: int) -> Value:
        """The request at `place` waits for the watched bank."""
        return self.there[place] & (self.requests[place].bank == self.bank)

    def hits(self, place: int) -> Value:
        """It is for the row that is open there."""
        return self.here(place) & self.usable & (self.requests[place].row == self.opened)

    def state(self, name: str) -> Value:
        """The watched bank's bit of a vector over the banks."""
        return (self.block.signal(name) >> self.bank)[0]


def _claims(w: WatchedQueue) -> None:
    b, m, dut = w.b, w.b.m, w.dut
    b.claim(implies(dut.dispatch.valid, _any(w.leaves)))
    draining = b.past(dut.drain, "draining")
    b.claim(implies(draining | dut.quiet, ~dut.dispatch.valid & ~dut.row_request.valid))
    b.claim(implies(w.dispatched, w.usable & ~w.pending & ~w.sent))
    b.claim(implies(w.requested, ~w.sent & ~w.pending & ~w.dispatched))
    for place, request in enumerate(w.requests):
        b.claim(implies(w.leaves[place], request.bank == dut.dispatch.bank))
        b.claim(implies(w.leaves[place] & w.here(place), w.hits(place)))
        older = _any([w.hits(before) for before in range(place)])
        b.claim(implies(w.leaves[place] & w.here(place), ~older))
        b.claim(implies(w.requested & w.here(place) & w.is_oldest(place), dut.row_request.row == request.row))
    b.claim(implies(w.requested, _any([w.here(place) for place in range(DEPTH)])))

    # Progress: what can go is not forgotten.
    hit = _any([w.hits(place) for place in range(DEPTH)])
    waits = _any([w.here(place) for place in range(DEPTH)])
    free = ~w.sent & ~w.pending & ~dut.drain & ~dut.closed
    for name, can_go, goes in (
        ("hit", free & hit & ~w.requested, dut.dispatch.valid),
        ("row", free & waits & ~hit & ~w.requested, dut.row_request.valid),
    ):
        idle = w.idle[name]
        with m.If(can_go & ~goes):
            m.d.sync += idle.eq(idle + 1)
        with m.Else():
            m.d.sync += idle.eq(0)
        b.claim(idle <= LONGEST_WAIT[name])


def _invariants(w: WatchedQueue) -> None:
    b, block, dut, bank = w.b, w.block, w.dut, w.bank
    valid, hit, free = block.signal("valid"), block.signal("hit"), block.signal("free")
    planes = {
        "bank": [block.signal(f"bank_plane_{k}") for k in range(4)],
        "row": [block.signal(f"row_plane_{k}") for k in range(ROW_BITS)],
        "index": [block.signal(f"index_plane_{k}") for k in range(2)],
    }
    pick, wanted = block.view("pick", BankEvent), block.view("wanted", BankEvent)
    asking = wanted.valid & (wanted.bank == bank)
    below = block.signal("pick_below")
    b.invariant(w.count <= DEPTH)
    b.invariant(valid == ((1 << w.count) - 1)[:DEPTH])
    b.invariant(((hit | free) & ~valid) == 0)
    picks = []
    for place, request in enumerate(w.requests):
        for name, vectors in planes.items():
            stored = Cat(vector[place] for vector in vectors)
            b.invariant(stored == Mux(w.there[place], request[name], 0))
        b.invariant(implies(w.there[place], free[place] == ~(block.signal("occupied") >> request.bank)[0]))
        b.invariant(implies(w.here(place) & ~asking & ~w.pending, hit[place] == w.hits(place)))
        b.invariant(implies(w.here(place) & w.pending, ~hit[place]))
        same = _any([w.requests[other].index == request.index for other in range(place)])
        b.invariant(implies(w.there[place], ~same))
        b.invariant(implies(w.here(place) & w.is_oldest(place) & w.pending, request.row == w.asked))
        matches = w.there[place] & (request.index == block.signal("pick_index")) & (request.bank == pick.bank)
        picks.append(matches & (below == (1 << place) - 1))
        sound = w.hits(place) & ~_any([w.hits(before) for before in range(place)])
        ours = pick.valid & picks[place] & w.here(place)
        b.invariant(implies(ours & ~w.state("row_pending"), sound))
        b.invariant(implies(pick.valid & picks[place] & ~(block.signal("row_pending") >> pick.bank)[0], hit[place]))
    b.invariant(implies(pick.valid, _any(picks)))
    b.invariant(implies(pick.valid & (pick.bank == bank), ~w.sent))
    b.invariant(w.state("occupied") == w.sent)
    b.invariant(block.signal("row_pending") == (w.asking_banks | one_hot(wanted)))
    b.invariant((w.asking_banks & (one_hot(wanted) | ~block.signal("has_waiting"))) == 0)
    b.invariant((one_hot(wanted) & ~block.signal("has_waiting")) == 0)
    b.invariant((w.asking_banks & block.signal("occupied")) == 0)
    b.invariant((one_hot(wanted) & block.signal("occupied")) == 0)
    b.invariant((w.asking_banks >> bank)[0] == w.pending)
    b.invariant(~(w.usable & w.pending))
    for number in range(BANKS):
        there = Cat(w.there[place] & (w.requests[place].bank == number) for place in range(DEPTH))
        b.invariant(block.signal("has_waiting")[number] == there.any())
        b.invariant(block.signal("has_hits")[number] == (there & hit).any())
        b.invariant(implies(w.asking_banks[number], (there & hit) == 0))
        b.invariant(implies(pick.valid & (pick.bank == number), ~block.signal("occupied")[number]))
    draining = b.past(dut.drain, "was_draining")
    b.invariant(implies(draining, ~pick.valid & ~wanted.valid))

    # A pick is void only if its request came two cycles ago, and one cycle before its bank's row was given up.
    inserted = b.past(dut.insert, "inserted")
    earlier = b.past(inserted, "inserted_earlier")
    voided = pick.valid & (block.signal("row_pending") >> pick.bank)[0]
    b.invariant(implies(voided, earlier))
    for place, request in enumerate(w.requests):
        given_up = w.there[place] & hit[place] & (block.signal("row_pending") >> request.bank)[0]
        b.invariant(implies(given_up, wanted.valid & (wanted.bank == request.bank) & inserted))
    idle = w.idle["hit"]
    b.invariant(implies(idle != 0, pick.valid & (w.count >= 1 + inserted)))
    b.invariant(implies(idle >= 2, w.count + 1 >= idle + inserted + earlier))
    b.invariant(implies(w.idle["row"] != 0, wanted.valid))


@proof(
    block="dram_queue",
    claim="a request is dispatched once, to its own bank, only while its row is open there and the bank has no other, "
    "and after all older ones for that row; a row is requested only for the oldest waiting request of a bank with "
    "none of either; neither happens from the second cycle of a drain on nor while quiet is reported; requests that "
    "can go are forgotten for at most 5 cycles, row requests for 1",
    scope="4 requests, any bank of 16, any rows; bank machines, refresher and free list as they are proved elsewhere",
    bug="row_pending stuck at 0: a request leaves for a row that is being closed",
    bug_depth=12,
    cover_depth=14,
    depth=1,
    time_limit=900,
)
def dram_queue(b: Bench) -> None:
    w = WatchedQueue(b, {"row_pending": 0})
    _claims(w)
    if not b.seeded:
        _invariants(w)
    closed = b.past(w.dut.closed, "closed")
    refreshed = Signal()
    with b.m.If(closed & (w.count != 0)):
        b.m.d.sync += refreshed.eq(1)
    b.cover(w.dispatched & refreshed)
    b.cover(w.dispatched & w.leaves[2] & (w.count == 4))
    b.cover(w.requested & w.usable)
