"""Round-robin merge of several streams of one payload type into one."""

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .round_robin import next_in_turn


class StreamArbiter(wiring.Component):
    """Merges `inputs` streams fairly: after a payload is taken, its input has the lowest priority.

    Ports: `inputs`, `output`. Latency 0 cycles. A payload once offered stays until it is taken. One input costs
    nothing. Inputs that withdraw what they offer must all do so in one cycle. `output.valid` does not depend on
    `output.ready`.
    """

    def __init__(self, payload: ShapeLike, inputs: int):
        self._inputs = inputs
        super().__init__(
            {"inputs": In(stream.Signature(payload)).array(inputs), "output": Out(stream.Signature(payload))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._inputs
        if count == 1:
            wiring.connect(m, wiring.flipped(self.inputs[0]), wiring.flipped(self.output))
            return m
        valids = Signal(count)
        last = Signal(range(count))
        choice = Signal(range(count))
        locked = Signal()
        m.d.comb += [
            valids.eq(Cat(port.valid for port in self.inputs)),
            self.output.valid.eq(valids.any()),
            choice.eq(last),
        ]
        with m.If(~locked):
            next_in_turn(m, "comb", choice, valids, last)
        with m.Switch(choice):
            for index, port in enumerate(self.inputs):
                with m.Case(index):
                    m.d.comb += [self.output.payload.eq(port.payload), port.ready.eq(self.output.ready)]
        with m.If(self.output.valid):
            m.d.sync += last.eq(choice)
        m.d.sync += locked.eq(self._stands())
        return m

    def _stands(self) -> Value:
        """Whether the choice of this cycle holds in the next one, too."""
        return self.output.valid & ~self.output.ready
