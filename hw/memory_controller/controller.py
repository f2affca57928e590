"""Memory controller of one channel: queues, arbiter, DRAM queue, bank machines, commits and data (T3 section 4.5).

An access is committed to the Tracker when its column command is on the bus, that is when it is ordered at its bank
(hw/DECISIONS.md 2). Everything a request needs later is reserved when it enters the DRAM queue: room for its
commit and, for a read of the compute stream, room for its data. So nothing in the DRAM queue ever waits for anybody.

The arbiter decides in one cycle, and what it took enters the DRAM queue in the next: only two bits per request, kept
beside the queues, are looked at before the decision.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import ROW_BITS, Configuration
from ..events import ControllerEvents
from ..messages import Access, ArbiterControl, ColumnCommand, Messages, RowCommand, Source
from ..seeded_bug import seeded_bug
from .arbiter import Arbiter
from .bank_machine import BankMachines, slot_layout
from .dram_queue import DramQueue
from .queues import FreeList, Queue, memory_depth
from .refresh import Refresher


def count_ones(mask: Value) -> Value:
    """Population count of a 32-bit vector, by adding neighbouring fields."""
    pairs = Signal.like(mask)
    value: Value = mask
    for width, pattern in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        value = ((value & pattern) + ((value >> width) & pattern))[: len(pairs)]
    return value[:6]


Needs = data.StructLayout({"commit": unsigned(1), "response": unsigned(1)})
"""What a request reserves when it is taken: a place for its commit, a place for its data."""


class Room(wiring.Component):
    """Counts free places: `take` reserves one, `give` frees one, `available` is high while one is free."""

    take: In(1)
    give: In(1)
    available: Out(1)

    def __init__(self, places: int):
        self._places = places
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        free = Signal(range(self._places + 1), init=self._places)
        m.d.comb += self.available.eq(free != 0)
        with m.If(self.take & ~self.give):
            m.d.sync += free.eq(free - 1)
        with m.If(self.give & ~self.take):
            m.d.sync += free.eq(free + 1)
        return m


def controller_ports(config: Configuration) -> dict[str, wiring.Member]:
    """Members of the signature of :class:`MemoryController`."""
    messages = Messages(config)
    return {
        "compute": In(stream.Signature(messages.memory_request)),
        "communication": In(stream.Signature(messages.memory_request)),
        "spill": In(stream.Signature(messages.memory_request)),
        "compute_response": Out(stream.Signature(messages.compute_response)),
        "returns": Out(messages.read_return),
        "commits": Out(stream.Signature(messages.commit)),
        "row": Out(messages.row_command),
        "column": Out(messages.column_command),
        "write_data": Out(messages.write_data),
        "read_data": In(messages.read_data),
        "control": In(ArbiterControl),
        "kernel_active": In(1),
        "events": Out(ControllerEvents),
    }


class MemoryController(wiring.Component):
    """Takes requests of three streams and drives one channel's DRAM buses.

    Ports: `compute`, `communication`: the streams between which the arbiter chooses; `spill`: traffic of the Tracker's
    overflow table, which goes first; `compute_response`: data of the reads whose source is COMPUTE; `returns`: data of
    the others (they reserved its room); `commits`: tracked stores and updates, in the order of their column commands,
    valid in the cycle of the command; `row`, `column`: command buses; `write_data`: WL cycles after the column command;
    `read_data`: CL cycles after it; `control`, `kernel_active`: of the arbiter; `events`.

    The address of a request in its channel is its sector address without the channel bits; from the bottom: bank group
    (2), column (6), bank (2), row (15). Requests to one sector of one stream keep their order.

    Latency: request to column command with an open row and nothing else waiting 6 cycles. Rate: one request and one
    column command a cycle. `ready` of each stream depends on registers only (but for seeded bug `count_at_enqueue`).
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(controller_ports(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timing = config.timing
        messages = Messages(config)
        depth = config.dram_queue_depth
        hasty = seeded_bug(m, config, "count_at_enqueue")

        m.submodules.compute_queue = compute = Queue(messages.memory_request, config.compute_queue_depth, mark=Needs)
        m.submodules.communication_queue = communication = Queue(
            messages.memory_request, config.communication_queue_depth, mark=Needs
        )
        m.submodules.spill_queue = spill = Queue(messages.memory_request, min(2, config.spill_queue_depth))
        m.submodules.arbiter = arbiter = Arbiter()
        m.submodules.dram_queue = queue = DramQueue(config)
        m.submodules.free_list = free_list = FreeList(depth)
        m.submodules.bank_machines = banks = BankMachines(config)
        m.submodules.refresher = refresher = Refresher(timing)
        m.submodules.commit_queue = commit_queue = Queue(messages.commit, config.commit_queue_depth, bypass=True)
        m.submodules.commit_room = commit_room = Room(config.commit_queue_depth)
        m.submodules.response_queue = responses = Queue(messages.compute_response, config.response_depth)
        m.submodules.response_room = response_room = Room(config.response_depth)

        def needs(item: data.View) -> Value:
            reads = item.access == Access.READ
            commit = item.tracked & ~reads
            if hasty is not None:
                commit &= ~hasty
            return Cat(commit, reads & (item.source == Source.COMPUTE))

        # Requests enter their queues.
        accept_compute = Signal()
        accept_communication = Signal()
        m.d.comb += [
            accept_compute.eq(self.compute.valid & self.compute.ready),
            accept_communication.eq(self.communication.valid & self.communication.ready),
            compute.i.payload.eq(self.compute.payload),
            compute.i_mark.as_value().eq(needs(self.compute.payload)),
            compute.i.valid.eq(accept_compute),
            communication.i.payload.eq(self.communication.payload),
            communication.i_mark.as_value().eq(needs(self.communication.payload)),
            communication.i.valid.eq(accept_communication),
            spill.i.payload.eq(self.spill.payload),
            spill.i.valid.eq(self.spill.valid),
            self.spill.ready.eq(spill.i.ready),
        ]
        m.d.comb += [
            self.compute.ready.eq(compute.i.ready),
            self.communication.ready.eq(communication.i.ready),
        ]
        if hasty is not None:
            with m.If(hasty):
                m.d.comb += [
                    self.compute.ready.eq(compute.i.ready & commit_queue.i.ready),
                    self.communication.ready.eq(communication.i.ready & commit_queue.i.ready & ~accept_compute),
                ]

        # Writes that belong to an epoch, those of the neighbours all: the next one must find them at their banks.
        unsettled = Signal(range(config.compute_queue_depth + config.communication_queue_depth + depth + 1))
        settles = Signal()
        starts_compute = Signal()
        starts_communication = Signal()
        compute_item, communication_item = self.compute.payload, self.communication.payload
        m.d.comb += [
            starts_compute.eq(
                accept_compute
                & (compute_item.access != Access.READ)
                & (compute_item.tracked | compute_item.first_touch)
            ),
            starts_communication.eq(accept_communication & (communication_item.access != Access.READ)),
        ]
        m.d.sync += unsettled.eq(unsettled + starts_compute + starts_communication - settles)

        # One request a cycle is taken; its reservations are made at once.
        room = Signal()
        take_spill = Signal()
        take = Signal()
        request = Signal(messages.memory_request)
        reserved = Signal(Needs)

        def admissible(wanted: data.View) -> Value:
            return ~(wanted.commit & ~commit_room.available) & ~(wanted.response & ~response_room.available)

        m.d.comb += [
            room.eq(free_list.available & ~queue.stuck),
            take_spill.eq(room & spill.o.valid),
            arbiter.control.eq(self.control),
            arbiter.kernel_active.eq(self.kernel_active),
            arbiter.accepted.eq(accept_compute),
            arbiter.room.eq(room & ~spill.o.valid),
            arbiter.compute_waiting.eq(compute.o.valid),
            arbiter.compute_admissible.eq(compute.o.valid & admissible(compute.o_mark)),
            arbiter.communication_waiting.eq(communication.o.valid),
            arbiter.communication_admissible.eq(communication.o.valid & admissible(communication.o_mark)),
            spill.o.ready.eq(room),
            compute.o.ready.eq(arbiter.take_compute),
            communication.o.ready.eq(arbiter.take_communication),
            take.eq(take_spill | arbiter.take_compute | arbiter.take_communication),
            free_list.take.eq(take),
            response_room.take.eq(take & reserved.response),
            response_room.give.eq(self.compute_response.valid & self.compute_response.ready),
            commit_room.take.eq(take & reserved.commit),
            commit_room.give.eq(self.commits.valid & self.commits.ready),
        ]
        if hasty is not None:
            with m.If(hasty):
                m.d.comb += commit_room.give.eq(0)
        with m.If(spill.o.valid):
            m.d.comb += [request.eq(spill.o.payload), reserved.as_value().eq(needs(spill.o.payload))]
        with m.Elif(arbiter.take_communication):
            m.d.comb += [request.eq(communication.o.payload), reserved.eq(communication.o_mark)]
        with m.Else():
            m.d.comb += [request.eq(compute.o.payload), reserved.eq(compute.o_mark)]

        # In the next cycle it enters the DRAM queue. Its data needs no register: it is in its memory by then.
        insert = Signal()
        index = Signal.like(free_list.index)
        carried = {name: shape for name, shape in messages.memory_request.members.items() if name != "data"}
        entering = Signal(data.StructLayout(carried))
        entering_settles = Signal()
        m.d.sync += [
            insert.eq(take),
            entering_settles.eq(
                (request.access != Access.READ) & (arbiter.take_communication | request.tracked | request.first_touch)
            ),
        ]
        with m.If(take):
            m.d.sync += [index.eq(free_list.index), *(entering[name].eq(request[name]) for name in carried)]
        local = Cat(entering.va[:3], entering.va[3 + config.channel_bits :])
        m.d.comb += [
            queue.insert.eq(insert),
            queue.insert_bank.eq(Cat(local[0:2], local[8:10])),
            queue.insert_row.eq(local[10 : 10 + ROW_BITS]),
            queue.insert_index.eq(index),
            banks.lookup_bank.eq(queue.insert_bank),
            queue.lookup_open.eq(banks.lookup_open),
            queue.lookup_row.eq(banks.lookup_row),
        ]

        # Payload memories, by index.
        slot = slot_layout(config)
        identity = data.StructLayout(
            {
                "commit": messages.commit,
                "tracked": unsigned(1),
                "settles": unsigned(1),
                "source": Source,
                "id": messages.memory_id,
            }
        )
        m.submodules.slots = slots = Memory(shape=slot, depth=memory_depth(depth), init=[])
        m.submodules.identities = identities = Memory(shape=identity, depth=memory_depth(depth), init=[])
        m.submodules.write_data_memory = sectors = Memory(shape=messages.write_data, depth=memory_depth(depth), init=[])
        slot_write = slots.write_port()
        slot_read = slots.read_port(domain="comb")
        identity_write = identities.write_port()
        identity_read = identities.read_port()
        sector_write = sectors.write_port()
        sector_read = sectors.read_port()
        for port in (slot_write, identity_write):
            m.d.comb += [port.addr.eq(index), port.en.eq(insert)]
        m.d.comb += slot_write.data.index.eq(index)
        m.d.comb += slot_write.data.column.eq(local[2:8])
        for name in ("access", "alu", "dtype", "first_touch", "epoch", "phase"):
            m.d.comb += slot_write.data[name].eq(entering[name])
        for name in ("range", "wg", "wf", "epoch", "va"):
            m.d.comb += identity_write.data.commit[name].eq(entering[name])
        m.d.comb += [
            identity_write.data.commit.bytes.eq(count_ones(entering.mask)),
            identity_write.data.tracked.eq(entering.tracked & (entering.access != Access.READ)),
            identity_write.data.settles.eq(entering_settles),
            identity_write.data.source.eq(entering.source),
            identity_write.data.id.eq(entering.id),
            sector_write.addr.eq(free_list.index),
            sector_write.en.eq(take),
            sector_write.data.mask.eq(request.mask),
            sector_write.data.data.eq(request.data),
        ]

        # DRAM queue to bank machines, refresh.
        m.d.comb += [
            slot_read.addr.eq(queue.dispatch_index),
            banks.dispatch.eq(queue.dispatch),
            banks.slot.eq(slot_read.data),
            banks.row_request.eq(queue.row_request),
            queue.activated.eq(banks.activated),
            queue.released.eq(banks.released),
            queue.drain.eq(refresher.drain),
            queue.closed.eq(refresher.precharge_all),
            refresher.enable.eq(self.control.refresh if timing.refresh else 0),
            refresher.quiet.eq(queue.quiet & banks.quiet),
            refresher.precharged.eq(banks.precharged),
            banks.hold_rows.eq(refresher.busy),
            banks.precharge_all.eq(refresher.precharge_all),
            banks.refresh.eq(refresher.refresh),
            self.row.eq(banks.row),
        ]

        # Column bus, commits, write data.
        issued = banks.issue_slot
        identity_of_issue = identity_read.data
        m.d.comb += [
            identity_read.addr.eq(banks.select_index),
            identity_read.en.eq(banks.select),
            self.column.valid.eq(banks.issue.valid),
            self.column.bank.eq(banks.issue.bank),
            self.column.column.eq(issued.column),
            self.column.alu.eq(issued.alu),
            self.column.dtype.eq(issued.dtype),
            self.column.first_touch.eq(issued.first_touch & (issued.access == Access.UPDATE)),
            self.column.epoch.eq(issued.epoch),
        ]
        with m.Switch(issued.access):
            with m.Case(Access.READ):
                m.d.comb += self.column.command.eq(ColumnCommand.RD)
            with m.Case(Access.STORE):
                m.d.comb += self.column.command.eq(ColumnCommand.WR)
            with m.Default():
                m.d.comb += self.column.command.eq(ColumnCommand.UPDATE)

        m.d.comb += [
            settles.eq(banks.issue.valid & identity_of_issue.settles),
            commit_queue.i.valid.eq(banks.issue.valid & identity_of_issue.tracked),
            commit_queue.i.payload.eq(identity_of_issue.commit),
        ]
        if hasty is not None:
            accepted = Mux(accept_compute, self.compute.payload, self.communication.payload)
            accepted = data.View(messages.memory_request, accepted)
            tracked = accepted.tracked & (accepted.access != Access.READ)
            with m.If(hasty):
                m.d.comb += commit_queue.i.valid.eq((accept_compute | accept_communication) & tracked)
                for name in ("range", "wg", "wf", "epoch", "va"):
                    m.d.comb += commit_queue.i.payload[name].eq(accepted[name])
                m.d.comb += commit_queue.i.payload.bytes.eq(count_ones(accepted.mask))
        m.d.comb += [
            self.commits.payload.eq(commit_queue.o.payload),
            self.commits.valid.eq(commit_queue.o.valid),
            commit_queue.o.ready.eq(self.commits.ready),
        ]

        done = banks.issue.valid
        done_index = issued.index
        for stage in range(timing.wl - 1):
            late = Signal(name=f"write_valid_{stage}")
            late_index = Signal.like(done_index, name=f"write_index_{stage}")
            m.d.sync += [late.eq(done), late_index.eq(done_index)]
            done, done_index = late, late_index
        m.d.comb += [
            sector_read.addr.eq(done_index),
            sector_read.en.eq(done),
            self.write_data.eq(sector_read.data),
            free_list.give.eq(done),
            free_list.given.eq(done_index),
        ]

        # Read data finds its reader in the order of the commands.
        reader = data.StructLayout({"source": Source, "id": messages.memory_id})
        m.submodules.readers = readers = Queue(reader, timing.cl + 2)
        m.d.comb += [
            readers.i.valid.eq(banks.issue.valid & (issued.access == Access.READ)),
            readers.i.payload.source.eq(identity_of_issue.source),
            readers.i.payload.id.eq(identity_of_issue.id),
            readers.o.ready.eq(self.read_data.valid),
            responses.i.valid.eq(self.read_data.valid & (readers.o.payload.source == Source.COMPUTE)),
            responses.i.payload.id.eq(readers.o.payload.id),
            responses.i.payload.data.eq(self.read_data.data),
            self.returns.valid.eq(self.read_data.valid & (readers.o.payload.source != Source.COMPUTE)),
            self.returns.source.eq(readers.o.payload.source),
            self.returns.id.eq(readers.o.payload.id),
            self.returns.data.eq(self.read_data.data),
            self.compute_response.payload.eq(responses.o.payload),
            self.compute_response.valid.eq(responses.o.valid),
            responses.o.ready.eq(self.compute_response.ready),
        ]

        occupancy = Signal(range(depth + 1))
        with m.If(take & ~banks.issue.valid):
            m.d.sync += occupancy.eq(occupancy + 1)
        with m.If(~take & banks.issue.valid):
            m.d.sync += occupancy.eq(occupancy - 1)
        empty = Cat(
            self.compute.valid,
            self.communication.valid,
            self.spill.valid,
            compute.level.any(),
            communication.level.any(),
            spill.level.any(),
            occupancy.any(),
            readers.level.any(),
            responses.level.any(),
            commit_queue.level.any(),
        )
        m.d.comb += [
            arbiter.occupancy.eq(occupancy),
            self.events.column.eq(banks.issue.valid),
            self.events.phase.eq(issued.phase),
            self.events.access.eq(issued.access),
            self.events.activate.eq(banks.activated.valid),
            self.events.refresh.eq(self.row.valid & (self.row.command == RowCommand.REF)),
            self.events.row_hit.eq(banks.issue.valid & banks.issue_hit),
            self.events.held_compute.eq(arbiter.held_compute),
            self.events.held_communication.eq(arbiter.held_communication),
            self.events.passed_over.eq(arbiter.passed_over),
            self.events.took_communication.eq(arbiter.take_communication),
            self.events.forced.eq(arbiter.forced),
            self.events.occupancy.eq(occupancy),
            self.events.threshold.eq(arbiter.threshold),
            self.events.unsettled.eq((unsettled != 0) | (commit_queue.level != 0)),
            self.events.idle.eq(~empty.any()),
        ]
        return m
