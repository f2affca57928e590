"""Rings of whole nodes of which one aborts the epoch: all peers do, in a bounded time, and the next one is right in
every bit. What is aborted by `disarm`, which tells nobody, is in `test_epochs`."""

import os
import random
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.triggers import ClockCycles, Combine

from hw.messages import Access, Fault, Policy
from hw.node import DRAIN_STARVATION, Node
from hw.registers.map import find_register
from sim.errors import SimulationError
from sim.host.register_writes import register_write
from tb.drivers.node_ring import LINK_DEAD, NodeRing, RingBench, simulate_ring
from tb.drivers.payload import pack
from tb.integration.test_epochs import BOUND, LONGEST, RINGS, SMALL, begin, node_ring, rounds, started

WATCHDOG = 700
"""Cycles without movement: longer than a round trip and the time for which a packet is open."""
LEFT = 64
"""Requests of an epoch that a channel may hold when it ends: packets that were accepted, queues."""
TOLD = 200
"""Cycles in which a notice has come to a peer: from its register over the link to the port."""


async def drained(bench: RingBench, ranks=None, bound: int = BOUND) -> None:
    """Every rank is drained within the bound."""
    bench.limit = bound
    await bench.all_ranks(lambda rank: bench.wait(rank, "drained"), ranks)
    bench.limit = 60000


async def cause(bench: RingBench, rank: int) -> tuple[set[str], int]:
    """Who aborted the last epoch of a rank, and which it was."""
    register = find_register(bench.config, "abort_cause")
    value = await bench.read(rank, "abort_cause")
    fields = {field.name: (value & field.mask) >> field.low for field in register.fields}
    return {name for name in ("host", "watchdog", "peer") if fields[name]}, fields["epoch"]


async def dead_links(bench: RingBench, rank: int) -> int:
    """The ports of a rank whose peers answer nothing, as a mask."""
    field = find_register(bench.config, "link_status").field("dead")
    return (await bench.read(rank, "link_status") & field.mask) >> field.low


async def all_told(bench: RingBench, epoch: int, first: dict[int, str]) -> None:
    """Every rank aborts the epoch, the ranks of `first` for that cause, the others because a peer said so."""
    await ClockCycles(bench.dut.clk, bench.gpus * TOLD)
    for rank in bench.ranks:
        causes, ended = await cause(bench, rank)
        assert first.get(rank, "peer") in causes, (rank, causes)
        assert ended == epoch and await bench.status(rank, "aborted")


async def abort_and_go_on(bench: RingBench, epoch: int, cycles: int, aborter: int) -> None:
    """Abort an epoch on one rank after some cycles, and run the next one."""
    await begin(bench, epoch, cycles)
    await bench.control(aborter, abort=1)
    await all_told(bench, epoch, {aborter: "host"})
    await drained(bench)
    await bench.all_ranks(bench.plain_range_answers)
    await bench.collective(epoch + 1)


@cocotb.test()
async def an_abort_on_one_gpu_ends_the_epoch_on_all(dut):
    """At a random cycle, on each rank in turn: all are drained in a bounded time, and answer plain reads; the next
    epoch is right."""
    bench = await started(dut)
    for number in range(rounds()):
        await abort_and_go_on(bench, 2 * number + 1, random.randrange(LONGEST), number % bench.gpus)


