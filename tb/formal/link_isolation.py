"""Proof that nothing that comes over a link is written outside the regions that are programmed."""

from amaranth import Cat, Signal
from amaranth.hdl import Array, Const, Value
from amaranth.lib.data import View

from hw.link.packet_writer import PacketWriter, buffered_header
from hw.link.port_receiver import PortReceiver
from hw.link.wire import header_layout
from hw.memory_window import in_window
from tb.formal.bench import Bench, implies
from tb.formal.link_sizes import FewSends
from tb.formal.proof import proof

RANGES, PACKETS = 4, 2
SMALL = FewSends(
    va_bits=36,
    ranges=RANGES,
    wg_bits=9,
    epoch_bits=4,
    links=1,
    dma_packets=1,
    store_packets=1,
    link_receive_packets=PACKETS,
    link_sequence_bits=4,
    link_repeat=1,
)


@proof(
    block="link_port",
    claim="every sector that an arrived packet writes lies between base and limit of a valid range, and in the window",
    scope="4 ranges, 2 receive buffers; any flits at any time, clean or not, over any number of epochs and sessions; "
    "any words of the range table, programmed while the node is not armed, nor in the next cycle, and no accepted "
    "packet waits; any window that does not change; addresses of 36 bits",
    bug="match.hit stuck at 1: a packet to an address outside all ranges is taken for one in the first",
    bug_depth=16,
    cover_depth=18,
    depth=1,
)
def link_isolation(b: Bench) -> None:
    m = b.m
    receiver, dut = PortReceiver(SMALL), PacketWriter(SMALL)
    arrives = b.block(receiver, "receiver")
    block = b.block(dut, stuck={"match.hit": 1})
    b.free(receiver.timers, receiver.valid, receiver.clean, receiver.flit, receiver.granted, receiver.notice)
    b.free(dut.ranges, dut.rank, dut.peer, dut.epoch, dut.armed, dut.requests.ready)
    window = b.any_const(32, "window")
    m.d.comb += [
        receiver.epoch.eq(dut.epoch),
        receiver.freed.eq(dut.freed),
        Value.cast(dut.window).eq(window),
        dut.data.eq(receiver.flit.data),
        *(getattr(dut, name).eq(getattr(receiver, name)) for name in ("looks", "header", "sector", "place", "buffer")),
        dut.complete.eq(receiver.complete),
    ]
    b.assume(implies(dut.ranges.valid, ~dut.armed & ~dut.writing))
    b.assume(implies(dut.armed, ~b.past(dut.ranges.valid, "programmed_before")))
    armed_before = b.past(dut.armed, "armed_before")
    epoch_before = b.past(dut.epoch, "epoch_before")
    b.assume(implies(dut.armed & armed_before, dut.epoch == epoch_before))

    ranges = [
        [block.signal(f"match.{name}_{number}") for name in ("valid", "base", "limit")] for number in range(RANGES)
    ]

    def matches(va: Value) -> Value:
        return Cat(valid & (va >= base) & (va < limit) for valid, base, limit in ranges)

    def inside(number: Value, va: Value, length: Value) -> Value:
        """Whether all sectors from `va` to `va + length` lie in range `number` and the window."""
        last = va + length
        valid, base, limit = (Array(bounds)[number] for bounds in zip(*ranges))
        in_memory = in_window(SMALL, dut.window, va) & in_window(SMALL, dut.window, last[: len(va)])
        return valid & (va >= base) & (last < limit) & in_memory

    request = dut.requests.payload
    b.claim(implies(dut.requests.valid, matches(request.va).any() & in_window(SMALL, dut.window, request.va)))

    kept = buffered_header(SMALL)
    header = block.view("header", header_layout(SMALL))
    begun, expected, freed = arrives.signal("begun"), arrives.signal("expected"), arrives.signal("freed")
    following = arrives.signal("following")
    first, second, bad_before = block.signal("first"), block.signal("second"), block.signal("bad_before")
    index_before = block.signal("index_before")
    last_va, wraps = block.signal("last_va"), block.signal("wraps")
    found, within = block.signal("match.matched"), block.signal("match.within")
    place = block.component("match").index
    in_time = dut.armed & (header.epoch == dut.epoch)
    end = header.va + header.length
    good = ~bad_before & in_time

    # The look-up of the cycle before, of the first sector or the last.
    for looked, va in ((first & in_time, header.va), (second & good, last_va)):
        b.invariant(implies(looked, (found == matches(va).any()) & (within == in_window(SMALL, dut.window, va))))
        b.invariant(implies(looked & found, matches(va).bit_select(place, 1)))
    b.invariant(implies(first | second, Cat(last_va, wraps) == end))
    b.invariant(~(first & second))
    b.invariant(implies(first, begun & (following == 0)))
    b.invariant(implies(second & good, inside(index_before, header.va, Const(0, 3))))
    b.invariant(implies(begun & ~first & ~second & good, inside(index_before, header.va, header.length)))

    stored, fetch_slot = block.signal("stored"), block.signal("fetch_slot")
    refused, fetched, active = block.signal("refused"), block.signal("fetched"), block.signal("active")
    in_use = (expected - freed)[: len(expected)]
    b.invariant((in_use == stored + fetched + active) & (in_use <= PACKETS))
    b.invariant(implies(stored != 0, fetch_slot == (expected - stored)[:1]))
    for slot in range(PACKETS):
        word = View(kept, block.word("headers", slot))
        waits = ((slot - fetch_slot)[:1] < stored) & ~refused.bit_select(slot, 1)
        b.invariant(implies(waits, inside(word.range, word.va, word.length)))
    read = View(kept, block.read_data("headers"))
    b.invariant(implies(fetched, inside(read.range, read.va, read.length)))
    current, sector = block.view("current", kept), block.signal("sector")
    b.invariant(
        implies(active, (sector <= current.length) & inside(current.range, current.va, (current.length - sector)[:3]))
    )
    waiting = Signal(2)
    m.d.comb += waiting.eq(
        fetched
        + active
        + sum(
            ((slot - fetch_slot)[:1] < stored) & ~refused.bit_select(slot, 1)  # Of those only some will be written.
            for slot in range(PACKETS)
        )
    )
    b.invariant(block.signal("unwritten") == waiting)

    b.cover(dut.requests.valid & (request.va == ranges[1][2] - 1) & (current.length == 1))
    b.cover(dut.fault_valid & second)
