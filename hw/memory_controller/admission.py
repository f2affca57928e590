"""Entrance of the memory controller: three streams of requests, of which one request a cycle goes on to the DRAM.

Everything a request needs later is reserved when it is taken: room for its commit and, for a read of the compute
stream, room for its data. So nothing behind this block ever waits for anybody. The arbiter decides in one cycle: only
two bits per request, kept beside the queues, are looked at before the decision. Source: T3 section 4.5.
"""

from functools import partial

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import Access, ArbiterControl, Messages, Source, Threshold
from ..primitives.places import Room
from ..primitives.queue import Queue
from .arbiter import Arbiter
from .parameters import ControllerParameters

LATE_PART = 4
"""Of requests that come late in their cycle, chosen among those of several sources: see `part` of a memory's watch."""

Needs = data.StructLayout({"commit": unsigned(1), "response": unsigned(1)})
"""What a request reserves when it is taken: a place for its commit, a place for its data."""

Decision = data.StructLayout(
    {
        "held_compute": unsigned(1),
        "held_communication": unsigned(1),
        "passed_over": unsigned(1),
        "took_communication": unsigned(1),
        "forced": unsigned(1),
        "threshold": Threshold,
    }
)
"""What the arbiter did: fields as in :data:`hw.memory_controller.events.ControllerEvents`."""


def needs(request: data.View) -> Value:
    """The :data:`Needs` of a request."""
    reads = request.access == Access.READ
    return Cat(request.tracked & ~reads, reads & (request.source == Source.COMPUTE))


