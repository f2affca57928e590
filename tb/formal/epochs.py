"""Proofs of what keeps epochs apart: arming waits, nothing changes its epoch, and what an epoch leaves behind goes
away."""

from amaranth import Const, Signal, Value
from hw.link.receiver import Receiver
from hw.link.transmitter import Transmitter

from hw.config import Configuration
from hw.dma.engine import DmaEngine
from hw.messages import Messages
from hw.node_monitor import CollectiveState
from tb.formal.bench import Bench, implies
from tb.formal.fault import FaultyPort
from tb.formal.link import packet_source
from tb.formal.proof import proof


def arms_at_once(config: Configuration) -> FaultyPort:
    """A node's state with the fault to be found: it takes itself for drained."""
    return FaultyPort(CollectiveState(config), ("drained",), lambda state, drained: Const(1))


@proof(
    block="collective_state",
    claim="arming clears the Tracker only when the node was found drained after the last epoch ended, takes effect "
    "only when cleared after that, with the number that came with the last call; the epoch changes with it and at no "
    "other time; `disarm` and a call end the epoch in the next cycle",
    scope="any commands at any time",
    bug="the state takes the node for drained",
    bug_depth=6,
    cover_depth=10,
    engine="pdr",
)
def arming_waits(b: Bench) -> None:
    m = b.m
    config = Configuration(ranges=4)
    dut = arms_at_once(config) if b.seeded else CollectiveState(config)
    b.open_block(dut)
    b.assume(~(dut.drained & dut.armed))
    wanted, number = Signal(), Signal(config.epoch_bits)
    drained, cleared = Signal(), Signal(2)
    with m.If(dut.grant | dut.disarm):
        m.d.sync += wanted.eq(0)
    with m.If(dut.arm):
        m.d.sync += [wanted.eq(1), number.eq(dut.number)]
    # A node that was drained stays so until something is armed; clearing takes two cycles or more.
    m.d.sync += drained.eq(~dut.grant & ~dut.armed & (drained | dut.drained))
    m.d.sync += cleared.eq(cleared << 1)
    with m.If(cleared[1]):
        m.d.sync += cleared.eq(2)
    with m.If(dut.clear & ~dut.arm):
        m.d.sync += cleared.eq(1)
    with m.If(dut.arm | dut.grant):
        m.d.sync += cleared.eq(0)
    b.claim(implies(dut.clear, drained & ~dut.armed))
    b.claim(implies(dut.grant, wanted & drained & cleared[1] & dut.cleared & ~dut.arm & ~dut.disarm))
    b.claim(implies(dut.grant, dut.called == number))
    before = b.past(dut.epoch, "epoch_before")
    granted = b.past(dut.grant, "granted")
    ended = b.past(dut.arm | dut.disarm, "ended")
    called = b.past(dut.called, "called_before")
    b.claim((dut.epoch == before) | (granted & (dut.epoch == called)))
    b.claim(implies(dut.armed, dut.called == dut.epoch))
    b.claim(implies(ended, ~dut.armed & ~dut.done))
    b.claim(dut.arming == wanted)
    b.cover(dut.grant & ~ended)
    b.cover(dut.armed & (dut.epoch == 2))


@proof(
    block="dma_engine",
    claim="reads and packets carry the epoch in which their block was taken, whatever the register holds by then; once "
    "the node is not armed no block is taken, and at most 8 more reads are issued",
    scope="4 ranges, 2 packet buffers, 1 channel; any blocks, geometry, memory and registers",
    bug="waiting_epoch stuck at 0: the number of the epoch is lost",
    bug_depth=10,
    cover_depth=14,
    depth=1,
)
def dma_epoch(b: Bench) -> None:
    m = b.m
    config = Configuration(ranges=4, dma_packets=2, wg_bits=9, tracker_sets=4)
    dut = DmaEngine(config)
    block = b.open_block(dut, stuck={"waiting_epoch": 0})
    label = block.component("walker").label
    place = block.signal("walker.walk")[:3]
    waits, step = block.signal("block_waits"), block.signal("step")
    walking, load = block.signal("walker.walking"), block.signal("walker.load")
    closing = block.component("buffer").closing
    taken = dut.blocks.valid & dut.blocks.ready
    waiting, walked = Signal(config.epoch_bits), Signal(config.epoch_bits)
    with m.If(taken):
        m.d.sync += waiting.eq(dut.epoch)
    with m.If(load):
        m.d.sync += walked.eq(waiting)
    late = Signal(5)
    with m.If(dut.armed):
        m.d.sync += late.eq(0)
    with m.Elif(step):
        m.d.sync += late.eq(late + 1)
    read = dut.reads[0]
    b.claim(implies(taken, dut.armed))
    b.claim(implies(read.valid, read.payload.epoch == walked))
    b.claim(implies(closing.valid, closing.header.epoch == walked))
    b.claim(late <= 8)
    b.claim(implies(~dut.armed & (late != 0) & ~walking, ~read.valid))
    was_armed = b.past(dut.armed, "was_armed")
    b.invariant(implies(waits, block.signal("waiting_epoch") == waiting))
    b.invariant(implies(walking, label.epoch == walked))
    b.invariant(implies(walking & ~was_armed, late <= place))
    b.invariant(implies(was_armed, late == 0))
    b.invariant(late <= 8)
    b.cover(step & ~dut.armed & (late == 3))
    b.cover(closing.valid & (walked != dut.epoch) & (walked == 5))


