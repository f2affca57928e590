"""Proof of a Tracker bank: each WF tile triggers once, when its last byte is counted, and no byte is lost.

One arbitrary tile is watched through cache, MSHRs, evictions and the backing store. The environment answers
fetches in any order, as late as it likes; to the watched tile with the counter that was last evicted (the spill queue
and memory keep their order), to others with anything, but with no more counters than were evicted.
"""

from unittest.mock import patch

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib import data

from hw.config import Configuration
from hw.messages import Fault
from hw.tracker import pipeline
from hw.tracker.bank import TrackerBank
from hw.tracker.count_stage import GENERATION_BITS, operation
from hw.tracker.mshr import counter, one_of, tile_key
from hw.tracker.storage import ENTRY_EPOCH_BITS, entry_layout, write_layout
from tb.formal.bench import Bench, at_most_one, implies
from tb.formal.proof import proof
from tb.formal.tracker_parts import SpecifiedGeometry, SpecifiedTriggers, WatchedTile

SUM_BITS = 24
"""Width of sums of bytes."""


def _population(bits: list[Value]) -> Value:
    return sum(bits[1:], bits[0] + 0)


class WatchedBank:
    """A bank, its environment, and what the specification says about the watched tile."""

    def __init__(self, b: Bench, config: Configuration, stuck: dict[str, int], counted_bits: int):
        self.b, self.config = b, config
        m = b.m
        self.tile = tile = WatchedTile(config)
        for signal in (tile.wg, tile.wf, tile.place, tile.threshold, tile.missing):
            value = Value.cast(signal)
            m.d.comb += value.eq(b.any_const(len(value), "tile"))
        b.assume(tile.threshold != 0)
        self.dut = dut = TrackerBank(config, 0)
        with (
            patch.object(pipeline, "TileGeometry", lambda c: SpecifiedGeometry(c, tile)),
            patch.object(pipeline, "TriggerTable", lambda c: SpecifiedTriggers(c, tile)),
        ):
            self.block = b.block(dut, stuck=stuck)
        self.count = self.block.component("count")
        self.valids = self.block.signal("stage_valid")[1:]
        self.stages = [(self.valids[n - 1], self.block.view(f"stage_{n}", operation(config))) for n in range(1, 6)]
        m.d.comb += dut.epoch.eq(b.any_const(len(dut.epoch), "epoch"))
        b.free(dut.messages.valid, dut.messages.payload, dut.blocks.ready, dut.launches.ready)
        b.free(dut.spill_requests.ready, dut.spill_response, dut.faults.ready)

        self.message = (
            self.dut.messages.valid
            & self.dut.messages.ready
            & tile.named(dut.messages.payload.wg, dut.messages.payload.wf)
        )
        self._specify(counted_bits)
        self._answer()

    def _specify(self, counted_bits: int) -> None:
        """Ghost state. `counted`: bytes counted for the tile; `out`: its counter is in the backing store, where it is
        `away`; `others`: counters of other tiles of its set that are there; `asked`: fetches under way."""
        m, b, config, tile, count = self.b.m, self.b, self.config, self.tile, self.count
        now, found = count.operation, count.selection
        self.here = Signal()
        m.d.comb += self.here.eq(count.valid & tile.named(now.key.wg, now.key.wf))
        self.counted = Signal(counted_bits)
        self.out = Signal()
        self.away = Signal(config.count_bits)
        self.others = Signal(config.tag_bits + 1)
        self.asked = Signal(config.tracker_mshrs)
        self.is_message = self.here & ~now.fill
        self.is_fill = self.here & now.fill
        past = Signal()
        m.d.comb += past.eq(count.refused & self.is_fill)
        with m.If(self.is_message & ~count.refused):
            m.d.sync += self.counted.eq(self.counted + now.amount.count)
        with m.Elif(past):
            m.d.sync += self.counted.eq(Mux(self.out, self.away, 0))
        # Claimed of the watched tile, which is any tile; so it may be assumed of the others.
        b.assume(implies(count.valid & now.fill & ~self.here, ~found.hit))
        self.in_set = count.valid & (now.key.wg[: config.set_bits] == tile.wg[: config.set_bits])
        victim_wg = Cat(now.key.wg[: config.set_bits], found.victim.tag[config.wf_bits :])
        self.evicted = evicted = count.eviction & tile.named(victim_wg, found.victim.tag[: config.wf_bits])
        with m.If(evicted):
            m.d.sync += [self.out.eq(1), self.away.eq(count.spill_request.record.count)]
        with m.Elif(self.is_fill):
            m.d.sync += self.out.eq(0)
        other_left = count.eviction & self.in_set & ~evicted
        other_back = self.in_set & ~self.here & now.fill & now.present
        m.d.sync += self.others.eq(self.others + other_left - other_back)
        b.assume(implies(other_left, self.others < (1 << config.tag_bits) - 1))
        fetch = Mux(count.fetch, 1 << count.allocated, 0)[: config.tracker_mshrs]
        answer = self.dut.spill_response
        answered = Mux(answer.valid, 1 << answer.tag, 0)[: config.tracker_mshrs]
        m.d.sync += self.asked.eq((self.asked | fetch) & ~answered)
        b.assume(implies(answer.valid, (self.asked >> answer.tag)[0] & (answer.tag < config.tracker_mshrs)))

    def _answer(self) -> None:
        """What the backing store answers."""
        m, b, config, block = self.b.m, self.b, self.config, self.block
        answer, tile = self.dut.spill_response, self.tile
        usable = Signal()
        m.d.comb += usable.eq(
            answer.record.present
            & (answer.record.epoch == self.dut.epoch)
            & (answer.record.reserved[:GENERATION_BITS] == block.signal("clears"))
        )
        fetches = config.tracker_mshrs
        self.active, self.answered = block.signal("mshrs.active"), block.signal("mshrs.answered")
        self.keys = [block.view(f"mshrs.key_{i}", tile_key(config)) for i in range(fetches)]
        self.gathered = [block.view(f"mshrs.gathered_{i}", counter(config)) for i in range(fetches)]
        self.records = [block.view(f"mshrs.record_{i}", counter(config)) for i in range(fetches)]
        self.present = [block.signal(f"mshrs.present_{i}") for i in range(fetches)]
        self.mine = Cat(self.active[i] & tile.named(key.wg, key.wf) for i, key in enumerate(self.keys))
        self.same_set = [
            self.active[i] & (key.wg[: config.set_bits] == tile.wg[: config.set_bits]) & ~self.mine[i]
            for i, key in enumerate(self.keys)
        ]
        self.on_the_way = Signal(range(fetches + 1))
        """Counters of other tiles of the set that were answered and are not back yet."""
        m.d.comb += self.on_the_way.eq(
            _population([self.same_set[i] & ~self.asked[i] & self.present[i] for i in range(fetches)])
        )
        for i in range(fetches):
            to_here = answer.valid & (answer.tag == i)
            b.assume(implies(to_here & self.mine[i], usable == self.out))
            b.assume(implies(to_here & self.mine[i] & usable, answer.record.count == self.away))
            b.assume(implies(to_here & self.same_set[i] & usable, self.on_the_way < self.others))


