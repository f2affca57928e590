"""Round-robin merge of several streams into one, and the crossbar of channels and Tracker banks built of it."""

from amaranth import Cat, Module, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import Messages


class StreamArbiter(wiring.Component):
    """Merges `inputs` streams fairly: after a payload is taken, its input has the lowest priority.

    Ports: `inputs`, `output`. Latency 0 cycles. A payload once offered stays until it is taken. One input costs
    nothing.
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
            with m.Switch(last):
                for previous in range(count):
                    with m.Case(previous):
                        for distance in reversed(range(1, count + 1)):
                            with m.If(valids[(previous + distance) % count]):
                                m.d.comb += choice.eq((previous + distance) % count)
        with m.Switch(choice):
            for index, port in enumerate(self.inputs):
                with m.Case(index):
                    m.d.comb += [self.output.payload.eq(port.payload), port.ready.eq(self.output.ready)]
        with m.If(self.output.valid):
            m.d.sync += [last.eq(choice), locked.eq(~self.output.ready)]
        return m


class Crossbar(wiring.Component):
    """Takes each channel's messages to the Tracker bank named by the low bits of their wg.

    Ports: `inputs` per channel, `outputs` per bank. Latency 0 cycles; every bank may take one message a cycle.
    """

    def __init__(self, config: Configuration):
        self._config = config
        self._commit = Messages(config).commit
        super().__init__(
            {
                "inputs": In(stream.Signature(self._commit)).array(config.channels),
                "outputs": Out(stream.Signature(self._commit)).array(config.tracker_banks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels, banks = self._config.channels, self._config.tracker_banks
        bank_bits = (banks - 1).bit_length()
        arbiters = []
        for bank in range(banks):
            arbiter = StreamArbiter(self._commit, channels)
            m.submodules[f"bank_{bank}"] = arbiter
            arbiters.append(arbiter)
            wiring.connect(m, arbiter.output, wiring.flipped(self.outputs[bank]))
        for channel in range(channels):
            port = self.inputs[channel]
            for bank, arbiter in enumerate(arbiters):
                chosen = Signal(name=f"chosen_{channel}_{bank}")
                m.d.comb += [
                    chosen.eq(port.payload.wg[:bank_bits] == bank if bank_bits else 1),
                    arbiter.inputs[channel].payload.eq(port.payload),
                    arbiter.inputs[channel].valid.eq(port.valid & chosen),
                ]
                with m.If(chosen):
                    m.d.comb += port.ready.eq(arbiter.inputs[channel].ready)
        return m
