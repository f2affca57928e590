"""The Tracker: counts the committed accesses of every WF tile and triggers what follows when a tile is complete.

Channels' commits -> coalescers -> crossbar -> banks (by wg LSBs), each with its part of the trigger table; a doorbell's
commits enter at the crossbar. Source: T3 sections 4.2.1 and 4.2.2. The paper leaves open how many channels share
one Tracker, and how the terminal chunk, which is not sent on, is known to be complete: it has an event of its own.
"""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Access, Fault, Messages
from ..primitives.stream_arbiter import StreamArbiter
from ..protection import TRACKER_MEMORIES, MemoryReport, MemoryUpset
from ..range_table import Word, range_write
from ..word_table import kept_parity
from .bank import TrackerBank
from .coalescer import Coalescer
from .crossbar import Crossbar
from .events import TrackerEvents
from .merging import MergeQueue, MergingCrossbar
from .parameters import TrackerParameters
from .tile_geometry import bank_bits

TOTAL_BITS = 20
"""Width of the number of WF tiles of a range."""


class TileTotals(wiring.Component):
    """Complete WF tiles of each range against its WF_TOTAL.

    Ports: `ranges`; `completed`, `completed_range` per bank; `clear`; `done`: bit per range, 3 cycles after the last
    completion, until `clear` (a level). A range with WF_TOTAL 0 is never done. With protection of memories `wrong`, a
    pulse: a WF_TOTAL had a wrong bit as they were compared, in the cycle before.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "completed": In(1).array(config.tracker_banks),
                "completed_range": In(config.range_bits).array(config.tracker_banks),
                "clear": In(1),
                "done": Out(config.ranges),
                **({"wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._config.tracker_banks
        some = Signal()
        changed = Signal()
        m.d.sync += [some.eq(Cat(self.completed).any()), changed.eq(some)]
        checked = self._config.protects_memories
        parity = Signal(self._config.ranges)
        odd = Signal(self._config.ranges)
        for index in range(self._config.ranges):
            total = Signal(TOTAL_BITS, name=f"total_{index}")
            count = Signal(TOTAL_BITS, name=f"count_{index}")
            write = self.ranges
            with m.If(write.valid & (write.index == index) & (write.word == Word.WF_TOTAL.value)):
                m.d.sync += total.eq(write.data)
                if checked:
                    m.d.sync += parity[index].eq(kept_parity(write, write.data[:TOTAL_BITS]))
            if checked:
                m.d.comb += odd[index].eq(Cat(total, parity[index]).xor())
            added = Signal(range(banks + 1), name=f"added_{index}")
            with m.If(Cat(self.completed).any() | some):
                m.d.sync += added.eq(
                    sum(self.completed[bank] & (self.completed_range[bank] == index) for bank in range(banks))
                )
            with m.If(some):
                m.d.sync += count.eq(count + added)
            with m.If(changed):
                m.d.sync += self.done[index].eq((count == total) & (total != 0))
            with m.If(self.clear):
                m.d.sync += count.eq(0)
        if checked:
            m.d.sync += self.wrong.eq(changed & odd.any())
        with m.If(self.clear):
            m.d.sync += [self.done.eq(0), some.eq(0), changed.eq(0)]
        return m


class Tracker(wiring.Component):
    """Counters of a node, `tracker_bytes` of storage in `tracker_banks` banks. A wg names one tile: ranges share none.

    Ports: `ranges`, `epoch`; `clear` (pulse) at the start of an epoch clears all state, `cleared` is high when that is
    done (max(sets, trigger_blocks) / banks cycles; also after reset; nothing is accepted meanwhile). `commits` per
    channel; `doorbell`, more of them, of tiles of their own; `blocks` to the DMA engine, `launches` to the GPU; `done`,
    bit per range: all its WF_TOTAL WF tiles are complete. `waiting`: a commit of a channel is offered, or was taken and
    has not reached its bank. Blocks and launches that were offered when clearing starts are withdrawn.
    `spill_requests`, `spill_response`: overflow to memory. `faults`: TILE, EPOCH, PAST_THRESHOLD, and LEFT_OVER once
    for a clear that dropped counters or ready blocks; `access` is UPDATE in all of them (a commit does not say),
    commits merged while they waited are refused together, and what a bank refuses while its last fault still waits
    leaves no record. `events`: see TrackerEvents, one cycle late; an access gathered in a MSHR is neither hit nor
    allocation, a fill that stays is an allocation. Latency of an idle Tracker: commit in cycle c, block offered in
    cycle c + 7, later by the latency of :class:`hw.tracker.merging.MergingCrossbar` and 1 with `commit_merge_depth`.
    One commit a cycle and bank, if `tracker_mshrs` and `spill_queue_depth` are at least 6 (room for the pipeline); with
    both at 1, one in 6 cycles.
    With protection of memories `scrub`, `upset` and `memory_reports` of the banks, one after the other, and
    `tables_wrong`, a pulse: a word of a range that had a wrong bit was used.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        messages = Messages(config)
        protected = {
            "scrub": In(1),
            "upset": In(MemoryUpset),
            "memory_reports": Out(MemoryReport).array(len(TRACKER_MEMORIES) * config.tracker_banks),
            "tables_wrong": Out(1),
        }
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "epoch": In(config.epoch_bits),
                "clear": In(1),
                "cleared": Out(1),
                "commits": In(stream.Signature(messages.commit)).array(config.channels),
                "doorbell": In(stream.Signature(messages.commit)),
                "blocks": Out(stream.Signature(messages.ready_block)),
                "launches": Out(stream.Signature(messages.launch_event)),
                "done": Out(config.ranges),
                "waiting": Out(1),
                "spill_requests": Out(stream.Signature(messages.spill_request)),
                "spill_response": In(messages.spill_response),
                "faults": Out(stream.Signature(messages.fault_record)),
                "events": Out(TrackerEvents),
                **(protected if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        messages = Messages(config)
        count = config.tracker_banks
        depth = config.commit_merge_depth
        m.submodules.crossbar = crossbar = (MergingCrossbar if depth else Crossbar)(config, config.channels + 1)
        coalescers = []
        for channel in range(config.channels):
            coalescer = MergeQueue(config, 2 * depth) if depth else Coalescer(config)
            m.submodules[f"coalescer_{channel}"] = coalescer
            coalescers.append(coalescer)
            wiring.connect(m, wiring.flipped(self.commits[channel]), coalescer.commits)
            wiring.connect(m, coalescer.messages, crossbar.inputs[channel])

        wiring.connect(m, wiring.flipped(self.doorbell), crossbar.inputs[config.channels])
        m.d.comb += self.waiting.eq(
            Cat(
                *(coalescer.messages.valid for coalescer in coalescers),
                *((crossbar.holding, *(port.valid for port in self.commits)) if depth else ()),
            ).any()
        )

        banks = []
        for number in range(count):
            bank = TrackerBank(config, number)
            m.submodules[f"bank_{number}"] = bank
            banks.append(bank)
            wiring.connect(m, crossbar.outputs[number], bank.messages)
            m.d.comb += [
                bank.ranges.eq(self.ranges),
                bank.epoch.eq(self.epoch),
                bank.clear.eq(self.clear),
            ]
            if config.protects_memories:
                m.d.comb += [
                    bank.scrub.eq(self.scrub),
                    bank.upset.eq(self.upset),
                    *(
                        self.memory_reports[len(TRACKER_MEMORIES) * number + place].eq(report)
                        for place, report in enumerate(bank.memory_reports)
                    ),
                ]

        for name, payload in (
            ("blocks", messages.ready_block),
            ("launches", messages.launch_event),
            ("spill_requests", messages.spill_request),
        ):
            arbiter = StreamArbiter(payload, count)
            m.submodules[name] = arbiter
            for bank, port in zip(banks, arbiter.inputs, strict=True):
                wiring.connect(m, getattr(bank, name), port)
                if name != "spill_requests":
                    # Banks empty their queues one after the other, the arbiter must lose what it holds on to at once.
                    queue = getattr(bank, name)
                    m.d.comb += [
                        port.valid.eq(queue.valid & self.cleared),
                        queue.ready.eq(port.ready & self.cleared),
                    ]
            wiring.connect(m, arbiter.output, wiring.flipped(getattr(self, name)))

        mshr_bits = (config.tracker_mshrs - 1).bit_length()
        answer = self.spill_response
        for number, bank in enumerate(banks):
            chosen = answer.tag[mshr_bits : mshr_bits + bank_bits(config)] == number if count > 1 else 1
            m.d.comb += [bank.spill_response.eq(answer), bank.spill_response.valid.eq(answer.valid & chosen)]

        self._clear(m, banks)

        m.submodules.totals = totals = TileTotals(config)
        # Held during the whole clear: completions of the old epoch may still be under way when it starts.
        m.d.comb += [totals.ranges.eq(self.ranges), totals.clear.eq(~self.cleared), self.done.eq(totals.done)]
        for number, bank in enumerate(banks):
            m.d.comb += [
                totals.completed[number].eq(bank.completed),
                totals.completed_range[number].eq(bank.completed_range),
            ]

        if config.protects_memories:
            m.d.comb += self.tables_wrong.eq(Cat(totals.wrong, *(bank.tables_wrong for bank in banks)).any())

        for total, part in (
            ("accesses", "access"),
            ("hits", "hit"),
            ("allocations", "allocation"),
            ("evictions", "eviction"),
            ("fetches", "fetch"),
            ("triggers", "trigger"),
            ("stalls", "stall"),
            ("live", "live"),
        ):
            m.d.comb += self.events[total].eq(sum(bank.events[part] for bank in banks))
        return m

    def _clear(self, m: Module, banks: list[TrackerBank]) -> None:
        """Clearing, its one LEFT_OVER fault, and the merge of the faults."""
        messages = Messages(self._config)
        m.submodules.faults = faults = StreamArbiter(messages.fault_record, len(banks) + 1)
        for bank, port in zip(banks, faults.inputs, strict=False):
            wiring.connect(m, bank.faults, port)
        wiring.connect(m, faults.output, wiring.flipped(self.faults))

        clearing = Signal()
        left_over = Signal()
        all_cleared = Signal()
        report = faults.inputs[len(banks)]
        m.d.comb += [
            all_cleared.eq(Cat(bank.cleared for bank in banks).all()),
            self.cleared.eq(all_cleared & ~clearing),
            report.payload.fault.eq(Fault.LEFT_OVER),
            report.payload.access.eq(Access.UPDATE),
        ]
        with m.If(Cat(bank.left_over for bank in banks).any()):
            m.d.sync += left_over.eq(1)
        with m.If(clearing & all_cleared):
            m.d.sync += [clearing.eq(0), left_over.eq(0), report.valid.eq(left_over | report.valid)]
        with m.Elif(report.ready):
            m.d.sync += report.valid.eq(0)
        with m.If(self.clear):
            m.d.sync += clearing.eq(1)