def _claims(w: WatchedBank) -> None:
    b, tile, count = w.b, w.tile, w.count
    now = count.operation
    amount = now.amount.count
    buffered = w.mine.any()
    b.claim(implies(w.here & count.complete, ~tile.complete))
    b.claim(implies(w.is_message & count.complete, w.counted + amount == tile.threshold))
    b.claim(implies(w.is_fill & count.complete, w.counted == tile.threshold))
    b.claim(implies((w.counted == tile.threshold) & ~buffered, tile.complete))
    b.claim(implies(tile.complete, w.counted == tile.threshold))
    wrong = now.stale | tile.missing | tile.complete
    past = w.counted + amount > tile.threshold
    # What is in the store while a message comes is added when it returns, and judged then.
    b.claim(implies(w.is_message & count.refused, wrong | past))
    b.claim(implies(w.is_message & ~count.refused, ~wrong & (buffered | w.out | ~past)))
    b.claim(implies(w.is_fill & count.refused, (count.fault == Fault.PAST_THRESHOLD) & (w.counted > tile.threshold)))
    b.claim(implies(w.is_fill, ~count.selection.hit))
    b.claim(implies(w.evicted, count.spill_request.record.count == w.counted))
    b.claim(implies(w.block.signal("spill"), w.block.component("spills").i.ready))
    b.claim(implies(count.fetch, ~w.active.all()))


