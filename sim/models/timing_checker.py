"""Checks every DRAM command of a channel against the timing parameters (JESD235; near-bank CCDWL: T3 section 4.3).

It shares nothing with the controller: it keeps the absolute time of past commands and looks only at the buses, and only
in cycles with a command.
"""

from itertools import pairwise

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.memory import Memory, WritePort
from amaranth.lib.wiring import In, Out

from hw.config import BANK_GROUPS, BANKS, Configuration
from hw.messages import ColumnCommand, Messages, RowCommand

TIME_BITS = 40
START = 1 << 20
"""The clock starts here, so that time 0 in a memory means longer ago than any parameter."""
POSTPONED = 9
"""A refresh may come at most this many REFI after the last one (JESD235: eight may be postponed)."""


class Rule(enum.Enum, shape=5):
    """What was violated. Distances are command to command, in cycles.

    ACT_OPEN: ACT to an open bank. COLUMN_CLOSED: column command to a closed bank. RCD_READ, RCD_WRITE: column command
    too soon after ACT. RP: ACT or REF too soon after PRE. RAS: PRE too soon after ACT. RC: ACT to ACT in a bank.
    CCD_S: column to column. CCD_L: in one bank group. CCDWL: after an UPDATE, in one bank group. RRD: ACT to ACT.
    FAW: four ACTs. RTP, WTP: PRE too soon after RD; WR or UPDATE. RTW: WR or UPDATE too soon after RD. WTR: RD too
    soon after WR or UPDATE. RFC: ACT, PRE or REF too soon after REF. REFRESH_OPEN: REF with an open bank.
    REFRESH_LATE: no REF for 9 REFI. ENCODING: no such command.
    """

    NONE = 0
    ACT_OPEN = 1
    COLUMN_CLOSED = 2
    RCD_READ = 3
    RCD_WRITE = 4
    RP = 5
    RAS = 6
    RC = 7
    CCD_S = 8
    CCD_L = 9
    CCDWL = 10
    RRD = 11
    FAW = 12
    RTP = 13
    RTW = 14
    WTR = 15
    WTP = 16
    RFC = 17
    REFRESH_OPEN = 18
    REFRESH_LATE = 19
    ENCODING = 20


