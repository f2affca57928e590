"""Proofs that no requester leaves the regions that are programmed, and that an abort does not wait for a peer."""

from amaranth import Array, Cat, Const, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib.data import StructLayout, View

from hw.abort import EpochAbort
from hw.address_map import (
    SLOTS,
    AddressMap,
    AddressMapParameters,
    Destination,
    access_layout,
    decision_layout,
)
from hw.config import Configuration
from hw.dma.engine import DmaEngine, DmaParameters
from hw.dma.packet_reader import read_layout
from hw.dma.transfer import Geometry
from hw.drain_bound import DrainBound
from hw.link.port_sender import PortSender
from hw.link.wire import sends_layout
from hw.memory_window import ends_in_window, in_window
from hw.messages import Messages
from hw.range_table import Control, Word
from hw.tracker.spill import SpillPort
from tb.formal.bench import Bench, implies
from tb.formal.link_sizes import FewSends
from tb.formal.proof import proof

SMALL = FewSends(
    epoch_bits=4, links=1, dma_packets=1, store_packets=1, link_receive_packets=2, link_sequence_bits=4, link_repeat=1
)


@proof(
    block="spill_port",
    claim="every request to memory lies in the table, `sectors` sectors from `base` on, and in the window; a request "
    "beyond is answered, if it is a fetch, and leaves a fault unless one waits",
    scope="1 channel; any table and window that do not change, any requests two cycles later",
    bug="inside stuck at 1: a table beyond the memory is taken for one in it",
    bug_depth=8,
    cover_depth=10,
    depth=2,
)
def spill_isolation(b: Bench) -> None:
    m = b.m
    config = Configuration()
    dut = SpillPort(config)
    block = b.open_block(dut, stuck={"inside": 1})
    base, sectors = b.any_const(config.va_sector_bits, "base"), b.any_const(config.spill_sector_bits, "sectors")
    window = b.any_const(32, "window")
    b.assume((dut.base == base) & (dut.sectors == sectors) & (dut.window.as_value() == window))
    age = Signal(2)
    with m.If(~age.all()):
        m.d.sync += age.eq(age + 1)
    b.assume(implies(dut.requests.valid, age == 3))

    end = Signal(config.va_sector_bits + 1)
    whole = Signal()
    m.d.comb += [
        end.eq(base + sectors),
        whole.eq(
            (sectors != 0)
            & (end < 1 << config.va_sector_bits)
            & in_window(config, dut.window, base)
            & in_window(config, dut.window, (end - 1)[: config.va_sector_bits])
        ),
    ]
    request = dut.memory[0]
    va = request.payload.va
    b.claim(implies(request.valid, whole & (va >= base) & (va < end) & in_window(config, dut.window, va)))
    held = block.view("held", Messages(config).spill_request)
    held_valid, refused = block.signal("held_valid"), block.signal("refused")
    was_refused = b.past(refused, "was_refused")
    had_fault = b.past(dut.faults.valid & ~dut.faults.ready, "had_fault")
    b.claim(implies(was_refused & ~had_fault, dut.faults.valid))
    b.invariant(implies(age >= 1, block.signal("end") == (end - 1)[: len(end)]))
    b.invariant(implies((age >= 2) & (sectors != 0), block.signal("inside") == whole))
    b.invariant(implies(age != 3, ~held_valid & ~refused))
    b.invariant(~(held_valid & refused))
    b.invariant(implies(held_valid, whole & (held.index[1:] < sectors)))
    b.cover(request.valid & (va == end - 1) & (sectors == 5))
    b.cover(was_refused & dut.faults.valid)


