"""A sector whose parity is wrong is not written, counts for no byte, and is reported; every other one is written."""

import random
from collections import deque
from unittest.mock import patch

import cocotb
from amaranth import Signal
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import Configuration, preset
from hw.memory_controller.controller import MemoryController
from hw.memory_controller.payload_store import PayloadStore
from hw.messages import Access, AluOperation, ColumnCommand, DataType, Messages, Source
from hw.protection import MemoryUpset, ProtectedMemory
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSource, stalls
from tb.runner import caught, simulate

CONFIG: Configuration = preset("paper", protection="all", dram_queue_depth=16)
MESSAGES = Messages(CONFIG)
REQUESTS = 600
DATA_BITS, MASK_BITS = 256, 32


def odd(value: int) -> int:
    return value.bit_count() & 1


class Written:
    """What the controller is given, and what it makes of each write: commits are in the order of commands."""

    def __init__(self, dut):
        self.dut = dut
        self.given: dict[int, tuple[int, int, bool | None]] = {}
        """By its number its data, mask, and whether it is poisoned; None: a bit is turned later."""
        self.due: deque[bool] = deque([False] * (CONFIG.timing.wl + 1))
        self.reads: deque[int] = deque([0] * (CONFIG.timing.cl - 1))
        self.seen = self.poisoned = self.reported = self.returned = 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        dut = self.dut
        reported = False
        while True:
            await ReadOnly()
            assert unpack(MESSAGES.read_return, int(dut.returns.value))["valid"] == self.reads[0] >> DATA_BITS
            if self.reads[0]:
                read = unpack(MESSAGES.read_return, int(dut.returns.value))["data"]
                assert read == self.reads[0] & (1 << DATA_BITS) - 1 | odd(self.reads[0] ^ 1 << DATA_BITS) << DATA_BITS
                self.returned += 1
            column = unpack(MESSAGES.column_command, int(dut.column.value))
            writes = column["valid"] and column["command"] != ColumnCommand.RD.value
            self.due.append(bool(writes))
            self.due.popleft()
            assert int(dut.report.value) & 0b11 == reported << 1, "report.lost, and corrected never"
            self.reported += reported
            reported = False
            assert bool(int(dut.commits__valid.value)) == self.due[0]
            if self.due[0]:
                reported = self._written()
            reads = column["valid"] and not writes
            await RisingEdge(dut.clk)
            self.reads.append(1 << DATA_BITS | random.getrandbits(DATA_BITS) if reads else 0)
            self.reads.popleft()
            value = self.reads[0]
            dut.read_data.value = pack(MESSAGES.read_data, valid=value >> DATA_BITS, data=value & (1 << DATA_BITS) - 1)

    def _written(self) -> bool:
        """The write whose data is on the bus."""
        commit = unpack(MESSAGES.commit, int(self.dut.commits__payload.value))
        data, mask, poisoned = self.given.pop(commit["wg"])
        bus = unpack(MESSAGES.write_data, int(self.dut.write_data.value))
        if poisoned is None:
            # Of an upset sector one bit is turned.
            assert (bus["data"] ^ data).bit_count() <= 1
            poisoned = True
        else:
            assert bus["data"] == data
        assert bus["mask"] == (0 if poisoned else mask)
        assert commit["bytes"] == (0 if poisoned else mask.bit_count())
        self.seen += 1
        self.poisoned += poisoned
        return poisoned


@cocotb.test()
async def poisoned_sectors_are_not_written(dut):
    """Stores and updates, some of which come with a wrong parity or are hurt while they wait; reads between them."""
    Clock(dut.clk, 1, unit="ns").start()
    dut.rst.value = 1
    for name in ("compute__valid", "communication__valid", "spill__valid", "upset", "control", "kernel_active"):
        getattr(dut, name).value = 0
    dut.read_data.value = 0
    dut.commits__ready.value = 1
    dut.compute_response__ready.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    written = Written(dut)
    driver = StreamSource(dut, "communication", dut.clk, stalls(20))
    reads = 0
    for number in range(REQUESTS):
        access = random.choice([Access.READ, Access.STORE, Access.UPDATE, Access.UPDATE])
        mask = random.choice([(1 << MASK_BITS) - 1, random.getrandbits(MASK_BITS)])
        data = random.getrandbits(DATA_BITS)
        wrong = random.random() < 0.2
        parity = odd(data) ^ odd(mask) ^ wrong
        upset = access != Access.READ and not wrong and random.random() < 0.05
        if upset:
            # Nothing else is on its way to the store. The edge is awaited in any case: what was sent last was taken in
            # the phase in which signals are read only.
            await RisingEdge(dut.clk)
            while written.given:
                await RisingEdge(dut.clk)
            turns = {"memory": ProtectedMemory.SECTORS.value, "first": random.randrange(128)}
            dut.upset.value = pack(MemoryUpset, valid=1, **turns)
            await RisingEdge(dut.clk)
            dut.upset.value = pack(MemoryUpset, valid=0, **turns)
        if access == Access.READ:
            reads += 1
        else:
            written.given[number] = (data, mask, None if upset else wrong)
        await driver.send(
            pack(
                MESSAGES.memory_request,
                access=access.value,
                alu=AluOperation.ADD.value,
                dtype=DataType.INT32.value,
                tracked=access != Access.READ,
                source=Source.DMA.value,
                wg=number,
                va=random.randrange(64),
                mask=mask,
                data=data | parity << DATA_BITS,
            )
        )
    for _ in range(2000):
        await RisingEdge(dut.clk)
        if not written.given and written.returned == reads:
            break
    assert not written.given and written.returned == reads
    for _ in range(4):
        await RisingEdge(dut.clk)
    assert written.reported == written.poisoned > REQUESTS // 20
    dut._log.info(f"{written.seen} writes, {written.poisoned} poisoned, {reads} reads")


def run() -> None:
    simulate(MemoryController(CONFIG), "memory_controller", __name__, "poisoned_sectors_are_not_written")


def test_poisoned_sectors_are_not_written():
    run()


class Trusting(PayloadStore):
    """A wrong one: it tells of a poisoned sector, and writes it."""

    def _check(self, m, read):
        super()._check(m, read)
        mask = Signal(MASK_BITS)
        m.d.sync += mask.eq(read.mask)
        m.d.comb += self.write_data.mask.eq(mask)


def test_a_poisoned_sector_that_is_written_is_noticed():
    with patch("hw.memory_controller.controller.PayloadStore", Trusting), caught():
        run()