@proof(
    block="transmitter",
    claim="a packet of an epoch that is not armed does not start, and is taken away a flit in every cycle that it "
    "offers one, whatever the link, credits and grants do; a packet is discarded whole or not at all",
    scope="4 receive buffers, 2 sources, any packets",
    bug="discard stuck at 0: such a packet waits for a grant",
    bug_depth=6,
    cover_depth=10,
    depth=1,
)
def link_discard(b: Bench) -> None:
    dut = Transmitter(Configuration(link_receive_packets=4))
    block = b.open_block(dut, stuck={"discard": 0})
    inside = [packet_source(b, source, str(n)) for n, source in enumerate(dut.sources)]
    layout = dut._messages.link_header
    discarded: Value = Const(0, 2)
    for n, source in enumerate(dut.sources):
        header = layout(source.payload.data[: layout.size])
        ended = source.valid & source.payload.header & ~(dut.armed & (header.epoch == dut.epoch))
        going = Signal(name=f"going_{n}")
        with b.m.If(source.valid & source.payload.last):
            b.m.d.sync += going.eq(0)
        with b.m.Elif(ended):
            b.m.d.sync += going.eq(1)
        b.claim(implies(ended | (going & source.valid), source.ready))
        start = block.signal("start") & (block.signal("chosen") == n)
        b.claim(implies(start, ~ended & ~going & source.payload.header))
        discarded = discarded + ((ended | going) & source.valid & source.payload.last)
        b.invariant(block.signal("discarding")[n] == going)
        b.invariant(implies(going, inside[n]))
        sending, owner = block.signal("sending"), block.signal("owner")
        b.invariant(implies(sending & (owner == n), inside[n] & ~going))
        b.invariant(implies(inside[n], going | (sending & (owner == n))))
    b.claim(dut.discarded == discarded)
    b.cover((dut.discarded == 2) & dut.tx.valid & ~dut.tx.ready)
    b.cover(block.signal("sending") & (block.signal("discarding") != 0))


@proof(
    block="receiver",
    claim="a packet is accepted only if the node stayed armed from the judgement of its header to its end",
    scope="4 packet buffers; a sender of whole packets, any registers",
    bug="bad stuck at 0: what was judged once is accepted",
    bug_depth=10,
    cover_depth=12,
    depth=1,
)
def link_receive_lapse(b: Bench) -> None:
    m = b.m
    dut = Receiver(Configuration(link_receive_packets=4, ranges=4))
    block = b.open_block(dut, stuck={"bad": 0})
    packet_source(b, dut.rx, "rx")
    layout = Messages(dut._config).link_header
    arriving = layout(dut.rx.payload.data[: layout.size])
    comes = dut.rx.valid & dut.rx.payload.header
    lapsed, judged, epoch = Signal(), Signal(), Signal(len(Value.cast(arriving.epoch)))
    m.d.sync += judged.eq(comes)
    with m.If(comes):
        m.d.sync += [lapsed.eq(0), epoch.eq(arriving.epoch)]
    with m.Elif(~dut.armed | (judged & (epoch != dut.epoch))):
        m.d.sync += lapsed.eq(1)
    b.claim(implies(dut.received, ~lapsed))
    b.invariant(implies(judged, ~lapsed) & implies(lapsed, block.signal("bad")))
    b.invariant(block.signal("check_first") == judged)
    b.invariant(block.view("header", layout).epoch == epoch)
    b.cover(dut.received)
    b.cover(block.signal("drop") & lapsed)
