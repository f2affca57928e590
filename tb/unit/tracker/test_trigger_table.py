"""The trigger table: every block becomes ready once, when the last of its WF tiles is complete."""

import itertools
import json
import os
import random
from dataclasses import replace
from functools import cache, partial

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import preset
from hw.messages import Messages
from hw.protection import ALL, LINKS
from hw.tracker.trigger_table import TriggerTable, completion
from sim.models import FOLDER as MODELS
from sim.models.seeded_bugs import FaultyTrigger
from tb.drivers.clear import cleared
from tb.drivers.payload import field, pack
from tb.drivers.stream import StreamSink, stalls, until_offered
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_trigger_table
from tb.runner import caught, simulate

BLOCKS = int(os.environ.get("T3_BLOCKS", "64"))
CONFIG = preset("paper", trigger_blocks=BLOCKS, protection=os.environ.get("T3_PROTECTION", LINKS))
LAYOUT = completion(CONFIG)
LATENCY = 2
CARRIED = ("range", "wg", "va", "right")
"""What a block carries; the first two, a launch."""


trigger_table = cache(TriggerTable)


class Bench:
    def __init__(self, dut, percent: int | None):
        """`percent` of the cycles nobody takes blocks and launches; None: until they are offered."""
        self.dut = dut
        Clock(dut.clk, 1, unit="ns").start()
        self.held = False
        """Nobody takes anything."""
        sometimes = stalls(percent or 0)
        stall = until_offered if percent is None else lambda: self.held or sometimes()
        self.blocks = StreamSink(dut, "blocks", dut.clk, stall)
        self.launches = StreamSink(dut, "launches", dut.clk, stall)

    async def start(self) -> None:
        checks = ("scrub", "upset") if CONFIG.protects_memories else ()
        for name in ("lookup", "lookup_index", "complete", "completion", "clear", *checks):
            getattr(self.dut, name).value = 0
        await self.reset()
        observe(watch_trigger_table, self.dut, CONFIG)

    async def reset(self) -> None:
        self.dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await cleared(self.dut)

    async def clear(self) -> None:
        self.dut.clear.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.clear.value = 0
        await RisingEdge(self.dut.clk)
        await cleared(self.dut)

    async def play(self, items: list[dict]) -> list[int]:
        """Complete `items` one after the other, a lookup each cycle unless stalled; returns the done masks seen. While
        nothing is looked up or complete, the index and the tile are anything."""
        dut = self.dut
        seen = []
        previous: dict | None = None
        between: dict | None = None
        stimulus: list[dict | None] = [*items, None, None]
        for item in stimulus:
            while True:
                stalled = item is not None and random.random() < 0.2
                looked_up = None if stalled else item
                dut.lookup.value = int(looked_up is not None)
                dut.lookup_index.value = random.randrange(BLOCKS) if looked_up is None else looked_up["place"]["index"]
                dut.complete.value = int(previous is not None)
                anything = random.getrandbits(LAYOUT.size)
                dut.completion.value = anything if previous is None else pack(LAYOUT, **previous)
                await ReadOnly()
                if previous is not None:
                    seen.append(int(dut.done.value))
                await RisingEdge(dut.clk)
                previous, between = between, looked_up
                if not stalled:
                    break
        dut.complete.value = 0
        return seen

    def received(self) -> dict[str, list[tuple]]:
        """Blocks and launches since the last call, as :func:`ready` gives them."""
        got = {}
        for action, sink, names in (("dma", self.blocks, CARRIED), ("launch", self.launches, CARRIED[:2])):
            layout = getattr(Messages(CONFIG), "ready_block" if action == "dma" else "launch_event")
            got[action] = [tuple(field(layout, item, name) for name in names) for item in sink.received]
            sink.received.clear()
        return got

    async def idle(self, cycles: int) -> None:
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)


def random_completions() -> tuple[list[dict], list[tuple], list[tuple]]:
    """Tiles of every entry in random order, the blocks and the launches expected; now and then of each entry both."""
    items: list[dict] = []
    blocks, launches = [], []
    both = random.getrandbits(1)
    for index in range(BLOCKS):
        members = random.randint(1, 8)
        flags = {name: random.getrandbits(1) | both for name in ("dma", "launch")} | {"bottom": random.getrandbits(1)}
        first = random.randint(0, 8 - members)
        common = {"range": random.randrange(16), "wg": random.getrandbits(16), "right": random.getrandbits(1)}
        lowest = random.randrange((1 << CONFIG.va_sector_bits) - 5 * 8)
        order = list(range(members))
        for position in order:
            place = {"index": index, "position": position, "needed": (1 << members) - 1, "first_wf": first, **flags}
            items.append({"place": place, "va": lowest + 5 * position, **common})
        if flags["dma"]:
            blocks.append((common["range"], common["wg"], first, lowest, flags["bottom"], common["right"]))
        if flags["launch"]:
            launches.append((common["range"], common["wg"], first))
    window = random.choice((4, 512))
    items.sort(key=lambda item: item["place"]["index"] * 8 + random.randrange(window))
    return items, blocks, launches


