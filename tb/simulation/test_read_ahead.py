"""Workgroups ask for every sector of every step once and in order, as far ahead and as many at a time as they may, and
for nothing of a slice that is not there; those that share a compute unit compute one after another."""

import random
from dataclasses import dataclass, field

import cocotb
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.models.plan_layout import Kernel, Step, Workgroup
from sim.models.read_ahead import ReadAhead, ReadTask
from sim.models.unit_sharing import UnitSharing
from sim.workloads.kernel_plans import GemmTimes, Tolerance, gemm_kernel
from sim.workloads.sublayer import SubLayer
from tb.integration.test_sublayer import gemm_alone
from tb.runner import simulate

SLOTS = 5
WORKGROUPS = 60


def bits(layout: data.StructLayout, fields: dict[str, int]) -> int:
    """The value of a structure, fields not named 0."""
    return sum(value << layout[name].offset for name, value in fields.items())


@dataclass
class Running:
    """A workgroup in a slot, seen by hand: what it reads in each step, how many of these sectors were asked for and
    came back, and the step that begins next."""

    workgroup: dict[str, int]
    steps: list[dict[str, int]]
    following: int = 0
    asked: int = 0
    back: int = 0
    sectors: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.sectors = []
        for number, step in enumerate(self.steps):
            last = number == len(self.steps) - 1
            here = []
            for name in "ab":
                first = self.workgroup[f"{name}_va"] + number * self.workgroup[f"{name}_sectors"]
                count = self.workgroup[f"{name}_last" if last else f"{name}_sectors"]
                here += [first + place for place in range(count)] if step[f"fetch_{name}"] else []
            self.sectors.append(here)

    @property
    def all(self) -> list[int]:
        """Every sector, in order."""
        return [sector for step in self.sectors for sector in step]

    def end(self, step: int) -> int:
        """Sectors up to the end of `step`."""
        return sum(map(len, self.sectors[: step + 1]))

    def may_ask(self, prefetched: int, over: bool, begins: bool) -> int:
        """Sectors that may have been asked for at the most: of the steps up to the one that computes, so many more, and
        of the next one when that is over."""
        return self.end(max(self.following + begins + prefetched - 1, self.following if over else -1))


def drawn(steps: int) -> Running:
    numbers = {name: random.randrange(1, 40) for name in ("a_sectors", "b_sectors", "a_last", "b_last")}
    places = {name: random.randrange(1 << 30) for name in ("a_va", "b_va")}
    each = [
        {name: random.randrange(2) for name in ("fetch_a", "fetch_b")}
        | {name: random.randrange(1 << 14) for name in ("wait_a", "wait_b")}
        for _ in range(steps)
    ]
    return Running(numbers | places, each)


@dataclass
class Slots:
    """What is in the slots, and how many sectors came back to each in all."""

    kernel: dict[str, int]
    held: list[Running | None] = field(default_factory=lambda: [None] * SLOTS)
    left: int = WORKGROUPS

    async def visit(self, dut, back: list[int]) -> int:
        """Look at one slot, as the engine does; how many sectors it then has under way."""
        slot = random.randrange(SLOTS)
        launch = self.held[slot] is None and bool(self.left)
        if launch:
            self.held[slot] = drawn(self.kernel["steps"])
            self.left -= 1
        held = self.held[slot]
        if held is None:
            return 0
        came = random.randint(0, held.asked - held.back)
        held.back += came
        back[slot] = (back[slot] + came) % (1 << 16)
        over, ready, there = not launch and random.random() < 0.5, random.random() < 0.8, random.random() < 0.8
        dut.slot.value, dut.launch.value, dut.looking.value = slot, launch, 1
        dut.over.value, dut.ready.value, dut.open.value, dut.begins.value = over, ready, there, 0
        dut.following.value, dut.moved.value = held.following, back[slot]
        dut.workgroup.value = bits(Workgroup, held.workgroup)
        await ReadOnly()
        number = int(dut.steps.value)
        if number < self.kernel["steps"] and self.kernel["slice_steps"]:
            assert int(dut.slice.value) == number // self.kernel["slice_steps"]
        here = held.following < self.kernel["steps"]
        begins = over and here and bool(int(dut.back.value))
        if here and not launch:
            assert int(dut.back.value) == (number > held.following and held.back >= held.end(held.following))
        if begins:
            step = held.steps[held.following]
            assert (int(dut.wait_a.value), int(dut.wait_b.value)) == (step["wait_a"], step["wait_b"])
        await Timer(1, unit="ns")
        dut.begins.value = begins
        dut.step.value = bits(Step, held.steps[number]) if number < self.kernel["steps"] else 0
        await ReadOnly()
        if int(dut.asks.value):
            assert ready and there
            self.take(held, ReadTask.from_bits(int(dut.task.value)), over, begins)
        held.following += begins
        if held.following == self.kernel["steps"] and held.back == len(held.all):
            self.held[slot] = None
        return held.asked - held.back

    def take(self, held: Running, task: data.Const, over: bool, begins: bool) -> None:
        """Reads are those that come next, and neither too early nor too many."""
        places = [task.va + place for place in range(task.count)]
        places += [task.second_va + place for place in range(task.second_count)]
        assert places == held.all[held.asked : held.asked + len(places)]
        held.asked += len(places)
        assert held.asked <= held.may_ask(self.kernel["prefetched"], over, begins)
        assert not self.kernel["reads"] or held.asked - held.back <= self.kernel["reads"]


