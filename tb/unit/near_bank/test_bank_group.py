"""One bank group's near-bank unit, with an array in Python, against the golden DRAM; other timings, seeded bugs."""

import os
import random
from dataclasses import replace
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import PRESETS, Timing, preset
from hw.near_bank.bank_group import GROUP_ADDRESS_BITS, ArrayRead, BankGroupUnit, array_write_layout
from hw.primitives.secded import check_width
from sim.models import FOLDER as MODELS
from sim.models.clock_gates import ClockGated
from sim.models.seeded_bugs import FaultyBankGroup
from tb.drivers.column_commands import Command, random_commands
from tb.drivers.payload import field
from tb.drivers.turned_memory import turned_memory
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_bank_group
from tb.golden.sector_store import SectorStore, hashed_sector
from tb.runner import caught, simulate
from tb.simulation.test_hbm import Bench

CONFIGURATIONS = {
    "paper": PRESETS["paper"],
    "late_data": preset("paper", timing=Timing(wl=5, cl=11, rtw=7, wtr=1, ccd_l=3), epoch_bits=4),
}
CONFIGURATIONS |= {
    name: replace(CONFIGURATIONS[other], protection="all")
    for name, other in {"protected": "paper", "protected_late": "late_data"}.items()
}


class UpsetAddresses(BankGroupUnit):
    """Of each address that waits for its read the bits `wrong` are turned, one place further in every cycle."""

    def __init__(self, config, wrong: int):
        super().__init__(config)
        self._wrong = wrong

    def elaborate(self, platform: object) -> Module:
        turned = Signal(GROUP_ADDRESS_BITS + check_width(GROUP_ADDRESS_BITS), init=self._wrong)
        with patch("hw.near_bank.bank_group.Memory", turned_memory(iter([turned]))):
            m = super().elaborate(platform)
        m.d.sync += turned.eq(turned.rotate_left(1))
        return m


Content = dict[int, tuple[int, int]]
"""Data and epoch tag by address in the bank group."""


async def write_first_array(dut, config, content: Content, reads: list[int]) -> None:
    """The banks' array: a read sees the write of its own cycle, its data comes a cycle later. Addresses read go to
    `reads`."""
    layout = array_write_layout(config)
    while True:
        await ReadOnly()
        write, read = int(dut.array_write.value), int(dut.array_read.value)
        if field(layout, write, "valid"):
            address = field(layout, write, "address")
            old, tag = content.get(address) or (int.from_bytes(hashed_sector(address), "little"), 0)
            mask = sum(0xFF << 8 * byte for byte in range(32) if field(layout, write, "mask") >> byte & 1)
            new = field(layout, write, "data") & mask | old & ~mask
            whole = field(layout, write, "mask") == 0xFFFFFFFF
            assert whole or not field(layout, write, "mark"), "a write of part of a sector marks it"
            content[address] = new, field(layout, write, "epoch") if field(layout, write, "mark") else tag
        await RisingEdge(dut.clk)
        if field(ArrayRead, read, "valid"):
            address = field(ArrayRead, read, "address")
            reads.append(address)
            data, tag = content.get(address) or (int.from_bytes(hashed_sector(address), "little"), 0)
            dut.array_data.value = data | tag << 256


class GroupBench(Bench):
    """Commands of one bank group, each with the row that is open for it."""

    def issue(self, command: Command) -> None:
        super().issue(command)
        self.dut.row.value = command.address >> 10


def scattered_addresses() -> list[int]:
    """Sectors of bank group 0: any one, that with every bit of the address inverted, and a neighbour of either."""
    places = [random.getrandbits(GROUP_ADDRESS_BITS)]
    places.append(places[0] ^ (1 << GROUP_ADDRESS_BITS) - 1)
    return [4 * place for place in (*places, *(place ^ 1 << random.randrange(GROUP_ADDRESS_BITS) for place in places))]


@cocotb.test()
async def random_traffic_matches_golden(dut):
    config = CONFIGURATIONS[os.environ["T3_CONFIGURATION"]]
    bench = GroupBench(dut, config)
    bench.store = SectorStore(lambda address: hashed_sector(address >> 2))
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    for port in (dut.row, dut.column, dut.write_data, dut.array_data):
        port.value = 0
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    content: Content = {}
    reads: list[int] = []
    needed: list[int] = []
    cocotb.start_soon(write_first_array(dut, config, content, reads))
    observe(watch_bank_group, dut, config)
    # A sector is touched first once an epoch, so there are many, with numbers that use every bit of the tag.
    numbers = range(1, 1 << config.epoch_bits)
    epochs = random.sample(numbers, min(30, len(numbers)))
    for _ in range(8):
        # In another order each time: what is left at the end is of other epochs.
        random.shuffle(epochs)
        commands = list(random_commands(320, config.timing, scattered_addresses(), epochs))
        await bench.run(commands)
        needed += [command.address >> 2 for command in commands if command.kind != "WR"]
    stored = {address << 2: (data.to_bytes(32, "little"), tag) for address, (data, tag) in content.items()}
    assert stored == {address: (data, bench.store.tags.get(address, 0)) for address, data in bench.store.data.items()}
    assert sorted(reads) == sorted(needed), "the array is read for an RD or an UPDATE only"


def run(unit: wiring.Component, configuration: str, bug: str = "") -> None:
    simulate(
        unit,
        "bank_group",
        __name__,
        environment={"T3_CONFIGURATION": configuration},
        sources=[MODELS / "clock_gate.sv", MODELS / "seeded_bug.sv"],
        plusargs=[f"+seeded_bug={bug}"],
    )


@pytest.mark.parametrize(("configuration", "gated_clocks"), [("paper", False), ("late_data", True)])
def test_random_traffic(configuration, gated_clocks):
    unit = BankGroupUnit(CONFIGURATIONS[configuration])
    run(ClockGated(unit) if gated_clocks else unit, configuration)


@pytest.mark.parametrize("configuration", ["protected", "protected_late"])
def test_a_wrong_bit_of_an_address_that_waits_is_put_right(configuration):
    run(UpsetAddresses(CONFIGURATIONS[configuration], 1), configuration)


def test_two_wrong_bits_of_an_address_are_seen():
    with caught("expected"):
        run(UpsetAddresses(CONFIGURATIONS["protected"], 3), "protected")


@pytest.mark.wide
def test_seeded_bugs_are_caught():
    """One build, which is right until it is told to have a bug."""
    unit = FaultyBankGroup(CONFIGURATIONS["paper"])
    run(unit, "paper")
    for bug in ("no_first_touch", "dropped_update"):
        with caught("expected"):
            run(unit, "paper", bug)
