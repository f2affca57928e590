"""Proofs of the DMA trigger table: a block becomes ready once, with the last of its WF tiles, and leaves once."""

from amaranth import Signal

from hw.config import Configuration
from hw.tracker.trigger_table import TriggerTable, completion
from tb.formal.bench import Bench, Block, implies
from tb.formal.proof import proof


class Watched:
    """One arbitrary table entry: `done` and `issued` are what the specification says about it in this epoch."""

    def __init__(self, b: Bench, config: Configuration, stuck: dict[str, int] | None = None):
        m = b.m
        self.dut = dut = TriggerTable(config)
        self.block: Block = b.block(dut, stuck=stuck)
        b.free(dut.lookup, dut.lookup_index, dut.complete, dut.completion, dut.clear)
        b.free(dut.blocks.ready, dut.launches.ready)
        self.entry = b.any_const(len(dut.lookup_index), "entry")
        self.place = b.any_const(dut.completion.place.shape(), "place")
        reading, read_index = b.past(dut.lookup, "reading"), b.past(dut.lookup_index, "reading_index")
        looked_up, index = b.past(reading, "looked_up"), b.past(read_index, "index")
        given = dut.completion
        bit = Signal(8)
        m.d.comb += bit.eq(1 << given.place.position)
        self.here = Signal()
        m.d.comb += self.here.eq(dut.complete & (index == self.entry))
        self.done = Signal(8)
        # How the bank uses the table: the entry looked up two cycles before, a tile not done yet, nothing in a sweep.
        b.assume(implies(dut.complete, looked_up & (given.place.index == index)))
        b.assume(implies(dut.complete, (dut.done & bit) == 0))
        b.assume(implies(dut.clear | ~dut.cleared, ~dut.complete & ~dut.lookup))
        b.assume(implies(dut.clear, dut.cleared & ~reading))
        for field in ("needed", "dma", "launch", "first_wf"):
            b.assume(implies(self.here, given.place[field] == self.place[field]))
        b.assume(implies(self.here, (bit & self.place.needed) != 0))
        b.assume(self.place.needed != 0)
        with m.If(dut.clear):
            m.d.sync += self.done.eq(0)
        with m.Elif(self.here):
            m.d.sync += self.done.eq(self.done | bit)
        b.claim(implies(looked_up & (index == self.entry), dut.done == self.done))

        # The entry is in the memory but for the completion on its way there; what was read before one is replaced.
        marking, marked = self.block.signal("marking"), self.block.view("marked", completion(config))
        self.marked_here = Signal()
        sweeping, swept = self.block.signal("sweeping"), self.block.signal("swept")
        word = self.block.word("entries", self.entry)[:8]
        before = self.block.signal("before")[:8]
        m.d.comb += self.marked_here.eq(marking & (marked.place.index == self.entry))
        marked_bit = Signal(8)
        m.d.comb += marked_bit.eq(1 << marked.place.position)
        b.invariant(implies(sweeping, (self.done == 0)))
        b.invariant(implies(~sweeping, swept == 0))
        b.invariant(implies(sweeping & (swept > self.entry), word == 0))
        b.invariant(implies(~sweeping & ~self.marked_here, word == self.done))
        b.invariant(implies(self.marked_here & ~sweeping, (self.done == (before | marked_bit)) & (before == word)))
        b.invariant(implies(self.marked_here & ~sweeping, (before & marked_bit) == 0))
        b.invariant(implies(self.marked_here, (marked.place.needed == self.place.needed)))
        b.invariant(implies(self.marked_here, (marked.place.dma == self.place.dma)))
        b.invariant((self.done & ~self.place.needed) == 0)
        written = self.block.signal("written") & (self.block.signal("written_index") == self.entry)
        b.invariant(implies(written & ~sweeping, self.block.signal("written_entry")[:8] == word))
        b.invariant(implies(reading, self.block.signal("read_index") == read_index))
        stale = self.block.read_data("entries")[:8]
        b.invariant(implies(reading & (read_index == self.entry) & ~written, stale == word))
        ahead = self.block.signal("marked_is_captured")
        b.invariant(implies(marking & looked_up, ahead == (marked.place.index == index)))
        b.invariant(implies(looked_up & (index == self.entry), self.block.signal("captured")[:8] == word))
        b.invariant(implies(reading | looked_up, ~sweeping))
        b.invariant(implies(marking & sweeping, swept == 0))


def _small(b: Bench) -> Configuration:
    """The paper's table; 16 entries where it is run from reset."""
    return Configuration(trigger_blocks=16 if b.reduced else 4096)


@proof(
    block="trigger_table",
    claim="the done mask read is that of all completions before, and the block becomes ready exactly once, with the "
    "last of its WF tiles",
    scope="4096 entries (cover and seeded bug: 16), any entry; lookups and completions as the Tracker bank makes them",
    bug="ready stuck at 1: a block becomes ready in every cycle",
    bug_depth=40,
    cover_depth=30,
)
def trigger_table(b: Bench) -> None:
    m = b.m
    watched = Watched(b, _small(b), stuck={"ready": 1})
    block, dut, place = watched.block, watched.dut, watched.place
    wg = b.any_const(len(dut.completion.wg), "wg")
    b.assume(implies(watched.here, dut.completion.wg == wg))
    b.assume(implies(dut.complete & ~watched.here, dut.completion.wg != wg))
    marking, marked = block.signal("marking"), block.view("marked", completion(_small(b)))
    b.invariant(implies(marking, (marked.wg == wg) == watched.marked_here))
    for kind, queue, due in (("dma", "blocks", place.dma), ("launch", "launches", place.launch)):
        ready = block.component(queue)
        push, item = ready.push, ready.item
        issued = Signal(name=f"issued_{kind}")
        now = Signal(name=f"now_{kind}")
        m.d.comb += now.eq(push & (item.wg == wg))
        with m.If(dut.clear):
            m.d.sync += issued.eq(0)
        with m.Elif(now):
            m.d.sync += issued.eq(1)
        b.claim(implies(now & dut.cleared, due & ~issued & (watched.done == place.needed)))
        b.claim(implies(now & dut.cleared, item.wf == place.first_wf))
        b.claim(implies((watched.done == place.needed) & due & dut.cleared, issued | now))
        b.invariant(implies(issued & dut.cleared, watched.done == place.needed))
        b.invariant(implies(~dut.cleared, ~issued))
        b.cover(now & dut.cleared & (place.needed == 0b111))
    b.invariant(implies(watched.marked_here, marked.place.launch == place.launch))
    b.invariant(implies(watched.marked_here, marked.place.first_wf == place.first_wf))
    b.claim(~dut.doubled | ~watched.marked_here | ~dut.cleared)
