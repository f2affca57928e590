"""Puts right the counters of a Tracker bank whose check bits do not agree with them (hw/DECISIONS.md 72).

No operation waits for a correction: it is refused its set and goes around the pipeline once more, while here the word
that is wrong is found, corrected, and written back where it was. In idle cycles the same is done for one set after the
other, so that no second error meets a first that lay for long; and a self test turns bits the same way.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.secded import check_width, is_lost, wrong_bits
from ..protection import WAY_BITS, MemoryReport, MemoryUpset, ProtectedMemory, turned_bits
from .mshr import one_of
from .parameters import TrackerParameters
from .storage import entry_layout, mend_layout
from .tile_geometry import bank_bits

TIMEOUT = 15
"""Cycles after which a suspicion is dropped: an operation comes around in 5, so the error was not in the memory."""


class SetMender(wiring.Component):
    """Beside the storage of bank number `bank`.

    Ports: `scrub` (pulse): look at the next set; `upset`: turn bits of a word; `running`: both may begin. Stage 2:
    `idle`, no operation is here; then, if `reads`, `read_set` is read. Stage 4: `looked_at`, an operation's set is
    here, `set` (else what `reads` asked for 2 cycles ago, if it did); `wrong`, `held`, `spilled_held`, their syndromes
    and `settled` as of :class:`CounterStorage`. Stage 5: `counting`, an operation is here that may write. `holds`: no
    operation may enter, for some cycles; `mend`: to the storage, in a cycle in which stage 5 is empty; `busy`:
    something of all this is under way; `report`: what was corrected, or is lost, and so was written back as empty.
    Latency: an operation that
    meets an error passes stage 4 again 5 cycles later, and for good 10 cycles later, if no other is in its way.
    """

    def __init__(self, config: TrackerParameters, bank: int):
        self._config = config
        self._bank = bank
        set_shape = range(config.tracker_sets // config.tracker_banks)
        entry, spilled_bits = entry_layout(config), config.tag_bits + 1
        super().__init__(
            {
                "scrub": In(1),
                "upset": In(MemoryUpset),
                "running": In(1),
                "idle": In(1),
                "reads": Out(1),
                "read_set": Out(set_shape),
                "looked_at": In(1),
                "set": In(set_shape),
                "wrong": In(config.tracker_ways + 1),
                "held": In(data.ArrayLayout(entry, config.tracker_ways)),
                "spilled_held": In(spilled_bits),
                "syndrome_ways": In(data.ArrayLayout(check_width(entry.size), config.tracker_ways)),
                "syndrome_spilled": In(check_width(spilled_bits)),
                "settled": In(1),
                "counting": In(1),
                "holds": Out(1),
                "busy": Out(1),
                "mend": Out(mend_layout(config)),
                "report": Out(MemoryReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        ways = config.tracker_ways

        # What is suspected: the set, and its words that were wrong, of which the first is mended.
        suspected = Signal()
        age = Signal(range(TIMEOUT + 1))
        suspect_set = Signal.like(self.set)
        suspect_words = Signal(ways + 1)
        found = Signal()

        due = Signal()
        next_set = Signal.like(self.set)
        turning = Signal()
        turn_set = Signal.like(self.set)
        turn_word = Signal(ways + 1)
        slots = Signal(3)
        slot_set = Signal.like(self.set)
        slot_turns = Signal()
        m.d.comb += [
            self.reads.eq(self.running & self.idle & ~slots.any() & (turning | due | suspected)),
            self.read_set.eq(Mux(suspected, suspect_set, Mux(turning, turn_set, next_set))),
        ]
        m.d.sync += slots.eq(Cat(self.reads, slots))
        with m.If(self.reads):
            m.d.sync += [slot_set.eq(self.read_set), slot_turns.eq(turning & ~suspected)]

        # Whether a set is wrong is known late in stage 4, and used in the cycle after it: these are of the stage then.
        here = Signal.like(self.set)
        wrong = Signal.like(self.wrong)
        quiet = Signal()
        suspected_there = Signal()
        taken = Signal()
        turned = Signal()
        m.d.sync += [
            here.eq(Mux(slots[1], slot_set, self.set)),
            found.eq((self.looked_at | slots[1]) & self.wrong.any()),
            wrong.eq(self.wrong),
            # What stage 5 does, or what enters the memory, may be a newer word than the one seen here.
            quiet.eq(~self.counting & self.settled),
            suspected_there.eq(suspected),
        ]
        m.d.comb += [
            taken.eq(suspected & suspected_there & found & (here == suspect_set) & quiet),
            turned.eq(slots[2] & slot_turns & ~suspected_there & ~found & quiet & ~self.upset.valid),
            self.holds.eq(suspected | (turning & self.running)),
            self.busy.eq(slots.any() | self.mend.valid),
        ]
        with m.If(self.scrub):
            m.d.sync += due.eq(1)
        with m.If(slots[2] & ~slot_turns & ~found & (slot_set == next_set)):
            m.d.sync += [due.eq(0), next_set.eq(next_set + 1)]
        with m.If(~suspected & found):
            m.d.sync += [suspected.eq(1), suspect_set.eq(here), suspect_words.eq(wrong), age.eq(0)]
        with m.Elif(taken | (age == TIMEOUT)):
            m.d.sync += suspected.eq(0)
        with m.Else():
            m.d.sync += age.eq(age + 1)

        address = self.upset.address
        way = address[:WAY_BITS]
        low = WAY_BITS + bank_bits(config)
        mine = address[WAY_BITS:low] == self._bank if config.tracker_banks > 1 else 1
        with m.If(self.upset.valid):
            m.d.sync += turning.eq((self.upset.memory == ProtectedMemory.COUNTERS) & mine)
            # What is read for the request before serves it no more.
            m.d.sync += slot_turns.eq(0)
            m.d.sync += [turn_set.eq(address[low:]), turn_word.eq(1 << way)]
        with m.Elif(turned):
            m.d.sync += turning.eq(0)

        first = suspect_words & (~suspect_words + 1)[: ways + 1]
        seen = Mux(slots[1], slot_set, self.set)
        self._write_back(m, suspected | turning, (taken, turned), Mux(suspected, first, turn_word), seen)
        return m

    def _write_back(self, m: Module, looking: Value, events: tuple[Value, Value], word: Value, here: Value) -> None:
        """The `word` of the set that is `here` while it is `looking` for one; when it turns out to be `taken` or
        `turned` in the cycle after, it is written back: corrected, or with bits turned."""
        taken, turns = events
        config = self._config
        ways = config.tracker_ways
        entry_bits, spilled_bits = entry_layout(config).size, config.tag_bits + 1
        mended = Signal(entry_bits)
        counted = Signal(spilled_bits)
        entry_syndrome = Signal(check_width(entry_bits))
        spilled_syndrome = Signal(check_width(spilled_bits))
        chosen = Signal(ways + 1)
        place = Signal.like(here)
        valid = Signal()
        m.d.comb += valid.eq(taken | turns)
        # Whether it is wrong comes late in the cycle, so the word is taken before.
        with m.If(looking):
            m.d.sync += [
                mended.eq(one_of(word[:ways], [entry.as_value() for entry in self.held])),
                entry_syndrome.eq(one_of(word[:ways], list(self.syndrome_ways))),
                counted.eq(self.spilled_held),
                spilled_syndrome.eq(self.syndrome_spilled),
                chosen.eq(word),
                place.eq(here),
            ]
        lost = Signal()
        spilled_lost = is_lost(spilled_syndrome, spilled_bits)
        m.d.comb += lost.eq(Mux(chosen[ways], spilled_lost, is_lost(entry_syndrome, entry_bits)))
        mend = self.mend
        m.d.comb += [
            mend.valid.eq(valid),
            mend.set.eq(place),
            mend.ways.eq(chosen[:ways] & valid.replicate(ways)),
            mend.spills.eq(chosen[ways] & valid),
            mend.upset.eq(turns),
            mend.flips.eq(turned_bits(self.upset)),
        ]
        # A word that is lost is written back as empty: no count is ever more than was counted.
        with m.If(~lost):
            m.d.comb += [
                mend.entry.eq(mended ^ wrong_bits(entry_syndrome, entry_bits)),
                mend.spilled.eq(counted ^ wrong_bits(spilled_syndrome, spilled_bits)),
            ]
        report = self.report
        number = Signal(range(ways + 1))
        for place_of_word in range(ways + 1):
            with m.If(chosen[place_of_word]):
                m.d.comb += number.eq(place_of_word)
        wrong = Mux(chosen[ways], spilled_syndrome.any(), entry_syndrome.any())
        m.d.sync += [
            report.corrected.eq(valid & ~turns & wrong & ~lost),
            report.lost.eq(valid & ~turns & lost),
        ]
        with m.If(valid):
            m.d.sync += report.address.eq(self._address(place, number))

    def _address(self, place: Value, number: Value) -> Value:
        """As of :class:`ProtectedMemory`."""
        return Cat(number, Const(0, WAY_BITS - len(number)), Const(self._bank, bank_bits(self._config)), place)
