"""Gates that launch events open: a counter for each group of tiles that workgroups wait for (T3 section 7.2)."""

from amaranth import ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.messages import MessageParameters, Messages
from sim.models.plan_layout import GATES

LAUNCH_BITS = 16


class LaunchGates(wiring.Component):
    """Ports: `launches` of the node; `gate` is asked for, `count` of its launch events answers in the same cycle.

    After reset all counters are set to 0, one a cycle, and no launch is taken before. Which gate the tile with a wg
    number counts up is in the file +gates=<prefix>, one line per number, the same for all GPUs.
    """

    def __init__(self, config: MessageParameters):
        self._config = config
        super().__init__(
            {
                "launches": In(stream.Signature(Messages(config).launch_event)),
                "gate": In(range(GATES)),
                "count": Out(LAUNCH_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        swept = Signal(range(GATES + 1))
        sweeping = swept != GATES
        with m.If(sweeping):
            m.d.sync += swept.eq(swept + 1)
        counted = Signal(range(GATES))
        before = Signal(LAUNCH_BITS)
        m.submodules.places = Instance(
            "plan_memory",
            p_WIDTH=len(counted),
            p_LINES=1 << self._config.wg_bits,
            p_PER_GPU=0,
            p_KIND="gates=%s",
            i_clk=ClockSignal(),
            i_id=Const(0, 32),
            i_address=self.launches.payload.wg,
            o_data=counted,
        )
        m.submodules.counts = Instance(
            "model_memory",
            p_WIDTH=LAUNCH_BITS,
            p_DEPTH=GATES,
            i_clk=ClockSignal(),
            i_write=sweeping | self.launches.valid,
            i_write_address=Mux(sweeping, swept[: len(counted)], counted),
            i_write_data=Mux(sweeping, 0, (before + 1)[:LAUNCH_BITS]),
            i_read_address_0=counted,
            i_read_address_1=self.gate,
            o_read_data_0=before,
            o_read_data_1=self.count,
        )
        m.d.comb += self.launches.ready.eq(~sweeping)
        return m
