"""An arbitration policy of one's own, in RTL, in a whole ring: a fourth of the places for communication."""

from unittest.mock import patch

from amaranth import Module, Signal

from hw.memory_controller import Arbiter, admission
from hw.messages import Threshold
from sim.experiments.catalogue import shape
from sim.experiments.experiment import run_experiment
from sim.simulator.fast_model import changed_hardware

SHARE = 4


class OneInFour(Arbiter):
    """The ports of :class:`Arbiter`; of `SHARE` requests one is communication's, when both wait."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        computed = Signal(range(SHARE))
        communication = Signal()
        turn = ~self.compute_admissible | (computed == SHARE - 1)
        m.d.comb += [
            communication.eq(self.communication_admissible & turn),
            self.take_communication.eq(self.room & communication),
            self.take_compute.eq(self.room & self.compute_admissible & ~communication),
            self.held_compute.eq(self.compute_waiting & ~self.take_compute),
            self.held_communication.eq(self.communication_waiting & ~self.take_communication),
            self.passed_over.eq(self.room & self.communication_admissible & ~communication),
            self.threshold.eq(Threshold.NONE),
        ]
        with m.If(self.take_communication):
            m.d.sync += computed.eq(0)
        with m.Elif(self.take_compute & (computed != SHARE - 1)):
            m.d.sync += computed.eq(computed + 1)
        return m


if __name__ == "__main__":
    spec = shape("mca", "10", name="ring-4", gpus=4, shape=(512, 256, 64))
    theirs = run_experiment(spec)
    with patch.object(admission, "Arbiter", OneInFour), changed_hardware():
        ours = run_experiment(spec)
    for name, result in {"MCA": theirs, "one in four": ours}.items():
        assert result["passed"], result["errors"]
        held = result["arbiter"]["held_compute"]
        print(f"{name:12} {result['cycles']:8,} cycles, compute held back in {held:,}")
