"""Proof of the refresher: every REFI has its refresh, none is early, none is lost (JESD235)."""

from dataclasses import replace

from amaranth import Signal

from hw.config import Timing
from hw.memory_controller.refresh import Refresher
from tb.formal.bench import Bench, implies
from tb.formal.proof import proof

STEPS = 3
"""Cycles of the refresher's own from the end of an interval to REF: due, drain, precharge."""


@proof(
    block="refresh",
    claim="each REFI makes one refresh due; it comes at most (cycles to drain + cycles to precharge + 3) later, before "
    "the next one is due, and none comes that is not due or without the precharge before it",
    scope="REFI 3900 (cover and seeded bug: 16); any time to drain and to precharge that together leave 3 cycles of an "
    "interval; refresh is not switched off",
    bug="due stuck at 1: a refresh follows the other at once",
    bug_depth=16,
    cover_depth=40,
)
def refresh_bound(b: Bench) -> None:
    m = b.m
    timing = replace(Timing(), rfc=6, refi=16) if b.reduced else Timing()
    dut = Refresher(timing)
    block = b.block(dut, stuck={"due": 1})
    b.free(dut.quiet, dut.precharged, dut.enable)
    enabled = b.past(dut.enable, "enabled")
    b.assume(implies(enabled, dut.enable))

    # The environment: quiet within `to_drain` cycles of the drain, then precharged within `to_precharge`.
    to_drain, to_precharge = b.any_const(12, "to_drain"), b.any_const(12, "to_precharge")
    b.assume(to_drain + to_precharge + STEPS < timing.refi)
    draining, precharging = Signal(12), Signal(12)
    closing = Signal()
    m.d.comb += closing.eq(dut.busy & ~dut.drain)
    with m.If(dut.drain & ~dut.precharge_all):
        m.d.sync += draining.eq(draining + 1)
    with m.Else():
        m.d.sync += draining.eq(0)
    with m.If(closing & ~dut.refresh):
        m.d.sync += precharging.eq(precharging + 1)
    with m.Else():
        m.d.sync += precharging.eq(0)
    b.assume(implies(dut.drain & (draining == to_drain), dut.quiet))
    b.assume(implies(closing & (precharging == to_precharge), dut.precharged))

    # What the standard asks for.
    elapsed = Signal(range(timing.refi))
    end = Signal()
    m.d.comb += end.eq(dut.enable & (elapsed == timing.refi - 1))
    with m.If(dut.enable):
        m.d.sync += elapsed.eq(elapsed + 1)
    with m.If(end):
        m.d.sync += elapsed.eq(0)
    owed = Signal(2)
    m.d.sync += owed.eq(owed + end - dut.refresh)
    late = Signal(13)
    with m.If((owed == 0) | dut.refresh):
        m.d.sync += late.eq(0)
    with m.Else():
        m.d.sync += late.eq(late + 1)
    b.claim(owed <= 1)
    b.claim(implies(dut.refresh, owed == 1))
    b.claim(implies(end, owed == dut.refresh))
    b.claim(late < to_drain + to_precharge + STEPS)
    precharged = Signal()
    with m.If(dut.refresh | dut.precharge_all):
        m.d.sync += precharged.eq(dut.precharge_all)
    b.claim(implies(dut.refresh, precharged & dut.precharged))
    b.claim(implies(dut.precharge_all, dut.quiet & ~precharged))
    b.claim(~(dut.refresh & dut.precharge_all))

    wait, drain, precharge = (block.state("refresh", name) for name in ("Wait", "Drain", "Precharge"))
    b.invariant(wait | drain | precharge)
    b.invariant(block.signal("interval") == elapsed)
    b.invariant(elapsed < timing.refi)
    b.invariant(implies(elapsed != 0, enabled))
    b.invariant(block.signal("due") == owed)
    b.invariant(implies(drain | precharge, owed == 1))
    b.invariant(precharged == precharge)
    b.invariant(draining <= to_drain)
    b.invariant(precharging <= to_precharge)
    b.invariant(implies(~drain, draining == 0) & implies(~precharge, precharging == 0))
    b.invariant(implies(owed == 1, late == elapsed))
    b.invariant(implies(owed == 0, late == 0))
    b.invariant(implies(wait & (owed == 1), late == 0))
    b.invariant(implies(drain, late == draining + 1))
    b.invariant(implies(precharge, late <= to_drain + 2 + precharging))
    b.cover((late == to_drain + to_precharge + STEPS - 1) & dut.refresh & (to_drain == 4) & (to_precharge == 5))
