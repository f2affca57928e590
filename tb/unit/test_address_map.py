"""The address map sends every access where a plain model of the rules says, and reports what it refuses."""

import os
import random
from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import count

import cocotb
import pytest
from amaranth import Const, Module
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hw.address_map import AddressMap
from hw.config import preset
from hw.memory_window import WindowCheck
from hw.messages import Fault, Messages
from hw.range_table import RangeWrite, Word
from hw.send_table import SendWord, SendWrite
from tb.drivers.payload import no_write, pack, unpack
from tb.drivers.stream import StreamSink, StreamSource, never, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_address_map
from tb.runner import caught, simulate

address_map = cache(AddressMap)

READ, STORE, UPDATE = 0, 1, 2
LOCAL, REMOTE, DMA = 0, 1, 2
ELEMENT_BYTES = (2, 2, 4, 4)
TABLES = 12
"""Range tables that a simulation goes through."""
UNARMED, ARMED = 30, 220
"""Accesses while nothing is armed, and in each of two epochs."""
LATENCY = 3
"""Cycles from an access to its decision."""
OUTPUTS = ("local", "remote", "refused_reads")


_ALL = 0xFFFFFFFF
UNUSED = {Word.BASE_LOW: 0, Word.BASE_HIGH: 0, Word.LIMIT_LOW: _ALL, Word.LIMIT_HIGH: _ALL, Word.CONTROL: 0}
"""An entry that would hold every address if it were valid."""


@dataclass
class Range:
    base: int
    limit: int
    mapping: int
    access: int
    alu: int
    dtype: int
    first_touch: int
    tracked: int
    wg_base: int
    wg_count: int
    wfs: int
    first_send: int
    sends: int

    def words(self, va_bits):
        """What is programmed; bits that the address map does not read are anything."""
        control = (
            1
            | self.mapping << 1
            | self.access << 3
            | self.alu << 5
            | self.dtype << 7
            | self.first_touch << 9
            | self.tracked << 10
            | self.first_send << 12
            | self.sends << 18
            | random.getrandbits(32) & ~0xFFF7FF
        )
        high = max(va_bits - 32, 0)
        return {
            Word.BASE_LOW: self.base & 0xFFFFFFFF,
            Word.BASE_HIGH: self.base >> 32 | random.getrandbits(32 - high) << high,
            Word.LIMIT_LOW: self.limit & 0xFFFFFFFF,
            Word.LIMIT_HIGH: self.limit >> 32 | random.getrandbits(32 - high) << high,
            Word.WORKGROUPS: self.wg_base | self.wg_count << 16,
            Word.GROUPING: self.wfs << 20,
            Word.CONTROL: control,
        }


@dataclass
class Send:
    access: int
    dtype: int

    def words(self):
        """What is programmed; bits that the address map does not read are anything."""
        control = self.access << 6 | self.dtype << 10 | random.getrandbits(32) & ~0xCC0
        return {
            SendWord.CONTROL: control,
            SendWord.OFFSET_LOW: random.getrandbits(32),
            SendWord.OFFSET_HIGH: random.getrandbits(32),
        }


def random_send():
    return Send(access=random.choice((STORE, UPDATE)), dtype=random.randrange(4))


def whole_elements(mask, size):
    """Every element of `size` bytes is written wholly or not at all."""
    return all((mask >> at) % (1 << size) in (0, (1 << size) - 1) for at in range(0, 32, size))


def golden(ranges, sends, ports, memory, request, armed, epoch):
    """(output, payload fields) of one access: output is local, remote, refused_reads or None, then the fault or None.
    `memory`: its addresses."""
    index, found = next(((i, r) for i, r in enumerate(ranges) if r.base <= request["va"] < r.limit), (0, None))
    if request["va"] not in memory:
        found = None
    fault = None
    update = False
    send = sends[found.first_send if found else 0]
    if found is None:
        fault = Fault.OUTSIDE
    elif request["access"] == READ:
        if found.mapping == REMOTE:
            fault = Fault.REMOTE_READ
    else:
        remote = found.mapping == REMOTE
        update = UPDATE in ((send.access,) if remote else (request["access"], found.access))
        in_tiles = found.wg_base <= request["wg"] < found.wg_base + found.wg_count and request["wf"] < found.wfs
        if (remote or found.tracked) and not armed:
            fault = Fault.NOT_ARMED
        elif (remote or found.tracked) and not in_tiles:
            fault = Fault.TILE
        elif request["mask"] == 0 or (
            update and not whole_elements(request["mask"], ELEMENT_BYTES[send.dtype if remote else found.dtype])
        ):
            fault = Fault.MASK
    if found is None or fault is not None:
        if request["access"] == READ:
            return "refused_reads", {"id": request["id"], "error": 1, "data": 0}, fault
        return None, {}, fault
    kept = {name: request[name] for name in ("wf", "mask", "data")}
    write = request["access"] != READ
    if write and found.mapping == REMOTE:
        kept.update({name: request[name] for name in ("va", "wg")}, first_send=found.first_send, sends=found.sends)
        return "remote", {**kept, "epoch": epoch, "port": ports[found.first_send]}, None
    kept["access"] = READ if not write else UPDATE if update else STORE
    kept["alu"], kept["dtype"] = found.alu, found.dtype
    kept.update(
        va=request["va"],
        wg=request["wg"],
        traffic_class=request["traffic_class"],
        source=0,
        id=request["id"],
        range=index,
        epoch=epoch,
    )
    kept.update(first_touch=found.first_touch * write, tracked=found.tracked * write)
    return "local", kept, None


