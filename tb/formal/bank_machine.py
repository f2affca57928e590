"""Proofs of the bank machines with the refresher: no DRAM timing violation, atomic updates, refresh in time."""

from dataclasses import replace

from amaranth import Cat, Mux, Signal, Value

from hw.config import BANKS, Configuration, Timing
from hw.memory_controller.bank_machine import BankMachines, slot_layout
from hw.memory_controller.refresh import Refresher
from hw.messages import Access, RowCommand
from tb.formal.bench import Bench, implies
from tb.formal.dram_monitor import Age, BusMonitor
from tb.formal.proof import proof

SHORT = Timing(
    rcd_rd=3, rcd_wr=2, rp=3, ras=5, rc=8, rrd=2, faw=8, rtp=2, rtw=5, wtr=3, wtp=4, rfc=6, refi=16, ccd_l=2, ccdwl=5
)
"""Short distances, so that all of them are met soon after reset (cover runs and seeded bugs)."""


class BankBench:
    """Bank machines and refresher wired as in the memory controller; the DRAM queue is given by its contract: it sends
    a request only to a bank whose row it had opened and which has no request, asks for a row only there, and does
    neither while it reports `quiet`, nor after the first cycle of `drain`."""

    def __init__(self, b: Bench, timing: Timing, stuck: dict[str, int]):
        m = b.m
        self.b, self.timing = b, timing
        self.config = Configuration(dram_queue_depth=4, timing=timing)
        self.dut = dut = BankMachines(self.config)
        self.refresher = refresher = Refresher(timing)
        self.block = b.block(dut, "banks", stuck)
        self.refresh_block = b.block(refresher, "refresher")
        b.free(dut.to_bank, dut.slot, dut.row_request, dut.lookup_bank)
        b.free(refresher.enable)
        quiet = ~(dut.to_bank.valid | dut.row_request.valid)
        m.d.comb += [
            refresher.quiet.eq(quiet & dut.quiet),
            refresher.precharged.eq(dut.precharged),
            dut.hold_rows.eq(refresher.busy),
            dut.precharge_all.eq(refresher.precharge_all),
            dut.refresh.eq(refresher.refresh),
        ]
        self.bank = b.any_const(4, "bank")
        b.assume(dut.slot.access.as_value() <= Access.UPDATE.value)

        # The contract, for every bank.
        def one(valid: Value, bank: Value) -> Value:
            return Mux(valid, 1 << bank, 0)[:BANKS]

        handed = one(dut.to_bank.valid, dut.to_bank.bank)
        requested = one(dut.row_request.valid, dut.row_request.bank)
        activated = one(dut.activated.valid, dut.activated.bank)
        self.usable = Signal(BANKS)
        """The queue may send to the bank: it saw the row opened and wants no other."""
        self.pending = Signal(BANKS)
        self.sent = Signal(BANKS)
        self.released = Signal(BANKS)
        m.d.comb += self.released.eq(one(dut.released.valid, dut.released.bank))
        closed = dut.precharge_all.replicate(BANKS)
        m.d.sync += [
            self.usable.eq((self.usable & ~requested | activated) & ~closed),
            self.pending.eq((self.pending & ~activated | requested) & ~closed),
            self.sent.eq(self.sent & ~self.released | handed),
        ]
        b.assume((handed & ~self.usable) == 0)
        b.assume((handed & self.sent) == 0)
        b.assume((requested & (self.sent | self.pending | handed)) == 0)
        draining = b.past(refresher.drain, "draining")
        b.assume(implies(draining, quiet))

        row, valid = dut.row, dut.row.valid
        issue, access = dut.issue, dut.issue_slot.access
        self.monitor = BusMonitor(
            m,
            timing,
            self.bank,
            row=(
                valid & (row.command == RowCommand.ACT),
                valid & (row.command == RowCommand.PRE),
                valid & (row.command == RowCommand.REF),
                (row.bank, row.all),
            ),
            column=(
                issue.valid & (access == Access.READ),
                issue.valid & (access != Access.READ),
                issue.valid & (access == Access.UPDATE),
            ),
            column_bank=issue.bank,
        )

    def lane(self, timer: str, lane: Value | int) -> Value:
        """What is left of the timer, in cycles."""
        fragment_planes = []
        k = 0
        while True:
            try:
                fragment_planes.append(self.block.signal(f"{timer}.plane_{k}"))
            except LookupError:
                break
            k += 1
        return Cat((plane >> lane)[0] for plane in fragment_planes) if fragment_planes else Value.cast(0)

    def timer_invariants(self) -> None:
        """Each timer has at least as long to go as the monitor says."""
        b, t, bank, mon = self.b, self.timing, self.bank, self.monitor
        group = bank[:2]

        def covers(timer: str, lane: Value | int, age: Age, cycles: int) -> None:
            b.invariant(self.lane(timer, lane) + age.now >= cycles - 1)

        covers("rcd_read", bank, mon.since_act, t.rcd_rd)
        covers("rcd_write", bank, mon.since_act, t.rcd_wr)
        covers("ras", bank, mon.since_act, t.ras)
        covers("rp", bank, mon.since_precharge, t.rp)
        covers("rtp", bank, mon.since_read, t.rtp)
        covers("wtp", bank, mon.since_write, t.wtp)
        covers("ccd_long", group, mon.since_group_column, t.ccd_l)
        covers("ccd_long", group, mon.since_group_update, t.ccdwl)
        covers("ccd_short", 0, mon.since_column, t.ccd_s)
        covers("read_to_write", 0, mon.since_any_read, t.rtw)
        covers("write_to_read", 0, mon.since_any_write, t.wtr)
        covers("rrd", 0, mon.acts[0], t.rrd)
        covers("rfc", 0, mon.since_refresh, t.rfc)
        if t.rc > t.ras + t.rp:
            covers("rc", bank, mon.since_act, t.rc)
        else:
            b.invariant(mon.open_now | (mon.since_act.now >= t.ras + mon.since_precharge.now))
        for age in mon.ages:
            b.invariant(age.before <= age.limit)
        for sooner, later in zip(mon.acts, mon.acts[1:]):
            b.invariant((later.now >= sooner.now + t.rrd) | (later.now >= max(t.faw, 4 * t.rrd)))
        if t.faw > 4 * t.rrd:
            turn = self.block.signal("turn")
            b.invariant((turn == 1) | (turn == 2) | (turn == 4) | (turn == 8))
            for first in range(4):
                for back, age in enumerate(mon.acts):
                    lane = (first - 1 - back) % 4
                    b.invariant(implies(turn[first], self.lane("faw", lane) + age.now >= t.faw - 1))

    def state_invariants(self) -> None:
        """State of the bank machines against what the buses and the queue's contract say, for the watched bank."""
        b, bank, mon = self.b, self.bank, self.monitor

        def here(vector: Value) -> Value:
            return (vector >> bank)[0]

        occupied = here(self.block.signal("occupied"))
        is_open, wanted = here(self.block.signal("is_open")), here(self.block.signal("wanted"))
        usable, pending, sent = here(self.usable), here(self.pending), here(self.sent)
        b.invariant(is_open == mon.open_now)
        b.invariant(implies(is_open, mon.since_refresh.now >= self.timing.rfc))
        b.invariant(implies(occupied, is_open & ~wanted & sent & usable))
        b.invariant(implies(wanted, pending & ~sent))
        b.invariant(implies(mon.act, pending & ~wanted & ~sent))
        b.invariant(implies(usable, is_open & ~pending))
        b.invariant(implies(pending & sent, 0))
        b.invariant(implies(sent & ~occupied, self.dut.issue.valid & (self.dut.issue.bank == bank)))
        b.invariant((self.block.signal("occupied") & (~self.sent | self.released)) == 0)
        b.invariant((self.released & ~self.sent) == 0)
        for number in range(BANKS):
            slot = slot_layout(self.config)(self.block.word("slots", number))
            there = self.block.signal("occupied")[number]
            b.invariant(implies(there, self.block.signal("writing")[number] == (slot.access != Access.READ)))
            b.invariant(implies(there, self.block.signal("updating")[number] == (slot.access == Access.UPDATE)))
            b.invariant(implies(there, slot.access.as_value() <= Access.UPDATE.value))
        b.invariant(implies(self.dut.issue.valid, self.dut.issue_slot.access.as_value() <= Access.UPDATE.value))
        precharging = self.refresh_block.state("refresh", "Precharge")
        b.invariant(implies(precharging, ~is_open & ~occupied & ~usable))
        waiting, draining = self.refresh_block.state("refresh", "Wait"), self.refresh_block.state("refresh", "Drain")
        b.invariant(precharging | waiting | draining)


