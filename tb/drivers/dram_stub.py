"""A DRAM channel for tests of what stands before it: keeps data as :class:`sim.models.hbm.Hbm` does, and builds
fast."""

from pathlib import Path

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import AluOperation, ColumnCommand, DataType, Messages, RowCommand

SOURCE = Path(__file__).with_suffix(".sv")
"""The Verilog that simulating a :class:`DramStub` takes."""


class DramStub(wiring.Component):
    """Ports: `row`, `column`, `write_data`, `read_data`: the channel's buses, as of :class:`sim.models.hbm.Hbm`;
    `fault`: while high, byte masks are ignored (a broken DRAM, to show that a test notices).

    A column command goes to the row its bank was last activated with. WR and UPDATE take effect when their data comes,
    WL cycles after the command; the data of a RD is given CL cycles after it. Of the near-bank operations only INT32
    ADD is known: an UPDATE of another kind changes nothing. First touch is ignored. Only the low bits of a row address
    count. It keeps no timing of its own (:class:`sim.models.timing_checker.TimingChecker` must watch). CL must be at
    least 2.
    """

    def __init__(self, config: Configuration):
        self._timing = config.timing
        messages = Messages(config)
        super().__init__(
            {
                "row": In(messages.row_command),
                "column": In(messages.column_command),
                "write_data": In(messages.write_data),
                "read_data": Out(messages.read_data),
                "fault": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row, column = self.row, self.column
        known = (column.alu == AluOperation.ADD) & (column.dtype == DataType.INT32)
        m.submodules.store = Instance(
            "dram_stub",
            p_CL=self._timing.cl,
            p_WL=self._timing.wl,
            i_clk=ClockSignal("sync"),
            i_activate=row.valid & (row.command == RowCommand.ACT),
            i_activate_bank=row.bank,
            i_activate_row=row.row,
            i_read=column.valid & (column.command == ColumnCommand.RD),
            i_write=column.valid & (column.command == ColumnCommand.WR),
            i_add=column.valid & (column.command == ColumnCommand.UPDATE) & known,
            i_bank=column.bank,
            i_column=column.column,
            i_mask=self.write_data.mask,
            i_data=self.write_data.data,
            i_fault=self.fault,
            o_read_valid=self.read_data.valid,
            o_read_data=self.read_data.data,
        )
        return m
