"""The DRAM queue by itself: in every cycle it does what a list of requests does, whatever the banks do meanwhile, and
a request that waits too long at the head keeps new ones out until it has left."""

import os
import random
from dataclasses import dataclass, field

import cocotb
import pytest
from amaranth import Module
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration
from hw.geometry import BANKS, ROW_BITS
from hw.memory_controller.dram_queue import HEAD_WAIT, BankEvent, DramQueue, RowEvent
from tb.drivers.clock import start
from tb.drivers.payload import pack, unpack
from tb.runner import caught, simulate

BANK, ROW, INDEX = 5, 0x1234, 3
INPUTS = ("insert", "lookup_open", "lookup_row", "activated", "released", "drain", "closed")


@cocotb.test()
async def a_head_that_waits_keeps_others_out(dut):
    await start(dut, INPUTS)
    dut.insert_bank.value, dut.insert_row.value, dut.insert_index.value = BANK, ROW, INDEX
    dut.insert.value = 1
    await RisingEdge(dut.clk)
    dut.insert.value = 0

    asked = []
    for _ in range(HEAD_WAIT):
        await ReadOnly()
        assert not int(dut.stuck.value), "kept out too early"
        assert not int(dut.to_bank.value) & 1, "sent to a closed bank"
        if int(dut.row_request.value) & 1:
            asked.append(int(dut.row_request.value))
        await RisingEdge(dut.clk)
    assert asked == [pack(RowEvent, valid=1, bank=BANK, row=ROW)]
    for _ in range(50):
        await ReadOnly()
        assert int(dut.stuck.value)
        await RisingEdge(dut.clk)

    dut.activated.value = asked[0]
    await RisingEdge(dut.clk)
    dut.activated.value = 0
    for _ in range(2):
        await ReadOnly()
        if int(dut.to_bank.value) & 1:
            break
        await RisingEdge(dut.clk)
    assert int(dut.to_bank.value) == pack(BankEvent, valid=1, bank=BANK)
    assert int(dut.to_bank_index.value) == INDEX
    await RisingEdge(dut.clk)
    await ReadOnly()
    assert not int(dut.stuck.value)


@dataclass(eq=False)
class Request:
    """One that waits."""

    bank: int
    row: int
    index: int


@dataclass
class Events:
    """What the queue is told in a cycle."""

    insert: Request | None = None
    activated: tuple[int, int] | None = None
    released: int | None = None
    drain: bool = False
    closed: bool = False


@dataclass
class QueueModel:
    """The queue as a list of requests, oldest first, with each bank's open row, the banks that have a request
    (`occupied`), and those whose row is being opened. `pick` goes next, the row of bank `asks` is asked for next."""

    requests: list[Request] = field(default_factory=list)
    open_rows: dict[int, int] = field(default_factory=dict)
    occupied: set[int] = field(default_factory=set)
    opening: set[int] = field(default_factory=set)
    pick: Request | None = None
    asks: int | None = None
    last_asked: int = -1
    head_wait: int = 0

    def goes(self) -> Request | None:
        """The request that is handed to its bank in this cycle."""
        return self.pick if self.pick and self.pick.bank not in self.opening else None

    def asked(self) -> tuple[int, int] | None:
        """The bank and the row that are asked for in this cycle."""
        if self.asks is None:
            return None
        return self.asks, next(request.row for request in self.requests if request.bank == self.asks)

    def is_quiet(self) -> bool:
        """Whether nothing is on its way to a bank."""
        return self.pick is None and self.asks is None

    def _is_hit(self, request: Request) -> bool:
        return self.open_rows.get(request.bank) == request.row

    def _next_pick(self) -> Request | None:
        """The oldest row hit of a free bank, which that of the last pick is not."""
        busy = self.occupied | ({self.pick.bank} if self.pick else set())
        return next((one for one in self.requests if self._is_hit(one) and one.bank not in busy), None)

    def _next_asks(self) -> int | None:
        """The next bank, by turns, in which requests wait, but none for the row that is open."""
        hits = {request.bank for request in self.requests if self._is_hit(request)}
        needs = {request.bank for request in self.requests} - hits - self.opening - self.occupied
        return min(needs, key=lambda bank: (bank - self.last_asked - 1) % BANKS, default=None)

    def cycle(self, events: Events) -> None:
        """One cycle with these events."""
        goes, held = self.goes(), events.drain or events.closed
        pick, asks = (None, None) if held else (self._next_pick(), self._next_asks())
        stays = self.requests and goes is not self.requests[0]
        self.head_wait = min(self.head_wait + 1, HEAD_WAIT) if stays else 0
        if self.asks is not None:
            self.open_rows.pop(self.asks, None)
        if events.activated:
            bank, self.open_rows[bank] = events.activated
            self.opening.discard(bank)
        if events.closed:
            self.open_rows.clear()
            self.opening.clear()
        self.occupied.discard(events.released)
        if goes:
            self.occupied.add(goes.bank)
            self.requests.remove(goes)
        if events.insert:
            self.requests.append(events.insert)
        if asks is not None:
            self.opening.add(asks)
            self.last_asked = asks
        self.pick, self.asks = pick, asks


