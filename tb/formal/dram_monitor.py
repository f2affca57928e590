"""Monitor of a channel's DRAM timing for proofs (JESD235 names; CCDWL: T3 section 4.3).

Written from the specification alone: it watches the buses for one arbitrary bank and knows, for each kind of command,
how many cycles ago the last one came. A proof for the watched bank holds for every bank.
"""

from collections.abc import Iterator

from amaranth import Module, Mux, Signal, Value

from hw.config import BANK_GROUPS, Timing
from tb.formal.bench import implies


class Age:
    """Cycles since an event, up to `limit`, which also stands for longer ago and for never. `before`: in the cycle of
    an event, the time since the previous one; `now`: 0 there."""

    def __init__(self, m: Module, event: Value, limit: int, name: str, previous: "Age | None" = None):
        """With `previous`, the age of the event before the one that it tells."""
        self.limit = limit
        self.before = Signal(range(limit + 1), name=f"age_{name}", init=limit)
        self.now = Signal.like(self.before, name=f"now_{name}")
        m.d.comb += self.now.eq(Mux(event, previous.before if previous else 0, self.before))
        m.d.sync += self.before.eq(Mux(self.now >= limit, limit, self.now + 1))

    def at_least(self, cycles: int) -> Value:
        """The previous event is at least `cycles` ago."""
        return self.before >= cycles


class BusMonitor:
    """Commands on the buses of a channel as the watched bank and the channel see them.

    `act`, `precharge`, `read`, `write`: to the watched `bank` (precharge also with PRE all); `any_*`: to any bank;
    `group_*`: to its bank group; `refresh`. `read` and `write` are column commands; an update is a write too.
    """

    def __init__(
        self,
        m: Module,
        timing: Timing,
        bank: Value,
        *,
        row: tuple[Value, Value, Value, Value],
        column: tuple[Value, Value, Value],
        column_bank: Value,
    ):
        """`row`: ACT, PRE, REF, and the bank with whether it is all; `column`: read, write, update."""
        any_act, any_precharge, self.refresh, (row_bank, row_all) = row
        any_read, any_write, update = column
        here = row_bank == bank
        column_here = column_bank == bank
        group = BANK_GROUPS - 1
        same_group = (column_bank & group) == (bank & group)

        def wire(value: Value, name: str) -> Signal:
            signal = Signal(name=name)
            m.d.comb += signal.eq(value)
            return signal

        self.any_act = wire(any_act, "any_act")
        self.act = wire(any_act & here, "act")
        self.precharge = wire(any_precharge & (here | row_all), "precharge")
        self.any_read = wire(any_read, "any_read")
        self.any_write = wire(any_write, "any_write")
        self.read = wire(any_read & column_here, "read")
        self.write = wire(any_write & column_here, "write")
        self.group_column = wire((any_read | any_write) & same_group, "group_column")
        self.group_update = wire(update & same_group, "group_update")
        any_column = wire(any_read | any_write, "any_column")

        t = timing
        self.since_act = Age(m, self.act, max(t.rc, t.ras + t.rp, t.rcd_rd, t.rcd_wr) + 1, "act")
        self.since_precharge = Age(m, self.precharge, t.rp + 1, "precharge")
        self.since_read = Age(m, self.read, t.rtp + 1, "read")
        self.since_write = Age(m, self.write, t.wtp + 1, "write")
        self.since_any_read = Age(m, self.any_read, t.rtw + 1, "any_read")
        self.since_any_write = Age(m, self.any_write, t.wtr + 1, "any_write")
        self.since_column = Age(m, any_column, t.ccd_s + 1, "column")
        self.since_group_column = Age(m, self.group_column, t.ccd_l + 1, "group_column")
        self.since_group_update = Age(m, self.group_update, t.ccdwl + 1, "group_update")
        self.since_refresh = Age(m, self.refresh, t.rfc + 1, "refresh")
        # The last four ACTs of the channel, the latest first.
        limit = max(t.faw, 4 * t.rrd)
        self.acts = [Age(m, self.any_act, limit, "act_1")]
        for n in range(2, 5):
            self.acts.append(Age(m, self.any_act, limit, f"act_{n}", self.acts[-1]))
        self.ages = [value for value in vars(self).values() if isinstance(value, Age)] + self.acts
        self.open = Signal(name="monitor_open")
        """The bank's row before this cycle's command."""
        self.open_now = Signal(name="monitor_open_now")
        m.d.comb += self.open_now.eq((self.open & ~self.precharge) | self.act)
        m.d.sync += self.open.eq(self.open_now)
        self._timing = timing

    def timing_rules(self) -> Iterator[Value]:
        """One condition per rule of the timing set but CCDWL; all must hold in every cycle."""
        t = self._timing
        yield implies(self.act, ~self.open)
        yield implies(self.act, self.since_act.at_least(t.rc))
        yield implies(self.act, self.since_precharge.at_least(t.rp))
        yield implies(self.act, self.since_refresh.at_least(t.rfc))
        yield implies(self.any_act, self.acts[0].at_least(t.rrd))
        yield implies(self.any_act, self.acts[3].at_least(t.faw))
        yield implies(self.read | self.write, self.open & ~self.precharge)
        yield implies(self.read, self.since_act.at_least(t.rcd_rd))
        yield implies(self.write, self.since_act.at_least(t.rcd_wr))
        yield implies(self.any_read | self.any_write, self.since_column.at_least(t.ccd_s))
        yield implies(self.group_column, self.since_group_column.at_least(t.ccd_l))
        yield implies(self.any_read, self.since_any_write.at_least(t.wtr))
        yield implies(self.any_write, self.since_any_read.at_least(t.rtw))
        yield implies(self.precharge & self.open, self.since_act.at_least(t.ras))
        yield implies(self.precharge, self.since_read.at_least(t.rtp))
        yield implies(self.precharge, self.since_write.at_least(t.wtp))
        yield implies(self.precharge | self.refresh, self.since_refresh.at_least(t.rfc))
        yield implies(self.refresh, ~self.open & self.since_precharge.at_least(t.rp))

    def atomic_updates(self) -> Value:
        """Within CCDWL after an update its bank group sees no column command."""
        return implies(self.group_column, self.since_group_update.at_least(self._timing.ccdwl))
