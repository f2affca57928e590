"""Arbiter between the compute and the communication stream (T3 section 4.5, memory-controller arbitration MCA)."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..messages import ArbiterControl, Policy, Threshold
from .intensity import IntensityDetector

LIMITS = {Threshold.OCCUPANCY_5: 5, Threshold.OCCUPANCY_10: 10, Threshold.OCCUPANCY_30: 30}
"""DRAM-queue occupancy below which MCA lets communication in. An empty queue is below each of them, so that
communication gets through at any queue depth."""


class Arbiter(wiring.Component):
    """Chooses each cycle which stream enters the DRAM queue.

    Ports: `control`; `kernel_active`; `accepted`: a compute request entered the compute queue (for the detector);
    `occupancy`: requests in the DRAM queue; `room`: the DRAM queue takes a request of one of the two this cycle;
    `compute_waiting`, `communication_waiting`: the queue has a request; `compute_admissible`,
    `communication_admissible`: and everything it needs besides `room`; `take_compute`, `take_communication`: it is
    moved this cycle (0 cycles, at most one of the two); `held_compute`, `held_communication`: waiting and not taken;
    `passed_over`: communication could have been taken and was not;
    `forced`: communication was taken only because of the starvation limit; `threshold`: the limit in force.

    ROUND_ROBIN alternates and falls back to the other stream; COMPUTE_FIRST lets communication in when compute has
    nothing admissible; MCA moreover only while the occupancy is below the threshold. While no kernel is active the
    threshold does not hold (drain at the kernel boundary). A communication request that has waited
    `control.starvation_limit` cycles is the next to enter the DRAM queue.

    PACED lets communication in when MCA does, and keeps it at a pace of one request in `control.pace` cycles: its lag
    grows by one a cycle while a request waits, and falls by the pace with each request (to 0 when none waits). From
    `control.pace_lag` on communication goes first until its lag is below the pace. So compute goes first as long as
    its bursts are shorter than what the buffers behind communication can bridge, a longer one cannot stop the
    link, and what is made up for enters in one go, which spares the DRAM turns of its data bus.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "control": In(ArbiterControl),
                "kernel_active": In(1),
                "accepted": In(1),
                "occupancy": In(7),
                "room": In(1),
                "compute_waiting": In(1),
                "compute_admissible": In(1),
                "communication_waiting": In(1),
                "communication_admissible": In(1),
                "take_compute": Out(1),
                "take_communication": Out(1),
                "held_compute": Out(1),
                "held_communication": Out(1),
                "passed_over": Out(1),
                "forced": Out(1),
                "threshold": Out(Threshold),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.detector = detector = IntensityDetector()
        m.d.comb += [
            detector.control.eq(self.control),
            detector.kernel_active.eq(self.kernel_active),
            detector.accepted.eq(self.accepted),
            self.threshold.eq(detector.threshold),
        ]

        below = Signal()
        with m.Switch(self.threshold):
            for threshold, limit in LIMITS.items():
                with m.Case(threshold):
                    m.d.comb += below.eq(self.occupancy < limit)
            with m.Default():
                m.d.comb += below.eq(1)

        idle_below = Signal()
        m.d.comb += idle_below.eq(~self.compute_admissible & (below | ~self.kernel_active))

        compute_last = Signal()
        waited = Signal(16)
        starved = Signal()
        m.d.comb += starved.eq(
            (self.control.starvation_limit != 0)
            & (waited >= self.control.starvation_limit)
            & self.communication_admissible
        )

        lag = Signal(16)
        """PACED: cycles by which communication is behind its pace."""
        catching_up = Signal()
        moved = Signal(17)
        m.d.comb += moved.eq(lag + 1)
        with m.If(~self.communication_waiting):
            m.d.sync += [lag.eq(0), catching_up.eq(0)]
        with m.Else():
            with m.If(self.take_communication):
                m.d.sync += lag.eq(Mux(moved > self.control.pace, moved - self.control.pace, 0))
            with m.Elif(~lag.all()):
                m.d.sync += lag.eq(moved)
            with m.If(lag >= self.control.pace_lag):
                m.d.sync += catching_up.eq(1)
            with m.Elif(lag < self.control.pace):
                m.d.sync += catching_up.eq(0)

        policy_communication = Signal()
        """The policy itself lets communication in, whatever its wait."""
        with m.Switch(self.control.policy):
            with m.Case(Policy.ROUND_ROBIN):
                m.d.comb += policy_communication.eq(compute_last | ~self.compute_admissible)
            with m.Case(Policy.COMPUTE_FIRST):
                m.d.comb += policy_communication.eq(~self.compute_admissible)
            with m.Case(Policy.MCA):
                m.d.comb += policy_communication.eq(idle_below)
            with m.Case(Policy.PACED):
                m.d.comb += policy_communication.eq(idle_below | catching_up)

        communication = Signal()
        m.d.comb += [
            communication.eq(self.communication_admissible & (policy_communication | starved)),
            self.take_communication.eq(self.room & communication),
            self.take_compute.eq(self.room & self.compute_admissible & ~communication),
            self.forced.eq(self.take_communication & ~policy_communication),
            self.passed_over.eq(self.room & self.communication_admissible & ~communication),
            self.held_compute.eq(self.compute_waiting & ~self.take_compute),
            self.held_communication.eq(self.communication_waiting & ~self.take_communication),
        ]
        with m.If(self.take_compute | self.take_communication):
            m.d.sync += compute_last.eq(self.take_compute)
        with m.If(self.held_communication):
            with m.If(waited != 0xFFFF):
                m.d.sync += waited.eq(waited + 1)
        with m.Else():
            m.d.sync += waited.eq(0)
        return m
