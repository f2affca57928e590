"""The registers of a node behind an AXI4-Lite slave, generated from the description in `hw/registers/map.py`.

Source of the bus: AMBA AXI4-Lite (ARM IHI 0022), 32-bit data. Protection bits are accepted and ignored.
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..counters import Counting
from ..interfaces import AxiLite
from ..messages import Access, Fault, Messages
from ..primitives.secded import wrong_bits
from ..protection import MemoryReport, MemoryUpset
from ..range_table import RangeWrite, Word, range_write
from ..send_table import send_write
from .counter_addresses import COUNTER_BITS, counters
from .fields import Field, Kind, Register
from .map import ADDRESS_BITS, WINDOW_BASE, RegisterParameters, register_map, windows
from .protected_words import CHECK_BITS, ProtectedWords, TablePlace
from .tables import CheckedTable, PlainTable, Table

OKAY = 0
SLVERR = 2

KEPT_HERE = ("fault_record", "fault_va_low", "fault_va_high", "fault_count")
"""Read-only registers that the register file fills itself, from the `fault_record` port; they have no port."""


@dataclass(frozen=True)
class _Held:
    """Accesses of which all or a part has come and that were not answered yet."""

    write_address: Signal
    write_data: Signal
    write_strobe: Signal
    read_address: Signal
    address_held: Signal
    data_held: Signal
    read_held: Signal


class RegisterFile(wiring.Component):
    """AXI4-Lite slave with every register of :func:`hw.registers.map.register_map`.

    Ports: `axi_*`, the bus (byte address of 16 bits, of which the lowest two are ignored); `interrupt_request`, level;
    `range_write`, `send_write`, the programming buses of the range table and the send table; `doorbell_entry`,
    after `doorbell_ring` all words of the range, one a cycle in their order; `fault_record`, the record that comes with
    `interrupt_status_fault`; `locked`: the tables and the registers that say so are not to be written;
    `count_<counter>`, the increment or value of this cycle (a maximum or last-value counter ignores 0); for every field
    `<register>_<field>`, or `<register>` where it has only the one: an output for rw (level) and self-clearing (one
    cycle), an input for ro (level) and rw1c (sets the bit while high). Constants and the fault registers have no port.
    With protection of memories `scrub`, `renew`, `upset`, and `memory_reports` per table: see
    :class:`hw.registers.protected_words.ProtectedWords`.

    Answers: SLVERR for an address with no register and for a write to a register with nothing to write, or to one that
    is `locked`, which leaves a fault LOCKED (one that meets another not yet recorded is dropped); byte strobes are
    honoured everywhere. A 48-bit counter is read low half first, which latches its high half.

    Timing: an access takes two cycles once its address and data are in; a read waits for one write at most, and a write
    for one read. After reset both tables are cleared, also in every block on their buses: 32 cycles per range, in
    which no access is accepted. The access after a ring of the doorbell waits for the words of the entry.
    """

    def __init__(self, config: RegisterParameters):
        self._config = config
        self._registers = register_map(config)
        self._counters = counters(config.links, config.protects_memories)
        messages = Messages(config)
        members: dict[str, wiring.Member] = {
            **self.axi_members(),
            "interrupt_request": Out(1),
            "range_write": Out(range_write(config)),
            "send_write": Out(send_write(config)),
            "doorbell_entry": Out(RangeWrite),
            "fault_record": In(messages.fault_record),
            "locked": In(1),
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
        if config.protects_memories:
            members |= {
                "scrub": In(1),
                "renew": In(1),
                "upset": In(MemoryUpset),
                "memory_reports": Out(MemoryReport).array(len(windows(config))),
            }
        super().__init__(members)
        self._record = Signal(messages.fault_record)
        self._fault_count = Signal(32)
        self._status = Signal(data.StructLayout({"fault": 1, "done": 1, "aborted": 1, "memory": 1, "link": 1}))
        self._totals = {counter.name: Signal(COUNTER_BITS, name=f"total_{counter.name}") for counter in self._counters}
        self._high = Signal(COUNTER_BITS - 32)
        self._refused = Signal()
        self._refused_address = Signal(ADDRESS_BITS)

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
        """Counters; a clear has precedence over an event of the same cycle. Events come late, so they are counted in
        the cycle after."""
        values = []
        for counter in self._counters:
            total = self._totals[counter.name]
            if not counter.width:
                m.d.sync += total.eq(total + 1)
                continue
            value = Signal(counter.width, name=f"value_{counter.name}")
            m.d.sync += value.eq(getattr(self, f"count_{counter.name}"))
            values.append(value)
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
            for register in (*values, *self._totals.values()):
                m.d.sync += register.eq(0)

    def _keep_faults(self, m: Module, clears: data.View) -> None:
        """Interrupt causes; an event in the cycle of its clearing is not lost."""
        record = self._record
        status = self._status
        with m.If(clears.fault):
            m.d.sync += [status.fault.eq(0), self._fault_count.eq(0)]
        for cause in ("done", "aborted", "memory", "link"):
            with m.If(clears[cause]):
                m.d.sync += status[cause].eq(0)
            with m.If(getattr(self, f"interrupt_status_{cause}")):
                m.d.sync += status[cause].eq(1)
        # A refused write of this block waits for a cycle in which no other fault comes.
        coming = Signal.like(record)
        m.d.comb += coming.eq(self.fault_record)
        with m.If(~self.interrupt_status_fault):
            m.d.comb += [
                coming.eq(0),
                coming.fault.eq(Fault.LOCKED),
                coming.access.eq(Access.STORE),
                coming.va.eq(self._refused_address),
            ]
            m.d.sync += self._refused.eq(0)
        with m.If(self.interrupt_status_fault | self._refused):
            m.d.sync += [status.fault.eq(1), self._fault_count.eq(Mux(clears.fault, 0, self._fault_count) + 1)]
            with m.If(~status.fault | clears.fault):
                m.d.sync += record.eq(coming)
        m.d.sync += self.interrupt_request.eq(
            (status.fault & self.interrupt_enable_fault)
            | (status.done & self.interrupt_enable_done)
            | (status.aborted & self.interrupt_enable_aborted)
            | (status.memory & self.interrupt_enable_memory)
            | (status.link & self.interrupt_enable_link)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._count(m)
        clears = Signal.like(self._status)
        self._keep_faults(m, clears)
        clearing = Signal(init=1)
        """The tables are being cleared: no access is taken."""
        held = self._hold_accesses(m, clearing)

        free = Signal()
        """The tables are not asked for anything."""
        answer = self.axi_rdata
        answer_found = Signal(CHECK_BITS)
        if self._config.protects_memories:
            # What is answered is corrected on its way out.
            answer = Signal(32)
            m.d.comb += self.axi_rdata.eq(answer ^ wrong_bits(answer_found, 32))
        tables = self._tables(m, free, held, answer_found)
        ranges = tables[0]
        clear_index = Signal(max(table.index_bits for table in tables))
        write_mask = Signal(32)
        m.d.comb += write_mask.eq(Cat(bit.replicate(8) for bit in held.write_strobe))

        # Default of every cycle; a write below overrides.
        for table in tables:
            table.rest(m)
        for register in self._registers:
            for field in register.fields:
                if field.kind is Kind.SELF_CLEARING:
                    m.d.sync += getattr(self, register.member(field)).eq(0)

        entry = Signal(RangeWrite)
        ranges.offer(m, entry, self.doorbell_entry)
        with m.FSM(name="access"):
            with m.State("CLEAR_WINDOWS"):
                m.d.sync += clear_index.eq(clear_index + 1)
                for table in tables:
                    table.clear(m, clear_index[: table.index_bits])
                with m.If(clear_index.all()):
                    m.d.sync += clearing.eq(0)
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                self._choose(m, held, tables, free)
            with m.State("ENTRY"):
                self._read_entry(m, ranges, entry)
            with m.State("WRITE"):
                self._answer_write(m, held, tables, write_mask, clears)
                m.next = "CHOOSE"
            with m.State("READ"):
                self._answer_read(m, held, tables, answer, answer_found)
                m.next = "CHOOSE"
        return m

    def _hold_accesses(self, m: Module, clearing: Signal) -> _Held:
        """One holding register for each channel of the bus, so that its ready depends on nothing outside."""
        write_address = Signal(ADDRESS_BITS)
        write_data = Signal(32)
        write_strobe = Signal(4)
        read_address = Signal(ADDRESS_BITS)
        address_held = Signal()
        data_held = Signal()
        read_held = Signal()
        m.d.comb += [
            self.axi_awready.eq(~address_held & ~clearing),
            self.axi_wready.eq(~data_held & ~clearing),
            self.axi_arready.eq(~read_held & ~clearing),
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
        return _Held(write_address, write_data, write_strobe, read_address, address_held, data_held, read_held)

    def _choose(self, m: Module, held: _Held, tables: list[Table], free: Signal) -> None:
        """What is done next. A read that comes next has its word of a table read in this cycle."""
        ranges = tables[0]
        can_write = Signal()
        can_read = Signal()
        m.d.comb += [
            can_write.eq(held.address_held & held.data_held & ~self.axi_bvalid),
            can_read.eq(held.read_held & ~self.axi_rvalid),
            *(table.address.eq(held.write_address[2:]) for table in tables),
        ]
        # The answer to the access before is still on the bus: the other kind comes first if it waits.
        with m.If(self.doorbell_ring):
            m.d.comb += ranges.address.eq(self.doorbell_range << ranges.entry_bits)
            m.next = "ENTRY"
        with m.Elif(can_write):
            m.next = "WRITE"
        with m.Elif(can_read):
            m.d.comb += [table.address.eq(held.read_address[2:]) for table in tables]
            m.next = "READ"
        with m.Else():
            m.d.comb += free.eq(1)

    def _read_entry(self, m: Module, ranges: Table, entry: data.View) -> None:
        """The words of the doorbell's range, one a cycle; each was asked for in the cycle before."""
        word = Signal(range(len(Word)))
        m.d.comb += [
            ranges.address.eq((self.doorbell_range << ranges.entry_bits) + word + 1),
            entry.valid.eq(1),
            entry.index.eq(self.doorbell_range),
            entry.word.eq(word),
        ]
        m.d.sync += word.eq(word + 1)
        with m.If(word == len(Word) - 1):
            m.d.sync += word.eq(0)
            m.next = "CHOOSE"

    def _answer_write(self, m: Module, held: _Held, tables: list[Table], mask: Signal, clears: data.View) -> None:
        """The write that is held goes to a table or a register, or is refused."""
        ranges, sends = tables
        address, value, strobe = held.write_address, held.write_data, held.write_strobe
        m.d.sync += [
            held.address_held.eq(0),
            held.data_held.eq(0),
            self.axi_bvalid.eq(1),
            self.axi_bresp.eq(OKAY),
        ]
        in_table = ranges.holds(address) | sends.holds(address)
        with m.If(self.locked & (in_table | self._locks(address))):
            m.d.sync += [
                self.axi_bresp.eq(SLVERR),
                self._refused.eq(1),
                self._refused_address.eq(address),
            ]
        with m.Elif(ranges.holds(address)):
            ranges.put(m, address[2 : 2 + ranges.index_bits], value, strobe)
        with m.Elif(sends.holds(address)):
            sends.put(m, address[2 : 2 + sends.index_bits], value, strobe)
        with m.Else():
            self._write(m, address, value, mask, clears)

    def _answer_read(self, m: Module, held: _Held, tables: list[Table], answer: Signal, answer_found: Signal) -> None:
        """The read that is held is answered out of a table or a register."""
        ranges, sends = tables
        address = held.read_address
        m.d.sync += [
            held.read_held.eq(0),
            self.axi_rvalid.eq(1),
            self.axi_rresp.eq(OKAY),
        ]
        with m.If(ranges.holds(address)):
            ranges.answer(m, answer)
        with m.Elif(sends.holds(address)):
            sends.answer(m, answer)
        with m.Else():
            if self._config.protects_memories:
                m.d.sync += answer_found.eq(0)
            self._read(m, address, answer)

    def _locks(self, address: Signal) -> Value:
        """Whether `address` is that of a register outside the windows which locks."""
        plain = (item for item in self._registers if item.locks and item.fields[0].kind is not Kind.WINDOW)
        return Cat(address[2:] == item.address // 4 for item in plain).any()

    def _tables(self, m: Module, free: Signal, held: _Held, answer_found: Signal) -> list[Table]:
        """The words of all windows, in memories, of which nobody asks anything in a cycle with `free`; what is written
        is `held`; `answer_found`: syndrome of what the bus is answered."""
        tables: list[Table] = []
        buses = (self.range_write, self.send_write)
        for number, (window, bus) in enumerate(zip(windows(self._config), buses, strict=True)):
            place = TablePlace(
                (window.base - WINDOW_BASE) // 4,
                window.entries,
                (window.entry_words - 1).bit_length(),
                len(window.words),
            )
            shape = (window.base, place.words, place.entry_bits, place.index_bits)
            if not self._config.protects_memories:
                memory = Memory(shape=32, depth=1 << place.index_bits, init=[])
                m.submodules[window.name] = memory
                write, read = memory.write_port(), memory.read_port()
                tables.append(PlainTable(*shape, read.addr, read.data, write, bus))
                continue
            m.submodules[window.name] = checked = ProtectedWords(bus.shape(), place)
            m.d.comb += [
                bus.eq(checked.bus),
                checked.place.eq(held.write_address[2:]),
                checked.value.eq(held.write_data),
                checked.strobe.eq(held.write_strobe),
                checked.free.eq(free),
                checked.scrub.eq(self.scrub),
                checked.renew.eq(self.renew),
                checked.upset.eq(self.upset),
                self.memory_reports[number].eq(checked.report),
            ]
            tables.append(CheckedTable(*shape, checked.address, checked.word, checked, answer_found))
        return tables

    def _write(self, m: Module, address: Signal, value: Signal, mask: Signal, clears: data.View) -> None:
        """The writable registers outside the window."""
        with m.Switch(address[2:]):
            for register in self._registers:
                if not register.writable or any(field.kind is Kind.WINDOW for field in register.fields):
                    continue
                with m.Case(register.address // 4):
                    for field in register.fields:
                        bits = slice(field.low, field.low + field.width)
                        if field.kind is Kind.RW1C:
                            m.d.comb += clears[field.name].eq(value[bits] & mask[bits])
                            continue
                        target = getattr(self, register.member(field))
                        target = target.as_value() if hasattr(target, "as_value") else target
                        if field.kind is Kind.SELF_CLEARING:
                            m.d.sync += target.eq(value[bits] & mask[bits])
                        elif field.kind is Kind.READ_WRITE:
                            m.d.sync += target.eq((target & ~mask[bits]) | (value[bits] & mask[bits]))
            with m.Default():
                m.d.sync += self.axi_bresp.eq(SLVERR)

    def _read(self, m: Module, address: Signal, answer: Signal) -> None:
        """Every register outside the window."""
        with m.Switch(address[2:]):
            for register in self._registers:
                if register.counting is not None or any(field.kind is Kind.WINDOW for field in register.fields):
                    continue
                with m.Case(register.address // 4):
                    word = Signal(32, name=f"read_{register.name}")
                    for field in register.fields:
                        if field.kind is not Kind.SELF_CLEARING:
                            m.d.comb += word[field.low : field.low + field.width].eq(self._value(register, field))
                    m.d.sync += answer.eq(word)
            for register in self._registers:
                if register.counting is None:
                    continue
                with m.Case(register.address // 4):
                    name, half = register.name.rsplit("_", 1)
                    if half == "low":
                        total = self._totals[name]
                        m.d.sync += [answer.eq(total[:32]), self._high.eq(total[32:])]
                    else:
                        m.d.sync += answer.eq(self._high)
            with m.Default():
                m.d.sync += [answer.eq(0), self.axi_rresp.eq(SLVERR)]
