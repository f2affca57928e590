"""A DRAM channel with first touch, for tests of whole nodes: builds in a fraction of the time of
:class:`sim.models.hbm.Hbm`."""

from pathlib import Path

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import ColumnCommand, Messages, RowCommand

SOURCE = Path(__file__).with_suffix(".sv")
"""The Verilog that simulating a :class:`TaggedDram` takes."""


class TaggedDram(wiring.Component):
    """Ports: `row`, `column`, `write_data`, `read_data`: the channel's buses, as of :class:`sim.models.hbm.Hbm`.

    Every UPDATE is an INT32 ADD; of a row's address the low 4 bits count. It keeps no timing of its own. Its content
    outlives a reset.
    """

    def __init__(self, config: Configuration):
        self._config = config
        messages = Messages(config)
        super().__init__(
            {
                "row": In(messages.row_command),
                "column": In(messages.column_command),
                "write_data": In(messages.write_data),
                "read_data": Out(messages.read_data),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row, column = self.row, self.column
        m.submodules.store = Instance(
            "tagged_dram",
            p_CL=self._config.timing.cl,
            p_WL=self._config.timing.wl,
            p_EPOCH_BITS=self._config.epoch_bits,
            i_clk=ClockSignal("sync"),
            i_activate=row.valid & (row.command == RowCommand.ACT),
            i_activate_bank=row.bank,
            i_activate_row=row.row,
            i_read=column.valid & (column.command == ColumnCommand.RD),
            i_write=column.valid & (column.command == ColumnCommand.WR),
            i_add=column.valid & (column.command == ColumnCommand.UPDATE),
            i_first_touch=column.first_touch,
            i_epoch=column.epoch,
            i_bank=column.bank,
            i_column=column.column,
            i_mask=self.write_data.mask,
            i_data=self.write_data.data,
            o_read_valid=self.read_data.valid,
            o_read_data=self.read_data.data,
        )
        return m
