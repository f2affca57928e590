"""What a node's memory side sees of a tiled GEMM: reads of inputs, time to compute, stores of finished tiles.

The output array is `chunks` chunks of whole tile rows. Workgroups run in stages of `slots`: a stage reads its input
sectors, computes, then stores its tiles, the wavefronts of all its workgroups in turn, row by row. Chunks are taken in
the staggered order of the ring (paper section 4.1): `first_chunk`, then `chunk_step` further each time. With as many
slots as a chunk has workgroups, every WF tile of the chunk is begun before the first is finished, which is what the
Tracker's overflow test wants.
"""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Const, Instance, Module, Mux, Signal
from amaranth.hdl import ClockSignal, Value, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import Access, Messages, TrafficClass
from sim.models.burst_lanes import ReadProbe
from sim.models.recorded_events import STAGES, recorded_workgroups
from sim.models.stalls import Stalls


class GemmWord(enum.IntEnum):
    """Parameters of a :class:`GemmEngine`; addresses, strides and lengths in sectors."""

    ARRAY_BASE = 0
    CHUNK_SECTORS = 1
    FIRST_CHUNK = 2
    CHUNK_STEP = 3
    CHUNKS = 4
    WGS_PER_CHUNK = 5
    TILE_COLUMNS = 6
    BODY_SECTORS = 7
    RIGHT_SECTORS = 8
    BODY_MASK = 9
    RIGHT_MASK = 10
    PITCH = 11
    TILE_ROW_STRIDE = 12
    WF_STRIDE = 13
    WFS = 14
    WF_ROWS = 15
    LAST_TILE_ROWS = 16
    TILE_ROWS = 17
    SLOTS = 18
    COMPUTE_CYCLES = 19
    STAGE_READS = 20
    INPUT_BASE = 21
    INPUT_MASK = 22
    STALL = 23
    FILL = 24
    WG_STRIDE = 25


TAG_BITS = 8
PIPELINE = 16
"""Reads that are on their way between the queues of a channel, at most."""
SimulationWrite = data.StructLayout({"valid": unsigned(1), "index": unsigned(5), "data": unsigned(32)})
"""One parameter of a simulation model being set."""


class _Position:
    """Position in the loop nest: chunk, stage, row of the WF tile, slot, wf, sector; with tile coordinates and offsets
    in the array that go with them, kept by additions."""

    def __init__(self) -> None:
        self.chunk = Signal(6)
        self.chunks_done = Signal(7)
        self.stage_wg = Signal(16)
        self.row = Signal(16)
        self.slot = Signal(16)
        self.wf = Signal(4)
        self.sector = Signal(16)
        self.chunk_offset = Signal(32)
        self.wg_base = Signal(20)
        tile = data.StructLayout({"row": 16, "column": 16, "row_offset": 32, "offset": 32})
        self.stage_tile = Signal(tile)
        self.tile = Signal(tile)
        self.row_offset = Signal(32)
        self.wf_offset = Signal(32)
        self.wf_row = Signal(16)


@dataclass(frozen=True)
class _Ends:
    """What a position is the last of; the chunk and the tile that come behind it; workgroups left in the chunk."""

    wrapped_chunk: Value
    right: Value
    has_row: Value
    last_sector: Value
    last_wf: Value
    stage_wgs_left: Value
    last_slot: Value
    last_row: Value
    after_tile: data.View


class _Draft:
    """The next request: `stored`, its data is what is at `source` in the source memory; it goes on with `advance`."""

    def __init__(self, messages: Messages) -> None:
        self.request = Signal(messages.compute_request, name="draft")
        self.valid = Signal(name="draft_valid")
        self.source = Signal(32, name="draft_source")
        self.stored = Signal(name="draft_stored")
        self.advance = Signal(name="advance")


class _Progress:
    """How far a stage is: reads sent and back, cycles computed; `fills`: sectors of a chunk that are filled."""

    def __init__(self) -> None:
        self.reads_sent = Signal(32)
        self.reads_back = Signal(32)
        self.input_offset = Signal(32)
        self.wait = Signal(32)
        self.fills = Signal(32)
        self.fresh = Signal(init=1)


