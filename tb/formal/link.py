"""Proofs of the link: credits, and that ingress never waits on egress."""

from amaranth import Signal
from amaranth.lib import stream

from hw.config import Configuration
from hw.link.receiver import Receiver
from hw.link.transmitter import Transmitter
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

PACKETS = 4


def _packet_source(b: Bench, port: stream.Interface, name: str) -> Signal:
    """Assume packets: a header, then one or more sectors, of which one is the last; high inside a packet."""
    inside = Signal(name=f"inside_{name}")
    with b.m.If(port.valid & port.ready):
        b.m.d.sync += inside.eq(~port.payload.last)
    b.assume(implies(port.valid, port.payload.header == ~inside))
    b.assume(implies(port.valid & port.payload.header, ~port.payload.last))
    return inside


@proof(
    block="transmitter",
    claim="never more packets under way than the receiver has buffers; a packet starts only in the granted epoch; "
    "packets are not mixed; a flit once offered stays until it is taken",
    scope="4 receive buffers, 2 sources, any packets",
    bug="start stuck at 0: credits are never used up",
    bug_depth=16,
    cover_depth=18,
    depth=1,
)
def link_transmit_credits(b: Bench) -> None:
    m = b.m
    dut = Transmitter(Configuration(link_receive_packets=PACKETS))
    block = b.open_block(dut, stuck={"start": 0})
    inside = [_packet_source(b, source, str(n)) for n, source in enumerate(dut.sources)]
    taken = [source.valid & source.ready for source in dut.sources]
    starts = [take & source.payload.header for take, source in zip(taken, dut.sources, strict=True)]
    started = Signal()
    m.d.comb += started.eq(starts[0] | starts[1])
    outstanding = Signal(range(PACKETS + 2))
    m.d.sync += outstanding.eq(outstanding + started - dut.control.credit)
    b.assume(implies(dut.control.credit, outstanding != 0))
    b.claim(outstanding <= PACKETS)
    b.claim(implies(started, outstanding != PACKETS))
    b.claim(~(taken[0] & taken[1]))
    b.claim(implies(inside[0], ~taken[1]) & implies(inside[1], ~taken[0]))
    granted, epoch = Signal(), Signal.like(dut.control.epoch)
    with m.If(dut.control.grant):
        m.d.sync += [granted.eq(1), epoch.eq(dut.control.epoch)]
    layout = dut._messages.link_header
    for start, source in zip(starts, dut.sources, strict=True):
        header = layout(source.payload.data[: layout.size])
        b.claim(implies(start, granted & (header.epoch == epoch)))
    b.claim_offers_stay(dut.tx)

    sending, owner = block.signal("sending"), block.signal("owner")
    b.invariant(block.signal("credits") == PACKETS - outstanding)
    b.invariant(~(inside[0] & inside[1]) & (sending == (inside[0] | inside[1])))
    b.invariant(implies(sending, owner == inside[1]))
    b.invariant((block.signal("granted") == granted) & implies(granted, block.signal("grant_epoch") == epoch))
    b.cover((outstanding == PACKETS) & dut.no_credit)


def _receiver(b: Bench, dut: Receiver) -> tuple[Signal, Signal]:
    """Packets of a sender that keeps to its credits; how many have not got it back, and whether one is arriving."""
    m = b.m
    inside = _packet_source(b, dut.rx, "rx")
    starts = dut.rx.valid & dut.rx.payload.header
    outstanding = Signal(range(PACKETS + 2))
    m.d.sync += outstanding.eq(outstanding + starts - dut.control.credit)
    b.assume(implies(starts, outstanding != PACKETS))
    return outstanding, inside


@proof(
    block="receiver",
    claim="takes a flit in every cycle; no packet buffer is written while in use; every packet returns one credit, "
    "whether it is accepted or refused",
    scope="4 packet buffers; a sender that keeps to its credits, any packets, any registers",
    bug="drop stuck at 0: a refused packet keeps its credit",
    bug_depth=24,
    cover_depth=24,
    depth=1,
)
def link_receive_credits(b: Bench) -> None:
    dut = Receiver(Configuration(link_receive_packets=PACKETS, ranges=4))
    block = b.open_block(dut, stuck={"drop": 0})
    outstanding, inside = _receiver(b, dut)
    stored, fetched, active = block.signal("stored"), block.signal("fetched"), dut.requests.valid
    receiving, ending = block.signal("receiving"), block.signal("ending")
    held = Signal(6)
    """Packets that still hold their credit: arriving, stored, or on their way out."""
    b.m.d.comb += held.eq(receiving + ending + stored + fetched + active + block.signal("owed") + dut.control.credit)
    b.claim(dut.rx.ready)
    b.claim(outstanding == held)
    b.claim(outstanding <= PACKETS)
    b.claim(implies(receiving | ending, stored + fetched + active < PACKETS))
    b.claim(implies(dut.control.credit, outstanding != 0))
    b.invariant(receiving == inside)
    b.invariant(stored <= PACKETS)
    b.cover(outstanding == PACKETS)
    b.cover(active & b.past(dut.fault_valid, "refused"))
