"""State of a node's collective (armed, done) and the measurement of its trigger latency."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .counters import Counter, Counting, peak
from .message_parameters import ChannelParameters
from .range_table import Control, Word, range_write
from .word_table import is_wrong

LATENCY_COUNTERS = (
    Counter(
        "trigger_latency_last",
        16,
        Counting.LAST,
        "cycles from the latest block's last commit to its first read",
        lambda value: value,
    ),
    peak("trigger_latency_peak", "longest trigger latency in cycles", lambda value: value),
)
"""Of `value` of :class:`TriggerLatency`."""


class CollectiveState(wiring.Component):
    """Takes a node through one epoch.

    A pulse on `arm` ends the epoch that is armed and calls for epoch `number`: it waits until nothing of an older epoch
    is left in the node (`drained`, which must be low while `armed`), clears the Tracker (`clear`, until `cleared`),
    then sets `armed`; `arming` meanwhile. `epoch` is the number of the epoch that is or was armed last; it changes with
    `armed` and at no other time. `done` when every valid range programmed with a WF_TOTAL is in `range_done`, every
    lane has sent `expected_blocks` (`sent_blocks`), and nothing that this node sends is still on its way out (`idle`);
    `done_rises` is its first cycle; `running` from arming to done. `called`: number of the epoch last called for;
    `locked`: one is armed or called for, or the last one is not `drained`. `disarm` ends the epoch in any state, and an
    arming that has not taken effect; with `arm` in the same cycle, `arm` counts. With protection of memories
    `tables_wrong`, a pulse: what an armed epoch knows of a range has a wrong bit.
    """

    def __init__(self, config: ChannelParameters):
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "arm": In(1),
                "disarm": In(1),
                "number": In(config.epoch_bits),
                "drained": In(1),
                "cleared": In(1),
                "range_done": In(config.ranges),
                "sent_blocks": In(20).array(config.lanes),
                "expected_blocks": In(20),
                "idle": In(1),
                "clear": Out(1),
                "armed": Out(1),
                "arming": Out(1),
                "epoch": Out(config.epoch_bits),
                "called": Out(config.epoch_bits),
                "locked": Out(1),
                "running": Out(1),
                "done": Out(1),
                "done_rises": Out(1),
                **({"tables_wrong": Out(1)} if config.protects_memories else {}),
            }
        )
        self._ranges = config.ranges
        self._checked = config.protects_memories

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid = Signal(self._ranges)
        tracked = Signal(self._ranges)
        valid_copy = Signal(self._ranges)
        tracked_copy = Signal(self._ranges)
        for index in range(self._ranges):
            with m.If(self.ranges.valid & (self.ranges.index == index)):
                with m.If(self.ranges.word == Word.CONTROL.value):
                    m.d.sync += valid[index].eq(Control(self.ranges.data).valid)
                    if self._checked:
                        m.d.sync += valid_copy[index].eq(Control(self.ranges.data).valid ^ is_wrong(self.ranges))
                with m.If(self.ranges.word == Word.WF_TOTAL.value):
                    m.d.sync += tracked[index].eq(self.ranges.data != 0)
                    if self._checked:
                        m.d.sync += tracked_copy[index].eq((self.ranges.data != 0) ^ is_wrong(self.ranges))
        if self._checked:
            differs = Signal()
            told = Signal()
            m.d.sync += [
                differs.eq(self.armed & ((valid != valid_copy) | (tracked != tracked_copy))),
                told.eq(differs),
            ]
            m.d.comb += self.tables_wrong.eq(differs & ~told)
        finished = Signal()
        m.d.comb += [
            finished.eq(
                self.armed
                & ((valid & tracked & ~self.range_done) == 0)
                & Cat(sent == self.expected_blocks for sent in self.sent_blocks).all()
                & self.idle
            ),
            self.running.eq(self.armed & ~self.done),
            self.done_rises.eq(finished & ~self.done),
        ]
        take_effect = Signal()
        left_over = Signal()
        m.d.comb += self.locked.eq(self.armed | self.arming | left_over)
        with m.If(self.armed):
            m.d.sync += left_over.eq(1)
        with m.Elif(self.drained):
            m.d.sync += left_over.eq(0)
        with m.FSM(name="collective"):
            with m.State("IDLE"):
                with m.If(self.arm):
                    m.next = "DRAIN"
                    with m.If(self.drained):
                        m.next = "CLEAR"
            with m.State("DRAIN"):
                with m.If(~self.arming):
                    m.next = "IDLE"
                with m.Elif(self.drained):
                    m.next = "CLEAR"
                self._anew(m)
            with m.State("CLEAR"):
                m.d.comb += self.clear.eq(1)
                m.next = "CLEARING"
                self._anew(m)
            with m.State("CLEARING"):
                # `cleared` falls in the cycle after `clear`.
                m.next = "WAIT"
                self._anew(m)
            with m.State("WAIT"):
                with m.If(self.cleared):
                    m.d.comb += take_effect.eq(self.arming & ~self.disarm & ~self.arm)
                    m.next = "IDLE"
                self._anew(m)
        with m.If(take_effect):
            m.d.sync += [self.armed.eq(1), self.arming.eq(0), self.epoch.eq(self.called)]
        with m.If(self.done_rises):
            m.d.sync += self.done.eq(1)
        with m.If(self.disarm | self.arm):
            m.d.sync += [self.armed.eq(0), self.done.eq(0), self.arming.eq(self.arm)]
        with m.If(self.arm):
            m.d.sync += self.called.eq(self.number)
        return m

    def _anew(self, m: Module) -> None:
        """Called for in the middle of an arming: ranges may have been programmed since it began."""
        with m.If(self.arm):
            m.next = "DRAIN"


class TriggerLatency(wiring.Component):
    """Cycles from the last commit to the first DMA read command of a block.

    `commit`, `read`: a tracked access was committed, a DMA read was issued to the DRAM, this cycle; `busy`: the DMA
    engine has a block in work. `value` is the latency in the cycle of that read, 0 in every other. It is the trigger
    latency when the engine was idle and nothing was committed between; under load it is a lower bound.
    """

    commit: In(1)
    busy: In(1)
    read: In(1)
    value: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        age = Signal(16)
        was_busy = Signal()
        waiting = Signal()
        m.d.sync += was_busy.eq(self.busy)
        with m.If(self.commit):
            m.d.sync += age.eq(1)
        with m.Elif(~age.all()):
            m.d.sync += age.eq(age + 1)
        with m.If(self.busy & ~was_busy):
            m.d.sync += waiting.eq(1)
        with m.If(self.read & (waiting | (self.busy & ~was_busy))):
            m.d.comb += self.value.eq(age)
            m.d.sync += waiting.eq(0)
        return m