WIDE = replace(Timing(), faw=24, rc=60, ccd_s=2, rfc=30, refi=31)
"""A set in which FAW and RC have timers of their own, and the next refresh is due as soon as one is over."""

_CONTRACT = "16 banks, any traffic that keeps the DRAM queue's contract; "


def _timing(b: Bench, timing: Timing, stuck: dict[str, int]) -> BusMonitor:
    bench = BankBench(b, timing, stuck)
    if not b.seeded:
        bench.timer_invariants()
        bench.state_invariants()
    return bench.monitor


def _rules(b: Bench, timing: Timing, stuck: dict[str, int]) -> BusMonitor:
    monitor = _timing(b, timing, stuck)
    for rule in monitor.timing_rules():
        b.claim(rule)
    b.cover(monitor.any_read & (monitor.since_any_write.before == timing.wtr))
    b.cover(monitor.any_write & (monitor.since_any_read.before == timing.rtw))
    return monitor


@proof(
    block="bank_machine",
    claim="no command violates RCD, RP, RAS, RC, CCD_S, CCD_L, RRD, FAW, RTP, RTW, WTR, WTP or RFC; no ACT to an open, "
    "no column command to a closed bank, no REF with an open bank",
    scope=_CONTRACT + "the HBM2 timing set of hw/dram_timing.py (cover and seeded bug: shorter distances)",
    bug="read_to_write.busy stuck at 0: RTW is not kept",
    bug_depth=14,
    cover_depth=18,
    depth=1,
)
def dram_timing(b: Bench) -> None:
    _rules(b, SHORT if b.reduced else Timing(), {"read_to_write.busy": 0})


