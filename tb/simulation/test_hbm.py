"""The HBM model against a golden DRAM: random commands at the limits of the timing, first touch, dump and load."""

import os
import random
from collections import deque
from pathlib import Path

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import PRESETS, Configuration, ConfigurationError, Timing, preset
from hw.messages import AluOperation, ColumnCommand, DataType, Messages, RowCommand
from hw.near_bank import alu
from hw.near_bank.bank_group import check_timing
from sim.models import FOLDER as MODELS
from sim.models.hbm import Hbm, check_storage
from tb.drivers.column_commands import Command, random_commands
from tb.drivers.payload import pack
from tb.golden.sector_store import SectorStore, hashed_sector
from tb.runner import SimulationError, simulate

SOURCES = [MODELS / name for name in ("hbm_array.sv", "clock_gate.sv")]
SECTORS = 1 << 14
CONFIGURATIONS = {
    "paper": PRESETS["paper"],
}


def bank_of(address: int) -> int:
    """Bank number {bank in group, bank group} of a channel-local sector address."""
    return (address & 3) | (address >> 8 & 3) << 2


def pack_column(messages: Messages, command: Command) -> int:
    layout = messages.column_command
    fields = {
        "valid": 1,
        "command": ColumnCommand[command.kind],
        "bank": bank_of(command.address),
        "column": command.address >> 2 & 63,
        "alu": AluOperation[command.op.upper()],
        "dtype": DataType[command.dtype.upper()],
        "first_touch": int(command.first_touch),
        "epoch": command.epoch,
    }
    return pack(layout, **fields)


class Bench:
    """Drives one channel's buses by cycle; the golden store sees the commands in the order of issue."""

    def __init__(self, dut, config: Configuration):
        self.dut = dut
        self.timing = config.timing
        self.messages = Messages(config)
        self.store = SectorStore(hashed_sector)
        self.rows: dict[int, int] = {}

    async def start(self) -> None:
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        for port in (dut.row, dut.column, dut.write_data, dut.load, dut.dump, dut.id):
            port.value = 0
        dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)

    async def activate(self, address: int) -> None:
        """Open the row of a sector, unless it is open."""
        bank, row = bank_of(address), address >> 10
        if self.rows.get(bank) != row:
            fields = {"valid": 1, "command": RowCommand.ACT, "bank": bank, "row": row}
            self.dut.row.value = pack(self.messages.row_command, **fields)
            await RisingEdge(self.dut.clk)
            self.dut.row.value = 0
            self.rows[bank] = row

    def issue(self, command: Command) -> None:
        """Put the command on the column bus."""
        self.dut.column.value = pack_column(self.messages, command)

    def apply(self, command: Command) -> bytes | None:
        """The command's effect on the golden store; data of an RD."""
        if command.kind == "RD":
            return self.store.read(command.address)
        if command.kind == "WR":
            self.store.write(command.address, command.data, command.mask, command.epoch)
        else:
            self.store.update(
                command.address,
                command.data,
                command.mask,
                command.op,
                command.dtype,
                command.first_touch,
                command.epoch,
            )
        return None

    async def run(self, commands: list[Command]) -> None:
        """Issue `commands` at their cycles and check every read and that nothing else is returned."""
        waiting = deque(commands)
        writes: dict[int, Command] = {}
        reads: dict[int, tuple[Command, bytes]] = {}
        data_layout, column_layout = self.messages.write_data, self.messages.column_command
        for cycle in range(commands[-1].cycle + self.timing.cl + self.timing.wl + 10):
            # Between commands and between transfers a bus carries rubbish, as a real one does.
            self.dut.column.value = (
                random.getrandbits(column_layout.size) & ~column_layout.const({"valid": 1}).as_bits()
            )
            if waiting and waiting[0].cycle == cycle:
                command = waiting.popleft()
                self.issue(command)
                expected = self.apply(command)
                if expected is None:
                    writes[cycle + self.timing.wl] = command
                else:
                    reads[cycle + self.timing.cl] = command, expected
            word = (1 << len(data_layout.const({}).as_value())) - 1 - cycle
            if cycle in writes:
                command = writes.pop(cycle)
                word = command.mask | int.from_bytes(command.data, "little") << 32
            self.dut.write_data.value = word
            await ReadOnly()
            result = int(self.dut.read_data.value)
            assert (result & 1) == (cycle in reads), f"cycle {cycle}: read_data.valid is {result & 1}"
            if cycle in reads:
                command, expected = reads.pop(cycle)
                got = (result >> 1).to_bytes(32, "little")
                assert got == expected, f"{command}: read {got.hex()}, expected {expected.hex()}"
            await RisingEdge(self.dut.clk)


