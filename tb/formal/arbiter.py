"""Proofs of the arbiter between the compute and the communication stream (T3 section 4.5), for all four policies."""

from amaranth import Mux, Signal

from hw.memory_controller.arbiter import Arbiter
from hw.messages import Policy, Threshold
from hw.primitives.queue import Queue
from tb.formal.bench import Bench, Block, implies
from tb.formal.proof import proof

LIMITS = {Threshold.OCCUPANCY_5: 5, Threshold.OCCUPANCY_10: 10, Threshold.OCCUPANCY_30: 30}


def _arbiter(b: Bench, stuck: dict[str, int]) -> tuple[Arbiter, Block]:
    """An arbiter with constant programming and inputs as the memory controller makes them."""
    dut = Arbiter()
    block = b.block(dut, stuck=stuck)
    b.m.d.comb += dut.control.eq(b.any_const(dut.control.shape(), "control"))
    b.assume(dut.control.threshold.as_value() <= Threshold.AUTO.value)
    b.free(dut.kernel_active, dut.accepted, dut.occupancy, dut.room)
    b.free(dut.compute_waiting, dut.compute_admissible, dut.communication_waiting, dut.communication_admissible)
    b.assume(implies(dut.compute_admissible, dut.compute_waiting))
    b.assume(implies(dut.communication_admissible, dut.communication_waiting))
    return dut, block


def _behind_its_pace(b: Bench, dut: Arbiter, block: Block) -> Signal:
    """PACED: communication has fallen `pace_lag` cycles behind and has not come within `pace` of its pace since. Its
    lag is the cycles that a request waited less `pace` for each one taken, never below 0."""
    m, pace = b.m, dut.control.pace
    lag, behind = Signal(16), Signal()
    later = Signal(17)
    m.d.comb += later.eq(lag + 1 - Mux(dut.take_communication, Mux(pace > lag, lag + 1, pace), 0))
    with m.If(~dut.communication_waiting):
        m.d.sync += [lag.eq(0), behind.eq(0)]
    with m.Else():
        m.d.sync += [
            lag.eq(Mux(later > 0xFFFF, 0xFFFF, later)),
            behind.eq((lag >= dut.control.pace_lag) | (behind & (lag >= pace))),
        ]
    # With a pace of 0 the register overflows, once communication can come first for good.
    b.invariant((block.signal("lag") == lag) | ((pace == 0) & behind))
    b.invariant(block.signal("catching_up") == behind)
    return behind


@proof(
    block="arbiter",
    claim="at most one stream is taken, only when it is admissible and there is room; compute first except in "
    "round robin; MCA keeps to the threshold in force, PACED too until behind its pace, when communication goes first",
    scope="full size; any policy, threshold and programming, which does not change",
    bug="starved stuck at 1: communication passes the threshold",
    bug_depth=4,
    cover_depth=12,
)
def arbiter_exclusion(b: Bench) -> None:
    dut, block = _arbiter(b, {"starved": 1})
    b.claim(~(dut.take_compute & dut.take_communication))
    b.claim(implies(dut.take_compute, dut.room & dut.compute_admissible))
    b.claim(implies(dut.take_communication, dut.room & dut.communication_admissible))
    b.claim(implies(dut.room & dut.compute_admissible, dut.take_compute | dut.take_communication))
    b.claim(dut.held_compute == (dut.compute_waiting & ~dut.take_compute))
    b.claim(dut.held_communication == (dut.communication_waiting & ~dut.take_communication))
    mca, paced = dut.control.policy == Policy.MCA, dut.control.policy == Policy.PACED
    behind = _behind_its_pace(b, dut, block)
    b.claim(implies(dut.control.threshold != Threshold.AUTO, dut.threshold == dut.control.threshold))
    for threshold, limit in LIMITS.items():
        closed = dut.kernel_active & (dut.threshold == threshold) & (dut.occupancy >= limit)
        b.claim(implies((mca | paced & ~behind) & closed & dut.take_communication, dut.forced))
    b.claim(implies((dut.control.starvation_limit == 0), ~dut.forced))
    compute_first = (dut.control.policy != Policy.ROUND_ROBIN) & ~(paced & behind)
    b.claim(implies(compute_first & dut.compute_admissible & dut.take_communication, dut.forced))
    b.claim(implies(paced & behind & dut.room & dut.communication_admissible, dut.take_communication))
    b.cover(dut.forced & (dut.control.starvation_limit == 3))
    b.cover(mca & dut.take_communication & ~dut.forced & (dut.control.threshold == Threshold.OCCUPANCY_5))
    b.cover(dut.take_compute & dut.communication_admissible)
    b.cover(paced & dut.compute_admissible & dut.take_communication & ~dut.forced & (dut.control.pace == 3))


