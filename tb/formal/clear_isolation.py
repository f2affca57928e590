"""Proof that memory is cleared nowhere but in the regions that are programmed."""

from amaranth import Cat, Mux, Signal

from hw.memory_clear import MemoryClear
from hw.memory_window import in_window
from hw.messages import Mapping
from hw.range_table import Control, Word
from hw.tracker.parameters import TrackerParameters
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof


@proof(
    block="memory_clear",
    claim="every sector that is cleared lies between base and limit of a valid range with first touch that is not "
    "remote-mapped, or in the Tracker's backing store, and in the window",
    scope="4 ranges, 1 channel, addresses of 36 bits; any words of the range table, programmed while nothing is "
    "cleared; any backing store and window that do not change meanwhile",
    bug="empty stuck at 0: a range whose limit is its base is cleared",
    bug_depth=16,
    cover_depth=20,
    depth=1,
)
def clear_isolation(b: Bench) -> None:
    m = b.m
    config = TrackerParameters(va_bits=36, ranges=4, wg_bits=9, channels=1)
    dut = MemoryClear(config)
    block = b.open_block(dut, stuck={"empty": 0})
    window = b.any_const(32, "window")
    backing, sectors = (
        b.any_const(port.shape(), name)
        for port, name in ((dut.backing_base, "backing"), (dut.backing_sectors, "sectors"))
    )
    b.assume((dut.window.as_value() == window) & (dut.backing_base == backing) & (dut.backing_sectors == sectors))
    b.assume(implies(dut.ranges.valid, dut.finished & ~dut.start))

    index, of_records = block.component("table").index, block.signal("of_records")
    first, last, bound = block.signal("first"), block.signal("last"), block.signal("bound")
    entry = block.entry("table", index)
    control = Control(entry[Word.CONTROL])
    base, limit = Signal(config.va_sector_bits), Signal(config.va_sector_bits)
    m.d.comb += [
        base.eq(Cat(entry[Word.BASE_LOW], entry[Word.BASE_HIGH])),
        limit.eq(Cat(entry[Word.LIMIT_LOW], entry[Word.LIMIT_HIGH])),
    ]
    end = backing + sectors

    def states(*names: str) -> Signal:
        found = Signal(name="in_" + "_".join(names).lower())
        m.d.comb += found.eq(sum(block.state("clear", name) for name in names) != 0)
        return found

    va = dut.memory[0].payload.va
    whole = Mux(
        of_records,
        (va >= backing) & (va < end),
        control.valid & control.first_touch & (control.mapping != Mapping.REMOTE) & (va >= base) & (va < limit),
    )
    b.claim(implies(dut.memory[0].valid, whole & in_window(config, dut.window, va)))

    started = ~dut.finished
    b.invariant(
        implies(started, (block.signal("cleared_base") == backing) & (block.signal("cleared_sectors") == sectors))
    )
    empty = block.signal("empty")
    ready = (states("BEGIN") & ~empty) | states("WALK")
    measured = states("MEASURE") | ready
    b.invariant(implies(measured & ~of_records, (first == base) & (bound == limit)))
    b.invariant(
        implies(measured & ~of_records, control.valid & control.first_touch & (control.mapping != Mapping.REMOTE))
    )
    b.invariant(implies(measured & of_records, (bound <= end) & (bound[-1] | (backing <= first))))
    b.invariant(implies(states("BOUND", "PLACE"), of_records))
    b.invariant(implies(states("PLACE"), bound <= sectors))
    b.invariant(implies(ready, (last == (bound - 1)[: len(last)]) & (first < bound)))
    b.invariant(implies(states("BEGIN") & ~empty, block.signal("beyond") == bound[-1]))
    walking = block.signal("walking")
    b.invariant(implies(walking, states("WALK")))
    inside = in_window(config, dut.window, first) & in_window(config, dut.window, last)
    b.invariant(implies(states("WALK"), ~bound[-1] & inside))
    turn, left, at_first = block.signal("turn"), block.signal("turns_left"), block.signal("at_first")
    shift = len(first) - len(turn)
    b.invariant(
        implies(
            walking, (turn >= first[shift:]) & (turn <= last[shift:]) & (left == (last[shift:] - turn)[: len(left)])
        )
    )
    b.invariant(implies(walking, at_first == (turn == first[shift:])))
    b.invariant(implies(walking, block.signal("at_last") == (left == 0)))

    b.cover(dut.memory[0].valid & of_records)
    b.cover(dut.memory[0].valid & ~of_records & (va == limit - 1) & (va == base + 9))
