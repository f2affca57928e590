"""What a node's memory side sees of a tiled GEMM: reads of inputs, time to compute, stores of finished tiles.

The output array is `chunks` chunks of whole tile rows. Workgroups run in stages of `slots`: a stage reads its input
sectors, computes, then stores its tiles, the wavefronts of all its workgroups in turn, row by row. Chunks are taken in
the staggered order of the ring (paper section 4.1): `first_chunk`, then `chunk_step` further each time. With as many
slots as a chunk has workgroups, every WF tile of the chunk is begun before the first is finished, which is what the
Tracker's overflow test wants.
"""

from typing import Any

from amaranth import Cat, Const, Instance, Module, Mux, Signal
from amaranth.hdl import ClockSignal, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import Access, Messages, TrafficClass
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


class GemmEngine(wiring.Component):
    """Generator of one GPU's compute stream.

    Ports: `write` sets a :class:`GemmWord`; a pulse on `start` runs the GEMM, on `fill` stores the word FILL over every
    chunk but the first (explicit zeroing); `active` while a GEMM runs (until its last store is taken), `busy` while
    anything does; `requests`/`responses` per channel; `error` when a read came back refused; `rank` names the file
    +source=<prefix> of the output it stores: one hexadecimal sector a line, in the order of the array.
    STALL is the probability of an idle cycle on each port, in 1/256. Reads of a channel are tagged in turn:
    `told_apart`, whether its queues hold fewer than there are tags.
    """

    def __init__(self, config: Configuration, source_sectors: int):
        self._config = config
        self._messages = Messages(config)
        self._source_sectors = source_sectors
        self.told_apart = config.compute_queue_depth + config.response_depth + PIPELINE <= 1 << TAG_BITS
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
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = {item: Signal(32, name=item.name.lower()) for item in GemmWord}
        with m.If(self.write.valid):
            with m.Switch(self.write.index):
                for item, signal in word.items():
                    with m.Case(item.value):
                        m.d.sync += signal.eq(self.write.data)

        m.submodules.stalls = stalls = Stalls(ports=2)
        m.d.comb += [stalls.probability.eq(word[GemmWord.STALL]), stalls.seed.eq(self.rank)]

        # Position in the loop nest: chunk, stage, row of the WF tile, slot, wf, sector.
        chunk = Signal(6)
        chunks_done = Signal(7)
        stage_wg = Signal(16)
        row = Signal(16)
        slot = Signal(16)
        wf = Signal(4)
        sector = Signal(16)
        # Tile coordinates and offsets in the array that go with them, kept by additions.
        chunk_offset = Signal(32)
        wg_base = Signal(20)
        stage_tile = Signal(data.StructLayout({"row": 16, "column": 16, "row_offset": 32, "offset": 32}))
        tile = Signal.like(stage_tile)
        row_offset = Signal(32)
        wf_offset = Signal(32)
        wf_row = Signal(16)

        next_chunk = Signal(7)
        m.d.comb += next_chunk.eq(chunk + word[GemmWord.CHUNK_STEP])
        wrapped_chunk = Mux(next_chunk >= word[GemmWord.CHUNKS], next_chunk - word[GemmWord.CHUNKS], next_chunk)

        right = tile.column == word[GemmWord.TILE_COLUMNS] - 1
        bottom = tile.row == word[GemmWord.TILE_ROWS] - 1
        sectors = Mux(right, word[GemmWord.RIGHT_SECTORS], word[GemmWord.BODY_SECTORS])
        has_row = ~bottom | (wf_row < word[GemmWord.LAST_TILE_ROWS])
        last_sector = ~has_row | (sector == sectors - 1)
        last_wf = wf == word[GemmWord.WFS] - 1
        stage_wgs_left = word[GemmWord.WGS_PER_CHUNK] - stage_wg
        last_slot = (slot == word[GemmWord.SLOTS] - 1) | (slot == stage_wgs_left - 1)
        last_row = row == word[GemmWord.WF_ROWS] - 1

        after_tile = Signal.like(stage_tile)
        with m.If(right):
            m.d.comb += [
                after_tile.row.eq(tile.row + 1),
                after_tile.column.eq(0),
                after_tile.row_offset.eq(tile.row_offset + word[GemmWord.TILE_ROW_STRIDE]),
                after_tile.offset.eq(tile.row_offset + word[GemmWord.TILE_ROW_STRIDE]),
            ]
        with m.Else():
            m.d.comb += [
                after_tile.eq(tile),
                after_tile.column.eq(tile.column + 1),
                after_tile.offset.eq(tile.offset + word[GemmWord.BODY_SECTORS]),
            ]

        # One request register in front of the source memory, one behind it.
        draft = Signal(self._messages.compute_request)
        draft_valid = Signal()
        draft_source = Signal(32)
        draft_stored = Signal()
        request = Signal(self._messages.compute_request)
        request_valid = Signal()
        request_stored = Signal()
        taken = Signal()
        advance = Signal()
        source_data = Signal(256)
        m.submodules.source = Instance(
            "source_array",
            p_SECTORS=self._source_sectors,
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_enable=advance & draft_valid,
            i_address=draft_source[: (self._source_sectors - 1).bit_length()],
            o_data=source_data,
        )
        m.d.comb += advance.eq(~request_valid | taken)
        with m.If(advance):
            m.d.sync += [request.eq(draft), request_valid.eq(draft_valid), request_stored.eq(draft_stored)]

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
            m.d.comb += got.eq(response.valid & response.ready)
            with m.If(got & response.payload.error):
                m.d.sync += self.error.eq(1)
            responses.append(got)

        reads_sent = Signal(32)
        reads_back = Signal(32)
        input_offset = Signal(32)
        m.d.sync += reads_back.eq(reads_back + sum(responses))
        wait = Signal(32)
        fills = Signal(32)
        *_, stage = self.recorded
        slots_now = Signal(16)
        fresh = Signal(init=1)
        m.d.comb += [
            slots_now.eq(Mux(stage_wgs_left < word[GemmWord.SLOTS], stage_wgs_left, word[GemmWord.SLOTS])),
            stage.payload.slot.eq(slots_now),
            stage.payload.workgroup.eq(wg_base + stage_wg),
        ]

        def goes_on(step: str) -> list[Any]:
            """The stage begins to do `step`."""
            return [stage.valid.eq(1), stage.payload.kernel.eq(STAGES.index(step))]

        m.d.comb += self.busy.eq(1)
        with m.If(advance):
            m.d.sync += draft_valid.eq(0)
        with m.FSM(name="gemm"):
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                m.d.sync += [
                    chunk.eq(word[GemmWord.FIRST_CHUNK]),
                    chunks_done.eq(0),
                    fills.eq(0),
                    reads_sent.eq(0),
                    reads_back.eq(0),
                ]
                with m.If(self.start):
                    m.d.sync += self.active.eq(1)
                    m.next = "CHUNK"
                with m.Elif(self.fill):
                    m.next = "FILL CHUNK"
            with m.State("FILL CHUNK"):
                m.d.sync += [
                    chunk.eq(wrapped_chunk),
                    chunks_done.eq(chunks_done + 1),
                    chunk_offset.eq(wrapped_chunk * word[GemmWord.CHUNK_SECTORS]),
                    fills.eq(0),
                ]
                with m.If(chunks_done == word[GemmWord.CHUNKS] - 1):
                    m.next = "DRAIN"
                with m.Else():
                    m.next = "FILL"
            with m.State("FILL"):
                with m.If(advance):
                    m.d.sync += [
                        draft_valid.eq(1),
                        draft_stored.eq(0),
                        draft.access.eq(Access.STORE),
                        draft.traffic_class.eq(TrafficClass.RS),
                        draft.va.eq(word[GemmWord.ARRAY_BASE] + chunk_offset + fills),
                        draft.mask.eq(~0),
                        draft.data.eq(word[GemmWord.FILL].replicate(8)),
                        fills.eq(fills + 1),
                    ]
                    with m.If(fills == word[GemmWord.CHUNK_SECTORS] - 1):
                        m.next = "FILL CHUNK"
            with m.State("CHUNK"):
                m.d.sync += [
                    chunk_offset.eq(chunk * word[GemmWord.CHUNK_SECTORS]),
                    wg_base.eq(chunk * word[GemmWord.WG_STRIDE]),
                    stage_wg.eq(0),
                    stage_tile.eq(0),
                    wait.eq(0),
                    reads_sent.eq(0),
                ]
                m.next = "READ"
            with m.State("READ"):
                with m.If(fresh):
                    m.d.comb += goes_on("read")
                    m.d.sync += fresh.eq(0)
                with m.If(reads_sent == word[GemmWord.STAGE_READS]):
                    with m.If(reads_back == word[GemmWord.STAGE_READS]):
                        m.d.comb += goes_on("compute")
                        m.d.sync += fresh.eq(1)
                        m.next = "COMPUTE"
                with m.Elif(advance):
                    m.d.sync += [
                        draft_valid.eq(1),
                        draft_stored.eq(0),
                        draft.access.eq(Access.READ),
                        draft.traffic_class.eq(TrafficClass.GEMM),
                        draft.va.eq(word[GemmWord.INPUT_BASE] + (input_offset & word[GemmWord.INPUT_MASK])),
                        reads_sent.eq(reads_sent + 1),
                        input_offset.eq(input_offset + 1),
                    ]
            with m.State("COMPUTE"):
                m.d.sync += [
                    wait.eq(wait + 1),
                    tile.eq(stage_tile),
                    row.eq(0),
                    row_offset.eq(0),
                    slot.eq(0),
                    wf.eq(0),
                    wf_row.eq(0),
                    wf_offset.eq(0),
                    sector.eq(0),
                ]
                with m.If(wait >= word[GemmWord.COMPUTE_CYCLES]):
                    m.d.comb += goes_on("store")
                    m.next = "STORE"
            with m.State("STORE"):
                offset = Signal(32)
                m.d.comb += offset.eq(chunk_offset + tile.offset + row_offset + wf_offset + sector)
                with m.If(advance):
                    m.d.sync += [
                        draft_valid.eq(has_row),
                        draft_stored.eq(1),
                        draft_source.eq(offset),
                        draft.access.eq(Access.STORE),
                        draft.traffic_class.eq(TrafficClass.GEMM),
                        draft.va.eq(word[GemmWord.ARRAY_BASE] + offset),
                        draft.wg.eq(wg_base + stage_wg + slot),
                        draft.wf.eq(wf),
                        draft.mask.eq(~0),
                        sector.eq(sector + 1),
                    ]
                    with m.If(last_sector):
                        m.d.sync += [
                            draft.mask.eq(Mux(right, word[GemmWord.RIGHT_MASK], word[GemmWord.BODY_MASK])),
                            sector.eq(0),
                            wf.eq(wf + 1),
                            wf_row.eq(wf_row + word[GemmWord.WF_ROWS]),
                            wf_offset.eq(wf_offset + word[GemmWord.WF_STRIDE]),
                        ]
                        with m.If(last_wf):
                            m.d.sync += [
                                wf.eq(0),
                                wf_row.eq(row),
                                wf_offset.eq(0),
                                slot.eq(slot + 1),
                                tile.eq(after_tile),
                            ]
                            with m.If(last_slot):
                                m.d.sync += [
                                    slot.eq(0),
                                    row.eq(row + 1),
                                    wf_row.eq(row + 1),
                                    row_offset.eq(row_offset + word[GemmWord.PITCH]),
                                    tile.eq(stage_tile),
                                ]
                                with m.If(last_row):
                                    m.d.comb += goes_on("over")
                                    m.d.sync += [
                                        stage_wg.eq(stage_wg + slot + 1),
                                        stage_tile.eq(after_tile),
                                        wait.eq(0),
                                        reads_sent.eq(0),
                                        reads_back.eq(0),
                                    ]
                                    m.next = "READ"
                                    with m.If(slot == stage_wgs_left - 1):
                                        m.next = "NEXT CHUNK"
            with m.State("NEXT CHUNK"):
                m.d.sync += [chunk.eq(wrapped_chunk), chunks_done.eq(chunks_done + 1)]
                m.next = "CHUNK"
                with m.If(chunks_done == word[GemmWord.CHUNKS] - 1):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                with m.If(~draft_valid & ~request_valid):
                    m.d.sync += self.active.eq(0)
                    m.next = "IDLE"
        return m