@proof(
    block="bank_machine",
    claim="the same rules with the timers FAW and RC in use, and with a refresh due as soon as the last one is over",
    scope=_CONTRACT + "FAW 24, RC 60, CCD_S 2, RFC 30, REFI 31 (cover and seeded bug: shorter)",
    bug="faw.busy stuck at 0: FAW is not kept",
    bug_depth=14,
    cover_depth=30,
    depth=1,
)
def dram_timing_wide(b: Bench) -> None:
    monitor = _rules(b, replace(SHORT, faw=11, rc=10, ccd_s=2, refi=7) if b.reduced else WIDE, {"faw.busy": 0})
    refreshed = Signal()
    with b.m.If(monitor.refresh):
        b.m.d.sync += refreshed.eq(1)
    b.cover(monitor.refresh & refreshed)


@proof(
    block="bank_machine",
    claim="an op-and-store is atomic: its bank group sees no column command within CCDWL after an update",
    scope=_CONTRACT + "the HBM2 timing set of hw/dram_timing.py (cover and seeded bug: shorter distances)",
    bug="update_select stuck at 0: only CCD_L is kept after an update",
    bug_depth=14,
    cover_depth=16,
    depth=1,
)
def update_atomicity(b: Bench) -> None:
    timing = SHORT if b.reduced else Timing()
    monitor = _timing(b, timing, {"update_select": 0})
    b.claim(monitor.atomic_updates())
    b.cover(monitor.group_column & (monitor.since_group_update.before == timing.ccdwl))