def random_ranges(config):
    """Disjoint ranges, some of them touching, some across the 2**32 sector line."""
    count = random.choice([random.randint(2, config.ranges), config.ranges])
    top = 1 << config.va_sector_bits
    cuts = sorted(random.sample(range(1, 4000), 2 * count))
    middle = min(1 << 32, top // 2) - 2000
    ranges = []
    for index in range(count):
        place = random.choice((middle, random.randrange(top - 4000)))
        mapping = random.choice((LOCAL, REMOTE, DMA))
        wg_count = random.choice((random.randint(1, 40), random.getrandbits(random.randint(1, 16)) or 1))
        ranges.append(
            Range(
                base=place + cuts[2 * index],
                limit=place
                + (cuts[2 * index + 1] if random.random() < 0.7 else cuts[min(2 * index + 2, 2 * count - 1)]),
                mapping=mapping,
                access=random.choice((STORE, UPDATE)),
                alu=random.randrange(4),
                dtype=random.randrange(4),
                first_touch=random.randrange(2),
                tracked=1 if mapping == DMA else random.randrange(2),
                wg_base=random.choice((random.randrange(300), random.randrange(1 << 16))) % ((1 << 16) + 1 - wg_count),
                wg_count=wg_count,
                wfs=random.randint(1, 8),
                first_send=random.randrange(config.sends),
                sends=random.getrandbits(6),
            )
        )
    return ranges


def random_window(config, ranges):
    """What is written of the node's memory, and its addresses: all that there are, those around a range, or those of
    another memory. Bits above those of addresses are anything."""
    size = 1 << config.va_sector_bits - config.window_bits
    high = random.choice([found.base // size for found in ranges] + [random.getrandbits(config.window_bits)])
    checked = random.random() < 0.5
    memory = range(high * size, (high + 1) * size) if checked else range(1 << config.va_sector_bits)
    beyond = random.getrandbits(31 - config.window_bits)
    return pack(WindowCheck, high=beyond << config.window_bits | high, checked=checked), memory


def random_request(config, ranges, identifier):
    found = random.choice(ranges)
    edge = random.choice((found.base - 1, found.base, found.limit - 1, found.limit))
    inside = random.randrange(found.base, found.limit)
    beside = random.choice((found.base, found.limit - 1)) ^ 1 << random.randrange(config.va_sector_bits)
    near = random.random() < 0.9
    at_edge = random.choice((found.wg_base - 1, found.wg_base + found.wg_count, random.randrange(1 << config.wg_bits)))
    within = found.wg_base + random.choice((0, found.wg_count - 1, random.randrange(found.wg_count)))
    wg = within if near else at_edge
    size = random.choice((1, 2, 4))
    lanes = random.getrandbits(32 // size)
    gap = ((1 << size) - 1) << random.randrange(32 // size) * size
    mask = sum(((1 << size) - 1) << lane * size for lane in range(32 // size) if lanes >> lane & 1)
    return {
        "access": random.choice((READ, STORE, UPDATE)),
        "va": random.choices((edge, beside, inside), (20, 10, 70))[0],
        "wg": wg % (1 << config.wg_bits),
        "wf": random.randrange(found.wfs) if near else random.randrange(8),
        "traffic_class": random.randrange(4),
        "id": identifier,
        "mask": random.choice(
            (0xFFFFFFFF, 0xFFFFFFFF, gap, 0xFFFFFFFF ^ gap, mask, random.getrandbits(32), random.choice((0, 0xFF)))
        ),
        "data": random.getrandbits(256),
    }


async def program(dut, index, words):
    """In any order but CONTROL last, and with something in words that only other blocks keep."""
    others = {word: random.getrandbits(32) for word in (Word.RAGGED, Word.ROWS, Word.PITCH)}
    words = {**others, **words}
    for word in sorted(words, key=lambda word: (word is Word.CONTROL, random.random())):
        if random.random() < 0.3:
            dut.ranges.value = no_write(RangeWrite)
            await RisingEdge(dut.clk)
        dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=words[word])
        await RisingEdge(dut.clk)
    dut.ranges.value = no_write(RangeWrite)


async def program_send(dut, index, words):
    for word, value in words.items():
        dut.sends.value = pack(SendWrite, valid=1, index=index, word=word.value, data=value)
        await RisingEdge(dut.clk)
    dut.sends.value = no_write(SendWrite)


async def fill_ranges(dut, config):
    """Leave rubbish in every entry but its CONTROL, each bit written both ways: no access is to find it."""
    for index in range(config.ranges):
        for word in Word:
            value = random.getrandbits(32)
            for item in (value, value ^ 0xFFFFFFFF, 0 if word is Word.CONTROL else value):
                await program(dut, index, {word: item})


async def start(dut):
    Clock(dut.clk, 1, unit="ns").start()
    dut.ranges.value = 0
    dut.sends.value = 0
    dut.armed.value = 0
    dut.epoch.value = 0
    dut.window.value = 0
    dut.requests__valid.value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    observe(watch_address_map, dut, configuration())


def configuration():
    return preset(os.environ.get("T3_PRESET", "paper"), **({"va_bits": 36} if os.environ.get("T3_NARROW") else {}))


async def watch_holding(dut, coming: deque[tuple[str | None, bool]]) -> None:
    """In every cycle `holding` says whether an access of an epoch is decided and has not left. Of each access to come,
    its output and whether it is of an epoch."""
    inside: deque[tuple[int, str, bool]] = deque()
    for cycle in count():
        await ReadOnly()
        held = any(belongs for decided, _, belongs in inside if decided <= cycle)
        assert int(dut.holding.value) == held, f"cycle {cycle}: holding should be {held}"
        for name in OUTPUTS:
            if int(getattr(dut, f"{name}__valid").value) & int(getattr(dut, f"{name}__ready").value):
                _, output, _ = inside.popleft()
                assert output == name, f"cycle {cycle}: {name} instead of {output}"
        if int(dut.requests__valid.value) & int(dut.requests__ready.value):
            leaves, belongs = coming.popleft()
            if leaves:
                inside.append((cycle + LATENCY, leaves, belongs))
        await RisingEdge(dut.clk)


@cocotb.test()
async def every_access_goes_where_the_rules_say(dut):
    config = configuration()
    messages = Messages(config)
    layouts = {
        "local": messages.memory_request,
        "remote": messages.remote_store,
        "refused_reads": messages.compute_response,
    }
    percent = int(os.environ.get("T3_STALLS", "0"))
    stall = stalls(percent) if percent else never
    await start(dut)
    await fill_ranges(dut, config)
    source = StreamSource(dut, "requests", dut.clk, stall)
    sinks = {name: StreamSink(dut, name, dut.clk, stall) for name in layouts}
    faults = StreamSink(dut, "faults", dut.clk, never)
    refused = 0

    async def count_refused():
        nonlocal refused
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            refused += int(dut.refused.value)

    cocotb.start_soon(count_refused())
    coming: deque[tuple[str | None, bool]] = deque()
    cocotb.start_soon(watch_holding(dut, coming))
    for _ in range(TABLES):
        ranges = random_ranges(config)
        sends = [random_send() for _ in range(config.sends)]
        ports = [random.getrandbits(4) for _ in range(config.sends)]
        for index, (send, port) in enumerate(zip(sends, ports, strict=True)):
            await program_send(dut, index, send.words())
            getattr(dut, f"port_of__{index}").value = port
        for index in range(config.ranges):
            await program(dut, index, ranges[index].words(config.va_sector_bits) if index < len(ranges) else UNUSED)
        epoch = random.getrandbits(config.epoch_bits)
        for armed, current, accesses in (
            (0, 0, UNARMED),
            (1, epoch, ARMED),
            (1, ~epoch % (1 << config.epoch_bits), ARMED),
        ):
            await ClockCycles(dut.clk, 1)
            dut.armed.value = armed
            dut.epoch.value = current
            dut.window.value, memory = random_window(config, ranges)
            await ClockCycles(dut.clk, 2)
            expected: dict[str, list] = {name: [] for name in layouts}
            expected_faults = []
            for number in range(accesses):
                request = random_request(config, ranges, number % 256)
                source.queue.append(pack(messages.compute_request, **request))
                output, fields, fault = golden(ranges, sends, ports, memory, request, armed, current)
                of_epoch = output == "remote" or (output == "local" and bool(fields["first_touch"] | fields["tracked"]))
                coming.append((output, of_epoch))
                if output:
                    expected[output].append(fields)
                if fault is not None:
                    fields = {name: request[name] for name in ("va", "wg", "wf", "access")}
                    expected_faults.append({**fields, "fault": fault.value, "link": 0})
            await source.drain()
            await ClockCycles(dut.clk, 40)
            for name, layout in layouts.items():
                got = [unpack(layout, payload) for payload in sinks[name].received]
                sinks[name].received.clear()
                assert got == expected[name], f"{name}: {len(got)} of {len(expected[name])}"
            assert [unpack(messages.fault_record, payload) for payload in faults.received] == expected_faults
            assert refused == len(expected_faults)
            faults.received.clear()
            refused = 0


@cocotb.test()
async def one_access_a_cycle_in_three_cycles(dut):
    config = configuration()
    messages = Messages(config)
    await start(dut)
    plain = Range(1000, 9000, LOCAL, STORE, 0, 0, 0, 0, 0, 1, 1, 0, 0)
    await program(dut, 0, plain.words(config.va_sector_bits))
    dut.local__ready.value = 1
    first = None
    seen = 0
    for cycle in range(100):
        dut.requests__valid.value = 1
        dut.requests__payload.value = pack(messages.compute_request, access=STORE, va=1000 + cycle, mask=3)
        await ReadOnly()
        assert int(dut.requests__ready.value) == 1, "an access a cycle was not taken"
        if int(dut.local__valid.value):
            first = cycle if first is None else first
            assert unpack(messages.memory_request, int(dut.local__payload.value))["va"] == 1000 + seen
            seen += 1
        await RisingEdge(dut.clk)
    assert first == 3
    assert seen == 97


@cocotb.test()
async def a_waiting_fault_record_does_not_block(dut):
    config = configuration()
    messages = Messages(config)
    await start(dut)
    dut.faults__ready.value = 0
    source = StreamSource(dut, "requests", dut.clk)
    source.queue.extend(pack(messages.compute_request, access=STORE, va=va, mask=3) for va in range(77, 127))
    refused = 0
    for _ in range(70):
        await RisingEdge(dut.clk)
        await ReadOnly()
        refused += int(dut.refused.value)
    assert source.taken == 50 and refused == 50
    assert int(dut.faults__valid.value) == 1
    assert unpack(messages.fault_record, int(dut.faults__payload.value))["va"] == 77
    await RisingEdge(dut.clk)
    dut.faults__ready.value = 1
    await ClockCycles(dut.clk, 2)
    await ReadOnly()
    assert int(dut.faults__valid.value) == 0


class UnarmedAddressMap(AddressMap):
    """Broken on purpose: forgets that nothing is armed."""

    def elaborate(self, platform: object) -> Module:
        class Armed(AddressMap):
            def __init__(self, outer: AddressMap):
                self.__dict__.update(outer.__dict__)
                self.armed = Const(1)

        return AddressMap.elaborate(Armed(self), platform)


class NeverHolds(AddressMap):
    """Broken on purpose: does not say that it has accesses of an epoch."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.holding.eq(0)
        return m


RULES = "every_access_goes_where_the_rules_say"


@pytest.mark.parametrize("stall", [0, 30, 70])
@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_rules(name, stall):
    environment = {"T3_PRESET": name, "T3_STALLS": str(stall)}
    simulate(address_map(preset(name)), "address_map", __name__, RULES, environment=environment)


def test_narrow_addresses():
    environment = {"T3_NARROW": "1", "T3_STALLS": "20"}
    simulate(address_map(preset("paper", va_bits=36)), "address_map", __name__, RULES, environment=environment)


@pytest.mark.parametrize("testcase", ["one_access_a_cycle_in_three_cycles", "a_waiting_fault_record_does_not_block"])
def test_timing(testcase):
    simulate(address_map(preset("paper")), "address_map", __name__, testcase)


def test_a_map_that_does_not_say_what_it_holds_is_caught():
    with caught("holding should be True"):
        simulate(NeverHolds(preset("paper")), "address_map", __name__, RULES)


def test_forgotten_rule_is_caught():
    with caught("AssertionError"):
        simulate(UnarmedAddressMap(preset("paper")), "address_map", __name__, RULES)
