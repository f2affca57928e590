"""One Tracker bank: a cache of counters behind a pipeline, and what goes into that, comes out of it and clears it.

The pipeline (:class:`hw.tracker.pipeline.Pipeline`) never stalls inside: a message enters only with room reserved for
the one MSHR and the one spill request it may need; room counters make that a matter of registers.

Overflow (hw/DECISIONS.md 4). A miss in a full set evicts a counter to the backing store; a miss in a set that has
spilled counters asks the backing store, gathering in an MSHR meanwhile, and the answer re-enters the pipeline as a
fill. The store keeps its record after a fetch. It is never counted twice: a key is asked for only when it is neither
resident, nor in a MSHR, nor complete (done mask); a key that was fetched is resident or being fetched until
it completes, and then its done bit answers, or it is evicted, and then its record is overwritten before the next fetch
because spill requests keep their order. Records of earlier epochs are told apart by the clear number (`clears`)
stored with the epoch.

Without tags (`tracker_tags`) every {wg, wf} below `tracker_sets` WGs has a place of its own and any other is refused
(hw/DECISIONS.md 36): no overflow, nothing to reserve. Source: T3 section 4.2.1, Fig 9.
"""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Access, Messages
from ..next_word_upset import NextWordUpset
from ..primitives.queue import Queue
from ..protection import TRACKER_MEMORIES, MemoryReport, MemoryUpset, ProtectedMemory
from ..range_table import range_write
from .count_stage import GENERATION_BITS, CountStage
from .mender import SetMender
from .mshr import MshrFile
from .parameters import TrackerParameters
from .pipeline import Pipeline
from .spilled_records import check_answer, with_check_bits
from .tile_geometry import bank_bits

FIRST_GENERATION = 0x5EED0001
"""Clear number after reset: no number that a memory is likely to hold by itself."""

BankEvents = data.StructLayout(
    {
        "access": unsigned(1),
        "hit": unsigned(1),
        "allocation": unsigned(1),
        "eviction": unsigned(1),
        "fetch": unsigned(1),
        "trigger": unsigned(1),
        "stall": unsigned(1),
        "live": unsigned(16),
    }
)
"""What one bank did: fields as in :data:`hw.tracker.events.TrackerEvents`."""


def bank_protection() -> dict[str, wiring.Member]:
    """Ports that a bank has with protection of memories: a report of each, and whether a range's word was wrong."""
    return {
        "scrub": In(1),
        "upset": In(MemoryUpset),
        "memory_reports": Out(MemoryReport).array(len(TRACKER_MEMORIES)),
        "tables_wrong": Out(1),
    }


@dataclass(frozen=True)
class _Entrance:
    """What lets an operation into the pipeline: places left for requests to the backing store (`spill_room`) and in the
    MSHRs (`mshr_room`); `running`: messages may come; `holds`: nothing may, while a set is mended."""

    spill_room: Value
    mshr_room: Value
    running: Signal
    holds: Signal


@dataclass(frozen=True)
class _Content:
    """How many counters are in the storage (`live`), and how many are `away` in the backing store."""

    live: Signal
    away: Signal


