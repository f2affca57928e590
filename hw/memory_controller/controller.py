"""Memory controller of one channel: admission, DRAM queue, bank machines, commits and data (T3 section 4.5).

An access is committed to the Tracker when its column command is on the bus, that is when it is ordered at its bank
(hw/DECISIONS.md 2).
"""

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..interfaces import DramBus
from ..messages import Access, ArbiterControl, ColumnCommand, Messages, RowCommand
from ..primitives.queue import Queue
from ..protection import MemoryReport, MemoryUpset
from .admission import Admission
from .bank_machine import BankMachines
from .dram_queue import DramQueue
from .events import ControllerEvents
from .parameters import ControllerParameters
from .payload_store import PayloadStore
from .read_return import ReadReturn
from .refresh import Refresher


def controller_ports(config: ControllerParameters) -> dict[str, wiring.Member]:
    """Members of the signature of :class:`MemoryController`."""
    messages = Messages(config)
    protected = {"upset": In(MemoryUpset), "report": Out(MemoryReport), "queues_wrong": Out(1)}
    return {
        "compute": In(stream.Signature(messages.memory_request)),
        "communication": In(stream.Signature(messages.memory_request)),
        "spill": In(stream.Signature(messages.memory_request)),
        "compute_response": Out(stream.Signature(messages.compute_response)),
        "returns": Out(messages.read_return),
        "commits": Out(stream.Signature(messages.commit)),
        **DramBus(config).members,
        "control": In(ArbiterControl),
        "kernel_active": In(1),
        "events": Out(ControllerEvents),
        **(protected if config.checks_sectors else {}),
    }