@cocotb.test()
async def who_arms_late_is_told_too(dut):
    """A rank that arms the epoch after the others have aborted it, or even armed the next one, aborts it at once."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        late = random.choice(bench.ranks)
        others = [rank for rank in bench.ranks if rank != late]
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number), others)
        for rank in others:
            bench.store(rank, bench.partials()[rank])
        await ClockCycles(dut.clk, random.randrange(LONGEST))
        for rank in others:
            bench.kill(rank)
        # Who is in no epoch passes nothing on.
        await bench.all_ranks(lambda rank: bench.control(rank, abort=1), others)
        await drained(bench, others)
        partials = bench.partials()
        ahead = others if random.random() < 0.5 else []
        for rank in ahead:
            await bench.arm(rank, epoch + 1)
            bench.store(rank, partials[rank])
        await bench.call(late, epoch)
        await ClockCycles(dut.clk, bench.gpus * TOLD)
        assert await cause(bench, late) == ({"peer"}, epoch) and not await bench.status(late, "armed")
        for rank in bench.ranks:
            if rank not in ahead:
                await bench.arm(rank, epoch + 1)
                bench.store(rank, partials[rank])
        await bench.finish(partials)


@cocotb.test()
async def a_neighbour_that_never_arms_is_noticed_by_the_watchdog(dut):
    """Nothing moves; after the programmed time all are out of the epoch, with a fault that says so and an interrupt."""
    bench = await started(dut)
    enable = register_write(bench.config, "interrupt_enable", aborted=1)
    watchdog = register_write(bench.config, "watchdog", watchdog=WATCHDOG)
    clear = register_write(bench.config, "interrupt_status", fault=1, done=1, aborted=1)
    await bench.all_ranks(lambda rank: bench.write(rank, [enable, watchdog]))
    for epoch in range(1, 2 * rounds(), 2):
        silent = random.choice(bench.ranks)
        others = [rank for rank in bench.ranks if rank != silent]
        await bench.all_ranks(lambda rank: bench.write(rank, [clear]))
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number), others)
        for rank in others:
            bench.store(rank, bench.partials()[rank])
        await ClockCycles(dut.clk, LONGEST + WATCHDOG + bench.gpus * TOLD)
        for rank in others:
            bench.kill(rank)
        # The silent one is still armed for what it ended before.
        await drained(bench, others)
        found = {rank: await cause(bench, rank) for rank in others}
        assert all(ended == epoch and causes for causes, ended in found.values()), found
        assert any("watchdog" in causes for causes, _ in found.values()), found
        for rank in others:
            assert int(dut.irq.value) >> rank & 1
            if "watchdog" in found[rank][0]:
                assert await bench.read(rank, "fault_record") & 15 == Fault.WATCHDOG.value
        assert not int(dut.irq.value) >> silent & 1
        await bench.all_ranks(bench.plain_range_answers)
        await bench.collective(epoch + 1)
        for rank in bench.ranks:
            assert not await bench.status(rank, "aborted")


@cocotb.test()
async def a_dead_neighbour_delays_an_abort_no_longer_than_its_link(dut):
    """A node falls silent in mid-run, for good: the others abort, and are drained when the link is taken for dead,
    which a register says and an interrupt tells. Once it speaks again, the next epoch is right."""
    bench = await started(dut)
    enable = register_write(bench.config, "interrupt_enable", link=1)
    forget = register_write(bench.config, "interrupt_status", link=1)
    await bench.all_ranks(lambda rank: bench.write(rank, [enable]))
    for epoch in range(1, 2 * rounds(), 2):
        await bench.all_ranks(lambda rank: bench.write(rank, [forget]))
        dead = random.choice(bench.ranks)
        others = [rank for rank in bench.ranks if rank != dead]
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank, partial in enumerate(bench.partials()):
            bench.store(rank, partial)
        await ClockCycles(dut.clk, random.randrange(LONGEST))
        dut.silent.value = 1 << dead
        for rank in bench.ranks:
            bench.kill(rank)
        await bench.all_ranks(lambda rank: bench.control(rank, abort=1), others)
        await drained(bench, others, LINK_DEAD + BOUND)
        await bench.all_ranks(bench.plain_range_answers, others)
        longer = random.choice([0, 2 * LINK_DEAD])
        await ClockCycles(dut.clk, longer)
        if longer and os.environ["RING"] == "small":
            # Of a ring one way, the rank before it has a port that hears it.
            deaf = [rank == (dead - 1) % 3 for rank in others]
            assert [await dead_links(bench, rank) for rank in others] == deaf
            assert [int(dut.irq.value) >> rank & 1 for rank in others] == deaf
            await bench.all_ranks(lambda rank: bench.write(rank, [forget]), others)
            await ClockCycles(dut.clk, 2)
            assert not any(int(dut.irq.value) >> rank & 1 for rank in others)
        dut.silent.value = 0
        if random.random() < 0.5:
            await bench.control(dead, abort=1)
        await drained(bench, [dead], 2 * LINK_DEAD + BOUND)
        await bench.collective(epoch + 1)
        assert not any([await dead_links(bench, rank) for rank in bench.ranks])


@cocotb.test()
async def plain_traffic_that_never_stops_holds_up_no_drain(dut):
    """The arbiters put compute first and know no limit, and the GPU stores in every cycle: what is left of an aborted
    epoch reaches its banks all the same, and the next epoch is right once that stops."""
    bench = await started(dut)
    config = bench.config
    policy = register_write(config, "arbiter", policy=Policy.COMPUTE_FIRST, refresh=0)
    limits = register_write(config, "starvation_limit", starvation_limit=0)
    request = pack(bench.messages.compute_request, access=Access.STORE.value, va=bench.inputs[0], mask=0xFFFFFFFF)
    channel = bench.channel(bench.inputs[0])
    storing = True

    async def store_on(rank: int) -> None:
        source = bench.compute[rank][channel]
        while storing:
            source.queue.extend([request] * max(0, 16 - len(source.queue)))
            await ClockCycles(dut.clk, 8)

    await bench.all_ranks(lambda rank: bench.write(rank, [policy, limits]))
    for epoch in range(1, 2 * rounds(), 2):
        await bench.all_ranks(lambda rank, number=epoch: bench.arm(rank, number))
        for rank, partial in enumerate(bench.partials()):
            bench.store(rank, partial)
        storing = True
        kernels = [cocotb.start_soon(store_on(rank)) for rank in bench.ranks]
        await ClockCycles(dut.clk, random.randrange(LONGEST, 2 * LONGEST))
        assert not int(dut.done.value), "communication is not held up"
        await bench.all_ranks(lambda rank: bench.control(rank, abort=1))
        await drained(bench, None, BOUND + DRAIN_STARVATION * LEFT)
        storing = False
        await Combine(*kernels)
        for rank in bench.ranks:
            bench.kill(rank)
        await bench.collective(epoch + 1)


@cocotb.test()
async def a_gpu_is_reset_while_the_others_go_on(dut):
    """One node is reset in mid-run; the others abort and keep what is programmed. The next epoch is right."""
    bench = await started(dut)
    for epoch in range(1, 2 * rounds(), 2):
        await begin(bench, epoch, random.randrange(LONGEST))
        victim = random.choice(bench.ranks)
        others = [rank for rank in bench.ranks if rank != victim]
        await bench.reset_one(victim)
        await bench.control(random.choice(others), abort=1)
        await bench.program(victim)
        await bench.all_ranks(lambda rank: bench.control(rank, abort=1), others)
        await drained(bench, None, LINK_DEAD + BOUND)
        await bench.collective(epoch + 1)


@cocotb.test()
async def every_cycle(dut):
    """The epoch is aborted at each cycle of a slice of the collective, on each rank in turn."""
    bench = await started(dut)
    first, step = int(os.environ["FIRST"]), int(os.environ["STEP"])
    epoch = 1
    for cycle in range(first, LONGEST, step):
        for aborter in bench.ranks:
            await abort_and_go_on(bench, epoch, cycle, aborter)
            epoch = epoch % 250 + 2


CASES = {
    "an_abort_on_one_gpu_ends_the_epoch_on_all": 9,
    "who_arms_late_is_told_too": 6,
    "a_neighbour_that_never_arms_is_noticed_by_the_watchdog": 3,
    "a_dead_neighbour_delays_an_abort_no_longer_than_its_link": 4,
    "plain_traffic_that_never_stops_holds_up_no_drain": 4,
    "a_gpu_is_reset_while_the_others_go_on": 6,
}
"""Rounds of each case; the quick tests do a third of them."""


def run(design: NodeRing, name: str, ring: str, case: str, repeats: int, **environment: str) -> None:
    """One of the cases."""
    environment |= {"RING": ring, "ROUNDS": str(repeats)}
    simulate_ring(design, name, __name__, case, environment)


@pytest.mark.parametrize("case", CASES)
def test_aborts(case):
    run(node_ring(*RINGS["small"]), "node_ring", "small", case, -(-CASES[case] // 3))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ring", RINGS)
def test_aborts_at_length(ring, case):
    run(node_ring(*RINGS[ring]), "node_ring", ring, case, 4 * CASES[case])


@pytest.mark.wide
@pytest.mark.parametrize("case", CASES)
def test_aborts_pass_a_switch(case):
    run(node_ring(*RINGS["switched"]), "node_ring", "switched", case, -(-CASES[case] // 3))


SLICES = 30


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLICES))
def test_abort_at_every_cycle(first):
    run(node_ring(*RINGS["small"]), "node_ring", "small", "every_cycle", 1, FIRST=str(first), STEP=str(SLICES))


class KeepsQuiet(Node):
    """A wrong node, which tells its peers nothing."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m._named_submodules["lane_0"][0].notice = Const(0, self._config.epoch_bits)
        return m


class Sleeps(Node):
    """A wrong node, whose watchdog never barks."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m._named_submodules["epoch_abort"][0].watchdog = Const(0, 24)
        return m


@pytest.mark.wide
def test_a_node_that_waits_for_ever_is_caught():
    case = "a_neighbour_that_never_arms_is_noticed_by_the_watchdog"
    with pytest.raises(SimulationError, match="never drained"):
        run(NodeRing(SMALL, 3, Sleeps), "sleeping_ring", "small", case, 1)


@pytest.mark.wide
def test_a_drain_that_waits_for_plain_traffic_is_caught():
    case = "plain_traffic_that_never_stops_holds_up_no_drain"
    with patch("hw.node.DRAIN_STARVATION", 0), pytest.raises(SimulationError, match="never drained"):
        run(NodeRing(SMALL, 3), "patient_ring", "small", case, 1)


@pytest.mark.wide
def test_a_node_that_tells_nobody_is_noticed():
    case = "an_abort_on_one_gpu_ends_the_epoch_on_all"
    with pytest.raises(SimulationError):
        run(NodeRing(SMALL, 3, KeepsQuiet), "quiet_ring", "small", case, 1)