@proof(
    block="address_map",
    claim="every access that goes on to this GPU's memory, or to a peer, was between base and limit of a valid range, "
    "and in the window, when it was taken",
    scope="4 ranges, 1 channel; any words of the range table, programmed in any cycle; any window that does not "
    "change, any accesses",
    bug="hit stuck at 1: an access outside all ranges is taken for one in the first",
    bug_depth=14,
    cover_depth=14,
    depth=1,
)
def map_isolation(b: Bench) -> None:
    m = b.m
    config = AddressMapParameters(ranges=4, wg_bits=9)
    dut = AddressMap(config)
    block = b.open_block(dut, stuck={"match.hit": 1})
    occupancy, decided, head = block.signal("occupancy"), block.signal("decided"), block.signal("head")
    compared, matched = block.signal("compared"), block.signal("matched")
    taken, found = block.view("taken", access_layout(config)), block.view("found", access_layout(config))
    window = b.any_const(32, "window")
    b.assume(dut.window.as_value() == window)
    ranges = [[block.signal(f"match.{name}_{number}") for name in ("valid", "base", "limit")] for number in range(4)]

    def in_range(va: Value) -> Value:
        return Cat(valid & (va >= base) & (va < limit) for valid, base, limit in ranges).any()

    def allowed(va: Value) -> Value:
        return in_range(va) & in_window(config, dut.window, va)

    request = dut.requests
    came = Array(Signal.like(request.payload.va, name=f"came_{slot}") for slot in range(SLOTS))
    was_allowed = Signal(SLOTS)
    """Of the access in each slot: its address, and whether the ranges had it when it was taken."""
    tail = block.signal("tail")
    with m.If(request.valid & request.ready):
        m.d.sync += [
            came[tail].eq(request.payload.va),
            was_allowed.bit_select(tail, 1).eq(allowed(request.payload.va)),
        ]

    def of_slot(slot: Value, va: Value) -> Value:
        return (va == came[slot]) & was_allowed.bit_select(slot, 1)

    for port in (dut.local, dut.remote):
        b.claim(implies(port.valid, of_slot(head, port.payload.va)))
    b.invariant((occupancy == decided + matched + compared) & (occupancy <= SLOTS))
    b.invariant(tail == (head + occupancy)[:2])
    b.invariant(implies(compared, taken.slot == (head + decided + matched)[:2]))
    b.invariant(implies(matched, found.slot == (head + decided)[:2]))
    b.invariant(implies(compared, taken.va == came[taken.slot]))
    b.invariant(implies(compared, block.component("match").hit == was_allowed.bit_select(taken.slot, 1)))
    b.invariant(implies(matched, found.va == came[found.slot]))
    b.invariant(implies(matched & block.signal("hit"), was_allowed.bit_select(found.slot, 1)))
    for slot in range(SLOTS):
        kept = View(decision_layout(config), block.word("decisions", slot))
        leaves = (kept.destination == Destination.LOCAL) | (kept.destination == Destination.REMOTE)
        b.invariant(implies(((slot - head)[:2] < decided) & leaves, of_slot(Const(slot, 2), kept.va)))
    b.cover(dut.refused_reads.valid)
    b.cover(dut.local.valid & (dut.local.payload.va == ranges[1][2] - 1))
    b.cover(dut.local.valid & ~allowed(dut.local.payload.va))