class MemoryController(wiring.Component):
    """Takes requests of three streams and drives one channel's DRAM buses.

    Ports: `compute`, `communication`: the streams between which the arbiter chooses; `spill`: traffic of the Tracker's
    overflow table, which goes first; `compute_response`: data of the reads whose source is COMPUTE; `returns`: data of
    the others (they reserved its room); `commits`: tracked stores and updates, in the order of their column commands,
    valid in the cycle of the command; `row`, `column`: command buses; `write_data`: WL cycles after the column command;
    `read_data`: CL cycles after it; `control`, `kernel_active`: of the arbiter; `events`.

    Requests to one sector of one stream keep their order. A request's place in bank and row: :class:`PayloadStore`.

    Latency: request to column command with an open row and nothing else waiting 6 cycles. Rate: one request and one
    column command a cycle. `ready` of each stream depends on registers only.

    With protection of memories a sector whose parity is wrong is not written and counts for no byte, and `report`
    tells, a cycle later; for that a commit is valid when its data is on the bus, WL cycles after its command. `upset`:
    see :class:`PayloadStore`. `queues_wrong`, a pulse: something of a request but its data was used with a wrong bit.
    """

    def __init__(self, config: ControllerParameters):
        self._config = config
        super().__init__(controller_ports(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        messages = Messages(config)
        m.submodules.admission = admission = Admission(config)
        m.submodules.payload_store = store = PayloadStore(config)
        m.submodules.dram_queue = queue = DramQueue(config)
        m.submodules.bank_machines = banks = BankMachines(config)
        m.submodules.commit_queue = commits = Queue(
            messages.commit, config.commit_queue_depth, bypass=True, checked=config.protects_memories
        )
        m.submodules.read_return = reads = ReadReturn(config)
        for name in ("compute", "communication", "spill"):
            connect(m, flipped(getattr(self, name)), getattr(admission, name))
        connect(m, commits.o, flipped(self.commits))
        connect(m, reads.response, flipped(self.compute_response))

        # A request is taken, kept, and enters the DRAM queue in the next cycle.
        m.d.comb += [
            admission.control.eq(self.control),
            admission.kernel_active.eq(self.kernel_active),
            admission.room.eq(store.room & ~queue.stuck),
            admission.commit_given.eq(self.commits.valid & self.commits.ready),
            admission.response_given.eq(self.compute_response.valid & self.compute_response.ready),
            store.take.eq(admission.take),
            store.request.eq(admission.request),
            store.settles.eq(admission.settles),
            queue.insert.eq(store.inserted),
            queue.insert_bank.eq(store.bank),
            queue.insert_row.eq(store.row),
            queue.insert_index.eq(store.index),
            banks.lookup_bank.eq(store.bank),
            queue.lookup_open.eq(banks.lookup_open),
            queue.lookup_row.eq(banks.lookup_row),
        ]

        # It leaves for its bank.
        m.d.comb += [
            store.to_bank_index.eq(queue.to_bank_index),
            banks.to_bank.eq(queue.to_bank),
            banks.slot.eq(store.slot),
            banks.row_request.eq(queue.row_request),
            queue.activated.eq(banks.activated),
            queue.released.eq(banks.released),
            store.select.eq(banks.select),
            store.select_index.eq(banks.select_index),
        ]
        self._refresh(m, queue, banks)

        # Its column command is on the bus: commit, data.
        issued, identity = banks.issue_slot, store.identity
        m.d.comb += [
            self.row.eq(banks.row),
            store.issued.eq(banks.issue.valid),
            store.issued_index.eq(issued.index),
            self.write_data.eq(store.write_data),
            reads.issued.eq(banks.issue.valid & (issued.access == Access.READ)),
            reads.source.eq(identity.source),
            reads.id.eq(identity.id),
            reads.read_data.eq(self.read_data),
            self.returns.eq(reads.returns),
        ]
        self._column(m, banks)
        committing: Value = Const(0, 0)
        tracked, settled, commit = (
            banks.issue.valid & identity.tracked,
            banks.issue.valid & identity.settles,
            identity.commit,
        )
        if config.checks_sectors:
            tracked, settled, commit, committing = self._check(m, store, banks)
            keepers = (admission, store, banks, reads)
            m.d.comb += self.queues_wrong.eq(Cat(commits.wrong, *(block.queues_wrong for block in keepers)).any())
        m.d.comb += [
            commits.i.valid.eq(tracked),
            commits.i.payload.eq(commit),
            admission.settled.eq(settled),
        ]

        occupancy = Signal(range(config.dram_queue_depth + 1))
        with m.If(admission.take & ~banks.issue.valid):
            m.d.sync += occupancy.eq(occupancy + 1)
        with m.If(~admission.take & banks.issue.valid):
            m.d.sync += occupancy.eq(occupancy - 1)
        busy = Cat(
            self.compute.valid,
            self.communication.valid,
            self.spill.valid,
            ~admission.empty,
            occupancy.any(),
            ~reads.empty,
            commits.level.any(),
            *committing,
        )
        events = self.events
        m.d.comb += [
            admission.occupancy.eq(occupancy),
            events.column.eq(banks.issue.valid),
            events.traffic_class.eq(issued.traffic_class),
            events.access.eq(issued.access),
            events.activate.eq(banks.activated.valid),
            events.refresh.eq(self.row.valid & (self.row.command == RowCommand.REF)),
            events.row_hit.eq(banks.issue.valid & banks.issue_hit),
            *(events[name].eq(admission.decision[name]) for name in admission.decision.shape().members),
            events.occupancy.eq(occupancy),
            events.unsettled.eq(admission.unsettled | (commits.level != 0)),
            events.idle.eq(~busy.any()),
        ]
        return m

    def _check(self, m: Module, store: PayloadStore, banks: BankMachines) -> tuple[Value, Value, data.View, Value]:
        """What a request settles when its data is on the bus: tracked, settles, its commit; and which cycles before
        that have one on its way. A poisoned write is reported, and its commit has no bytes."""
        identity, timing = store.identity, self._config.timing
        writes: list[Value] = [banks.issue.valid & (banks.issue_slot.access != Access.READ)]
        late = Signal(identity.shape())
        m.d.comb += late.eq(identity)
        for cycle in range(timing.wl):
            write = Signal(name=f"writes_{cycle}")
            following = Signal(identity.shape(), name=f"identity_{cycle}")
            m.d.sync += [write.eq(writes[-1]), following.eq(late)]
            writes.append(write)
            late = following
        commit = Signal(late.commit.shape())
        poisoned = Signal()
        m.d.comb += [poisoned.eq(writes[-1] & store.poisoned), store.upset.eq(self.upset), commit.eq(late.commit)]
        with m.If(poisoned):
            m.d.comb += commit.bytes.eq(0)
        m.d.sync += self.report.lost.eq(poisoned)
        return writes[-1] & late.tracked, writes[-1] & late.settles, commit, Cat(writes[1:])

    def _refresh(self, m: Module, queue: DramQueue, banks: BankMachines) -> None:
        """The refresher keeps requests out of the banks, closes these and refreshes them."""
        m.submodules.refresher = refresher = Refresher(self._config.timing)
        m.d.comb += [
            refresher.enable.eq(self.control.refresh if self._config.timing.refresh else 0),
            refresher.quiet.eq(queue.quiet & banks.quiet),
            refresher.precharged.eq(banks.precharged),
            queue.drain.eq(refresher.drain),
            queue.closed.eq(refresher.precharge_all),
            banks.hold_rows.eq(refresher.busy),
            banks.precharge_all.eq(refresher.precharge_all),
            banks.refresh.eq(refresher.refresh),
        ]

    def _column(self, m: Module, banks: BankMachines) -> None:
        """The column bus."""
        issued = banks.issue_slot
        m.d.comb += [
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