def _bytes_claim(w: WatchedBank) -> None:
    """Bytes taken in = bytes in the pipeline + bytes counted + bytes refused or dropped with a fault.

    Stage by stage: what came into a stage is what left it and what is in it, so the sum over all stages follows.
    """
    b, m, tile, count = w.b, w.b.m, w.tile, w.count
    amount = count.operation.amount.count
    sent = Signal(SUM_BITS)
    dropped = Signal(SUM_BITS)
    with m.If(w.message):
        m.d.sync += sent.eq(sent + w.dut.messages.payload.bytes)
    with m.If(w.is_message & count.refused):
        m.d.sync += dropped.eq(dropped + amount)
    with m.Elif(w.is_fill & count.refused):
        m.d.sync += dropped.eq(dropped + w.counted - Mux(w.out, w.away, 0))
    judged = sent
    for number, (valid, stage) in enumerate(w.stages, 1):
        came, judged = judged, Signal(SUM_BITS, name=f"left_{number}")
        inside = valid & ~stage.fill & tile.named(stage.key.wg, stage.key.wf)
        moving = Mux(inside, stage.amount.count, 0)
        m.d.sync += judged.eq(judged + moving)
        b.claim(came == (judged + moving)[:SUM_BITS])
    b.claim(judged == (w.counted + dropped)[:SUM_BITS])
    b.claim(implies(w.is_message & count.refused, count.fault != Fault.LEFT_OVER))


