"""The memory controller keeps its data, its order, its commits, the DRAM's timing and the reference's speed."""

import os
import random
from collections import deque
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge, Timer

from hw.config import ROW_BITS, Timing, preset
from hw.memory_controller.admission import Admission
from hw.memory_controller.events import ControllerEvents
from hw.messages import (
    Access,
    AluOperation,
    ArbiterControl,
    DataType,
    Messages,
    Policy,
    Source,
    Threshold,
    TrafficClass,
)
from sim.models import FOLDER as MODELS
from sim.models.seeded_bugs import FaultyController
from tb.drivers import dram_stub, payload
from tb.drivers.column_bus import ColumnBus
from tb.drivers.memory_traffic import MemoryBench, RateBench
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.drivers.unsettled_writes import UnsettledWrites
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_controller
from tb.runner import caught, simulate

memory_bench = cache(MemoryBench)

STALL = float(os.environ.get("CONTROLLER_STALL", "0"))
POLICY = os.environ.get("CONTROLLER_POLICY", "MCA")
FAULT = int(os.environ.get("CONTROLLER_FAULT", "0"))
ONLY_ADD = bool(int(os.environ.get("CONTROLLER_ONLY_ADD", "0")))
"""Every update is an INT32 addition without first touch; else others, which the DRAM stub ignores, are among them."""
MANGLED = os.environ.get("CONTROLLER_MANGLED", "")
"""A field of every request of which the controller is given another value than the checker of its buses."""
REQUESTS = int(os.environ.get("CONTROLLER_REQUESTS", "300"))
MESSAGES = Messages(preset("paper"))
HIGH_BITS = preset("paper").va_sector_bits - 10 - ROW_BITS
ALL_BYTES = (1 << 32) - 1
HBM_SOURCES = [MODELS / name for name in ("hbm_array.sv", "clock_gate.sv")]
SLOW_DRAM = Timing(
    cl=14, wl=4, rcd_rd=8, rcd_wr=9, rp=7, ras=20, rc=40, ccd_s=2, ccd_l=5, ccdwl=6, rrd=3, faw=25, refi=700
)
"""Parameters whose rules the HBM2 set implies by others (RC, FAW, CCD_S) matter here."""


def control(policy="MCA", threshold=Threshold.OCCUPANCY_5, starvation=200, refresh=1):
    """Packed ArbiterControl."""
    return payload.pack(
        ArbiterControl,
        policy=Policy[policy],
        threshold=threshold,
        starvation_limit=starvation,
        refresh=refresh,
        window=100,
        boundary_10=80,
        boundary_30=50,
        boundary_none=20,
    )


def request(**fields):
    """Packed memory_request."""
    return payload.pack(MESSAGES.memory_request, **({"mask": ALL_BYTES} | fields))