class Admission(wiring.Component):
    """Queues of the three streams, the arbiter, and the count of what is reserved.

    Ports: `compute`, `communication`: the streams between which the arbiter chooses; `spill`, which goes before both;
    `control`, `kernel_active`, `occupancy`: of the :class:`Arbiter`; `room`: a request can go on in this cycle; `take`
    with `request`: it does (0 cycles); `commit_given`, `response_given`: a reserved place is free again; `settles`:
    what is taken is a write that belongs to an epoch (those of the neighbours all), `settled`: one of these is at its
    bank, `unsettled`: one was accepted and is not; `decision`: see :data:`Decision`; `empty`: no request waits in a
    queue; with protection of memories `queues_wrong`, a pulse: a request left a queue with a wrong bit (data have a
    parity of their own). Latency 1 cycle; one request a cycle. `ready` of a stream depends on registers only.
    """

    def __init__(self, config: ControllerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        requests = stream.Signature(messages.memory_request)
        super().__init__(
            {
                "compute": In(requests),
                "communication": In(requests),
                "spill": In(requests),
                "control": In(ArbiterControl),
                "kernel_active": In(1),
                "occupancy": In(7),
                "room": In(1),
                "take": Out(1),
                "request": Out(messages.memory_request),
                "commit_given": In(1),
                "response_given": In(1),
                "settles": Out(1),
                "settled": In(1),
                "unsettled": Out(1),
                "decision": Out(Decision),
                "empty": Out(1),
                **({"queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, shape = self._config, self._messages.memory_request
        checked = config.protects_memories
        queue = partial(Queue, shape, checked=checked, apart=("data",))
        m.submodules.compute_queue = compute = queue(config.compute_queue_depth, mark=Needs)
        m.submodules.communication_queue = communication = queue(
            config.communication_queue_depth, mark=Needs, part=LATE_PART
        )
        m.submodules.spill_queue = spill = queue(min(2, config.spill_queue_depth), part=LATE_PART)
        if checked:
            m.d.comb += self.queues_wrong.eq(compute.wrong | communication.wrong | spill.wrong)
        m.submodules.arbiter = arbiter = Arbiter()
        m.submodules.commit_room = commit_room = Room(config.commit_queue_depth)
        m.submodules.response_room = response_room = Room(config.response_depth)
        for queue, port in ((compute, self.compute), (communication, self.communication), (spill, self.spill)):
            connect(m, flipped(port), queue.i)
        for queue, port in ((compute, self.compute), (communication, self.communication)):
            m.d.comb += queue.i_mark.as_value().eq(needs(port.payload))

        # One request a cycle is taken; its reservations are made at once.
        take_spill = Signal()
        reserved = Signal(Needs)

        def admissible(wanted: data.View) -> Value:
            return ~(wanted.commit & ~commit_room.available) & ~(wanted.response & ~response_room.available)

        m.d.comb += [
            take_spill.eq(self.room & spill.o.valid),
            arbiter.control.eq(self.control),
            arbiter.kernel_active.eq(self.kernel_active),
            arbiter.occupancy.eq(self.occupancy),
            arbiter.accepted.eq(self.compute.valid & self.compute.ready),
            arbiter.room.eq(self.room & ~spill.o.valid),
            arbiter.compute_waiting.eq(compute.o.valid),
            arbiter.compute_admissible.eq(compute.o.valid & admissible(compute.o_mark)),
            arbiter.communication_waiting.eq(communication.o.valid),
            arbiter.communication_admissible.eq(communication.o.valid & admissible(communication.o_mark)),
            spill.o.ready.eq(self.room),
            compute.o.ready.eq(arbiter.take_compute),
            communication.o.ready.eq(arbiter.take_communication),
            self.take.eq(take_spill | arbiter.take_compute | arbiter.take_communication),
            response_room.take.eq(self.take & reserved.response),
            response_room.give.eq(self.response_given),
            commit_room.take.eq(self.take & reserved.commit),
            commit_room.give.eq(self.commit_given),
        ]
        with m.If(spill.o.valid):
            m.d.comb += [self.request.eq(spill.o.payload), reserved.as_value().eq(needs(spill.o.payload))]
        with m.Elif(arbiter.take_communication):
            m.d.comb += [self.request.eq(communication.o.payload), reserved.eq(communication.o_mark)]
        with m.Else():
            m.d.comb += [self.request.eq(compute.o.payload), reserved.eq(compute.o_mark)]

        self._settle(m, arbiter.take_communication)
        m.d.comb += [
            self.empty.eq(~Cat(compute.level.any(), communication.level.any(), spill.level.any()).any()),
            self.decision.held_compute.eq(arbiter.held_compute),
            self.decision.held_communication.eq(arbiter.held_communication),
            self.decision.passed_over.eq(arbiter.passed_over),
            self.decision.took_communication.eq(arbiter.take_communication),
            self.decision.forced.eq(arbiter.forced),
            self.decision.threshold.eq(arbiter.threshold),
        ]
        return m

    def _settle(self, m: Module, take_communication: Signal) -> None:
        """Count the writes that belong to an epoch: the next one must find them at their banks."""
        config = self._config
        places = config.compute_queue_depth + config.communication_queue_depth + config.dram_queue_depth
        unsettled = Signal(range(places + 1))
        starts_compute = Signal()
        starts_communication = Signal()
        compute, communication = self.compute, self.communication
        m.d.comb += [
            starts_compute.eq(
                compute.valid
                & compute.ready
                & (compute.payload.access != Access.READ)
                & (compute.payload.tracked | compute.payload.first_touch)
            ),
            starts_communication.eq(
                communication.valid & communication.ready & (communication.payload.access != Access.READ)
            ),
            self.settles.eq(
                (self.request.access != Access.READ)
                & (take_communication | self.request.tracked | self.request.first_touch)
            ),
        ]
        # What starts is known late, so it is counted a cycle after.
        starts = Signal(range(3))
        settled = Signal()
        m.d.sync += [
            starts.eq(starts_compute + starts_communication),
            settled.eq(self.settled),
            unsettled.eq(unsettled + starts - settled),
        ]
        m.d.comb += self.unsettled.eq((unsettled != 0) | (starts != 0))