@cocotb.test()
async def each_block_once(dut):
    bench = Bench(dut, json.loads(os.environ["T3_STALLS"]))
    await bench.start()
    names = ("range", "wg", "wf", "va", "bottom", "right")
    layouts = Messages(CONFIG)
    # After a reset the sweep begins at the first entry, after a clear where the last one ended.
    for again in (bench.clear, bench.reset, bench.clear, bench.clear):
        items, blocks, launches = random_completions()
        expected: list[int] = []
        masks: dict[int, int] = {}
        for item in items:
            place = item["place"]
            expected.append(masks.get(place["index"], 0))
            masks[place["index"]] = expected[-1] | 1 << place["position"]
        bench.held = random.random() < 0.5
        seen = await bench.play(items)
        assert seen == expected
        bench.held = False
        await bench.idle(4 * BLOCKS * 12)
        got = [tuple(field(layouts.ready_block, item, name) for name in names) for item in bench.blocks.received]
        assert sorted(got) == sorted(blocks)
        started = [
            tuple(field(layouts.launch_event, item, name) for name in names[:3]) for item in bench.launches.received
        ]
        assert sorted(started) == sorted(launches)
        assert not int(dut.waiting.value)
        bench.blocks.received.clear()
        bench.launches.received.clear()
        await again()


@cocotb.test()
async def doubled_completions_are_reported(dut):
    bench = Bench(dut, 0)
    await bench.start()
    place = {"index": 7, "position": 1, "needed": 3, "first_wf": 0, "dma": 1, "launch": 1}
    item = {"place": place, "va": 10}
    await bench.play([item])
    await ReadOnly()
    assert not int(dut.doubled.value)
    await RisingEdge(dut.clk)
    await bench.play([item])
    await ReadOnly()
    assert int(dut.doubled.value)
    await bench.idle(10)
    assert not bench.blocks.received and not bench.launches.received
    start = None
    dut.lookup.value = 1
    dut.lookup_index.value = 7
    await RisingEdge(dut.clk)
    dut.lookup.value = 0
    await RisingEdge(dut.clk)
    dut.complete.value = 1
    dut.completion.value = pack(LAYOUT, place={**place, "position": 0}, va=5)
    for cycle in range(10):
        await ReadOnly()
        if int(dut.blocks__valid.value):
            assert int(dut.launches__valid.value)
            start = cycle
            break
        await RisingEdge(dut.clk)
        dut.complete.value = 0
    assert start == LATENCY


@cocotb.test()
async def repeated_completions_change_nothing(dut):
    """Every tile of blocks of any size and action completes twice; the second time is reported and starts nothing."""
    bench = Bench(dut, 0)
    await bench.start()
    blocks, launches = [], []
    for index, (members, dma, launch) in enumerate(itertools.product((1, 3, 8), (0, 1), (0, 1))):
        for position in range(members):
            needed = (1 << members) - 1
            place = {"index": index, "position": position, "needed": needed, "dma": dma, "launch": launch}
            item = {"place": place, "wg": 100 + index, "va": 10 + position}
            for doubled in (0, 1):
                await bench.play([item])
                await ReadOnly()
                assert int(dut.doubled.value) == doubled, item
                await RisingEdge(dut.clk)
        blocks += [100 + index] * dma
        launches += [100 + index] * launch
    await bench.idle(100)
    messages = Messages(CONFIG)
    assert [field(messages.ready_block, item, "wg") for item in bench.blocks.received] == blocks
    assert [field(messages.launch_event, item, "wg") for item in bench.launches.received] == launches


def single_tiles(indices: list[int]) -> list[dict]:
    """The one WF tile of each of these blocks, with random actions."""
    items = []
    for index in indices:
        position = random.randrange(8)
        place = {"index": index, "position": position, "needed": 1 << position, "first_wf": index & 7}
        place |= {"dma": random.getrandbits(1), "launch": random.getrandbits(1)}
        items.append({"place": place} | {name: random.getrandbits(LAYOUT[name].width) for name in CARRIED})
    return items


def ready(items: list[dict], action: str) -> list[tuple]:
    """What the completion of `items` makes ready for `action`, in order."""
    names = CARRIED if action == "dma" else CARRIED[:2]
    return [tuple(item[name] for name in names) for item in items if item["place"][action]]


@cocotb.test()
async def blocks_leave_in_the_order_of_their_completion(dut):
    """Bursts of blocks with stalls between them, so that the queues are now empty, now not."""
    bench = Bench(dut, 40)
    await bench.start()
    for _ in range(4):
        items = single_tiles(random.sample(range(BLOCKS), BLOCKS))
        left = list(items)
        while left:
            burst = [left.pop(0) for _ in range(min(len(left), random.randint(1, 5)))]
            await bench.play(burst)
            await bench.idle(random.randrange(8))
        await bench.idle(BLOCKS * 4)
        assert bench.received() == {action: ready(items, action) for action in ("dma", "launch")}
        await bench.clear()