@proof(
    block="dma_engine",
    claim="every read lies between base and limit of a valid range, and in the window",
    scope="4 ranges, 2 packet slots, 1 channel, 1 port, a block that waits; any words of the range table, programmed "
    "while the engine is idle and the node not armed, any blocks and memory, any window that does not change",
    bug="inside stuck at 1: a row is not looked at before it is walked",
    bug_depth=16,
    cover_depth=18,
    depth=1,
)
def dma_isolation(b: Bench) -> None:
    config = DmaParameters(ranges=4, dma_packets=2, store_packets=2, links=1, dma_blocks=1, wg_bits=9)
    dut = DmaEngine(config)
    block = b.open_block(dut, stuck={"walker_0.inside": 1})
    b.assume(implies(dut.ranges.valid, ~dut.armed & dut.idle))
    window = b.any_const(32, "window")
    b.assume(dut.window.as_value() == window)
    walker = block.component("walker_0")
    walk, geometry = block.view("walker_0.walk", walker._walk_layout()), block.view("walker_0.geometry", Geometry)
    walking, last_row = block.signal("walker_0.walking"), block.signal("walker_0.last_row")
    number = walker.label.range
    chosen = block.component("walker_0").transfers.payload.label.range

    def bound(name: str, index: Value) -> Value:
        entry = block.entry("bounds", index)
        return Cat(entry[Word[f"{name}_LOW"]], entry[Word[f"{name}_HIGH"]])[: config.va_sector_bits]

    def control_of(index: Value) -> View:
        return Control(block.entry("bounds", index)[Word.CONTROL])

    def allowed(read: View) -> Value:
        inside = (read.va >= bound("BASE", read.range)) & (read.va < bound("LIMIT", read.range))
        return control_of(read.range).valid & inside & in_window(config, dut.window, read.va)

    base, limit, control = bound("BASE", number), bound("LIMIT", number), control_of(number)
    in_memory = in_window(config, dut.window, base) & ends_in_window(config, dut.window, limit)
    bits = config.va_sector_bits
    sends = sends_layout(config).members
    layout = StructLayout({"valid": 1, **sends, "base": bits, "limit": bits, "body": 12, "right": 12})
    found = block.view("found", layout)
    read = dut.reads[0]
    va = read.payload.va
    b.claim(implies(read.valid, allowed(read.payload)))
    level, first = block.signal("reads_0.level"), block.signal("reads_0.first")
    b.invariant((level <= 2) & (block.signal("reads_0.last") == (first + level)[:1]))
    for place in range(2):
        waits = (level == 2) | ((level == 1) & (first == place))
        b.invariant(implies(waits, allowed(View(read_layout(config), block.word("reads_0.memory", place)))))
    row = Mux(geometry.row_sectors == 0, 1, geometry.row_sectors)
    left = Mux(walk.sectors_left == 0, 1, walk.sectors_left)
    b.invariant(implies(walking, control.valid & (last_row + row <= limit)))
    b.invariant(implies(walking, in_memory))
    b.invariant(implies(walking, (walk.row_va >= base) & (walk.tile_va >= base)))
    b.invariant(implies(walking, (walk.va >= base) & (walk.va + left <= limit)))
    b.invariant(implies(walking, walk.row_va <= last_row))
    chosen_valid = block.signal("chosen_valid")
    for name in ("base", "limit"):
        b.invariant(implies(chosen_valid, found[name] == bound(name.upper(), chosen)))
    b.invariant(implies(chosen_valid, found.valid == control_of(chosen).valid))
    b.invariant(implies(chosen_valid, (found.body != 0) & (found.right != 0)))
    b.invariant(implies(chosen_valid, ~walking))
    b.invariant((block.signal("chosen_port") == 0) & (block.signal("reader.turn") == 0))
    b.cover(read.valid & (va == bound("LIMIT", read.payload.range) - 1) & (geometry.row_sectors == 3))
    b.cover(dut.faults.valid & (dut.faults.payload.va == limit))


@proof(
    block="node",
    claim="an epoch that runs and in which nothing has moved for `watchdog` cycles ends in the second cycle after; one "
    "whose number a peer has told ends at once; the notice is then its number; a fault tells of the watchdog",
    scope="2 ports; watchdog from 1 to 6; any commands at any time; what has ended does not run in the next cycle",
    bug="expired stuck at 0: the watchdog sleeps",
    bug_depth=14,
    cover_depth=14,
    depth=3,
)
def abort_ends_the_epoch(b: Bench) -> None:
    m = b.m
    config = Configuration(epoch_bits=4)
    dut = EpochAbort(config)
    block = b.open_block(dut, stuck={"expired": 0})
    watchdog = b.any_const(3, "watchdog_cycles")
    b.assume((watchdog >= 1) & (watchdog <= 6) & (dut.watchdog == watchdog))
    still = Signal(4)
    """Cycles before this one in which nothing moved."""
    with m.If(dut.running & ~dut.moved):
        m.d.sync += still.eq(still + 1)
    with m.Else():
        m.d.sync += still.eq(0)
    ended = b.past(dut.ends, "ended_before")
    b.assume(implies(dut.running, dut.active & ~ended))
    b.claim(implies(dut.active & dut.running & (still >= watchdog), dut.ends))
    told = (dut.heard[0] != 0) & (dut.heard[0] == dut.number)
    b.claim(implies(dut.active & told, dut.ends))
    number = b.past(dut.number, "number_before")
    b.claim(implies(ended, (dut.notice == number) & (dut.ended == number)))
    by_watchdog = b.past(dut.ends & dut.running & (still >= watchdog), "by_watchdog")
    b.claim(implies(by_watchdog, dut.faults.valid))
    b.invariant(block.signal("still") == still)
    b.invariant(still <= watchdog + 1)
    b.invariant(implies(still > watchdog, ended))
    b.invariant(implies(still >= watchdog, block.signal("expired")))
    b.cover(by_watchdog & (watchdog == 5))
    b.cover(ended & (dut.notice == 3) & ~dut.cause.watchdog)


