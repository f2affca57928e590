"""The DRAM queue: requests that wait for their bank, in order of age, first-ready first-come.

Position 0 is the oldest request; a request that leaves closes the gap, so age needs no bookkeeping. Every property of
the waiting requests is a vector over the positions (bank, row and index bit by bit), so the comparison with an opened
row and the choice of the oldest candidate are word-wide operations, done only when something happens.
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..geometry import BANKS, ROW_BITS
from ..messages import BANK_SHAPE
from ..primitives.lowest_bit import GroupedLowest, above, encode, rotating
from .parameters import ControllerParameters

BankEvent = data.StructLayout({"valid": unsigned(1), "bank": BANK_SHAPE})
"""Something happened at `bank`."""

RowEvent = data.StructLayout({"valid": unsigned(1), "bank": BANK_SHAPE, "row": unsigned(ROW_BITS)})
"""`row` is to be opened, or was opened, in `bank`."""

HEAD_WAIT = 1024
"""Cycles the oldest request may stand at the head before new ones are kept out: what is in the queue then runs dry of
hits to the head's bank, which bounds the wait of a row conflict under an endless stream of row hits."""


class _Waiting:
    """The requests, oldest first: a bit of each vector per position, zero beyond the last request.

    `bank_planes`, `row_planes`, `index_planes`: a vector for each bit of what they are; `valid`: a request is here;
    `hit`: its row is open; `free`: its bank has no request at it.
    """

    def __init__(self, depth: int, index_bits: int):
        self.bank_planes = [Signal(depth, name=f"bank_plane_{k}") for k in range(4)]
        self.row_planes = [Signal(depth, name=f"row_plane_{k}") for k in range(ROW_BITS)]
        self.index_planes = [Signal(depth, name=f"index_plane_{k}") for k in range(index_bits)]
        self.valid = Signal(depth)
        self.hit = Signal(depth)
        self.free = Signal(depth)

    def of_bank(self, m: Module, bank: Value, name: str) -> Signal:
        """Positions whose request is for `bank` (also empty positions, for bank 0)."""
        depth = len(self.valid)
        match = Signal(depth, name=name)
        different = self.bank_planes[0] ^ bank[0].replicate(depth)
        for k in range(1, 4):
            different = different | (self.bank_planes[k] ^ bank[k].replicate(depth))
        m.d.comb += match.eq(~different)
        return match


class _Banks:
    """The same, bank by bank: a request waits, one of them for the row that is open; a request is at the bank
    (`occupied`), or a row is asked for and not open yet."""

    def __init__(self) -> None:
        self.has_waiting = Signal(BANKS)
        self.has_hits = Signal(BANKS)
        self.occupied = Signal(BANKS)
        self.row_pending = Signal(BANKS)


class _Leaving:
    """The request that was chosen to go to its bank: `pick`, with its `index`; `below`: the positions of older ones;
    `same_bank`: those of requests for its bank. With `remove` it goes in this cycle; what is at the positions of `keep`
    stays there."""

    def __init__(self, m: Module, waiting: _Waiting, index_bits: int):
        depth = len(waiting.valid)
        self.pick = Signal(BankEvent)
        self.index = Signal(index_bits, name="pick_index")
        self.below = Signal(depth, name="pick_below")
        self.same_bank = waiting.of_bank(m, self.pick.bank, "picked_bank")
        self.remove = Signal()
        self.keep = Signal(depth)

    def close_gap(self, vector: Value) -> Value:
        """`vector` with what is behind the request that goes moved up by one."""
        return (vector & self.keep) | ((vector >> 1) & ~self.keep)


@dataclass(frozen=True)
class _RowRequests:
    """`choice`: the bank (one-hot) that is chosen in this cycle; `wanted`: that of the cycle before, whose row is asked
    for now; `same_bank`: positions of requests for the latter."""

    choice: Signal
    wanted: data.View
    same_bank: Signal