def chosen_configuration() -> Configuration:
    return CONFIGURATIONS[os.environ["T3_CONFIGURATION"]]


@cocotb.test()
async def random_traffic_matches_golden(dut):
    bench = Bench(dut, chosen_configuration())
    await bench.start()
    addresses = [0, 1, 4, 5, 6, 255, 257, 0x3FFF, 0x2345]
    for address in addresses:
        await bench.activate(address & 0x3FF)
    bench.rows.clear()
    addresses = [address & 0x3FF for address in addresses]
    await bench.run(list(random_commands(2500, bench.timing, addresses)))
    assert int(dut.stray.value) == 0


@cocotb.test()
async def rows_and_strays(dut):
    bench = Bench(dut, chosen_configuration())
    await bench.start()
    beyond = SECTORS + 77
    assert hashed_sector(5) != hashed_sector(6)
    for address in (0x3FFF, 0x23F0, beyond):
        await bench.activate(address)
        await bench.run([Command(0, "RD", address)])
    await bench.run([Command(0, "WR", beyond, bytes(range(32)))])
    bench.store.data.pop(beyond)
    await bench.run([Command(0, "RD", beyond)])
    assert int(dut.stray.value) == 1
    for address in (0x3FFF, 0x23F0):
        await bench.activate(address)
        await bench.run([Command(0, "WR", address, bytes([address & 255] * 32)), Command(8, "RD", address)])


@cocotb.test()
async def dump_and_load(dut):
    bench = Bench(dut, chosen_configuration())
    await bench.start()
    await bench.activate(9)
    await bench.run([Command(0, "WR", 9, bytes(range(32)))])
    dut.id.value = 3
    dut.dump.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    lines = [line for line in Path("array3.hex").read_text().split() if not line.startswith("//")]
    assert len(lines) == SECTORS
    assert bytes.fromhex(lines[9])[::-1] == bytes(range(32))
    assert bytes.fromhex(lines[10])[::-1] == hashed_sector(10)
    Path("array3.hex").write_text("\n".join(f"{n:064x}" for n in range(SECTORS)))
    dut.load.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    for address in (9, 200):
        await bench.activate(address)
        bench.store.data[address] = address.to_bytes(32, "little")
        await bench.run([Command(0, "RD", address)])


def run(configuration: str, testcase: str, gated_clocks: bool = True, plusargs: tuple[str, ...] = ()) -> None:
    simulate(
        Hbm(CONFIGURATIONS[configuration], SECTORS, gated_clocks),
        "hbm",
        __name__,
        testcase,
        environment={"T3_CONFIGURATION": configuration},
        sources=SOURCES,
        plusargs=plusargs,
    )


def test_random_traffic():
    run("paper", "random_traffic_matches_golden")


@pytest.mark.parametrize("latency", [alu.LATENCY - 1, pytest.param(alu.LATENCY + 1, marks=pytest.mark.wide)])
def test_results_reach_their_unit_in_time(monkeypatch, latency):
    """The units share an ALU: what says whose result it is must not be a cycle off."""
    monkeypatch.setattr("sim.models.hbm.LATENCY", latency)
    with pytest.raises(SimulationError):
        run("paper", "random_traffic_matches_golden")


def test_rows_and_strays():
    run("paper", "rows_and_strays")


def test_dump_and_load():
    run("paper", "dump_and_load", plusargs=("+hbm_dump=array", "+hbm_load=array"))


@pytest.mark.parametrize("sectors", [1, 1 << 13, 1 << 21, 20000])
def test_size_is_checked(sectors):
    with pytest.raises(ConfigurationError, match="storage_sectors"):
        check_storage(sectors)


@pytest.mark.parametrize("timing", [Timing(cl=3, rtw=15), Timing(rtw=12), Timing(ccd_l=1)])
def test_timing_is_checked(timing):
    with pytest.raises(ConfigurationError, match="timing"):
        check_timing(preset("paper", timing=timing))
