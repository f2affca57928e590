"""Proofs of what holds the lanes of a node together: a ready block goes to each of them once, each ends it once, and
all have sent it before the node is done."""

from amaranth import Cat, Signal
from amaranth.hdl import unsigned

from hw.dma.engine import DmaParameters
from hw.dma.lane_walker import LaneWalker
from hw.memory_window import in_lane
from hw.message_parameters import ChannelParameters
from hw.node_monitor import CollectiveState
from hw.primitives.stream_fork import StreamFork
from tb.formal.bench import Bench, implies
from tb.formal.fault import FaultyPort
from tb.formal.proof import proof

OUTPUTS = 3


@proof(
    block="stream_fork",
    claim="each output takes each payload once: none offers what it has had, the input is taken when all have had it, "
    "and what is offered is what is at the input; an offer stays until it is taken as long as the input's does",
    scope="3 outputs, 8-bit payloads; any handshakes, payloads that are withdrawn included",
    bug="given stuck at 0: who has had a payload is forgotten",
    bug_depth=4,
    cover_depth=6,
)
def fork_gives_everything_once(b: Bench) -> None:
    m = b.m
    dut = StreamFork(unsigned(8), OUTPUTS)
    block = b.open_block(dut, stuck={"given": 0})
    given = block.signal("given")
    source = dut.input
    taken = source.valid & source.ready
    stayed = b.past(source.valid & ~source.ready, "stayed")
    for number, port in enumerate(dut.outputs):
        had = Signal(name=f"had_{number}")
        takes = port.valid & port.ready
        with m.If(~source.valid | taken):
            m.d.sync += had.eq(0)
        with m.Elif(takes):
            m.d.sync += had.eq(1)
        b.claim(implies(takes, ~had))
        b.claim(implies(taken, had | takes))
        b.claim(implies(port.valid, source.valid & (port.payload == source.payload)))
        offered = b.past(port.valid & ~port.ready, f"offered_{number}")
        b.claim(implies(offered & stayed & source.valid, port.valid))
        b.invariant(given[number] == had)
        b.cover(takes & given.any())
    b.cover(taken & given.any())


@proof(
    block="lane_walker",
    claim="a transfer that is neither stopped nor leaves its range ends exactly once, with the sector marked `end` or "
    "with `absent`, and no sector comes after that; every sector is in the lane and in its packet",
    scope="2 lanes of a channel, 4 ranges; any transfers, any time at which a sector is taken or the walk is stopped",
    bug="some stuck at 0: what was found is forgotten when the walk ends",
    bug_depth=9,
    cover_depth=12,
)
def lane_ends_a_transfer_once(b: Bench) -> None:
    m = b.m
    config = DmaParameters(ranges=4, channels=2, lanes=2, links=1)
    dut = LaneWalker(config)
    block = b.open_block(dut, stuck={"some": 0})
    lane = b.any_const(config.lane_bits, "lane")
    b.assume(dut.lane == lane)
    scanning, cut, some = (block.signal(name) for name in ("scanning", "cut", "some"))
    coming_valid, packet_valid = block.signal("coming_valid"), block.signal("packet_valid")
    coming, packet = (block.view(name, dut.packet_layout()) for name in ("coming", "packet"))
    load, crosses = block.signal("load"), block.signal("crosses")
    sector = dut.sectors.payload
    step = dut.sectors.valid & dut.sectors.ready
    ended = Signal()
    m.d.comb += ended.eq((step & sector.end) | dut.absent)
    ends = Signal(2)
    gone = Signal()
    inside = Signal()
    """How often the transfer has ended; whether it was stopped or has left its range; it is walked at all."""
    with m.If(load):
        m.d.sync += [ends.eq(0), gone.eq(0), inside.eq(dut.transfers.payload.inside)]
    with m.Else():
        m.d.sync += ends.eq(ends + ended)
        with m.If(dut.walking & (dut.stop | crosses)):
            m.d.sync += gone.eq(1)
    b.claim(~(step & sector.end & dut.absent))
    b.claim(implies(ended, (ends == 0) & inside))
    b.claim(implies(dut.sectors.valid, ends == 0))
    b.claim(implies(inside & ~dut.walking & ~gone, ends == 1))
    b.claim(implies(dut.sectors.valid, in_lane(config, lane, sector.va)))
    b.claim(implies(sector.packet_end & dut.sectors.valid, sector.place <= sector.va[:3]))
    b.claim_offers_stay(dut.sectors)

    b.invariant(ends <= 1)
    b.invariant(implies(dut.walking, inside & (ends == 0)))
    b.invariant(implies(coming_valid | packet_valid, some))
    b.invariant(implies(scanning & some, coming_valid | packet_valid))
    b.invariant(implies(cut & inside, gone))
    b.invariant(implies(cut, ~scanning))
    for valid, item in ((coming_valid, coming), (packet_valid, packet)):
        b.invariant(implies(valid, in_lane(config, lane, item.va)))
        b.invariant(implies(valid, item.va[:3] + item.more <= 7))
        b.invariant(implies(valid, item.place <= item.va[:3]))
    b.cover(dut.absent)
    b.cover(step & sector.end & (sector.place == 1))
    b.cover(ended & (ends == 0) & b.past(step & sector.packet_end, "packet_before"))
    b.cover(dut.leaves)


def asks_one_lane(config: ChannelParameters) -> FaultyPort:
    """A node's state with the fault to be found: it takes it that one of the lanes has sent everything."""
    return FaultyPort(CollectiveState(config), ("sent_blocks", 1), lambda state, sent: state.expected_blocks)


@proof(
    block="collective_state",
    claim="a node is done only when it is armed, every lane has sent as many blocks as are expected, and nothing is on "
    "its way out",
    scope="4 ranges, 4 lanes; any inputs",
    bug="what lane 1 has sent is not asked",
    bug_depth=6,
    cover_depth=8,
)
def done_when_every_lane_has_sent(b: Bench) -> None:
    config = ChannelParameters(ranges=4, channels=4, lanes=4)
    dut = asks_one_lane(config) if b.seeded else CollectiveState(config)
    b.open_block(dut)
    complete = Cat(sent == dut.expected_blocks for sent in dut.sent_blocks)
    b.claim(implies(dut.done_rises, dut.armed & complete.all() & dut.idle))
    b.claim(implies(dut.done & ~b.past(dut.done, "done_before"), b.past(dut.done_rises, "rose")))
    b.cover(dut.done_rises & (dut.expected_blocks == 3))
    b.cover(dut.armed & dut.idle & ~dut.done & ~dut.done_rises & complete[:3].all() & (dut.range_done.all()))
