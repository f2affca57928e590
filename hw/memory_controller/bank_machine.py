"""The 16 bank machines of a channel and the choice of one row and one column command per cycle.

State and timers of all banks are vectors over the banks. Times are command to command (JESD235 names in
:class:`hw.dram_timing.Timing`); what is decided goes through a register, so a decision is on the bus one cycle later
and distances are the same.
"""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import In, Out

from ..geometry import BANK_GROUPS, BANKS, BANKS_PER_GROUP, COLUMN_BITS, ROW_BITS
from ..messages import BANK_SHAPE, Access, AluOperation, DataType, Messages, RowCommand, TrafficClass
from ..primitives.lane_timers import LaneTimers
from ..primitives.lowest_bit import above, encode, rotating
from ..primitives.memory_watch import PART, MemoryWatch
from ..primitives.partial_parities import partial_parities
from .dram_queue import BankEvent, RowEvent
from .parameters import ControllerParameters

DIRECTION_BURST = 32
"""Column commands of one direction, after the first, behind which a waiting one of the other direction goes first."""


def slot_layout(config: ControllerParameters) -> data.StructLayout:
    """What a bank machine knows of the request at it; `index` is its place in the payload memories. With protection of
    memories `parity` makes the number of ones even, from the store of the controller to the column bus."""
    return data.StructLayout(
        {
            "index": unsigned(max(1, (config.dram_queue_depth - 1).bit_length())),
            "column": unsigned(COLUMN_BITS),
            "access": Access,
            "alu": AluOperation,
            "dtype": DataType,
            "first_touch": unsigned(1),
            "epoch": unsigned(config.epoch_bits),
            "traffic_class": TrafficClass,
            **({"parity": unsigned(1)} if config.protects_memories else {}),
        }
    )


class _Banks:
    """State of the banks: of each vector a bit per bank.

    `occupied`: a request is here, of index `indices` (a vector for each bit), a store or an update if `writing`, an
    update if `updating`; `is_open`: a row is open; `fresh`: it is, and no column command has used it; `wanted`: a row
    request waits here.
    """

    def __init__(self, index_bits: int):
        self.occupied = Signal(BANKS)
        self.writing = Signal(BANKS)
        self.updating = Signal(BANKS)
        self.indices = [Signal(BANKS, name=f"index_{bit}") for bit in range(index_bits)]
        self.is_open = Signal(BANKS)
        self.fresh = Signal(BANKS)
        self.wanted = Signal(BANKS)


class _Commands:
    """What is decided here in this cycle, and is on a bus in the next.

    A column command: `read_select` or `write_select`, in the latter case with `update_select` if it is an update;
    `read_banks`, `write_banks`: for which bank (one-hot), `column_banks`: either. A row command: `activate` or
    `precharge`; `activate_banks`, `precharge_banks`: for which bank. No bit of a vector is set without its command.
    """

    def __init__(self) -> None:
        self.read_select = Signal()
        self.write_select = Signal()
        self.update_select = Signal()
        self.read_banks = Signal(BANKS)
        self.write_banks = Signal(BANKS)
        self.column_banks = self.read_banks | self.write_banks
        self.activate = Signal()
        self.precharge = Signal()
        self.activate_banks = Signal(BANKS)
        self.precharge_banks = Signal(BANKS)


@dataclass(frozen=True)
class _Memories:
    """Ports of the memories of slots and of rows: a row is read to be opened, and looked up for the DRAM queue."""

    slot_read: ReadPort
    row_write: WritePort
    row_read: ReadPort
    row_lookup: ReadPort


@dataclass(frozen=True)
class _Busy:
    """Distances that still run, named as in :class:`hw.dram_timing.Timing` where they are one.

    Per bank: `rcd_read` to `wtp`, and `group`, CCD_L or CCDWL of its group. Of the channel: `ccd_short`,
    `read_to_write`, `write_to_read`, `rfc`, and `activates`, any that keeps an ACT waiting.
    """

    rcd_read: Value
    rcd_write: Value
    ras: Value
    rc: Value | int
    rp: Value
    rtp: Value
    wtp: Value
    group: Value
    ccd_short: Value
    read_to_write: Value
    write_to_read: Value
    activates: Value
    rfc: Value


