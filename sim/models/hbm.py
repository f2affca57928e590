"""Model of one HBM2 channel: four bank groups with their near-bank units (the hardware) and a simulated array.

The units of a channel share one ALU here, each has its own in hardware: the column bus carries one command a cycle and
all units take an UPDATE's data equally long after it, so no two of them begin in the same cycle. It spares three
quarters of what is most of a channel's logic, for whoever builds and runs the model.

Keeps no timing of its own: the controller must (`sim/models/timing_checker.py` watches it). The array is the
SystemVerilog module `hbm_array` (`sim/models/hbm_array.sv`); clock gates are `clock_gate` (`sim/models/clock_gate.sv`).
"""

from collections.abc import Callable

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import BANK_GROUPS, BANKS, ROW_BITS, Configuration, ConfigurationError
from hw.messages import Messages, RowCommand
from hw.near_bank import LATENCY, Alu, NearBankParameters
from hw.near_bank.bank_group import GROUP_ADDRESS_BITS, BankGroupUnit, check_timing
from sim.models.clock_gates import ClockGated

SECTOR_ADDRESS_BITS = GROUP_ADDRESS_BITS + 2
"""Width of a channel-local sector address; from the bottom: 2 bits bank group, 6 column, 2 bank, 15 row."""
STRAY_BITS = 16
MOST_STORAGE = 1 << 20
"""Sectors that the model of a channel can keep, at the most: 32 MiB."""


def check_storage(storage_sectors: int) -> None:
    """Raise :class:`ConfigurationError` for a size the model cannot have."""
    if storage_sectors not in [1 << n for n in range(14, MOST_STORAGE.bit_length())]:
        raise ConfigurationError(
            f"storage_sectors must be a power of two from {1 << 14} to {MOST_STORAGE}, got {storage_sectors!r}"
        )


class Hbm(wiring.Component):
    """Ports: `row`, `column`, `write_data`, `read_data`: the channel's buses. Write data is taken WL cycles after its
    command, read data given CL cycles after; a column command goes to the row its bank was last activated with.

    `storage_sectors` (2**14 to 2**20) sectors are kept, from address 0; `stray` counts (saturating) the cycles with a
    write beyond them, reads beyond give a hash of the address (see `hbm_array.sv`), which is also the first content.
    Rising edges of `load` and `dump` move the array from and to "<prefix><id>.hex"; prefixes from the plusargs
    hbm_load, hbm_dump. `unit` makes the near-bank units, given the configuration and that they have no ALU of
    their own; with `gated_clocks` they are :class:`sim.models.clock_gates.ClockGated`.

    Raises :class:`ConfigurationError`: see :func:`check_storage`, :func:`hw.near_bank.bank_group.check_timing`.
    """

    def __init__(
        self,
        config: Configuration,
        storage_sectors: int = 1 << 14,
        gated_clocks: bool = True,
        unit: Callable[[NearBankParameters, bool], wiring.Component] = BankGroupUnit,
    ):
        check_storage(storage_sectors)
        check_timing(config)
        self._config = config
        self._storage_sectors = storage_sectors
        self._gated_clocks = gated_clocks
        self._unit = unit
        messages = Messages(config)
        super().__init__(
            {
                "row": In(messages.row_command),
                "column": In(messages.column_command),
                "write_data": In(messages.write_data),
                "read_data": Out(messages.read_data),
                "load": In(1),
                "dump": In(1),
                "id": In(32),
                "stray": Out(STRAY_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        index_bits = (self._storage_sectors - 1).bit_length()
        m.submodules.open_rows = open_rows = Memory(shape=ROW_BITS, depth=BANKS, init=[])
        activate, current = open_rows.write_port(), open_rows.read_port(domain="comb")
        m.d.comb += [
            activate.en.eq(self.row.valid & (self.row.command == RowCommand.ACT)),
            activate.addr.eq(self.row.bank),
            activate.data.eq(self.row.row),
            current.addr.eq(self.column.bank),
        ]

        ports: dict[str, object] = {}
        read_valid, read_address, stray = [], Const(0, SECTOR_ADDRESS_BITS), []
        read_data = Signal(256)
        read_epoch = Signal(self._config.epoch_bits)
        returned = []
        units = [self._unit(self._config, False) for _ in range(BANK_GROUPS)]
        self._share_alu(m, units)
        for group, unit in enumerate(units):
            m.submodules[f"unit_{group}"] = self._gated(unit)
            m.d.comb += [
                unit.column.eq(self.column),
                unit.column.valid.eq(self.column.valid & (self.column.bank[:2] == group)),
                unit.row.eq(current.data),
                unit.write_data.eq(self.write_data),
                unit.array_data.data.eq(read_data),
                unit.array_data.epoch.eq(read_epoch),
            ]
            number = Const(group, 2)
            # At most one unit reads in a cycle: one column command a cycle, and RTW between RDs and UPDATEs.
            read_valid.append(unit.array_read.valid)
            read_address = Mux(unit.array_read.valid, Cat(number, unit.array_read.address), read_address)
            returned.append(unit.read_data.valid)
            write = unit.array_write
            stray.append(write.valid & write.address[index_bits - 2 :].any())
            ports |= {
                f"i_write_valid_{group}": write.valid,
                f"i_write_address_{group}": Cat(number, write.address),
                f"i_write_mask_{group}": write.mask,
                f"i_write_data_{group}": write.data,
                f"i_write_mark_{group}": write.mark,
                f"i_write_epoch_{group}": write.epoch,
            }
        m.submodules.array = Instance(
            "hbm_array",
            p_SECTORS=self._storage_sectors,
            p_EPOCH_BITS=self._config.epoch_bits,
            i_clk=ClockSignal("sync"),
            i_read_valid=Cat(read_valid).any(),
            i_read_address=read_address,
            o_read_data=read_data,
            o_read_epoch=read_epoch,
            i_load=self.load,
            i_dump=self.dump,
            i_id=self.id,
            **ports,
        )
        m.d.comb += [self.read_data.valid.eq(Cat(returned).any()), self.read_data.data.eq(read_data)]
        with m.If(Cat(stray).any() & ~self.stray.all()):
            m.d.sync += self.stray.eq(self.stray + 1)
        return m

    def _gated(self, block: wiring.Component) -> wiring.Component | ClockGated:
        return ClockGated(block) if self._gated_clocks else block

    def _share_alu(self, m: Module, units: list[wiring.Component]) -> None:
        """One ALU for all `units`, and for each a pipeline beside it that tells which results are its own."""
        alu = Alu()
        m.submodules.alu = self._gated(alu)
        m.d.comb += [
            alu.valid.eq(Cat(unit.alu.valid for unit in units).any()),
            alu.arriving.eq(self.write_data.data),
        ]
        for group, unit in enumerate(units):
            begun = Signal(LATENCY, name=f"begun_{group}")
            m.d.sync += begun.eq(Cat(unit.alu.valid, begun))
            m.d.comb += [unit.alu.result_valid.eq(begun[-1]), unit.alu.result.eq(alu.result)]
            with m.If(unit.alu.valid):
                m.d.comb += [alu.operand.eq(unit.alu.operand), alu.old.eq(unit.alu.old)]
