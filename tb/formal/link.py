"""Proofs of the link: credits, and that ingress never waits on egress."""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib import stream
from hw.link.link_unit import LinkUnit
from hw.link.receiver import Receiver, buffered_header
from hw.link.transmitter import Transmitter

from hw.config import Configuration
from hw.messages import Messages
from tb.formal.bench import Bench, Block, implies
from tb.formal.fault import FaultyPort
from tb.formal.proof import proof

PACKETS = 4


def waiting_for_egress(config: Configuration) -> FaultyPort:
    """A link unit with the fault to be found: a request is offered only while the outgoing link moves."""
    return FaultyPort(LinkUnit(config), ("requests", 0, "valid"), lambda unit, valid: valid & unit.tx[0].ready)


def packet_source(b: Bench, port: stream.Interface, name: str) -> Signal:
    """Assume packets: a header, then one or more sectors, of which one is the last; high inside a packet."""
    inside = Signal(name=f"inside_{name}")
    with b.m.If(port.valid & port.ready):
        b.m.d.sync += inside.eq(~port.payload.last)
    b.assume(implies(port.valid, port.payload.header == ~inside))
    b.assume(implies(port.valid & port.payload.header, ~port.payload.last))
    return inside


@proof(
    block="transmitter",
    claim="never more packets under way than the receiver has buffers; a packet starts only in the epoch that is "
    "granted and armed; packets are not mixed; a flit once offered stays until it is taken",
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
    inside = [packet_source(b, source, str(n)) for n, source in enumerate(dut.sources)]
    discard, discarding = block.signal("discard"), block.signal("discarding")
    taken = [source.valid & source.ready & ~discard[n] for n, source in enumerate(dut.sources)]
    sent = [inside[n] & ~discarding[n] for n in range(2)]
    starts = [take & source.payload.header for take, source in zip(taken, dut.sources, strict=True)]
    started = Signal()
    m.d.comb += started.eq(starts[0] | starts[1])
    outstanding = Signal(range(PACKETS + 2))
    m.d.sync += outstanding.eq(outstanding + started - dut.control.credit)
    b.assume(implies(dut.control.credit, outstanding != 0))
    b.claim(outstanding <= PACKETS)
    b.claim(implies(started, outstanding != PACKETS))
    b.claim(~(taken[0] & taken[1]))
    b.claim(implies(sent[0], ~taken[1]) & implies(sent[1], ~taken[0]))
    granted, epoch = Signal(), Signal.like(dut.control.epoch)
    with m.If(dut.control.grant):
        m.d.sync += [granted.eq(1), epoch.eq(dut.control.epoch)]
    layout = dut._messages.link_header
    for start, source in zip(starts, dut.sources, strict=True):
        header = layout(source.payload.data[: layout.size])
        b.claim(implies(start, granted & (header.epoch == epoch) & dut.armed & (header.epoch == dut.epoch)))
    b.claim_offers_stay(dut.tx)

    sending, owner = block.signal("sending"), block.signal("owner")
    b.invariant(block.signal("credits") == PACKETS - outstanding)
    b.invariant(~(sent[0] & sent[1]) & (sending == (sent[0] | sent[1])))
    b.invariant(implies(sending, owner == sent[1]))
    b.invariant((discarding & ~Cat(inside)) == 0)
    b.invariant((block.signal("granted") == granted) & implies(granted, block.signal("grant_epoch") == epoch))
    b.cover((outstanding == PACKETS) & dut.no_credit)


def _sender(b: Bench, rx: stream.Interface, credit: Value, packets: int) -> tuple[Signal, Signal]:
    """Packets of a sender that keeps to its credits; how many have not got it back, and whether one is arriving."""
    m = b.m
    inside = packet_source(b, rx, "rx")
    starts = rx.valid & rx.payload.header
    outstanding = Signal(range(packets + 2))
    m.d.sync += outstanding.eq(outstanding + starts - credit)
    b.assume(implies(starts, outstanding != packets))
    return outstanding, inside


def _held(b: Bench, block: Block, receiver: str, active: Value, credit: Value) -> Value:
    """Packets that still hold their credit: arriving, stored, or on their way out."""
    names = ("receiving", "ending", "stored", "fetched", "owed")
    held = Signal(6)
    b.m.d.comb += held.eq(sum((block.signal(receiver + name) for name in names), active + credit))
    return held


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
    outstanding, inside = _sender(b, dut.rx, dut.control.credit, PACKETS)
    stored, fetched, active = block.signal("stored"), block.signal("fetched"), dut.requests.valid
    receiving, ending = block.signal("receiving"), block.signal("ending")
    held = _held(b, block, "", active, dut.control.credit)
    b.claim(dut.rx.ready)
    b.claim(outstanding == held)
    b.claim(outstanding <= PACKETS)
    b.claim(implies(receiving | ending, stored + fetched + active < PACKETS))
    b.claim(implies(dut.control.credit, outstanding != 0))
    b.invariant(receiving == inside)
    b.invariant(stored <= PACKETS)
    b.cover(outstanding == PACKETS)
    b.cover(active & b.past(dut.fault_valid, "refused"))


@proof(
    block="link_unit",
    claim="ingress never waits for egress: a flit is taken in every cycle, every sector of every accepted packet is "
    "offered to the memory, the first at most 3 cycles after its packet or the write before it, and its credit "
    "returns, whatever the sending side and its neighbour do, nothing at all included",
    scope="1 link port, 2 packet buffers, 1 channel; a sender that keeps to its credits, any packets and registers; "
    "that the memory takes a write depends on no link: proved for its queues, tested for the node",
    bug="a request is offered only while the outgoing link moves",
    bug_depth=26,
    cover_depth=26,
    depth=1,
)
def link_ingress(b: Bench) -> None:
    m, buffers = b.m, 2
    config = Configuration(link_receive_packets=buffers, ranges=4, links=1)
    dut = waiting_for_egress(config) if b.seeded else LinkUnit(config)
    block = b.open_block(dut)
    rx, credit, requests = dut.rx[0], dut.rx_control[0].credit, dut.requests[0]
    outstanding, inside = _sender(b, rx, credit, buffers)
    header, kept = Messages(config).link_header, buffered_header(config)
    length = Signal(3)
    with m.If(rx.valid & rx.payload.header):
        m.d.sync += length.eq(header(rx.payload.data[: header.size]).length)
    accepted, taken = dut.events[0].received_packets, requests.valid & requests.ready
    waiting = Signal(6)
    """Sectors of accepted packets that the memory has not taken."""
    m.d.sync += waiting.eq(waiting + (length + 1) * accepted - taken)
    idle = Signal(3)
    """Cycles in which none of them was offered, up to now."""
    m.d.sync += idle.eq(Mux((waiting != 0) & ~requests.valid, idle + 1, 0))
    b.claim(rx.ready)
    b.claim(implies(requests.valid, waiting != 0))
    b.claim(idle <= 2)
    b.claim(outstanding <= buffers)
    b.claim_offers_stay(requests)
    b.cover(taken & (waiting == 1) & accepted)
    b.cover(dut.tx[0].valid & ~dut.tx[0].ready & taken & credit)
    if b.seeded:
        return

    receiver = "receiver_0."
    active = requests.valid
    fetch_slot, current = block.signal(f"{receiver}fetch_slot"), block.view(f"{receiver}current", kept)
    stored, fetched = block.signal(f"{receiver}stored"), block.signal(f"{receiver}fetched")
    sector = block.signal(f"{receiver}sector")
    b.invariant(outstanding == _held(b, block, receiver, active, credit))
    b.invariant(block.signal(f"{receiver}receiving") == inside)
    b.invariant(block.view(f"{receiver}header", header).length == length)
    b.invariant(block.signal(f"{receiver}tail") == (fetch_slot + stored)[: len(fetch_slot)])
    b.invariant(implies(active, sector <= current.length))
    ahead = Mux(active, current.length - sector + 1, 0) + Mux(
        fetched, kept(block.read_data(f"{receiver}headers")).length + 1, 0
    )
    for place in range(buffers):
        word = kept(block.word(f"{receiver}headers", (fetch_slot + place)[: len(fetch_slot)]))
        ahead = ahead + Mux(stored > place, word.length + 1, 0)
    b.invariant(waiting == ahead[: len(waiting)])
    b.invariant(implies(idle >= 1, fetched | active) & implies(idle == 2, active))