def _cache_invariants(w: WatchedBank) -> None:
    """The watched tile's counter is in one place; the pipeline's copies agree with the memory."""
    b, m, config, tile, block = w.b, w.b.m, w.config, w.tile, w.block
    ways, entry = config.tracker_ways, entry_layout(config)
    row_layout = data.ArrayLayout(entry, ways)
    set_number = tile.wg[: config.set_bits]
    raw = block.word("storage.sets", set_number)
    spills = block.word("storage.spills", set_number)
    # A write is in a register for a cycle before it enters the memory; the set is the memory's word with it.
    entering, entered = (block.view(f"storage.{name}", write_layout(config)) for name in ("entering", "entered"))

    def written(write: data.View, ways_before: Value) -> Value:
        before = data.View(row_layout, ways_before)
        return Cat(
            Mux((write.set == set_number) & write.ways[way], write.entry.as_value(), before[way].as_value())
            for way in range(ways)
        )

    def counted(write: data.View, spills_before: Value) -> Value:
        return Mux((write.set == set_number) & write.spills, write.spilled, spills_before)

    content = Signal(row_layout)
    row = data.View(row_layout, content.as_value())
    spilled = Signal(len(spills))
    m.d.comb += [content.as_value().eq(written(entering, raw)), spilled.eq(counted(entering, spills))]
    tag = Cat(tile.wf, tile.wg[config.set_bits :])
    clearing, clear_index = block.signal("storage.clearing"), block.signal("storage.clear_index")
    epoch = w.dut.epoch[:ENTRY_EPOCH_BITS]
    used, match = Signal(ways), Signal(ways)
    for way in range(ways):
        m.d.comb += [
            used[way].eq(row[way].valid & (row[way].epoch == epoch)),
            match[way].eq(used[way] & (row[way].tag == tag)),
        ]
    resident = match.any()
    buffered = w.mine.any()
    b.invariant(implies(~clearing, clear_index == 0))
    b.invariant(implies(clearing & (clear_index > set_number), (raw == 0) & (spills == 0)))
    b.invariant(implies(clearing, (w.counted == 0) & ~w.out & (w.others == 0) & ~tile.complete))
    running = block.signal("running")
    b.invariant(implies(clearing | ~running, ~(w.valids.any() | w.active.any())))
    b.invariant(implies(clearing | ~running, ~(entering.ways.any() | entering.spills)))
    b.invariant(implies(running, ~clearing))
    b.invariant(block.state("clear", "CLEAR") | block.state("clear", "RUN"))
    settled = ~clearing
    b.invariant(implies(settled, at_most_one(match)))
    for way in range(ways):
        b.invariant(implies(settled & match[way], row[way].count == w.counted))
    b.invariant(implies(settled & resident, ~tile.complete & ~buffered & ~w.out))
    b.invariant(at_most_one(w.mine))
    b.invariant(implies(tile.complete, ~buffered & ~w.out & (w.counted == tile.threshold)))
    b.invariant(implies(settled & ~resident & ~buffered & ~w.out & ~tile.complete, w.counted == 0))
    b.invariant(implies(w.out, w.away < tile.threshold))
    b.invariant(implies(~tile.complete & ~buffered, w.counted < tile.threshold))
    b.invariant(implies(w.out & ~buffered, w.counted == w.away))
    b.invariant(implies(settled, spilled == (w.others + w.out)[: config.tag_bits + 1]))
    b.invariant(w.others < (1 << config.tag_bits))
    b.invariant(w.on_the_way <= w.others)

    # Stage 3 has what the memory gave, stage 4 that with the writes since; what enters the memory now is still missing.
    (v3, s3), (v4, s4), (v5, s5) = w.stages[2:5]
    set_3, set_4, set_5 = (s.key.wg[: config.set_bits] for s in (s3, s4, s5))
    b.invariant(implies(v3, block.signal("storage.reading") == set_3))
    b.invariant(implies(v3, block.signal("storage.entered_is_read") == (entered.set == set_3)))
    b.invariant(implies(v3, block.signal("storage.entering_is_read") == (entering.set == set_3)))
    b.invariant(implies(v4, block.signal("storage.entering_is_held") == (entering.set == set_4)))
    b.invariant(implies(v4 & v5, block.signal("ways.same_set") == (set_4 == set_5)))
    same_tile = (s4.key.wg == s5.key.wg) & (s4.key.wf == s5.key.wf)
    b.invariant(implies(v4 & v5, block.signal("ways.same_tile") == same_tile))
    in_set_3, in_set_4 = (v & (s.key.wg[: config.set_bits] == set_number) for v, s in w.stages[2:4])
    b.invariant(implies(in_set_3, written(entered, block.read_data("storage.sets")) == raw))
    b.invariant(implies(in_set_3, counted(entered, block.read_data("storage.spills")) == spills))
    b.invariant(implies(in_set_4, block.signal("storage.held_entries") == raw))
    b.invariant(implies(in_set_4, block.signal("storage.held_spilled") == spills))

    # Stage 5 knows where the tile is, and takes its place only by evicting it.
    found = w.count.selection
    own, inside = w.here, w.in_set
    gathered = one_of(w.mine, [counter.count for counter in w.gathered])
    b.invariant(implies(own, (found.hit == resident) & (found.matched == buffered)))
    b.invariant(implies(own, found.before.count == Mux(buffered, gathered, Mux(resident, w.counted, 0))))
    b.invariant(implies(inside & found.hit, Mux(own, found.way == match, (found.way & match) == 0)))
    b.invariant(implies(inside & ~found.hit, at_most_one(found.way) & found.way.any()))
    b.invariant(implies(inside & ~found.hit, found.full == used.all()))
    b.invariant(implies(inside & ~found.hit & ~found.full, (found.way & used) == 0))
    b.invariant(implies(inside, found.spilled == spilled))
    for way in range(ways):
        evicting = inside & ~found.hit & found.full & found.way[way]
        b.invariant(implies(evicting, found.victim.as_value() == row[way].as_value()))
    b.invariant(implies(own, found.remaining == (tile.threshold - w.count.operation.amount.count)))
    b.invariant(implies(own, (found.missing == tile.missing) & (found.place.as_value() == tile.place.as_value())))
    b.invariant(implies(own, block.signal("triggers.at_entry")))
    foreign = w.count.valid & ~own
    place = found.place
    b.invariant(implies(foreign, (place.index != tile.place.index) | (place.position != tile.place.position)))
    # Stages 2 to 4 of the geometry know the tile; at stage 4 its place and the bytes that are left are there.
    for n in (2, 3, 4):
        valid, stage = w.stages[n - 1]
        there = block.signal(f"geometry.here_{n}")
        b.invariant(implies(valid, there == tile.named(stage.key.wg, stage.key.wf)))
    geometry = block.component("geometry")
    own_4 = v4 & tile.named(s4.key.wg, s4.key.wf)
    place_4 = geometry.place
    b.invariant(implies(own_4, geometry.remaining == (tile.threshold - s4.amount.count)))
    b.invariant(implies(own_4, place_4.as_value() == tile.place.as_value()))
    b.invariant(implies(own_4, block.signal("triggers.looked_up_entry")))
    foreign_4 = v4 & ~own_4
    b.invariant(implies(foreign_4, (place_4.index != tile.place.index) | (place_4.position != tile.place.position)))