async def start(dut):
    """Clock and reset; what the control input was before must not matter."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    programmed = int(dut.control.value)
    rubbish = random.getrandbits(ArbiterControl.size)
    for value in (rubbish, rubbish ^ (1 << ArbiterControl.size) - 1, rubbish, programmed):
        dut.control.value = value
        await RisingEdge(dut.clk)
    dut.rst.value = 0


def spread(mask, value):
    """`value` in the bytes of `mask`."""
    return sum((value >> 8 * byte & 0xFF) << 8 * byte for byte in range(32) if mask >> byte & 1)


def add_words(old, new, mask):
    """INT32 lanes of `new` added to `old` where `mask` covers the lane."""
    result = 0
    for lane in range(8):
        a, b = old >> 32 * lane & 0xFFFFFFFF, new >> 32 * lane & 0xFFFFFFFF
        result |= ((a + b) & 0xFFFFFFFF if mask >> 4 * lane & 1 else a) << 32 * lane
    return result


class Stream:
    """Random requests of one stream to sectors of its own, and what the memory must hold after each."""

    def __init__(self, dut, name, sectors, source, bus):
        self.source_name = source
        self.bus = bus
        self.driver = StreamSource(dut, name, dut.clk, stalls(STALL))
        self.sectors = sectors
        self.content = {}
        self.expected = {}
        self.free_ids = deque(range(256))
        self.commits = []

    async def run(self, count):
        for va in self.sectors:
            await self.access(va, Access.STORE, ALL_BYTES)
        for _ in range(count):
            access = random.choice([Access.READ, Access.READ, Access.STORE, Access.UPDATE])
            lanes = random.choice([0xFF, random.getrandbits(8)])
            mask = sum(0xF << 4 * lane for lane in range(8) if lanes >> lane & 1)
            if access == Access.STORE and random.random() < 0.3:
                mask = random.getrandbits(32)
            while access == Access.READ and not self.free_ids:
                await Timer(1, unit="ns")
            await self.access(random.choice(self.sectors), access, mask)

    async def access(self, va, access, mask):
        data = random.getrandbits(256)
        adds = ONLY_ADD or random.random() < 0.5
        ordered = {
            "access": access,
            "alu": AluOperation.ADD if adds else random.choice(list(AluOperation)),
            "dtype": DataType.INT32 if adds else random.choice(list(DataType)),
            "first_touch": 0 if ONLY_ADD and access == Access.UPDATE else random.getrandbits(1),
            "traffic_class": random.choice(list(TrafficClass)),
            "epoch": random.getrandbits(8),
        }
        # The backing store's accesses belong to no tile.
        belongs = self.source_name is not Source.SPILL
        ordered["first_touch"] &= belongs
        fields = {
            **ordered,
            "source": self.source_name,
            "va": va,
            "mask": mask,
            "data": data,
            "tracked": belongs and random.random() < 0.8,
            "range": random.randrange(16),
            "wg": random.getrandbits(16),
            "wf": random.getrandbits(3),
        }
        adds = (ordered["alu"], ordered["dtype"]) == (AluOperation.ADD, DataType.INT32)
        if access == Access.READ:
            fields["id"] = self.free_ids.popleft()
            self.expected[fields["id"]] = self.content[va]
        else:
            if fields["tracked"]:
                names = ("va", "range", "wg", "wf", "epoch")
                self.commits.append({name: fields[name] for name in names} | {"bytes": mask.bit_count()})
            old = self.content.get(va, 0)
            if access == Access.STORE:
                self.content[va] = spread(mask, data) | spread(~mask, old)
            elif adds:
                self.content[va] = add_words(old, data, mask)
        plain = {name: getattr(value, "value", value) for name, value in ordered.items() if name != "access"}
        self.bus.request(va, access, **plain)
        if MANGLED:
            fields[MANGLED] = plain[MANGLED] ^ 1
        await self.driver.send(request(**fields))

    def returned(self, tag, data):
        """A read came back."""
        assert self.expected.pop(tag) == data, f"wrong data for {self.source_name}"
        self.free_ids.append(tag)


@cocotb.test()
async def memory_keeps_data_order_and_commits(dut):
    observe(watch_controller, dut, preset("paper"))
    dut.control.value = control(POLICY)
    dut.fault.value = FAULT
    dut.kernel_active.value = 1
    await start(dut)
    # Rows that differ from the first in one bit, or in all of them: the DRAM stub, which does not see them all, has
    # each column once. The memory behind the near-bank units has only the lowest rows.
    row_bits = 4 if ONLY_ADD else ROW_BITS
    rows = [random.getrandbits(row_bits)]
    rows += [rows[0] ^ 1 << bit for bit in random.sample(range(row_bits), 2)]
    rows.append(rows[0] ^ (1 << row_bits) - 1)
    places = [random.choice(rows) << 10 | column for column in random.sample(range(1 << 10), 60)]
    # The DRAM knows nothing of the address bits above its rows.
    pool = [random.getrandbits(HIGH_BITS) << 10 + ROW_BITS | place for place in places]
    bus = ColumnBus(dut, preset("paper"))
    unsettled = UnsettledWrites(dut, bus)
    compute = Stream(dut, "compute", pool[:20], Source.COMPUTE, bus)
    communication = Stream(dut, "communication", pool[20:40], Source.DMA, bus)
    spill = Stream(dut, "spill", pool[40:], Source.SPILL, bus)
    responses = StreamSink(dut, "compute_response", dut.clk, stalls(STALL))
    commits = StreamSink(dut, "commits", dut.clk, stalls(STALL))
    streams = (compute, communication, spill)
    of_source = {stream.source_name.value: stream for stream in streams}
    tasks = [
        cocotb.start_soon(compute.run(REQUESTS)),
        cocotb.start_soon(communication.run(REQUESTS)),
        cocotb.start_soon(spill.run(REQUESTS // 8)),
    ]
    idle_for = 0
    for _ in range(200 * REQUESTS + 20_000):
        await RisingEdge(dut.clk)
        await ReadOnly()
        bus.cycle()
        unsettled.cycle()
        assert commits.taken <= bus.writes, "an access was committed before it was ordered at its bank"
        returned = int(dut.returns.value)
        if returned & 1:
            layout = MESSAGES.read_return
            stream = of_source[payload.field(layout, returned, "source")]
            stream.returned(payload.field(layout, returned, "id"), payload.field(layout, returned, "data"))
        while responses.received:
            response = payload.unpack(MESSAGES.compute_response, responses.received.popleft())
            assert not response["error"]
            compute.returned(response["id"], response["data"])
        idle = payload.field(ControllerEvents, int(dut.events.value), "idle")
        idle_for = idle_for + 1 if idle and all(task.done() for task in tasks) else 0
        if idle_for > 20:
            break
    assert all(task.done() for task in tasks), "the controller stopped accepting requests"
    assert not int(dut.violation.value), f"timing rule {int(dut.rule.value)}"
    assert unsettled.low > 10
    for stream in streams:
        assert not stream.expected, f"{len(stream.expected)} reads of {stream.source_name} did not return"
    seen = [payload.unpack(MESSAGES.commit, item) for item in commits.received]
    expected = [item for stream in streams for item in stream.commits]
    assert len(seen) == len(expected)
    for va in pool:
        assert [item for item in seen if item["va"] == va] == [item for item in expected if item["va"] == va]


async def offer_read(dut, va):
    """Give an idle controller a communication read; returns after the cycle in which it is taken."""
    dut.communication__payload.value = request(access=Access.READ, source=Source.DMA, va=va)
    dut.communication__valid.value = 1
    await ReadOnly()
    assert int(dut.communication__ready.value)
    await RisingEdge(dut.clk)
    dut.communication__valid.value = 0


async def issue(dut):
    """Cycles until the next column command."""
    for cycle in range(2000):
        await ReadOnly()
        if int(dut.column.value) & 1:
            return cycle
        await RisingEdge(dut.clk)
    raise AssertionError("no column command")


@cocotb.test()
async def latency_of_an_idle_controller(dut):
    """A communication read to an open row is on the column bus 6 cycles after `communication.valid`."""
    dut.control.value = control(refresh=0)
    dut.kernel_active.value = 1
    dut.communication__valid.value = 0
    await start(dut)
    for _ in range(5):
        await RisingEdge(dut.clk)
    latencies = []
    for va in (0, 4, 5):
        await offer_read(dut, va)
        latencies.append(1 + await issue(dut))
        for _ in range(40):
            await RisingEdge(dut.clk)
    timing = preset("paper").timing
    assert latencies == [6 + timing.rcd_rd, 6, 6 + timing.rcd_rd], latencies


@cocotb.test()
async def rates_of_the_reference(dut):
    """Requests as fast as accepted, against an independent cycle-accurate simulator."""
    Clock(dut.clk, 1, unit="ns").start()
    count = 20_000
    problems = []
    read, store, update = Access.READ.value, Access.STORE.value, Access.UPDATE.value
    for name, access, at_random, refresh, least, most in (
        ("sequential reads", read, 0, 1, 1.05, 1.116034 * 1.02),
        ("sequential reads without refresh", read, 0, 0, 1.0, 1.000052 * 1.02),
        ("sequential writes", store, 0, 1, 1.05, 1.114267 * 1.02),
        ("sequential updates without refresh", update, 0, 0, 1.0, 1.02),
        ("random reads", read, 1, 1, 4.485933 * 0.95, 4.485933 * 1.02),
    ):
        dut.rst.value = 1
        dut.start.value = 0
        dut.requests.value = count
        dut.first.value = access
        dut.second.value = access
        dut.random.value = at_random
        dut.refresh.value = refresh
        await Timer(5, unit="ns")
        dut.rst.value = 0
        await Timer(5, unit="ns")
        dut.start.value = 1
        while not int(dut.done.value):
            await Timer(1000, unit="ns")
            assert int(dut.cycles.value) < 8 * count, name
        await Timer(50, unit="ns")
        rate = int(dut.cycles.value) / count
        dut._log.info(f"{name}: {rate:.4f} cycles per sector")
        for problem, found in (
            ("an access was committed before its column command", int(dut.early.value)),
            (f"timing rule {int(dut.rule.value)}", int(dut.violation.value)),
            (f"{rate:.4f} cycles per sector, expected {least:.4f} to {most:.4f}", not least <= rate <= most),
            ("not every request had its column command", int(dut.columns.value) != count),
            ("not every read returned", int(dut.reads.value) != (count if access == read else 0)),
            ("refreshes", abs(int(dut.refreshes.value) - (int(dut.cycles.value) // 3900 if refresh else 0)) > 1),
        ):
            if found:
                problems.append(f"{name}: {problem}")
    assert not problems, "; ".join(problems)


def run(component, name, testcase, environment=None, sources=(), plusargs=()):
    """Simulate one test; only the ports can be accessed, which halves the time of a build."""
    simulate(component, name, __name__, testcase, environment=environment, sources=sources, plusargs=plusargs)


def run_data(name, config, testcase="memory_keeps_data_order_and_commits", near_bank_units=False, **values):
    """Simulate a test of the memory bench on `config`."""
    environment = {f"CONTROLLER_{key.upper()}": str(value) for key, value in values.items()}
    sources = HBM_SOURCES if near_bank_units else [dram_stub.SOURCE]
    run(memory_bench(config, near_bank_units), f"memory_bench_{name}", testcase, environment, sources)


@pytest.mark.parametrize(("policy", "stall"), [("ROUND_ROBIN", 0), ("COMPUTE_FIRST", 40), ("MCA", 0), ("MCA", 70)])
def test_data_policies(policy, stall):
    run_data("paper", preset("paper"), policy=policy, stall=stall)


@pytest.mark.parametrize("stall", [0, 50])
def test_data_every_buffer_at_one_entry(stall):
    # The DMA engine's packets are no buffers of the controller, but set the width of its tags.
    config = preset("tiny", dma_packets=preset("paper").dma_packets)
    run_data("tiny", config, stall=stall, requests=100)


def test_data_other_timing_and_near_bank_units():
    config = preset("paper", timing=SLOW_DRAM, dram_queue_depth=16, commit_queue_depth=3)
    run_data("slow", config, near_bank_units=True, requests=200, only_add=1)


def test_wrong_data_is_caught():
    with caught("wrong data for"):
        run_data("paper", preset("paper"), fault=1)


class ForgetsWrites(Admission):
    """A wrong admission, which says that all is settled."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.unsettled.eq(0)
        return m


