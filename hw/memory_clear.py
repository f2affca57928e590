"""Clearing of memory before an epoch is armed: tags of first-touch sectors, and records of the backing store.

Both outlive a reset of the node, and start as garbage, while what tells their epochs apart starts anew (hw/DECISIONS.md
40). So a range whose sectors, or whose counters' records, were not cleared since the reset is cleared when it is first
armed.
"""

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .geometry import INTERLEAVE_SECTORS, SECTOR_BYTES
from .memory_window import WindowCheck, in_window
from .messages import Access, Mapping, Messages, TrafficClass
from .range_table import Control, RangeTable, Word, range_write
from .tracker.parameters import TrackerParameters
from .tracker.spill import RECORD_BYTES
from .word_table import mask_of

_BOUNDS = (Word.BASE_LOW, Word.BASE_HIGH, Word.LIMIT_LOW, Word.LIMIT_HIGH)
_READ = {Word.CONTROL: mask_of(Control, "valid", "mapping", "first_touch", "tracked")}
_PLACE_BITS = (INTERLEAVE_SECTORS - 1).bit_length()


class MemoryClear(wiring.Component):
    """Writes zeros with epoch tag 0, which is never armed, to every sector that may hold something from before.

    Ports: `ranges`, the programming bus; `window`: of this node's memory; `backing_base`, sector address of the
    Tracker's backing store (0: none), `backing_sectors`, its length, neither to be changed after `start`;
    `arm`, pulse, with `initialised`: the host answers for the memory, nothing is cleared and all of it counts as
    cleared; `start`, pulse, after `arm`; `finished`, low from the next cycle until all that was written is at its bank;
    `settled`: no write taken from `memory` is still on its way there; `memory`, the writes, per channel;
    `wake`: see :mod:`hw.primitives.clock_enable`; with protection of memories `tables_wrong`, a pulse: a word of a
    range that was looked at or changed had a wrong bit.

    Cleared are the sectors from base to limit of each valid range with first touch that is not remote-mapped, and the
    record of each {wg, wf} of each such range that is tracked, unless they were since the last reset: that is
    remembered for each entry of the range table until its bounds, its workgroups or the backing store become others.
    A range that is not wholly in the window is left out, and so are records beyond the end of the backing store or in
    one that is not wholly in the window or ends with the last sector of the address space, which no range can hold:
    what is there is not reached by accesses either.
    Rate: one sector a cycle and channel, and one cycle per 8 sectors.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        messages = Messages(config)
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "window": In(WindowCheck),
                "backing_base": In(config.va_sector_bits),
                "backing_sectors": In(config.spill_sector_bits),
                "arm": In(1),
                "initialised": In(1),
                "start": In(1),
                "settled": In(1),
                "finished": Out(1),
                "wake": Out(1),
                "memory": Out(stream.Signature(messages.memory_request)).array(config.channels),
                **({"tables_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.table = table = RangeTable(config, [Word.CONTROL, *_BOUNDS, Word.WORKGROUPS], _READ)
        index = Signal(config.range_bits)
        write = self.ranges
        free = Signal()
        # A word that was used is known to be wrong or right in the next cycle, late in it.
        checking = Signal()
        m.d.comb += [
            free.eq(~write.valid),
            self.wake.eq(write.valid | self.arm | self.start | ~self.finished | checking),
            table.write.eq(write),
            table.index.eq(index),
        ]
        with m.If(write.valid):
            m.d.comb += table.index.eq(write.index)

        programs = write.valid
        looks = Signal()
        if config.protects_memories:
            # A word that comes again is as it was, whatever a wrong bit has made of the one that is kept.
            programs = write.valid & ~write.renewed
        # An entry that is programmed anew as it was needs no clearing.
        tags_known = Signal(config.ranges)
        records_known = Signal(config.ranges)
        bounds_change = Signal()
        groups_change = Signal()
        with m.Switch(write.word):
            for word in (*_BOUNDS, Word.WORKGROUPS):
                with m.Case(word.value):
                    change = groups_change if word is Word.WORKGROUPS else bounds_change
                    kept = Value.cast(getattr(table, word.name.lower()))
                    m.d.comb += change.eq(programs & (kept != write.data))

        vouched = Signal()
        with m.If(self.arm):
            m.d.sync += vouched.eq(self.initialised)
        cleared_base = Signal(config.va_sector_bits)
        cleared_sectors = Signal(config.spill_sector_bits)
        again = Signal()
        of_records = Signal()
        first = Signal(config.va_sector_bits)
        bound = Signal(config.va_sector_bits + 1)
        last = Signal(config.va_sector_bits)
        empty = Signal()
        beyond = Signal()
        spoiled = Signal()
        begin = Signal()
        over = Signal()
        control = table.control
        records = (1 << config.wf_bits) * RECORD_BYTES // SECTOR_BYTES
        shift = (records - 1).bit_length()
        # In the last cycle of a clear the FSM answers a call itself, below.
        with m.If(self.start & ~self.finished):
            m.d.sync += again.eq(1)
        with m.FSM(name="clear"):
            with m.State("IDLE"):
                m.d.comb += self.finished.eq(1)
                with m.If(self.start):
                    m.d.sync += [
                        cleared_base.eq(self.backing_base),
                        cleared_sectors.eq(self.backing_sectors),
                        index.eq(0),
                    ]
                    with m.If(vouched):
                        m.d.sync += [tags_known.eq(~0), records_known.eq(~0)]
                    with m.Else():
                        with m.If((self.backing_base != cleared_base) | (self.backing_sectors != cleared_sectors)):
                            m.d.sync += records_known.eq(0)
                        m.next = "TAGS"
            with m.State("TAGS"):
                m.d.comb += looks.eq(free)
                m.d.sync += [
                    first.eq(Cat(table.base_low, table.base_high)),
                    bound.eq(Cat(table.limit_low, table.limit_high)[: config.va_sector_bits]),
                    of_records.eq(0),
                    spoiled.eq(0),
                ]
                with m.If(free):
                    m.next = "RECORDS"
                    wanted = control.valid & control.first_touch & (control.mapping != Mapping.REMOTE)
                    with m.If(wanted & ~tags_known.bit_select(index, 1)):
                        m.next = "MEASURE"
            with m.State("RECORDS"):
                m.d.comb += looks.eq(free)
                m.d.sync += [
                    first.eq(table.workgroups.base << shift),
                    bound.eq((table.workgroups.base + table.workgroups.count) << shift),
                    of_records.eq(1),
                    spoiled.eq(0),
                ]
                with m.If(free):
                    m.next = "NEXT"
                    wanted = control.valid & control.tracked & (cleared_base != 0)
                    if config.tracker_tags:
                        with m.If(wanted & ~records_known.bit_select(index, 1)):
                            m.next = "BOUND"
            with m.State("BOUND"):
                with m.If(bound > cleared_sectors):
                    m.d.sync += bound.eq(cleared_sectors)
                m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [first.eq(cleared_base + first), bound.eq(cleared_base + bound)]
                m.next = "MEASURE"
                with m.If(bound <= first):
                    m.d.sync += empty.eq(1)
                    m.next = "BEGIN"
            with m.State("MEASURE"):
                m.d.sync += [last.eq(bound - 1), empty.eq(bound <= first), beyond.eq(bound[-1])]
                m.next = "BEGIN"
            with m.State("BEGIN"):
                outside = beyond | ~in_window(config, self.window, first) | ~in_window(config, self.window, last)
                m.next = "SETTLE"
                with m.If(~empty & outside):
                    m.d.sync += spoiled.eq(1)
                with m.Elif(~empty):
                    m.d.comb += begin.eq(1)
                    m.next = "WALK"
            with m.State("WALK"):
                with m.If(over):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                with m.If(self.settled):
                    m.next = "NEXT"
                    with m.If(of_records):
                        m.d.sync += records_known.bit_select(index, 1).eq(~spoiled)
                    with m.Else():
                        m.d.sync += tags_known.bit_select(index, 1).eq(~spoiled)
                        m.next = "RECORDS"
            with m.State("NEXT"):
                m.d.sync += index.eq(index + 1)
                m.next = "TAGS"
                with m.If(index == config.ranges - 1):
                    with m.If(again | self.start):
                        m.d.sync += [again.eq(0), index.eq(0)]
                    with m.Else():
                        m.next = "IDLE"
        with m.If(bounds_change):
            m.d.sync += tags_known.bit_select(write.index, 1).eq(0)
        with m.If(groups_change):
            m.d.sync += records_known.bit_select(write.index, 1).eq(0)
        with m.If((bounds_change | groups_change) & (write.index == index)):
            m.d.sync += spoiled.eq(1)
        if config.protects_memories:
            remembered = tags_known.bit_select(write.index, 1) | records_known.bit_select(write.index, 1)
            m.d.comb += [table.used.eq(looks | (programs & remembered)), self.tables_wrong.eq(table.wrong)]
            m.d.sync += checking.eq(table.used)
        self._walk(m, first, last, begin, over)
        return m

    def _walk(self, m: Module, first: Signal, last: Signal, begin: Value, over: Signal) -> None:
        """Write the sectors from `first` to `last`: in turns, in each of which every channel has 8."""
        config = self._config
        low = _PLACE_BITS + config.channel_bits
        turn = Signal(config.va_sector_bits - low)
        turns_left = Signal(config.va_sector_bits - low)
        walking = Signal()
        at_first = Signal()
        at_last = Signal()
        finished = Signal(config.channels)
        through = Signal()
        m.d.comb += [
            through.eq(walking & finished.all()),
            over.eq(through & at_last),
        ]
        with m.If(begin):
            m.d.sync += [
                turn.eq(first[low:]),
                turns_left.eq(last[low:] - first[low:]),
                at_last.eq(last[low:] == first[low:]),
                walking.eq(1),
                at_first.eq(1),
            ]
        with m.Elif(through):
            m.d.sync += [turn.eq(turn + 1), turns_left.eq(turns_left - 1), at_last.eq(turns_left == 1)]
            m.d.sync += [at_first.eq(0), walking.eq(~at_last)]
        for channel in range(config.channels):
            place = Signal(_PLACE_BITS, name=f"place_{channel}")
            within = Signal(name=f"within_{channel}")
            port = self.memory[channel]
            request = port.payload
            here = Cat(place, Const(channel, config.channel_bits))
            m.d.comb += [
                within.eq((~at_first | (here >= first[:low])) & (~at_last | (here <= last[:low]))),
                port.valid.eq(walking & within & ~finished[channel]),
                request.access.eq(Access.STORE),
                request.traffic_class.eq(TrafficClass.OTHER),
                request.va.eq(Cat(here, turn)),
                request.mask.eq(0xFFFFFFFF),
            ]
            with m.If(through):
                m.d.sync += finished[channel].eq(0)
            with m.Elif(walking & ~finished[channel] & (port.ready | ~within)):
                m.d.sync += [place.eq(place + 1), finished[channel].eq(place.all())]
