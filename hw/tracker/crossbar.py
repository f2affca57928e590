"""The crossbar to the Tracker banks."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..primitives.stream_arbiter import StreamArbiter
from .parameters import TrackerParameters


class Crossbar(wiring.Component):
    """Takes messages to the Tracker bank named by the low bits of their wg.

    Ports: `inputs`, as many as asked for, `outputs` per bank. Latency 0 cycles; every bank may take a message a cycle.
    """

    def __init__(self, config: TrackerParameters, inputs: int):
        self._config = config
        self._inputs = inputs
        self._commit = Messages(config).commit
        super().__init__(
            {
                "inputs": In(stream.Signature(self._commit)).array(inputs),
                "outputs": Out(stream.Signature(self._commit)).array(config.tracker_banks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._config.tracker_banks
        bank_bits = (banks - 1).bit_length()
        arbiters = []
        for bank in range(banks):
            arbiter = StreamArbiter(self._commit, self._inputs)
            m.submodules[f"bank_{bank}"] = arbiter
            arbiters.append(arbiter)
            wiring.connect(m, arbiter.output, wiring.flipped(self.outputs[bank]))
        for number, port in enumerate(self.inputs):
            for bank, arbiter in enumerate(arbiters):
                chosen = Signal(name=f"chosen_{number}_{bank}")
                m.d.comb += [
                    chosen.eq(port.payload.wg[:bank_bits] == bank if bank_bits else 1),
                    arbiter.inputs[number].payload.eq(port.payload),
                    arbiter.inputs[number].valid.eq(port.valid & chosen),
                ]
                with m.If(chosen):
                    m.d.comb += port.ready.eq(arbiter.inputs[number].ready)
        return m
