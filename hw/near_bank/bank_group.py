"""The near-bank unit of one bank group: performs RD, WR and op-and-store UPDATE commands on the banks' array.

It sits in the HBM stack, between the column bus and the sense amplifiers of four banks (T3 section 4.3), and is
exported beside the node. With t the cycle of a command and d = t + WL the cycle of its write data:

==========  ======================================================================================================
RD          array read in cycle t + CL - 1, data on `read_data` in cycle t + CL
WR          array write (by byte mask) in cycle d + 1
UPDATE      array read in cycle d - 1, ALU from d to d + 4, array write in cycle d + 4
==========  ======================================================================================================

An UPDATE four cycles (CCDWL) behind another to the same sector takes its result from the ALU; any other order that the
timing allows is right because the array gives a read the data of a write in the same cycle.

First touch (hw/DECISIONS.md 8): each sector has a tag, the epoch that last filled it. An UPDATE with
`first_touch` whose epoch differs from the tag acts as a store, sets the elements outside its mask to the identity of
the operation, and leaves its epoch in the tag. A WR of the whole sector leaves its epoch too. A WR of part of it leaves
the tag alone, so that nothing is ever added to stale elements; the price is that a first touch later in the same epoch
replaces what the partial WR stored. A sector that is reduced in an epoch must therefore not be partly stored in it.
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..dram_timing import DramParameters
from ..geometry import COLUMN_BITS, ROW_BITS
from ..message_parameters import MessageParameters
from ..messages import AluOperation, ColumnCommand, DataType, Messages
from ..parameters import ConfigurationError
from ..primitives.secded import Corrector, check_bits, check_width
from ..protection import ProtectionParameters
from .alu import LATENCY, Alu, AluPort

GROUP_ADDRESS_BITS = ROW_BITS + 2 + COLUMN_BITS
"""Width of the address of a sector in its bank group: row, bank in the group, column (from the top)."""

ArrayRead = data.StructLayout({"valid": unsigned(1), "address": unsigned(GROUP_ADDRESS_BITS)})
"""Array read; its data is on `array_data` in the next cycle."""


@dataclass(frozen=True)
class NearBankParameters(DramParameters, MessageParameters, ProtectionParameters):
    """Of a near-bank unit: the timing its fixed schedule must fit, the width of an epoch, and whether the addresses of
    reads on their way have check bits."""


def array_data_layout(config: NearBankParameters) -> data.StructLayout:
    """A sector as the array keeps it: data and the epoch that filled it."""
    return data.StructLayout({"data": unsigned(256), "epoch": unsigned(config.epoch_bits)})


def array_write_layout(config: NearBankParameters) -> data.StructLayout:
    """Array write by byte mask; the tag is written when `mark` is set."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "address": unsigned(GROUP_ADDRESS_BITS),
            "mask": unsigned(32),
            "data": unsigned(256),
            "mark": unsigned(1),
            "epoch": unsigned(config.epoch_bits),
        }
    )


def check_timing(config: DramParameters) -> None:
    """Raise :class:`ConfigurationError` where the unit's fixed schedule does not fit the timing."""
    timing = config.timing
    if timing.cl < timing.wl + 2:
        raise ConfigurationError(f"timing.cl must be at least timing.wl + 2 = {timing.wl + 2}, got {timing.cl}")
    if timing.rtw <= timing.cl - timing.wl:
        raise ConfigurationError(
            f"timing.rtw must be greater than timing.cl - timing.wl = {timing.cl - timing.wl}, got {timing.rtw}"
        )
    if timing.ccd_l < 2:
        raise ConfigurationError(f"timing.ccd_l must be at least 2 (write, then read of the array), got {timing.ccd_l}")


