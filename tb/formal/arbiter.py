"""Proofs of the arbiter between the compute and the communication stream (T3 section 4.5), for all three policies."""

from amaranth import Mux, Signal

from hw.memory_controller.arbiter import Arbiter
from hw.memory_controller.queues import Queue
from hw.messages import Policy, Threshold
from tb.formal.bench import Bench, Block, implies
from tb.formal.proof import proof

LIMITS = {Threshold.OCCUPANCY_5: 5, Threshold.OCCUPANCY_10: 10, Threshold.OCCUPANCY_30: 30}


def _arbiter(b: Bench, stuck: dict[str, int]) -> tuple[Arbiter, Block]:
    """An arbiter with constant programming and inputs as the memory controller makes them."""
    dut = Arbiter()
    block = b.block(dut, stuck=stuck)
    b.m.d.comb += dut.control.eq(b.any_const(dut.control.shape(), "control"))
    b.assume(dut.control.policy.as_value() <= Policy.MCA.value)
    b.assume(dut.control.threshold.as_value() <= Threshold.AUTO.value)
    b.free(dut.kernel_active, dut.accepted, dut.occupancy, dut.room)
    b.free(dut.compute_waiting, dut.compute_admissible, dut.communication_waiting, dut.communication_admissible)
    b.assume(implies(dut.compute_admissible, dut.compute_waiting))
    b.assume(implies(dut.communication_admissible, dut.communication_waiting))
    return dut, block


@proof(
    block="arbiter",
    claim="at most one stream is taken, only when it is admissible and there is room; MCA keeps to its threshold",
    scope="full size; any policy, threshold and programming, which does not change",
    bug="starved stuck at 1: communication passes the threshold",
    bug_depth=4,
    cover_depth=12,
)
def arbiter_exclusion(b: Bench) -> None:
    dut, _ = _arbiter(b, {"starved": 1})
    b.claim(~(dut.take_compute & dut.take_communication))
    b.claim(implies(dut.take_compute, dut.room & dut.compute_admissible))
    b.claim(implies(dut.take_communication, dut.room & dut.communication_admissible))
    b.claim(implies(dut.room & dut.compute_admissible, dut.take_compute | dut.take_communication))
    b.claim(dut.held_compute == (dut.compute_waiting & ~dut.take_compute))
    b.claim(dut.held_communication == (dut.communication_waiting & ~dut.take_communication))
    mca = dut.control.policy == Policy.MCA
    for threshold, limit in LIMITS.items():
        closed = mca & dut.kernel_active & (dut.control.threshold == threshold) & (dut.occupancy >= limit)
        b.claim(implies(closed & dut.take_communication, dut.forced))
    b.claim(implies((dut.control.starvation_limit == 0), ~dut.forced))
    b.claim(
        implies(
            (dut.control.policy != Policy.ROUND_ROBIN) & dut.compute_admissible & dut.take_communication, dut.forced
        )
    )
    b.cover(dut.forced & (dut.control.starvation_limit == 3))
    b.cover(mca & dut.take_communication & ~dut.forced & (dut.control.threshold == Threshold.OCCUPANCY_5))
    b.cover(dut.take_compute & dut.communication_admissible)


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
    b.cover((chances == depth) & (dut.control.policy == Policy.MCA))
    b.cover((chances == depth) & (dut.control.policy == Policy.ROUND_ROBIN))