@dataclass(frozen=True)
class _Outlook:
    """`hit` and `free` as of :class:`_Waiting`, but with what happens in this cycle."""

    hit: Signal
    free: Signal


def _one_hot(bank: Value) -> Value:
    return (1 << bank)[:BANKS]


class DramQueue(wiring.Component):
    """Holds up to `depth` waiting requests and sends them to their banks.

    Ports: `insert` with `insert_bank`, `insert_row`, `insert_index` (the request's place in the payload memories): a
    new request; `lookup_open`, `lookup_row`: whether the bank of `insert_bank` is open and its row; `stuck`: keep new
    requests out (see HEAD_WAIT). `to_bank` with `to_bank_index`: a row hit leaves for its bank, which has no other.
    `row_request`: the bank shall open this row (precharging first); it is given when no row hit waits there, and no
    request is handed to the bank until `activated` tells that the row was opened. `released`: the bank's column
    command was issued, it can take the next. `drain`: hand nothing out, request no rows; `closed`: all banks are
    being precharged, open row requests are void; `quiet`: nothing is on its way to a bank.

    Latency: insert to `to_bank` of a row hit 2 cycles; insert to row request 2 cycles; one insert, one hit and
    one row request a cycle; released to `to_bank` of the next row hit 2 cycles.
    """

    def __init__(self, config: ControllerParameters):
        self._depth = config.dram_queue_depth
        self._index_bits = max(1, (self._depth - 1).bit_length())
        super().__init__(
            {
                "insert": In(1),
                "insert_bank": In(BANK_SHAPE),
                "insert_row": In(ROW_BITS),
                "insert_index": In(self._index_bits),
                "lookup_open": In(1),
                "lookup_row": In(ROW_BITS),
                "stuck": Out(1),
                "to_bank": Out(BankEvent),
                "to_bank_index": Out(self._index_bits),
                "row_request": Out(RowEvent),
                "activated": In(RowEvent),
                "released": In(BankEvent),
                "drain": In(1),
                "closed": In(1),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waiting, banks = _Waiting(self._depth, self._index_bits), _Banks()
        leaving = self._leave(m, waiting, banks)
        self._choose_hit(m, waiting, leaving)
        rows = self._request_rows(m, waiting, banks, leaving)
        now = self._follow_events(m, waiting, leaving, rows)
        new = self._look_at_new(m, banks, leaving)
        self._move(m, waiting, leaving, now, new)
        self._follow_banks(m, waiting, banks, leaving, rows, now, new)
        self._bound_wait(m, waiting, leaving)
        return m

    def _leave(self, m: Module, waiting: _Waiting, banks: _Banks) -> _Leaving:
        """The request that was chosen goes, unless the row of its bank was given up meanwhile."""
        leaving = _Leaving(m, waiting, self._index_bits)
        pick, remove = leaving.pick, leaving.remove
        m.d.comb += [
            remove.eq(pick.valid & ~banks.row_pending.bit_select(pick.bank, 1)),
            leaving.keep.eq(Mux(remove, leaving.below, ~0)),
            self.to_bank.valid.eq(remove),
            self.to_bank.bank.eq(pick.bank),
            self.to_bank_index.eq(leaving.index),
        ]
        return leaving

    def _choose_hit(self, m: Module, waiting: _Waiting, leaving: _Leaving) -> None:
        """The oldest row hit whose bank is free is the next to go. The bank of the last pick is not free, whatever the
        vectors still say."""
        pick = leaving.pick
        eligible = Signal(self._depth)
        m.d.comb += eligible.eq(waiting.hit & waiting.free & ~(leaving.same_bank & pick.valid.replicate(self._depth)))
        chosen = GroupedLowest(m, eligible, "chosen")
        m.d.sync += pick.valid.eq(eligible.any() & ~self.drain & ~self.closed)
        with m.If(eligible.any()):
            m.d.sync += [
                pick.bank.eq(Cat(chosen.of(plane) for plane in waiting.bank_planes)),
                leaving.index.eq(Cat(chosen.of(plane) for plane in waiting.index_planes)),
                leaving.below.eq(leaving.close_gap(chosen.below())),
            ]

    def _request_rows(self, m: Module, waiting: _Waiting, banks: _Banks, leaving: _Leaving) -> _RowRequests:
        """Row requests: a bank is chosen in one cycle, the row of its oldest request in the next."""
        need_row = Signal(BANKS)
        row_choice = Signal(BANKS)
        row_above = Signal(BANKS)
        wanted = Signal(BankEvent)
        wanted_bank = waiting.of_bank(m, wanted.bank, "wanted_bank")
        wants = Signal(self._depth)
        oldest = GroupedLowest(m, wants, "oldest")
        m.d.comb += [
            need_row.eq(
                banks.has_waiting
                & ~banks.has_hits
                & ~banks.row_pending
                & ~banks.occupied
                & ~(self.drain | self.closed).replicate(BANKS)
            ),
            row_choice.eq(rotating(need_row, row_above)),
            self.row_request.valid.eq(wanted.valid),
            self.row_request.bank.eq(wanted.bank),
            self.quiet.eq(~leaving.pick.valid & ~wanted.valid),
        ]
        m.d.sync += wanted.valid.eq(need_row.any())
        with m.If(need_row.any()):
            m.d.sync += [
                wanted.bank.eq(encode(row_choice)),
                row_above.eq(above(row_choice)),
            ]
        with m.If(wanted.valid):
            m.d.comb += [
                wants.eq(waiting.valid & wanted_bank),
                self.row_request.row.eq(Cat(oldest.of(plane) for plane in waiting.row_planes)),
            ]
        return _RowRequests(row_choice, wanted, wanted_bank)

    def _follow_events(self, m: Module, waiting: _Waiting, leaving: _Leaving, rows: _RowRequests) -> _Outlook:
        """What an opened row, a released bank and a row request change for the waiting requests, where they are."""
        depth, valid, row_planes = self._depth, waiting.valid, waiting.row_planes
        activated_bank = waiting.of_bank(m, self.activated.bank, "activated_bank")
        released_bank = waiting.of_bank(m, self.released.bank, "released_bank")
        hit_now = Signal(depth)
        free_now = Signal(depth)
        other_row = row_planes[0] ^ self.activated.row[0].replicate(depth)
        for k in range(1, ROW_BITS):
            other_row = other_row | (row_planes[k] ^ self.activated.row[k].replicate(depth))
        opened = Signal(depth)
        with m.If(self.activated.valid):
            m.d.comb += opened.eq(valid & activated_bank & ~other_row)
        m.d.comb += [
            hit_now.eq(
                ((waiting.hit & ~(rows.same_bank & rows.wanted.valid.replicate(depth))) | opened)
                & ~self.closed.replicate(depth)
            ),
            free_now.eq(
                (waiting.free | (released_bank & valid & self.released.valid.replicate(depth)))
                & ~(leaving.same_bank & leaving.remove.replicate(depth))
            ),
        ]
        return _Outlook(hit_now, free_now)

    def _look_at_new(self, m: Module, banks: _Banks, leaving: _Leaving) -> _Outlook:
        """The same events, for the request that is inserted in this cycle."""
        insert_hit = Signal()
        insert_free = Signal()
        m.d.comb += [
            insert_hit.eq(
                ~self.closed
                & (
                    (
                        self.lookup_open
                        & (self.lookup_row == self.insert_row)
                        & ~banks.row_pending.bit_select(self.insert_bank, 1)
                    )
                    | (
                        self.activated.valid
                        & (self.activated.bank == self.insert_bank)
                        & (self.activated.row == self.insert_row)
                    )
                )
            ),
            insert_free.eq(
                (
                    ~banks.occupied.bit_select(self.insert_bank, 1)
                    | (self.released.valid & (self.released.bank == self.insert_bank))
                )
                & ~(leaving.remove & (leaving.pick.bank == self.insert_bank))
            ),
        ]
        return _Outlook(insert_hit, insert_free)

    def _move(self, m: Module, waiting: _Waiting, leaving: _Leaving, now: _Outlook, new: _Outlook) -> None:
        """Requests close the gap of the one that goes, and the new one takes the place behind the last."""
        depth, valid, remove, close_gap = self._depth, waiting.valid, leaving.remove, leaving.close_gap
        place = Signal(depth)
        tail = ~valid & ((valid << 1) | 1)[:depth]
        with m.If(self.insert):
            m.d.comb += place.eq(Mux(remove, tail >> 1, tail) if depth > 1 else 1)
        with m.If(self.insert | remove):
            m.d.sync += valid.eq(close_gap(valid) | place)
            fields = (
                (waiting.bank_planes, self.insert_bank),
                (waiting.row_planes, self.insert_row),
                (waiting.index_planes, self.insert_index),
            )
            for planes, value in fields:
                for plane, bit in zip(planes, value, strict=True):
                    m.d.sync += plane.eq(close_gap(plane) | (place & bit.replicate(depth)))
        m.d.sync += [
            waiting.hit.eq(close_gap(now.hit) | (place & new.hit.replicate(depth))),
            waiting.free.eq(close_gap(now.free) | (place & new.free.replicate(depth))),
        ]

    def _follow_banks(
        self,
        m: Module,
        waiting: _Waiting,
        banks: _Banks,
        leaving: _Leaving,
        rows: _RowRequests,
        now: _Outlook,
        new: _Outlook,
    ) -> None:
        """What waits, is at its bank, or is asked for, bank by bank."""
        depth, below, remove = self._depth, leaving.below, leaving.remove
        left = Signal(depth)
        removed = Signal(BANKS)
        inserted = Signal(BANKS)
        requested = Signal(BANKS)
        with m.If(remove):
            m.d.comb += [
                left.eq(waiting.valid & leaving.same_bank & ~(~below & ((below << 1) | 1)[:depth])),
                removed.eq(_one_hot(leaving.pick.bank)),
            ]
        with m.If(self.insert):
            m.d.comb += inserted.eq(_one_hot(self.insert_bank))
        with m.If(rows.wanted.valid):
            m.d.comb += requested.eq(_one_hot(rows.wanted.bank))
        activated = Mux(self.activated.valid, _one_hot(self.activated.bank), 0)
        released = Mux(self.released.valid, _one_hot(self.released.bank), 0)
        m.d.sync += [
            banks.has_waiting.eq((banks.has_waiting & ~(removed & (~left.any()).replicate(BANKS))) | inserted),
            banks.has_hits.eq(
                (
                    (banks.has_hits & ~(removed & (~(left & now.hit).any()).replicate(BANKS)) & ~requested)
                    | (inserted & new.hit.replicate(BANKS))
                    | activated
                )
                & ~self.closed.replicate(BANKS)
            ),
            banks.occupied.eq((banks.occupied & ~released) | removed),
            banks.row_pending.eq(((banks.row_pending & ~activated) | rows.choice) & ~self.closed.replicate(BANKS)),
        ]

    def _bound_wait(self, m: Module, waiting: _Waiting, leaving: _Leaving) -> None:
        """How long the oldest request stands at the head."""
        head_wait = Signal(range(HEAD_WAIT + 1))
        m.d.comb += self.stuck.eq(head_wait == HEAD_WAIT)
        with m.If(~waiting.valid[0] | (leaving.remove & ~leaving.below[0])):
            m.d.sync += head_wait.eq(0)
        with m.Elif(~self.stuck):
            m.d.sync += head_wait.eq(head_wait + 1)