@dataclass(frozen=True)
class Phase:
    """So many `cycles`: how many `banks` are asked for how many `rows`, up to which share the queue is filled, and how
    likely it is in a cycle that a request comes, that a row is opened, that a bank is released, and that all banks
    begin to be closed."""

    banks: int
    rows: int
    fill: float
    insert: float
    activate: float
    release: float
    drain: float = 0.0
    cycles: int = 400

    @classmethod
    def any(cls) -> "Phase":
        """Any phase."""
        rate = random.choice
        return cls(
            banks=rate((1, 2, 5, BANKS)),
            rows=rate((1, 2, 5)),
            fill=rate((1.0, random.random())),
            insert=rate((0.2, 1.0, 1.0)),
            activate=rate((0.05, 0.5, 1.0)),
            release=rate((0.2, 1.0, 1.0)),
            drain=rate((0.0, 0.02)),
        )


STANDS = Phase(banks=BANKS, rows=5, fill=1.0, insert=1.0, activate=0.0, release=1.0, cycles=HEAD_WAIT + 200)
"""No row is opened, so that the head waits until it keeps others out."""
ENDS = Phase(banks=1, rows=1, fill=1.0, insert=0.0, activate=1.0, release=1.0, cycles=2000)


class Banks:
    """Sixteen banks with rows that open and requests that leave at times of their own, and a refresher."""

    def __init__(self, depth: int, model: QueueModel):
        self._depth = depth
        self._model = model
        self._rows: list[int] = []
        self._asked: dict[int, int] = {}
        self._held: set[int] = set()
        self._drains = False
        self._rests = 0

    def begin(self, phase: Phase) -> None:
        """Rows that differ in one bit from one another. A place without a request has row 0."""
        first = random.choice((0, random.getrandbits(ROW_BITS)))
        self._rows = [first, *(first ^ 1 << bit for bit in random.sample(range(ROW_BITS), phase.rows - 1))]

    def events(self, phase: Phase) -> Events:
        """Those of the next cycle."""
        model = self._model
        events = Events(drain=self._drains)
        if self._drains and model.is_quiet() and not model.occupied and not self._rests:
            events.closed = True
            self._asked.clear()
            self._rests = random.randrange(1, 20)
        elif self._rests:
            self._rests -= 1
            self._drains = events.drain = bool(self._rests)
        elif random.random() < phase.drain:
            self._drains = True
        if self._asked and not self._drains and random.random() < phase.activate:
            bank = random.choice(list(self._asked))
            events.activated = bank, self._asked.pop(bank)
        if self._held and random.random() < phase.release:
            events.released = random.choice(sorted(self._held))
            self._held.discard(events.released)
        full = len(model.requests) >= max(1, round(self._depth * phase.fill)) or model.head_wait == HEAD_WAIT
        if not full and random.random() < phase.insert:
            taken = {request.index for request in model.requests}
            index = random.choice([index for index in range(self._depth) if index not in taken])
            # One in ten is for any bank, which has one or two at any places then.
            bank = random.randrange(phase.banks if random.random() < 0.9 else BANKS)
            events.insert = Request(bank, random.choice(self._rows), index)
        return events

    def lookup(self, bank: int) -> tuple[int, int]:
        """Whether `bank` is open, and its row. While another is asked for that may be either already."""
        row = self._model.open_rows.get(bank)
        if row is None or bank in self._model.opening:
            return (random.getrandbits(1) if bank in self._model.opening else 0), random.choice(self._rows)
        return 1, row

    def follow(self) -> None:
        """What the queue does in this cycle."""
        if asked := self._model.asked():
            self._asked[asked[0]] = asked[1]
        if goes := self._model.goes():
            self._held.add(goes.bank)


