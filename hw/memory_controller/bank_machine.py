"""The 16 bank machines of a channel and the choice of one row and one column command per cycle.

State and timers of all banks are vectors over the banks. Times are command to command (JESD235 names in
:class:`hw.dram_timing.Timing`); what is decided goes through a register, so a decision is on the bus one cycle later
and distances are the same.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
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
"""Column commands of one direction after which a waiting one of the other direction goes first."""


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
        timing = self._config.timing
        occupied = Signal(BANKS)
        writing = Signal(BANKS)
        updating = Signal(BANKS)
        is_open = Signal(BANKS)
        fresh = Signal(BANKS)
        """The row was opened and no column command has used it."""
        wanted = Signal(BANKS)
        """A row request waits here."""
        every_bank = (1 << BANKS) - 1

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
            self.lookup_open.eq(is_open.bit_select(self.lookup_bank, 1)),
        ]

        read_banks = Signal(BANKS)
        write_banks = Signal(BANKS)
        read_select = Signal()
        write_select = Signal()
        update_select = Signal()
        activate_banks = Signal(BANKS)
        precharge_banks = Signal(BANKS)
        activate = Signal()
        column_banks = read_banks | write_banks

        def timer(name: str, lanes: int, *starts: tuple[object, int]) -> Signal:
            component = LaneTimers(lanes, *(cycles for _, cycles in starts))
            m.submodules[name] = component
            for n, (start, _) in enumerate(starts):
                m.d.comb += getattr(component, f"start_{n}").eq(start)
            return component.busy

        def per_group(banks: Value) -> Value:
            return Cat(Cat(banks[group::BANK_GROUPS]).any() for group in range(BANK_GROUPS))

        groups = Signal(BANK_GROUPS)
        m.d.comb += groups.eq(per_group(column_banks))
        rcd_read = timer("rcd_read", BANKS, (activate_banks, timing.rcd_rd))
        rcd_write = timer("rcd_write", BANKS, (activate_banks, timing.rcd_wr))
        ras = timer("ras", BANKS, (activate_banks, timing.ras))
        rc = timer("rc", BANKS, (activate_banks, timing.rc)) if timing.rc > timing.ras + timing.rp else 0
        rp = timer("rp", BANKS, (precharge_banks | self.precharge_all.replicate(BANKS), timing.rp))
        rtp = timer("rtp", BANKS, (read_banks, timing.rtp))
        wtp = timer("wtp", BANKS, (write_banks, timing.wtp))
        ccd_long = timer(
            "ccd_long",
            BANK_GROUPS,
            (groups & ~update_select.replicate(BANK_GROUPS), timing.ccd_l),
            (groups & update_select.replicate(BANK_GROUPS), timing.ccdwl),
        )
        ccd_short = timer("ccd_short", 1, (read_select | write_select, timing.ccd_s))
        read_to_write = timer("read_to_write", 1, (read_select, timing.rtw))
        write_to_read = timer("write_to_read", 1, (write_select, timing.wtr))
        rrd = timer("rrd", 1, (activate, timing.rrd))
        rfc = timer("rfc", 1, (self.refresh, timing.rfc))
        activates_busy = rrd | rfc
        if timing.faw > 4 * timing.rrd:
            turn = Signal(4, init=1)
            window = timer("faw", 4, (turn & activate.replicate(4), timing.faw))
            with m.If(activate):
                m.d.sync += turn.eq(turn.rotate_left(1))
            activates_busy = activates_busy | (window & turn).any()

        # Column command: stay in one direction while it has something, up to DIRECTION_BURST.
        group_busy = Cat(ccd_long for _ in range(BANKS_PER_GROUP))
        reads = Signal(BANKS)
        writes = Signal(BANKS)
        read_ready = Signal()
        write_ready = Signal()
        direction = Signal()
        """1: the last column command was a write."""
        burst = Signal(range(DIRECTION_BURST + 1))
        column_above = Signal(BANKS)
        other_waits = Mux(direction, occupied & ~writing, occupied & writing).any()
        turn_over = Signal()
        m.d.comb += [
            reads.eq(occupied & ~writing & ~rcd_read & ~group_busy),
            writes.eq(occupied & writing & ~rcd_write & ~group_busy),
            read_ready.eq(reads.any() & ~write_to_read & ~ccd_short),
            write_ready.eq(writes.any() & ~read_to_write & ~ccd_short),
            turn_over.eq((burst == DIRECTION_BURST) & other_waits),
        ]
        with m.If(direction):
            m.d.comb += [
                write_select.eq(write_ready & ~turn_over),
                read_select.eq(read_ready & (turn_over | ~write_ready)),
            ]
        with m.Else():
            m.d.comb += [
                read_select.eq(read_ready & ~turn_over),
                write_select.eq(write_ready & (turn_over | ~read_ready)),
            ]
        # The bank is found for both directions while the direction is being decided, and with it the index: a vector
        # over the banks for each of its bits. The rest of the slot is read when the command is on the bus; nothing is
        # handed to the bank before that.
        indices = [Signal(BANKS, name=f"index_{bit}") for bit in range(len(self.select_index))]

        def index_at(banks: Value) -> Value:
            return Cat((bits & banks).any() for bits in indices)

        chosen = Signal(BANKS)
        chosen_read = Signal(BANKS)
        chosen_write = Signal(BANKS)
        m.d.comb += [
            chosen_read.eq(rotating(reads, column_above)),
            chosen_write.eq(rotating(writes, column_above)),
            chosen.eq(Mux(write_select, chosen_write, chosen_read)),
            read_banks.eq(chosen_read & read_select.replicate(BANKS)),
            write_banks.eq(chosen_write & write_select.replicate(BANKS)),
            update_select.eq(write_select & (chosen_write & updating).any()),
            self.select.eq(read_select | write_select),
            self.select_index.eq(Mux(write_select, index_at(chosen_write), index_at(chosen_read))),
            self.released.eq(self.issue),
            slot_read.addr.eq(self.issue.bank),
            self.issue_slot.eq(slot_read.data),
        ]
        m.d.sync += self.issue.valid.eq(self.select)
        with m.If(self.select):
            m.d.sync += [
                self.issue.bank.eq(Mux(write_select, encode(chosen_write), encode(chosen_read))),
                self.issue_hit.eq(~(chosen & fresh).any()),
                column_above.eq(
                    Mux(
                        write_select,
                        above(chosen_write),
                        above(chosen_read),
                    )
                ),
                direction.eq(write_select),
            ]
            with m.If((direction != write_select) | ~other_waits):
                m.d.sync += burst.eq(0)
            with m.Else():  # not at DIRECTION_BURST: then the other direction would have gone
                m.d.sync += burst.eq(burst + 1)

        # Row command: ACT before PRE, so that the ACT-to-ACT distance is used up; a refresh before both.
        activates = Signal(BANKS)
        precharges = Signal(BANKS)
        row_above = Signal(BANKS)
        to_activate = Signal(BANKS)
        to_precharge = Signal(BANKS)
        precharge = Signal()
        m.d.comb += [
            activates.eq(wanted & ~is_open & ~rp & ~rc),
            precharges.eq(wanted & is_open & ~occupied & ~ras & ~rtp & ~wtp),
            activate.eq(activates.any() & ~activates_busy & ~self.hold_rows),
            precharge.eq(precharges.any() & ~activate & ~self.hold_rows),
            to_activate.eq(rotating(activates, row_above)),
            to_precharge.eq(rotating(precharges, row_above)),
            activate_banks.eq(to_activate & activate.replicate(BANKS)),
            precharge_banks.eq(to_precharge & precharge.replicate(BANKS)),
            row_read.addr.eq(encode(to_activate)),
            self.quiet.eq(~(occupied.any() | (ras | rtp | wtp).any() | rfc)),
            self.precharged.eq(~(rp | rc).any() & ~rfc),
            self.activated.valid.eq(self.row.valid & (self.row.command == RowCommand.ACT)),
            self.activated.bank.eq(self.row.bank),
            self.activated.row.eq(self.row.row),
        ]
        if self._config.protects_memories:
            arriving = partial_parities(slot_read.data.as_value(), PART)
            issued = Signal()
            parts = Signal(len(arriving))
            m.d.sync += [issued.eq(self.issue.valid), parts.eq(arriving)]
            # Which row is asked for, and which is opened, is known late: nothing is summed up in that cycle, and a row
            # that is opened is looked at a cycle after it was on the bus.
            opened = Signal(ROW_BITS)
            m.d.sync += opened.eq(self.row.row)
            m.submodules.row_watch = row_watch = MemoryWatch(ROW_BITS, BANKS, late=(0, 2), part=1)
            m.d.comb += [
                row_watch.written.eq(row_write.en),
                row_watch.write_address.eq(row_write.addr),
                row_watch.word.eq(row_write.data),
                Cat(row_watch.used).eq(Cat(self.lookup_open, activate)),
                row_watch.address[0].eq(row_lookup.addr),
                row_watch.address[1].eq(row_read.addr),
                row_watch.read[0].eq(row_lookup.data),
                row_watch.read[1].eq(opened),
                self.queues_wrong.eq((issued & parts.xor()) | row_watch.wrong),
            ]
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
                self.row.bank.eq(Mux(activate, row_read.addr, encode(to_precharge))),
                self.row.row.eq(row_read.data),
                row_above.eq(Mux(activate, above(to_activate), above(to_precharge))),
            ]

        arriving = Mux(self.to_bank.valid, (1 << self.to_bank.bank)[:BANKS], 0)
        requested = Mux(self.row_request.valid, (1 << self.row_request.bank)[:BANKS], 0)
        m.d.sync += [
            occupied.eq((occupied & ~column_banks) | arriving),
            is_open.eq((is_open & ~precharge_banks & ~self.precharge_all.replicate(BANKS)) | activate_banks),
            fresh.eq((fresh & ~column_banks) | activate_banks),
            wanted.eq(((wanted & ~activate_banks) | requested) & ~self.precharge_all.replicate(BANKS)),
        ]
        with m.If(self.to_bank.valid):
            m.d.sync += [
                *(
                    bits.eq(Mux(bit, bits | arriving, bits & ~arriving))
                    for bits, bit in zip(indices, self.slot.index, strict=True)
                ),
                writing.eq(
                    Mux(self.slot.access == Access.READ, writing & ~arriving, (writing | arriving) & every_bank)
                ),
                updating.eq(
                    Mux(self.slot.access == Access.UPDATE, (updating | arriving) & every_bank, updating & ~arriving)
                ),
            ]
        return m
