"""Counters on their way back from their homes (hw/DECISIONS.md 4).

Like the miss-status registers of a cache: a buffer holds the key of a counter being fetched and gathers what is counted
under that key meanwhile, so no access waits for the memory.
"""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .parameters import TrackerParameters


def tile_key(config: TrackerParameters) -> data.StructLayout:
    """A WF tile and the range it belongs to."""
    return data.StructLayout(
        {
            "range": unsigned(config.range_bits),
            "wg": unsigned(config.wg_bits),
            "wf": unsigned(config.wf_bits),
        }
    )


def counter(config: TrackerParameters) -> data.StructLayout:
    """A count in bytes and the lowest address seen."""
    return data.StructLayout({"count": unsigned(config.count_bits), "va": unsigned(config.va_sector_bits)})


def fill(config: TrackerParameters) -> data.StructLayout:
    """A fetched counter re-entering the pipeline: `buffer` (one-hot) gathered the rest; `present`: the home held
    one."""
    return data.StructLayout(
        {
            "buffer": unsigned(config.tracker_mshrs),
            "key": tile_key(config),
            "present": unsigned(1),
            "counter": counter(config),
        }
    )


def one_of(select: Value, choices: list[Value]) -> Value:
    """The choice whose bit of one-hot `select` is set, 0 when none is: an AND-OR, because the bits come late."""
    return reduce(or_, (choice & select[index].replicate(len(choice)) for index, choice in enumerate(choices)))


class MshrFile(wiring.Component):
    """The `tracker_mshrs` buffers of one bank.

    Ports: `response_valid` with `response_buffer` (index), `response_present` and `response`: the home's answer;
    `fills`: answered buffers, lowest first (no message may be accepted while one waits, so none starves). Stage 4:
    `lookup`; `same_tile`: it is that of stage 5; `matches` (one-hot, 0 cycles, sees what stage 5 does in the same
    cycle), `matched`: any; `gathered`, without what stage 5 does. Stage 5: `update` stores `value` in buffer `select`,
    `free` gives it up; `allocate` puts `key` and `value` in buffer `allocated` (index), which must exist: the owner
    counts them. `busy`: a buffer is in use; none is after reset. A Tracker without tags has no homes and no buffers:
    every output is 0.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        count = config.tracker_mshrs
        super().__init__(
            {
                "response_valid": In(1),
                "response_buffer": In(range(count)),
                "response_present": In(1),
                "response": In(counter(config)),
                "fills": Out(stream.Signature(fill(config))),
                "lookup": In(tile_key(config)),
                "same_tile": In(1),
                "matches": Out(count),
                "matched": Out(1),
                "gathered": Out(counter(config)),
                "select": In(count),
                "update": In(1),
                "free": In(1),
                "allocate": In(1),
                "key": In(tile_key(config)),
                "value": In(counter(config)),
                "allocated": Out(range(count)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        if not config.tracker_tags:
            return m
        count = config.tracker_mshrs
        active = Signal(count)
        answered = Signal(count)
        first_free = Signal(count)
        first_answered = Signal(count)
        stored = Signal(count)
        """The buffer that has the key looked up, before stage 5 changes anything."""
        m.d.comb += [
            self.busy.eq(active.any()),
            first_free.eq(~active & (active + 1)),
            first_answered.eq(answered & (~answered + 1)),
            self.fills.valid.eq(answered.any()),
            self.fills.payload.buffer.eq(first_answered),
        ]
        taken = Signal(count)
        m.d.comb += taken.eq(first_answered & (self.fills.valid & self.fills.ready).replicate(count))
        m.d.sync += [
            active.eq(
                (active | (first_free & self.allocate.replicate(count))) & ~(self.select & self.free.replicate(count))
            ),
            answered.eq(
                (answered & ~taken)
                | Cat(self.response_valid & (self.response_buffer == index) for index in range(count))
            ),
        ]
        contents = []
        for index in range(count):
            key = Signal(tile_key(config), name=f"key_{index}")
            gathered = Signal(counter(config), name=f"gathered_{index}")
            record = Signal(counter(config), name=f"record_{index}")
            present = Signal(name=f"present_{index}")
            with m.If(first_free[index]):
                m.d.comb += self.allocated.eq(index)
            with m.If(self.allocate & first_free[index]):
                m.d.sync += [key.eq(self.key), gathered.eq(self.value)]
            with m.Elif(self.update & self.select[index]):
                m.d.sync += gathered.eq(self.value)
            with m.If(self.response_valid & (self.response_buffer == index)):
                m.d.sync += [record.eq(self.response), present.eq(self.response_present)]
            m.d.comb += [
                stored[index].eq(active[index] & (key.wg == self.lookup.wg) & (key.wf == self.lookup.wf)),
                self.matches[index].eq(
                    stored[index] & ~(self.free & self.select[index])
                    | (self.allocate & first_free[index] & self.same_tile)
                ),
            ]
            contents.append(gathered.as_value())
            with m.If(first_answered[index]):
                m.d.comb += [
                    self.fills.payload.key.eq(key),
                    self.fills.payload.present.eq(present),
                    self.fills.payload.counter.eq(record),
                ]
        # The keys differ, so a buffer given up is the only one that matched.
        freed = Signal()
        m.d.comb += [
            freed.eq(self.free & (stored & self.select).any()),
            self.matched.eq((stored.any() & ~freed) | (self.allocate & self.same_tile)),
            self.gathered.eq(one_of(stored, contents)),
        ]
        return m
