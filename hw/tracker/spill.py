"""The backing store of the Tracker's counters: a table in memory, two 16-byte records to a sector (DECISIONS 4)."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from ..geometry import INTERLEAVE_SECTORS, TOTAL_CHANNELS
from ..interfaces import BackingStorePort
from ..memory_window import WindowCheck, in_window
from ..messages import SECTOR_WIDTH, Access, Fault, Messages, Source, TrafficClass
from ..primitives.queue import Queue
from ..primitives.stream_arbiter import StreamArbiter
from .parameters import SpillParameters

INTERLEAVE_BITS = (INTERLEAVE_SECTORS - 1).bit_length()
RECORD_BYTES = 16


class SpillPort(wiring.Component):
    """Turns spill requests into memory requests, and the data read into responses.

    Record `index` is half `index & 1` of sector `base + (index >> 1)`: a write is a STORE under a mask of its 16 bytes,
    a fetch a READ whose `id` is the tag. Ports: `base`, sector address of the table; `requests`, one every 2 cycles, in
    order; `memory` and `returns` per channel (only returns to SPILL count); `response`: a cycle after the return with
    one channel, two cycles or more with several. Requests to one sector keep their order because a channel does. The
    table must be 0 before the first fetch after a reset. It has `sectors` sectors, all of them in `window` and none the
    last of the address space, which no range can hold: what is beyond, or all if the table is not so, is refused:
    `faults` has a record OUTSIDE (one that meets an untaken one is dropped), a write is lost, a fetch is answered with
    no record, without a bound in time only while reads return. `base`, `sectors` and `window` are quiet for two cycles
    before a request. With `far_backing_store`, `far` takes the requests whose sector another channel of the whole GPU
    holds. With protection of memories `queues_wrong`, a pulse: an answer left its queue with a wrong tag (records have
    check bits).
    """

    def __init__(self, config: SpillParameters):
        self._config = config
        messages = Messages(config)
        super().__init__(
            {
                "requests": In(stream.Signature(messages.spill_request)),
                "response": Out(messages.spill_response),
                "base": In(config.va_sector_bits),
                "sectors": In(config.spill_sector_bits),
                "window": In(WindowCheck),
                "faults": Out(stream.Signature(messages.fault_record)),
                "memory": Out(stream.Signature(messages.memory_request)).array(config.channels),
                "returns": In(messages.read_return).array(config.channels),
                **({"far": Out(BackingStorePort(config))} if config.far_backing_store else {}),
                **({"queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        messages = Messages(config)
        held = Signal(messages.spill_request)
        held_valid = Signal()
        halves = Signal(config.spill_tags)
        request = self.requests.payload
        refused = Signal()
        """What is held is beyond the table."""
        inside = Signal()
        end = Signal(config.va_sector_bits + 1)
        m.d.sync += [
            end.eq(self.base + self.sectors - 1),
            inside.eq(
                ~end[-1]
                & ~end[:-1].all()
                & in_window(config, self.window, self.base)
                & in_window(config, self.window, end[:-1])
            ),
        ]
        m.d.comb += self.requests.ready.eq(~held_valid & ~refused)
        with m.If(self.requests.valid & self.requests.ready):
            allowed = inside & (request.index[1:] < self.sectors)
            m.d.sync += [held.eq(request), held_valid.eq(allowed), refused.eq(~allowed)]
            with m.If(~request.write):
                m.d.sync += halves.bit_select(request.tag, 1).eq(request.index[0])

        access = Signal(messages.memory_request)
        record = held.record.as_value()
        m.d.comb += [
            access.access.eq(Mux(held.write, Access.STORE.value, Access.READ.value)),
            access.traffic_class.eq(TrafficClass.OTHER),
            access.source.eq(Source.SPILL),
            access.id.eq(held.tag),
            access.va.eq(self.base + (held.index >> 1)),
            access.mask.eq(Mux(held.index[0], 0xFFFF0000, 0x0000FFFF)),
            access.data.eq(Cat(record, record)),
        ]
        fault = self.faults.payload
        with m.If(~self.faults.valid | self.faults.ready):
            m.d.sync += [
                self.faults.valid.eq(refused),
                fault.fault.eq(Fault.OUTSIDE),
                fault.access.eq(access.access),
                fault.va.eq(access.va),
            ]
        far = Signal()
        if config.far_backing_store:
            interleave = held.index[1 + INTERLEAVE_BITS :]
            m.d.comb += [
                far.eq(interleave[: (TOTAL_CHANNELS - 1).bit_length()] >= config.channels),
                self.far.request.valid.eq(held_valid & far),
                self.far.request.request.eq(held),
            ]
            with m.If(held_valid & far):
                m.d.sync += held_valid.eq(0)
        channel = access.va[3 : 3 + config.channel_bits]
        for number in range(config.channels):
            port = self.memory[number]
            chosen = (channel == number) if config.channels > 1 else 1
            m.d.comb += [port.payload.eq(access), port.valid.eq(held_valid & ~far & chosen)]
            with m.If(port.valid & port.ready):
                m.d.sync += held_valid.eq(0)

        answer = data.StructLayout({"tag": messages.spill_tag, "record": messages.spill_record})
        answers = []
        wrong: list[Value] = []
        for number in range(config.channels):
            item = self.returns[number]
            found = Signal(answer, name=f"answer_{number}")
            valid = Signal(name=f"valid_{number}")
            half = Signal(8 * RECORD_BYTES, name=f"half_{number}")
            second = halves.bit_select(item.id[: len(held.tag)], 1)
            m.d.comb += [
                valid.eq(item.valid & (item.source == Source.SPILL)),
                half.eq(item.data[:SECTOR_WIDTH].word_select(second, 8 * RECORD_BYTES)),
                found.tag.eq(item.id),
                found.record.eq(half),
            ]
            answers.append((valid, found))
        if config.far_backing_store:
            found = Signal(answer, name="answer_far")
            m.d.comb += [found.tag.eq(self.far.response.tag), found.record.eq(self.far.response.record)]
            answers.append((self.far.response.valid, found))
        if len(answers) == 1:
            valid, found = answers[0]
            self._answer(m, valid, found, held, refused)
            return m
        m.submodules.merge = merge = StreamArbiter(answer, len(answers))
        for number, (valid, found) in enumerate(answers):
            queue = Queue(answer, config.spill_tags, checked=config.protects_memories, apart=("record",))
            m.submodules[f"answers_{number}"] = queue
            m.d.comb += [queue.i.valid.eq(valid), queue.i.payload.eq(found)]
            connect(m, queue.o, merge.inputs[number])
            if config.protects_memories:
                wrong.append(queue.wrong)
        m.d.comb += merge.output.ready.eq(1)
        if config.protects_memories:
            m.d.comb += self.queues_wrong.eq(Cat(wrong).any())
        self._answer(m, merge.output.valid, merge.output.payload, held, refused)
        return m

    def _answer(self, m: Module, valid: Value, found: data.View, held: data.View, refused: Signal) -> None:
        """Answer what was read, and in between a fetch that was refused."""
        m.d.sync += [
            self.response.valid.eq(valid | (refused & ~held.write)),
            self.response.tag.eq(Mux(valid, found.tag, held.tag)),
            self.response.record.eq(Mux(valid, found.record, 0)),
        ]
        with m.If(refused & (held.write | ~valid)):
            m.d.sync += refused.eq(0)