def compare(dut, model: QueueModel) -> None:
    """All outputs with what the model says."""
    goes, asked = model.goes(), model.asked()
    sent = unpack(BankEvent, int(dut.to_bank.value))
    assert sent["valid"] == bool(goes), f"a request goes: {goes} expected"
    if goes:
        assert (sent["bank"], int(dut.to_bank_index.value)) == (goes.bank, goes.index), f"{goes} expected to go"
    row = unpack(RowEvent, int(dut.row_request.value))
    assert row["valid"] == (asked is not None), f"a row is asked for: {asked} expected"
    if asked:
        assert (row["bank"], row["row"]) == asked, "another row is asked for"
    assert int(dut.quiet.value) == model.is_quiet(), "quiet"
    assert int(dut.stuck.value) == (model.head_wait == HEAD_WAIT), "stuck"


def drive(dut, events: Events, banks: Banks) -> None:
    """Have these events come; what none is told of is anything."""
    request = events.insert or Request(random.randrange(BANKS), random.getrandbits(ROW_BITS), 0)
    dut.insert.value = events.insert is not None
    dut.insert_bank.value, dut.insert_row.value, dut.insert_index.value = request.bank, request.row, request.index
    dut.lookup_open.value, dut.lookup_row.value = banks.lookup(request.bank)
    bank, row = events.activated or (random.randrange(BANKS), random.getrandbits(ROW_BITS))
    dut.activated.value = pack(RowEvent, valid=events.activated is not None, bank=bank, row=row)
    bank = random.randrange(BANKS) if events.released is None else events.released
    dut.released.value = pack(BankEvent, valid=events.released is not None, bank=bank)
    dut.drain.value, dut.closed.value = events.drain, events.closed


@cocotb.test()
async def it_does_what_a_list_does(dut):
    """Requests of any banks and rows, at any rate, through phases in which banks are slow, fast or closed."""
    await start(dut, INPUTS)
    depth, phases = int(os.environ["DEPTH"]), int(os.environ["PHASES"])
    model = QueueModel()
    banks = Banks(depth, model)
    longest = inserted = 0
    for phase in (*(Phase.any() for _ in range(phases)), STANDS, *(Phase.any() for _ in range(5)), ENDS):
        banks.begin(phase)
        for _ in range(phase.cycles):
            events = banks.events(phase)
            drive(dut, events, banks)
            await ReadOnly()
            compare(dut, model)
            banks.follow()
            model.cycle(events)
            inserted += events.insert is not None
            longest = max(longest, len(model.requests))
            await RisingEdge(dut.clk)
        if phase is STANDS:
            assert model.head_wait == HEAD_WAIT
    assert longest == depth
    assert not model.requests, f"{len(model.requests)} of {inserted} requests are not served"


def test_a_head_that_waits_keeps_others_out():
    simulate(DramQueue(Configuration()), "dram_queue", __name__, "a_head_that_waits_keeps_others_out")


def run(queue: type[DramQueue], name: str, depth: int, phases: int) -> None:
    environment = {"DEPTH": str(depth), "PHASES": str(phases)}
    simulate(
        queue(Configuration(dram_queue_depth=depth)),
        name,
        __name__,
        "it_does_what_a_list_does",
        environment=environment,
    )


@pytest.mark.parametrize(("depth", "phases"), [(1, 30), (4, 30), (64, 120)])
def test_it_does_what_a_list_does(depth, phases):
    run(DramQueue, "dram_queue", depth, phases)


class AsksOneBank(DramQueue):
    """A wrong queue, which asks bank 0 for every row."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.row_request.bank.eq(0)
        return m


class ForgetsTheDrain(DramQueue):
    """A wrong queue, which is quiet while a request is on its way."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.quiet.eq(1)
        return m


@pytest.mark.parametrize(("queue", "found"), [(AsksOneBank, "another row is asked for"), (ForgetsTheDrain, "quiet")])
def test_a_wrong_queue_is_caught(queue, found):
    with caught(found):
        run(queue, "dram_queue_wrong", 4, 30)