@proof(
    block="arbiter",
    claim="a communication request that has waited starvation_limit cycles is taken in the next cycle with room in "
    "which it is admissible: it is refused in at most starvation_limit such cycles",
    scope="full size; any policy, threshold and programming, which does not change",
    bug="starved stuck at 0: the limit has no effect",
    bug_depth=12,
    cover_depth=12,
)
def arbiter_starvation(b: Bench) -> None:
    m = b.m
    dut, block = _arbiter(b, {"starved": 0})
    limit = dut.control.starvation_limit
    b.assume(limit != 0)
    waited, refused = Signal(17), Signal(17)
    with m.If(dut.communication_waiting & ~dut.take_communication):
        m.d.sync += waited.eq(Mux(waited == 0xFFFF, waited, waited + 1))
        with m.If(dut.communication_admissible & dut.room):
            m.d.sync += refused.eq(refused + 1)
    with m.Else():
        m.d.sync += [waited.eq(0), refused.eq(0)]
    could_go = dut.room & dut.communication_admissible
    b.claim(implies((waited >= limit) & could_go, dut.take_communication))
    b.claim(refused <= limit)
    b.invariant(block.signal("waited") == waited)
    b.invariant(refused <= waited)
    b.cover((limit == 5) & (refused == 5) & dut.forced)


@proof(
    block="arbiter",
    claim="after the kernel's end every policy drains communication: with no compute request admissible, each cycle "
    "with room takes one, so a queue of n is empty after n such cycles",
    scope="queue of 4 requests of 4 bits; any policy, threshold and programming",
    bug="policy_communication stuck at 0",
    bug_depth=10,
    cover_depth=14,
)
def arbiter_drain(b: Bench) -> None:
    m, depth = b.m, 4
    dut, _ = _arbiter(b, {"policy_communication": 0})
    waiting = Queue(4, depth)
    queue = b.block(waiting, "waiting")
    b.free(waiting.i.valid, waiting.i.payload)
    m.d.comb += waiting.o.ready.eq(dut.take_communication)
    b.assume(dut.communication_waiting == waiting.o.valid)
    b.assume(dut.communication_admissible == waiting.o.valid)
    over = Signal()
    with m.If(~dut.kernel_active & b.any_seq(1, "end")):
        m.d.sync += over.eq(1)
    b.assume(implies(over, ~dut.kernel_active & ~dut.compute_admissible & ~waiting.i.valid))
    chances = Signal(range(depth + 1))
    with m.If(over & dut.room & (chances != depth)):
        m.d.sync += chances.eq(chances + 1)
    b.claim(implies(over & dut.room & waiting.o.valid, dut.take_communication))
    b.claim(implies(chances == depth, ~waiting.o.valid))
    b.invariant(waiting.level + chances <= depth)
    b.invariant(implies(chances != 0, over))
    b.invariant((queue.signal("first") < depth) & (queue.signal("last") < depth))
    for policy in Policy:
        b.cover((chances == depth) & (dut.control.policy == policy))