@cocotb.test()
async def a_clear_drops_what_waits(dut):
    """A clear drops the blocks that nobody has taken, which `waiting` tells before; what comes later is right."""
    bench = Bench(dut, 0)
    # What is offered in the cycle of the clear is taken in it, or it would be withdrawn.
    stopped = {"blocks", "launches"}
    bench.blocks.stall, bench.launches.stall = lambda: "blocks" in stopped, lambda: "launches" in stopped
    await bench.start()
    for _ in range(30):
        items = single_tiles(random.sample(range(BLOCKS), random.randint(1, BLOCKS * 5 // 8)))
        due = {action: ready(items, action) for action in ("dma", "launch")}
        before = bench.blocks.taken + bench.launches.taken
        stopped = {"blocks", "launches"}
        await bench.play(items)
        await bench.idle(2)
        # Often only one of the two has anything left.
        stopped = random.choice([set(), {"blocks"}, {"launches"}])
        await bench.idle(random.choice([random.randrange(1, 9), 3 * len(items) + 9]))
        stopped = set()
        await bench.idle(1)
        taken = bench.blocks.taken + bench.launches.taken - before
        await ReadOnly()
        for name in ("blocks", "launches"):
            taken += int(getattr(dut, f"{name}__valid").value) & int(getattr(dut, f"{name}__ready").value)
        assert int(dut.waiting.value) == (taken < len(due["dma"]) + len(due["launch"]))
        await RisingEdge(dut.clk)
        await bench.clear()
        await bench.idle(4)
        assert not int(dut.waiting.value)
        for action, got in bench.received().items():
            assert got == due[action][: len(got)]


@cocotb.test()
async def an_entry_begins_anew_after_a_clear(dut):
    """Also the one that was marked last, which is passed on while it is on its way to the memory."""
    bench = Bench(dut, 0)
    await bench.start()
    for index in random.sample(range(BLOCKS), 8):
        for _ in range(2):
            place = {"index": index, "position": random.randrange(8), "needed": 255, "dma": 1}
            assert await bench.play([{"place": place}]) == [0]
            await bench.clear()
    assert not bench.blocks.received


@cocotb.test()
async def waiting_until_the_last_is_taken(dut):
    """All blocks of the table leave, then all launches, each without a stall, then with many: in every cycle `waiting`
    tells of any left."""
    bench = Bench(dut, 0)
    await bench.start()
    for (action, name), stall in itertools.product((("dma", "blocks"), ("launch", "launches")), (0, 0.7)):
        items = single_tiles(random.sample(range(BLOCKS), BLOCKS))
        for item in items:
            item["place"] |= {"dma": 0, "launch": 0, action: 1}
        bench.held = True
        await bench.play(items)
        await bench.idle(2)
        bench.held = False
        left = len(items)
        while left:
            await ReadOnly()
            left -= int(getattr(dut, f"{name}__valid").value) & int(getattr(dut, f"{name}__ready").value)
            assert int(dut.waiting.value) == (left > 0), left
            await RisingEdge(dut.clk)
            bench.held = random.random() < stall
        bench.held = False
        await bench.clear()


def run(test: str, percent: int | None = 0, blocks: int = BLOCKS, protection: str = LINKS) -> None:
    environment = {"T3_STALLS": json.dumps(percent), "T3_BLOCKS": str(blocks), "T3_PROTECTION": protection}
    config = replace(CONFIG, trigger_blocks=blocks, protection=protection)
    simulate(trigger_table(config), "trigger_table", __name__, test, environment=environment)


@pytest.mark.parametrize(
    "test",
    [
        "each_block_once",
        "repeated_completions_change_nothing",
        "blocks_leave_in_the_order_of_their_completion",
        "a_clear_drops_what_waits",
        "waiting_until_the_last_is_taken",
    ],
)
@pytest.mark.parametrize(("blocks", "protection"), [(16, LINKS), (16, ALL), (64, ALL)])
def test_sizes(test, blocks, protection):
    """Of few blocks, and with memories that are checked."""
    run(test, 40, blocks, protection)


@pytest.mark.parametrize("percent", [0, 90, None])
def test_each_block_once(percent):
    run("each_block_once", percent)


def test_doubled_completions_are_reported():
    run("doubled_completions_are_reported")


def test_blocks_leave_in_the_order_of_their_completion():
    run("blocks_leave_in_the_order_of_their_completion")


def test_a_clear_drops_what_waits():
    run("a_clear_drops_what_waits")


def test_an_entry_begins_anew_after_a_clear():
    run("an_entry_begins_anew_after_a_clear")


def test_waiting_until_the_last_is_taken():
    run("waiting_until_the_last_is_taken")


def test_repeated_completions_change_nothing():
    run("repeated_completions_change_nothing")


def test_the_seeded_bug_is_caught():
    table = FaultyTrigger(TriggerTable(CONFIG))
    run_table = partial(
        simulate,
        table,
        "trigger_table",
        __name__,
        "each_block_once",
        environment={"T3_STALLS": "0"},
        sources=[MODELS / "seeded_bug.sv"],
    )
    run_table()
    with caught("sorted"):
        run_table(plusargs=["+seeded_bug=doubled_trigger"])
