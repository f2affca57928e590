"""The crossbar of channels and Tracker banks."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from ..primitives.stream_arbiter import StreamArbiter
from .parameters import TrackerParameters


class Crossbar(wiring.Component):
    """Takes each channel's messages to the Tracker bank named by the low bits of their wg.

    Ports: `inputs` per channel, `outputs` per bank. Latency 0 cycles; every bank may take one message a cycle.
    """

    def __init__(self, config: TrackerParameters):
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
