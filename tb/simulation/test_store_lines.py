"""Workgroups store in the order in which they were over, and those for one port hold up no other."""

import random
from itertools import cycle

import pytest
from amaranth.sim import Simulator, SimulatorContext

from sim.models.store_lines import StoreLines

PORTS = 3
SLOTS = 20
ROUNDS = 400


class _Slots:
    """Workgroups in `SLOTS` slots, each over at some time, for some port or a local one (None); what was done."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.over: dict[int, int | None] = {}
        self.waits: set[int] = set()
        self.order: dict[int | None, list[int]] = {port: [] for port in (None, *range(PORTS))}
        """By port: slots that found no room, in the order in which they did."""
        self.gone = 0


async def _look(ctx: SimulatorContext, lines: StoreLines, slots: _Slots, slot: int, full: set[int | None]) -> None:
    """One cycle: `slot` is looked at, stores to `full` have no room, of which remote ones mostly have some."""
    shared = slots.random.random() < 0.8
    ctx.set(lines.shared, shared)
    over = slot in slots.over
    port = slots.over.get(slot)
    ctx.set(lines.at, {"slot": slot, "side": slot % 2})
    of_line = (None, *range(PORTS))
    ctx.set(lines.over, over << of_line.index(port))
    ctx.set(lines.waits, slot in slots.waits)
    ctx.set(lines.room, sum(1 << number for number, stored in enumerate(of_line) if stored not in full))
    goes, joins = ctx.get(lines.goes), ctx.get(lines.joins)
    if not over:
        assert not goes and not joins
    elif slot in slots.waits:
        first = slots.order[port][0] == slot
        assert (goes, joins) == (first and port not in full, 0)
        if goes:
            slots.order[port].pop(0)
    else:
        assert goes == (not slots.order[port] and port not in full)
        assert joins == (shared and not goes)
    if joins:
        slots.waits.add(slot)
        slots.order[port].append(slot)
    if goes:
        slots.waits.discard(slot)
        del slots.over[slot]
        slots.gone += 1
    await ctx.tick()


@pytest.mark.parametrize("seed", range(3))
def test_workgroups_store_in_the_order_in_which_they_were_over(seed: int) -> None:
    """Also called out of turn once the one before went, and while a port stands all others go on."""
    print(f"seed {seed}")
    lines, slots = StoreLines(PORTS), _Slots(seed)
    called = 0

    async def bench(ctx: SimulatorContext) -> None:
        nonlocal called
        places = cycle(range(SLOTS))
        for round_number in range(ROUNDS):
            stands = slots.random.choice([None, *range(PORTS)])
            full = {stands} if round_number % 3 else {None, *range(PORTS)}
            before = slots.gone
            for _ in range(SLOTS):
                for slot in range(SLOTS):
                    if slot not in slots.over and slots.random.random() < 0.05:
                        slots.over[slot] = slots.random.choice([None, *range(PORTS)])
                if ctx.get(lines.calls):
                    following = ctx.get(lines.following)
                    slot = int(following.slot)
                    assert following.side == slot % 2
                    assert slots.order[slots.over[slot]][0] == slot
                    called += 1
                else:
                    slot = next(places)
                await _look(ctx, lines, slots, slot, full)
            assert len(full) > 1 or slots.gone > before

    simulator = Simulator(lines)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert called > 100