class BankGroupUnit(wiring.Component):
    """Ports: `column`: command of this bank group (`valid` only for it; bits 1:0 of `bank` are not looked at), with the
    open `row` of its bank; `write_data`: the channel's, WL cycles later; `read_data`: CL cycles after an RD;
    `array_read`, `array_data`, `array_write`: the array, which must be write-first (a read sees a write of the same
    cycle). Reset does not reach the array: the epochs in it must be none that is used for a first touch before the
    sector is written.

    Accepts what the timing of `config` allows: after an UPDATE the next command no sooner than CCDWL, else CCD_L.
    Without `own_alu` it uses one behind the port `alu`, whose `result_valid` must be set for results of this unit only;
    a model may join to it all units that never begin an UPDATE in the same cycle.
    Raises :class:`ConfigurationError` (see :func:`check_timing`).
    """

    def __init__(self, config: NearBankParameters, own_alu: bool = True):
        check_timing(config)
        self._config = config
        self._own_alu = own_alu
        messages = Messages(config)
        super().__init__(
            ({} if own_alu else {"alu": Out(AluPort())})
            | {
                "column": In(messages.column_command),
                "row": In(ROW_BITS),
                "write_data": In(messages.write_data),
                "read_data": Out(messages.read_data),
                "array_read": Out(ArrayRead),
                "array_data": In(array_data_layout(config)),
                "array_write": Out(array_write_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, timing = self._config, self._config.timing
        column = self.column
        address = Signal(GROUP_ADDRESS_BITS)
        m.d.comb += address.eq(Cat(column.column, column.bank[2:], self.row))

        reads = Signal(timing.cl - 1)
        read = Signal()
        m.d.comb += read.eq(column.valid & (column.command == ColumnCommand.RD))
        m.d.sync += [reads.eq(Cat(read, reads)), self.read_data.valid.eq(reads[-1])]
        read_address = self._delay(m, read, address, reads)
        m.d.comb += self.read_data.data.eq(self.array_data.data)

        # WR and UPDATE: the command waits for its data. writes[n], updates[n]: one issued n + 1 cycles ago.
        command = data.StructLayout(
            {
                "address": unsigned(GROUP_ADDRESS_BITS),
                "alu": AluOperation,
                "dtype": DataType,
                "first_touch": unsigned(1),
                "epoch": unsigned(config.epoch_bits),
            }
        )
        updates = Signal(timing.wl)
        writes = Signal(timing.wl)
        m.d.sync += [
            updates.eq(Cat(column.valid & (column.command == ColumnCommand.UPDATE), updates)),
            writes.eq(Cat(column.valid & (column.command == ColumnCommand.WR), writes)),
        ]
        held = [Signal(command, name=f"command_{n}") for n in range(timing.wl)]
        with m.If(column.valid):
            m.d.sync += [
                held[0].address.eq(address),
                held[0].alu.eq(column.alu),
                held[0].dtype.eq(column.dtype),
                held[0].first_touch.eq(column.first_touch),
                held[0].epoch.eq(column.epoch),
            ]
        for n in range(1, timing.wl):
            with m.If(updates[n - 1] | writes[n - 1]):
                m.d.sync += held[n].eq(held[n - 1])
        fetched, current = held[-2], held[-1]
        update, write = updates[-1], writes[-1]

        m.d.comb += [
            self.array_read.valid.eq(updates[-2] | reads[-1]),
            self.array_read.address.eq(Mux(reads[-1], read_address, fetched.address)),
        ]

        if self._own_alu:
            m.submodules.alu = alu = Alu()
        else:
            alu = self.alu
        flight = data.StructLayout(
            {"address": unsigned(GROUP_ADDRESS_BITS), "mark": unsigned(1), "epoch": unsigned(config.epoch_bits)}
        )
        flights = [Signal(flight, name=f"flight_{n}") for n in range(LATENCY)]
        active = Signal(LATENCY - 1)
        finished = flights[-1]
        forward = Signal()
        tag = Signal(config.epoch_bits)
        first = Signal()
        m.d.comb += [
            forward.eq(alu.result_valid & (finished.address == current.address)),
            tag.eq(Mux(forward & finished.mark, finished.epoch, self.array_data.epoch)),
            first.eq(current.first_touch & (tag != current.epoch)),
            alu.valid.eq(update),
            alu.operand.operation.eq(current.alu),
            alu.operand.dtype.eq(current.dtype),
            alu.operand.first.eq(first),
            alu.operand.mask.eq(self.write_data.mask),
            alu.arriving.eq(self.write_data.data),
            alu.old.eq(Mux(forward, alu.result, self.array_data.data)),
        ]
        m.d.sync += active.eq(Cat(update, active))
        with m.If(update):
            m.d.sync += [
                flights[0].address.eq(current.address),
                flights[0].mark.eq(first),
                flights[0].epoch.eq(current.epoch),
            ]
        for n in range(1, LATENCY):
            with m.If(active[n - 1]):
                m.d.sync += flights[n].eq(flights[n - 1])

        store = Signal(array_write_layout(config))
        m.d.sync += store.valid.eq(write)
        with m.If(write):
            m.d.sync += [
                store.address.eq(current.address),
                store.mask.eq(self.write_data.mask),
                store.data.eq(self.write_data.data),
                store.mark.eq(self.write_data.mask.all()),
                store.epoch.eq(current.epoch),
            ]
        m.d.comb += self.array_write.eq(store)
        with m.If(alu.result_valid):
            m.d.comb += [
                self.array_write.valid.eq(1),
                self.array_write.address.eq(finished.address),
                self.array_write.mask.eq(0xFFFFFFFF),
                self.array_write.data.eq(alu.result),
                self.array_write.mark.eq(finished.mark),
                self.array_write.epoch.eq(finished.epoch),
            ]
        return m

    def _delay(self, m: Module, read: Signal, address: Signal, reads: Signal) -> Value:
        """The address of a read when it is its turn: it alone waits for the read latency. With protection of memories
        one wrong bit of it is corrected, in the last two of these cycles."""
        checked = self._config.protects_memories
        width = GROUP_ADDRESS_BITS + (check_width(GROUP_ADDRESS_BITS) if checked else 0)
        m.submodules.read_addresses = addresses = Memory(shape=width, depth=1 << len(reads).bit_length(), init=[])
        push, pop = addresses.write_port(), addresses.read_port(domain="comb")
        leaves = reads[-3] if checked else reads[-1]
        m.d.comb += [push.en.eq(read), push.data.eq(Cat(address, check_bits(address)) if checked else address)]
        with m.If(read):
            m.d.sync += push.addr.eq(push.addr + 1)
        with m.If(leaves):
            m.d.sync += pop.addr.eq(pop.addr + 1)
        if not checked:
            return pop.data
        left = Signal(width)
        corrected = Signal(GROUP_ADDRESS_BITS)
        m.submodules.corrector = corrector = Corrector(GROUP_ADDRESS_BITS)
        m.d.comb += Cat(corrector.word, corrector.check).eq(left)
        m.d.sync += [left.eq(pop.data), corrected.eq(corrector.corrected)]
        return corrected
