"""The registers of a node behind an AXI4-Lite slave, generated from the description in `hw/registers/map.py`.

Source of the bus: AMBA AXI4-Lite (ARM IHI 0022), 32-bit data. Protection bits are accepted and ignored.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..counters import Counting
from ..interfaces import AxiLite
from ..messages import Messages
from ..range_table import ENTRY_WORDS, RangeWrite, Word
from .map import (
    ADDRESS_BITS,
    COUNTER_BITS,
    WINDOW_BASE,
    Field,
    Kind,
    Register,
    RegisterParameters,
    counters,
    register_map,
)

OKAY = 0
SLVERR = 2

KEPT_HERE = ("fault_record", "fault_va_low", "fault_va_high", "fault_count")
"""Read-only registers that the register file fills itself, from the `fault_record` port; they have no port."""


class RegisterFile(wiring.Component):
    """AXI4-Lite slave with every register of :func:`hw.registers.map.register_map`.

    Ports: `axi_*`, the bus (byte address of 16 bits, of which the lowest two are ignored); `interrupt_request`, level;
    `range_write`, the range-table programming bus; `fault_record`, the record that comes with `interrupt_status_fault`;
    `count_<counter>`, the increment or value of this cycle (a maximum or last-value counter ignores 0); for every field
    `<register>_<field>`, or `<register>` where it has only the one: an output for rw (level) and self-clearing (one cycle), an
    input for ro (level) and w1c (sets the bit while high). Constants and the fault registers have no port.

    Answers: SLVERR for an address with no register and for a write to a register with nothing to write; byte strobes
    are honoured everywhere. A 48-bit counter is read low half first, which latches its high half.

    Timing: an access takes two cycles once its address and data are in; a read waits for one write at most, and a write
    for one read. After reset the range table is cleared, also in every block on `range_write`: 32 cycles per range, in
    which no access is accepted.
    """

    def __init__(self, config: RegisterParameters):
        self._config = config
        self._registers = register_map(config)
        self._counters = counters()
        messages = Messages(config)
        members: dict[str, wiring.Member] = {
            **self.axi_members(),
            "interrupt_request": Out(1),
            "range_write": Out(RangeWrite),
            "fault_record": In(messages.fault_record),
        }
        for register in self._registers:
            for field in register.fields:
                if field.kind is Kind.READ_WRITE:
                    members[register.member(field)] = Out(
                        field.shape, init=field.values(field.reset) if field.values else field.reset
                    )
                elif field.kind is Kind.SELF_CLEARING:
                    members[register.member(field)] = Out(field.width)
                elif field.kind is Kind.RW1C:
                    members[register.member(field)] = In(field.width)
                elif field.kind is Kind.READ_ONLY and register.name not in KEPT_HERE:
                    members[register.member(field)] = In(field.shape)
        for counter in self._counters:
            if counter.width:
                members[f"count_{counter.name}"] = In(counter.width)
        super().__init__(members)
        self._record = Signal(messages.fault_record)
        self._fault_count = Signal(32)
        self._status = Signal(data.StructLayout({"fault": 1, "done": 1}))
        self._totals = {counter.name: Signal(COUNTER_BITS, name=f"total_{counter.name}") for counter in self._counters}
        self._high = Signal(COUNTER_BITS - 32)

    @staticmethod
    def axi_members() -> dict[str, wiring.Member]:
        """The AXI4-Lite slave's signals. One underscore in their names, as tools expect, where Amaranth writes two
        between an interface and its member."""
        return {f"axi_{name}": member for name, member in AxiLite(ADDRESS_BITS).members.items()}

    def _value(self, register: Register, field: Field) -> object:
        """What a read of `field` returns."""
        record = self._record
        here = {
            "fault": record.fault.as_value(),
            "link": record.link,
            "access": record.access.as_value(),
            "wf": record.wf,
            "wg": record.wg,
            "fault_va_low": record.va[:32],
            "fault_va_high": record.va[32:],
            "fault_count": self._fault_count,
        }
        if register.name in KEPT_HERE:
            return here[field.name]
        if field.kind is Kind.RW1C:
            return self._status[field.name]
        if field.kind is Kind.CONSTANT:
            return field.reset
        value = getattr(self, register.member(field))
        return value.as_value() if hasattr(value, "as_value") else value

    def _count(self, m: Module) -> None:
        """Counters; a clear has precedence over an event of the same cycle."""
        for counter in self._counters:
            total = self._totals[counter.name]
            if not counter.width:
                m.d.sync += total.eq(total + 1)
                continue
            value = getattr(self, f"count_{counter.name}")
            if counter.counting is Counting.SUM:
                with m.If(value != 0):
                    m.d.sync += total.eq(total + value)
            elif counter.counting is Counting.MAXIMUM:
                with m.If(value > total[: counter.width]):
                    m.d.sync += total.eq(value)
            else:
                with m.If(value != 0):
                    m.d.sync += total.eq(value)
        with m.If(self.control_clear_counters):
            for total in self._totals.values():
                m.d.sync += total.eq(0)

    def _keep_faults(self, m: Module, clear_fault: Signal, clear_done: Signal) -> None:
        """Interrupt causes; an event in the cycle of its clearing is not lost."""
        record = self._record
        status = self._status
        with m.If(clear_fault):
            m.d.sync += [status.fault.eq(0), self._fault_count.eq(0)]
        with m.If(clear_done):
            m.d.sync += status.done.eq(0)
        with m.If(self.interrupt_status_done):
            m.d.sync += status.done.eq(1)
        with m.If(self.interrupt_status_fault):
            m.d.sync += [status.fault.eq(1), self._fault_count.eq(Mux(clear_fault, 0, self._fault_count) + 1)]
            with m.If(~status.fault | clear_fault):
                m.d.sync += record.eq(self.fault_record)
        m.d.sync += self.interrupt_request.eq(
            (status.fault & self.interrupt_enable_fault) | (status.done & self.interrupt_enable_done)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._count(m)
        clear_fault = Signal()
        clear_done = Signal()
        self._keep_faults(m, clear_fault, clear_done)

        # Each channel of the bus has one holding register, so that its ready depends on nothing outside.
        write_address = Signal(ADDRESS_BITS)
        write_data = Signal(32)
        write_strobe = Signal(4)
        read_address = Signal(ADDRESS_BITS)
        address_held = Signal()
        data_held = Signal()
        read_held = Signal()
        sweeping = Signal(init=1)
        m.d.comb += [
            self.axi_awready.eq(~address_held & ~sweeping),
            self.axi_wready.eq(~data_held & ~sweeping),
            self.axi_arready.eq(~read_held & ~sweeping),
        ]
        with m.If(self.axi_awvalid & self.axi_awready):
            m.d.sync += [address_held.eq(1), write_address.eq(self.axi_awaddr)]
        with m.If(self.axi_wvalid & self.axi_wready):
            m.d.sync += [data_held.eq(1), write_data.eq(self.axi_wdata), write_strobe.eq(self.axi_wstrb)]
        with m.If(self.axi_arvalid & self.axi_arready):
            m.d.sync += [read_held.eq(1), read_address.eq(self.axi_araddr)]
        with m.If(self.axi_bready):
            m.d.sync += self.axi_bvalid.eq(0)
        with m.If(self.axi_rready):
            m.d.sync += self.axi_rvalid.eq(0)

        index_bits = self._config.range_bits + (ENTRY_WORDS - 1).bit_length()
        m.submodules.window = window = Memory(shape=32, depth=1 << index_bits, init=[])
        window_write = window.write_port()
        window_read = window.read_port()
        swept = Signal(index_bits)
        write_mask = Signal(32)
        merged = Signal(32)
        m.d.comb += [
            write_mask.eq(Cat(bit.replicate(8) for bit in write_strobe)),
            merged.eq((window_read.data & ~write_mask) | (write_data & write_mask)),
        ]

        def in_window(address: Signal) -> object:
            beyond = address[2 + index_bits :] != WINDOW_BASE >> (2 + index_bits)
            return ~beyond & (address[2:7] < len(Word))

        # Default of every cycle; a write below overrides.
        m.d.sync += self.range_write.valid.eq(0)
        for register in self._registers:
            for field in register.fields:
                if field.kind is Kind.SELF_CLEARING:
                    m.d.sync += getattr(self, register.member(field)).eq(0)

        with m.FSM(name="access"):
            with m.State("SWEEP"):
                m.d.comb += [window_write.addr.eq(swept), window_write.data.eq(0), window_write.en.eq(1)]
                m.d.sync += [
                    swept.eq(swept + 1),
                    self.range_write.valid.eq(1),
                    self.range_write.word.eq(swept[:5]),
                    self.range_write.index.eq(swept[5:]),
                    self.range_write.data.eq(0),
                ]
                with m.If(swept.all()):
                    m.d.sync += sweeping.eq(0)
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                can_write = Signal()
                can_read = Signal()
                m.d.comb += [
                    can_write.eq(address_held & data_held & ~self.axi_bvalid),
                    can_read.eq(read_held & ~self.axi_rvalid),
                    window_read.addr.eq(write_address[2:]),
                ]
                # The answer to the access before is still on the bus: the other kind comes first if it waits.
                with m.If(can_write):
                    m.next = "WRITE"
                with m.Elif(can_read):
                    m.d.comb += window_read.addr.eq(read_address[2:])
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.sync += [
                    address_held.eq(0),
                    data_held.eq(0),
                    self.axi_bvalid.eq(1),
                    self.axi_bresp.eq(OKAY),
                ]
                with m.If(in_window(write_address)):
                    m.d.comb += [
                        window_write.addr.eq(write_address[2:]),
                        window_write.data.eq(merged),
                        window_write.en.eq(1),
                    ]
                    m.d.sync += [
                        self.range_write.valid.eq(1),
                        self.range_write.word.eq(write_address[2:7]),
                        self.range_write.index.eq(write_address[7 : 2 + index_bits]),
                        self.range_write.data.eq(merged),
                    ]
                with m.Else():
                    self._write(m, write_address, write_data, write_mask, clear_fault, clear_done)
                m.next = "CHOOSE"
            with m.State("READ"):
                m.d.sync += [
                    read_held.eq(0),
                    self.axi_rvalid.eq(1),
                    self.axi_rresp.eq(OKAY),
                ]
                with m.If(in_window(read_address)):
                    m.d.sync += self.axi_rdata.eq(window_read.data)
                with m.Else():
                    self._read(m, read_address)
                m.next = "CHOOSE"
        return m

    def _write(
        self, m: Module, address: Signal, value: Signal, mask: Signal, clear_fault: Signal, clear_done: Signal
    ) -> None:
        """The writable registers outside the window."""
        cleared = {"fault": clear_fault, "done": clear_done}
        with m.Switch(address[2:]):
            for register in self._registers:
                if not register.writable or register.name == "range_table":
                    continue
                with m.Case(register.address // 4):
                    for field in register.fields:
                        bits = slice(field.low, field.low + field.width)
                        if field.kind is Kind.RW1C:
                            m.d.comb += cleared[field.name].eq(value[bits] & mask[bits])
                            continue
                        target = getattr(self, register.member(field))
                        target = target.as_value() if hasattr(target, "as_value") else target
                        if field.kind is Kind.SELF_CLEARING:
                            m.d.sync += target.eq(value[bits] & mask[bits])
                        elif field.kind is Kind.READ_WRITE:
                            m.d.sync += target.eq((target & ~mask[bits]) | (value[bits] & mask[bits]))
            with m.Default():
                m.d.sync += self.axi_bresp.eq(SLVERR)

    def _read(self, m: Module, address: Signal) -> None:
        """Every register outside the window."""
        with m.Switch(address[2:]):
            for register in self._registers:
                if register.name == "range_table" or register.counting is not None:
                    continue
                with m.Case(register.address // 4):
                    word = Signal(32, name=f"read_{register.name}")
                    for field in register.fields:
                        if field.kind is not Kind.SELF_CLEARING:
                            m.d.comb += word[field.low : field.low + field.width].eq(self._value(register, field))
                    m.d.sync += self.axi_rdata.eq(word)
            for register in self._registers:
                if register.counting is None:
                    continue
                with m.Case(register.address // 4):
                    name, half = register.name.rsplit("_", 1)
                    if half == "low":
                        total = self._totals[name]
                        m.d.sync += [self.axi_rdata.eq(total[:32]), self._high.eq(total[32:])]
                    else:
                        m.d.sync += self.axi_rdata.eq(self._high)
            with m.Default():
                m.d.sync += [self.axi_rdata.eq(0), self.axi_rresp.eq(SLVERR)]