class GemmEngine(wiring.Component):
    """Generator of one GPU's compute stream.

    Ports: `write` sets a :class:`GemmWord`; a pulse on `start` runs the GEMM, on `fill` stores the word FILL over every
    chunk but the first (explicit zeroing); `active` while a GEMM runs (until its last store is taken), `busy` while
    anything does; `requests`/`responses` and `probes` per channel; `error` when a read came back refused; `rank` names
    the file +source=<prefix> of the output it stores: one hexadecimal sector a line, in the order of the array.
    STALL is the probability of an idle cycle on each port, in 1/256. Reads of a channel are tagged in turn:
    `told_apart`, whether its queues hold fewer than there are tags.
    """

    def __init__(self, config: Configuration, source_sectors: int):
        self._config = config
        self._messages = Messages(config)
        self._source_sectors = source_sectors
        self.told_apart = config.compute_queue_depth + config.response_depth + PIPELINE <= 1 << TAG_BITS
        self._word = {item: Signal(32, name=item.name.lower()) for item in GemmWord}
        self.recorded = recorded_workgroups()
        """Events for a timeline, no ports: twice nothing, and a stage goes on."""
        super().__init__(
            {
                "rank": In(6),
                "write": In(SimulationWrite),
                "start": In(1),
                "fill": In(1),
                "active": Out(1),
                "busy": Out(1),
                "error": Out(1),
                "requests": Out(stream.Signature(self._messages.compute_request)).array(config.channels),
                "responses": In(stream.Signature(self._messages.compute_response)).array(config.channels),
                "probes": Out(ReadProbe).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.write.valid):
            with m.Switch(self.write.index):
                for item, signal in self._word.items():
                    with m.Case(item.value):
                        m.d.sync += signal.eq(self.write.data)
        m.submodules.stalls = stalls = Stalls(ports=2)
        m.d.comb += [stalls.probability.eq(self._word[GemmWord.STALL]), stalls.seed.eq(self.rank)]

        at = _Position()
        ends = self._ends(m, at)
        draft = _Draft(self._messages)
        request_valid, responses = self._send(m, draft, stalls)
        progress = _Progress()
        m.d.sync += progress.reads_back.eq(progress.reads_back + sum(responses))
        self._record(m, at, ends)
        m.d.comb += self.busy.eq(1)
        with m.If(draft.advance):
            m.d.sync += draft.valid.eq(0)
        with m.FSM(name="gemm"):
            with m.State("IDLE"):
                self._idle(m, at, progress)
            with m.State("FILL CHUNK"):
                self._begin_fill(m, at, ends, progress)
            with m.State("FILL"):
                self._fill(m, at, draft, progress)
            with m.State("CHUNK"):
                self._begin_chunk(m, at, progress)
            with m.State("READ"):
                self._read(m, draft, progress)
            with m.State("COMPUTE"):
                self._compute(m, at, progress)
            with m.State("STORE"):
                self._store(m, at, ends, draft, progress)
            with m.State("NEXT CHUNK"):
                m.d.sync += [at.chunk.eq(ends.wrapped_chunk), at.chunks_done.eq(at.chunks_done + 1)]
                m.next = "CHUNK"
                with m.If(at.chunks_done == self._word[GemmWord.CHUNKS] - 1):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                with m.If(~draft.valid & ~request_valid):
                    m.d.sync += self.active.eq(0)
                    m.next = "IDLE"
        return m

    def _ends(self, m: Module, at: _Position) -> _Ends:
        """What `at` is the last of, and what comes behind it."""
        word = self._word
        next_chunk = Signal(7)
        m.d.comb += next_chunk.eq(at.chunk + word[GemmWord.CHUNK_STEP])
        wrapped_chunk = Mux(next_chunk >= word[GemmWord.CHUNKS], next_chunk - word[GemmWord.CHUNKS], next_chunk)

        right = at.tile.column == word[GemmWord.TILE_COLUMNS] - 1
        bottom = at.tile.row == word[GemmWord.TILE_ROWS] - 1
        sectors = Mux(right, word[GemmWord.RIGHT_SECTORS], word[GemmWord.BODY_SECTORS])
        has_row = ~bottom | (at.wf_row < word[GemmWord.LAST_TILE_ROWS])
        last_sector = ~has_row | (at.sector == sectors - 1)
        last_wf = at.wf == word[GemmWord.WFS] - 1
        stage_wgs_left = word[GemmWord.WGS_PER_CHUNK] - at.stage_wg
        last_slot = (at.slot == word[GemmWord.SLOTS] - 1) | (at.slot == stage_wgs_left - 1)
        last_row = at.row == word[GemmWord.WF_ROWS] - 1

        after_tile = Signal.like(at.stage_tile)
        with m.If(right):
            m.d.comb += [
                after_tile.row.eq(at.tile.row + 1),
                after_tile.column.eq(0),
                after_tile.row_offset.eq(at.tile.row_offset + word[GemmWord.TILE_ROW_STRIDE]),
                after_tile.offset.eq(at.tile.row_offset + word[GemmWord.TILE_ROW_STRIDE]),
            ]
        with m.Else():
            m.d.comb += [
                after_tile.eq(at.tile),
                after_tile.column.eq(at.tile.column + 1),
                after_tile.offset.eq(at.tile.offset + word[GemmWord.BODY_SECTORS]),
            ]

        return _Ends(
            wrapped_chunk, right, has_row, last_sector, last_wf, stage_wgs_left, last_slot, last_row, after_tile
        )

    def _send(self, m: Module, draft: _Draft, stalls: Stalls) -> tuple[Signal, list[Signal]]:
        """One request register in front of the source memory, one behind it, which the ports of the channels empty.
        Returns whether the latter holds a request, and for each channel whether a response came."""
        request = Signal(self._messages.compute_request)
        request_valid = Signal()
        request_stored = Signal()
        taken = Signal()
        source_data = Signal(256)
        m.submodules.source = Instance(
            "source_array",
            p_SECTORS=self._source_sectors,
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_enable=draft.advance & draft.valid,
            i_address=draft.source[: (self._source_sectors - 1).bit_length()],
            o_data=source_data,
        )
        m.d.comb += draft.advance.eq(~request_valid | taken)
        with m.If(draft.advance):
            m.d.sync += [request.eq(draft.request), request_valid.eq(draft.valid), request_stored.eq(draft.stored)]

        outgoing = Signal(self._messages.compute_request)
        m.d.comb += outgoing.eq(request)
        with m.If(request_stored):
            m.d.comb += outgoing.data.eq(source_data)
        offered = Signal()
        with m.If(taken):
            m.d.sync += offered.eq(0)
        with m.Elif(request_valid & ~stalls.stop[0]):
            m.d.sync += offered.eq(1)
        channel = outgoing.va[3 : 3 + self._config.channel_bits] if self._config.channel_bits else Const(0, 1)
        responses = []
        for index, (port, response) in enumerate(zip(self.requests, self.responses, strict=True)):
            tag = Signal(TAG_BITS, name=f"tag_{index}")
            m.d.comb += [
                port.payload.eq(outgoing),
                port.payload.id.eq(tag),
                port.valid.eq(request_valid & (offered | ~stalls.stop[0]) & (channel == index)),
                response.ready.eq(~stalls.stop[1]),
            ]
            with m.If(port.valid & port.ready):
                m.d.comb += taken.eq(1)
                m.d.sync += tag.eq(tag + (outgoing.access == Access.READ))
            got = Signal(name=f"response_{index}")
            probe = self.probes[index]
            m.d.comb += [
                got.eq(response.valid & response.ready),
                probe.asked.eq(port.valid & port.ready & (outgoing.access == Access.READ)),
                probe.asked_tag.eq(tag),
                probe.answered.eq(got),
                probe.answered_tag.eq(response.payload.id),
            ]
            with m.If(got & response.payload.error):
                m.d.sync += self.error.eq(1)
            responses.append(got)
        return request_valid, responses

    def _record(self, m: Module, at: _Position, ends: _Ends) -> None:
        """Which workgroups the events of the stage are of."""
        *_, stage = self.recorded
        slots_now = Signal(16)
        m.d.comb += [
            slots_now.eq(
                Mux(ends.stage_wgs_left < self._word[GemmWord.SLOTS], ends.stage_wgs_left, self._word[GemmWord.SLOTS])
            ),
            stage.payload.slot.eq(slots_now),
            stage.payload.workgroup.eq(at.wg_base + at.stage_wg),
        ]

    def _goes_on(self, step: str) -> list[Any]:
        """The stage begins to do `step`."""
        *_, stage = self.recorded
        return [stage.valid.eq(1), stage.payload.kernel.eq(STAGES.index(step))]

    def _idle(self, m: Module, at: _Position, progress: _Progress) -> None:
        m.d.comb += self.busy.eq(0)
        m.d.sync += [
            at.chunk.eq(self._word[GemmWord.FIRST_CHUNK]),
            at.chunks_done.eq(0),
            progress.fills.eq(0),
            progress.reads_sent.eq(0),
            progress.reads_back.eq(0),
        ]
        with m.If(self.start):
            m.d.sync += self.active.eq(1)
            m.next = "CHUNK"
        with m.Elif(self.fill):
            m.next = "FILL CHUNK"

    def _begin_fill(self, m: Module, at: _Position, ends: _Ends, progress: _Progress) -> None:
        m.d.sync += [
            at.chunk.eq(ends.wrapped_chunk),
            at.chunks_done.eq(at.chunks_done + 1),
            at.chunk_offset.eq(ends.wrapped_chunk * self._word[GemmWord.CHUNK_SECTORS]),
            progress.fills.eq(0),
        ]
        with m.If(at.chunks_done == self._word[GemmWord.CHUNKS] - 1):
            m.next = "DRAIN"
        with m.Else():
            m.next = "FILL"

    def _fill(self, m: Module, at: _Position, draft: _Draft, progress: _Progress) -> None:
        """Store the word FILL over the chunk."""
        with m.If(draft.advance):
            m.d.sync += [
                draft.valid.eq(1),
                draft.stored.eq(0),
                draft.request.access.eq(Access.STORE),
                draft.request.traffic_class.eq(TrafficClass.RS),
                draft.request.va.eq(self._word[GemmWord.ARRAY_BASE] + at.chunk_offset + progress.fills),
                draft.request.mask.eq(~0),
                draft.request.data.eq(self._word[GemmWord.FILL].replicate(8)),
                progress.fills.eq(progress.fills + 1),
            ]
            with m.If(progress.fills == self._word[GemmWord.CHUNK_SECTORS] - 1):
                m.next = "FILL CHUNK"

    def _begin_chunk(self, m: Module, at: _Position, progress: _Progress) -> None:
        m.d.sync += [
            at.chunk_offset.eq(at.chunk * self._word[GemmWord.CHUNK_SECTORS]),
            at.wg_base.eq(at.chunk * self._word[GemmWord.WG_STRIDE]),
            at.stage_wg.eq(0),
            at.stage_tile.eq(0),
            progress.wait.eq(0),
            progress.reads_sent.eq(0),
        ]
        m.next = "READ"

    def _read(self, m: Module, draft: _Draft, progress: _Progress) -> None:
        """Read the inputs of a stage, until all are back."""
        with m.If(progress.fresh):
            m.d.comb += self._goes_on("read")
            m.d.sync += progress.fresh.eq(0)
        with m.If(progress.reads_sent == self._word[GemmWord.STAGE_READS]):
            with m.If(progress.reads_back == self._word[GemmWord.STAGE_READS]):
                m.d.comb += self._goes_on("compute")
                m.d.sync += progress.fresh.eq(1)
                m.next = "COMPUTE"
        with m.Elif(draft.advance):
            m.d.sync += [
                draft.valid.eq(1),
                draft.stored.eq(0),
                draft.request.access.eq(Access.READ),
                draft.request.traffic_class.eq(TrafficClass.GEMM),
                draft.request.va.eq(
                    self._word[GemmWord.INPUT_BASE] + (progress.input_offset & self._word[GemmWord.INPUT_MASK])
                ),
                progress.reads_sent.eq(progress.reads_sent + 1),
                progress.input_offset.eq(progress.input_offset + 1),
            ]

    def _compute(self, m: Module, at: _Position, progress: _Progress) -> None:
        m.d.sync += [
            progress.wait.eq(progress.wait + 1),
            at.tile.eq(at.stage_tile),
            at.row.eq(0),
            at.row_offset.eq(0),
            at.slot.eq(0),
            at.wf.eq(0),
            at.wf_row.eq(0),
            at.wf_offset.eq(0),
            at.sector.eq(0),
        ]
        with m.If(progress.wait >= self._word[GemmWord.COMPUTE_CYCLES]):
            m.d.comb += self._goes_on("store")
            m.next = "STORE"

    def _store(self, m: Module, at: _Position, ends: _Ends, draft: _Draft, progress: _Progress) -> None:
        """Store the tiles of a stage: the sectors of a row of a WF tile, the wavefronts of a workgroup, all slots, the
        next row."""
        offset = Signal(32)
        m.d.comb += offset.eq(at.chunk_offset + at.tile.offset + at.row_offset + at.wf_offset + at.sector)
        with m.If(draft.advance):
            m.d.sync += [
                draft.valid.eq(ends.has_row),
                draft.stored.eq(1),
                draft.source.eq(offset),
                draft.request.access.eq(Access.STORE),
                draft.request.traffic_class.eq(TrafficClass.GEMM),
                draft.request.va.eq(self._word[GemmWord.ARRAY_BASE] + offset),
                draft.request.wg.eq(at.wg_base + at.stage_wg + at.slot),
                draft.request.wf.eq(at.wf),
                draft.request.mask.eq(~0),
                at.sector.eq(at.sector + 1),
            ]
            with m.If(ends.last_sector):
                m.d.sync += [
                    draft.request.mask.eq(
                        Mux(ends.right, self._word[GemmWord.RIGHT_MASK], self._word[GemmWord.BODY_MASK])
                    ),
                    at.sector.eq(0),
                    at.wf.eq(at.wf + 1),
                    at.wf_row.eq(at.wf_row + self._word[GemmWord.WF_ROWS]),
                    at.wf_offset.eq(at.wf_offset + self._word[GemmWord.WF_STRIDE]),
                ]
                with m.If(ends.last_wf):
                    m.d.sync += [
                        at.wf.eq(0),
                        at.wf_row.eq(at.row),
                        at.wf_offset.eq(0),
                        at.slot.eq(at.slot + 1),
                        at.tile.eq(ends.after_tile),
                    ]
                    with m.If(ends.last_slot):
                        m.d.sync += [
                            at.slot.eq(0),
                            at.row.eq(at.row + 1),
                            at.wf_row.eq(at.row + 1),
                            at.row_offset.eq(at.row_offset + self._word[GemmWord.PITCH]),
                            at.tile.eq(at.stage_tile),
                        ]
                        with m.If(ends.last_row):
                            m.d.comb += self._goes_on("over")
                            m.d.sync += [
                                at.stage_wg.eq(at.stage_wg + at.slot + 1),
                                at.stage_tile.eq(ends.after_tile),
                                progress.wait.eq(0),
                                progress.reads_sent.eq(0),
                                progress.reads_back.eq(0),
                            ]
                            m.next = "READ"
                            with m.If(at.slot == ends.stage_wgs_left - 1):
                                m.next = "NEXT CHUNK"
