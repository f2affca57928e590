"""A register file out of reset behind an AXI4-Lite bus master."""

import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from cocotbext.axi.axil_channels import AxiLiteAWTransaction, AxiLiteWTransaction

from hw.config import preset
from hw.protection import LINKS
from hw.registers.map import find_register, register_map
from hw.registers.register_file import RegisterFile
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_registers


class RegisterBench:
    """The register file `dut` of preset T3_PRESET, with protection T3_PROTECTION; inputs are 0 until a test drives
    them."""

    def __init__(self, dut):
        self.dut = dut
        protection = os.environ.get("T3_PROTECTION", LINKS)
        self.config = preset(os.environ.get("T3_PRESET", "paper"), protection=protection)
        self.registers = register_map(self.config)
        logging.getLogger("cocotb").setLevel(logging.WARNING)

    async def start(self):
        dut = self.dut
        Clock(dut.clk, 1, unit="ns").start()
        for name, member in RegisterFile(self.config).signature.members.items():
            if member.is_port and member.flow.name == "In" and not name.startswith("axi_"):
                getattr(dut, name).value = 0
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axi"), dut.clk, dut.rst)
        self.fill_unwritten_lanes()
        if self.config.protects_memories:
            # Words are looked at whenever nobody else reads them.
            dut.scrub.value = 1
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        observe(watch_registers, dut, self.config)
        return self

    def fill_unwritten_lanes(self):
        """Let the byte lanes without a strobe hold anything, as the standard allows; the bus master has zeros there."""
        channel = self.master.write_if.w_channel
        send = channel.send

        async def send_filled(beat):
            for lane in range(4):
                if not beat.wstrb >> lane & 1:
                    beat.wdata |= random.getrandbits(8) << 8 * lane
            await send(beat)

        channel.send = send_filled

    async def watch_protocol(self):
        """An answer once offered stays as it is until it is taken."""
        dut = self.dut
        offered: dict[str, tuple] = {}
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            for channel, payload in (("b", ("bresp",)), ("r", ("rresp", "rdata"))):
                valid = int(getattr(dut, f"axi_{channel}valid").value)
                now = tuple(int(getattr(dut, f"axi_{name}").value) for name in payload)
                if channel in offered:
                    assert valid and now == offered.pop(channel), f"answer on {channel} withdrawn or changed"
                if valid and not int(getattr(dut, f"axi_{channel}ready").value):
                    offered[channel] = now

    def stall(self, percent):
        cocotb.start_soon(self.watch_protocol())
        write, read = self.master.write_if, self.master.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(iter(lambda: random.random() * 100 < percent, None))

    def address(self, name):
        return find_register(self.config, name).address

    async def read(self, address, response=AxiResp.OKAY):
        """The word at `address`; reads come at any distance from each other."""
        if random.randrange(2):
            await RisingEdge(self.dut.clk)
        result = await self.master.read(address, 4)
        assert result.resp == response, f"read of {address:#x} answered {result.resp!r}"
        return int.from_bytes(result.data, "little")

    async def write(self, address, value, size=4, response=AxiResp.OKAY):
        result = await self.master.write(address, value.to_bytes(size, "little"))
        assert result.resp == response, f"write of {address:#x} answered {result.resp!r}"

    async def write_raw(self, address, data, strobe=0xF):
        """A write as it is on the bus, whichever byte of its word `address` names; returns the answer."""
        channels = self.master.write_if
        await channels.aw_channel.send(AxiLiteAWTransaction(awaddr=address))
        await channels.w_channel.send(AxiLiteWTransaction(wdata=data, wstrb=strobe))
        return (await channels.b_channel.recv()).bresp

    async def counter(self, name):
        low = await self.read(self.address(f"{name}_low"))
        return low | await self.read(self.address(f"{name}_high")) << 32
