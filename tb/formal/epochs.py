"""Proofs of what keeps epochs apart: arming waits, nothing changes its epoch, and what an epoch leaves behind goes
away."""

from collections.abc import Callable

from amaranth import Const, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data

from hw.config import Configuration
from hw.dma.engine import DmaEngine, DmaParameters
from hw.dma.packet_reader import read_layout
from hw.messages import Messages
from hw.node_monitor import CollectiveState
from tb.formal.bench import Bench, Block, implies
from tb.formal.fault import FaultyPort
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
    was_armed = b.past(dut.armed, "was_armed")
    armed = dut.armed & ~was_armed
    """The cycle in which it takes effect."""
    with m.If(armed | dut.disarm):
        m.d.sync += wanted.eq(0)
    with m.If(dut.arm):
        m.d.sync += [wanted.eq(1), number.eq(dut.number)]
    # A node that was drained stays so until something is armed; clearing takes two cycles or more.
    m.d.sync += drained.eq(~dut.armed & (drained | dut.drained))
    m.d.sync += cleared.eq(cleared << 1)
    with m.If(cleared[1]):
        m.d.sync += cleared.eq(2)
    with m.If(dut.clear & ~dut.arm):
        m.d.sync += cleared.eq(1)
    with m.If(dut.arm | dut.armed):
        m.d.sync += cleared.eq(0)
    b.claim(implies(dut.clear, drained & ~dut.armed))
    # What it takes, in the cycle before.
    may = b.past(wanted & drained & cleared[1] & dut.cleared & ~dut.arm & ~dut.disarm, "may")
    b.claim(implies(armed, may & (dut.epoch == number)))
    before = b.past(dut.epoch, "epoch_before")
    ended = b.past(dut.arm | dut.disarm, "ended")
    b.claim((dut.epoch == before) | armed)
    b.claim(implies(ended, ~dut.armed & ~dut.done))
    b.claim(dut.arming == (wanted & ~armed))
    b.cover(armed & ~ended)
    b.cover(dut.armed & (dut.epoch == 2))


class Waiting:
    """The epochs of what waits in a queue of two that is passed by when it is empty, kept beside it."""

    def __init__(self, b: Bench, block: Block, path: str):
        self._b, self._block, self._path = b, block, path
        self._level, self._first, self._last = (block.signal(f"{path}.{name}") for name in ("level", "first", "last"))
        self._epochs = Signal(data.ArrayLayout(Configuration().epoch_bits, 2), name=f"{path}_epochs")

    def comes(self, comes: Value, epoch: Value) -> None:
        """What comes now is of `epoch`."""
        with self._b.m.If(comes):
            self._b.m.d.sync += self._epochs[self._last].eq(epoch)

    def oldest(self, coming: Value) -> Value:
        """That of what stands at the way out; of what is `coming` when nothing waits."""
        return Mux(self._level == 0, coming, self._epochs[self._first])

    def invariant(self, epoch_of: Callable[[Value], Value]) -> None:
        """What waits has its epoch."""
        self._b.invariant((self._level <= 2) & (self._last == (self._first + self._level)[:1]))
        for place in range(2):
            waits = (self._level == 2) | ((self._level == 1) & (self._first == place))
            word = self._block.word(f"{self._path}.memory", place)
            self._b.invariant(implies(waits, epoch_of(word) == self._epochs[place]))


@proof(
    block="dma_engine",
    claim="reads and packets carry the epoch in which their block was taken, whatever the register holds by then; once "
    "the node is not armed no block is taken, and at most 8 more reads are made for each port, beside those that wait",
    scope="4 ranges, 2 packet slots, 1 channel, 1 port, a block that waits behind two of any port; any blocks, "
    "geometry, memory and registers",
    bug="chosen stuck at 0: the number of the epoch is lost",
    bug_depth=10,
    cover_depth=14,
    depth=1,
)
def dma_epoch(b: Bench) -> None:
    m = b.m
    config = DmaParameters(ranges=4, dma_packets=2, store_packets=2, links=1, dma_blocks=1, wg_bits=9)
    dut = DmaEngine(config)
    block = b.open_block(dut, stuck={"chosen": 0})
    walker = block.component("walker_0")
    place = block.signal("walker_0.walk")[:3]
    walking, load = block.signal("walker_0.walking"), block.signal("walker_0.load")
    reader = block.component("reader")
    step = reader.step
    kept = data.StructLayout({"block": Messages(config).ready_block, "epoch": config.epoch_bits})
    chosen, chosen_valid = block.view("chosen", kept), block.signal("chosen_valid")
    stored = block.component("queue_0").o.valid
    queued = kept(block.word("queue_0.memory", block.signal("queue_0.first")))
    taken = dut.blocks.valid & dut.blocks.ready
    straight = block.signal("straight")
    offered, reads = (Waiting(b, block, name) for name in ("offered", "reads_0"))
    offered.comes(taken, dut.epoch)
    leaves = block.component("offered").o.valid & block.component("offered").o.ready & dut.armed
    # The epochs of what waits in the queue of the port, of what is chosen, and of what is walked.
    waiting, next_one, walked = (Signal(config.epoch_bits, name=name) for name in ("waiting", "next_one", "walked"))
    with m.If(leaves & ~straight):
        m.d.sync += waiting.eq(offered.oldest(dut.epoch))
    with m.If(leaves & straight):
        m.d.sync += next_one.eq(offered.oldest(dut.epoch))
    with m.Elif(stored):
        m.d.sync += next_one.eq(waiting)
    with m.If(load):
        m.d.sync += walked.eq(next_one)
    reads.comes(step, walked)
    late = Signal(5)
    with m.If(dut.armed):
        m.d.sync += late.eq(0)
    with m.Elif(step):
        m.d.sync += late.eq(late + 1)
    read = dut.reads[0]
    b.claim(implies(taken, dut.armed))
    b.claim(implies(read.valid, read.payload.epoch == reads.oldest(walked)))
    b.claim(implies(dut.slots.close, dut.slots.packet.epoch == walked))
    b.claim(late <= 8)
    b.claim(implies(~dut.armed & (late != 0) & ~walking, ~reader.reads[0].valid))
    offered.invariant(lambda word: kept(word).epoch)
    reads.invariant(lambda word: read_layout(config)(word).epoch)
    was_armed = b.past(dut.armed, "was_armed")
    b.invariant((block.signal("queue_0.first") == 0) & (block.signal("queue_0.last") == 0))
    b.invariant(implies(stored, queued.epoch == waiting))
    b.invariant(implies(chosen_valid, chosen.epoch == next_one))
    b.invariant(implies(walking, walker.label.epoch == walked))
    b.invariant(implies(chosen_valid, ~walking))
    b.invariant((block.signal("chosen_port") == 0) & (block.signal("reader.turn") == 0))
    b.invariant(implies(walking & ~was_armed, late <= place))
    b.invariant(implies(was_armed, late == 0))
    b.invariant(late <= 8)
    b.cover(step & ~dut.armed & (late == 3))
    b.cover(dut.slots.close & (walked != dut.epoch) & (walked == 5))