@proof(
    block="node",
    claim="after `limit` cycles of waiting ports give up in the next cycle of it",
    scope="limits from 1 to 5",
    bug="waited stuck at 0: the wait has no end",
    bug_depth=12,
    cover_depth=10,
    depth=2,
)
def drain_is_bounded(b: Bench) -> None:
    m = b.m
    dut = DrainBound()
    block = b.open_block(dut, stuck={"waited": 0})
    limit = b.any_const(3, "cycles")
    b.assume((limit >= 1) & (limit <= 5) & (dut.limit == limit))
    waited = Signal(4)
    with m.If(dut.waits & ~dut.give_up):
        m.d.sync += waited.eq(Mux(waited == 15, 15, waited + 1))
    with m.Else():
        m.d.sync += waited.eq(0)
    b.claim(implies(dut.waits & (waited >= limit), dut.give_up))
    b.claim(implies(dut.give_up, dut.waits & (waited == limit)))
    b.invariant((waited == block.signal("waited")) & (waited <= limit))
    b.cover(dut.give_up & (limit == 4))


@proof(
    block="link_lane",
    claim="a port that gives up is out of its session in the next cycle, and nothing in its queue counts as sent, so "
    "all of it is discarded",
    scope="a small port; any messages, pushes and timers",
    bug="state stuck at UP: a session has no end",
    bug_depth=14,
    cover_depth=14,
    depth=1,
)
def port_gives_up(b: Bench) -> None:
    dut = PortSender(SMALL)
    block = b.open_block(dut, stuck={"state": 3})
    gave_up = b.past(dut.give_up & ~dut.empty & dut.up, "gave_up")
    b.claim(implies(gave_up, ~dut.up & ~block.component("queue").unacknowledged))
    b.cover(gave_up)


@proof(
    block="link_lane",
    claim="a port whose peer says, outside an epoch, that less has come than it acknowledged is out of its session in "
    "the next cycle; within an epoch nothing that is said of packets ends it, only silence, giving up or a peer in no "
    "session",
    scope="a small port with nothing under way; any messages, pushes and timers",
    bug="state stuck at UP: a session has no end",
    bug_depth=14,
    cover_depth=14,
    depth=1,
)
def port_ends_with_what_was_taken_back(b: Bench) -> None:
    dut = PortSender(SMALL)
    block = b.open_block(dut, stuck={"state": 3})
    queue, said = block.component("queue"), dut.message.state
    heard = dut.message.valid & (said.session == block.signal("session")) & dut.up
    all_came = ~queue.unacknowledged & ~queue.acknowledge
    taken_back = b.past(heard & all_came & (said.expected != queue.first) & dut.discard, "taken_back")
    b.claim(implies(taken_back, ~dut.up))
    other_reasons = dut.give_up | (said.session == 0) | (block.signal("quiet") >= dut.timers.dead)
    lasts = b.past(dut.up & ~other_reasons & ~dut.discard, "lasts")
    b.claim(implies(lasts, dut.up))
    b.cover(taken_back)