def _buffer_invariants(w: WatchedBank) -> None:
    """Every MSHR in use is asked for, answered, or on its way through the pipeline as a fill."""
    b, config, tile, count = w.b, w.config, w.tile, w.count
    fetches = config.tracker_mshrs
    here = Mux(w.out, w.away, 0)
    for i in range(fetches):
        states = [w.asked[i], w.answered[i]] + [v & s.fill & s.buffer[i] for v, s in w.stages]
        b.invariant(_population(states) == w.active[i])
        b.invariant(implies(w.mine[i], w.counted == w.gathered[i].count + here))
        b.invariant(implies(w.mine[i], w.gathered[i].count <= tile.threshold))
        b.invariant(implies(w.mine[i] & ~w.asked[i], w.present[i] == w.out))
        b.invariant(implies(w.mine[i] & w.answered[i], w.records[i].count == here))
        for v, s in w.stages:
            moving = v & s.fill & s.buffer[i]
            b.invariant(implies(moving, s.key.as_value() == w.keys[i].as_value()))
            b.invariant(implies(moving, s.present == w.present[i]))
            b.invariant(implies(moving & w.mine[i], s.amount.count == here))
    for v, s in w.stages:
        b.invariant(implies(v & s.fill, s.buffer.any() & at_most_one(s.buffer)))
    found, now = count.selection, count.operation
    b.invariant(implies(w.is_message, found.matches == w.mine))
    b.invariant(implies(count.valid & now.fill, found.matches == now.buffer))
    b.invariant(implies(count.valid & ~w.here, (found.matches & w.mine) == 0))
    spill_room, mshr_room = w.block.signal("spill_room"), w.block.signal("mshr_room")
    flights = _population([v for v, _ in w.stages])
    messages = _population([v & ~s.fill for v, s in w.stages])
    queued = w.block.signal("spill") + w.block.component("spills").level
    b.invariant(spill_room + flights + queued == config.spill_queue_depth)
    b.invariant(mshr_room + messages + _population(list(w.active)) == fetches)


def _watched(b: Bench, stuck: dict[str, int], counted_bits: int) -> WatchedBank:
    """A bank within one epoch: full size, or small where it is run from reset."""
    small = Configuration(tracker_sets=4, tracker_ways=1, tracker_mshrs=2, trigger_blocks=16)
    config = small if b.reduced else Configuration(tracker_mshrs=4)
    w = WatchedBank(b, config, stuck, counted_bits)
    b.m.d.comb += w.dut.clear.eq(0)
    b.cover(w.here & w.count.complete & (w.tile.threshold == 96) & (w.count.operation.amount.count == 32))
    return w


_SCOPE = (
    "256 sets x 8 ways x 76 bits, 4 MSHRs, any tile; one epoch (between two clears); geometry and trigger "
    "table by their specification; the store keeps the order of the spill requests (cover and seeded bug: 4 sets "
    "x 1 way)"
)


@proof(
    block="tracker_bank",
    claim="a WF tile triggers exactly once, when the bytes counted reach its threshold and never before, through "
    "evictions and fetches; its counter is in one place and leaves it whole; no queue or buffer overflows",
    scope=_SCOPE,
    bug="ways.same_tile stuck at 0: an access does not see the one just before it",
    bug_depth=18,
    cover_depth=30,
    depth=1,
    time_limit=1100,
)
def tracker_exactly_once(b: Bench) -> None:
    w = _watched(b, {"ways.same_tile": 0}, Configuration().count_bits + 1)
    _claims(w)
    if not b.seeded:
        _cache_invariants(w)
        _buffer_invariants(w)
    b.cover(w.is_fill & w.count.complete & w.count.operation.present)


@proof(
    block="tracker_bank",
    claim="every byte taken in is counted once or refused with a fault: bytes in = in the pipeline + counted + refused",
    scope=_SCOPE,
    bug="stage_valid stuck at 0: messages are lost in the pipeline",
    bug_depth=16,
    cover_depth=24,
    depth=1,
)
def tracker_bytes(b: Bench) -> None:
    _bytes_claim(_watched(b, {"stage_valid": 0}, SUM_BITS))