class TimingChecker(wiring.Component):
    """Watches a channel's command buses.

    Ports: `row`, `column`: the buses; `refresh`: refresh is switched on, so a late one is a violation; `violation`: a
    rule was violated since reset; `rule`: the number of the first one (:class:`Rule`; the lowest number when several
    are violated in one cycle). Latency: 1 cycle after the command.
    """

    def __init__(self, config: Configuration):
        self._timing = config.timing
        messages = Messages(config)
        super().__init__(
            {
                "row": In(messages.row_command),
                "column": In(messages.column_command),
                "refresh": In(1),
                "violation": Out(1),
                "rule": Out(Rule),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timing = self._timing
        now = Signal(TIME_BITS, init=START, reset_less=True)
        m.d.sync += now.eq(now + 1)
        is_open = Signal(BANKS)
        broken: dict[Rule, Signal] = {rule: Signal(name=f"broken_{rule.name.lower()}") for rule in Rule}

        def clock(name: str) -> Signal:
            return Signal(TIME_BITS, name=name, reset_less=True)

        def early(last: Value, distance: int) -> Value:
            return (now - last)[:TIME_BITS] < distance

        def times(name: str, depth: int, address: Value) -> tuple[Value, WritePort]:
            m.submodules[name] = memory = Memory(shape=unsigned(TIME_BITS), depth=depth, init=[])
            read = memory.read_port(domain="comb")
            write = memory.write_port()
            m.d.comb += [read.addr.eq(address), write.data.eq(now)]
            return read.data, write

        row = self.row
        column = self.column
        row_act, act_write = times("act", BANKS, row.bank)
        row_pre, pre_write = times("pre", BANKS, row.bank)
        row_read, read_write = times("read", BANKS, row.bank)
        row_written, written_write = times("written", BANKS, row.bank)
        column_act, column_act_write = times("column_act", BANKS, column.bank)
        group = column.bank[:2]
        group_column, group_write = times("group", BANK_GROUPS, group)
        group_update, group_update_write = times("group_update", BANK_GROUPS, group)
        last_act, last_pre_all, last_refresh = clock("last_act"), clock("last_pre_all"), clock("last_refresh")
        last_pre = clock("last_pre")
        last_column, last_read, last_written = clock("last_column"), clock("last_read"), clock("last_written")
        window = [clock(f"window_{n}") for n in range(4)]
        last_due = clock("last_due")
        watching = Signal()

        bank_open = is_open.bit_select(row.bank, 1)
        reading = column.command == ColumnCommand.RD
        m.d.comb += [
            act_write.addr.eq(row.bank),
            pre_write.addr.eq(row.bank),
            column_act_write.addr.eq(row.bank),
            read_write.addr.eq(column.bank),
            written_write.addr.eq(column.bank),
            group_write.addr.eq(group),
            group_update_write.addr.eq(group),
        ]
        with m.If(row.valid):
            with m.Switch(row.command):
                with m.Case(RowCommand.ACT):
                    m.d.comb += [
                        act_write.en.eq(1),
                        column_act_write.en.eq(1),
                        broken[Rule.ACT_OPEN].eq(bank_open),
                        broken[Rule.RP].eq(early(row_pre, timing.rp) | early(last_pre_all, timing.rp)),
                        broken[Rule.RC].eq(early(row_act, timing.rc)),
                        broken[Rule.RRD].eq(early(last_act, timing.rrd)),
                        broken[Rule.FAW].eq(early(window[3], timing.faw)),
                        broken[Rule.RFC].eq(early(last_refresh, timing.rfc)),
                    ]
                    m.d.sync += [
                        is_open.bit_select(row.bank, 1).eq(1),
                        last_act.eq(now),
                        window[0].eq(now),
                        *(later.eq(sooner) for sooner, later in pairwise(window)),
                    ]
                with m.Case(RowCommand.PRE):
                    # The last ACT, RD and WR of the channel decide for PRE with `all`: a bank closed since then was
                    # checked when it was closed.
                    same = column.valid & (row.all | (row.bank == column.bank))
                    m.d.comb += [
                        broken[Rule.RFC].eq(early(last_refresh, timing.rfc)),
                        broken[Rule.RTP].eq(early(Mux(row.all, last_read, row_read), timing.rtp) | (same & reading)),
                        broken[Rule.WTP].eq(
                            early(Mux(row.all, last_written, row_written), timing.wtp) | (same & ~reading)
                        ),
                    ]
                    with m.If(row.all):
                        m.d.comb += broken[Rule.RAS].eq(is_open.any() & early(last_act, timing.ras))
                        m.d.sync += [is_open.eq(0), last_pre_all.eq(now), last_pre.eq(now)]
                    with m.Else():
                        m.d.comb += [
                            broken[Rule.RAS].eq(bank_open & early(row_act, timing.ras)),
                            pre_write.en.eq(bank_open),
                        ]
                        m.d.sync += is_open.bit_select(row.bank, 1).eq(0)
                        with m.If(bank_open):
                            m.d.sync += last_pre.eq(now)
                with m.Case(RowCommand.REF):
                    m.d.comb += [
                        broken[Rule.REFRESH_OPEN].eq(is_open.any()),
                        broken[Rule.RP].eq(early(last_pre, timing.rp)),
                        broken[Rule.RFC].eq(early(last_refresh, timing.rfc)),
                    ]
                    m.d.sync += last_refresh.eq(now)
                with m.Default():
                    m.d.comb += broken[Rule.ENCODING].eq(1)

        with m.If(column.valid):
            m.d.comb += [
                group_write.en.eq(1),
                group_update_write.en.eq(column.command == ColumnCommand.UPDATE),
                read_write.en.eq(reading),
                written_write.en.eq(~reading),
                broken[Rule.COLUMN_CLOSED].eq(~is_open.bit_select(column.bank, 1)),
                broken[Rule.CCD_S].eq(early(last_column, timing.ccd_s)),
                broken[Rule.CCD_L].eq(early(group_column, timing.ccd_l)),
                broken[Rule.CCDWL].eq(early(group_update, timing.ccdwl)),
                broken[Rule.RCD_READ].eq(reading & early(column_act, timing.rcd_rd)),
                broken[Rule.RCD_WRITE].eq(~reading & early(column_act, timing.rcd_wr)),
                broken[Rule.WTR].eq(reading & early(last_written, timing.wtr)),
                broken[Rule.RTW].eq(~reading & early(last_read, timing.rtw)),
            ]
            m.d.sync += last_column.eq(now)
            with m.If(reading):
                m.d.sync += last_read.eq(now)
            with m.Else():
                m.d.sync += last_written.eq(now)
            with m.If(column.command.as_value() == 3):
                m.d.comb += broken[Rule.ENCODING].eq(1)

        late = watching & ((now - last_due)[:TIME_BITS] > POSTPONED * timing.refi)
        refreshed = row.valid & (row.command == RowCommand.REF)
        m.d.comb += broken[Rule.REFRESH_LATE].eq(self.refresh & late)
        m.d.sync += watching.eq(self.refresh)
        with m.If(~watching | refreshed):
            m.d.sync += last_due.eq(now)

        found = Signal()
        first = Signal(Rule)
        for rule in reversed(Rule):
            if rule is not Rule.NONE:
                with m.If(broken[rule]):
                    m.d.comb += [found.eq(1), first.eq(rule)]
        with m.If(found & ~self.violation):
            m.d.sync += [self.violation.eq(1), self.rule.eq(first)]
        return m
