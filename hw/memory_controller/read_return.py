"""Data of reads on the way back: it finds its reader in the order of the commands."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Messages, Source, with_parity
from ..primitives.queue import Queue
from .parameters import ControllerParameters


class ReadReturn(wiring.Component):
    """Ports: `issued` with `source` and `id`: a read's column command is on the bus; `read_data`: CL cycles after it;
    `response`: data of reads of the compute stream, queued (`response_depth`, reserved when a read was taken);
    `returns`: data of the others, in the cycle in which it comes, with its parity; `empty`: no data is awaited or
    waits; with protection of memories `queues_wrong`, a pulse: a reader, or data for one, left a queue with a wrong
    bit."""

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
        m.submodules.readers = readers = Queue(reader, self._config.timing.cl + 2, checked=checked)
        m.submodules.response_queue = responses = Queue(
            self._messages.compute_response, self._config.response_depth, checked=checked
        )
        if checked:
            m.d.comb += self.queues_wrong.eq(readers.wrong | responses.wrong)
        connect(m, responses.o, flipped(self.response))
        read = self.read_data.data
        m.d.comb += [
            readers.i.valid.eq(self.issued),
            readers.i.payload.source.eq(self.source),
            readers.i.payload.id.eq(self.id),
            readers.o.ready.eq(self.read_data.valid),
            responses.i.valid.eq(self.read_data.valid & (readers.o.payload.source == Source.COMPUTE)),
            responses.i.payload.id.eq(readers.o.payload.id),
            responses.i.payload.data.eq(self.read_data.data),
            self.returns.valid.eq(self.read_data.valid & (readers.o.payload.source != Source.COMPUTE)),
            self.returns.source.eq(readers.o.payload.source),
            self.returns.id.eq(readers.o.payload.id),
            self.returns.data.eq(with_parity(read) if self._config.checks_sectors else read),
            self.empty.eq(~(readers.level.any() | responses.level.any())),
        ]
        return m
