"""The words of a table that software reads back, with check bits, and what keeps them and their copies as programmed.

The blocks that use a table have copies of its words, each with a parity, which finds a wrong bit and cannot correct it.
Here it can be: every word is read once in a while, corrected, and broadcast as when it was written.
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, WritePort
from amaranth.lib.wiring import In, Out

from ..primitives.secded import check_bits, check_width, is_lost, syndrome, wrong_bits
from ..protection import MemoryReport, MemoryUpset, ProtectedMemory, turned_bits
from ..word_table import is_wrong

WORD_BITS = 32
CHECK_BITS = check_width(WORD_BITS)


def _bytes(word: Value) -> list[Value]:
    return [word[low : low + 8] for low in range(0, WORD_BITS, 8)]


@dataclass(frozen=True)
class TablePlace:
    """Where the words of a table stand: `entries` entries of 2**`entry_bits` words, of which `words` are used; `first`:
    its first word among all of :attr:`hw.protection.ProtectedMemory.TABLES`."""

    first: int
    entries: int
    entry_bits: int
    words: int

    @property
    def index_bits(self) -> int:
        """Width of a word's number."""
        return self.entry_bits + (self.entries - 1).bit_length()


class ProtectedWords(wiring.Component):
    """A memory of words that is written through a bus, and sees to it that what is on the bus is right.

    Ports: `address`: the word read in this cycle; in the next one `word`, as it is in memory, its syndrome `found`, and
    `used`: it is used; in the next but one `corrected`. `put`: the bytes of `strobe` of the word that was read in the
    cycle before become those of `value`, both with `place` kept for a cycle more; `clear`: word `place` becomes 0.
    `bus`, the programming bus. `free`: nobody reads in this cycle, nor puts in the next; `scrub` (pulse): read the next
    word, put its wrong bit right and have it on the bus, `renewed`, as soon as it is `free`; `renew` (pulse): do so
    with all words, one after the other; `upset`: of TABLES turn bits of a word in this memory, check bits behind it; of
    TABLE_COPIES of a word as it is on the bus, whose bit 32 is its parity; `report`: a word was corrected in memory; or
    is lost, as it was used, looked at, or on its way into the memory. What is lost is not broadcast, and reported anew
    whenever it is met, until all of its bytes are written.

    Latency: `put` to `bus` and memory 2 cycles, `clear` 1; what was put in the cycle before is read all the same;
    `free` to `bus` 3 cycles; `used` to `report` 2. A word that is found wrong by who uses it is the next that is looked
    at. After reset, memory is garbage until it is written.
    """

    def __init__(self, bus: data.StructLayout, place: TablePlace):
        self._place = place
        bits = place.index_bits
        super().__init__(
            {
                "address": In(bits),
                "word": Out(WORD_BITS),
                "found": Out(CHECK_BITS),
                "used": In(1),
                "corrected": Out(WORD_BITS),
                "clear": In(1),
                "put": In(1),
                "place": In(bits),
                "value": In(WORD_BITS),
                "strobe": In(WORD_BITS // 8),
                "bus": Out(bus),
                "free": In(1),
                "scrub": In(1),
                "renew": In(1),
                "upset": In(MemoryUpset),
                "report": Out(MemoryReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self._place.index_bits
        memory = Memory(shape=WORD_BITS + CHECK_BITS, depth=1 << bits, init=[])
        m.submodules.words = memory
        read = memory.read_port()
        storing = Signal()
        """What was put is on its way into the memory, from the registers of the bus."""
        stored = Signal(bits)
        putting = Signal()
        programmed = Signal()
        looked_at = Signal()
        turned = Signal()
        on_bus_wrong = self._store(m, memory.write_port(), storing, stored, turned)

        # What comes out of the memory, or is on its way into it.
        visits = Signal()
        turns = Signal()
        visited = Signal(bits)
        visiting = Signal()
        turning = Signal()
        read_place = Signal(bits)
        passed = Signal()
        m.d.comb += [
            read.addr.eq(Mux(self.free, visited, self.address)),
            self.word.eq(Mux(passed, self.bus.data, read.data[:WORD_BITS])),
            self.found.eq(Mux(passed, 0, syndrome(read.data[:WORD_BITS], read.data[WORD_BITS:]))),
        ]
        m.d.sync += [
            visiting.eq(visits),
            turning.eq(visits & turns),
            read_place.eq(read.addr),
            # A word on its way to be mended needs no passing: what is read of it is corrected, too.
            passed.eq((putting & (self.place == read.addr)) | (programmed & (stored == read.addr))),
        ]

        # A cycle later it is corrected.
        raw = Signal(WORD_BITS)
        parities = Signal(WORD_BITS // 8)
        """Of the bytes of `raw`, but not made of it: a bit that turns there shows on the bus."""
        raw_found = Signal(CHECK_BITS)
        errors = Signal(WORD_BITS)
        lost = Signal()
        used = Signal()
        place = Signal(bits)
        m.d.sync += [
            raw.eq(self.word),
            parities.eq(Cat(byte.xor() for byte in _bytes(self.word))),
            raw_found.eq(self.found),
            used.eq(self.used),
            place.eq(read_place),
            putting.eq(self.put),
            looked_at.eq(visiting),
            turned.eq(turning),
        ]
        m.d.comb += [
            errors.eq(wrong_bits(raw_found, WORD_BITS)),
            self.corrected.eq(raw ^ errors),
            lost.eq(is_lost(raw_found, WORD_BITS)),
        ]
        wrong = raw_found.any() & ~lost
        busy = visiting | looked_at | storing
        self._visit(m, busy, visits, turns, visited, used & wrong, place)

        of_copies = self.upset.memory == ProtectedMemory.TABLE_COPIES
        programs = self.clear | putting
        flips = Mux(turned & of_copies, turned_bits(self.upset)[: WORD_BITS + 1], 0)
        target = Mux(programs, self.place, place)
        word, word_parity = self._merged(parities, errors, putting)
        with m.If(programs | looked_at):
            m.d.sync += [
                self.bus.word.eq(target[: self._place.entry_bits]),
                self.bus.index.eq(target[self._place.entry_bits :]),
                self.bus.renewed.eq(~programs),
                self.bus.data.eq(word ^ flips[:WORD_BITS]),
                self.bus.parity.eq(Cat(word_parity, target, ~programs, flips[WORD_BITS]).xor()),
            ]
        m.d.sync += [
            self.bus.valid.eq(programs | (looked_at & ~lost & (~turned | of_copies))),
            programmed.eq(programs),
            storing.eq(programs | (looked_at & ~lost & Mux(turned, ~of_copies, wrong))),
            self.report.corrected.eq(looked_at & wrong),
            self.report.lost.eq(((looked_at | used) & lost) | on_bus_wrong),
            self.report.address.eq(self._place.first | Mux(on_bus_wrong, stored, place)),
        ]
        return m

    def _store(self, m: Module, write: WritePort, storing: Signal, stored: Signal, turned: Signal) -> Value:
        """Write what is on the bus, at `stored`; returns whether it must not be, because a bit of it is wrong."""
        spoilt = Signal()
        m.d.sync += spoilt.eq(turned)
        on_bus_wrong = storing & is_wrong(self.bus)
        flips = Mux(spoilt, turned_bits(self.upset)[: WORD_BITS + CHECK_BITS], 0)
        m.d.comb += [
            stored.eq(Cat(self.bus.word[: self._place.entry_bits], self.bus.index)),
            write.addr.eq(stored),
            write.data.eq(Cat(self.bus.data, check_bits(self.bus.data)) ^ flips),
            write.en.eq(storing & ~on_bus_wrong),
        ]
        return on_bus_wrong

    def _merged(self, parities: Signal, errors: Signal, putting: Signal) -> tuple[Value, Value]:
        """The word that is to be on the bus, and its parity: of what is put and what was read, with `parities` and
        `errors`, byte by byte; or 0."""
        word, parity = [], []
        places = zip(_bytes(self.value), _bytes(self.corrected), _bytes(errors), parities, self.strobe, strict=True)
        for given, old, wrong, old_parity, strobe in places:
            takes = putting & strobe
            word.append(Mux(self.clear, 0, Mux(takes, given, old)))
            parity.append(~self.clear & Mux(takes, given.xor(), old_parity ^ wrong.any()))
        return Cat(word), Cat(parity).xor()

    def _visit(
        self,
        m: Module,
        busy: Value,
        visits: Signal,
        turns: Signal,
        visited: Signal,
        wrong: Value,
        found_at: Signal,
    ) -> None:
        """Which word is looked at (`visited`) in a cycle with `visits`, while the one before is not `busy`, and whether
        to turn bits of it; one that was `wrong` when it was used, at `found_at`, comes before others."""
        place = self._place
        word = Signal(range(place.words))
        entry = Signal(range(place.entries))
        due = Signal()
        rounds = Signal(2)
        """Ends of the table that are to be met before all words have been on the bus."""
        wanted = Signal()
        wanted_place = Signal(place.index_bits)
        m.d.comb += [
            visits.eq(self.free & ~busy & (due | rounds.any() | wanted | turns)),
            visited.eq(Mux(turns, self.upset.address, Mux(wanted, wanted_place, Cat(word, entry)))),
        ]
        with m.If(visits & ~turns & ~wanted):
            m.d.sync += [due.eq(0), word.eq(word + 1)]
            with m.If(word == place.words - 1):
                m.d.sync += [word.eq(0), entry.eq(entry + 1)]
                with m.If(entry.all() & rounds.any()):
                    m.d.sync += rounds.eq(rounds - 1)
        with m.If(self.scrub):
            m.d.sync += due.eq(1)
        with m.If(self.renew):
            m.d.sync += rounds.eq(2)
        with m.If(visits & ~turns):
            m.d.sync += wanted.eq(0)
        with m.If(wrong):
            m.d.sync += [wanted.eq(1), wanted_place.eq(found_at)]
        memory, address = self.upset.memory, self.upset.address
        of_tables = (memory == ProtectedMemory.TABLES) | (memory == ProtectedMemory.TABLE_COPIES)
        with m.If(self.upset.valid):
            m.d.sync += turns.eq(of_tables & (address[place.index_bits :] == place.first >> place.index_bits))
        with m.Elif(visits):
            m.d.sync += turns.eq(0)