def test_a_forgotten_write_is_caught():
    with patch("hw.memory_controller.controller.Admission", ForgetsWrites), caught("is forgotten"):
        run(
            MemoryBench(preset("paper")),
            "memory_bench_forgets",
            "memory_keeps_data_order_and_commits",
            sources=[dram_stub.SOURCE],
        )


@pytest.mark.parametrize("field", ["epoch", "first_touch"])
def test_a_wrong_column_command_is_caught(field):
    with caught("sector 0x"):
        run_data("paper", preset("paper"), mangled=field)


@pytest.mark.wide
def test_a_controller_that_hurries_and_commits_early_is_caught():
    """Two faults in one build: either is found by a checker of its own."""
    paper = preset("paper")
    broken = replace(paper, timing=replace(paper.timing, rrd=3, faw=12))
    with caught() as failure:
        run(
            RateBench(paper, FaultyController(broken)),
            "rate_bench_broken",
            "rates_of_the_reference",
            sources=[MODELS / "seeded_bug.sv"],
            plusargs=["+seeded_bug=count_at_enqueue"],
        )
    assert "writes: an access was committed before its column command" in str(failure.value)
    assert "random reads: timing rule 11" in str(failure.value)


def test_latency():
    run_data("paper", preset("paper"), "latency_of_an_idle_controller")


def test_rates():
    run(RateBench(preset("paper")), "rate_bench", "rates_of_the_reference")
