"""Round-robin merge of streams of one payload type."""

from amaranth import Array, Module, Signal
from amaranth.hdl import ShapeCastable
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StreamArbiter(wiring.Component):
    """Merges `inputs` streams into `output`, one payload a cycle, least recently served first.

    A payload once offered stays until taken. With one input it is a wire. Latency 0 cycles; `output.valid` does not
    depend on `output.ready`.
    """

    def __init__(self, shape: ShapeCastable, inputs: int):
        self._count = inputs
        super().__init__(
            {"inputs": In(stream.Signature(shape)).array(inputs), "output": Out(stream.Signature(shape))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._count == 1:
            wiring.connect(m, wiring.flipped(self.inputs[0]), wiring.flipped(self.output))
            return m
        last = Signal(range(self._count))
        locked = Signal()
        chosen = Signal(range(self._count))
        m.d.comb += chosen.eq(last)
        with m.If(~locked):
            with m.Switch(last):
                for position in range(self._count):
                    with m.Case(position):
                        for distance in reversed(range(1, self._count + 1)):
                            index = (position + distance) % self._count
                            with m.If(self.inputs[index].valid):
                                m.d.comb += chosen.eq(index)
        m.d.comb += self.output.valid.eq(Array(port.valid for port in self.inputs)[chosen])
        with m.Switch(chosen):
            for index, port in enumerate(self.inputs):
                with m.Case(index):
                    m.d.comb += [self.output.payload.eq(port.payload), port.ready.eq(self.output.ready)]
        m.d.sync += locked.eq(self.output.valid & ~self.output.ready)
        with m.If(self.output.valid):
            m.d.sync += last.eq(chosen)
        return m
