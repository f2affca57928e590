"""Data of reads on the way back: it finds its reader in the order of the commands."""

from amaranth import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Messages, Source, with_parity
from ..primitives.queue import Queue
from .parameters import ControllerParameters


class ReadReturn(wiring.Component):
    """Ports: `issued` with `source` and `id`: a read's column command is on the bus; `read_data`: CL cycles after it;
    `response`: data of reads of the compute stream, queued (`response_depth`, reserved when a read was taken);
    `returns`: data of the others, in the cycle in which it comes, with its parity; `empty`: no data is awaited or
    waits; with protection of memories `queues_wrong`, a pulse: a reader, or data for one, left a queue, or the
    register that says whose data comes next, with a wrong bit."""

    def __init__(self, config: ControllerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "issued": In(1),
                "source": In(Source),
                "id": In(messages.memory_id),
                "read_data": In(messages.read_data),
                "response": Out(stream.Signature(messages.compute_response)),
                "returns": Out(messages.read_return),
                "empty": Out(1),
                **({"queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reader = data.StructLayout({"source": Source, "id": self._messages.memory_id})
        checked = self._config.protects_memories
        m.submodules.readers = readers = Queue(reader, self._config.timing.cl + 2, bypass=True, checked=checked)
        # Whose data comes next stands in a register, because much follows from it.
        awaiting = Signal(reader)
        awaits = Signal()
        m.d.comb += readers.o.ready.eq(~awaits | self.read_data.valid)
        arrives = Signal()
        m.d.comb += arrives.eq(awaits & self.read_data.valid)
        with m.If(readers.o.ready):
            m.d.sync += [awaiting.eq(readers.o.payload), awaits.eq(readers.o.valid)]
        m.submodules.response_queue = responses = Queue(
            self._messages.compute_response, self._config.response_depth, checked=checked
        )
        if checked:
            parity, wrong = Signal(), Signal()
            with m.If(readers.o.ready):
                m.d.sync += parity.eq(Value.cast(readers.o.payload).xor())
            m.d.sync += wrong.eq(arrives & (awaiting.as_value().xor() ^ parity))
            m.d.comb += self.queues_wrong.eq(readers.wrong | responses.wrong | wrong)
        connect(m, responses.o, flipped(self.response))
        read = self.read_data.data
        m.d.comb += [
            readers.i.valid.eq(self.issued),
            readers.i.payload.source.eq(self.source),
            readers.i.payload.id.eq(self.id),
            responses.i.valid.eq(self.read_data.valid & (awaiting.source == Source.COMPUTE)),
            responses.i.payload.id.eq(awaiting.id),
            responses.i.payload.data.eq(self.read_data.data),
            self.returns.valid.eq(self.read_data.valid & (awaiting.source != Source.COMPUTE)),
            self.returns.source.eq(awaiting.source),
            self.returns.id.eq(awaiting.id),
            self.returns.data.eq(with_parity(read) if self._config.checks_sectors else read),
            self.empty.eq(~(awaits | readers.level.any() | responses.level.any())),
        ]
        return m
