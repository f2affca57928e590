"""Proof of the words of a table that software reads back: what scrubbing and renewal broadcast is what was written."""

from amaranth import Cat, Mux, Signal

from hw.config import preset
from hw.primitives.secded import check_bits
from hw.registers.protected_words import WORD_BITS, ProtectedWords, TablePlace
from hw.send_table import send_write
from hw.word_table import is_wrong
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof


@proof(
    block="register_file",
    claim="whatever is read, written in part, scrubbed and renewed: what is on the bus for a word is what was written "
    "there last, with its parity, what is read is that too, and nothing is reported",
    scope="2 entries of 2 words; a word is read before bytes of it are put, nothing is put in the next two cycles, "
    "`free` and `clear` as the register file has them; no upset, no error",
    bug="passed stuck at 0: what is on its way into the memory is not seen by who reads it",
    bug_depth=12,
    cover_depth=12,
    depth=3,
)
def words_are_broadcast_as_they_were_written(b: Bench) -> None:
    m = b.m
    place = TablePlace(first=0, entries=2, entry_bits=1, words=2)
    bus = send_write(preset("paper", protection="all"))
    dut = ProtectedWords(bus, place)
    block = b.block(dut, stuck={"passed": 0})
    b.free(dut.address, dut.put, dut.clear, dut.place, dut.value, dut.strobe, dut.used, dut.free, dut.scrub, dut.renew)
    watched = b.any_const(place.index_bits, "watched")

    put_1 = b.past(dut.put, "put_before")
    put_2 = b.past(put_1, "put_two_before")
    free_1 = b.past(dut.free, "free_before")
    address_1 = b.past(dut.address, "address_before")
    started = Signal()
    with m.If(~dut.clear):
        m.d.sync += started.eq(1)
    b.assume(implies(dut.put, ~put_1 & ~put_2 & ~free_1 & ~dut.free & (address_1 == dut.place) & started))
    b.assume(implies(dut.used, ~free_1 & started))
    b.assume(implies(dut.clear, ~started & ~dut.put & ~dut.free))
    for port in (dut.place, dut.value, dut.strobe):
        b.assume(implies(put_1, port == b.past(port, f"{port.name}_before")))

    # The word as it is meant, from when it is cleared on; other words may be anything.
    known = Signal()
    meant = Signal(WORD_BITS)
    here = dut.place == watched
    with m.If(dut.clear & here):
        m.d.sync += [known.eq(1), meant.eq(0)]
    for byte in range(WORD_BITS // 8):
        low = 8 * byte
        with m.If(put_1 & here & dut.strobe[byte]):
            m.d.sync += meant[low : low + 8].eq(dut.value[low : low + 8])
    b.assume(implies(started, known))

    on_bus = Cat(dut.bus.word[0], dut.bus.index[0]) == watched
    right = (dut.bus.data == meant) & ~is_wrong(dut.bus)
    b.claim(implies(started & dut.bus.valid & on_bus, right))
    used_1 = b.past(dut.used, "used_before")
    at_1 = b.past(address_1, "address_two_before")
    b.claim(implies(used_1 & ~put_2 & (at_1 == watched), dut.corrected == meant))
    b.claim(implies(started & (dut.report.address == watched), ~dut.report.lost & ~dut.report.corrected))

    # Where the word is on its way.
    clear_1 = b.past(dut.clear, "cleared_before")
    storing, programmed, passed = (block.signal(name) for name in ("storing", "programmed", "passed"))
    visiting, looked_at = block.signal("visiting"), block.signal("looked_at")
    read_place, place_2 = block.signal("read_place"), block.signal("place")
    free_2 = b.past(free_1, "free_two_before")
    b.invariant(implies(clear_1, ~free_1 & ~started) & implies(started, known))
    b.invariant(block.signal("putting") == put_1)
    b.invariant(programmed == (put_2 | clear_1))
    b.invariant(
        implies(visiting, free_1) & implies(looked_at, free_2) & implies(free_1, started) & implies(free_2, started)
    )
    b.invariant(implies(visiting, ~looked_at & (~storing | programmed)) & implies(looked_at, ~storing))
    b.invariant(implies(programmed, storing & dut.bus.valid & ~dut.bus.renewed))
    stored = Cat(dut.bus.word[0], dut.bus.index[0])
    b.invariant((dut.bus.word[1:] == 0) & (dut.bus.index[1:] == 0))
    b.invariant(implies(storing & (stored == watched) & known, right & programmed))
    code = Cat(meant, check_bits(meant))
    b.invariant(implies(known & ~(storing & (stored == watched)), block.word("words", watched) == code))
    b.invariant(
        implies(
            known & ~clear_1 & (read_place == watched),
            Mux(passed, dut.bus.data == meant, block.read_data("words") == code),
        )
    )
    held = (looked_at | put_1 | used_1) & ~put_2 & (place_2 == watched)
    parities = Cat(meant[low : low + 8].xor() for low in range(0, WORD_BITS, 8))
    b.invariant(
        implies(
            held & known,
            (block.signal("raw") == meant) & (block.signal("raw_found") == 0) & (block.signal("parities") == parities),
        )
    )
    for name in ("turns", "turning", "turned", "spoilt"):
        b.invariant(~block.signal(name))
    b.invariant(block.signal("used") == used_1)
    b.cover(dut.bus.valid & dut.bus.renewed & on_bus & (dut.bus.data == 0x12345678))
    b.cover(used_1 & (at_1 == watched) & (dut.corrected == 0x12345678))