class TrackerBank(wiring.Component):
    """Bank number `bank`: every wg whose low bits equal it.

    Ports: `ranges`; `epoch`; `clear` (pulse): finish what is under way, then clear; `cleared`: accepting; `left_over`
    (pulse, with the start of the clear): counters or ready blocks of the old epoch were dropped. `messages`: counted
    accesses. `blocks`, `launches`: from the trigger table, 7 cycles after the message that completes the block.
    `completed` with `completed_range`: a WF tile was completed (6 cycles).
    `spill_requests`, `spill_response` (`tag` holds the bank above the buffer). `faults`: TILE, EPOCH, PAST_THRESHOLD;
    the access is refused and changes nothing; a fault that meets an untaken one is dropped. A fill past the threshold
    keeps the record's part. `events`: one cycle late. With protection of memories `scrub`, a pulse: look for errors in
    one more word of each memory; `upset`; `memory_reports`, of :data:`TRACKER_MEMORIES`. What
    the backing store answers then comes 3 cycles later.
    """

    def __init__(self, config: TrackerParameters, bank: int):
        self._config = config
        self._bank = bank
        messages = Messages(config)
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "epoch": In(config.epoch_bits),
                "clear": In(1),
                "cleared": Out(1),
                "left_over": Out(1),
                "messages": In(stream.Signature(messages.commit)),
                "blocks": Out(stream.Signature(messages.ready_block)),
                "launches": Out(stream.Signature(messages.launch_event)),
                "completed": Out(1),
                "completed_range": Out(config.range_bits),
                "spill_requests": Out(stream.Signature(messages.spill_request)),
                "spill_response": In(messages.spill_response),
                "faults": Out(stream.Signature(messages.fault_record)),
                "events": Out(BankEvents),
                **(bank_protection() if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        pipeline = Pipeline(m, config, self._bank)
        wiring.connect(m, pipeline.triggers.blocks, wiring.flipped(self.blocks))
        wiring.connect(m, pipeline.triggers.launches, wiring.flipped(self.launches))
        entrance = self._entrance()
        accepts, accepts_message = self._accept(m, pipeline, entrance)
        pipeline.advance(m, accepts)
        pipeline.look_up(m, self.ranges)
        pipeline.select_way(m, self.epoch)
        pipeline.count_access(m, self.epoch)
        self._tell(m, pipeline)

        # It moves with `begin_clear` and not with `clear`: what is finished in between belongs to the old epoch.
        clears = Signal(GENERATION_BITS, init=FIRST_GENERATION)
        if config.tracker_tags:
            spilled = self._connect_backing_store(m, pipeline.count, pipeline.buffers, clears)
            # Room: taken with an operation, given back when it turns out not to be needed or when it is free again.
            spill_room, mshr_room, ends = entrance.spill_room, entrance.mshr_room, pipeline.stage_valid[5]
            m.d.sync += [
                spill_room.eq(spill_room - accepts + (ends & ~pipeline.count.spill) + spilled),
                mshr_room.eq(mshr_room - accepts_message + (ends & ~pipeline.count.fetch)),
            ]
        mending = Signal()
        if config.protects_memories:
            self._protect(m, pipeline, entrance, mending)
        busy = Signal()
        m.d.comb += busy.eq(pipeline.stage_valid[1:].any() | pipeline.again | mending | pipeline.buffers.busy)
        content = self._measure(m, pipeline, accepts_message)
        self._clear(m, pipeline, entrance.running, busy, content, clears)
        return m

    def _entrance(self) -> _Entrance:
        """With all places left; without tags nothing needs one."""
        config = self._config
        running = Signal()
        holds = Signal()
        if not config.tracker_tags:
            return _Entrance(Const(1), Const(1), running, holds)
        spill_room = Signal(range(config.spill_queue_depth + 1), init=config.spill_queue_depth)
        mshr_room = Signal(range(config.tracker_mshrs + 1), init=config.tracker_mshrs)
        return _Entrance(spill_room, mshr_room, running, holds)

    def _accept(self, m: Module, pipeline: Pipeline, entrance: _Entrance) -> tuple[Signal, Signal]:
        """Stage 0: a fill goes before a message; both need a place for the spill request they may make. Returns whether
        one enters, and whether it is a message."""
        buffers, again, incoming = pipeline.buffers, pipeline.again, pipeline.operations[0]
        accept = Signal()
        accept_fill = Signal()
        accept_message = Signal()
        message = self.messages.payload
        m.d.comb += [
            buffers.fills.ready.eq((entrance.spill_room != 0) & ~again & ~entrance.holds),
            self.messages.ready.eq(
                entrance.running
                & (entrance.spill_room != 0)
                & (entrance.mshr_room != 0)
                & ~buffers.fills.valid
                & ~again
                & ~entrance.holds
            ),
            accept_fill.eq(buffers.fills.valid & buffers.fills.ready),
            accept_message.eq(self.messages.valid & self.messages.ready),
            accept.eq(accept_fill | accept_message),
        ]
        with m.If(buffers.fills.valid):
            filled = buffers.fills.payload
            m.d.comb += [
                incoming.key.eq(filled.key),
                incoming.amount.eq(filled.counter),
                incoming.buffer.eq(filled.buffer),
                incoming.present.eq(filled.present),
                incoming.fill.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                incoming.key.range.eq(message.range),
                incoming.key.wg.eq(message.wg),
                incoming.key.wf.eq(message.wf),
                incoming.amount.count.eq(message.bytes),
                incoming.amount.va.eq(message.va),
                incoming.stale.eq(message.epoch != self.epoch),
            ]
        return accept, accept_message

    def _tell(self, m: Module, pipeline: Pipeline) -> None:
        """What stage 5 found is told: a tile is complete, an access was refused."""
        count, stage_5 = pipeline.count, pipeline.operations[5]
        m.d.sync += self.completed.eq(count.complete)
        m.d.sync += self.completed_range.eq(stage_5.key.range)
        with m.If(~self.faults.valid | self.faults.ready):
            record = self.faults.payload
            m.d.sync += [
                self.faults.valid.eq(count.refused),
                record.fault.eq(count.fault),
                record.link.eq(0),
                record.access.eq(Access.UPDATE),
                record.va.eq(Mux(stage_5.fill, count.value.va, stage_5.amount.va)),
                record.wg.eq(stage_5.key.wg),
                record.wf.eq(stage_5.key.wf),
            ]

    def _protect(self, m: Module, pipeline: Pipeline, entrance: _Entrance, mending: Signal) -> None:
        """Protection of the bank's memories, but for what goes to the backing store; `mending`: a set is looked at or
        put right."""
        geometry, storage, triggers = pipeline.geometry, pipeline.storage, pipeline.triggers
        low = bank_bits(self._config)
        mender = self._mender(m, pipeline)
        m.d.comb += [
            geometry.used.eq(pipeline.stage_valid[1]),
            self.tables_wrong.eq(geometry.wrong),
            mender.running.eq(entrance.running),
            pipeline.reads_itself.eq(mender.reads),
            entrance.holds.eq(mender.holds),
            mending.eq(mender.busy),
            self.memory_reports[0].eq(mender.report),
            triggers.scrub.eq(self.scrub),
            triggers.upset.eq(self.upset),
            triggers.upset.memory.eq(self._upset_memory()),
            triggers.upset.address.eq(self.upset.address[low:]),
            self.memory_reports[1].eq(triggers.report),
            self.memory_reports[1].address.eq(Cat(Const(self._bank, low), triggers.report.address)),
        ]
        for place, report in ((2, triggers.block_report), (3, triggers.launch_report)):
            m.d.comb += [self.memory_reports[place].eq(report), self.memory_reports[place].address.eq(self._bank)]
        with m.If(mender.reads):
            m.d.comb += storage.read_set.eq(mender.read_set)

    def _measure(self, m: Module, pipeline: Pipeline, accept_message: Signal) -> _Content:
        """Counts what the bank holds, and tells its events."""
        config = self._config
        count, stage_5 = pipeline.count, pipeline.operations[5]
        live = Signal(range(config.tracker_sets // config.tracker_banks * config.tracker_ways + 1))
        appeared = Signal()
        vanished = Signal()
        m.d.comb += [
            appeared.eq(count.allocation & ~count.eviction),
            vanished.eq(count.complete & count.hit),
        ]
        with m.If(appeared | vanished):
            m.d.sync += live.eq(live + appeared - vanished)
        away = Signal(config.wg_bits + config.wf_bits)
        with m.If(count.eviction | (count.free & stage_5.present)):
            m.d.sync += away.eq(away + count.eviction - (count.free & stage_5.present))
        m.d.sync += [
            self.events.access.eq(accept_message),
            self.events.hit.eq(count.hit),
            self.events.allocation.eq(count.allocation),
            self.events.eviction.eq(count.eviction),
            self.events.fetch.eq(count.fetch),
            self.events.trigger.eq(count.complete),
            self.events.stall.eq(self.messages.valid & ~self.messages.ready),
            self.events.live.eq(live),
        ]
        return _Content(live, away)

    def _clear(
        self, m: Module, pipeline: Pipeline, running: Signal, busy: Signal, content: _Content, clears: Signal
    ) -> None:
        """Clears tables and counts after reset, and when asked to, once the bank is not `busy` any more."""
        emptied = Signal()
        begin_clear = Signal()
        m.d.comb += [
            emptied.eq(pipeline.storage.cleared & pipeline.triggers.cleared),
            pipeline.storage.clear.eq(begin_clear),
            pipeline.triggers.clear.eq(begin_clear),
            self.cleared.eq(running),
        ]
        with m.FSM(name="clear"):
            with m.State("CLEAR"):
                with m.If(emptied):
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If(self.clear):
                    m.next = "FINISH"
            with m.State("FINISH"):
                with m.If(~busy):
                    m.d.comb += [
                        begin_clear.eq(1),
                        self.left_over.eq((content.live != 0) | (content.away != 0) | pipeline.triggers.waiting),
                    ]
                    m.d.sync += [content.live.eq(0), content.away.eq(0), clears.eq(clears + 1)]
                    m.next = "START"
            with m.State("START"):
                m.next = "CLEAR"

    def _upset_memory(self) -> Value:
        """The memory of this bank in which bits are to be turned; COUNTERS, which the mender turns, if it is another
        bank's."""
        mine = self.upset.address[: bank_bits(self._config)] == self._bank
        return Mux(mine, self.upset.memory, ProtectedMemory.COUNTERS)

    def _mender(self, m: Module, pipeline: Pipeline) -> SetMender:
        """What mends the sets; an operation that meets a wrong one in stage 4 goes around again, not to stage 5."""
        storage, stage_valid = pipeline.storage, pipeline.stage_valid
        m.submodules.mender = mender = SetMender(self._config, self._bank)
        meets_error = Signal()
        m.d.comb += [
            meets_error.eq(stage_valid[4] & storage.wrong.any()),
            mender.scrub.eq(self.scrub),
            mender.upset.eq(self.upset),
            mender.idle.eq(~stage_valid[2]),
            mender.looked_at.eq(stage_valid[4]),
            mender.set.eq(pipeline.set_of(pipeline.operations[4])),
            mender.wrong.eq(storage.wrong),
            mender.held.eq(storage.held),
            mender.spilled_held.eq(storage.spilled_held),
            mender.syndrome_ways.eq(storage.syndrome_ways),
            mender.syndrome_spilled.eq(storage.syndrome_spilled),
            mender.settled.eq(storage.settled),
            mender.counting.eq(stage_valid[5]),
            storage.mend.eq(mender.mend),
        ]
        m.d.sync += pipeline.again.eq(meets_error)
        with m.If(meets_error):
            m.d.sync += stage_valid[5].eq(0)
        return mender

    def _connect_backing_store(self, m: Module, count: CountStage, buffers: MshrFile, clears: Signal) -> Value:
        """Queue of spill requests, and the answers to fetches; returns "a request left the queue"."""
        config = self._config
        layout = count.spill_request.shape()
        m.submodules.spills = spills = Queue(layout, config.spill_queue_depth, checked=config.protects_memories)
        wiring.connect(m, spills.o, wiring.flipped(self.spill_requests))
        answer = self.spill_response
        usable = Signal()
        spill = Signal()
        request = Signal(layout)
        if config.protects_memories:
            self._request_checked(m, request, spill, spills)
            checked = check_answer(m, self.spill_response, clears)
            answer, report = checked.answer, self.memory_reports[ProtectedMemory.SPILLED.value]
            m.d.sync += [
                report.lost.eq(checked.lost | spills.wrong),
                report.address.eq(self._bank),
                report.corrected.eq(checked.put_right & usable),
            ]
        else:
            m.d.comb += spills.i.payload.eq(request)
        m.d.sync += [spill.eq(count.spill), request.eq(count.spill_request)]
        m.d.comb += [
            spills.i.valid.eq(spill),
            count.generation.eq(clears),
            usable.eq(
                answer.record.present
                & (answer.record.epoch == self.epoch)
                & (answer.record.reserved[:GENERATION_BITS] == clears)
            ),
            buffers.response_valid.eq(answer.valid),
            buffers.response_buffer.eq(answer.tag),
            buffers.response_present.eq(usable),
            buffers.response.count.eq(Mux(usable, answer.record.count, 0)),
            buffers.response.va.eq(Mux(usable, answer.record.va, ~0)),
        ]
        return self.spill_requests.valid & self.spill_requests.ready

    def _request_checked(self, m: Module, request: data.View, spill: Signal, spills: Queue) -> None:
        """Gives the record of a `request` that goes to `spills` if `spill` the check bits it is checked by."""
        word = with_check_bits(request.record)
        m.submodules.spilled_upset = turns = NextWordUpset(ProtectedMemory.SPILLED, len(word))
        m.d.comb += [
            turns.upset.eq(self.upset),
            turns.upset.memory.eq(self._upset_memory()),
            turns.stored.eq(spill & request.write),
            spills.i.payload.eq(request),
            spills.i.payload.record.as_value().eq(word ^ turns.flips),
        ]
