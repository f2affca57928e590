"""A stream that several blocks have to take, each of them everything."""

from amaranth import Cat, Module, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped


class StreamFork(wiring.Component):
    """Gives each payload of `input` to each of `outputs` exactly once, as soon as that one takes it.

    Ports: `input`, taken in the cycle in which the last output takes it; `outputs`. Latency 0 cycles, one payload a
    cycle when all take at once; one output costs nothing. No output's `valid` depends on a `ready`. A payload that is
    withdrawn (in hand while outputs have it already) is forgotten in the first cycle without `input.valid`.
    """

    def __init__(self, payload: ShapeLike, outputs: int):
        self._outputs = outputs
        super().__init__(
            {"input": In(stream.Signature(payload)), "outputs": Out(stream.Signature(payload)).array(outputs)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._outputs == 1:
            connect(m, flipped(self.input), flipped(self.outputs[0]))
            return m
        given = Signal(self._outputs)
        has = Signal(self._outputs)
        m.d.comb += [
            has.eq(given | Cat(port.ready for port in self.outputs)),
            self.input.ready.eq(has.all()),
            *(
                stmt
                for number, port in enumerate(self.outputs)
                for stmt in (port.payload.eq(self.input.payload), port.valid.eq(self.input.valid & ~given[number]))
            ),
        ]
        m.d.sync += given.eq(has)
        with m.If(~self.input.valid | self.input.ready):
            m.d.sync += given.eq(0)
        return m
