"""The DRAM queue: requests that wait for their bank, in order of age, first-ready first-come.

Position 0 is the oldest request; a request that leaves closes the gap, so age needs no bookkeeping. Every property of
the waiting requests is a vector over the positions (bank, row and index bit by bit), so the comparison with an opened
row and the choice of the oldest candidate are word-wide operations, done only when something happens.
"""

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
        depth = self._depth
        bank_planes = [Signal(depth, name=f"bank_plane_{k}") for k in range(4)]
        row_planes = [Signal(depth, name=f"row_plane_{k}") for k in range(ROW_BITS)]
        index_planes = [Signal(depth, name=f"index_plane_{k}") for k in range(self._index_bits)]
        valid = Signal(depth)
        hit = Signal(depth)
        free = Signal(depth)
        """The request's bank has no request at it. Zero beyond the last request, as every plane is."""
        has_waiting = Signal(BANKS)
        has_hits = Signal(BANKS)
        occupied = Signal(BANKS)
        row_pending = Signal(BANKS)

        def of_bank(bank: Value, name: str) -> Signal:
            """Positions whose request is for `bank` (also empty positions, for bank 0)."""
            match = Signal(depth, name=name)
            different = bank_planes[0] ^ bank[0].replicate(depth)
            for k in range(1, 4):
                different = different | (bank_planes[k] ^ bank[k].replicate(depth))
            m.d.comb += match.eq(~different)
            return match

        def one_hot(bank: Value) -> Value:
            return (1 << bank)[:BANKS]

        pick = Signal(BankEvent)
        pick_index = Signal(self._index_bits)
        pick_below = Signal(depth)
        picked_bank = of_bank(pick.bank, "picked_bank")
        remove = Signal()
        keep = Signal(depth)
        m.d.comb += [
            remove.eq(pick.valid & ~row_pending.bit_select(pick.bank, 1)),
            keep.eq(Mux(remove, pick_below, ~0)),
            self.to_bank.valid.eq(remove),
            self.to_bank.bank.eq(pick.bank),
            self.to_bank_index.eq(pick_index),
        ]

        def close_gap(vector: Value) -> Value:
            return (vector & keep) | ((vector >> 1) & ~keep)

        # Oldest row hit whose bank is free. The bank of the last pick is not free, whatever the vectors still say.
        eligible = Signal(depth)
        m.d.comb += eligible.eq(hit & free & ~(picked_bank & pick.valid.replicate(depth)))
        chosen = GroupedLowest(m, eligible, "chosen")
        m.d.sync += pick.valid.eq(eligible.any() & ~self.drain & ~self.closed)
        with m.If(eligible.any()):
            m.d.sync += [
                pick.bank.eq(Cat(chosen.of(plane) for plane in bank_planes)),
                pick_index.eq(Cat(chosen.of(plane) for plane in index_planes)),
                pick_below.eq(close_gap(chosen.below())),
            ]

        # Row requests: a bank is chosen in one cycle, the row of its oldest request in the next.
        need_row = Signal(BANKS)
        row_choice = Signal(BANKS)
        row_above = Signal(BANKS)
        wanted = Signal(BankEvent)
        wanted_bank = of_bank(wanted.bank, "wanted_bank")
        wants = Signal(depth)
        oldest = GroupedLowest(m, wants, "oldest")
        m.d.comb += [
            need_row.eq(
                has_waiting & ~has_hits & ~row_pending & ~occupied & ~(self.drain | self.closed).replicate(BANKS)
            ),
            row_choice.eq(rotating(need_row, row_above)),
            self.row_request.valid.eq(wanted.valid),
            self.row_request.bank.eq(wanted.bank),
            self.quiet.eq(~pick.valid & ~wanted.valid),
        ]
        m.d.sync += wanted.valid.eq(need_row.any())
        with m.If(need_row.any()):
            m.d.sync += [
                wanted.bank.eq(encode(row_choice)),
                row_above.eq(above(row_choice)),
            ]
        with m.If(wanted.valid):
            m.d.comb += [
                wants.eq(valid & wanted_bank),
                self.row_request.row.eq(Cat(oldest.of(plane) for plane in row_planes)),
            ]

        # What an opened row, a released bank and a row request change for the waiting requests.
        activated_bank = of_bank(self.activated.bank, "activated_bank")
        released_bank = of_bank(self.released.bank, "released_bank")
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
                ((hit & ~(wanted_bank & wanted.valid.replicate(depth))) | opened) & ~self.closed.replicate(depth)
            ),
            free_now.eq(
                (free | (released_bank & valid & self.released.valid.replicate(depth)))
                & ~(picked_bank & remove.replicate(depth))
            ),
        ]

        # The new request.
        insert_hit = Signal()
        insert_free = Signal()
        m.d.comb += [
            insert_hit.eq(
                ~self.closed
                & (
                    (
                        self.lookup_open
                        & (self.lookup_row == self.insert_row)
                        & ~row_pending.bit_select(self.insert_bank, 1)
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
                    ~occupied.bit_select(self.insert_bank, 1)
                    | (self.released.valid & (self.released.bank == self.insert_bank))
                )
                & ~(remove & (pick.bank == self.insert_bank))
            ),
        ]
        place = Signal(depth)
        tail = ~valid & ((valid << 1) | 1)[:depth]
        with m.If(self.insert):
            m.d.comb += place.eq(Mux(remove, tail >> 1, tail) if depth > 1 else 1)
        with m.If(self.insert | remove):
            m.d.sync += valid.eq(close_gap(valid) | place)
            fields = (
                (bank_planes, self.insert_bank),
                (row_planes, self.insert_row),
                (index_planes, self.insert_index),
            )
            for planes, value in fields:
                for plane, bit in zip(planes, value, strict=True):
                    m.d.sync += plane.eq(close_gap(plane) | (place & bit.replicate(depth)))
        m.d.sync += [
            hit.eq(close_gap(hit_now) | (place & insert_hit.replicate(depth))),
            free.eq(close_gap(free_now) | (place & insert_free.replicate(depth))),
        ]

        # The same, bank by bank.
        left = Signal(depth)
        removed = Signal(BANKS)
        inserted = Signal(BANKS)
        requested = Signal(BANKS)
        with m.If(remove):
            m.d.comb += [
                left.eq(valid & picked_bank & ~(~pick_below & ((pick_below << 1) | 1)[:depth])),
                removed.eq(one_hot(pick.bank)),
            ]
        with m.If(self.insert):
            m.d.comb += inserted.eq(one_hot(self.insert_bank))
        with m.If(wanted.valid):
            m.d.comb += requested.eq(one_hot(wanted.bank))
        activated = Mux(self.activated.valid, one_hot(self.activated.bank), 0)
        released = Mux(self.released.valid, one_hot(self.released.bank), 0)
        m.d.sync += [
            has_waiting.eq((has_waiting & ~(removed & (~left.any()).replicate(BANKS))) | inserted),
            has_hits.eq(
                (
                    (has_hits & ~(removed & (~(left & hit_now).any()).replicate(BANKS)) & ~requested)
                    | (inserted & insert_hit.replicate(BANKS))
                    | activated
                )
                & ~self.closed.replicate(BANKS)
            ),
            occupied.eq((occupied & ~released) | removed),
            row_pending.eq(((row_pending & ~activated) | row_choice) & ~self.closed.replicate(BANKS)),
        ]

        head_wait = Signal(range(HEAD_WAIT + 1))
        m.d.comb += self.stuck.eq(head_wait == HEAD_WAIT)
        with m.If(~valid[0] | (remove & ~pick_below[0])):
            m.d.sync += head_wait.eq(0)
        with m.Elif(~self.stuck):
            m.d.sync += head_wait.eq(head_wait + 1)
        return m