@dataclass(frozen=True)
class _Columns:
    """Banks whose read, or write, may go in this cycle as far as their own distances and their group's are concerned.
    `direction`: the last command was a write; `burst`: so many followed in its direction while one of the other waited;
    `other_waits`: one does now."""

    reads: Signal
    writes: Signal
    direction: Signal
    burst: Signal
    other_waits: Value


@dataclass(frozen=True)
class _Rows:
    """The bank (one-hot) that would get an ACT, the one that would get a PRE, and who is preferred (`above`)."""

    to_activate: Signal
    to_precharge: Signal
    above: Signal


class BankMachines(wiring.Component):
    """One request slot, the open row and the timers of each bank.

    Ports: `to_bank` with `slot`: a request whose row is open arrives at a free bank; `row_request`: open this row;
    `lookup_bank`, `lookup_open`, `lookup_row`: state of a bank (0 cycles); `select` with `select_index`: the column
    command chosen in this cycle; `issue_*`: the column command on the bus (one cycle later), `issue_hit` when it was
    not the first since its row was opened; `row`: row bus; `activated`, `released`: what the buses did, for the DRAM
    queue; `hold_rows`, `precharge_all`, `refresh`: from the refresher; `quiet`: no request is here and every bank may
    be precharged; `precharged`: REF is allowed. After reset every bank is closed and no distance runs, as a DRAM is
    after its initialization. With protection of memories `queues_wrong`, a pulse: a request's slot or an open row was
    looked at, and had a wrong bit. Latency: `to_bank` to column bus 2 cycles; row request to row bus 2 cycles.
    """

    def __init__(self, config: ControllerParameters):
        self._config = config
        super().__init__(
            {
                "to_bank": In(BankEvent),
                "slot": In(slot_layout(config)),
                "row_request": In(RowEvent),
                "lookup_bank": In(BANK_SHAPE),
                "lookup_open": Out(1),
                "lookup_row": Out(ROW_BITS),
                "select": Out(1),
                "select_index": Out(max(1, (config.dram_queue_depth - 1).bit_length())),
                "issue": Out(BankEvent),
                "issue_slot": Out(slot_layout(config)),
                "issue_hit": Out(1),
                "row": Out(Messages(config).row_command),
                "activated": Out(RowEvent),
                "released": Out(BankEvent),
                "hold_rows": In(1),
                "precharge_all": In(1),
                "refresh": In(1),
                "quiet": Out(1),
                "precharged": Out(1),
                **({"queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks, commands = _Banks(len(self.select_index)), _Commands()
        memories = self._memories(m, banks)
        busy = self._timers(m, commands)
        columns = self._choose_direction(m, banks, busy, commands)
        self._choose_column(m, banks, columns, commands, memories.slot_read)
        rows = self._choose_row(m, banks, busy, commands, memories.row_read)
        if self._config.protects_memories:
            self._watch(m, memories, commands.activate)
        self._drive_row_bus(m, commands, rows, memories.row_read)
        self._update(m, banks, commands)
        return m

    def _memories(self, m: Module, banks: _Banks) -> _Memories:
        """Slots, of the requests that are here; rows, of what is open or will be opened next."""
        m.submodules.slots = slots = Memory(shape=slot_layout(self._config), depth=BANKS, init=[])
        m.submodules.rows = rows = Memory(shape=unsigned(ROW_BITS), depth=BANKS, init=[])
        slot_write = slots.write_port()
        slot_read = slots.read_port(domain="comb")
        row_write = rows.write_port()
        row_read = rows.read_port(domain="comb")
        row_lookup = rows.read_port(domain="comb")
        m.d.comb += [
            slot_write.addr.eq(self.to_bank.bank),
            slot_write.data.eq(self.slot),
            slot_write.en.eq(self.to_bank.valid),
            row_write.addr.eq(self.row_request.bank),
            row_write.data.eq(self.row_request.row),
            row_write.en.eq(self.row_request.valid),
            row_lookup.addr.eq(self.lookup_bank),
            self.lookup_row.eq(row_lookup.data),
            self.lookup_open.eq(banks.is_open.bit_select(self.lookup_bank, 1)),
        ]
        return _Memories(slot_read, row_write, row_read, row_lookup)

    def _timers(self, m: Module, commands: _Commands) -> _Busy:
        """A distance begins with the command that is decided."""
        timing = self._config.timing

        def timer(name: str, lanes: int, *starts: tuple[object, int]) -> Signal:
            component = LaneTimers(lanes, *(cycles for _, cycles in starts))
            m.submodules[name] = component
            for n, (start, _) in enumerate(starts):
                m.d.comb += getattr(component, f"start_{n}").eq(start)
            return component.busy

        reads, writes, update = commands.read_banks, commands.write_banks, commands.update_select
        activate, activates = commands.activate, commands.activate_banks
        groups = Signal(BANK_GROUPS)
        m.d.comb += groups.eq(Cat(Cat(commands.column_banks[group::BANK_GROUPS]).any() for group in range(BANK_GROUPS)))
        rcd_read = timer("rcd_read", BANKS, (activates, timing.rcd_rd))
        rcd_write = timer("rcd_write", BANKS, (activates, timing.rcd_wr))
        ras = timer("ras", BANKS, (activates, timing.ras))
        rc = timer("rc", BANKS, (activates, timing.rc)) if timing.rc > timing.ras + timing.rp else 0
        rp = timer("rp", BANKS, (commands.precharge_banks | self.precharge_all.replicate(BANKS), timing.rp))
        rtp = timer("rtp", BANKS, (reads, timing.rtp))
        wtp = timer("wtp", BANKS, (writes, timing.wtp))
        ccd_long = timer(
            "ccd_long",
            BANK_GROUPS,
            (groups & ~update.replicate(BANK_GROUPS), timing.ccd_l),
            (groups & update.replicate(BANK_GROUPS), timing.ccdwl),
        )
        ccd_short = timer("ccd_short", 1, (commands.read_select | commands.write_select, timing.ccd_s))
        read_to_write = timer("read_to_write", 1, (commands.read_select, timing.rtw))
        write_to_read = timer("write_to_read", 1, (commands.write_select, timing.wtr))
        rrd = timer("rrd", 1, (activate, timing.rrd))
        rfc = timer("rfc", 1, (self.refresh, timing.rfc))
        activates_busy = rrd | rfc
        if timing.faw > 4 * timing.rrd:
            turn = Signal(4, init=1)
            window = timer("faw", 4, (turn & activate.replicate(4), timing.faw))
            with m.If(activate):
                m.d.sync += turn.eq(turn.rotate_left(1))
            activates_busy = activates_busy | (window & turn).any()
        return _Busy(
            rcd_read=rcd_read,
            rcd_write=rcd_write,
            ras=ras,
            rc=rc,
            rp=rp,
            rtp=rtp,
            wtp=wtp,
            group=Cat(ccd_long for _ in range(BANKS_PER_GROUP)),
            ccd_short=ccd_short,
            read_to_write=read_to_write,
            write_to_read=write_to_read,
            activates=activates_busy,
            rfc=rfc,
        )

    def _choose_direction(self, m: Module, banks: _Banks, busy: _Busy, commands: _Commands) -> _Columns:
        """Reads or writes: stay in one direction while it has something, up to DIRECTION_BURST."""
        occupied, writing = banks.occupied, banks.writing
        reads = Signal(BANKS)
        writes = Signal(BANKS)
        read_ready = Signal()
        write_ready = Signal()
        direction = Signal()
        burst = Signal(range(DIRECTION_BURST + 1))
        other_waits = Mux(direction, occupied & ~writing, occupied & writing).any()
        turn_over = Signal()
        m.d.comb += [
            reads.eq(occupied & ~writing & ~busy.rcd_read & ~busy.group),
            writes.eq(occupied & writing & ~busy.rcd_write & ~busy.group),
            read_ready.eq(reads.any() & ~busy.write_to_read & ~busy.ccd_short),
            write_ready.eq(writes.any() & ~busy.read_to_write & ~busy.ccd_short),
            turn_over.eq((burst == DIRECTION_BURST) & other_waits),
        ]
        with m.If(direction):
            m.d.comb += [
                commands.write_select.eq(write_ready & ~turn_over),
                commands.read_select.eq(read_ready & (turn_over | ~write_ready)),
            ]
        with m.Else():
            m.d.comb += [
                commands.read_select.eq(read_ready & ~turn_over),
                commands.write_select.eq(write_ready & (turn_over | ~read_ready)),
            ]
        return _Columns(reads, writes, direction, burst, other_waits)

    def _choose_column(
        self, m: Module, banks: _Banks, columns: _Columns, commands: _Commands, slot_read: ReadPort
    ) -> None:
        """The bank of the column command, and in the next cycle the command on its bus.

        The bank is found for both directions while the direction is being decided, and with it the index: a vector over
        the banks for each of its bits. The rest of the slot is read when the command is on the bus; nothing is handed
        to the bank before that."""
        write_select = commands.write_select
        column_above = Signal(BANKS)

        def index_at(banks_chosen: Value) -> Value:
            return Cat((bits & banks_chosen).any() for bits in banks.indices)

        chosen = Signal(BANKS)
        chosen_read = Signal(BANKS)
        chosen_write = Signal(BANKS)
        m.d.comb += [
            chosen_read.eq(rotating(columns.reads, column_above)),
            chosen_write.eq(rotating(columns.writes, column_above)),
            chosen.eq(Mux(write_select, chosen_write, chosen_read)),
            commands.read_banks.eq(chosen_read & commands.read_select.replicate(BANKS)),
            commands.write_banks.eq(chosen_write & write_select.replicate(BANKS)),
            commands.update_select.eq(write_select & (chosen_write & banks.updating).any()),
            self.select.eq(commands.read_select | write_select),
            self.select_index.eq(Mux(write_select, index_at(chosen_write), index_at(chosen_read))),
            self.released.eq(self.issue),
            slot_read.addr.eq(self.issue.bank),
            self.issue_slot.eq(slot_read.data),
        ]
        m.d.sync += self.issue.valid.eq(self.select)
        with m.If(self.select):
            m.d.sync += [
                self.issue.bank.eq(Mux(write_select, encode(chosen_write), encode(chosen_read))),
                self.issue_hit.eq(~(chosen & banks.fresh).any()),
                column_above.eq(Mux(write_select, above(chosen_write), above(chosen_read))),
                columns.direction.eq(write_select),
            ]
            with m.If((columns.direction != write_select) | ~columns.other_waits):
                m.d.sync += columns.burst.eq(0)
            with m.Else():  # not at DIRECTION_BURST: then the other direction would have gone
                m.d.sync += columns.burst.eq(columns.burst + 1)

    def _choose_row(self, m: Module, banks: _Banks, busy: _Busy, commands: _Commands, row_read: ReadPort) -> _Rows:
        """The row command: ACT before PRE, so that the ACT-to-ACT distance is used up; a refresh before both."""
        activates = Signal(BANKS)
        precharges = Signal(BANKS)
        row_above = Signal(BANKS)
        to_activate = Signal(BANKS)
        to_precharge = Signal(BANKS)
        activate, precharge = commands.activate, commands.precharge
        m.d.comb += [
            activates.eq(banks.wanted & ~banks.is_open & ~busy.rp & ~busy.rc),
            precharges.eq(banks.wanted & banks.is_open & ~banks.occupied & ~busy.ras & ~busy.rtp & ~busy.wtp),
            activate.eq(activates.any() & ~busy.activates & ~self.hold_rows),
            precharge.eq(precharges.any() & ~activate & ~self.hold_rows),
            to_activate.eq(rotating(activates, row_above)),
            to_precharge.eq(rotating(precharges, row_above)),
            commands.activate_banks.eq(to_activate & activate.replicate(BANKS)),
            commands.precharge_banks.eq(to_precharge & precharge.replicate(BANKS)),
            row_read.addr.eq(encode(to_activate)),
            self.quiet.eq(~(banks.occupied.any() | (busy.ras | busy.rtp | busy.wtp).any() | busy.rfc)),
            self.precharged.eq(~(busy.rp | busy.rc).any() & ~busy.rfc),
            self.activated.valid.eq(self.row.valid & (self.row.command == RowCommand.ACT)),
            self.activated.bank.eq(self.row.bank),
            self.activated.row.eq(self.row.row),
        ]
        return _Rows(to_activate, to_precharge, row_above)

    def _watch(self, m: Module, memories: _Memories, activate: Signal) -> None:
        """Whether a slot or a row that is used has a wrong bit."""
        arriving = partial_parities(memories.slot_read.data.as_value(), PART)
        issued = Signal()
        parts = Signal(len(arriving))
        m.d.sync += [issued.eq(self.issue.valid), parts.eq(arriving)]
        # Which row is asked for, and which is opened, is known late: nothing is summed up in that cycle, and a row
        # that is opened is looked at a cycle after it was on the bus.
        opened = Signal(ROW_BITS)
        m.d.sync += opened.eq(self.row.row)
        m.submodules.row_watch = row_watch = MemoryWatch(ROW_BITS, BANKS, late=(0, 2), part=1)
        m.d.comb += [
            row_watch.written.eq(memories.row_write.en),
            row_watch.write_address.eq(memories.row_write.addr),
            row_watch.word.eq(memories.row_write.data),
            Cat(row_watch.used).eq(Cat(self.lookup_open, activate)),
            row_watch.address[0].eq(memories.row_lookup.addr),
            row_watch.address[1].eq(memories.row_read.addr),
            row_watch.read[0].eq(memories.row_lookup.data),
            row_watch.read[1].eq(opened),
            self.queues_wrong.eq((issued & parts.xor()) | row_watch.wrong),
        ]

    def _drive_row_bus(self, m: Module, commands: _Commands, rows: _Rows, row_read: ReadPort) -> None:
        """The row command in the next cycle; those of the refresher are for all banks."""
        activate, precharge = commands.activate, commands.precharge
        m.d.sync += self.row.valid.eq(activate | precharge | self.precharge_all | self.refresh)
        with m.If(self.precharge_all | self.refresh):
            m.d.sync += [
                self.row.command.eq(Mux(self.refresh, RowCommand.REF, RowCommand.PRE)),
                self.row.all.eq(1),
            ]
        with m.Elif(activate | precharge):
            m.d.sync += [
                self.row.command.eq(Mux(activate, RowCommand.ACT, RowCommand.PRE)),
                self.row.all.eq(0),
                self.row.bank.eq(Mux(activate, row_read.addr, encode(rows.to_precharge))),
                self.row.row.eq(row_read.data),
                rows.above.eq(Mux(activate, above(rows.to_activate), above(rows.to_precharge))),
            ]

    def _update(self, m: Module, banks: _Banks, commands: _Commands) -> None:
        """What commands, and what comes from the DRAM queue, change in the state of the banks."""
        every_bank = (1 << BANKS) - 1
        arriving = Mux(self.to_bank.valid, (1 << self.to_bank.bank)[:BANKS], 0)
        requested = Mux(self.row_request.valid, (1 << self.row_request.bank)[:BANKS], 0)
        column_banks, activate_banks = commands.column_banks, commands.activate_banks
        m.d.sync += [
            banks.occupied.eq((banks.occupied & ~column_banks) | arriving),
            banks.is_open.eq(
                (banks.is_open & ~commands.precharge_banks & ~self.precharge_all.replicate(BANKS)) | activate_banks
            ),
            banks.fresh.eq((banks.fresh & ~column_banks) | activate_banks),
            banks.wanted.eq(((banks.wanted & ~activate_banks) | requested) & ~self.precharge_all.replicate(BANKS)),
        ]
        writing, updating = banks.writing, banks.updating
        with m.If(self.to_bank.valid):
            m.d.sync += [
                *(
                    bits.eq(Mux(bit, bits | arriving, bits & ~arriving))
                    for bits, bit in zip(banks.indices, self.slot.index, strict=True)
                ),
                writing.eq(
                    Mux(self.slot.access == Access.READ, writing & ~arriving, (writing | arriving) & every_bank)
                ),
                updating.eq(
                    Mux(self.slot.access == Access.UPDATE, (updating | arriving) & every_bank, updating & ~arriving)
                ),
            ]