@cocotb.test()
async def every_sector_once_and_in_order(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.looking.value, dut.launch.value = 0, 0
    dut.rst.value = 1
    for _ in range(2):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    back = [0] * SLOTS
    for prefetched in range(3):
        for reads in (0, 5, 64):
            steps = random.randrange(4, 9)
            cut = {"slice_steps": random.choice([0, 1, 2, steps])}
            slots = Slots({"steps": steps, "prefetched": prefetched, "reads": reads} | cut)
            dut.kernel.value = bits(Kernel, slots.kernel)
            most = visits = 0
            while slots.left or any(slots.held):
                most = max(most, await slots.visit(dut, back))
                await FallingEdge(dut.clk)
                dut.looking.value, dut.launch.value = 0, 0
                visits += 1
                assert visits < 100 * WORKGROUPS * slots.kernel["steps"], "a workgroup is stuck"
            # The limit is met; without one several steps are under way, as far as they may be asked for.
            assert most == reads if reads == 5 else most > 40


@cocotb.test()
async def one_at_a_time_on_a_unit(dut):
    """Against a list of when each unit is free."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.take.value = 0
    for units in (0, 7, 1, 100):
        free: dict[int, int] = {}
        now = random.randrange(1 << 32)
        for slot in range(512):
            await FallingEdge(dut.clk)
            dut.units.value, dut.slot.value, dut.take.value, dut.end.value = 0, slot, 1, now
            free[slot] = now
        for _ in range(1000):
            await FallingEdge(dut.clk)
            now += random.randrange(20)
            slot, taken = random.randrange(3 * units or 512), random.randrange(300)
            unit = slot % units if units else slot
            earliest = now - random.randrange(5)
            begin = max(free[unit], earliest) if units else earliest
            dut.slot.value, dut.units.value = slot, units
            dut.earliest.value, dut.end.value = earliest % (1 << 32), (begin + taken) % (1 << 32)
            dut.take.value = 1
            await ReadOnly()
            assert int(dut.begin.value) == begin % (1 << 32)
            free[unit] = begin + taken


def test_every_sector_once_and_in_order() -> None:
    simulate(ReadAhead(sliced=True), "read_ahead", __name__, "every_sector_once_and_in_order")


def test_one_at_a_time_on_a_unit() -> None:
    simulate(UnitSharing(), "unit_sharing", __name__, "one_at_a_time_on_a_unit")


def test_less_read_ahead_makes_a_gemm_slower_and_sharing_a_unit_makes_up_for_it() -> None:
    """A step takes hardly longer than a read: without reading ahead that shows."""

    def taken(**tolerance: int) -> int:
        return gemm_alone(4, GemmTimes(400, 300), Tolerance(**tolerance))[0]

    plain = taken()
    assert taken(prefetched=0) > 1.05 * plain
    assert taken(prefetched=2) <= 1.01 * plain
    assert taken(reads=4) > plain
    assert taken(prefetched=0, per_unit=2) < taken(prefetched=0)


def test_plans_say_how_far_ahead_and_how_much() -> None:
    layer = SubLayer(1024, 320, 192, 4, 4)
    made = gemm_kernel(
        layer, ring_reduce_scatter(4), 0, 10, GemmTimes(1, 1), overlapped=False, tolerance=Tolerance(2, 6, 3)
    )
    named = ("slots", "prefetched", "reads", "units")
    assert [made.kernel[name] for name in named] == [30, 2, 24, 10]
